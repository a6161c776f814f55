//! The state of a world's tasks, and the choice of the next one.

use super::{Machine, OBSERVER, Stacked};
use corosensei::Yielder;
use rand::Rng;
use rand::rngs::SmallRng;
use shoal_runtime::simulator::{Event, Wake};
use std::collections::{BTreeMap, BTreeSet};

/// One turn in this many delays its task, as a page fault would ...
const HELD_UP_ONE_OF: u32 = 3_000;
/// ... for this long at most, in nanoseconds.
const HELD_UP_NS_MAX: u64 = 30_000_000;
/// On an overloaded machine it is one turn in this many ...
const BUSY_ONE_OF: u32 = 60;
/// ... with a delay up to this, in nanoseconds.
const BUSY_NS_MAX: u64 = 600_000_000;
/// A task that takes more turns than this within a second polls without waiting.
const TURNS_A_SECOND_MAX: u32 = 30_000;
/// Parts per million.
const MILLION: i128 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    /// The deadline of a wait has passed.
    Due,
    /// The task may run, with what has woken it.
    GoOn,
}

pub(super) struct Task {
    pub(super) name: String,
    pub(super) machine: Machine,
    pub(super) coroutine: Option<Stacked>,
    pub(super) yielder: *const Yielder<(), ()>,
    pub(super) waits_on: Option<Event>,
    pub(super) timer: Option<(u64, Timer)>,
    pub(super) woken: Wake,
    /// The machine has died.
    pub(super) killed: bool,
    /// The task is being unwound.
    pub(super) dying: bool,
    pub(super) death_waits: u32,
    /// Turns within the second with this number.
    pub(super) busy: (u64, u32),
}

#[derive(Clone, Copy, Default)]
pub(super) struct Clock {
    pub(super) offset_ns: u64,
    pub(super) drift_ppm: i64,
    pub(super) wall_offset_ns: u64,
    pub(super) stopped_until: u64,
    pub(super) busy_until: u64,
}

pub(super) struct Inner {
    pub(super) now: u64,
    pub(super) rng: SmallRng,
    pub(super) numbers: u64,
    pub(super) tasks: BTreeMap<u64, Task>,
    pub(super) ready: Vec<u64>,
    /// Tasks that met a held lock: they try again when another task has run.
    pub(super) stalled: Vec<u64>,
    /// Tasks to be unwound before any other task runs.
    pub(super) doomed: Vec<u64>,
    pub(super) timers: BTreeSet<(u64, u64)>,
    pub(super) waiting: BTreeMap<u64, Vec<u64>>,
    pub(super) current: u64,
    pub(super) machines: BTreeMap<Machine, Clock>,
    pub(super) digest: u64,
    pub(super) turns: u64,
    /// Tasks that polled without waiting.
    pub(super) spinning: BTreeSet<String>,
    pub(super) panics: Vec<String>,
    /// Calm: no task is delayed.
    pub(super) calm: bool,
    pub(super) planted: Option<String>,
}

pub(super) fn mix(digest: u64, value: u64) -> u64 {
    (digest.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// A number for an event, which is only compared.
pub(super) fn key(event: Event) -> u64 {
    let (kind, number) = match event {
        Event::Condition(at) => (0, at as u64),
        Event::End(task) => (1, task),
    };
    number << 1 | kind
}

impl Inner {
    pub(super) fn machine_of(&self, task: u64) -> Machine {
        self.tasks.get(&task).map_or(OBSERVER, |task| task.machine)
    }

    pub(super) fn clock_of(&self, task: u64) -> Clock {
        self.machines.get(&self.machine_of(task)).copied().unwrap_or_default()
    }

    pub(super) fn local(clock: Clock, now: u64) -> u64 {
        let paced = i128::from(now) * (MILLION + i128::from(clock.drift_ppm)) / MILLION;
        clock.offset_ns + paced as u64
    }

    /// The global time at which a machine's clock shows this.
    pub(super) fn global(clock: Clock, local: u64) -> u64 {
        let paced = i128::from(local.saturating_sub(clock.offset_ns));
        let pace = MILLION + i128::from(clock.drift_ppm);
        u64::try_from((paced * MILLION + pace - 1) / pace).unwrap_or(u64::MAX)
    }

    pub(super) fn set_timer(&mut self, task: u64, at: u64, what: Timer) {
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.timer = Some((at, what));
            self.timers.insert((at, task));
        }
    }

    /// Takes a task off everything that it waits for.
    pub(super) fn detach(&mut self, task: u64) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        if let Some((at, _)) = entry.timer.take() {
            self.timers.remove(&(at, task));
        }
        if let Some(event) = entry.waits_on.take()
            && let Some(waiting) = self.waiting.get_mut(&key(event))
        {
            waiting.retain(|one| *one != task);
            if waiting.is_empty() {
                self.waiting.remove(&key(event));
            }
        }
    }

    pub(super) fn make_ready(&mut self, task: u64, woken: Wake) {
        self.detach(task);
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.woken = woken;
            self.ready.push(task);
        }
    }

    pub(super) fn fire(&mut self) {
        while let Some((at, task)) = self.timers.first().copied()
            && at <= self.now
        {
            let what = self.tasks.get(&task).and_then(|entry| entry.timer).map(|timer| timer.1);
            match what {
                Some(Timer::Due) => self.make_ready(task, Wake::Time),
                Some(Timer::GoOn) => {
                    self.detach(task);
                    self.ready.push(task);
                }
                None => _ = self.timers.pop_first(),
            }
        }
    }

    /// The next task; `None` if no task will ever be runnable.
    pub(super) fn next(&mut self) -> Option<u64> {
        if !self.doomed.is_empty() {
            return Some(self.doomed.remove(0));
        }
        loop {
            self.fire();
            if self.ready.is_empty() {
                let (at, _) = *self.timers.first()?;
                self.now = self.now.max(at);
                self.ready.append(&mut self.stalled);
                continue;
            }
            let picked = self.rng.random_range(0..self.ready.len());
            let task = self.ready.swap_remove(picked);
            let clock = self.clock_of(task);
            if clock.stopped_until > self.now {
                self.set_timer(task, clock.stopped_until, Timer::GoOn);
                continue;
            }
            let (one_of, longest) = match clock.busy_until > self.now {
                true => (BUSY_ONE_OF, BUSY_NS_MAX),
                false => (HELD_UP_ONE_OF, HELD_UP_NS_MAX),
            };
            if !self.calm && self.machine_of(task) != OBSERVER && self.rng.random_ratio(1, one_of) {
                let at = self.now + self.rng.random_range(0..longest);
                self.set_timer(task, at, Timer::GoOn);
                continue;
            }
            return Some(task);
        }
    }

    /// Counts a turn of a task.
    pub(super) fn count(&mut self, number: u64) {
        self.turns += 1;
        let second = self.now / 1_000_000_000;
        let Some(task) = self.tasks.get_mut(&number) else { return };
        if task.busy.0 != second {
            task.busy = (second, 0);
        }
        task.busy.1 += 1;
        if task.busy.1 == TURNS_A_SECOND_MAX {
            self.spinning.insert(format!("{}@{}", task.name, task.machine));
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.tasks.values().map(|task| format!("{}@{}", task.name, task.machine)).collect()
    }
}
