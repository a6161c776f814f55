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
}

impl Page {
    /// A page that a request fills.
    pub fn locked(by: u64) -> Page {
        Page { data: vec![0; PAGE_BYTES as usize], uptodate: false, locked_by: Some(by) }
    }
}

/// The pages by number.
#[derive(Default)]
pub struct Pages(pub BTreeMap<u64, Page>);

impl Pages {
    /// `truncate_pagecache`: removes pages beyond a size, and clears the rest of the last one.
    pub fn truncate(&mut self, size: u64) {
        self.0.retain(|number, _| number * PAGE_BYTES < size);
        if let Some(last) = self.0.get_mut(&(size / PAGE_BYTES)) {
            last.data[(size % PAGE_BYTES) as usize..].fill(0);
        }
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
