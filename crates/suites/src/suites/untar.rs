//! `untar`: a tree like the kernel's is unpacked, archived and removed, on one mount and on several at once.

use super::trees::own_trees;
use crate::turn::Turn;

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    (1..=turn.tops.len()).try_for_each(|mounts| own_trees(turn, "", mounts))
}
