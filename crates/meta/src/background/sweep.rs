//! Deletes copies that nobody knows of: blocks that a session stored and never committed, and copies on bricks that are not among
//! those that the namespace names.
//!
//! **Which.** A session's blocks become known in the log with the batch that first names them. When the session has ended, no such batch can
//! come any more, so what is unknown then is garbage. The metadata group's own blocks (compaction) are swept by the thread that writes them,
//! between two of its steps. Of a block that is known, copies are in excess on bricks outside of its group, unless the healer is about
//! to add one of them.
//!
//! **When.** A session that has ended is swept at once, all sessions when this replica comes to lead and when a brick is back. Whoever stored a
//! block may have given up on a brick that takes it nevertheless, a while later: so each of these is repeated once, and all sessions are
//! swept now and then for good. So nothing has to remember what was left somewhere, and nothing is left for ever.

use super::Trouble;
use crate::limits::{COLLECT_PAGE, SWEEP_AGAIN_AFTER, SWEEP_PAGE, SWEEP_REST_FACTOR};
use crate::shared::Shared;
use shoal_namespace::{TreeError, query};
use shoal_runtime::planted::mistake;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{BlockGroup, BlockId, SessionId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

/// Which sessions are to be swept, and when.
pub(crate) struct Sweeper {
    every: Duration,
    ended: BTreeMap<SessionId, Due>,
    /// When a round over all sessions begins, and whether there is a reason for it.
    all_at: Instant,
    asked: bool,
    /// What is left of a round, and when it goes on.
    round: VecDeque<SessionId>,
    rests_until: Instant,
}

/// When a session is swept that has ended.
#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    /// It is the last time.
    last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    /// A session that has ended.
    Ended(SessionId),
    /// The next one of the round.
    OfRound(SessionId),
    /// A round begins.
    Round,
}

impl Sweeper {
    /// One that sweeps all sessions every so often, if there is no other reason to.
    pub(crate) fn new(every: Duration) -> Sweeper {
        let now = Instant::now();
        let (ended, round) = (BTreeMap::new(), VecDeque::new());
        Sweeper { every, ended, all_at: now + every, asked: false, round, rests_until: now }
    }

    /// A session has ended.
    pub(crate) fn ended(&mut self, session: SessionId, now: Instant) {
        self.ended.insert(session, Due { at: now, last: false });
    }

    /// There may be something of any session.
    pub(crate) fn all(&mut self, now: Instant) {
        (self.all_at, self.asked) = (now, true);
    }

    /// When there is something to do.
    pub(crate) fn due(&self) -> Instant {
        let round = if self.round.is_empty() { self.all_at } else { self.rests_until };
        self.ended.values().map(|due| due.at).min().map_or(round, |ended| ended.min(round))
    }

    /// Sweeps one session, if one is due. Answers whether a round has begun for no other reason than that it was time.
    pub(crate) fn step(&mut self, shared: &Shared) -> Result<bool, Trouble> {
        let begun = Instant::now();
        match self.next(begun) {
            None => {}
            Some(Piece::Ended(session)) => {
                let is_clean = sweep(shared, session)?;
                self.swept(session, is_clean, Instant::now());
            }
            Some(Piece::OfRound(session)) => {
                sweep(shared, session)?;
                self.went_on(Instant::now(), begun.elapsed());
            }
            Some(Piece::Round) => return Ok(self.begin(shared.bricks.stored_sessions()?, begun)),
        }
        Ok(false)
    }

    fn next(&self, now: Instant) -> Option<Piece> {
        let ended = self.ended.iter().find(|(_, due)| due.at <= now);
        match self.round.front() {
            _ if ended.is_some() => ended.map(|(session, _)| Piece::Ended(*session)),
            Some(session) => (self.rests_until <= now).then_some(Piece::OfRound(*session)),
            None => (self.all_at <= now).then_some(Piece::Round),
        }
    }

    fn swept(&mut self, session: SessionId, is_clean: bool, now: Instant) {
        let again = Due { at: now + SWEEP_AGAIN_AFTER, last: true };
        if let Some(due) = self.ended.insert(session, again)
            && due.last
            && is_clean
        {
            self.ended.remove(&session);
        }
    }

    fn went_on(&mut self, now: Instant, took: Duration) {
        self.round.pop_front();
        self.rests_until = now + took * SWEEP_REST_FACTOR;
    }

    fn begin(&mut self, sessions: Vec<SessionId>, now: Instant) -> bool {
        self.round = sessions.into();
        let was_asked = std::mem::take(&mut self.asked);
        self.all_at = now + if was_asked { SWEEP_AGAIN_AFTER.min(self.every) } else { self.every };
        !was_asked
    }
}

/// Deletes what nobody knows of among the blocks of a session. Answers whether every brick did that.
fn sweep(shared: &Shared, session: SessionId) -> Result<bool, Trouble> {
    let next = query::counters(&shared.store)?.next_session;
    // A number that was never given out is not ours to judge.
    if session >= next || mistake("leave what a dead client stored") {
        return Ok(true);
    }
    let has_ended = query::session(&shared.store, session)?.is_none();
    let copies = shared.bricks.copies(session)?;
    let (mut deleted, mut kept, mut is_current) = (0, 0, false);
    for page in copies.chunks(SWEEP_PAGE) {
        if shared.background.stopped() {
            return Ok(true);
        }
        if unknown(shared, page, has_ended, |_| false)?.is_empty() {
            continue;
        }
        if !is_current {
            // A server that was deposed and does not know it must not judge what the next leader has stored.
            shared.catch_up()?;
            is_current = true;
        }
        // What the healer adds to a group, it adds before or after this, and not in between.
        let moving = shared.heal.moving();
        let unknown = unknown(shared, page, has_ended, |id| moving.contains(&id))?;
        for page in unknown.chunks(COLLECT_PAGE) {
            kept += shared.bricks.discard(page)?.len();
            shared.background.done.blocks_swept.fetch_add(page.len() as u64, Ordering::Relaxed);
        }
        deleted += unknown.len();
    }
    if deleted > 0 {
        tracing::info!(
            session = session.0,
            copies = deleted,
            kept,
            "deleted copies of blocks that nobody knows of"
        );
    }
    Ok(kept == 0)
}

/// Copies that nobody knows of, each with the bricks that have one.
fn unknown(
    shared: &Shared,
    page: &[(BlockId, BlockGroup)],
    has_ended: bool,
    is_moving: impl Fn(BlockId) -> bool,
) -> Result<Vec<(BlockId, BlockGroup)>, TreeError> {
    let mut unknown = Vec::new();
    for (id, on) in page {
        let excess = match query::block(&shared.store, *id)? {
            None if has_ended => Some(*on),
            Some(block) if !is_moving(*id) && !block.info.group.is_empty() => {
                Some(block.info.group.bricks().fold(*on, BlockGroup::without)).filter(|rest| !rest.is_empty())
            }
            _ => None,
        };
        unknown.extend(excess.map(|bricks| (*id, bricks)));
    }
    Ok(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(3600);
    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn a_session_that_has_ended_is_swept_at_once_and_once_more_and_again_where_a_brick_did_not_delete() {
        let (begun, session) = (Instant::now(), SessionId(7));
        let mut sweeper = Sweeper::new(EVERY);
        assert_eq!(sweeper.next(begun), None);
        sweeper.ended(session, begun);
        assert_eq!(sweeper.next(begun), Some(Piece::Ended(session)));
        sweeper.swept(session, true, begun);
        assert_eq!(sweeper.due(), begun + SWEEP_AGAIN_AFTER);
        assert_eq!(sweeper.next(begun + MOMENT), None);
        let again = sweeper.due();
        assert_eq!(sweeper.next(again), Some(Piece::Ended(session)));
        sweeper.swept(session, false, again);
        let once_more = sweeper.due();
        assert_eq!(once_more, again + SWEEP_AGAIN_AFTER);
        sweeper.swept(session, true, once_more);
        assert!(sweeper.due() >= begun + EVERY, "it is done with");
    }

    #[test]
    fn a_round_that_was_asked_for_is_repeated_soon_and_others_are_not() {
        let (mut sweeper, begun) = (Sweeper::new(EVERY), Instant::now());
        let (one, other) = (SessionId(1), SessionId(2));
        sweeper.all(begun);
        assert_eq!(sweeper.next(begun), Some(Piece::Round));
        assert!(!sweeper.begin(vec![one, other], begun));
        assert_eq!(sweeper.next(begun), Some(Piece::OfRound(one)));
        sweeper.went_on(begun, MOMENT);
        assert_eq!(sweeper.next(begun), None, "it rests");
        // Another reason while a round is under way: this one goes on, and another follows.
        sweeper.all(begun);
        let rested = begun + MOMENT * SWEEP_REST_FACTOR;
        assert_eq!(sweeper.next(rested), Some(Piece::OfRound(other)));
        sweeper.went_on(rested, MOMENT);
        assert_eq!(sweeper.next(rested), Some(Piece::Round));
        sweeper.begin(Vec::new(), rested);
        let again = rested + SWEEP_AGAIN_AFTER;
        assert_eq!((sweeper.due(), sweeper.next(again)), (again, Some(Piece::Round)));
        assert!(sweeper.begin(Vec::new(), again));
        assert_eq!(sweeper.due(), again + EVERY);
    }
}
