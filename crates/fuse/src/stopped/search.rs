//! Finds the inodes of a mount that programs use, in `/proc`, without being blocked by any one process.
//!
//! A link of `/proc/PID/fd` is read under `exec_update_lock` of that process (`proc_fd_access_allowed`). In
//! execve(2) the process holds this lock while its close-on-exec files are flushed, and a FLUSH of a stopped
//! mount is not answered. So the processes are shared out over searchers ([`Search::add_searcher`]): one that
//! waits keeps the process at which it waits, and another one continues with the rest.

use crate::nodeid_alias::inode_id;
use crate::statx;
use parking_lot::Mutex;
use shoal_channel::NodeId;
use shoal_types::InodeId;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;

/// The processes that have not been searched yet, and the callback for what is found.
pub(super) struct Search {
    /// The mount, as `MAJOR:MINOR`.
    device: String,
    left: Mutex<Vec<PathBuf>>,
    found: Box<dyn Fn(InodeId) + Send + Sync>,
}

impl Search {
    /// A search that has not begun. `found` is called for each use of an inode, by several threads at once.
    pub(super) fn new(
        device: &str,
        found: impl Fn(InodeId) + Send + Sync + 'static,
    ) -> io::Result<Arc<Search>> {
        let is_process =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes()[0].is_ascii_digit());
        let entries = fs::read_dir("/proc")?.filter_map(Result::ok).map(|entry| entry.path());
        let left = Mutex::new(entries.filter(is_process).collect());
        Ok(Arc::new(Search { device: device.to_owned(), left, found: Box::new(found) }))
    }

    /// Processes that no searcher has begun with.
    pub(super) fn left(&self) -> usize {
        self.left.lock().len()
    }

    /// Starts one more thread that takes processes until there are none. It calls `done` when it ends, which
    /// may be never.
    pub(super) fn add_searcher(self: &Arc<Search>, done: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let search = self.clone();
        let run = move || {
            while let Some(process) = search.next() {
                search.search_process(&process);
            }
            done();
        };
        Builder::new().name("search-proc".into()).spawn(run).map(drop)
    }

    fn next(&self) -> Option<PathBuf> {
        self.left.lock().pop()
    }

    /// Reports what a process has open or mapped, and its directories.
    fn search_process(&self, process: &Path) {
        let links = ["cwd", "root", "exe"].map(|name| process.join(name));
        let files = fs::read_dir(process.join("fd")).into_iter().flatten();
        let files = files.filter_map(Result::ok).map(|entry| entry.path());
        for link in links.into_iter().chain(files) {
            if let Some(ino) = inode_on(&self.device, &link) {
                (self.found)(ino);
            }
        }
        let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
        for ino in maps.lines().filter_map(|line| mapped_on(&self.device, line)) {
            (self.found)(ino);
        }
    }
}

fn inode_on(device: &str, link: &Path) -> Option<InodeId> {
    let seen = statx::known(&CString::new(link.as_os_str().as_bytes()).ok()?).ok()?;
    (statx::device(&seen) == device).then(|| inode_id(NodeId(seen.stx_ino)))
}

/// The inode of a line of `/proc/PID/maps`, if it is on the device.
fn mapped_on(device: &str, line: &str) -> Option<InodeId> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let (on, ino) = (words.next()?, words.next()?);
    let (major, minor) = on.split_once(':')?;
    let number = |hex| u32::from_str_radix(hex, 16).ok();
    let ino = inode_id(NodeId(ino.parse().ok()?));
    (format!("{}:{}", number(major)?, number(minor)?) == device).then_some(ino)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(30);

    #[test]
    fn open_and_mapped_inodes_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = File::create(dir.path().join("file")).expect("made");
        let path = CString::new(dir.path().join("file").as_os_str().as_bytes()).expect("a path");
        let seen = statx::known(&path).expect("there");
        let (device, ino) = (statx::device(&seen), InodeId(seen.stx_ino));
        let (report, found) = channel();
        let search =
            Search::new(&device, move |ino| report.send(ino).unwrap_or_default()).expect("/proc can be read");
        search.add_searcher(|| ()).expect("a thread");
        while found.recv_timeout(DEADLINE).expect("the file is open") != ino {}
        drop(file);
        let line = format!(
            "7f0-7f1 r--p 00000000 {:02x}:{:02x} {}       /a file",
            seen.stx_dev_major, seen.stx_dev_minor, ino.0
        );
        assert_eq!(mapped_on(&device, &line), Some(ino));
        assert_eq!(mapped_on("0:0", &line), None);
        assert_eq!(mapped_on(&device, "7f0-7f1 rw-p 00000000 00:00 0"), None);
    }

    #[test]
    fn searcher_that_waits_leaves_the_other_processes_to_the_next_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = File::create(dir.path().join("file")).expect("made");
        let path = CString::new(dir.path().join("file").as_os_str().as_bytes()).expect("a path");
        let device = statx::device(&statx::known(&path).expect("there"));
        // The first report is never taken: its searcher waits as it would for a process in execve(2).
        let first = std::sync::atomic::AtomicBool::new(true);
        let (release, held) = channel::<()>();
        let held = Mutex::new(held);
        let found = move |_| {
            if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
                let _ = held.lock().recv();
            }
        };
        let search = Search::new(&device, found).expect("/proc can be read");
        // This process has the file open. It is examined first.
        let own = PathBuf::from(format!("/proc/{}", std::process::id()));
        let (told, ended) = channel();
        {
            let mut left = search.left.lock();
            left.retain(|process| *process != own);
            left.push(own);
        }
        for _ in 0..2 {
            let told = told.clone();
            search.add_searcher(move || told.send(()).unwrap_or_default()).expect("a thread");
        }
        ended.recv_timeout(DEADLINE).expect("one searcher ends");
        assert_eq!(search.left(), 0);
        drop(release);
        ended.recv_timeout(DEADLINE).expect("the other one ends when it is released");
        drop(file);
    }
}
