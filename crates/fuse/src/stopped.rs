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

use crate::limits::{DEADLINE_STEP, STOPPED_DROP_MAX, STOPPED_DROPPERS_MAX};
use crate::nodes::inode_id;
use crate::stale::notify::Notifications;
use crate::statx;
use fuser::INodeNo;
use nix::sys::memfd::{MFdFlags, memfd_create};
use parking_lot::{Condvar, Mutex};
use shoal_types::InodeId;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::Duration;

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
        tracing::warn!(%error, "the process that guards this mount is not told how long what it caches may be used");
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

/// The open files whose content is to be invalidated.
#[derive(Default)]
struct Left {
    queue: BTreeSet<InodeId>,
    under_way: usize,
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

    /// Invalidates what can be found. Waits a bounded time, and returns how many files are left: their pages
    /// are being read.
    pub fn empty(self: &Arc<StoppedKernel>) -> io::Result<usize> {
        self.kernel.epoch()?;
        let mut found = open_inodes(&self.device);
        // The root is node 1 to the kernel, whatever its inode number is.
        found.insert(InodeId::ROOT);
        for ino in &found {
            self.kernel.attributes(*ino)?;
        }
        let threads = found.len().min(STOPPED_DROPPERS_MAX);
        let left = Arc::new((Mutex::new(Left { queue: found, under_way: 0 }), Condvar::new()));
        for n in 0..threads {
            let (kernel, left) = (self.clone(), left.clone());
            Builder::new().name(format!("drop-{n}")).spawn(move || kernel.drop_content(&left))?;
        }
        let (left, news) = &*left;
        let mut left = left.lock();
        news.wait_while_for(&mut left, |left| left.under_way + left.queue.len() > 0, STOPPED_DROP_MAX);
        Ok(left.under_way + left.queue.len())
    }

    fn drop_content(&self, (left, news): &(Mutex<Left>, Condvar)) {
        loop {
            let Some(ino) = ({
                let mut left = left.lock();
                let next = left.queue.pop_first();
                left.under_way += usize::from(next.is_some());
                next
            }) else {
                return;
            };
            // It fails only when the mount has ended.
            let _ = self.kernel.inode(ino, 0, 0);
            left.lock().under_way -= 1;
            news.notify_all();
        }
    }
}

/// The inodes on a device that programs have open or mapped, or as their directory.
fn open_inodes(device: &str) -> BTreeSet<InodeId> {
    let mut found = BTreeSet::new();
    let Ok(processes) = fs::read_dir("/proc") else { return found };
    let names = processes.filter_map(Result::ok).map(|entry| entry.path());
    for process in
        names.filter(|path| path.file_name().is_some_and(|name| name.as_bytes()[0].is_ascii_digit()))
    {
        let links = ["cwd", "root", "exe"].map(|name| process.join(name));
        let files = fs::read_dir(process.join("fd")).into_iter().flatten();
        let files = files.filter_map(Result::ok).map(|entry| entry.path());
        found.extend(links.into_iter().chain(files).filter_map(|link| inode_on(device, &link)));
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        found.extend(maps.lines().filter_map(|line| mapped_on(device, line)));
    }
    found
}

fn inode_on(device: &str, link: &Path) -> Option<InodeId> {
    let seen = statx::known(&CString::new(link.as_os_str().as_bytes()).ok()?).ok()?;
    (statx::device(&seen) == device).then(|| inode_id(INodeNo(seen.stx_ino)))
}

/// The inode of a line of `/proc/PID/maps`, if it is on the device.
fn mapped_on(device: &str, line: &str) -> Option<InodeId> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let (on, ino) = (words.next()?, words.next()?);
    let (major, minor) = on.split_once(':')?;
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    let ino = inode_id(INodeNo(ino.parse().ok()?));
    (format!("{}:{}", number(major)?, number(minor)?) == device).then_some(ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    #[test]
    fn the_deadline_is_read_by_who_has_the_file() {
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

    #[test]
    fn what_is_open_or_mapped_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = File::create(dir.path().join("file")).expect("made");
        let seen =
            statx::known(&CString::new(dir.path().join("file").as_os_str().as_bytes()).expect("a path"));
        let seen = seen.expect("there");
        let (device, ino) = (statx::device(&seen), InodeId(seen.stx_ino));
        assert!(open_inodes(&device).contains(&ino));
        drop(file);
        let line = format!(
            "7f0-7f1 r--p 00000000 {:02x}:{:02x} {}       /a file",
            seen.stx_dev_major, seen.stx_dev_minor, ino.0
        );
        assert_eq!(mapped_on(&device, &line), Some(ino));
        assert_eq!(mapped_on("0:0", &line), None);
        assert_eq!(mapped_on(&device, "7f0-7f1 rw-p 00000000 00:00 0"), None);
    }
}
