//! Has the kernel ask before it writes.
//!
//! Before its first write to a file the kernel asks whether that has capabilities, which it would have to take away (`security.capability`), and under the lock of
//! those who change the file; then it remembers that there are none (`S_NOSEC`) and asks no more. That is where Shoal has a writer wait who has to wait for others: what
//! he writes is in nobody's cache yet. See [`Client::expect_write`](shoal_client::Client::expect_write).
//!
//! Before the right to change the file is given back, the kernel has to forget that. It does when somebody sets any attribute of that kind, under the same lock, also
//! if that is refused. So a thread of ours does: when it is back, what was being written has come, and nobody writes any more who has not asked.
//!
//! That thread waits for the lock. Who holds it writes, or waits to be let write because we are at this very moment about to give the right back: he has asked. Or he
//! is in link(2), unlink(2), rename(2) or the like, and perhaps waits for others, who wait for us. Then nobody is writing, and the thread of ours has its turn
//! before whoever comes later; so it is not waited for.

use super::Dropper;
use super::size::Locker;
use crate::encode::generation;
use crate::limits::{ASK_LOOK_EVERY, ASK_PATIENCE, ASK_THREADS, ASK_WAIT_MAX};
use crate::thread::keep_no_files_but;
use crate::xattr::ASK;
use parking_lot::{Condvar, Mutex};
use shoal_client::{Client, Wait};
use shoal_types::InodeId;
use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Instant;

/// Files about which the kernel is made to ask.
struct Asks {
    left: Mutex<Left>,
    news: Condvar,
}

#[derive(Default)]
struct Left {
    queue: Vec<InodeId>,
    under_way: Vec<(InodeId, Instant)>,
    failed: Vec<(InodeId, io::Error)>,
}

impl Asks {
    fn next(&self) -> Option<InodeId> {
        let mut left = self.left.lock();
        let next = left.queue.pop()?;
        left.under_way.push((next, Instant::now()));
        Some(next)
    }

    fn done(&self, ino: InodeId, outcome: io::Result<()>) {
        let mut left = self.left.lock();
        left.under_way.retain(|(other, _)| *other != ino);
        left.failed.extend(outcome.err().map(|error| (ino, error)));
        drop(left);
        self.news.notify_all();
    }

    /// Waits until all are done, but for those of which this is so, which have been waited for since then.
    fn wait(&self, is_settled: impl Fn(InodeId, Instant) -> bool) -> Result<(), usize> {
        let begun = Instant::now();
        let mut left = self.left.lock();
        loop {
            left.queue.retain(|ino| !is_settled(*ino, begun));
            let blocked = left.under_way.iter().filter(|(ino, since)| !is_settled(*ino, *since));
            let undone = left.queue.len() + blocked.count();
            if undone == 0 {
                return Ok(());
            }
            if begun.elapsed() >= ASK_WAIT_MAX {
                left.queue.clear();
                return Err(undone);
            }
            self.news.wait_for(&mut left, ASK_LOOK_EVERY);
        }
    }
}

impl Dropper {
    /// See the module. Returns when the kernel will ask about all of these, or when that takes too long.
    pub(super) fn have_asked(&self, files: &[InodeId]) {
        let (Some(me), Some(client)) = (self.me.upgrade(), self.client.upgrade()) else { return };
        let left = Mutex::new(Left { queue: files.to_vec(), ..Left::default() });
        let asks = Arc::new(Asks { left, news: Condvar::new() });
        for n in 0..files.len().min(ASK_THREADS) {
            let (Some(locker), client, asks) = (Locker::new(&me), client.clone(), asks.clone()) else {
                break;
            };
            let run = move || {
                keep_no_files_but(None);
                while let Some(ino) = asks.next() {
                    asks.done(ino, locker.stale().ask(&client, ino));
                }
            };
            if let Err(error) = Builder::new().name(format!("fuse-ask-{n}")).spawn(run) {
                tracing::warn!(%error, "no thread to have the kernel ask before it writes");
                break;
            }
        }
        let is_settled = |ino, since: Instant| {
            client.waits_to_write(ino)
                || (since.elapsed() >= ASK_PATIENCE && self.state.lock().is_any_locked())
        };
        if let Err(undone) = asks.wait(is_settled) {
            tracing::debug!(undone, "files are being written to for long that others want to use");
        }
        for (ino, error) in asks.left.lock().failed.drain(..) {
            tracing::debug!(%error, %ino, "the kernel cannot be made to ask before it writes");
        }
    }

    fn ask(&self, client: &Client, ino: InodeId) -> io::Result<()> {
        let place = self.place.get().ok_or(io::ErrorKind::NotFound)?;
        let inode = client.getattr(Wait::Never, ino).map_err(io::Error::other)?;
        let file = place.open(ino, generation(&inode).0, libc::O_PATH)?;
        // An open path takes no attributes, but there is a way to it.
        let path =
            CString::new(format!("/proc/thread-self/fd/{}", file.as_raw_fd())).map_err(io::Error::other)?;
        // SAFETY: the call reads a path and a name that end with a zero, and nothing of the value.
        let set = unsafe { libc::setxattr(path.as_ptr(), ASK.as_ptr(), std::ptr::null(), 0, 0) };
        match (set, io::Error::last_os_error()) {
            // So it is refused, by us: see `front`.
            (-1, error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
            (-1, error) => Err(error),
            _ => Err(io::Error::other("it was set")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InodeId = InodeId(7);
    const OTHER: InodeId = InodeId(8);

    #[test]
    fn who_waits_to_be_let_write_is_not_waited_for() {
        let left = Mutex::new(Left { queue: vec![ONE, OTHER], ..Left::default() });
        let asks = Asks { left, news: Condvar::new() };
        assert_eq!(asks.next(), Some(OTHER));
        assert_eq!(asks.wait(|ino, _| ino == OTHER), Err(1), "nobody takes the first");
        assert_eq!(asks.wait(|ino, _| ino == OTHER), Ok(()), "it is given up");
        assert_eq!(asks.next(), None);
        asks.done(OTHER, Ok(()));
        assert_eq!(asks.wait(|_, _| false), Ok(()));
    }
}
