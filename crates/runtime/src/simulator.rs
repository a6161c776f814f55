//! What a simulation puts in the place of the system.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a task can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A condition variable, by where it is.
    Condition(usize),
    /// Something in a channel, by the number that it was given.
    Given(u64),
    /// Room in a channel.
    Taken(u64),
    /// The end of a task.
    End(u64),
}

/// Why a wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The event has come.
    Event,
    /// It was time.
    Time,
    /// The machine that the task runs on has died, and the task is being taken apart: nothing is going to come.
    Death,
}

/// A world of tasks on machines. Every call is one of the task that runs.
pub trait Simulator {
    /// The monotonic clock of the task's machine.
    fn now(&self) -> Duration;
    /// Its wall clock, since the epoch.
    fn wall(&self) -> Duration;
    /// A number.
    fn random(&self) -> u64;
    /// A number that was not given before.
    fn number(&self) -> u64;
    /// Starts a task on the same machine, and answers its number.
    fn spawn(&self, name: &str, run: Box<dyn FnOnce()>) -> u64;
    /// The task that runs.
    fn current(&self) -> u64;
    /// Whether a task has ended.
    fn is_finished(&self, task: u64) -> bool;
    /// Others may go on.
    fn step(&self);
    /// Others go on before this task does: it has met a lock that is held.
    fn stall(&self);
    /// Waits for an event, or until a moment of the machine's monotonic clock.
    fn wait(&self, on: Option<Event>, until: Option<Duration>) -> Wake;
    /// An event has come: one task that waits for it goes on, or all.
    fn wake(&self, on: Event, all: bool);
    /// Whether this run is to do a [planted](crate::planted) mistake now.
    fn planted(&self, mistake: &str) -> bool;
}

/// Whether there is or was a simulation anywhere in this process.
static ANYWHERE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static HERE: RefCell<Option<Rc<dyn Simulator>>> = const { RefCell::new(None) };
}

/// Makes this thread one of a simulation until the guard is dropped.
pub fn enter(simulator: Rc<dyn Simulator>) -> Entered {
    ANYWHERE.store(true, Ordering::Relaxed);
    HERE.with(|here| here.replace(Some(simulator)));
    Entered(())
}

/// See [`enter`].
pub struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        HERE.with(|here| here.replace(None));
    }
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
