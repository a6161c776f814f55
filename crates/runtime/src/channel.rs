//! Queues between threads, like those of `crossbeam-channel`.

use crate::simulator::{Event, Simulator, Wake, here};
use crate::time::{Duration, Instant};
pub use crossbeam_channel::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// The sending end.
pub struct Sender<T> {
    inner: crossbeam_channel::Sender<T>,
    /// Names the channel in a simulation; 0 outside of one.
    number: u64,
}

/// The receiving end.
pub struct Receiver<T> {
    inner: crossbeam_channel::Receiver<T>,
    number: u64,
}

fn both<T>(ends: (crossbeam_channel::Sender<T>, crossbeam_channel::Receiver<T>)) -> (Sender<T>, Receiver<T>) {
    let number = here().map_or(0, |simulator| simulator.number());
    (Sender { inner: ends.0, number }, Receiver { inner: ends.1, number })
}

/// A channel without a bound.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    both(crossbeam_channel::unbounded())
}

/// A channel that holds at most `count_max` things; at least 1.
pub fn bounded<T>(count_max: usize) -> (Sender<T>, Receiver<T>) {
    both(crossbeam_channel::bounded(count_max))
}

fn wake(event: Event, all: bool) {
    if let Some(simulator) = here() {
        simulator.wake(event, all);
    }
}

impl<T> Sender<T> {
    /// Waits for room, and sends.
    pub fn send(&self, thing: T) -> Result<(), SendError<T>> {
        if self.number == 0 {
            return self.inner.send(thing);
        }
        let mut thing = thing;
        loop {
            match self.try_send(thing) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(thing)) => return Err(SendError(thing)),
                Err(TrySendError::Full(back)) => thing = back,
            }
            let Some(simulator) = here() else { return Err(SendError(thing)) };
            if simulator.wait(Some(Event::Taken(self.number)), None) == Wake::Death {
                return Err(SendError(thing));
            }
        }
    }

    /// Sends if there is room.
    pub fn try_send(&self, thing: T) -> Result<(), TrySendError<T>> {
        self.inner.try_send(thing)?;
        if self.number != 0 {
            wake(Event::Given(self.number), false);
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { inner: self.inner.clone(), number: self.number }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.number != 0 {
            // This may be the last sender. It is dropped before the receivers are woken, because they look
            // whether one is left.
            self.inner = crossbeam_channel::bounded(0).0;
            wake(Event::Given(self.number), true);
        }
    }
}

impl<T> Receiver<T> {
    /// Waits for a thing.
    pub fn recv(&self) -> Result<T, RecvError> {
        match self.number {
            0 => self.inner.recv(),
            _ => self.take(None).map_err(|_| RecvError),
        }
    }

    /// Waits for a thing, at most `longest`.
    pub fn recv_timeout(&self, longest: Duration) -> Result<T, RecvTimeoutError> {
        match self.number {
            0 => self.inner.recv_timeout(longest),
            _ => self.take(here().map(|simulator| simulator.now().saturating_add(longest))),
        }
    }

    /// Waits for a thing, at most until `until`.
    pub fn recv_deadline(&self, until: Instant) -> Result<T, RecvTimeoutError> {
        match self.number {
            0 => self.inner.recv_deadline(until.system()),
            _ => self.take(Some(until.simulated())),
        }
    }

    /// The next thing, if there is one.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let taken = self.inner.try_recv();
        if self.number != 0 && taken.is_ok() && self.inner.capacity().is_some() {
            wake(Event::Taken(self.number), false);
        }
        taken
    }

    /// How many things are queued.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Receives until the last sender is gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    #[cold]
    fn take(&self, until: Option<Duration>) -> Result<T, RecvTimeoutError> {
        let Some(simulator) = here() else { return Err(RecvTimeoutError::Disconnected) };
        let simulator: &dyn Simulator = &*simulator;
        simulator.step();
        loop {
            match self.try_recv() {
                Ok(thing) => return Ok(thing),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            match simulator.wait(Some(Event::Given(self.number)), until) {
                Wake::Event => {}
                Wake::Time => return self.try_recv().map_err(|_| RecvTimeoutError::Timeout),
                Wake::Death => return Err(RecvTimeoutError::Disconnected),
            }
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        Receiver { inner: self.inner.clone(), number: self.number }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.number != 0 {
            self.inner = crossbeam_channel::never();
            wake(Event::Taken(self.number), true);
        }
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = Taking<T>;
    fn into_iter(self) -> Taking<T> {
        Taking(self)
    }
}

/// Receives until the last sender is gone.
pub struct Taking<T>(Receiver<T>);

impl<T> Iterator for Taking<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Box<dyn Iterator<Item = T> + 'a>;
    fn into_iter(self) -> Box<dyn Iterator<Item = T> + 'a> {
        Box::new(self.iter())
    }
}
