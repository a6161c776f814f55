//! The write gate: makes the kernel request a permit before it writes (`docs/KERNEL_CACHE.md`, hazard 12).
//!
//! Before its first write to a file the kernel sends GETXATTR for `security.capability`, under the inode lock
//! (`file_remove_privs`), and remembers the reply in `S_NOSEC`. A writer that has to wait for another client
//! waits for this reply, before its bytes are in the page cache. See
//! [`Client::acquire_write_permit`](shoal_client::Client::acquire_write_permit).
//!
//! Before the right to change the file is given back, `S_NOSEC` has to be cleared. The kernel does so when
//! any `security.` attribute is set, under the inode lock, even if that is refused. So a thread of the mount
//! tries to set one. When the call returns, the writes in flight have arrived, and later ones send GETXATTR.
//!
//! That thread waits for the inode lock, but is not waited for in two cases. A writer at the gate holds the
//! lock: its write is not in flight yet. Or link(2), unlink(2) or rename(2) holds it, perhaps waiting for a
//! client that waits for this one: no write is in flight then, and the thread gets the lock before later
//! writers.

use super::Invalidator;
use super::size::Locker;
use crate::limits::{GETATTR_THREADS, WRITERS_PATIENCE, WRITERS_POLL_EVERY, WRITERS_WAIT_MAX};
use shoal_client::{Client, Wait};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::thread::Builder;
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use std::io;
use std::sync::Arc;

/// The files of one recall whose `S_NOSEC` is being cleared.
struct WriteGate {
    left: Mutex<Left>,
    news: Condvar,
}

#[derive(Default)]
struct Left {
    queue: Vec<InodeId>,
    under_way: Vec<(InodeId, Instant)>,
    failed: Vec<(InodeId, io::Error)>,
}

impl WriteGate {
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

    /// Waits until all files are done, except those for which `is_settled` is true. Its second argument is
    /// the time at which the wait for the file began.
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
            if begun.elapsed() >= WRITERS_WAIT_MAX {
                left.queue.clear();
                return Err(undone);
            }
            self.news.wait_for(&mut left, WRITERS_POLL_EVERY);
        }
    }
}

impl Invalidator {
    /// Clears `S_NOSEC` of these files. Returns when the kernel will request a permit before the next write
    /// to each, or when that takes too long.
    pub(super) fn revoke_write_permits(&self, files: &[InodeId]) {
        let (Some(me), Some(client)) = (self.me.upgrade(), self.client.upgrade()) else { return };
        let left = Mutex::new(Left { queue: files.to_vec(), ..Left::default() });
        let gate = Arc::new(WriteGate { left, news: Condvar::new() });
        for n in 0..files.len().min(GETATTR_THREADS) {
            let (Some(locker), client, gate) = (Locker::new(&me), client.clone(), gate.clone()) else {
                break;
            };
            let run = move || {
                locker.invalidator().host.keep_nothing_else(false);
                while let Some(ino) = gate.next() {
                    gate.done(ino, locker.invalidator().clear_s_nosec(&client, ino));
                }
            };
            if let Err(error) = Builder::new().name(format!("fuse-ask-{n}")).spawn(run) {
                tracing::warn!(%error, "cannot start a thread to revoke write permits");
                break;
            }
        }
        let is_settled = |ino, since: Instant| {
            client.waits_to_write(ino)
                || (since.elapsed() >= WRITERS_PATIENCE && self.state.lock().is_any_locked())
        };
        if let Err(undone) = gate.wait(is_settled) {
            tracing::debug!(undone, "write permits of recalled files were not revoked in time");
        }
        for (ino, error) in gate.left.lock().failed.drain(..) {
            tracing::debug!(%error, %ino, "a write permit could not be revoked");
        }
    }

    fn clear_s_nosec(&self, client: &Client, ino: InodeId) -> io::Result<()> {
        let inode = client.getattr(Wait::Never, ino).map_err(io::Error::other)?;
        self.host.open(ino, inode.generation, libc::O_PATH)?.clear_s_nosec()
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
        let gate = WriteGate { left, news: Condvar::new() };
        assert_eq!(gate.next(), Some(OTHER));
        assert_eq!(gate.wait(|ino, _| ino == OTHER), Err(1), "no thread has begun with the first");
        assert_eq!(gate.wait(|ino, _| ino == OTHER), Ok(()), "it was removed from the queue");
        assert_eq!(gate.next(), None);
        gate.done(OTHER, Ok(()));
        assert_eq!(gate.wait(|_, _| false), Ok(()));
    }
}
