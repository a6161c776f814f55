//! Pages that the kernel cannot write back, and so cannot invalidate (`docs/KERNEL_CACHE.md`, hazard 16).
//!
//! `fuse_set_nowrite` blocks writeback of a file while a request that changes its size is in flight. Such a
//! request may wait for another client, which may wait for these very pages to be invalidated: a deadlock.
//!
//! So where pages of a file are not invalidated while a local change of it waits, a thread asks the kernel
//! which of them are dirty (cachestat(2)). Their baselines are read and stored: no other client changes the
//! file before this invalidation is over. Then the dirty pages are not waited for any more, and the other
//! pages are invalidated by themselves. When the kernel can write the dirty ones back, only bytes that differ
//! from the baseline are written: see [`write_back`](crate::dispatch::Dispatcher::write_back).
//!
//! A baseline must be the content that the page was filled with. So it is discarded if the kernel has filled
//! the page or written it back since the dirty pages were looked up. An existing baseline of a page is kept.
//!
//! The file stays open as long as a local change of it waits. To open it the kernel sends GETATTR,
//! which causes another recall, so opening it each time would make no progress.
//!
//! **Assumes.** Linux 6.5 or newer. On an older kernel the pages are waited for.

use super::Invalidator;
use super::pages::Pages;
use super::size::Locker;
use super::state::State;
use crate::context::Write;
use crate::limits::{BLOCKED_AFTER, MAPPED_PAGES_MAX, REQUEST_BYTES_MAX, UNFLUSHABLE_PAUSE};
use crate::mount_point::{DirtyPages, OpenFile};
use shoal_client::{Client, Wait};
use shoal_runtime::channel::{Receiver, Sender, unbounded};
use shoal_runtime::thread::Builder;
use shoal_types::InodeId;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The dirty pages of a range, in order. Fails if they are too many.
fn changed(file: &dyn OpenFile, pages: Pages) -> io::Result<Vec<Pages>> {
    let (mut changed, mut left) = (Vec::new(), vec![pages]);
    while let Some(pages) = left.pop() {
        let (offset, len) = pages.bytes();
        let DirtyPages { changed: dirty, being_written } = file.dirty_pages(offset, len)?;
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

/// A thread that has a file open and looks up its dirty pages. It has no other file open. Its end is not
/// waited for, because close(2) waits until all pages are written back.
struct DirtyPageScanner {
    ask: Sender<Pages>,
    answers: Receiver<io::Result<Vec<Pages>>>,
}

impl DirtyPageScanner {
    fn begin(locker: Locker, ino: InodeId, generation: u64) -> io::Result<DirtyPageScanner> {
        let ((ask, asked), (answer, answers)) = (unbounded(), unbounded());
        let run = move || {
            let host = &locker.invalidator().host;
            host.keep_nothing_else(false);
            match host.open(ino, generation, libc::O_RDONLY) {
                Ok(file) => {
                    asked.iter().map(|pages| changed(&*file, pages)).try_for_each(|found| answer.send(found))
                }
                Err(error) => answer.send(Err(error)),
            }
        };
        Builder::new().name("fuse-pages".into()).spawn(run)?;
        Ok(DirtyPageScanner { ask, answers })
    }

    /// The dirty pages of a range, in order.
    fn changed(&self, pages: Pages) -> io::Result<Vec<Pages>> {
        // A thread that has ended has sent its error.
        let _ = self.ask.send(pages);
        self.answers.recv().map_err(io::Error::other)?
    }
}

impl Invalidator {
    /// Starts a thread for each file whose invalidation is blocked. To be called repeatedly while
    /// invalidations are waited for.
    pub(super) fn watch_unflushable(&self, state: &mut State) {
        for ino in state.unflushable() {
            let Some(me) = self.me.upgrade() else { return };
            // One thread per file is enough.
            if !state.page_baselines.begin_page_lookup(ino) {
                continue;
            }
            let run = move || {
                if let Err(error) = me.stop_waiting_for_changed_pages(ino) {
                    tracing::debug!(%error, %ino, "pages that were changed through mappings are waited for");
                    shoal_runtime::thread::sleep(UNFLUSHABLE_PAUSE);
                }
                me.state.lock().page_baselines.end_page_lookup(ino);
            };
            if let Err(error) = Builder::new().name("fuse-stuck".into()).spawn(run) {
                tracing::warn!(%error, "cannot start a thread for pages that the kernel cannot write back");
                state.page_baselines.end_page_lookup(ino);
            }
        }
    }

    fn stop_waiting_for_changed_pages(self: &Arc<Invalidator>, ino: InodeId) -> io::Result<()> {
        let client = self.client.upgrade().ok_or(io::ErrorKind::NotFound)?;
        let locker = Locker::new(self).ok_or(io::ErrorKind::QuotaExceeded)?;
        let inode = client.getattr(Wait::Allowed, ino).map_err(io::Error::other)?;
        let scanner = DirtyPageScanner::begin(locker, ino, inode.generation)?;
        let mut state = self.state.lock();
        while state.is_being_changed(ino) && !state.ended {
            let blocked = state.blocked_invalidations(ino);
            drop(state);
            for (drop, pages) in blocked {
                self.stop_waiting_for_dirty_pages(&client, &scanner, ino, drop, pages)?;
            }
            state = self.state.lock();
            self.news.wait_for(&mut state, BLOCKED_AFTER);
        }
        Ok(())
    }

    /// Stops waiting for the dirty pages of an invalidation.
    fn stop_waiting_for_dirty_pages(
        &self,
        client: &Client,
        scanner: &DirtyPageScanner,
        ino: InodeId,
        drop: u64,
        pages: Pages,
    ) -> io::Result<()> {
        self.state.lock().page_baselines.look(ino);
        let changed = scanner.changed(pages)?;
        let numbers = || changed.iter().flat_map(|run| run.numbers());
        let unknown = {
            let state = self.state.lock();
            let is_unknown = |page: &u64| {
                state.page_baselines.is_untouched(ino, *page) && !state.page_baselines.is_kept(ino, *page)
            };
            let unknown: Vec<u64> = numbers().filter(is_unknown).collect();
            if state.page_baselines.count() + unknown.len() as u64 > MAPPED_PAGES_MAX {
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
            if !state.page_baselines.is_untouched(ino, page) {
                continue;
            }
            if !state.page_baselines.is_kept(ino, page) {
                let Some(content) = read.get(&page) else { continue };
                let (offset, len) = (Pages::begin(page), content.len() as u64);
                state.page_baselines.keep(Write { ino, offset, len }, content);
            }
            spared.push(page);
        }
        if !spared.is_empty() {
            state.stop_waiting_for_pages(drop, &Pages::runs(spared));
            self.wake(&mut state);
            self.news.notify_all();
        }
        Ok(())
    }
}

/// Reads the content of a file in these pages, page by page.
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
        // Beyond the end of the file there are zeros.
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
    use std::os::fd::OwnedFd;
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
        // The whole machine may be synced meanwhile, which cleans the pages.
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
