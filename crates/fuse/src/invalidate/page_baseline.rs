//! Baselines of cached pages that a mapping changes while other clients change the file
//! (`docs/KERNEL_CACHE.md`, hazards 15 and 16). A page needs one in two cases:
//! - The kernel has written it back but not invalidated it yet. A program may change it once more; then only
//!   bytes that differ from the written-back content are new.
//! - The kernel cannot write it back, and other clients do not wait for that (see
//!   [`unflushable_pages`](super::unflushable_pages)). Bytes that differ from the content read are new.
//!
//! A baseline is kept until the page is invalidated, or filled again by a READ.

use super::Invalidator;
use super::pages::Pages;
use crate::context::{Holds, Write};
use crate::limits::{BLOCKED_AFTER, KERNEL_WAIT_MAX, MAPPED_FILES_MAX};
use shoal_client::Before;
use shoal_runtime::time::Instant;
use shoal_types::InodeId;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

#[derive(Debug)]
struct Kept {
    /// The order in which baselines were stored.
    number: u64,
    content: Box<[u8]>,
}

/// The baselines. Each page that has one is about to be invalidated.
#[derive(Default, Debug)]
pub(super) struct PageBaselines {
    kept: HashMap<InodeId, BTreeMap<u64, Kept>>,
    last_number: u64,
    /// Files of which the kernel has written back pages; cleared when they are too many.
    files: HashSet<InodeId>,
    /// Writeback requests in flight.
    writes: Vec<(InodeId, Pages)>,
    /// Files whose dirty pages are being looked up, with the pages filled or written back since that began.
    looks: HashMap<InodeId, Vec<Pages>>,
}

impl PageBaselines {
    /// Stores baselines: what pages were written back as, or read from.
    pub fn keep(&mut self, Write { ino, offset, .. }: Write, data: &[u8]) {
        self.last_number += 1;
        let number = self.last_number;
        let pages = self.kept.entry(ino).or_default();
        pages.extend(Pages::of_content(offset, data).map(|(page, content)| {
            // Beyond the end of the file the page cache has zeros.
            let mut content = content.to_vec();
            content.resize(Pages::begin(1) as usize, 0);
            (page, Kept { number, content: content.into() })
        }));
    }

    /// A program has written to the pages by write(2): the file has these bytes as well.
    pub fn overwrite(&mut self, Write { ino, offset, .. }: Write, data: &[u8]) {
        let Some(kept) = self.kept.get_mut(&ino) else { return };
        for (page, kept) in kept.range_mut(Pages::of_bytes(offset, data.len() as u64).numbers()) {
            let begin = Pages::begin(*page);
            let (into, from) = (offset.saturating_sub(begin) as usize, begin.saturating_sub(offset) as usize);
            let written = kept.content.iter_mut().skip(into).zip(data.iter().skip(from));
            written.for_each(|(byte, new)| *byte = *new);
        }
    }

    /// The baselines of pages that begin in a range of bytes, each with its distance in bytes from the
    /// beginning of the range.
    pub fn kept(&self, Write { ino, offset, len }: Write) -> Vec<(usize, Box<[u8]>)> {
        let Some(pages) = self.kept.get(&ino) else { return Vec::new() };
        let wanted = Pages::of_bytes(offset, len).numbers();
        let kept = pages.range(wanted).map(|(page, kept)| (Pages::begin(*page), &kept.content));
        kept.filter_map(|(at, content)| Some((at.checked_sub(offset)? as usize, content.clone()))).collect()
    }

    /// Whether a file has baselines.
    pub fn are_kept(&self, ino: InodeId) -> bool {
        self.kept.contains_key(&ino)
    }

    /// Whether a page has a baseline.
    pub fn is_kept(&self, ino: InodeId, page: u64) -> bool {
        self.kept.get(&ino).is_some_and(|pages| pages.contains_key(&page))
    }

    /// The number of baselines.
    pub fn count(&self) -> u64 {
        self.kept.values().map(|pages| pages.len() as u64).sum()
    }

    /// Pages are about to be invalidated. Returns the number of the last baseline stored by then.
    pub fn begin_invalidation(&self) -> u64 {
        self.last_number
    }

    /// Pages were invalidated. Returns those with a baseline stored since `begun`: the kernel may have
    /// invalidated them before that.
    pub fn dropped(&mut self, ino: InodeId, pages: Pages, begun: u64) -> Vec<Pages> {
        self.forget(ino, pages, begun);
        let left = self.kept.get(&ino).into_iter().flat_map(|kept| kept.range(pages.numbers()));
        Pages::runs(left.map(|(page, _)| *page))
    }

    fn forget(&mut self, ino: InodeId, pages: Pages, up_to: u64) {
        let Some(kept) = self.kept.get_mut(&ino) else { return };
        kept.retain(|page, kept| !pages.numbers().contains(page) || kept.number > up_to);
        if kept.is_empty() {
            self.kept.remove(&ino);
        }
    }

    // --- READ and writeback requests in flight ---

    /// A READ fills pages, so the page cache did not have them.
    pub fn begin_read(&mut self, ino: InodeId, pages: Pages) {
        self.forget(ino, pages, u64::MAX);
        self.touched(ino, pages);
    }

    pub fn begin_write(&mut self, ino: InodeId, pages: Pages) {
        if self.files.len() >= MAPPED_FILES_MAX {
            self.files.clear();
        }
        self.files.insert(ino);
        self.writes.push((ino, pages));
        self.touched(ino, pages);
    }

    /// Whether programs change a file through mappings, as far as known.
    pub fn is_mapped(&self, ino: InodeId) -> bool {
        self.files.contains(&ino)
    }

    /// A writeback request was answered.
    pub fn end_write(&mut self, ino: InodeId, pages: Pages) {
        if let Some(at) = self.writes.iter().position(|write| *write == (ino, pages)) {
            self.writes.swap_remove(at);
        }
    }

    fn touched(&mut self, ino: InodeId, pages: Pages) {
        if let Some(touched) = self.looks.get_mut(&ino) {
            touched.push(pages);
        }
    }

    /// A thread begins to look up the dirty pages of a file. Returns false if another one already does.
    pub fn begin_page_lookup(&mut self, ino: InodeId) -> bool {
        let is_first = !self.looks.contains_key(&ino);
        self.looks.entry(ino).or_default();
        is_first
    }

    pub fn end_page_lookup(&mut self, ino: InodeId) {
        self.looks.remove(&ino);
    }

    /// Begins to record which pages of a file are filled or written back.
    pub fn look(&mut self, ino: InodeId) {
        let writes = self.writes.iter().filter(|(of, _)| *of == ino).map(|(_, pages)| *pages);
        self.looks.insert(ino, writes.collect());
    }

    /// Whether a page was neither filled nor written back since [`look`](Self::look).
    pub fn is_untouched(&self, ino: InodeId, page: u64) -> bool {
        let touched = self.looks.get(&ino).into_iter().flatten();
        touched.into_iter().all(|pages| !pages.numbers().contains(&page))
    }
}

/// A writeback request in flight: see [`Invalidator::is_written_back`].
pub(crate) struct WrittenBack {
    invalidator: Arc<Invalidator>,
    ino: InodeId,
    pages: Pages,
}

impl Drop for WrittenBack {
    fn drop(&mut self) {
        self.invalidator.state.lock().page_baselines.end_write(self.ino, self.pages);
    }
}

impl Invalidator {
    /// A writeback request is in flight until the returned value is dropped, which must not be before the
    /// request was answered.
    pub(crate) fn is_written_back(self: &Arc<Invalidator>, Write { ino, offset, len }: Write) -> WrittenBack {
        let pages = Pages::of_bytes(offset, len);
        self.state.lock().page_baselines.begin_write(ino, pages);
        WrittenBack { invalidator: self.clone(), ino, pages }
    }

    /// Whether another client may have changed the file since the kernel read the pages that it writes back.
    pub(crate) fn may_differ(&self, ino: InodeId) -> bool {
        self.was_invalidated(ino) || self.state.lock().page_baselines.are_kept(ino)
    }

    /// Pages are about to be written back. A page that was written back before and not invalidated since has
    /// its baseline from then.
    pub(crate) fn read_from(&self, pages: Write, before: &mut Before) {
        for (at, page) in self.state.lock().page_baselines.kept(pages) {
            before.replace(at, &page);
        }
    }

    /// A program has written to a file by write(2). The page cache has these bytes, but they are no change
    /// through a mapping.
    pub(crate) fn is_overwritten(&self, write: Write, data: &[u8]) {
        if self.any_invalidations.load(SeqCst) {
            self.state.lock().page_baselines.overwrite(write, data);
        }
    }

    /// Pages were written back, and the file may differ from them: they are to be invalidated.
    pub(crate) fn differ(&self, write: Write, data: &[u8]) {
        self.state.lock().page_baselines.keep(write, data);
        self.is_waiting(Holds::Pages(write));
    }

    /// Waits until pages of a file that were written back and differ from it are invalidated. After msync(2)
    /// the caller then sees what other clients have written around its bytes.
    pub(crate) fn wait_for_pages(&self, ino: InodeId) {
        let begun = Instant::now();
        let mut state = self.state.lock();
        while state.page_baselines.are_kept(ino) && !state.ended && begun.elapsed() < KERNEL_WAIT_MAX {
            self.news.wait_for(&mut state, BLOCKED_AFTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(8);

    fn range(offset: u64, len: u64) -> Write {
        Write { ino: FILE, offset, len }
    }

    fn kept(baselines: &PageBaselines, offset: u64, len: u64) -> Vec<(usize, usize, u8)> {
        baselines.kept(range(offset, len)).iter().map(|(at, page)| (*at, page.len(), page[0])).collect()
    }

    #[test]
    fn pages_are_kept_until_they_are_dropped() {
        let mut baselines = PageBaselines::default();
        assert_eq!(kept(&baselines, 0, 1 << 20), []);
        let data = [[b'a'; 4096].as_slice(), &[b'b'; 4096], &[b'c'; 100]].concat();
        baselines.keep(range(8192, data.len() as u64), &data);
        assert_eq!(kept(&baselines, 0, 8192), []);
        assert_eq!(kept(&baselines, 4096, 8192), [(4096, 4096, b'a')]);
        // Beyond the end of the file there are zeros.
        assert_eq!(
            kept(&baselines, 0, 1 << 20),
            [(8192, 4096, b'a'), (12288, 4096, b'b'), (16384, 4096, b'c')]
        );
        baselines.keep(range(8192, 4096), &[b'A'; 4096]);
        let begun = baselines.begin_invalidation();
        assert_eq!(baselines.dropped(FILE, Pages::of_bytes(12288, 4096), begun), []);
        assert_eq!(baselines.dropped(InodeId(9), Pages::ALL, begun), []);
        assert_eq!(kept(&baselines, 8192, 1 << 20), [(0, 4096, b'A'), (8192, 4096, b'c')]);
        assert!(baselines.are_kept(FILE) && !baselines.are_kept(InodeId(9)));
        assert_eq!(baselines.dropped(FILE, Pages::ALL, begun), []);
        assert!(!baselines.are_kept(FILE));
    }

    #[test]
    fn write_to_a_page_updates_its_baseline() {
        let mut baselines = PageBaselines::default();
        baselines.keep(range(0, 8192), &[b'.'; 8192]);
        baselines.overwrite(range(4094, 4), b"abcd");
        baselines.overwrite(range(0, 1), b"x");
        baselines.overwrite(range(8192, 1), b"y");
        let kept = baselines.kept(range(0, 8192));
        assert_eq!((&kept[0].1[..2], &kept[0].1[4093..]), (&b"x."[..], &b".ab"[..]));
        assert_eq!(&kept[1].1[..3], b"cd.");
    }

    #[test]
    fn page_with_a_baseline_stored_during_an_invalidation_is_invalidated_again() {
        let mut baselines = PageBaselines::default();
        baselines.keep(range(0, 4096), b"a");
        let begun = baselines.begin_invalidation();
        baselines.keep(range(4096, 8192), &[b'b'; 8192]);
        assert_eq!(baselines.dropped(FILE, Pages::ALL, begun), [Pages::of_bytes(4096, 8192)]);
        assert!(!baselines.is_kept(FILE, 0) && baselines.is_kept(FILE, 1));
        assert_eq!(baselines.count(), 2);
        baselines.begin_read(FILE, Pages::of_bytes(8192, 1));
        assert!(baselines.is_kept(FILE, 1) && !baselines.is_kept(FILE, 2), "it is filled anew");
    }

    #[test]
    fn what_is_filled_or_written_back_while_pages_are_looked_at_is_known() {
        let mut baselines = PageBaselines::default();
        baselines.begin_write(FILE, Pages::of_bytes(0, 1));
        assert!(baselines.begin_page_lookup(FILE) && !baselines.begin_page_lookup(FILE));
        baselines.look(FILE);
        baselines.end_write(FILE, Pages::of_bytes(0, 1));
        baselines.begin_read(FILE, Pages::of_bytes(4096, 1));
        baselines.begin_write(InodeId(9), Pages::ALL);
        let untouched = |baselines: &PageBaselines| [0, 1, 2].map(|page| baselines.is_untouched(FILE, page));
        assert_eq!(untouched(&baselines), [false, false, true]);
        baselines.look(FILE);
        assert_eq!(untouched(&baselines), [true; 3]);
        baselines.end_page_lookup(FILE);
        assert!(baselines.begin_page_lookup(FILE));
    }
}
