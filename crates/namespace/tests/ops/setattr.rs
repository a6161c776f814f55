use crate::common::*;
use shoal_namespace::SetAttr;
use shoal_types::limits::FILE_BYTES_MAX;
use shoal_types::{Errno, Extent, FileKind, InodeId};

fn set() -> SetAttr {
    SetAttr::default()
}

#[test]
fn only_what_is_named_changes() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let before = v.stat(file);
    v.setattr(file, SetAttr { perm: Some(0o17_640), uid: Some(7), ctime: Some(at(50)), ..set() }).unwrap();
    let mut expected = before.clone();
    (expected.perm, expected.uid, expected.ctime) = (0o7640, 7, at(50));
    assert_eq!(v.stat(file), expected);
    v.setattr(file, SetAttr { gid: Some(8), atime: Some(at(1)), mtime: Some(at(2)), ..set() }).unwrap();
    (expected.gid, expected.atime, expected.mtime) = (8, at(1), at(2));
    assert_eq!(v.stat(file), expected);
    assert_eq!(v.setattr(InodeId(4711), set()), Err(Errno::ENOENT));
}

#[test]
fn truncation_cuts_extents_and_their_blocks() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let block = v.write_block(file, 0, 8192);
    let inline = pattern(1, 100);
    v.write(file, 10_000, &inline).unwrap();
    v.truncate(file, 10_040).unwrap();
    assert_eq!((v.stat(file).size, v.stat(file).allocated), (10_040, 8192 + 40));
    v.truncate(file, 5000).unwrap();
    assert_eq!((v.stat(file).allocated, v.refs(block)), (5000, Some(1)));
    v.truncate(file, 9000).unwrap();
    assert_eq!(v.read(file), [&v.blocks[&block][..5000], &[0; 4000]].concat(), "what was cut off is zero");
    v.truncate(file, 0).unwrap();
    assert_eq!((v.stat(file).allocated, v.refs(block), v.extents(file)), (0, Some(0), vec![]));
    v.assert_clean();
}

#[test]
fn truncation_frees_what_is_reserved_behind_the_end() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.write(file, 0, b"1234").unwrap();
    v.reserve(file, 0, 4096).unwrap();
    assert_eq!((v.stat(file).size, v.stat(file).allocated), (4, 4096));
    v.truncate(file, 100).unwrap();
    assert_eq!(v.stat(file).allocated, 4096, "growing keeps it");
    v.truncate(file, 100).unwrap();
    assert_eq!(v.stat(file).allocated, 100);
    v.assert_clean();
}

#[test]
fn only_files_have_a_length_to_set() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let link = v.try_make(FileKind::Symlink, ROOT, "l").unwrap();
    assert_eq!(v.truncate(ROOT, 0), Err(Errno::EISDIR));
    assert_eq!(v.truncate(link, 0), Err(Errno::EINVAL));
    assert_eq!(v.truncate(file, FILE_BYTES_MAX + 1), Err(Errno::EFBIG));
    v.truncate(file, FILE_BYTES_MAX).unwrap();
    assert_eq!((v.stat(file).size, v.stat(file).allocated), (FILE_BYTES_MAX, 0));
    v.assert_clean();
}

#[test]
fn privileges_go_when_asked_for() {
    let mut v = Volume::new();
    let (file, dir) = (v.file(ROOT, "a"), v.dir(ROOT, "d"));
    v.setxattr(file, "security.capability", b"caps", Default::default()).unwrap();
    v.setxattr(file, "user.x", b"1", Default::default()).unwrap();
    let strip = SetAttr { clear_setid: true, ..set() };
    for (perm, left) in [(0o6755, 0o755), (0o6745, 0o2745), (0o1777, 0o1777)] {
        v.setattr(file, SetAttr { perm: Some(perm), ..set() }).unwrap();
        v.setattr(file, strip).unwrap();
        assert_eq!(v.stat(file).perm, left, "{perm:o}");
    }
    assert_eq!(v.stat(file).xattrs, 1);
    v.setattr(file, SetAttr { perm: Some(0o6755), ..strip }).unwrap();
    assert_eq!(v.stat(file).perm, 0o6755, "bits that are given win");
    v.setattr(dir, SetAttr { perm: Some(0o6755), ..set() }).unwrap();
    v.setattr(dir, strip).unwrap();
    assert_eq!(v.stat(dir).perm, 0o6755, "on a directory they mean something else");
    v.assert_clean();
}

#[test]
fn a_cut_inline_extent_keeps_its_beginning() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.write(file, 100, b"0123456789").unwrap();
    v.truncate(file, 103).unwrap();
    assert_eq!(v.extents(file), [(100, Extent::Inline("012".into()))]);
    v.assert_clean();
}
