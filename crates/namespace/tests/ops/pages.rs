//! Answers that come in pages are bounded, whatever belongs to the files.

use crate::common::*;
use shoal_namespace::XattrSet;
use shoal_namespace::codec::encode;
use shoal_namespace::limits::{EXTENTS_BYTES_MAX, LIST_CHUNK_NAMES, RECORD_CONTENT_BYTES_MAX};
use shoal_namespace::query::{self, DirEntry, Prefetch};
use shoal_types::limits::{XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use shoal_types::{Cookie, Extent, InodeId};
use std::collections::BTreeSet;

#[test]
fn a_content_map_with_much_inline_comes_in_pages() {
    const PIECES: usize = 150;
    const PIECE_BYTES: usize = 32 << 10;
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    // As much again is a hole, so that they are not joined.
    let place = |piece: usize| (2 * piece * PIECE_BYTES) as u64;
    for piece in 0..PIECES {
        v.write(file, place(piece), &pattern(piece as u64, PIECE_BYTES)).unwrap();
    }
    let (mut found, mut pages, mut start) = (Vec::new(), 0, 0);
    loop {
        let page = query::extents(&v.store, file, start, u64::MAX, PIECES).unwrap();
        assert!(encode(1, &page).len() as u64 <= EXTENTS_BYTES_MAX);
        pages += 1;
        let (last, extent) = page.extents.last().expect("none of them is empty");
        start = last + extent.len();
        found.extend(page.extents);
        if !page.more {
            break;
        }
    }
    assert!(pages > 1);
    let expected =
        (0..PIECES).map(|piece| (place(piece), Extent::Inline(pattern(piece as u64, PIECE_BYTES).into())));
    assert!(found.into_iter().eq(expected));
    let least = query::extents(&v.store, file, 0, u64::MAX, 0).unwrap();
    assert!(least.extents.len() == 1 && least.more, "the reader makes progress");
}

/// All entries of a directory, in pages of this length. None is longer by more than one file may be.
fn listed(v: &Volume, dir: InodeId, prefetch: Prefetch, bytes_max: usize) -> Vec<DirEntry> {
    const FILE_BYTES_MAX: usize = XATTR_TOTAL_BYTES_MAX + RECORD_CONTENT_BYTES_MAX as usize + (64 << 10);
    let (mut entries, mut after) = (Vec::<DirEntry>::new(), Cookie::START);
    loop {
        let page = query::list(&v.store, dir, after, prefetch, bytes_max).unwrap();
        let bytes = encode(1, &page).len();
        assert!(bytes <= bytes_max + FILE_BYTES_MAX, "{bytes} bytes for {bytes_max}, {prefetch:?}");
        entries.extend(page.entries);
        if page.end {
            return entries;
        }
        after = entries.last().expect("a page that is not the last holds names").name.cookie();
    }
}

#[test]
fn a_listing_of_files_with_long_attributes_comes_in_pages() {
    let mut v = Volume::new();
    let dir = v.dir(ROOT, "d");
    let value = pattern(1, XATTR_VALUE_BYTES_MAX);
    for number in 0..40 {
        let file = v.file(dir, &format!("f{number}"));
        for which in ["user.a", "user.b", "user.c"] {
            v.setxattr(file, which, &value, XattrSet::Any).unwrap();
        }
    }
    for prefetch in [Prefetch::Attributes, Prefetch::Contents] {
        let entries = listed(&v, dir, prefetch, 1 << 20);
        assert_eq!(entries.len(), 40);
        for entry in entries {
            let record = entry.record.expect("asked for");
            assert_eq!(record.xattrs, v.record(entry.dentry.ino).unwrap().xattrs);
        }
    }
}

/// Each of its names would take the content along.
#[test]
fn a_listing_of_many_names_of_one_file_comes_in_pages() {
    let mut v = Volume::new();
    let dir = v.dir(ROOT, "d");
    let file = v.file(dir, "f");
    for piece in 0..6 {
        v.write(file, piece << 17, &pattern(piece, 40_000)).unwrap();
    }
    for number in 1..LIST_CHUNK_NAMES {
        v.link(file, dir, &format!("f{number}")).unwrap();
    }
    assert!(v.record(file).unwrap().extents.is_some(), "one name takes it along");
    let entries = listed(&v, dir, Prefetch::Contents, 1 << 20);
    let names: BTreeSet<_> = entries.iter().map(|entry| &entry.name).collect();
    assert_eq!((entries.len(), names.len()), (LIST_CHUNK_NAMES, LIST_CHUNK_NAMES));
}
