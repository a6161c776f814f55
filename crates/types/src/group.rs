//! Block groups.

use crate::BrickId;
use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Largest number of bricks that one block may be on.
pub const GROUP_BRICKS_MAX: usize = 16;

/// The set of bricks that hold a block's copies, each of them durably. The empty group means the single brick
/// of a volume without a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockGroup {
    len: u8,
    /// In ascending order; the slots from `len` on are 0, so that equal groups compare equal.
    bricks: [u16; GROUP_BRICKS_MAX],
}

impl BlockGroup {
    /// The group of these bricks, each of which counts once. `None` if they are too many.
    pub fn new(bricks: impl IntoIterator<Item = BrickId>) -> Option<BlockGroup> {
        let mut group = BlockGroup::default();
        for brick in bricks {
            group = group.with(brick)?;
        }
        Some(group)
    }

    /// Its bricks, in ascending order.
    pub fn bricks(&self) -> impl Iterator<Item = BrickId> + '_ {
        self.bricks.iter().take(usize::from(self.len)).map(|brick| BrickId(*brick))
    }

    /// How many bricks.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether it is the group of a volume without a cluster.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a brick is in the group.
    pub fn contains(&self, brick: BrickId) -> bool {
        self.bricks().any(|one| one == brick)
    }

    /// The group with one brick more; `None` if it is full.
    #[must_use]
    pub fn with(mut self, brick: BrickId) -> Option<BlockGroup> {
        if self.contains(brick) {
            return Some(self);
        }
        let len = self.len();
        *self.bricks.get_mut(len)? = brick.0;
        self.len += 1;
        self.bricks[..=len].sort_unstable();
        Some(self)
    }

    /// The group without this brick.
    #[must_use]
    pub fn without(self, brick: BrickId) -> BlockGroup {
        BlockGroup::new(self.bricks().filter(|one| *one != brick)).unwrap_or_default()
    }
}

impl fmt::Debug for BlockGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.bricks().map(|brick| brick.0)).finish()
    }
}

impl Serialize for BlockGroup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.len()))?;
        for brick in self.bricks() {
            list.serialize_element(&brick)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for BlockGroup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BlockGroup, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = BlockGroup;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {GROUP_BRICKS_MAX} bricks")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BlockGroup, A::Error> {
                let mut group = BlockGroup::default();
                while let Some(brick) = list.next_element()? {
                    group = group.with(brick).ok_or_else(|| A::Error::custom("too many bricks"))?;
                }
                Ok(group)
            }
        }
        deserializer.deserialize_seq(List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_set() {
        let group = |bricks: &[u16]| BlockGroup::new(bricks.iter().map(|one| BrickId(*one))).expect("few");
        assert_eq!(group(&[3, 1, 2, 1]), group(&[1, 2, 3]));
        assert_eq!(group(&[3, 1]).with(BrickId(2)), Some(group(&[1, 2, 3])));
        assert_eq!(group(&[3, 1]).without(BrickId(3)), group(&[1]));
        assert!(group(&[3]).contains(BrickId(3)) && !group(&[3]).contains(BrickId(0)));
        assert_eq!(BlockGroup::new((0..17).map(BrickId)), None);
    }
}
