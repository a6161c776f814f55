//! What the kernel goes on answering while the process that serves is stopped.
//!
//! A client that is not heard of for long stops answering, and has its kernel drop everything, before the servers let others change what it caches. It cannot if
//! its process does not run: somebody has stopped it, or it hangs in a debugger or on a disk. So another process looks at the clock. Until when what is cached
//! may be used it is told through a file that both have open ([`Deadline`]). If that is over it has the kernel drop what can be found ([`StoppedKernel::empty`]):
//! all names, and attributes, listings and content of what programs have open or mapped or are in, as `/proc` shows. Whoever uses any of it asks from then on, and waits until the
//! process goes on.
//!
//! **Assumes** that the process that watches runs. If the whole machine stands still the two wake up at the same time, and so do the programs.
//!
//! **Not found** are files that are open only in messages between processes (`SCM_RIGHTS`), in `io_uring`, or by threads with a table of files of their own.

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

/// Until when what the kernel caches may be used, in milliseconds since the machine was started; 0 is not known.
#[derive(Default)]
pub(crate) struct Deadline {
    until_ms: AtomicU64,
    /// Where others read it.
    file: OnceLock<File>,
}

impl Deadline {
    /// It is this by now.
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

    /// The file, for another process.
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

/// What another process needs to watch over this one.
pub struct Watch {
    pub(crate) kernel: File,
    pub(crate) deadline: File,
}

impl Watch {
    /// Its files, which the other process has to inherit, each under the number that it has here.
    pub fn files(&self) -> [RawFd; 2] {
        [self.kernel.as_raw_fd(), self.deadline.as_raw_fd()]
    }
}

/// The kernel's cache of a mount whose process may be stopped, for the process that watches over that.
pub struct StoppedKernel {
    kernel: Notifications,
    deadline: File,
    /// The mount, as `MAJOR:MINOR`.
    device: String,
}

/// What is to be dropped of open files.
#[derive(Default)]
struct Left {
    queue: BTreeSet<InodeId>,
    under_way: usize,
}

impl StoppedKernel {
    /// By what was inherited, in the order of [`Watch::files`], and the number of the [mount](crate::Mounted::device).
    pub fn new([kernel, deadline]: [OwnedFd; 2], device: &str) -> StoppedKernel {
        let kernel = Notifications::inherited(kernel.into());
        StoppedKernel { kernel, deadline: deadline.into(), device: device.to_owned() }
    }

    /// Until when what the kernel caches may be used, in the time since the machine was started. `None`: nobody has said yet.
    pub fn until(&self) -> Option<Duration> {
        let mut until_ms = [0; 8];
        self.deadline.read_exact_at(&mut until_ms, 0).ok()?;
        Some(Duration::from_millis(u64::from_ne_bytes(until_ms))).filter(|until| !until.is_zero())
    }

    /// Has the kernel drop what can be found. Answers how much of it is left after a while: what is being read.
    pub fn empty(self: &Arc<StoppedKernel>) -> io::Result<usize> {
        self.kernel.epoch()?;
        let mut found = open_inodes(&self.device);
        // The root is node 1 to the kernel, whatever number its inode has.
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
            // If it fails there is no kernel to tell any more.
            let _ = self.kernel.inode(ino, 0, 0);
            left.lock().under_way -= 1;
            news.notify_all();
        }
    }
}

/// What programs have open or mapped on a device, or are in.
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

/// Of a line of `/proc/PID/maps`.
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
