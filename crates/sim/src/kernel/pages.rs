//! The page cache of one inode.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// A page.
#[derive(Clone)]
pub struct Page {
    /// Its content, with zeros beyond the end of the file.
    pub data: Vec<u8>,
    /// The content is valid.
    pub uptodate: bool,
    /// A READ fills it, or a WRITE has locked it: the number of that request.
    pub locked_by: Option<u64>,
    /// The size to which a truncation cuts it, which waits for its lock.
    cut: u64,
}

impl Page {
    /// A page that a request fills.
    pub fn locked(by: u64) -> Page {
        Page { data: vec![0; PAGE_BYTES as usize], uptodate: false, locked_by: Some(by), cut: u64::MAX }
    }

    /// Clears what is beyond a size of the file. Returns whether anything is left of the page.
    fn cut_at(&mut self, number: u64, size: u64) -> bool {
        let left = size.saturating_sub(number * PAGE_BYTES).min(PAGE_BYTES);
        self.data[left as usize..].fill(0);
        left > 0
    }
}

/// The pages by number.
#[derive(Default)]
pub struct Pages(pub BTreeMap<u64, Page>);

impl Pages {
    /// `truncate_pagecache`: removes pages beyond a size, and clears the rest of the last one. It waits for
    /// locked pages, so those are cut when they are unlocked.
    pub fn truncate(&mut self, size: u64) {
        self.0.retain(|number, page| match page.locked_by {
            Some(_) => {
                page.cut = page.cut.min(size);
                true
            }
            None => page.cut_at(*number, size),
        });
    }

    /// `invalidate_inode_pages2`, which waits for locked pages.
    pub fn remove_all(&mut self) {
        self.truncate(0);
    }

    /// Whether a truncation waits for the lock of a page.
    pub fn are_being_cut(&self) -> bool {
        self.0.values().any(|page| page.cut != u64::MAX)
    }

    /// Unlocks the pages that a request has locked.
    pub fn unlock(&mut self, by: u64) {
        self.0.retain(|number, page| {
            if page.locked_by != Some(by) {
                return true;
            }
            page.locked_by = None;
            let size = std::mem::replace(&mut page.cut, u64::MAX);
            page.cut_at(*number, size)
        });
    }

    /// Removes the pages of a range that are not locked.
    pub fn invalidate(&mut self, range: &RangeInclusive<u64>) {
        self.0.retain(|number, page| !range.contains(number) || page.locked_by.is_some());
    }

    /// The pages that a request has locked.
    pub fn locked_by(&mut self, number: u64) -> impl Iterator<Item = (&u64, &mut Page)> {
        self.0.iter_mut().filter(move |(_, page)| page.locked_by == Some(number))
    }
}
