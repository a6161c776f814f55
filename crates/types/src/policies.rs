//! Placement policies of directories and files, by their inode numbers, as an administrator has set them.
//!
//! **Model.** A policy holds for an inode and for all content below it. The nearest one decides: a file's
//! own, or else that of the nearest directory above it. A policy belongs to the inode and not to its name.
//! Each kind of policy is looked up by itself.

use crate::limits::POLICY_DEPTH_MAX;
use crate::{BlockScheme, InodeId, Tier};
use std::collections::BTreeMap;

/// The policies of one kind in a volume.
pub type InodePolicies<T> = BTreeMap<InodeId, T>;

/// The pinned directories and files of a volume, and the tier that each is pinned to.
pub type Pins = InodePolicies<Tier>;

/// The directories and files of a volume that have a scheme of their own on the cold tier.
pub type Schemes = InodePolicies<BlockScheme>;

/// All policies of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policies {
    /// Pins to a tier.
    pub pins: Pins,
    /// Schemes.
    pub schemes: Schemes,
}

/// What decides for the content of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// The tier that it is pinned to.
    pub tier: Option<Tier>,
    /// Its scheme on the cold tier; `None`: the volume's.
    pub scheme: Option<BlockScheme>,
}

impl Policies {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty() && self.schemes.is_empty()
    }

    /// What decides for an inode. `parent` is that of [`nearest_policy`].
    pub fn of<E>(
        &self,
        ino: InodeId,
        mut parent: impl FnMut(InodeId) -> Result<Option<InodeId>, E>,
    ) -> Result<Policy, E> {
        let tier = nearest_policy(&self.pins, ino, &mut parent)?.map(|(_, tier)| tier);
        let scheme = nearest_policy(&self.schemes, ino, parent)?.map(|(_, scheme)| scheme);
        Ok(Policy { tier, scheme })
    }
}

/// The policy that decides for an inode, and whose it is. `parent` answers the directory of an inode; `None`
/// if that is not known, and then neither is the policy.
pub fn nearest_policy<T: Copy, E>(
    policies: &InodePolicies<T>,
    ino: InodeId,
    mut parent: impl FnMut(InodeId) -> Result<Option<InodeId>, E>,
) -> Result<Option<(InodeId, T)>, E> {
    if policies.is_empty() {
        return Ok(None);
    }
    let mut at = ino;
    for _ in 0..POLICY_DEPTH_MAX {
        if let Some(policy) = policies.get(&at) {
            return Ok(Some((at, *policy)));
        }
        match parent(at)?.filter(|_| at != InodeId::ROOT) {
            Some(above) => at = above,
            None => break,
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 / 2 / 3 / 4, and 9 is below an unknown directory.
    fn parent(ino: InodeId) -> Result<Option<InodeId>, ()> {
        Ok(match ino.0 {
            1 => Some(InodeId::ROOT),
            2..=4 => Some(InodeId(ino.0 - 1)),
            _ => None,
        })
    }

    #[test]
    fn nearest_pin_wins_and_an_unknown_directory_ends_the_search() {
        let pins = Pins::from([(InodeId(2), Tier::Cold), (InodeId(4), Tier::Hot)]);
        let find = |ino| nearest_policy(&pins, InodeId(ino), parent).expect("nothing fails");
        assert_eq!(find(4), Some((InodeId(4), Tier::Hot)));
        assert_eq!(find(3), Some((InodeId(2), Tier::Cold)));
        assert_eq!((find(1), find(9)), (None, None));
        assert_eq!(nearest_policy(&Pins::new(), InodeId(4), |_| Err(())), Ok(None), "nothing is looked up");
    }

    #[test]
    fn kinds_of_policies_do_not_hide_each_other() {
        let pins = Pins::from([(InodeId(2), Tier::Hot)]);
        let schemes = Schemes::from([(InodeId(3), BlockScheme::Copies(3))]);
        let policies = Policies { pins, schemes };
        let of = |ino| policies.of(InodeId(ino), parent).expect("nothing fails");
        assert_eq!(of(4), Policy { tier: Some(Tier::Hot), scheme: Some(BlockScheme::Copies(3)) });
        assert_eq!(of(2), Policy { tier: Some(Tier::Hot), scheme: None });
        assert_eq!(of(1), Policy::default());
    }
}
