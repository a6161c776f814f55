//! Invalidates the kernel's cache of a mount whose process is stopped (`docs/KERNEL_CACHE.md`, hazard 18).
//!
//! A client whose lease has run out stops answering and invalidates the kernel's cache, before the servers
//! let other clients change what it caches. It cannot do so while its process does not run: it was stopped by
//! a signal, is in a debugger, or waits for a disk. So a guard process watches the clock. A shared file tells
//! it until when the cache may be used ([`Deadline`]). After that it invalidates what it can find
//! ([`StoppedKernel::empty`]): all names, and attributes, listings and content of what `/proc` shows as open,
//! mapped, or a current directory. Programs that use these then send requests, and wait until the process
//! continues.
//!
//! **Assumes** that the guard process runs. If the whole machine is paused, both processes and the programs
//! wake up at the same time.
//!
//! **Not found** are files that are open only in messages between processes (`SCM_RIGHTS`), in `io_uring`, or
//! by threads with a file table of their own.

mod queue;
mod search;

use crate::limits::{
    DEADLINE_STEP, STOPPED_INVALIDATE_MAX, STOPPED_INVALIDATORS_MAX, STOPPED_SEARCHERS_MAX,
    STOPPED_STANDSTILL,
};
use crate::notify::Notifications;
use nix::sys::memfd::{MFdFlags, memfd_create};
use queue::{Progress, Queue};
use search::Search;
use shoal_types::InodeId;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Until when the kernel's cache may be used, in milliseconds since the machine was started; 0 if not known.
#[derive(Default)]
pub(crate) struct Deadline {
    until_ms: AtomicU64,
    /// The shared file, once the guard has asked for it.
    file: OnceLock<File>,
}

impl Deadline {
    /// Sets the deadline.
    pub(crate) fn is(&self, until: Duration) {
        let until_ms = until.as_millis() as u64;
        let before = self.until_ms.load(SeqCst);
        if until_ms >= before + DEADLINE_STEP.as_millis() as u64 {
            self.until_ms.store(until_ms, SeqCst);
            if let Some(file) = self.file.get() {
                write(file, until_ms);
            }
        }
    }

    /// The shared file, for the guard process.
    pub(crate) fn file(&self) -> io::Result<File> {
        let file = match self.file.get() {
            Some(file) => file,
            None => {
                let made = memfd_create(c"shoal-lease", MFdFlags::MFD_CLOEXEC)?;
                self.file.get_or_init(|| File::from(made))
            }
        };
        write(file, self.until_ms.load(SeqCst));
        file.try_clone()
    }
}

fn write(file: &File, until_ms: u64) {
    if let Err(error) = file.write_all_at(&until_ms.to_ne_bytes(), 0) {
        tracing::warn!(%error, "cannot write the deadline of the kernel's cache for the guard process");
    }
}

/// The descriptors that the guard process of this mount needs.
pub struct Watch {
    pub(crate) kernel: File,
    pub(crate) deadline: File,
}

impl Watch {
    /// The descriptors, which the guard process has to inherit under the same numbers.
    pub fn files(&self) -> [RawFd; 2] {
        [self.kernel.as_raw_fd(), self.deadline.as_raw_fd()]
    }
}

/// The kernel's cache of a mount whose process may be stopped, for the guard process.
pub struct StoppedKernel {
    kernel: Notifications,
    deadline: File,
    /// The mount, as `MAJOR:MINOR`.
    device: String,
}

impl StoppedKernel {
    /// From the inherited descriptors, in the order of [`Watch::files`], and the device number of the
    /// [mount](crate::Mounted::device).
    pub fn new([kernel, deadline]: [OwnedFd; 2], device: &str) -> StoppedKernel {
        let kernel = Notifications::inherited(kernel.into());
        StoppedKernel { kernel, deadline: deadline.into(), device: device.to_owned() }
    }

    /// Until when the kernel's cache may be used, as time since the machine was started; `None` if not known
    /// yet.
    pub fn until(&self) -> Option<Duration> {
        let mut until_ms = [0; 8];
        self.deadline.read_exact_at(&mut until_ms, 0).ok()?;
        Some(Duration::from_millis(u64::from_ne_bytes(until_ms))).filter(|until| !until.is_zero())
    }

    /// Invalidates what can be found. Returns how many inodes are left after a bounded time: their pages are
    /// being read. What a searcher finds later is invalidated then.
    ///
    /// Names and the root are invalidated before anything is searched for, so they depend on no program.
    pub fn empty(self: &Arc<StoppedKernel>) -> io::Result<usize> {
        self.kernel.epoch()?;
        let begun = Instant::now();
        let queue = Arc::new(Queue::default());
        // The root is node 1 to the kernel, whatever its inode number is.
        self.kernel.attributes(InodeId::ROOT)?;
        queue.add(InodeId::ROOT);
        for n in 0..STOPPED_INVALIDATORS_MAX {
            let (kernel, queue) = (self.clone(), queue.clone());
            Builder::new().name(format!("invalidate-{n}")).spawn(move || kernel.invalidate(&queue))?;
        }
        let outcome = self.search(begun, &queue);
        queue.close();
        outcome.map(|()| queue.left())
    }

    /// Searches `/proc`. Adds a thread whenever there is no progress for a while: the others may be blocked.
    fn search(self: &Arc<StoppedKernel>, begun: Instant, queue: &Arc<Queue>) -> io::Result<()> {
        let (kernel, found) = (self.clone(), queue.clone());
        let report = move |ino| {
            // This never blocks, and fails only when the mount has ended.
            let _ = kernel.kernel.attributes(ino);
            found.add(ino);
        };
        let search = Search::new(&self.device, report)?;
        let (mut searchers, mut wanted) = (0, 1);
        loop {
            if searchers < wanted && searchers < STOPPED_SEARCHERS_MAX {
                searchers += 1;
                queue.searcher_begins();
                let ended = queue.clone();
                search.add_searcher(move || ended.searcher_ends()).inspect_err(|_| queue.searcher_ends())?;
            }
            let all_begun = search.left() == 0 || searchers == STOPPED_SEARCHERS_MAX;
            match queue.wait(STOPPED_STANDSTILL) {
                Progress::Done => break,
                _ if all_begun && begun.elapsed() >= STOPPED_INVALIDATE_MAX => break,
                Progress::Standstill if !all_begun => wanted = searchers + 1,
                Progress::Standstill | Progress::Step => {}
            }
        }
        Ok(())
    }

    fn invalidate(&self, queue: &Queue) {
        while let Some(ino) = queue.take() {
            // It fails only when the mount has ended.
            let _ = self.kernel.inode(ino, 0, 0);
            queue.done();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    #[test]
    fn deadline_is_read_by_the_holder_of_the_file() {
        let deadline = Deadline::default();
        let null = || OwnedFd::from(File::open("/dev/null").expect("opens"));
        let kernel = StoppedKernel::new([null(), deadline.file().expect("a file").into()], "0:1");
        assert_eq!(kernel.until(), None);
        deadline.is(Duration::from_millis(700));
        assert_eq!(kernel.until(), Some(Duration::from_millis(700)));
        deadline.is(Duration::from_millis(750));
        assert_eq!(kernel.until(), Some(Duration::from_millis(700)), "that is next to nothing");
        deadline.is(Duration::from_millis(800));
        assert_eq!(kernel.until(), Some(Duration::from_millis(800)));
    }
}
