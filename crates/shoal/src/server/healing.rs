//! What a volume's leader does about blocks that lack copies or lie where they should not.

use super::calls::Answer;
use super::core::Core;
use shoal_types::{BrickId, GroupId};

impl Core {
    /// How healing stands, for the leader of a volume; looks at all blocks anew if asked to.
    pub(super) fn heal(&self, volume: GroupId, _full: bool) -> Answer {
        match self.opener.volume(volume).filter(|one| one.server().replica().leads()) {
            Some(_) => Answer::Failed("this version does not heal".into()),
            None => Answer::NotLeader(self.groups.leader_node(volume)),
        }
    }

    /// Whether no block is on a brick, as the leader of its volume knows.
    pub(super) fn drained(&self, volume: GroupId, _brick: BrickId) -> Answer {
        match self.opener.volume(volume).filter(|one| one.server().replica().leads()) {
            Some(_) => Answer::Drained(false),
            None => Answer::NotLeader(self.groups.leader_node(volume)),
        }
    }
}
