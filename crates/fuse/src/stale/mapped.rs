//! Pages that the kernel has and that are not what the file holds: a program has changed them through a mapping, others have changed the file as well,
//! and the kernel has written the pages back but not dropped them yet. Programs may change them once more: then that is what is new in them.

use super::pages::{Pages, Write};
use shoal_types::InodeId;
use std::collections::{BTreeMap, HashMap};

/// See the module. Each of them is about to be dropped.
#[derive(Default, Debug)]
pub(super) struct Mapped(HashMap<InodeId, BTreeMap<u64, Box<[u8]>>>);

impl Mapped {
    /// Pages were written back, and something else was there.
    pub fn keep(&mut self, Write { ino, offset, .. }: Write, data: &[u8]) {
        let pages = self.0.entry(ino).or_default();
        pages.extend(Pages::of_content(offset, data).map(|(page, content)| (page, content.into())));
    }

    /// Those that a range of bytes touches, each with its number of bytes behind the beginning of the range.
    pub fn kept(&self, Write { ino, offset, len }: Write) -> Vec<(usize, Box<[u8]>)> {
        let Some(pages) = self.0.get(&ino) else { return Vec::new() };
        let wanted = Pages::of_bytes(offset, len).numbers();
        let kept = pages.range(wanted).map(|(page, content)| (Pages::begin(*page), content));
        kept.filter_map(|(at, content)| Some((at.checked_sub(offset)? as usize, content.clone()))).collect()
    }

    /// Whether there are any of a file.
    pub fn are_kept(&self, ino: InodeId) -> bool {
        self.0.contains_key(&ino)
    }

    /// The kernel has dropped pages.
    pub fn dropped(&mut self, ino: InodeId, pages: Pages) {
        let Some(kept) = self.0.get_mut(&ino) else { return };
        kept.retain(|page, _| !pages.numbers().contains(page));
        if kept.is_empty() {
            self.0.remove(&ino);
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

    fn kept(mapped: &Mapped, offset: u64, len: u64) -> Vec<(usize, usize, u8)> {
        mapped.kept(range(offset, len)).iter().map(|(at, page)| (*at, page.len(), page[0])).collect()
    }

    #[test]
    fn pages_are_kept_until_they_are_dropped() {
        let mut mapped = Mapped::default();
        assert_eq!(kept(&mapped, 0, 1 << 20), []);
        let data = [[b'a'; 4096].as_slice(), &[b'b'; 4096], &[b'c'; 100]].concat();
        mapped.keep(range(8192, data.len() as u64), &data);
        assert_eq!(kept(&mapped, 0, 8192), []);
        assert_eq!(kept(&mapped, 4096, 8192), [(4096, 4096, b'a')]);
        assert_eq!(kept(&mapped, 0, 1 << 20), [(8192, 4096, b'a'), (12288, 4096, b'b'), (16384, 100, b'c')]);
        mapped.keep(range(8192, 4096), &[b'A'; 4096]);
        mapped.dropped(FILE, Pages::of_bytes(12288, 4096));
        mapped.dropped(InodeId(9), Pages::ALL);
        assert_eq!(kept(&mapped, 8192, 1 << 20), [(0, 4096, b'A'), (8192, 100, b'c')]);
        assert!(mapped.are_kept(FILE) && !mapped.are_kept(InodeId(9)));
        mapped.dropped(FILE, Pages::ALL);
        assert!(!mapped.are_kept(FILE));
    }
}
