//! The room on the disk of a brick, asked for without waiting for a disk that hangs.
//!
//! **Why.** A disk that does not answer keeps the thread that asks it, for any time. Reports are requested
//! periodically, on the threads that serve metadata, too: without a bound one hung disk would take them all.
//!
//! **Promises.** At most one thread waits for a disk. A caller waits for a bounded time. It gets the last
//! answer of a disk that is slow, and an error of one that hangs.

use crate::limits::{DISK_HANGS_AFTER, ROOM_PATIENCE};
use parking_lot::{Condvar, Mutex};
use shoal_types::Statfs;
use std::sync::Arc;
use std::time::Instant;

/// Asks one disk.
#[derive(Default)]
pub struct RoomProbe {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    /// Since when a thread has been waiting for the disk.
    asked: Option<Instant>,
    /// The last answer; `None` before the first one.
    last: Option<Result<Statfs, String>>,
}

impl RoomProbe {
    /// The room that `ask` finds, or why it is not known.
    pub fn room(
        self: &Arc<Self>,
        ask: impl FnOnce() -> Result<Statfs, String> + Send + 'static,
    ) -> Result<Statfs, String> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if state.asked.is_none() {
            let probe = self.clone();
            let work = move || {
                let answer = ask();
                *probe.state.lock() = State { asked: None, last: Some(answer) };
                probe.answered.notify_all();
            };
            let thread = std::thread::Builder::new().name("shoal-room".into()).spawn(work);
            thread.map_err(|error| format!("no thread to ask its disk: {error}"))?;
            state.asked = Some(now);
        }
        let since = state.asked.unwrap_or(now);
        while state.asked.is_some() {
            if self.answered.wait_until(&mut state, since + ROOM_PATIENCE).timed_out() {
                break;
            }
        }
        match (state.asked, &state.last) {
            (None, Some(answer)) => answer.clone(),
            (Some(since), Some(Ok(room))) if since.elapsed() < DISK_HANGS_AFTER => Ok(*room),
            _ => Err(format!("its disk has not answered for {} s", since.elapsed().as_secs())),
        }
    }

    /// Whether a thread has been waiting for the disk for too long.
    pub fn hangs(&self) -> bool {
        self.state.lock().asked.is_some_and(|since| since.elapsed() >= ROOM_PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    const ROOM: Statfs = Statfs { total_bytes: 7, free_bytes: 3, inodes: 0, free_inodes: 0 };

    #[test]
    fn disk_that_hangs_keeps_one_thread_and_no_caller() {
        let (probe, asked) = (Arc::new(RoomProbe::default()), Arc::new(AtomicUsize::new(0)));
        let (release, released) = mpsc::channel::<()>();
        let hang = move || {
            // It ends when the sender is dropped.
            let _ = released.recv();
            Ok(ROOM)
        };
        let why = probe.room(hang).unwrap_err();
        assert!(why.contains("its disk has not answered"), "{why}");
        let begun = Instant::now();
        for _ in 0..100 {
            let asked = asked.clone();
            let counted = move || {
                asked.fetch_add(1, Ordering::SeqCst);
                Ok(ROOM)
            };
            assert!(probe.room(counted).is_err() && probe.hangs());
        }
        assert!(begun.elapsed() < ROOM_PATIENCE, "a caller does not wait again");
        assert_eq!(asked.load(Ordering::SeqCst), 0, "no other thread waits for the disk");
        drop(release);
        while probe.hangs() {
            std::thread::yield_now();
        }
        assert_eq!(probe.room(|| Ok(ROOM)), Ok(ROOM));
    }

    #[test]
    fn disk_that_is_slow_is_reported_with_its_last_answer() {
        let probe = Arc::new(RoomProbe::default());
        assert_eq!(probe.room(|| Ok(ROOM)), Ok(ROOM));
        let (release, released) = mpsc::channel::<()>();
        let slow = move || {
            let _ = released.recv();
            Ok(Statfs::default())
        };
        assert_eq!(probe.room(slow), Ok(ROOM));
        drop(release);
    }
}
