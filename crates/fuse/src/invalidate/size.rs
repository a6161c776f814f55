//! Makes the kernel accept the size of a file before a program reads (`docs/KERNEL_CACHE.md`, hazard 7).
//!
//! After an invalidation read(2) sends GETATTR, and then reads up to `i_size`. That is not always the
//! size in the reply. `fuse_change_attributes` ignores a reply if the attributes were touched after its
//! request: by `INVAL_INODE`, or by a local write, truncate, link or unlink. While a write beyond the end or
//! a truncate is in flight (`FUSE_I_SIZE_UNSTABLE`), it ignores every size. The read then ends at the old
//! size.
//!
//! So a reader of a file that other clients have changed is answered only when the kernel has been *seen* to
//! have a size that was valid after the request. A thread of the mount calls statx(2) with
//! `AT_STATX_FORCE_SYNC`, so that the kernel sends GETATTR, and then reads the cached size with
//! `AT_STATX_DONT_SYNC`. If that is not the size in the reply, the thread calls lseek(2) with `SEEK_END`,
//! which takes the inode lock, so no local change is in flight then.
//!
//! From the moment at which the cached size was read until the reader has consumed its reply, the file is not
//! invalidated.

use super::{AttributesAsked, Invalidator};
use crate::limits::{SIZE_LOCKERS_MAX, SIZE_LOOK_EVERY, SIZE_WAIT_MAX};
use shoal_client::{Client, Wait};
use shoal_runtime::channel::bounded;
use shoal_runtime::sync::Mutex;
use shoal_runtime::thread::Builder;
use shoal_runtime::time::Instant;
use shoal_types::{FileKind, InodeId};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The ways in which a thread of the mount makes the kernel send GETATTR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CheckMode {
    /// By statx(2), which takes no lock.
    Lockless,
    /// By lseek(2), under the inode lock of local changes. The kernel's GETATTR then names the open file.
    UnderInodeLock,
}

/// The reply to the kernel's GETATTR.
struct SizeReply {
    size: u64,
    /// The file is not invalidated while this exists.
    _asked: AttributesAsked,
}

struct SizeCheck {
    ino: InodeId,
    mode: CheckMode,
    reply: Option<SizeReply>,
}

/// Threads of the mount that check sizes, by thread id.
#[derive(Default)]
pub(super) struct SizeChecks {
    any: AtomicUsize,
    threads: Mutex<HashMap<u32, SizeCheck>>,
    /// Number of threads that wait for an inode lock.
    lockers: AtomicUsize,
}

impl SizeChecks {
    fn begin(&self, tid: u32, ino: InodeId, mode: CheckMode) {
        self.any.fetch_add(1, SeqCst);
        self.threads.lock().insert(tid, SizeCheck { ino, mode, reply: None });
    }

    fn end(&self, tid: u32) -> Option<SizeReply> {
        let check = self.threads.lock().remove(&tid);
        self.any.fetch_sub(1, SeqCst);
        check.and_then(|check| check.reply)
    }

    /// Whether a GETATTR comes from a thread of the mount that checks the size of this file; `names_file`: it
    /// names an open file.
    pub(super) fn is_ours(&self, tid: u32, ino: InodeId, names_file: bool) -> bool {
        self.any.load(SeqCst) > 0
            && self.threads.lock().get(&tid).is_some_and(|check| check.matches(ino, names_file))
    }

    /// The reply to a thread that checks a size is about to carry this size.
    pub(super) fn record_reply(&self, tid: u32, size: u64, asked: AttributesAsked) {
        let reply = SizeReply { size, _asked: asked };
        let before = match self.threads.lock().get_mut(&tid) {
            Some(check) => check.reply.replace(reply),
            None => Some(reply),
        };
        drop(before);
    }
}

/// A thread that may wait for an inode lock, counted until this is dropped.
pub(super) struct Locker(Arc<Invalidator>);

impl Locker {
    /// Returns `None` if too many threads wait.
    pub(super) fn new(invalidator: &Arc<Invalidator>) -> Option<Locker> {
        let before = invalidator.size_checks.lockers.fetch_add(1, SeqCst);
        let locker = Locker(invalidator.clone());
        (before < SIZE_LOCKERS_MAX).then_some(locker)
    }

    pub(super) fn invalidator(&self) -> &Invalidator {
        &self.0
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        self.0.size_checks.lockers.fetch_sub(1, SeqCst);
    }
}

impl SizeCheck {
    fn matches(&self, ino: InodeId, names_file: bool) -> bool {
        self.ino == ino && names_file == (self.mode == CheckMode::UnderInodeLock)
    }
}

/// The size that the kernel has, and the reply to its GETATTR, if it sent one.
struct Seen {
    size: u64,
    reply: Option<SizeReply>,
}

impl Invalidator {
    /// Whether a GETATTR comes from a thread of the mount that checks whether the kernel accepts the reply.
    pub(crate) fn is_size_check(&self, tid: u32, ino: InodeId, names_file: bool) -> bool {
        self.size_checks.is_ours(tid, ino, names_file)
    }

    /// A thread that reads an open file has sent GETATTR at `begun`. Returns when the kernel has
    /// the right size, or when that has taken too long. May wait, also for local changes that wait.
    pub(crate) fn size_asked(
        self: &Arc<Invalidator>,
        client: &Client,
        ino: InodeId,
        tid: u32,
        begun: Instant,
    ) -> AttributesAsked {
        let mut mode = CheckMode::Lockless;
        self.wait_until_settled(ino);
        while let Some(drops) = self.last_invalidation(ino)
            && let Ok(inode) = client.getattr(Wait::Allowed, ino)
            && inode.kind == FileKind::Regular
            && let Ok(Seen { size, reply }) = self.check(ino, inode.generation, mode, begun)
        {
            // From here on the file is not invalidated before this thread has consumed its reply.
            let asked = self.attributes_asked(ino, tid, false);
            let is_right = match &reply {
                Some(reply) => reply.size == size,
                // The kernel had valid attributes and sent no GETATTR.
                None => self.last_invalidation(ino) == Some(drops),
            };
            if is_right {
                return asked;
            }
            asked.withdraw();
            drop(reply);
            self.wait_until_settled(ino);
            if self.is_too_late(begun) {
                tracing::debug!(%ino, "the kernel has not accepted a size in time");
                break;
            }
            match self.host.seeks(tid) {
                // The calling thread holds the inode lock itself.
                true => shoal_runtime::thread::sleep(SIZE_LOOK_EVERY),
                false => mode = CheckMode::UnderInodeLock,
            }
        }
        self.attributes_asked(ino, tid, false)
    }

    fn is_too_late(&self, begun: Instant) -> bool {
        begun.elapsed() >= SIZE_WAIT_MAX || self.state.lock().ended
    }

    /// Makes the kernel send GETATTR for a file, and returns the size that it has cached then.
    fn check(
        self: &Arc<Invalidator>,
        ino: InodeId,
        generation: u64,
        mode: CheckMode,
        begun: Instant,
    ) -> io::Result<Seen> {
        match mode {
            CheckMode::Lockless => self.check_lockless(ino, generation),
            CheckMode::UnderInodeLock => self.check_on_thread(ino, generation, begun),
        }
    }

    fn check_lockless(&self, ino: InodeId, generation: u64) -> io::Result<Seen> {
        let file = self.host.open(ino, generation, libc::O_PATH)?;
        let tid = self.host.current();
        self.size_checks.begin(tid, ino, CheckMode::Lockless);
        let asked = file.refresh();
        let reply = self.size_checks.end(tid);
        asked?;
        Ok(Seen { size: file.cached_size()?, reply })
    }

    /// Checks the size under the inode lock, on a thread of its own: it may wait for a local change.
    fn check_on_thread(
        self: &Arc<Invalidator>,
        ino: InodeId,
        generation: u64,
        begun: Instant,
    ) -> io::Result<Seen> {
        let locker = Locker::new(self).ok_or(io::ErrorKind::QuotaExceeded)?;
        let (send, seen) = bounded(1);
        let check = move || {
            let seen = locker.0.check_under_inode_lock(ino, generation);
            drop(locker);
            let _ = send.send(seen);
        };
        Builder::new().name("fuse-look".into()).spawn(check)?;
        let left = SIZE_WAIT_MAX.saturating_sub(begun.elapsed());
        seen.recv_timeout(left).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    fn check_under_inode_lock(&self, ino: InodeId, generation: u64) -> io::Result<Seen> {
        self.host.keep_nothing_else(false);
        let file = self.host.open(ino, generation, libc::O_RDONLY)?;
        let tid = self.host.current();
        self.size_checks.begin(tid, ino, CheckMode::UnderInodeLock);
        let end = file.seek_end();
        let reply = self.size_checks.end(tid);
        Ok(Seen { size: end?, reply })
    }
}
