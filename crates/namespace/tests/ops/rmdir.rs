use crate::common::*;
use shoal_namespace::Op;
use shoal_types::Errno;

#[test]
fn an_empty_directory_goes_and_its_parent_loses_a_link() {
    let mut v = Volume::new();
    let dir = v.dir(ROOT, "d");
    v.rmdir(ROOT, "d").unwrap();
    assert_eq!(v.record(dir), None);
    assert_eq!((v.stat(ROOT).nlink, v.stat(ROOT).entries), (2, 0));
    v.assert_clean();
}

#[test]
fn a_directory_with_names_and_what_is_none_are_refused() {
    let mut v = Volume::new();
    let dir = v.dir(ROOT, "d");
    v.file(dir, "x");
    v.file(ROOT, "f");
    assert_eq!(v.rmdir(ROOT, "d"), Err(Errno::ENOTEMPTY));
    assert_eq!(v.rmdir(ROOT, "f"), Err(Errno::ENOTDIR));
    assert_eq!(v.rmdir(ROOT, "x"), Err(Errno::ENOENT));
    v.unlink(dir, "x", false).unwrap();
    v.rmdir(ROOT, "d").unwrap();
    v.assert_clean();
}

#[test]
fn a_removed_directory_that_is_referred_to_has_no_links_and_can_be_forgotten() {
    let mut v = Volume::new();
    let dir = v.dir(ROOT, "d");
    let time = v.now();
    v.run(Op::Rmdir { parent: ROOT, name: name("d"), time, keep: true }).unwrap();
    assert_eq!(v.stat(dir).nlink, 0);
    v.assert_clean();
    v.run(Op::Forget { ino: dir }).unwrap();
    assert_eq!(v.record(dir), None);
    v.assert_clean();
}
