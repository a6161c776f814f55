//! Locks and conditions, like those of `parking_lot`.

use crate::simulator::{Event, Simulator, Wake, here};
use crate::time::{Duration, Instant};
pub use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Mutual exclusion.
#[derive(Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match here() {
            Some(simulator) => wait_for(&*simulator, || self.0.try_lock()),
            None => self.0.lock(),
        }
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// The value that was protected.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lock for several readers or one writer.
#[derive(Default)]
pub struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(parking_lot::RwLock::new(value))
    }

    /// Waits until no writer holds it.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match here() {
            Some(simulator) => wait_for(&*simulator, || self.0.try_read()),
            None => self.0.read(),
        }
    }

    /// Waits until no reader or writer holds it.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match here() {
            Some(simulator) => wait_for(&*simulator, || self.0.try_write()),
            None => self.0.write(),
        }
    }
}

/// Releases a lock while something runs, and takes it again.
pub fn unlocked<T, U>(guard: &mut MutexGuard<'_, T>, run: impl FnOnce() -> U) -> U {
    match here() {
        Some(simulator) => {
            let mutex = MutexGuard::mutex(guard);
            MutexGuard::unlocked(guard, || {
                let _free = UntilFree(&*simulator, mutex);
                run()
            })
        }
        None => MutexGuard::unlocked(guard, run),
    }
}

fn wait_for<G>(simulator: &dyn Simulator, attempt: impl Fn() -> Option<G>) -> G {
    simulator.step();
    loop {
        match attempt() {
            Some(guard) => return guard,
            None => simulator.stall(),
        }
    }
}

/// Whether a wait ended by its time limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time limit has passed.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// Lets threads wait for each other.
#[derive(Default, Debug)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition without waiters.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    fn event(&self) -> Event {
        Event::Condition(std::ptr::from_ref(self).addr())
    }

    /// Wakes one waiter.
    #[inline]
    pub fn notify_one(&self) {
        match here() {
            Some(simulator) => simulator.wake(self.event(), false),
            None => _ = self.0.notify_one(),
        }
    }

    /// Wakes all waiters.
    #[inline]
    pub fn notify_all(&self) {
        match here() {
            Some(simulator) => simulator.wake(self.event(), true),
            None => _ = self.0.notify_all(),
        }
    }

    /// Releases the lock, waits, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.sleep(guard, None);
    }

    /// Releases the lock, waits at most `longest`, and takes the lock again.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, longest: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult(self.sleep(guard, Instant::now().checked_add(longest)) != Wake::Event)
    }

    /// Releases the lock, waits at most until `until`, and takes the lock again.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> WaitTimeoutResult {
        WaitTimeoutResult(self.sleep(guard, Some(until)) != Wake::Event)
    }

    /// Releases the lock, waits, at most until `until`, and takes the lock again. Returns why the wait ended.
    pub(crate) fn sleep<T>(&self, guard: &mut MutexGuard<'_, T>, until: Option<Instant>) -> Wake {
        match (here(), until) {
            (Some(simulator), _) => {
                unlocked(guard, || simulator.wait(Some(self.event()), until.map(Instant::simulated)))
            }
            (None, None) => {
                self.0.wait(guard);
                Wake::Event
            }
            (None, Some(until)) => match self.0.wait_until(guard, until.system()).timed_out() {
                true => Wake::Time,
                false => Wake::Event,
            },
        }
    }
}

/// Takes the lock again however a wait ends. It only tries the lock: blocking on it would stop the thread
/// that all tasks share.
struct UntilFree<'a, T>(&'a dyn Simulator, &'a parking_lot::Mutex<T>);

impl<T> Drop for UntilFree<'_, T> {
    fn drop(&mut self) {
        let mut killed = None;
        while self.1.is_locked() {
            // If the task is unwound here, the unwinding goes on when the lock has been taken.
            killed = catch_unwind(AssertUnwindSafe(|| self.0.stall())).err().or(killed);
        }
        if let Some(killed) = killed.filter(|_| !std::thread::panicking()) {
            resume_unwind(killed);
        }
    }
}
