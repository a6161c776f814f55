//! Pins: directories and files whose content belongs on one tier.

use crate::limits::PIN_DEPTH_MAX;
use crate::{InodeId, Tier};
use std::collections::BTreeMap;

/// The pinned directories and files of a volume, and the tier that each is pinned to.
pub type Pins = BTreeMap<InodeId, Tier>;

/// The pin that decides for an inode: its own, or else that of the nearest directory above it. `parent`
/// answers the directory of an inode; `None` if that is not known, and then neither is the pin.
pub fn nearest_pin<E>(
    pins: &Pins,
    ino: InodeId,
    mut parent: impl FnMut(InodeId) -> Result<Option<InodeId>, E>,
) -> Result<Option<(InodeId, Tier)>, E> {
    if pins.is_empty() {
        return Ok(None);
    }
    let mut at = ino;
    for _ in 0..PIN_DEPTH_MAX {
        if let Some(tier) = pins.get(&at) {
            return Ok(Some((at, *tier)));
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

    #[test]
    fn nearest_pin_wins_and_an_unknown_directory_ends_the_search() {
        // 1 / 2 / 3 / 4, and 9 is below an unknown directory.
        let parent = |ino: InodeId| {
            Ok::<_, ()>(match ino.0 {
                1 => Some(InodeId::ROOT),
                2..=4 => Some(InodeId(ino.0 - 1)),
                _ => None,
            })
        };
        let pins = Pins::from([(InodeId(2), Tier::Cold), (InodeId(4), Tier::Hot)]);
        let find = |ino| nearest_pin(&pins, InodeId(ino), parent).expect("nothing fails");
        assert_eq!(find(4), Some((InodeId(4), Tier::Hot)));
        assert_eq!(find(3), Some((InodeId(2), Tier::Cold)));
        assert_eq!((find(1), find(9)), (None, None));
        assert_eq!(nearest_pin(&Pins::new(), InodeId(4), |_| Err(())), Ok(None), "nothing is looked up");
    }
}
