//! Pages that the kernel is to drop and cannot.
//!
//! It writes a page back that a program has changed through a mapping before it drops it. But while a request is under way that changes the length of the file, and while it
//! waits for that one's turn or for that of an fsync(2), it writes nothing back (`fuse_set_nowrite`). Such a request may wait with us for another client, and that one for these very
//! pages to be dropped: all three would wait for ever.
//!
//! So where pages of a file are not dropped while a local change of it waits, a thread asks the kernel which of them were changed (cachestat(2)). What these were read from is
//! looked at and kept; it is there still, as long as the drop is waited for. Then they are not waited for any more, and all others are dropped by themselves. When
//! the kernel can write them back, only what is new in them is written, as with all pages that others have changed meanwhile: see
//! [`write_back`](crate::serve::Server::write_back).
//!
//! What is kept must be what the page was read from. So it does not count if the kernel has filled the page or written it back since before it was asked about it; and what is kept
//! of it already stays as it is.
//!
//! The file is open as long as a local change of it waits: to open it the kernel asks for its attributes, which has us recalled once more, and so nobody would ever get on if it
//! were opened each time.
//!
//! **Assumes.** Linux 6.5 or newer. An older kernel is waited for.

use super::Dropper;
use super::pages::{Pages, Write};
use super::size::Locker;
use super::state::State;
use crate::encode::generation;
use crate::limits::{BLOCKED_AFTER, MAPPED_PAGES_MAX, REQUEST_BYTES_MAX, STUCK_PAUSE};
use crate::thread::keep_no_files_but;
use shoal_client::{Client, Wait};
use shoal_types::InodeId;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Builder;

/// On all machines that Rust knows, but for those that are no longer made.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    /// 0 means up to the end.
    len: u64,
}

/// `struct cachestat`: numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Found {
    cached: u64,
    changed: u64,
    being_written: u64,
    evicted: u64,
    recently_evicted: u64,
}

fn cachestat(file: &OwnedFd, pages: Pages) -> io::Result<Found> {
    let (offset, len) = pages.bytes();
    let (range, mut found) = (Range { offset: offset as u64, len: len as u64 }, Found::default());
    // SAFETY: the call reads and writes whole structures where it is pointed to.
    match unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0) } {
        0 => Ok(found),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Which of these pages the kernel has to write back, in order. Fails if they are too many.
fn changed(file: &OwnedFd, pages: Pages) -> io::Result<Vec<Pages>> {
    let (mut changed, mut left) = (Vec::new(), vec![pages]);
    while let Some(pages) = left.pop() {
        let Found { changed: dirty, being_written, .. } = cachestat(file, pages)?;
        match pages.halves() {
            _ if dirty == 0 && being_written == 0 => {}
            _ if dirty.max(being_written) > MAPPED_PAGES_MAX => {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            Some([first, second]) if dirty.max(being_written) < pages.count() => left.extend([second, first]),
            _ => changed.push(pages),
        }
    }
    Ok(changed)
}

/// A thread that has a file open and asks about its pages. It has nothing else open, and nobody waits for it to close the file: that takes until all of its pages are
/// written back.
struct Asking {
    ask: Sender<Pages>,
    answers: Receiver<io::Result<Vec<Pages>>>,
}

impl Asking {
    fn begin(locker: Locker, ino: InodeId, generation: u64) -> io::Result<Asking> {
        let ((ask, asked), (answer, answers)) = (mpsc::channel(), mpsc::channel());
        let run = move || {
            keep_no_files_but(None);
            let place = locker.stale().place.get();
            let opened = place.ok_or_else(|| io::ErrorKind::NotFound.into());
            let opened = opened.and_then(|place| place.open(ino, generation, libc::O_RDONLY));
            match opened {
                Ok(file) => {
                    asked.iter().map(|pages| changed(&file, pages)).try_for_each(|found| answer.send(found))
                }
                Err(error) => answer.send(Err(error)),
            }
        };
        Builder::new().name("fuse-pages".into()).spawn(run)?;
        Ok(Asking { ask, answers })
    }

    /// Which of these pages the kernel has to write back, in order.
    fn changed(&self, pages: Pages) -> io::Result<Vec<Pages>> {
        // If it has ended it has said why.
        let _ = self.ask.send(pages);
        self.answers.recv().map_err(io::Error::other)?
    }
}

impl Dropper {
    /// Sees to it that somebody looks after drops that are stuck. To be called again and again while they are waited for.
    pub(super) fn look_after_stuck(&self, state: &mut State) {
        for ino in state.stuck() {
            let Some(me) = self.me.upgrade() else { return };
            // One is enough for a file.
            if !state.mapped.begin_looks(ino) {
                continue;
            }
            let run = move || {
                if let Err(error) = me.spare_changed(ino) {
                    tracing::debug!(%error, %ino, "pages that were changed through mappings are waited for");
                    std::thread::sleep(STUCK_PAUSE);
                }
                me.state.lock().mapped.end_looks(ino);
            };
            if let Err(error) = Builder::new().name("fuse-stuck".into()).spawn(run) {
                tracing::warn!(%error, "no thread to look after what the kernel cannot drop");
                state.mapped.end_looks(ino);
            }
        }
    }

    fn spare_changed(self: &Arc<Dropper>, ino: InodeId) -> io::Result<()> {
        let client = self.client.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let locker = Locker::new(self).ok_or(io::ErrorKind::QuotaExceeded)?;
        let inode = client.getattr(Wait::Allowed, ino).map_err(io::Error::other)?;
        let asking = Asking::begin(locker, ino, generation(&inode).0)?;
        let mut state = self.state.lock();
        while state.is_being_changed(ino) && !state.ended {
            let stuck = state.stuck_drops(ino);
            drop(state);
            for (drop, pages) in stuck {
                self.spare(&client, &asking, ino, drop, pages)?;
            }
            state = self.state.lock();
            self.news.wait_for(&mut state, BLOCKED_AFTER);
        }
        Ok(())
    }

    /// Excuses a drop of those pages that were changed.
    fn spare(
        &self,
        client: &Client,
        asking: &Asking,
        ino: InodeId,
        drop: u64,
        pages: Pages,
    ) -> io::Result<()> {
        self.state.lock().mapped.look(ino);
        let changed = asking.changed(pages)?;
        let numbers = || changed.iter().flat_map(|run| run.numbers());
        let unknown = {
            let state = self.state.lock();
            let is_unknown =
                |page: &u64| state.mapped.is_untouched(ino, *page) && !state.mapped.is_kept(ino, *page);
            let unknown: Vec<u64> = numbers().filter(is_unknown).collect();
            if state.mapped.count() + unknown.len() as u64 > MAPPED_PAGES_MAX {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            Pages::runs(unknown)
        };
        let mut read = BTreeMap::new();
        for run in unknown {
            read_pages(client, ino, run, &mut read)?;
        }
        let mut state = self.state.lock();
        if !state.is_awaited(drop) {
            return Ok(());
        }
        let mut spared = Vec::new();
        for page in numbers() {
            if !state.mapped.is_untouched(ino, page) {
                continue;
            }
            if !state.mapped.is_kept(ino, page) {
                let Some(content) = read.get(&page) else { continue };
                let (offset, len) = (Pages::begin(page), content.len() as u64);
                state.mapped.keep(Write { ino, offset, len }, content);
            }
            spared.push(page);
        }
        if !spared.is_empty() {
            state.spare(drop, &Pages::runs(spared));
            self.wake(&mut state);
            self.news.notify_all();
        }
        Ok(())
    }
}

/// What a file holds in these pages, one by one.
fn read_pages(
    client: &Client,
    ino: InodeId,
    pages: Pages,
    read: &mut BTreeMap<u64, Vec<u8>>,
) -> io::Result<()> {
    let (offset, len) = pages.bytes();
    let (mut at, end) = (offset as u64, offset as u64 + len as u64);
    while at < end {
        let len = (end - at).min(u64::from(REQUEST_BYTES_MAX));
        let content = client.read(Wait::Allowed, ino, at, len as u32).map_err(io::Error::other)?.concat();
        // Behind its end there are zeros.
        read.extend(Pages::of_bytes(at, len).numbers().map(|page| (page, vec![0])));
        read.extend(Pages::of_content(at, &content).map(|(page, content)| (page, content.to_vec())));
        at += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    #[test]
    fn pages_that_were_changed_are_found() {
        let path = std::env::current_exe()
            .expect("this one")
            .with_extension(format!("changed-{}", std::process::id()));
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).expect("made");
        std::fs::remove_file(&path).expect("removed");
        let written: Vec<u64> = [0, 1, 2, 9, 20, 21].to_vec();
        file.set_len(64 * 4096).expect("grown");
        file.sync_all().expect("synced");
        let mut all = vec![0; 64 * 4096];
        file.read_exact_at(&mut all, 0).expect("read");
        let open = OwnedFd::from(file.try_clone().expect("open"));
        // Somebody may have the whole machine synced meanwhile.
        let is_found = || {
            for page in &written {
                file.write_all_at(b"new", page * 4096).expect("written");
            }
            let found = changed(&open, Pages::ALL).expect("told");
            found.iter().flat_map(|run| run.numbers()).eq(written.iter().copied())
        };
        assert!((0..10).any(|_| is_found()));
        assert_eq!(changed(&open, Pages::of_bytes(3 * 4096, 4096)).expect("told"), []);
    }
}
