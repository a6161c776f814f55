//! The healer's tasks, when they are due, and its progress.

use super::rate_limiter::RateLimiter;
use crate::limits::{HEAL_AFTER, HEAL_RETRY, HEAL_SURVEY_EVERY, REBALANCE_RETRIES};
use serde::{Deserialize, Serialize};
use shoal_runtime::sync::{Condvar, Mutex, MutexGuard};
use shoal_runtime::time::Instant;
use shoal_types::BlockId;
use std::collections::HashSet;

/// The progress of healing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum HealTask {
    /// Nothing.
    #[default]
    Idle,
    /// It copies blocks that were stored on too few bricks.
    Copies,
    /// It visits all blocks, and copies those that have too few copies or are on a brick that is gone or
    /// being drained.
    Survey,
    /// It moves blocks to where placement would put them today.
    Rebalance,
    /// It asks the bricks for each block, and copies what turns out to be missing.
    Check,
}

/// Progress of the healer's current task, or of its last one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HealStatus {
    /// The current task.
    pub task: HealTask,
    /// The last task if it is idle, else the current one.
    pub last: HealTask,
    /// How long the task has run, or took, in milliseconds.
    pub took_ms: u64,
    /// Blocks that the task has to heal, as far as they have been found.
    pub total_blocks: u64,
    /// Blocks that were tried, with or without success.
    pub done_blocks: u64,
    /// Blocks that were copied.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Blocks that still lack a copy, because the bricks they need do not answer or have no space.
    pub waiting_blocks: u64,
    /// Blocks of which no good copy could be read.
    pub failed_blocks: u64,
    /// Blocks copied by all tasks since the server began.
    pub all_moved_blocks: u64,
    /// Bytes of these blocks.
    pub all_moved_bytes: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// Rebalances completed since the server started. Each request counts, though one run may serve several.
    pub rebalances: u64,
    /// Checks completed since the server started.
    pub checks: u64,
    /// Surveys completed since the server started.
    pub surveys: u64,
    /// Blocks that lack copies or shards, as far as the task has found, or has left when it was completed.
    /// Blocks that are only moved are not among them. Known in the healer's process.
    #[serde(skip)]
    pub lacking_blocks: u64,
}

/// Progress of the last rebalance that was requested, with all its retries, by the server that leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RebalanceStatus {
    /// Blocks that were examined by the last run.
    pub scanned_blocks: u64,
    /// Blocks that were moved.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Blocks that the last run could not move.
    pub failed_blocks: u64,
}

/// Blocks that a walk has examined.
#[derive(Clone, Copy, Default)]
pub(crate) struct Examined {
    /// All of them.
    pub(crate) blocks: u64,
    /// Those that the task has to heal.
    pub(crate) found: u64,
    /// Those that lack copies or shards.
    pub(crate) lacking: u64,
    /// Those of them that the task leaves alone.
    pub(crate) left_lacking: u64,
}

#[derive(Default)]
struct Schedule {
    stop: bool,
    leading: bool,
    /// When the next rebalance starts, and how often it is retried while some blocks cannot be moved.
    rebalance_at: Option<Instant>,
    rebalance_retries: u32,
    /// Requests for a rebalance that are not completed.
    rebalances_asked: u64,
    check: bool,
    /// The running rebalance is to be aborted.
    gives_up: bool,
    /// When the next survey starts.
    survey_at: Option<Instant>,
    /// The placement of blocks has changed, and no second survey was scheduled since. Mounts that do not know
    /// of the change yet may commit blocks behind the first one.
    needs_follow_up: bool,
    /// When blocks with too few copies are tried next.
    copies_at: Option<Instant>,
    /// The last task left some blocks waiting for bricks.
    waits: bool,
    begun: Option<Instant>,
    status: HealStatus,
    rebalance: RebalanceStatus,
    /// Blocks that lack copies or shards after the current task has tried to heal them.
    left_lacking: u64,
}

/// The healer's queue of tasks, and its progress.
#[derive(Default)]
pub(crate) struct Heal {
    state: Mutex<Schedule>,
    wake: Condvar,
    pub(crate) rate_limiter: RateLimiter,
    /// Blocks that are being copied: a copy of one may be on a brick that the namespace does not know of yet.
    moving: Mutex<HashSet<BlockId>>,
}

impl Heal {
    /// This replica has become the leader, or has lost leadership.
    pub(crate) fn lead(&self, leading: bool) {
        let mut state = self.state.lock();
        if leading && !state.leading {
            // The placement of blocks may have changed just before, as an earlier leader has heard.
            (state.survey_at, state.needs_follow_up) = (Some(Instant::now()), true);
        }
        state.leading = leading;
        self.wake.notify_all();
    }

    /// Blocks were stored on too few bricks.
    pub(crate) fn copies_are_short(&self) {
        let mut state = self.state.lock();
        if state.copies_at.is_none() {
            // While bricks are away the list only grows, and an immediate retry would fail.
            let after = if state.waits { HEAL_RETRY } else { HEAL_AFTER };
            state.copies_at = Some(Instant::now() + after);
            self.wake.notify_all();
        }
    }

    /// Bricks were added, have failed, or are to be drained.
    pub(crate) fn survey(&self) {
        let now = Instant::now();
        let mut state = self.state.lock();
        (state.survey_at, state.needs_follow_up) = (Some(now), true);
        // A running rebalance may have skipped a brick that is back now.
        let under_way = (state.status.task == HealTask::Rebalance && !state.gives_up).then_some(now);
        state.rebalance_at = state.rebalance_at.or(under_way).map(|at| at.min(now));
        self.wake.notify_all();
    }

    /// Requests a rebalance.
    pub(crate) fn rebalance(&self) {
        let mut state = self.state.lock();
        (state.rebalance_at, state.rebalance_retries) = (Some(Instant::now()), REBALANCE_RETRIES);
        if state.rebalances_asked == 0 {
            state.rebalance = RebalanceStatus::default();
        }
        state.rebalances_asked += 1;
        self.wake.notify_all();
    }

    /// Aborts the rebalance. Copies in progress are completed.
    pub(crate) fn stop_rebalance(&self) {
        let mut state = self.state.lock();
        (state.rebalance_at, state.rebalance_retries) = (None, 0);
        state.gives_up = state.status.task == HealTask::Rebalance;
        state.status.rebalances += std::mem::take(&mut state.rebalances_asked);
    }

    /// Requests a check of all bricks.
    pub(crate) fn check(&self) {
        self.state.lock().check = true;
        self.wake.notify_all();
    }

    /// Copies no faster than this, in bytes per second; 0: as fast as possible.
    pub(crate) fn set_rate(&self, bytes_per_second: u64) {
        self.rate_limiter.set(bytes_per_second);
    }

    /// The healer's progress.
    pub(crate) fn status(&self) -> HealStatus {
        let state = self.state.lock();
        let mut status = state.status.clone();
        if let Some(begun) = state.begun {
            status.took_ms = begun.elapsed().as_millis() as u64;
        }
        status
    }

    /// The progress of the last rebalance that was requested.
    pub(crate) fn rebalance_status(&self) -> RebalanceStatus {
        self.state.lock().rebalance
    }

    /// Whether no task can run now.
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

    /// Held while copies that the namespace does not know of are deleted: a block in this set must be left
    /// alone.
    pub(crate) fn moving(&self) -> MutexGuard<'_, HashSet<BlockId>> {
        self.moving.lock()
    }

    /// Marks blocks as being moved; returns those that were not.
    pub(crate) fn claim(&self, blocks: &[BlockId]) -> Vec<BlockId> {
        let mut moving = self.moving.lock();
        blocks.iter().filter(|id| moving.insert(**id)).copied().collect()
    }

    /// Blocks that were claimed are moved, or stay where they are.
    pub(crate) fn release(&self, blocks: &[BlockId]) {
        let mut moving = self.moving.lock();
        moving.retain(|id| !blocks.contains(id));
    }

    /// Whether the running task is to be aborted.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.stop || !state.leading || state.gives_up
    }

    /// Whether the running task should end for a survey: bricks were added or have failed since it began, so
    /// other blocks may be more urgent now. Not in its first seconds, so that bricks that come and go do not
    /// keep it from healing anything.
    pub(crate) fn should_restart(&self) -> bool {
        let state = self.state.lock();
        let is_due = state.needs_follow_up && state.survey_at.is_some_and(|at| at <= Instant::now());
        is_due && state.begun.is_some_and(|begun| begun.elapsed() >= HEAL_RETRY)
    }

    /// Waits for the next task; `None` to end.
    pub(crate) fn next(&self) -> Option<HealTask> {
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
                state.left_lacking = 0;
                if task == HealTask::Rebalance {
                    (state.rebalance.scanned_blocks, state.rebalance.failed_blocks) = (0, 0);
                }
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

    /// Records progress of the running task.
    pub(crate) fn note(&self, change: impl FnOnce(&mut HealStatus)) {
        change(&mut self.state.lock().status);
    }

    /// A walk has examined some blocks.
    pub(crate) fn note_examined(&self, examined: Examined) {
        let mut state = self.state.lock();
        state.left_lacking += examined.left_lacking;
        state.status.total_blocks += examined.found;
        state.status.lacking_blocks += examined.lacking;
        if state.status.task == HealTask::Rebalance {
            state.rebalance.scanned_blocks += examined.blocks;
        }
    }

    /// The task has tried to heal a block, which lacked copies or shards before it, or lacks some after it.
    pub(crate) fn note_tried(&self, was_lacking: bool, is_lacking: bool) {
        let mut state = self.state.lock();
        state.left_lacking += u64::from(is_lacking);
        let lacking = state.status.lacking_blocks + u64::from(is_lacking);
        state.status.lacking_blocks = lacking.saturating_sub(u64::from(was_lacking));
    }

    /// A block was copied.
    pub(crate) fn note_moved(&self, bytes: u64) {
        let mut state = self.state.lock();
        let status = &mut state.status;
        status.moved_blocks += 1;
        status.moved_bytes += bytes;
        status.all_moved_blocks += 1;
        status.all_moved_bytes += bytes;
        if status.task == HealTask::Rebalance {
            state.rebalance.moved_blocks += 1;
            state.rebalance.moved_bytes += bytes;
        }
    }

    /// A block could not be healed or moved: `is_lost` if no good copy of it could be read.
    pub(crate) fn note_failed(&self, is_lost: bool) {
        let mut state = self.state.lock();
        let status = &mut state.status;
        *(if is_lost { &mut status.failed_blocks } else { &mut status.waiting_blocks }) += 1;
        if status.task == HealTask::Rebalance {
            state.rebalance.failed_blocks += 1;
        }
    }

    /// A task was completed or aborted.
    pub(crate) fn finished(&self, task: HealTask, complete: bool) {
        let mut state = self.state.lock();
        if let Some(begun) = state.begun.take() {
            state.status.took_ms = begun.elapsed().as_millis() as u64;
        }
        state.status.task = HealTask::Idle;
        if complete {
            // Blocks that were deleted meanwhile lack nothing any more.
            state.status.lacking_blocks = state.left_lacking;
        }
        state.gives_up = false;
        state.waits = state.status.waiting_blocks > 0 || !complete;
        // A change during a survey starts the first survey after it at once.
        let is_follow_up = task == HealTask::Survey && state.survey_at.is_none();
        let is_soon = (is_follow_up && std::mem::take(&mut state.needs_follow_up)) || state.waits;
        let again = Instant::now() + if is_soon { HEAL_RETRY } else { HEAL_SURVEY_EVERY };
        match task {
            HealTask::Copies if !state.waits => {}
            HealTask::Copies => drop(state.copies_at.get_or_insert(again)),
            _ => drop(state.survey_at.get_or_insert(again)),
        }
        match task {
            HealTask::Survey if complete => state.status.surveys += 1,
            // A brick that was just added may not answer yet; another may be full for good.
            HealTask::Rebalance if state.waits && state.rebalance_retries > 0 => {
                state.rebalance_retries -= u32::from(complete);
                state.rebalance_at.get_or_insert(again);
            }
            // It was requested again while it ran.
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

    /// A healer that leads, has surveyed its blocks, and is to rebalance them.
    fn rebalancing() -> Heal {
        let heal = Heal::default();
        heal.lead(true);
        assert_eq!(heal.next(), Some(HealTask::Survey));
        heal.finished(HealTask::Survey, true);
        heal.rebalance();
        heal
    }

    #[test]
    fn survey_after_a_change_of_placement_or_of_the_leader_is_followed_by_another_one_soon() {
        let heal = Heal::default();
        heal.lead(true);
        let next_survey = |heal: &Heal| {
            assert_eq!(heal.next(), Some(HealTask::Survey));
            heal.finished(HealTask::Survey, true);
            let at = heal.state.lock().survey_at.take();
            at.expect("surveys are repeated").saturating_duration_since(Instant::now())
        };
        let is_due = |heal: &Heal| heal.state.lock().survey_at = Some(Instant::now());
        assert!(next_survey(&heal) <= HEAL_RETRY, "an earlier leader may have heard of a change");
        is_due(&heal);
        assert!(next_survey(&heal) > HEAL_RETRY, "nothing has changed since");
        heal.survey();
        assert!(next_survey(&heal) <= HEAL_RETRY, "a mount may not know of the change yet");
        is_due(&heal);
        assert!(next_survey(&heal) > HEAL_RETRY);
        // It loses the leadership before the second survey, and leads again.
        heal.survey();
        assert!(next_survey(&heal) <= HEAL_RETRY);
        heal.lead(false);
        heal.lead(true);
        assert!(next_survey(&heal) <= HEAL_RETRY, "the second survey is not forgotten");
    }

    #[test]
    fn rebalance_that_is_stopped_ends_and_is_not_tried_again() {
        let heal = rebalancing();
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
    fn rebalance_that_waits_for_a_brick_continues_when_one_returned_while_it_ran() {
        let heal = rebalancing();
        // The periodic survey is not due yet.
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
