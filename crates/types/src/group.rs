//! Block groups.

use crate::{BlockScheme, BrickId, Shards};
use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Largest number of bricks that one block may be on.
pub const GROUP_BRICKS_MAX: usize = 16;

/// Bytes of a column of shards: their length is a multiple of it.
pub const SHARD_COLUMN_BYTES: u32 = 64;

/// Marks the record of a group of shards, where that of a group of copies has its first brick. No brick has
/// this number.
const SHARDS_MARK: BrickId = BrickId(u16::MAX);

/// Marks the record of a group on the hot tier: it comes first, and the number of copies follows. No brick
/// has this number.
const HOT_MARK: BrickId = BrickId(u16::MAX - 1);

/// Marks the record of a group on the cold tier with a number of copies of its own, which follows. No brick
/// has this number.
const COPIES_MARK: BrickId = BrickId(u16::MAX - 2);

/// The largest number that a brick may have.
pub const BRICK_NUMBER_MAX: u16 = u16::MAX - 3;

/// A set of a volume's bricks with a scheme of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Tier {
    /// The bricks that the volume was created with, and what was added to them.
    #[default]
    Cold,
    /// The bricks of an attached tier.
    Hot,
}

/// The bricks that hold a block, each of them durably: a set of bricks with a copy each, or an ordered list
/// of bricks with a shard each. The empty group means the single brick of a volume without a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockGroup {
    /// Copies: how many bricks. Shards: how many there are when none is missing.
    len: u8,
    /// Shards that give the block back; 0 in a group of copies.
    data: u8,
    /// Length of each shard in columns; 0 in a group of copies.
    columns: u16,
    /// Where the bricks are.
    tier: Tier,
    /// Copies that the block should have if it is not in shards; 0: as many as the volume was created with.
    /// On the hot tier never 0.
    copies: u8,
    /// Copies: in ascending order. Shards: the brick of each shard in the order of their indexes, 0 where it
    /// is missing. The slots from `len` on are 0, so that equal groups compare equal.
    bricks: [u16; GROUP_BRICKS_MAX],
}

impl BlockGroup {
    /// The group of copies on these bricks, each of which counts once. `None` if they are too many.
    pub fn new(bricks: impl IntoIterator<Item = BrickId>) -> Option<BlockGroup> {
        let mut group = BlockGroup::default();
        for brick in bricks {
            group = group.with(brick)?;
        }
        Some(group)
    }

    /// A group of `data` data shards and `parity` parity shards of so many columns, all of them missing.
    /// `None` if that is no group.
    pub fn of_shards(data: usize, parity: usize, columns: u16) -> Option<BlockGroup> {
        let len = data.checked_add(parity).filter(|len| *len <= GROUP_BRICKS_MAX)?;
        let is_one = data > 0 && parity > 0 && columns > 0;
        is_one.then(|| BlockGroup { len: len as u8, data: data as u8, columns, ..BlockGroup::default() })
    }

    /// The tier that its bricks belong to.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// The group on the hot tier, where blocks that are not in shards should have so many copies.
    #[must_use]
    pub fn on_hot_tier(self, copies: u8) -> BlockGroup {
        BlockGroup { tier: Tier::Hot, copies: copies.max(1), ..self }
    }

    /// The group of copies on the cold tier that should have so many of them, in a volume that was created
    /// with `original`. A group of shards stays as it is.
    #[must_use]
    pub fn wanting_copies(self, copies: u8, original: u8) -> BlockGroup {
        let own = if copies == original { 0 } else { copies };
        if self.is_sharded() { self } else { BlockGroup { copies: own, ..self } }
    }

    /// Copies that the block should have if it is not in shards, in a volume that was created with
    /// `original`.
    pub fn wanted_copies(&self, original: u8) -> u8 {
        if self.copies > 0 { self.copies } else { original }
    }

    /// The scheme that its block is stored in, in a volume that was created with `original` copies.
    pub fn scheme(&self, original: u8) -> BlockScheme {
        match self.is_sharded() {
            true => BlockScheme::Shards(Shards { data: self.data, parity: self.len - self.data }),
            false => BlockScheme::Copies(self.wanted_copies(original)),
        }
    }

    /// The empty group of copies on the tier of this one.
    #[must_use]
    pub fn no_copies(&self) -> BlockGroup {
        BlockGroup { tier: self.tier, copies: self.copies, ..BlockGroup::default() }
    }

    /// Whether its bricks hold shards.
    pub fn is_sharded(&self) -> bool {
        self.data > 0
    }

    /// Shards that give the block back, `k`; 0 in a group of copies.
    pub fn data_shards(&self) -> usize {
        usize::from(self.data)
    }

    /// All shards, missing ones included, `k + m`; 0 in a group of copies.
    pub fn all_shards(&self) -> usize {
        if self.is_sharded() { usize::from(self.len) } else { 0 }
    }

    /// Length of each shard in bytes; 0 in a group of copies.
    pub fn shard_bytes(&self) -> u32 {
        u32::from(self.columns) * SHARD_COLUMN_BYTES
    }

    fn slots(&self) -> &[u16] {
        &self.bricks[..usize::from(self.len)]
    }

    /// Its bricks: those with copies in ascending order, those with shards in the order of their shards.
    pub fn bricks(&self) -> impl Iterator<Item = BrickId> + '_ {
        let is_sharded = self.is_sharded();
        self.slots().iter().filter(move |brick| !is_sharded || **brick != 0).map(|brick| BrickId(*brick))
    }

    /// Which shard is on which brick, without the missing ones; nothing for a group of copies.
    pub fn shards(&self) -> impl Iterator<Item = (usize, BrickId)> + '_ {
        let all = if self.is_sharded() { self.slots() } else { &[] };
        all.iter()
            .enumerate()
            .filter(|(_, brick)| **brick != 0)
            .map(|(index, brick)| (index, BrickId(*brick)))
    }

    /// The brick of a shard.
    pub fn shard(&self, index: usize) -> Option<BrickId> {
        self.shards().find(|(one, _)| *one == index).map(|(_, brick)| brick)
    }

    /// The shard on a brick.
    pub fn shard_on(&self, brick: BrickId) -> Option<usize> {
        self.shards().find(|(_, one)| *one == brick).map(|(index, _)| index)
    }

    /// The missing shards.
    pub fn missing_shards(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.all_shards()).filter(|index| self.bricks.get(*index) == Some(&0))
    }

    /// How many bricks.
    pub fn len(&self) -> usize {
        self.bricks().count()
    }

    /// Whether it has no bricks: it is the group of a volume without a cluster.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has fewer bricks than it should, in a volume that was created with `original` copies.
    pub fn is_short(&self, original: u8) -> bool {
        match self.is_sharded() {
            true => self.missing_shards().next().is_some(),
            false => self.len() < usize::from(self.wanted_copies(original)),
        }
    }

    /// Whether a brick is in the group.
    pub fn contains(&self, brick: BrickId) -> bool {
        self.bricks().any(|one| one == brick)
    }

    /// The group with one copy more; `None` if it is full, or a group of shards.
    #[must_use]
    pub fn with(mut self, brick: BrickId) -> Option<BlockGroup> {
        if self.is_sharded() {
            return None;
        }
        if self.contains(brick) {
            return Some(self);
        }
        let len = self.len();
        *self.bricks.get_mut(len)? = brick.0;
        self.len += 1;
        self.bricks[..=len].sort_unstable();
        Some(self)
    }

    /// The group with a shard on a brick; `None` if the shard is on a brick already, or the brick has another
    /// shard, or there is no such shard or brick.
    #[must_use]
    pub fn with_shard(mut self, index: usize, brick: BrickId) -> Option<BlockGroup> {
        let is_free = index < self.all_shards() && self.bricks[index] == 0;
        if !is_free || brick.0 == 0 || brick.0 > BRICK_NUMBER_MAX || self.contains(brick) {
            return None;
        }
        self.bricks[index] = brick.0;
        Some(self)
    }

    /// The group without this brick. In a group of shards its shard is missing then.
    #[must_use]
    pub fn without(mut self, brick: BrickId) -> BlockGroup {
        if self.is_sharded() {
            self.bricks.iter_mut().filter(|one| **one == brick.0).for_each(|one| *one = 0);
            return self;
        }
        let rest = BlockGroup::new(self.bricks().filter(|one| *one != brick)).unwrap_or_default();
        BlockGroup { tier: self.tier, copies: self.copies, ..rest }
    }

    /// The group without what another one has, too: the copy, or the same shard, on the same brick.
    #[must_use]
    pub fn without_all(self, other: &BlockGroup) -> BlockGroup {
        match (self.is_sharded(), other.is_sharded()) {
            (false, false) => other.bricks().fold(self, BlockGroup::without),
            (true, true) => {
                let same = other.shards().filter(|(index, brick)| self.shard(*index) == Some(*brick));
                same.fold(self, |group, (_, brick)| group.without(brick))
            }
            _ => self,
        }
    }
}

impl fmt::Debug for BlockGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tier, self.copies) {
            (Tier::Hot, _) => f.write_str("hot ")?,
            (Tier::Cold, 0) => {}
            (Tier::Cold, copies) => write!(f, "{copies} copies ")?,
        }
        if self.is_sharded() {
            write!(f, "{}+{} of {} columns ", self.data, self.len - self.data, self.columns)?;
            return f.debug_list().entries(self.slots()).finish();
        }
        f.debug_set().entries(self.bricks().map(|brick| brick.0)).finish()
    }
}

/// A group of copies is the list of its bricks. A group of shards is a mark, the number of data shards, their
/// length in columns, and the brick of each shard. Before either, a group on the hot tier, or one with a
/// number of copies of its own, has a mark and that number.
impl Serialize for BlockGroup {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mark = if self.tier == Tier::Hot { HOT_MARK } else { COPIES_MARK };
        let own = [mark, BrickId(u16::from(self.copies))];
        let own = if self.copies > 0 { &own[..] } else { &[] };
        let head = [SHARDS_MARK, BrickId(u16::from(self.data)), BrickId(self.columns)];
        let head = if self.is_sharded() { &head[..] } else { &[] };
        let mut list = serializer.serialize_seq(Some(own.len() + head.len() + self.slots().len()))?;
        for number in own.iter().chain(head) {
            list.serialize_element(number)?;
        }
        for brick in self.slots() {
            list.serialize_element(&BrickId(*brick))?;
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
                    if matches!(brick, HOT_MARK | COPIES_MARK) && group == BlockGroup::default() {
                        let copies = list.next_element::<BrickId>()?.and_then(|it| u8::try_from(it.0).ok());
                        let copies = copies.filter(|copies| *copies > 0);
                        group.copies = copies.ok_or_else(|| A::Error::custom("no number of copies"))?;
                        group.tier = if brick == HOT_MARK { Tier::Hot } else { Tier::Cold };
                        continue;
                    }
                    if brick == SHARDS_MARK && group.is_empty() {
                        let (tier, copies) = (group.tier, group.copies);
                        return shards_of(list).map(|shards| BlockGroup { tier, copies, ..shards });
                    }
                    if brick.0 > BRICK_NUMBER_MAX {
                        return Err(A::Error::custom("no brick has such a number"));
                    }
                    group = group.with(brick).ok_or_else(|| A::Error::custom("too many bricks"))?;
                }
                Ok(group)
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// What follows the mark.
fn shards_of<'de, A: SeqAccess<'de>>(mut list: A) -> Result<BlockGroup, A::Error> {
    let wrong = || A::Error::custom("no group of shards");
    let data: BrickId = list.next_element()?.ok_or_else(wrong)?;
    let columns: BrickId = list.next_element()?.ok_or_else(wrong)?;
    let mut bricks = Vec::with_capacity(GROUP_BRICKS_MAX);
    while let Some(brick) = list.next_element::<BrickId>()? {
        if bricks.len() >= GROUP_BRICKS_MAX {
            return Err(A::Error::custom("too many bricks"));
        }
        bricks.push(brick);
    }
    let parity = bricks.len().checked_sub(usize::from(data.0)).ok_or_else(wrong)?;
    let mut group = BlockGroup::of_shards(usize::from(data.0), parity, columns.0).ok_or_else(wrong)?;
    for (index, brick) in bricks.iter().enumerate().filter(|(_, brick)| brick.0 != 0) {
        group = group.with_shard(index, *brick).ok_or_else(wrong)?;
    }
    Ok(group)
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
    #[test]
    fn group_on_the_hot_tier_stays_there_and_knows_its_copies() {
        let cold = BlockGroup::new([BrickId(3), BrickId(4)]).expect("few");
        let hot = cold.on_hot_tier(2);
        assert_eq!((cold.tier(), hot.tier()), (Tier::Cold, Tier::Hot));
        assert_ne!(cold, hot);
        assert!(cold.is_short(3) && !hot.is_short(3), "the other tier has three");
        let one = hot.without(BrickId(4));
        assert!(one.is_short(1) && one.tier() == Tier::Hot);
        assert_eq!(one.with(BrickId(4)), Some(hot));
        assert_eq!(hot.without_all(&hot), hot.no_copies());
        assert_eq!(hot.no_copies().with(BrickId(3)).and_then(|it| it.with(BrickId(4))), Some(hot));
    }

    #[test]
    fn group_with_copies_of_its_own_keeps_their_number_unless_it_is_the_volumes() {
        let two = BlockGroup::new([BrickId(3), BrickId(4)]).expect("few");
        let five = two.wanting_copies(5, 3);
        assert_eq!((five.wanted_copies(3), two.wanted_copies(3)), (5, 3));
        assert_eq!(two.wanting_copies(3, 3), two, "old records are read as they were written");
        let one = five.without(BrickId(3));
        assert!(one.is_short(1) && one.tier() == Tier::Cold && !two.wanting_copies(2, 3).is_short(3));
        assert_eq!(one.with(BrickId(3)), Some(five));
        assert_eq!(five.no_copies().wanted_copies(3), 5);
        assert_eq!(five.on_hot_tier(2), two.on_hot_tier(2));
        let shards = BlockGroup::of_shards(2, 1, 1).expect("a legal group");
        assert_eq!(shards.wanting_copies(5, 3), shards);
    }

    #[test]
    fn group_of_shards_keeps_their_order_and_has_one_shard_on_a_brick() {
        let empty = BlockGroup::of_shards(4, 2, 100).expect("a legal group");
        assert!(empty.is_empty() && empty.is_sharded() && empty != BlockGroup::default());
        let two = empty.with_shard(5, BrickId(1)).and_then(|it| it.with_shard(0, BrickId(9))).expect("free");
        assert_eq!(two.shards().collect::<Vec<_>>(), [(0, BrickId(9)), (5, BrickId(1))]);
        assert_eq!((two.len(), two.shard(5), two.shard_on(BrickId(9))), (2, Some(BrickId(1)), Some(0)));
        assert_eq!(two.missing_shards().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(two.with_shard(1, BrickId(9)), None, "two shards on one brick");
        assert_eq!(two.with_shard(5, BrickId(3)), None, "one shard on two bricks");
        assert_eq!(two.with_shard(6, BrickId(3)), None, "there is no such shard");
        assert_eq!((two.with_shard(1, BrickId(0)), two.with(BrickId(3))), (None, None));
        assert_eq!(two.without(BrickId(9)), empty.with_shard(5, BrickId(1)).expect("free"));
        let moved =
            empty.with_shard(0, BrickId(9)).and_then(|it| it.with_shard(4, BrickId(1))).expect("free");
        assert_eq!(two.without_all(&moved).bricks().collect::<Vec<_>>(), [BrickId(1)], "as another shard");
        let copies = BlockGroup::new([BrickId(1), BrickId(9)]).expect("few");
        assert_eq!(
            (two.without_all(&copies), copies.without_all(&two)),
            (two, copies),
            "they are not the same"
        );
        assert!(two.is_short(1) && !copies.is_short(2) && copies.is_short(3));
        for (data, parity, columns) in [(0, 2, 1), (4, 0, 1), (4, 2, 0), (12, 5, 1), (usize::MAX, 1, 1)] {
            assert_eq!(BlockGroup::of_shards(data, parity, columns), None);
        }
    }
}
