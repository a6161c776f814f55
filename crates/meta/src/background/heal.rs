//! Gives every block the copies it should have, on the bricks it should be on.
//!
//! **Models.** There are four tasks, each a walk over blocks that ends when all have been looked at:
//! *copies* takes the list of blocks that were stored on too few bricks; *survey* looks at all blocks, because a brick is gone or is
//! being drained; *rebalance* moves blocks to where they would be put today; *check* asks the bricks whether they have what they
//! should have.
//!
//! **How.** A block is copied first, then the log says where it is, and only then are copies elsewhere deleted. So a crash at any
//! point leaves at worst a copy that nobody knows of. Blocks are copied by several threads, no faster than a rate that can be set.
//!
//! **Where.** On the leader alone: whoever does not lead waits until it does, and then surveys everything once.

mod pace;
mod round;

use crate::limits::{HEAL_AFTER, HEAL_RETRY, HEAL_SURVEY_EVERY, REBALANCE_RETRIES};
use pace::Pace;
pub(crate) use round::run;
use serde::{Deserialize, Serialize};
use shoal_runtime::sync::{Condvar, Mutex, MutexGuard};
use shoal_runtime::time::Instant;
use shoal_types::BlockId;
use std::collections::HashSet;

/// What the healer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum HealTask {
    /// Nothing.
    #[default]
    Idle,
    /// It copies blocks that were stored on too few bricks.
    Copies,
    /// It looks at all blocks, and copies those that have too few copies or are on a brick that is gone or being drained.
    Survey,
    /// It moves blocks to where they would be put today.
    Rebalance,
    /// It asks the bricks for each block, and copies what turns out to be missing.
    Check,
}

/// How far the healer has come with its task, or came with its last one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HealStatus {
    /// What it does now.
    pub task: HealTask,
    /// What it did last, if it does nothing now; else the same.
    pub last: HealTask,
    /// How long it has been at it, or took, in milliseconds.
    pub took_ms: u64,
    /// Blocks that have to be seen to, as far as they have been found.
    pub total_blocks: u64,
    /// Those that have been seen to, with or without success.
    pub done_blocks: u64,
    /// Those that were copied.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Those that still lack something, because the bricks they need do not answer or have no room.
    pub waiting_blocks: u64,
    /// Those of which no good copy could be read.
    pub failed_blocks: u64,
    /// Blocks copied by all tasks since the server began.
    pub all_moved_blocks: u64,
    /// Their bytes.
    pub all_moved_bytes: u64,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
    /// Rebalances that came to their end since the server began: as many as were asked for, though one may do for several.
    pub rebalances: u64,
    /// Checks that came to their end since the server began.
    pub checks: u64,
    /// Surveys that came to their end since the server began.
    pub surveys: u64,
}

#[derive(Default)]
struct State {
    stop: bool,
    leading: bool,
    /// When blocks are spread anew, and how often that is tried again while some cannot go where they should.
    rebalance_at: Option<Instant>,
    rebalance_retries: u32,
    /// How often it was asked for and has not come to an end.
    rebalances_asked: u64,
    check: bool,
    /// The rebalance under way is to be given up.
    gives_up: bool,
    /// When all blocks are looked at.
    survey_at: Option<Instant>,
    /// When blocks with too few copies are looked at.
    copies_at: Option<Instant>,
    /// The last task left some waiting for bricks.
    waits: bool,
    begun: Option<Instant>,
    status: HealStatus,
}

/// What is to be healed, and how far that is.
#[derive(Default)]
pub(crate) struct Heal {
    state: Mutex<State>,
    wake: Condvar,
    pace: Pace,
    /// Blocks that are being copied: a copy of one may be on a brick that the namespace does not know of yet.
    moving: Mutex<HashSet<BlockId>>,
}

impl Heal {
    /// This replica leads the group from now on, or does not any more.
    pub(crate) fn lead(&self, leading: bool) {
        let mut state = self.state.lock();
        if leading && !state.leading {
            state.survey_at = Some(Instant::now());
        }
        state.leading = leading;
        self.wake.notify_all();
    }

    /// Blocks were stored on too few bricks.
    pub(crate) fn copies_are_short(&self) {
        let mut state = self.state.lock();
        if state.copies_at.is_none() {
            // While bricks are away it only gets more: there is no use in looking again and again.
            let after = if state.waits { HEAL_RETRY } else { HEAL_AFTER };
            state.copies_at = Some(Instant::now() + after);
            self.wake.notify_all();
        }
    }

    /// Bricks have come, gone, or are to be drained.
    pub(crate) fn survey(&self) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.survey_at = Some(now);
        // One that is under way may have passed over what is there again.
        let under_way = (state.status.task == HealTask::Rebalance && !state.gives_up).then_some(now);
        state.rebalance_at = state.rebalance_at.or(under_way).map(|at| at.min(now));
        self.wake.notify_all();
    }

    /// Blocks should be spread anew.
    pub(crate) fn rebalance(&self) {
        let mut state = self.state.lock();
        (state.rebalance_at, state.rebalance_retries) = (Some(Instant::now()), REBALANCE_RETRIES);
        state.rebalances_asked += 1;
        self.wake.notify_all();
    }

    /// Blocks should stay where they are. What is being copied at this moment is finished.
    pub(crate) fn stop_rebalance(&self) {
        let mut state = self.state.lock();
        (state.rebalance_at, state.rebalance_retries) = (None, 0);
        state.gives_up = state.status.task == HealTask::Rebalance;
        state.status.rebalances += std::mem::take(&mut state.rebalances_asked);
    }

    /// The bricks should be asked for each block.
    pub(crate) fn check(&self) {
        self.state.lock().check = true;
        self.wake.notify_all();
    }

    /// Copies no faster than this, in bytes per second; 0: as fast as possible.
    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        self.pace.set(bytes_per_second);
    }

    /// How far it is.
    pub(crate) fn status(&self) -> HealStatus {
        let state = self.state.lock();
        let mut status = state.status.clone();
        if let Some(begun) = state.begun {
            status.took_ms = begun.elapsed().as_millis() as u64;
        }
        status
    }

    /// Whether there is nothing to do that can be done now.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        let soon = Instant::now() + HEAL_AFTER * 2;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at < soon);
        state.begun.is_none()
            && state.rebalance_at.is_none()
            && !state.check
            && !is_due(state.survey_at)
            && !is_due(state.copies_at)
    }

    /// Ends the thread soon.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
    }

    /// Held by whoever deletes copies that the namespace does not know of; a block that is in here must be left alone.
    pub(crate) fn moving(&self) -> MutexGuard<'_, HashSet<BlockId>> {
        self.moving.lock()
    }

    /// Whether a task is to be given up.
    fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.stop || !state.leading || state.gives_up
    }

    /// Waits for the next task; `None` to end.
    fn next(&self) -> Option<HealTask> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            let now = Instant::now();
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            let task = match () {
                () if !state.leading => HealTask::Idle,
                () if is_due(state.survey_at) => HealTask::Survey,
                () if is_due(state.copies_at) => HealTask::Copies,
                () if is_due(state.rebalance_at) => HealTask::Rebalance,
                () if state.check => HealTask::Check,
                () => HealTask::Idle,
            };
            match task {
                HealTask::Idle => {
                    let next =
                        [state.survey_at, state.copies_at, state.rebalance_at].into_iter().flatten().min();
                    match next.filter(|_| state.leading) {
                        Some(at) => drop(self.wake.wait_until(&mut state, at)),
                        None => self.wake.wait(&mut state),
                    }
                }
                HealTask::Survey => (state.survey_at, state.copies_at) = (None, None),
                HealTask::Copies => state.copies_at = None,
                HealTask::Rebalance => state.rebalance_at = None,
                HealTask::Check => state.check = false,
            }
            if task != HealTask::Idle {
                state.begun = Some(Instant::now());
                let before = std::mem::take(&mut state.status);
                state.status = HealStatus {
                    task,
                    last: task,
                    surveys: before.surveys,
                    rebalances: before.rebalances,
                    checks: before.checks,
                    all_moved_blocks: before.all_moved_blocks,
                    all_moved_bytes: before.all_moved_bytes,
                    ..HealStatus::default()
                };
                return Some(task);
            }
        }
    }

    fn note(&self, change: impl FnOnce(&mut HealStatus)) {
        change(&mut self.state.lock().status);
    }

    /// A block was copied.
    fn note_moved(&self, bytes: u64) {
        self.note(|status| {
            status.moved_blocks += 1;
            status.moved_bytes += bytes;
            status.all_moved_blocks += 1;
            status.all_moved_bytes += bytes;
        });
    }

    /// A task has come to its end, or was given up.
    fn finished(&self, task: HealTask, complete: bool) {
        let mut state = self.state.lock();
        if let Some(begun) = state.begun.take() {
            state.status.took_ms = begun.elapsed().as_millis() as u64;
        }
        state.status.task = HealTask::Idle;
        state.gives_up = false;
        state.waits = state.status.waiting_blocks > 0 || !complete;
        let again = Instant::now() + if state.waits { HEAL_RETRY } else { HEAL_SURVEY_EVERY };
        match task {
            HealTask::Copies if !state.waits => {}
            HealTask::Copies => drop(state.copies_at.get_or_insert(again)),
            _ => drop(state.survey_at.get_or_insert(again)),
        }
        match task {
            HealTask::Survey if complete => state.status.surveys += 1,
            // A brick that was added a moment ago may not answer yet, another may be full for good.
            HealTask::Rebalance if state.waits && state.rebalance_retries > 0 => {
                state.rebalance_retries -= u32::from(complete);
                state.rebalance_at.get_or_insert(again);
            }
            // It was asked for again while it ran.
            HealTask::Rebalance if state.rebalance_at.is_some() => {}
            HealTask::Rebalance => state.status.rebalances += std::mem::take(&mut state.rebalances_asked),
            HealTask::Check if complete => state.status.checks += 1,
            HealTask::Check => state.check = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebalance_that_is_stopped_ends_and_is_not_tried_again() {
        let heal = Heal::default();
        heal.lead(true);
        assert_eq!(heal.next(), Some(HealTask::Survey));
        heal.finished(HealTask::Survey, true);
        heal.rebalance();
        assert_eq!(heal.next(), Some(HealTask::Rebalance));
        assert!(!heal.is_over());
        heal.stop_rebalance();
        heal.survey();
        assert!(heal.is_over());
        heal.finished(HealTask::Rebalance, false);
        assert_eq!((heal.status().rebalances, heal.state.lock().rebalance_at), (1, None));
        assert_eq!(heal.next(), Some(HealTask::Survey));
        assert!(!heal.is_over(), "only the rebalance is given up");
        heal.finished(HealTask::Survey, true);
        heal.rebalance();
        heal.stop_rebalance();
        assert!(heal.is_idle(), "one that has not begun");
        assert_eq!(heal.status().rebalances, 2);
    }

    #[test]
    fn a_rebalance_that_waits_for_a_brick_goes_on_when_one_has_come_back_while_it_ran() {
        let heal = Heal::default();
        heal.lead(true);
        assert_eq!(heal.next(), Some(HealTask::Survey));
        heal.finished(HealTask::Survey, true);
        heal.rebalance();
        // The survey that is to come now and then is not due yet.
        assert_eq!(heal.next(), Some(HealTask::Rebalance));
        heal.note(|status| status.waiting_blocks = 1);
        heal.survey();
        heal.finished(HealTask::Rebalance, true);
        assert_eq!(heal.next(), Some(HealTask::Survey));
        heal.finished(HealTask::Survey, true);
        let at = heal.state.lock().rebalance_at;
        assert!(at.is_some_and(|at| at <= Instant::now()), "and not a while later");
        assert_eq!(heal.next(), Some(HealTask::Rebalance));
        heal.finished(HealTask::Rebalance, true);
        assert_eq!((heal.is_idle(), heal.status().rebalances), (true, 1));
    }
}
