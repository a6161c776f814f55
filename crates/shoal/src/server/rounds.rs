//! Rounds of questions to the bricks and mounts of a volume, as a node takes part in them.
//!
//! **Model.** The node that an administrator asks begins the round on every node ([`Ask::BeginRound`]).
//! Mounts ask one node after the other whether there is a round ([`super::reporter`]) and answer to that
//! node. The first node gathers the answers from all. A node keeps the last round of each volume and what
//! was told to it.
//!
//! **Bounds.** An answer, the answers that are kept, and a page of them are bounded in bytes. A mount whose
//! answer finds no room counts as one that has not answered.

use super::calls::{Answer, Ask};
use super::context::ServerContext;
use super::statistics::volume_name;
use crate::admin::EventKind;
use crate::limits::{ROUND_LIFE, TOLD_BYTES_KEPT_MAX, TOLD_BYTES_MAX, TOLD_PAGE_BYTES};
use crate::profile::{Round, Told, Wanted};
use parking_lot::Mutex;
use shoal_cluster::Outcome;
use shoal_types::{GroupId, SessionId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::Instant;

/// The rounds of all volumes.
#[derive(Default)]
pub struct Rounds(Mutex<HashMap<GroupId, Current>>);

/// The last round of a volume.
struct Current {
    round: Round,
    begun: Instant,
    /// What mounts have told, with its length in bytes.
    told: BTreeMap<SessionId, (usize, Told)>,
}

impl Current {
    fn bytes(&self) -> usize {
        self.told.values().map(|(bytes, _)| bytes).sum()
    }
}

impl Rounds {
    fn begin(&self, volume: GroupId, round: Round) {
        let mut rounds = self.0.lock();
        rounds.retain(|_, current| current.begun.elapsed() < ROUND_LIFE);
        rounds.insert(volume, Current { round, begun: Instant::now(), told: BTreeMap::new() });
    }

    /// The round for a mount that has answered this one last.
    fn wanted(&self, volume: GroupId, answered: u64) -> Option<Round> {
        let rounds = self.0.lock();
        let current = rounds.get(&volume).filter(|current| current.begun.elapsed() < ROUND_LIFE)?;
        (current.round.id != answered).then(|| current.round.clone())
    }

    fn tell(
        &self,
        volume: GroupId,
        session: SessionId,
        round: u64,
        (bytes, told): (usize, Told),
    ) -> Result<(), &'static str> {
        if bytes > TOLD_BYTES_MAX {
            return Err("the answer is too long");
        }
        let mut rounds = self.0.lock();
        let kept: usize = rounds.values().map(Current::bytes).sum();
        let current = rounds.get_mut(&volume).filter(|current| current.round.id == round);
        let current = current.ok_or("the round is over")?;
        if kept + bytes > TOLD_BYTES_KEPT_MAX {
            return Err("there is no room for more answers");
        }
        current.told.insert(session, (bytes, told));
        Ok(())
    }

    /// A page of what mounts have told in a round.
    pub(super) fn told(&self, volume: GroupId, round: u64, after: Option<SessionId>) -> Answer {
        let rounds = self.0.lock();
        let current = rounds.get(&volume).filter(|current| current.round.id == round);
        let (mut mounts, mut room) = (Vec::new(), TOLD_PAGE_BYTES);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (session, (bytes, told)) in
            current.iter().flat_map(|one| one.told.range((from, Bound::Unbounded)))
        {
            if room < *bytes {
                return Answer::Told { mounts, complete: false };
            }
            room -= bytes;
            mounts.push((*session, told.clone()));
        }
        Answer::Told { mounts, complete: true }
    }
}

impl ServerContext {
    /// Begins a round here, and answers for the bricks of this node.
    pub(super) fn begin_round(&self, volume: GroupId, round: &Round) -> Answer {
        self.rounds.begin(volume, round.clone());
        Answer::Profiles(match round.what {
            Wanted::Profile { marks } => self.bricks.profiles(&self.view.map(), volume, round.id, marks),
            Wanted::Top(_) | Wanted::ClearTop => BTreeMap::new(),
        })
    }

    /// Answers a mount, whose request took this many bytes.
    pub(super) fn answer_mount(&self, ask: Ask, bytes: usize) -> Answer {
        match ask {
            Ask::Round { volume, answered } => Answer::Round(self.rounds.wanted(volume, answered)),
            Ask::Tell { volume, session, round, told } => {
                match self.rounds.tell(volume, session, round, (bytes, told)) {
                    Ok(()) => Answer::Done(Outcome::Done),
                    Err(why) => Answer::Failed(why.into()),
                }
            }
            Ask::Lost { volume, text } => {
                let name = volume_name(&self.view.map(), volume);
                self.events.note(EventKind::SessionEnded, Some(&name), &text);
                Answer::Done(Outcome::Done)
            }
            _ => Answer::Failed("only nodes ask this".into()),
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

    fn told(rounds: &Rounds, id: u64, after: Option<SessionId>) -> (Vec<u64>, bool) {
        match rounds.told(VOLUME, id, after) {
            Answer::Told { mounts, complete } => {
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
        rounds.tell(VOLUME, SessionId(3), 1, (10, Told::Cleared)).unwrap();
        assert_eq!(told(&rounds, 1, None), (vec![3], true));
        assert_eq!(told(&rounds, 2, None), (vec![], true), "another round");
        rounds.begin(VOLUME, round(2));
        assert!(rounds.tell(VOLUME, SessionId(3), 1, (10, Told::Cleared)).is_err(), "it is over");
        assert_eq!(told(&rounds, 2, None), (vec![], true));
        assert!(rounds.tell(VOLUME, SessionId(3), 2, (TOLD_BYTES_MAX + 1, Told::Cleared)).is_err());
    }

    #[test]
    fn answers_come_in_pages_and_find_no_room_beyond_the_limit() {
        let rounds = Rounds::default();
        rounds.begin(VOLUME, round(1));
        let page = TOLD_PAGE_BYTES / TOLD_BYTES_MAX;
        let all = TOLD_BYTES_KEPT_MAX / TOLD_BYTES_MAX;
        for session in 0..all as u64 {
            rounds.tell(VOLUME, SessionId(session), 1, (TOLD_BYTES_MAX, Told::Cleared)).unwrap();
        }
        assert!(rounds.tell(VOLUME, SessionId(u64::MAX), 1, (TOLD_BYTES_MAX, Told::Cleared)).is_err());
        let (first, complete) = told(&rounds, 1, None);
        assert_eq!((first.len(), complete), (page, false));
        let (second, _) = told(&rounds, 1, first.last().map(|last| SessionId(*last)));
        assert_eq!((second.len(), second[0]), (page, page as u64));
        assert_eq!(told(&rounds, 1, Some(SessionId(all as u64 - 2))), (vec![all as u64 - 1], true));
    }
}
