//! Rounds of questions to the bricks and mounts of a volume, as a node takes part in them.
//!
//! **Model.** The node that an administrator asks begins the round on every node
//! ([`NodeRequest::BeginRound`]). Mounts ask one node after the other whether there is a round
//! ([`super::reporter`]) and answer to that node. The first node gathers the answers from all. A node keeps
//! the last rounds of each volume in the order in which they reached it, with the answers. So several
//! administrators may ask at a time.
//!
//! **Bounds.** Rounds are bounded in number and age. An answer, the answers that are kept, and a page of them
//! are bounded in bytes. Answers to earlier rounds of the volume are discarded first. A mount whose answer
//! finds no room counts as one that has not answered.

use super::calls::{NodeReply, NodeRequest};
use super::context::ServerContext;
use super::statistics::volume_name;
use crate::admin::EventKind;
use crate::limits::{
    ROUND_LIFE, ROUND_REPLIES_BYTES_MAX, ROUND_REPLIES_KEPT_BYTES_MAX, ROUND_REPLIES_PAGE_BYTES,
    ROUNDS_KEPT_MAX,
};
use crate::profile::{Round, RoundReply, Wanted};
use parking_lot::Mutex;
use shoal_cluster::Outcome;
use shoal_types::{GroupId, SessionId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::time::Instant;

/// The rounds of all volumes.
#[derive(Default)]
pub struct Rounds(Mutex<HashMap<GroupId, VecDeque<Current>>>);

/// A round of a volume.
struct Current {
    round: Round,
    begun: Instant,
    /// The answers of mounts, each with its length in bytes.
    replies: BTreeMap<SessionId, (usize, RoundReply)>,
}

impl Current {
    fn bytes(&self) -> usize {
        self.replies.values().map(|(bytes, _)| bytes).sum()
    }

    fn lives(&self) -> bool {
        self.begun.elapsed() < ROUND_LIFE
    }
}

impl Rounds {
    fn begin(&self, volume: GroupId, round: Round) {
        let mut all = self.0.lock();
        all.values_mut().for_each(|rounds| rounds.retain(Current::lives));
        all.retain(|id, rounds| *id == volume || !rounds.is_empty());
        let rounds = all.entry(volume).or_default();
        if rounds.len() == ROUNDS_KEPT_MAX {
            rounds.pop_front();
        }
        rounds.push_back(Current { round, begun: Instant::now(), replies: BTreeMap::new() });
    }

    /// The round for a mount that has answered this one last: the next one here, or the first if that one
    /// is not known here.
    fn wanted(&self, volume: GroupId, answered: u64) -> Option<Round> {
        let all = self.0.lock();
        let rounds = all.get(&volume)?;
        let next = rounds.iter().position(|one| one.round.id == answered).map_or(0, |at| at + 1);
        rounds.iter().skip(next).find(|one| one.lives()).map(|one| one.round.clone())
    }

    fn submit(
        &self,
        volume: GroupId,
        session: SessionId,
        round: u64,
        (bytes, reply): (usize, RoundReply),
    ) -> Result<(), &'static str> {
        if bytes > ROUND_REPLIES_BYTES_MAX {
            return Err("the answer is too long");
        }
        let mut all = self.0.lock();
        let mut kept: usize = all.values().flatten().map(Current::bytes).sum();
        let rounds = all.get_mut(&volume).ok_or("the round is over")?;
        let at = rounds.iter().position(|one| one.round.id == round).ok_or("the round is over")?;
        for earlier in rounds.iter_mut().take(at) {
            if kept + bytes <= ROUND_REPLIES_KEPT_BYTES_MAX {
                break;
            }
            kept -= earlier.bytes();
            earlier.replies.clear();
        }
        if kept + bytes > ROUND_REPLIES_KEPT_BYTES_MAX {
            return Err("there is no room for more answers");
        }
        rounds[at].replies.insert(session, (bytes, reply));
        Ok(())
    }

    /// A page of the answers of mounts in a round.
    pub(super) fn replies(&self, volume: GroupId, round: u64, after: Option<SessionId>) -> NodeReply {
        let rounds = self.0.lock();
        let current = rounds.get(&volume).and_then(|all| all.iter().find(|one| one.round.id == round));
        let (mut mounts, mut room) = (Vec::new(), ROUND_REPLIES_PAGE_BYTES);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (session, (bytes, reply)) in
            current.iter().flat_map(|one| one.replies.range((from, Bound::Unbounded)))
        {
            if room < *bytes {
                return NodeReply::RoundReplies { mounts, complete: false };
            }
            room -= bytes;
            mounts.push((*session, reply.clone()));
        }
        NodeReply::RoundReplies { mounts, complete: true }
    }
}

impl ServerContext {
    /// Begins a round here, and answers for the bricks of this node.
    pub(super) fn begin_round(&self, volume: GroupId, round: &Round) -> NodeReply {
        self.rounds.begin(volume, round.clone());
        NodeReply::Profiles(match round.what {
            Wanted::Profile { marks } => self.bricks.profiles(&self.view.map(), volume, round.id, marks),
            Wanted::Top(_) | Wanted::ClearTop => BTreeMap::new(),
        })
    }

    /// Answers a mount, whose request took this many bytes.
    pub(super) fn answer_mount(&self, ask: NodeRequest, bytes: usize) -> NodeReply {
        match ask {
            NodeRequest::Round { volume, answered } => NodeReply::Round(self.rounds.wanted(volume, answered)),
            NodeRequest::SubmitRoundReply { volume, session, round, reply } => {
                match self.rounds.submit(volume, session, round, (bytes, reply)) {
                    Ok(()) => NodeReply::Done(Outcome::Done),
                    Err(why) => NodeReply::Failed(why.into()),
                }
            }
            NodeRequest::Lost { volume, text } => {
                let name = volume_name(&self.view.map(), volume);
                self.events.note(EventKind::SessionEnded, Some(&name), &text);
                NodeReply::Done(Outcome::Done)
            }
            _ => NodeReply::Failed("only nodes may send this request".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: GroupId = GroupId(7);

    fn round(id: u64) -> Round {
        Round { id, what: Wanted::ClearTop }
    }

    fn replies(rounds: &Rounds, id: u64, after: Option<SessionId>) -> (Vec<u64>, bool) {
        match rounds.replies(VOLUME, id, after) {
            NodeReply::RoundReplies { mounts, complete } => {
                (mounts.iter().map(|(session, _)| session.0).collect(), complete)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mount_is_asked_until_it_has_answered_the_latest_round() {
        let rounds = Rounds::default();
        assert_eq!(rounds.wanted(VOLUME, 0), None);
        rounds.begin(VOLUME, round(1));
        assert_eq!(rounds.wanted(VOLUME, 0), Some(round(1)));
        assert_eq!((rounds.wanted(VOLUME, 1), rounds.wanted(GroupId(8), 0)), (None, None));
        rounds.submit(VOLUME, SessionId(3), 1, (10, RoundReply::Cleared)).unwrap();
        assert_eq!(replies(&rounds, 1, None), (vec![3], true));
        assert_eq!(replies(&rounds, 2, None), (vec![], true), "another round");
        assert!(rounds.submit(VOLUME, SessionId(3), 2, (10, RoundReply::Cleared)).is_err(), "there is none");
        rounds.begin(VOLUME, round(2));
        assert_eq!(replies(&rounds, 2, None), (vec![], true));
        assert!(
            rounds
                .submit(VOLUME, SessionId(3), 2, (ROUND_REPLIES_BYTES_MAX + 1, RoundReply::Cleared))
                .is_err()
        );
    }

    #[test]
    fn rounds_of_several_administrators_are_answered_one_after_the_other() {
        let rounds = Rounds::default();
        let wanted = |answered| rounds.wanted(VOLUME, answered).map(|round| round.id);
        // The later round has the lower number: it comes from a node whose clock is behind.
        rounds.begin(VOLUME, round(7));
        rounds.begin(VOLUME, round(5));
        assert_eq!([wanted(0), wanted(7), wanted(5)], [Some(7), Some(5), None]);
        for id in [7, 5] {
            rounds.submit(VOLUME, SessionId(3), id, (10, RoundReply::Cleared)).unwrap();
            assert_eq!(replies(&rounds, id, None), (vec![3], true));
        }
        (10..10 + ROUNDS_KEPT_MAX as u64).for_each(|id| rounds.begin(VOLUME, round(id)));
        assert_eq!([wanted(7), wanted(10)], [Some(10), Some(11)], "the first ones have made room");
        assert!(rounds.submit(VOLUME, SessionId(3), 5, (10, RoundReply::Cleared)).is_err(), "it is over");
    }

    #[test]
    fn answers_come_in_pages_and_find_no_room_beyond_the_limit() {
        let rounds = Rounds::default();
        rounds.begin(VOLUME, round(1));
        let page = ROUND_REPLIES_PAGE_BYTES / ROUND_REPLIES_BYTES_MAX;
        let all = ROUND_REPLIES_KEPT_BYTES_MAX / ROUND_REPLIES_BYTES_MAX;
        for session in 0..all as u64 {
            rounds
                .submit(VOLUME, SessionId(session), 1, (ROUND_REPLIES_BYTES_MAX, RoundReply::Cleared))
                .unwrap();
        }
        assert!(
            rounds
                .submit(VOLUME, SessionId(u64::MAX), 1, (ROUND_REPLIES_BYTES_MAX, RoundReply::Cleared))
                .is_err()
        );
        let (first, complete) = replies(&rounds, 1, None);
        assert_eq!((first.len(), complete), (page, false));
        let (second, _) = replies(&rounds, 1, first.last().map(|last| SessionId(*last)));
        assert_eq!((second.len(), second[0]), (page, page as u64));
        assert_eq!(replies(&rounds, 1, Some(SessionId(all as u64 - 2))), (vec![all as u64 - 1], true));
        rounds.begin(VOLUME, round(2));
        rounds.submit(VOLUME, SessionId(0), 2, (ROUND_REPLIES_BYTES_MAX, RoundReply::Cleared)).unwrap();
        assert_eq!((replies(&rounds, 1, None), replies(&rounds, 2, None)), ((vec![], true), (vec![0], true)));
    }
}
