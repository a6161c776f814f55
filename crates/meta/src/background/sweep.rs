//! The sweeper: deletes copies of blocks that the namespace does not know. These are blocks that a session
//! stored and never committed, and copies on bricks outside of the block's group.
//!
//! **What is garbage.** A session's block becomes known in the log with the batch that first names it. When
//! the session has ended, no such batch can follow, so its unknown blocks are garbage. While it lives, an
//! unknown block is garbage if a later one is known, as batches name blocks in the order of their numbers.
//! This also finds a copy that a brick kept because it was away when the block was deleted, even if the mount
//! lasts for months. The metadata group's own blocks (compaction) are swept by the thread that writes them,
//! between two of its steps. Of a known block, copies outside of its group are in excess, unless the healer
//! is about to add one of them.
//!
//! **When.** A session is swept when it has ended; all sessions are swept when this replica becomes leader
//! and when a brick is back. A brick may complete a write long after its writer has given up. So each of
//! these sweeps is repeated once, and all sessions are swept periodically. No list of leftovers is needed,
//! and nothing is left for ever.
//!
//! **How.** A step handles one page of a session, so that a large session does not delay other work. When no
//! brick answers, sweeping pauses, and resumes where it stopped. A single failed brick is skipped: no copy is
//! deleted that it did not list, and when it is back all sessions are swept.

use super::StepError;
use crate::limits::{
    COLLECT_PAGE, SWEEP_AGAIN_AFTER, SWEEP_PAGE, SWEEP_REST_FACTOR, SWEEP_RETRY_AFTER, SWEEP_SOON_AFTER,
};
use crate::shared::Shared;
use shoal_namespace::kv::KvStore;
use shoal_namespace::{TreeError, query};
use shoal_runtime::planted::mistake;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{BlockGroup, BlockId, SessionId};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

/// Which sessions are to be swept, and when.
pub(crate) struct Sweeper {
    every: Duration,
    /// Sessions that are swept outside of a round.
    alone: BTreeMap<SessionId, Due>,
    /// When the next round over all sessions begins, and whether it was requested.
    all_at: Instant,
    asked: bool,
    /// When the last round began.
    begun: Option<Instant>,
    /// The rest of the current round, and when it resumes.
    round: VecDeque<Pass>,
    rests_until: Instant,
    /// The bricks have failed: nothing is swept before this.
    paused_until: Option<Instant>,
}

/// When a session is swept outside of a round: it has ended, or the bricks failed at its turn in a round.
#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    /// This is the last sweep of the session.
    last: bool,
    pass: Pass,
}

/// Progress of the sweep of one session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pass {
    /// The first block of the next page.
    from: BlockId,
    /// Blocks of which copies were deleted.
    deleted: usize,
    /// Deleted blocks that some brick did not confirm.
    kept: usize,
}

impl Pass {
    fn new(session: SessionId) -> Pass {
        Pass { from: BlockId::first_of(session), deleted: 0, kept: 0 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SweepStep {
    /// The next page of a session that is swept outside of a round.
    Alone(Pass),
    /// The next page of the round.
    OfRound(Pass),
    /// A new round begins.
    Round,
}

/// The result of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Swept {
    /// The session has more pages.
    Page(Pass),
    /// It was the last page; `is_clean`: all bricks confirmed their deletions.
    All { is_clean: bool },
}

impl Sweeper {
    /// A sweeper that sweeps all sessions at this interval, if there is no other reason to.
    pub(crate) fn new(every: Duration) -> Sweeper {
        let now = Instant::now();
        Sweeper {
            every,
            alone: BTreeMap::new(),
            all_at: now + every,
            asked: false,
            begun: None,
            round: VecDeque::new(),
            rests_until: now,
            paused_until: None,
        }
    }

    /// A session has ended.
    pub(crate) fn ended(&mut self, session: SessionId, now: Instant) {
        self.alone.insert(session, Due { at: now, last: false, pass: Pass::new(session) });
    }

    /// Any session may have left blocks: requests a round.
    pub(crate) fn all(&mut self, now: Instant) {
        (self.all_at, self.asked) = (now, true);
    }

    /// Bricks are to become empty: requests a round, unless one is in progress or was just now.
    pub(crate) fn soon(&mut self, now: Instant) {
        if self.round.is_empty() {
            let at = self.begun.map_or(now, |begun| now.max(begun + SWEEP_SOON_AFTER));
            self.all_at = self.all_at.min(at);
        }
    }

    /// When the next step is due.
    pub(crate) fn due(&self) -> Instant {
        let round = if self.round.is_empty() { self.all_at } else { self.rests_until };
        let alone = self.alone.values().map(|due| due.at).min();
        let first = alone.map_or(round, |alone| alone.min(round));
        self.paused_until.map_or(first, |until| first.max(until))
    }

    /// Sweeps a page of one session, if one is due. Returns whether a periodic round has begun.
    pub(crate) fn step(&mut self, shared: &Shared) -> Result<bool, StepError> {
        let begun = Instant::now();
        let Some(step) = self.next(begun) else { return Ok(false) };
        let outcome = match step {
            SweepStep::Alone(pass) => {
                sweep(shared, pass).map(|swept| self.swept(pass.from.session, swept, Instant::now()))
            }
            SweepStep::OfRound(pass) => {
                sweep(shared, pass).map(|swept| self.page_swept(swept, Instant::now(), begun.elapsed()))
            }
            SweepStep::Round => match shared.bricks.stored_sessions() {
                Ok(sessions) => return Ok(self.begin(sessions, begun)),
                Err(error) => Err(error.into()),
            },
        };
        match outcome {
            Err(StepError::Brick(error)) => {
                tracing::warn!(%error, "sweeping waits for the bricks");
                self.failed(step, Instant::now());
                Ok(false)
            }
            other => other.map(|()| false),
        }
    }

    fn next(&self, now: Instant) -> Option<SweepStep> {
        if self.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        // The longest waiting first, so that each gets its turn.
        let due = self.alone.values().filter(|due| due.at <= now).min_by_key(|due| due.at);
        match self.round.front() {
            _ if due.is_some() => due.map(|due| SweepStep::Alone(due.pass)),
            Some(pass) => (self.rests_until <= now).then_some(SweepStep::OfRound(*pass)),
            None => (self.all_at <= now).then_some(SweepStep::Round),
        }
    }

    fn swept(&mut self, session: SessionId, swept: Swept, now: Instant) {
        let Some(due) = self.alone.get_mut(&session) else { return };
        match swept {
            Swept::Page(pass) => (due.at, due.pass) = (now, pass),
            Swept::All { is_clean } if due.last && is_clean => {
                self.alone.remove(&session);
            }
            Swept::All { .. } => {
                *due = Due { at: now + SWEEP_AGAIN_AFTER, last: true, pass: Pass::new(session) };
            }
        }
    }

    fn page_swept(&mut self, swept: Swept, now: Instant, took: Duration) {
        self.round.pop_front();
        if let Swept::Page(pass) = swept {
            self.round.push_front(pass);
        }
        self.rests_until = now + took * SWEEP_REST_FACTOR;
    }

    fn begin(&mut self, sessions: Vec<SessionId>, now: Instant) -> bool {
        self.round = sessions.into_iter().map(Pass::new).collect();
        let was_asked = std::mem::take(&mut self.asked);
        self.begun = Some(now);
        self.all_at = now + if was_asked { SWEEP_AGAIN_AFTER.min(self.every) } else { self.every };
        !was_asked
    }

    /// After a failure nothing is retried at once, and a session that fails repeatedly does not delay other
    /// sessions.
    fn failed(&mut self, step: SweepStep, now: Instant) {
        let again = now + SWEEP_RETRY_AFTER.min(self.every);
        self.paused_until = Some(again);
        match step {
            SweepStep::Round => {}
            SweepStep::Alone(pass) => {
                if let Some(due) = self.alone.get_mut(&pass.from.session) {
                    due.at = again;
                }
            }
            SweepStep::OfRound(pass) => {
                self.round.pop_front();
                self.alone.entry(pass.from.session).or_insert(Due { at: again, last: true, pass });
            }
        }
    }
}

/// Deletes unknown copies among the next blocks of a session.
fn sweep(shared: &Shared, mut pass: Pass) -> Result<Swept, StepError> {
    let session = pass.from.session;
    let next = query::counters(&shared.store)?.next_session;
    // A session number that this namespace has never assigned: leave its blocks alone.
    if session >= next || mistake("leave orphan blocks of a dead client") {
        return Ok(Swept::All { is_clean: true });
    }
    let has_ended = query::session(&shared.store, session)?.is_none();
    let copies = shared.bricks.copies(pass.from)?;
    for page in copies.blocks.chunks(SWEEP_PAGE) {
        if shared.background.stopped() {
            return Ok(Swept::All { is_clean: true });
        }
        if unknown(shared, page, has_ended, |_| false)?.is_empty() {
            continue;
        }
        // Confirms leadership: a deposed leader must not delete what the next leader has stored. Copies that
        // the next leader makes after this moment are kept, however late the brick handles the deletion.
        let than = shared.bricks.moments()?;
        shared.catch_up()?;
        // The healer adds a copy to a group either before or after this lock is held.
        let moving = shared.heal.moving();
        let unknown = unknown(shared, page, has_ended, |id| moving.contains(&id))?;
        for is_known in [true, false] {
            let copies = unknown.iter().filter(|it| it.is_known == is_known).map(|it| (it.id, it.on));
            let copies: Vec<(BlockId, BlockGroup)> = copies.collect();
            for page in copies.chunks(COLLECT_PAGE) {
                let kept = match is_known {
                    true => shared.bricks.discard_older(page, &than)?,
                    false => shared.bricks.discard(page)?,
                };
                pass.kept += kept.len();
                shared.background.done.blocks_swept.fetch_add(page.len() as u64, Ordering::Relaxed);
            }
            pass.deleted += copies.len();
        }
    }
    if let Some(from) = copies.next {
        return Ok(Swept::Page(Pass { from, ..pass }));
    }
    if pass.deleted > 0 {
        tracing::info!(
            session = session.0,
            copies = pass.deleted,
            kept = pass.kept,
            "deleted copies of blocks that no file refers to"
        );
    }
    Ok(Swept::All { is_clean: pass.kept == 0 })
}

/// A block with copies that the namespace does not know, and that no batch is going to name.
struct Unknown {
    id: BlockId,
    /// The bricks with such a copy.
    on: BlockGroup,
    /// The block itself is known, and only these copies are in excess: a later leader may copy it to these
    /// bricks once more.
    is_known: bool,
}

fn unknown(
    shared: &Shared,
    page: &[(BlockId, BlockGroup)],
    has_ended: bool,
    is_moving: impl Fn(BlockId) -> bool,
) -> Result<Vec<Unknown>, TreeError> {
    // One snapshot: a block and the blocks after it must be looked up in the same state.
    let state = shared.store.snapshot();
    let mut unknown = Vec::new();
    for (id, on) in page {
        let (id, on) = (*id, *on);
        match query::block(&state, id)? {
            None if has_ended || query::is_later_block_known(&state, id)? => {
                unknown.push(Unknown { id, on, is_known: false });
            }
            Some(block) if !is_moving(id) && !block.info.group.is_empty() => {
                let on = on.without_all(&block.info.group);
                if !on.is_empty() {
                    unknown.push(Unknown { id, on, is_known: true });
                }
            }
            _ => {}
        }
    }
    Ok(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(3600);
    const MOMENT: Duration = Duration::from_millis(1);
    const CLEAN: Swept = Swept::All { is_clean: true };

    fn pass(session: u64, seq: u64) -> Pass {
        Pass { from: BlockId { session: SessionId(session), seq }, deleted: 0, kept: 0 }
    }

    #[test]
    fn ended_session_is_swept_twice_and_again_if_a_brick_did_not_delete() {
        let (begun, session) = (Instant::now(), SessionId(7));
        let mut sweeper = Sweeper::new(EVERY);
        assert_eq!(sweeper.next(begun), None);
        sweeper.ended(session, begun);
        assert_eq!(sweeper.next(begun), Some(SweepStep::Alone(pass(7, 0))));
        sweeper.swept(session, CLEAN, begun);
        assert_eq!(sweeper.due(), begun + SWEEP_AGAIN_AFTER);
        assert_eq!(sweeper.next(begun + MOMENT), None);
        let again = sweeper.due();
        assert_eq!(sweeper.next(again), Some(SweepStep::Alone(pass(7, 0))));
        sweeper.swept(session, Swept::All { is_clean: false }, again);
        let once_more = sweeper.due();
        assert_eq!(once_more, again + SWEEP_AGAIN_AFTER);
        sweeper.swept(session, CLEAN, once_more);
        assert!(sweeper.due() >= begun + EVERY, "it is done with");
    }

    #[test]
    fn round_for_bricks_that_are_to_become_empty_waits_for_the_last_one() {
        let (mut sweeper, begun) = (Sweeper::new(EVERY), Instant::now());
        sweeper.soon(begun);
        assert_eq!(sweeper.next(begun), Some(SweepStep::Round));
        sweeper.begin(vec![SessionId(1)], begun);
        sweeper.soon(begun + EVERY);
        assert_eq!(sweeper.next(begun), Some(SweepStep::OfRound(pass(1, 0))), "that round goes on");
        sweeper.page_swept(CLEAN, begun, MOMENT);
        sweeper.soon(begun + MOMENT);
        assert_eq!(sweeper.next(begun + MOMENT), None);
        assert_eq!(sweeper.next(begun + SWEEP_SOON_AFTER), Some(SweepStep::Round));
    }

    #[test]
    fn requested_round_is_repeated_soon_and_a_periodic_one_is_not() {
        let (mut sweeper, begun) = (Sweeper::new(EVERY), Instant::now());
        let (one, other) = (SessionId(1), SessionId(2));
        sweeper.all(begun);
        assert_eq!(sweeper.next(begun), Some(SweepStep::Round));
        assert!(!sweeper.begin(vec![one, other], begun));
        assert_eq!(sweeper.next(begun), Some(SweepStep::OfRound(pass(1, 0))));
        sweeper.page_swept(CLEAN, begun, MOMENT);
        assert_eq!(sweeper.next(begun), None, "it rests");
        // Another request while a round is in progress: this one is completed, and another follows.
        sweeper.all(begun);
        let rested = begun + MOMENT * SWEEP_REST_FACTOR;
        assert_eq!(sweeper.next(rested), Some(SweepStep::OfRound(pass(2, 0))));
        sweeper.page_swept(CLEAN, rested, MOMENT);
        assert_eq!(sweeper.next(rested), Some(SweepStep::Round));
        sweeper.begin(Vec::new(), rested);
        let again = rested + SWEEP_AGAIN_AFTER;
        assert_eq!((sweeper.due(), sweeper.next(again)), (again, Some(SweepStep::Round)));
        assert!(sweeper.begin(Vec::new(), again));
        assert_eq!(sweeper.due(), again + EVERY);
    }

    #[test]
    fn sessions_of_many_pages_take_turns() {
        let (mut sweeper, begun) = (Sweeper::new(EVERY), Instant::now());
        sweeper.ended(SessionId(1), begun);
        sweeper.ended(SessionId(2), begun);
        sweeper.swept(SessionId(1), Swept::Page(pass(1, 50)), begun + MOMENT);
        assert_eq!(sweeper.next(begun + MOMENT), Some(SweepStep::Alone(pass(2, 0))));
        sweeper.swept(SessionId(2), Swept::Page(pass(2, 70)), begun + MOMENT * 2);
        assert_eq!(sweeper.next(begun + MOMENT * 2), Some(SweepStep::Alone(pass(1, 50))), "where it was");
        sweeper.swept(SessionId(1), CLEAN, begun + MOMENT * 2);
        assert_eq!(sweeper.next(begun + MOMENT * 2), Some(SweepStep::Alone(pass(2, 70))));
        sweeper.swept(SessionId(2), CLEAN, begun + MOMENT * 2);
        assert_eq!(sweeper.next(begun + MOMENT * 2), None);
        let again = begun + MOMENT * 2 + SWEEP_AGAIN_AFTER;
        assert_eq!(sweeper.next(again), Some(SweepStep::Alone(pass(1, 0))), "once more from the beginning");
    }

    #[test]
    fn round_pauses_between_the_pages_of_a_session() {
        let (mut sweeper, begun) = (Sweeper::new(EVERY), Instant::now());
        sweeper.all(begun);
        sweeper.begin(vec![SessionId(1), SessionId(2)], begun);
        sweeper.page_swept(Swept::Page(pass(1, 50)), begun, MOMENT);
        assert_eq!(sweeper.next(begun), None);
        assert_eq!(sweeper.next(begun + MOMENT * SWEEP_REST_FACTOR), Some(SweepStep::OfRound(pass(1, 50))));
    }

    #[test]
    fn failed_session_is_retried_apart_after_a_pause_of_all_sweeping() {
        let (mut sweeper, begun) = (Sweeper::new(EVERY), Instant::now());
        sweeper.all(begun);
        sweeper.failed(SweepStep::Round, begun);
        sweeper.ended(SessionId(9), begun);
        let again = begun + SWEEP_RETRY_AFTER;
        assert_eq!((sweeper.due(), sweeper.next(begun + MOMENT)), (again, None));
        // A session that has ended: it resumes where it was, and after others that are due.
        assert_eq!(sweeper.next(again), Some(SweepStep::Alone(pass(9, 0))));
        sweeper.swept(SessionId(9), Swept::Page(pass(9, 40)), again);
        sweeper.failed(SweepStep::Alone(pass(9, 40)), again);
        sweeper.ended(SessionId(10), again);
        let later = again + SWEEP_RETRY_AFTER;
        assert_eq!(sweeper.next(later), Some(SweepStep::Alone(pass(10, 0))));
        let is_done_with = |sweeper: &mut Sweeper, session: u64| {
            // The first sweep, and its repetition.
            sweeper.swept(SessionId(session), CLEAN, later);
            sweeper.swept(SessionId(session), CLEAN, later);
        };
        is_done_with(&mut sweeper, 10);
        assert_eq!(sweeper.next(later), Some(SweepStep::Alone(pass(9, 40))));
        is_done_with(&mut sweeper, 9);
        assert_eq!(sweeper.next(later), Some(SweepStep::Round), "it has been due all the time");
        // A session of a round: the rest of the round does not wait for it for ever.
        sweeper.begin(vec![SessionId(1), SessionId(2)], later);
        sweeper.page_swept(Swept::Page(pass(1, 50)), later, Duration::ZERO);
        sweeper.failed(SweepStep::OfRound(pass(1, 50)), later);
        assert_eq!(sweeper.next(later), None);
        let resumed = later + SWEEP_RETRY_AFTER;
        assert_eq!(sweeper.next(resumed), Some(SweepStep::Alone(pass(1, 50))));
        sweeper.failed(SweepStep::Alone(pass(1, 50)), resumed);
        let last = resumed + SWEEP_RETRY_AFTER;
        assert_eq!(sweeper.next(last), Some(SweepStep::Alone(pass(1, 50))));
        sweeper.swept(SessionId(1), CLEAN, last);
        assert_eq!(sweeper.next(last), Some(SweepStep::OfRound(pass(2, 0))));
    }
}
