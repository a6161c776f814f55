//! Threads.

use crate::simulator::{Event, here};
use crate::time::Duration;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Names a running thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ThreadId(Id);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Id {
    System(std::thread::ThreadId),
    Simulated(u64),
}

/// The calling thread.
pub fn current() -> ThreadId {
    ThreadId(match here() {
        Some(simulator) => Id::Simulated(simulator.current()),
        None => Id::System(std::thread::current().id()),
    })
}

/// Starts a thread, with a name.
pub struct Builder {
    name: String,
}

/// A thread that was started.
pub struct JoinHandle<T>(Thread<T>);

enum Thread<T> {
    System(std::thread::JoinHandle<T>),
    Simulated(u64, Arc<Mutex<Option<T>>>),
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// For a thread without a name.
    pub fn new() -> Builder {
        Builder { name: String::new() }
    }

    /// Sets the name.
    pub fn name(self, name: String) -> Builder {
        Builder { name }
    }

    /// Starts the thread.
    pub fn spawn<T: Send + 'static>(
        self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let Some(simulator) = here() else {
            let thread = std::thread::Builder::new().name(self.name).spawn(run)?;
            return Ok(JoinHandle(Thread::System(thread)));
        };
        let outcome = Arc::new(Mutex::new(None));
        let given = outcome.clone();
        let task = simulator.spawn(&self.name, Box::new(move || *given.lock() = Some(run())));
        Ok(JoinHandle(Thread::Simulated(task, outcome)))
    }
}

impl<T> JoinHandle<T> {
    /// Waits for its end; an error if it has panicked.
    pub fn join(self) -> std::thread::Result<T> {
        match self.0 {
            Thread::System(thread) => thread.join(),
            Thread::Simulated(task, outcome) => {
                if let Some(simulator) = here()
                    && !simulator.is_finished(task)
                {
                    simulator.wait(Some(Event::End(task)), None);
                }
                outcome.lock().take().ok_or_else(|| Box::new("it did not come to its end") as _)
            }
        }
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Thread::System(thread) => thread.is_finished(),
            Thread::Simulated(task, _) => here().is_none_or(|simulator| simulator.is_finished(*task)),
        }
    }

    /// Whether it is the calling thread.
    pub fn is_current(&self) -> bool {
        match &self.0 {
            Thread::System(thread) => thread.thread().id() == std::thread::current().id(),
            Thread::Simulated(task, _) => here().is_some_and(|simulator| simulator.current() == *task),
        }
    }
}

/// Runs the same work on several threads, the calling one among them, and waits for all. In a simulation the
/// calling thread does it alone.
pub fn together(threads: usize, work: impl Fn() + Sync) {
    if here().is_some() {
        return work();
    }
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(&work);
        }
        work();
    });
}

/// Suspends the calling thread.
pub fn sleep(long: Duration) {
    match here() {
        Some(simulator) => _ = simulator.wait(None, Some(simulator.now().saturating_add(long))),
        None => std::thread::sleep(long),
    }
}
