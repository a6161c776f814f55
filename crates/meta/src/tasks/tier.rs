//! The settings of a volume's tiers, how often cold blocks are read, and the mover's progress.

use super::rate_limiter::RateLimiter;
use crate::limits::{HEAT_BLOCKS_MAX, HEAT_WINDOW_S};
use serde::{Deserialize, Serialize};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::limits::REMOVAL_WAIT;
use shoal_types::{BlockId, Statfs};
use std::collections::HashMap;

/// When blocks are moved between the tiers of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierSettings {
    /// The hot tier is being emptied.
    pub detaching: bool,
    /// A block that was not used for this many seconds leaves the hot tier.
    pub demote_after_s: u64,
    /// A block that was used within so many seconds is not moved, nor one of a file that was changed within
    /// them; see [`TIER_REST_S`](crate::limits::TIER_REST_S).
    pub rest_s: u64,
    /// A cold block that is read so often within [`HEAT_WINDOW_S`](crate::limits::HEAT_WINDOW_S) moves to
    /// the hot tier; 0: none does.
    pub promote_reads: u32,
    /// If more than this part of the hot tier is used, in percent, the longest unused blocks leave it.
    pub high_percent: u64,
    /// Blocks leave a tier that is too full until no more than this part of it is used, in percent.
    pub low_percent: u64,
    /// How fast blocks are moved; 0: as fast as possible.
    pub bytes_per_second: u64,
    /// Nothing is moved.
    pub paused: bool,
}

/// Progress of the mover since its server started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TierStatus {
    /// Blocks moved to the cold tier.
    pub demoted_blocks: u64,
    /// Their bytes.
    pub demoted_bytes: u64,
    /// Blocks moved to the hot tier.
    pub promoted_blocks: u64,
    /// Their bytes.
    pub promoted_bytes: u64,
    /// Attempts that failed; they are repeated.
    pub failed: u64,
    /// The last error.
    pub last_error: Option<String>,
}

/// The state of a volume's tiers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TierState {
    /// The mover's progress.
    pub status: TierStatus,
    /// Blocks on the hot tier, at most [`HOT_COUNT_MAX`](crate::limits::HOT_COUNT_MAX).
    pub hot_blocks: u64,
    /// Room on the hot tier, if its bricks answer.
    pub room: Option<Statfs>,
    /// For how many seconds a hot tier that is being detached has had no block.
    pub empty_s: u64,
}

impl TierState {
    /// Whether a hot tier that is being detached can be removed.
    pub fn can_be_removed(&self) -> bool {
        self.hot_blocks == 0 && self.empty_s >= REMOVAL_WAIT.as_secs()
    }
}

/// Counts of recent reads of cold blocks.
#[derive(Default)]
pub(crate) struct Heat {
    reads: HashMap<BlockId, u32>,
    /// When counting began, in seconds since 1970.
    begun: u64,
}

impl Heat {
    /// Resets the counts if they began too long ago.
    pub(crate) fn expire(&mut self, now: u64) {
        if now.saturating_sub(self.begun) >= HEAT_WINDOW_S || now < self.begun {
            self.reads.clear();
            self.begun = now;
        }
    }

    /// A cold block was read so often.
    pub(crate) fn add(&mut self, id: BlockId, count: u32) {
        if self.reads.len() < HEAT_BLOCKS_MAX || self.reads.contains_key(&id) {
            let sum = self.reads.entry(id).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// A block was moved, or is gone.
    pub(crate) fn forget(&mut self, id: BlockId) {
        self.reads.remove(&id);
    }

    /// Some of the blocks that were read at least so often, the most read first.
    pub(crate) fn hottest(&self, reads_min: u32, count_max: usize) -> Vec<(BlockId, u32)> {
        let mut found: Vec<_> =
            self.reads.iter().filter(|(_, reads)| **reads >= reads_min).map(|(id, it)| (*id, *it)).collect();
        found.sort_unstable_by_key(|(id, reads)| (std::cmp::Reverse(*reads), *id));
        found.truncate(count_max);
        found
    }
}

#[derive(Default)]
struct State {
    stop: bool,
    settings: Option<TierSettings>,
    status: TierStatus,
    /// Since when a hot tier that is being detached has had no block.
    empty_since: Option<Instant>,
}

/// The state that the mover shares with the server.
#[derive(Default)]
pub(crate) struct Tiering {
    state: Mutex<State>,
    wake: Condvar,
    pub(crate) rate_limiter: RateLimiter,
    pub(crate) heat: Mutex<Heat>,
}

impl Tiering {
    /// New settings; `None`: the volume has no hot tier.
    pub(crate) fn set(&self, settings: Option<TierSettings>) {
        let mut state = self.state.lock();
        if state.settings != settings {
            state.settings = settings;
            state.empty_since = None;
            self.rate_limiter.set(settings.map_or(0, |settings| settings.bytes_per_second));
            self.wake.notify_all();
        }
    }

    pub(crate) fn settings(&self) -> Option<TierSettings> {
        self.state.lock().settings
    }

    /// Whether the current move is to be the last one.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.stop || state.settings.is_none_or(|settings| settings.paused)
    }

    /// Ends the thread soon.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
    }

    /// Waits so long, and until there is a hot tier; `None` to end.
    pub(crate) fn next(&self, pause: Duration) -> Option<TierSettings> {
        let due = Instant::now() + pause;
        let mut state = self.state.lock();
        loop {
            let settings = state.settings;
            match settings {
                _ if state.stop => return None,
                Some(settings) if Instant::now() >= due => return Some(settings),
                Some(_) => drop(self.wake.wait_until(&mut state, due)),
                None => self.wake.wait(&mut state),
            }
        }
    }

    /// Notes whether a hot tier that is being detached has no block.
    pub(crate) fn note_empty(&self, is_empty: bool) {
        let mut state = self.state.lock();
        state.empty_since = state.empty_since.or_else(|| Some(Instant::now())).filter(|_| is_empty);
    }

    /// For how many seconds such a tier has had no block.
    pub(crate) fn empty_s(&self) -> u64 {
        self.state.lock().empty_since.map_or(0, |since| since.elapsed().as_secs())
    }

    pub(crate) fn status(&self) -> TierStatus {
        self.state.lock().status.clone()
    }

    /// Records progress.
    pub(crate) fn note(&self, change: impl FnOnce(&mut TierStatus)) {
        change(&mut self.state.lock().status);
    }
}
