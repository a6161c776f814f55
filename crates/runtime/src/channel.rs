//! Queues between threads, like those of `std::sync::mpsc`, also for several receivers.
//!
//! **Model.** A queue, a lock, and two conditions: that a thing was sent, and that one was taken. A thread
//! that finds nothing sleeps at once. In `crossbeam-channel` it yields the processor several times first.
//! With more busy threads than processors, each time is a switch to another thread and back.

use crate::simulator::Wake;
use crate::sync::{Condvar, Mutex};
use crate::time::{Duration, Instant};
use std::collections::VecDeque;
use std::sync::Arc;
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

struct Channel<T> {
    state: Mutex<State<T>>,
    /// A thing was sent, or the last sender is gone.
    sent: Condvar,
    /// A thing was taken, or the last receiver is gone.
    taken: Condvar,
    /// How many things it holds at most.
    count_max: usize,
}

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

/// The sending end.
pub struct Sender<T>(Arc<Channel<T>>);

/// The receiving end.
pub struct Receiver<T>(Arc<Channel<T>>);

/// A channel without a bound.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

/// A channel that holds at most `count_max` things; at least 1.
pub fn bounded<T>(count_max: usize) -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        state: Mutex::new(State { queue: VecDeque::new(), senders: 1, receivers: 1 }),
        sent: Condvar::new(),
        taken: Condvar::new(),
        count_max: count_max.max(1),
    });
    (Sender(channel.clone()), Receiver(channel))
}

impl<T> Channel<T> {
    /// Waits for room where `waits`, and sends.
    fn send(&self, thing: T, waits: bool) -> Result<(), TrySendError<T>> {
        let mut state = self.state.lock();
        loop {
            if state.receivers == 0 {
                return Err(TrySendError::Disconnected(thing));
            }
            if state.queue.len() < self.count_max {
                break;
            }
            if !waits {
                return Err(TrySendError::Full(thing));
            }
            if self.taken.sleep(&mut state, None) == Wake::Death {
                return Err(TrySendError::Disconnected(thing));
            }
        }
        state.queue.push_back(thing);
        drop(state);
        self.sent.notify_one();
        Ok(())
    }

    /// The next thing, if there is one.
    fn take(&self, state: &mut State<T>) -> Result<T, TryRecvError> {
        let none = if state.senders == 0 { TryRecvError::Disconnected } else { TryRecvError::Empty };
        let next = state.queue.pop_front().ok_or(none)?;
        if self.count_max < usize::MAX {
            self.taken.notify_one();
        }
        Ok(next)
    }
}

impl<T> Sender<T> {
    /// Waits for room, and sends.
    pub fn send(&self, thing: T) -> Result<(), SendError<T>> {
        self.0.send(thing, true).map_err(|error| match error {
            TrySendError::Full(thing) | TrySendError::Disconnected(thing) => SendError(thing),
        })
    }

    /// Sends if there is room.
    pub fn try_send(&self, thing: T) -> Result<(), TrySendError<T>> {
        self.0.send(thing, false)
    }
}

impl<T> Receiver<T> {
    /// Waits for a thing.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.wait(None).map_err(|_| RecvError)
    }

    /// Waits for a thing, at most `longest`.
    pub fn recv_timeout(&self, longest: Duration) -> Result<T, RecvTimeoutError> {
        self.wait(Instant::now().checked_add(longest))
    }

    /// Waits for a thing, at most until `until`.
    pub fn recv_deadline(&self, until: Instant) -> Result<T, RecvTimeoutError> {
        self.wait(Some(until))
    }

    /// The next thing, if there is one.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.take(&mut self.0.state.lock())
    }

    fn wait(&self, until: Option<Instant>) -> Result<T, RecvTimeoutError> {
        let mut state = self.0.state.lock();
        let mut is_late = false;
        loop {
            match self.0.take(&mut state) {
                Ok(thing) => return Ok(thing),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) if is_late => return Err(RecvTimeoutError::Timeout),
                Err(TryRecvError::Empty) => {}
            }
            match self.0.sent.sleep(&mut state, until) {
                Wake::Event => {}
                Wake::Time => is_late = true,
                Wake::Death => return Err(RecvTimeoutError::Disconnected),
            }
        }
    }

    /// How many things are queued.
    pub fn len(&self) -> usize {
        self.0.state.lock().queue.len()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Receives until the last sender is gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.state.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.0.state.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.senders -= 1;
        let is_last = state.senders == 0;
        drop(state);
        if is_last {
            self.0.sent.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.receivers -= 1;
        if state.receivers == 0 {
            // Nothing takes what is queued any more. It is dropped without the lock: its drop may send.
            let left = std::mem::take(&mut state.queue);
            drop(state);
            self.0.taken.notify_all();
            drop(left);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SOON: Duration = Duration::from_millis(30);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn each_thing_reaches_one_receiver_in_order() {
        let (sender, receiver) = unbounded();
        let receivers: Vec<_> = (0..3)
            .map(|_| receiver.clone())
            .map(|receiver| thread::spawn(move || receiver.into_iter().collect::<Vec<u32>>()))
            .collect();
        drop(receiver);
        let senders: Vec<_> = (0..4u32)
            .map(|n| (n, sender.clone()))
            .map(|(n, sender)| {
                thread::spawn(move || (0..1000).for_each(|i| sender.send(n * 1000 + i).unwrap()))
            })
            .collect();
        drop(sender);
        senders.into_iter().for_each(|thread| thread.join().unwrap());
        let received: Vec<Vec<u32>> = receivers.into_iter().map(|thread| thread.join().unwrap()).collect();
        for one in &received {
            for n in 0..4 {
                let of_one: Vec<u32> = one.iter().copied().filter(|thing| thing / 1000 == n).collect();
                assert!(of_one.is_sorted(), "{of_one:?}");
            }
        }
        let mut all = received.concat();
        all.sort_unstable();
        assert_eq!(all, (0..4000).collect::<Vec<u32>>());
    }

    #[test]
    fn a_full_channel_takes_more_when_something_was_taken() {
        let (sender, receiver) = bounded(1);
        sender.send(1).unwrap();
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        let late = thread::spawn(move || sender.send(2));
        thread::sleep(SOON);
        assert_eq!(receiver.recv(), Ok(1));
        assert_eq!(receiver.recv_timeout(LONG), Ok(2));
        late.join().unwrap().unwrap();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    }

    #[test]
    fn a_wait_ends_in_time_and_with_the_other_end() {
        let (sender, receiver) = bounded::<u8>(1);
        assert_eq!(receiver.recv_timeout(SOON), Err(RecvTimeoutError::Timeout));
        assert_eq!(receiver.recv_deadline(Instant::now() + SOON), Err(RecvTimeoutError::Timeout));
        let waits = thread::spawn(move || receiver.recv());
        thread::sleep(SOON);
        drop(sender);
        assert_eq!(waits.join().unwrap(), Err(RecvError));
        let (sender, receiver) = bounded(1);
        sender.send(1).unwrap();
        let waits = thread::spawn(move || sender.send(2));
        thread::sleep(SOON);
        drop(receiver);
        assert_eq!(waits.join().unwrap(), Err(SendError(2)));
    }

    #[test]
    fn what_nothing_takes_any_more_is_dropped_with_the_last_receiver() {
        let (tell, told) = bounded::<()>(1);
        let (sender, receiver) = unbounded();
        sender.send(tell).unwrap();
        drop(receiver);
        assert_eq!(told.recv(), Err(RecvError), "the queued sender is gone");
        assert!(sender.send(bounded(1).0).is_err());
    }
}
