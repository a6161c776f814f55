use crate::common::*;
use bytes::Bytes;
use shoal_namespace::Op;
use shoal_types::limits::SYMLINK_BYTES_MAX;
use shoal_types::{Errno, FileKind, InodeId};

#[test]
fn a_new_file_has_one_link_and_its_directory_one_more_name() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let (inode, root) = (v.stat(file), v.stat(ROOT));
    assert_eq!((inode.nlink, inode.parent, inode.size, inode.allocated), (1, ROOT, 0, 0));
    assert_eq!((root.entries, root.nlink, root.mtime, root.ctime), (1, 2, inode.btime, inode.btime));
    assert_eq!(v.find(ROOT, "a").unwrap().ino, file);
    v.assert_clean();
}

#[test]
fn a_new_directory_counts_as_a_link_of_its_parent() {
    let mut v = Volume::new();
    let dir = v.dir(ROOT, "d");
    assert_eq!((v.stat(dir).nlink, v.stat(ROOT).nlink), (2, 3));
    v.assert_clean();
}

#[test]
fn a_taken_name_is_refused() {
    let mut v = Volume::new();
    v.file(ROOT, "a");
    assert_eq!(v.try_make(FileKind::Directory, ROOT, "a"), Err(Errno::EEXIST));
}

#[test]
fn the_parent_must_be_a_directory_that_is_still_there() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    assert_eq!(v.try_make(FileKind::Regular, file, "x"), Err(Errno::ENOTDIR));
    assert_eq!(v.try_make(FileKind::Regular, InodeId(999), "x"), Err(Errno::ENOENT));
    let dir = v.dir(ROOT, "d");
    let time = v.now();
    v.run(Op::Rmdir { parent: ROOT, name: name("d"), time, keep: true }).unwrap();
    assert_eq!(v.try_make(FileKind::Regular, dir, "x"), Err(Errno::ENOENT), "removed, but still referred to");
    v.assert_clean();
}

#[test]
fn devices_keep_their_number_and_other_kinds_have_none() {
    let mut v = Volume::new();
    for (index, kind) in [FileKind::CharDevice, FileKind::BlockDevice, FileKind::Fifo, FileKind::Socket]
        .into_iter()
        .enumerate()
    {
        let mut new = blank(kind, at(1));
        new.rdev = 0x103;
        let ino = v.fresh();
        v.run(Op::Create { parent: ROOT, name: name(&format!("n{index}")), ino, new }).unwrap();
        assert_eq!(v.stat(ino).rdev, if index < 2 { 0x103 } else { 0 });
        assert_eq!(v.stat(ino).kind, kind);
    }
    v.assert_clean();
}

#[test]
fn a_symlink_needs_a_target_of_sensible_length() {
    let mut v = Volume::new();
    let mut make = |target: Vec<u8>| {
        let mut new = blank(FileKind::Symlink, at(1));
        new.target = Bytes::from(target);
        let ino = v.fresh();
        v.run(Op::Create { parent: ROOT, name: name(&format!("{ino}")), ino, new }).map(|()| v.stat(ino).size)
    };
    assert_eq!(make(vec![]), Err(Errno::ENOENT));
    assert_eq!(make(b"a\0b".to_vec()), Err(Errno::EINVAL));
    assert_eq!(make(vec![b'x'; SYMLINK_BYTES_MAX]), Ok(SYMLINK_BYTES_MAX as u64));
    assert_eq!(make(vec![b'x'; SYMLINK_BYTES_MAX + 1]), Err(Errno::ENAMETOOLONG));
}

#[test]
fn attributes_it_is_born_with_are_there_at_once() {
    let mut v = Volume::new();
    let mut new = blank(FileKind::Regular, at(1));
    new.xattrs = vec![(attribute("user.a"), Bytes::from_static(b"1")), (attribute("user.b"), Bytes::new())];
    let ino = v.fresh();
    v.run(Op::Create { parent: ROOT, name: name("f"), ino, new: new.clone() }).unwrap();
    assert_eq!(v.record(ino).unwrap().xattrs, new.xattrs);
    assert_eq!(v.stat(ino).xattrs, 2);
    v.assert_clean();
    new.xattrs.reverse();
    let ino = v.fresh();
    let unsorted = Op::Create { parent: ROOT, name: name("g"), ino, new };
    assert_eq!(v.run(unsorted), Err(Errno::EINVAL));
}

#[test]
fn a_number_that_is_not_the_sessions_own_or_not_fresh_is_refused() {
    let mut v = Volume::new();
    let new = blank(FileKind::Regular, at(1));
    let mut make = |ino| v.run(Op::Create { parent: ROOT, name: name("f"), ino, new: new.clone() });
    assert_eq!(make(InodeId(3)), Err(Errno::EINVAL));
    assert_eq!(make(InodeId(u64::MAX)), Err(Errno::EINVAL));
    let file = v.file(ROOT, "a");
    let again = Op::Create { parent: ROOT, name: name("b"), ino: file, new: blank(FileKind::Fifo, at(1)) };
    assert_eq!(v.run(again), Err(Errno::EEXIST));
    v.assert_clean();
}
