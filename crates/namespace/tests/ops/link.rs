use crate::common::*;
use shoal_namespace::Op;
use shoal_types::limits::LINKS_MAX;
use shoal_types::{Errno, InodeId};

#[test]
fn a_second_name_leads_to_the_same_file_and_makes_it_its_own_cover() {
    let mut v = Volume::new();
    let (file, dir) = (v.file(ROOT, "a"), v.dir(ROOT, "d"));
    let cover = |v: &Volume, ino| v.stat(ino).cover(ino);
    assert_eq!((v.stat(file).multi_link, cover(&v, file), cover(&v, dir)), (false, ROOT, dir));
    v.link(file, dir, "b").unwrap();
    let inode = v.stat(file);
    assert_eq!((inode.nlink, inode.multi_link, inode.parent), (2, true, ROOT));
    assert_eq!(v.find(dir, "b"), v.find(ROOT, "a"));
    assert_eq!(inode.ctime, v.stat(dir).mtime);
    v.unlink(ROOT, "a", false).unwrap();
    assert_eq!((v.stat(file).nlink, v.stat(file).multi_link, cover(&v, file)), (1, true, file));
    v.assert_clean();
}

#[test]
fn what_cannot_be_linked_is_refused() {
    let mut v = Volume::new();
    let (file, dir) = (v.file(ROOT, "a"), v.dir(ROOT, "d"));
    assert_eq!(v.link(dir, ROOT, "e"), Err(Errno::EPERM));
    assert_eq!(v.link(file, ROOT, "d"), Err(Errno::EEXIST));
    assert_eq!(v.link(InodeId(4711), ROOT, "e"), Err(Errno::ENOENT));
    assert_eq!(v.link(file, file, "e"), Err(Errno::ENOTDIR));
    v.unlink(ROOT, "a", true).unwrap();
    assert_eq!(v.link(file, ROOT, "e"), Err(Errno::ENOENT), "a file that has lost its last name");
    v.assert_clean();
}

#[test]
fn a_file_has_a_bounded_number_of_names() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let time = v.now();
    let ops: Vec<Op> = (1..LINKS_MAX)
        .map(|n| Op::Link { ino: file, parent: ROOT, name: name(&format!("l{n}")), time })
        .collect();
    v.batch(&ops);
    assert_eq!(v.stat(file).nlink, LINKS_MAX);
    assert_eq!(v.link(file, ROOT, "more"), Err(Errno::EMLINK));
    v.assert_clean();
}
