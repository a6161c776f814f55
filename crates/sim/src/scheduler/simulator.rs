//! The system calls of the code under test, answered by the scheduler.

use super::state::{Inner, Timer, key};
use super::{Run, Scheduler};
use rand::Rng;
use shoal_runtime::simulator::{Event, Simulator, Wake};
use std::time::Duration;

/// One lock in this many ends the turn of its task.
const TURN_LOST_ONE_OF: u32 = 6;

impl Simulator for Scheduler {
    fn now(&self) -> Duration {
        let inner = self.inner.borrow();
        Duration::from_nanos(Inner::local(inner.clock_of(inner.current), inner.now))
    }

    fn wall(&self) -> Duration {
        let inner = self.inner.borrow();
        let clock = inner.clock_of(inner.current);
        Duration::from_secs(1_800_000_000) + Duration::from_nanos(inner.now + clock.wall_offset_ns)
    }

    fn random(&self) -> u64 {
        self.inner.borrow_mut().rng.random()
    }

    fn spawn(&self, name: &str, run: Run) -> u64 {
        let machine = {
            let inner = self.inner.borrow();
            inner.machine_of(inner.current)
        };
        self.start(machine, Duration::ZERO, name, run)
    }

    fn current(&self) -> u64 {
        self.inner.borrow().current
    }

    fn is_finished(&self, task: u64) -> bool {
        !self.inner.borrow().tasks.contains_key(&task)
    }

    fn step(&self) {
        let mut inner = self.inner.borrow_mut();
        let current = inner.current;
        let goes_on = inner.tasks.get(&current).is_none_or(|task| task.dying || task.killed);
        if goes_on || !inner.rng.random_ratio(1, TURN_LOST_ONE_OF) {
            return;
        }
        inner.ready.push(current);
        drop(inner);
        self.suspend();
    }

    fn stall(&self) {
        let mut inner = self.inner.borrow_mut();
        let current = inner.current;
        match inner.tasks.get(&current) {
            None => panic!("a lock is held, and no task is left that could release it"),
            Some(task) if task.dying => inner.doomed.push(current),
            Some(_) => inner.stalled.push(current),
        }
        drop(inner);
        self.suspend();
    }

    fn wait(&self, on: Option<Event>, until: Option<Duration>) -> Wake {
        if self.is_dying() {
            return Wake::Death;
        }
        {
            let mut inner = self.inner.borrow_mut();
            let current = inner.current;
            let due = until.map(|until| Inner::global(inner.clock_of(current), until.as_nanos() as u64));
            if let Some(event) = on {
                inner.waiting.entry(key(event)).or_default().push(current);
            }
            if let Some(task) = inner.tasks.get_mut(&current) {
                task.waits_on = on;
            }
            if let Some(due) = due {
                inner.set_timer(current, due, Timer::Due);
            }
        }
        self.suspend();
        let inner = self.inner.borrow();
        inner.tasks.get(&inner.current).map_or(Wake::Death, |task| task.woken)
    }

    fn wake(&self, on: Event, all: bool) {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        let Some(waiting) = inner.waiting.get(&key(on)).cloned() else { return };
        if all {
            for task in waiting {
                inner.make_ready(task, Wake::Event);
            }
        } else {
            let picked = inner.rng.random_range(0..waiting.len());
            inner.make_ready(waiting[picked], Wake::Event);
        }
    }

    fn planted(&self, mistake: &str) -> bool {
        self.inner.borrow().planted.as_deref() == Some(mistake)
    }
}
