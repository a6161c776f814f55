//! The interface that a simulation implements in place of the system.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a task can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A notification of the condition variable at this address.
    Condition(usize),
    /// The end of the task with this number.
    End(u64),
}

/// Why a wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The event has happened.
    Event,
    /// The deadline has passed.
    Time,
    /// The task's machine has died and the task is being unwound: no event will come.
    Death,
}

/// Tasks on simulated machines. Every call is made by the task that runs.
pub trait Simulator {
    /// The monotonic clock of the task's machine.
    fn now(&self) -> Duration;
    /// The wall clock of the task's machine, since the epoch.
    fn wall(&self) -> Duration;
    /// A random number.
    fn random(&self) -> u64;
    /// Starts a task on the same machine, and returns its number.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce()>) -> u64;
    /// The number of the task that runs.
    fn current(&self) -> u64;
    /// Whether a task has ended.
    fn is_finished(&self, task: u64) -> bool;
    /// A scheduling point: another task may run.
    fn step(&self);
    /// Another task must run before this one does: it has met a lock that is held.
    fn stall(&self);
    /// Waits for an event, or until this time of the machine's monotonic clock.
    fn wait(&self, on: Option<Event>, until: Option<Duration>) -> Wake;
    /// An event has happened: one task that waits for it becomes runnable, or all of them.
    fn wake(&self, on: Event, all: bool);
    /// Whether this run is to commit a [planted](crate::planted) defect now.
    fn planted(&self, mistake: &str) -> bool;
}

/// Whether there is or was a simulation anywhere in this process.
static ANYWHERE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static HERE: RefCell<Option<Rc<dyn Simulator>>> = const { RefCell::new(None) };
}

/// Puts this thread into a simulation until the guard is dropped.
pub fn enter(simulator: Rc<dyn Simulator>) -> Entered {
    ANYWHERE.store(true, Ordering::Relaxed);
    HERE.with(|here| here.replace(Some(simulator)));
    Entered(())
}

/// Keeps the thread in the simulation of [`enter`].
pub struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        HERE.with(|here| here.replace(None));
    }
}

/// Whether this thread is in a simulation.
#[inline]
pub fn is_entered() -> bool {
    here().is_some()
}

/// The simulation that this thread is in.
#[inline]
pub(crate) fn here() -> Option<Rc<dyn Simulator>> {
    if ANYWHERE.load(Ordering::Relaxed) { look() } else { None }
}

#[cold]
fn look() -> Option<Rc<dyn Simulator>> {
    HERE.try_with(|here| here.borrow().clone()).ok().flatten()
}
