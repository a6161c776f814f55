use crate::common::*;
use shoal_namespace::{Op, RenameFlags};
use shoal_types::Errno;

const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, exchange: false };
const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };

#[test]
fn a_file_moves_with_its_number_and_both_directories_notice() {
    let mut v = Volume::new();
    let (file, dir) = (v.file(ROOT, "a"), v.dir(ROOT, "d"));
    v.rename((ROOT, "a"), (dir, "b")).unwrap();
    assert_eq!((v.find(ROOT, "a"), v.find(dir, "b").unwrap().ino), (None, file));
    let (root, inode) = (v.stat(ROOT), v.stat(file));
    assert_eq!((root.entries, v.stat(dir).entries, inode.parent), (1, 1, dir));
    assert_eq!((root.mtime, v.stat(dir).mtime), (inode.ctime, inode.ctime));
    v.assert_clean();
}

#[test]
fn a_directory_takes_its_parents_link_along() {
    let mut v = Volume::new();
    let (a, b) = (v.dir(ROOT, "a"), v.dir(ROOT, "b"));
    v.file(b, "inside");
    v.rename((ROOT, "b"), (a, "c")).unwrap();
    assert_eq!((v.stat(ROOT).nlink, v.stat(a).nlink, v.stat(b).parent), (3, 3, a));
    v.rename((a, "c"), (a, "e")).unwrap();
    assert_eq!((v.stat(a).nlink, v.stat(a).entries), (3, 1));
    v.assert_clean();
}

#[test]
fn what_is_replaced_loses_its_name() {
    let mut v = Volume::new();
    let (a, b) = (v.file(ROOT, "a"), v.file(ROOT, "b"));
    v.rename((ROOT, "a"), (ROOT, "b")).unwrap();
    assert_eq!((v.find(ROOT, "b").unwrap().ino, v.record(b)), (a, None));
    assert_eq!(v.stat(ROOT).entries, 1);
    let c = v.file(ROOT, "c");
    let time = v.now();
    let (from_name, to_name) = (name("b"), name("c"));
    v.run(Op::Rename {
        from: ROOT,
        from_name,
        to: ROOT,
        to_name,
        flags: Default::default(),
        time,
        keep: true,
    })
    .unwrap();
    assert_eq!((v.stat(c).nlink, v.stat(c).ctime), (0, time), "it is still referred to");
    v.assert_clean();
}

#[test]
fn an_empty_directory_can_be_replaced_by_a_directory() {
    let mut v = Volume::new();
    let (a, b) = (v.dir(ROOT, "a"), v.dir(ROOT, "b"));
    let inside = v.dir(a, "x");
    assert_eq!(v.rename((ROOT, "b"), (ROOT, "a")), Err(Errno::ENOTEMPTY));
    v.rename((ROOT, "a"), (ROOT, "b")).unwrap();
    assert_eq!((v.record(b), v.stat(ROOT).nlink, v.stat(ROOT).entries), (None, 3, 1));
    v.rename((a, "x"), (ROOT, "x")).unwrap();
    assert_eq!((v.stat(inside).parent, v.stat(a).nlink, v.stat(ROOT).nlink), (ROOT, 2, 4));
    v.assert_clean();
}

#[test]
fn files_and_directories_do_not_replace_each_other() {
    let mut v = Volume::new();
    v.file(ROOT, "f");
    v.dir(ROOT, "d");
    assert_eq!(v.rename((ROOT, "f"), (ROOT, "d")), Err(Errno::EISDIR));
    assert_eq!(v.rename((ROOT, "d"), (ROOT, "f")), Err(Errno::ENOTDIR));
    assert_eq!(v.rename((ROOT, "x"), (ROOT, "y")), Err(Errno::ENOENT));
}

#[test]
fn a_directory_is_never_moved_below_itself() {
    let mut v = Volume::new();
    let a = v.dir(ROOT, "a");
    let b = v.dir(a, "b");
    let c = v.dir(b, "c");
    assert_eq!(v.rename((ROOT, "a"), (a, "x")), Err(Errno::EINVAL));
    assert_eq!(v.rename((ROOT, "a"), (c, "x")), Err(Errno::EINVAL));
    assert_eq!(v.rename_with((ROOT, "a"), (b, "c"), EXCHANGE), Err(Errno::EINVAL));
    assert_eq!(v.rename_with((b, "c"), (ROOT, "a"), EXCHANGE), Err(Errno::EINVAL));
    v.file(c, "f");
    assert_eq!(
        v.rename_with((c, "f"), (ROOT, "a"), EXCHANGE),
        Err(Errno::EINVAL),
        "a file with its ancestor"
    );
    assert_eq!(v.rename((b, "c"), (ROOT, "a")), Err(Errno::ENOTEMPTY));
    assert_eq!(v.rename((c, "f"), (ROOT, "a")), Err(Errno::ENOTEMPTY), "a file over its ancestor");
    let d = v.dir(ROOT, "d");
    assert_eq!(v.rename((c, "f"), (ROOT, "d")), Err(Errno::EISDIR), "a file over another directory");
    assert_eq!(v.stat(d).entries, 0);
    v.assert_clean();
}

#[test]
fn two_names_of_one_file_stay_as_they_are() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.link(file, ROOT, "b").unwrap();
    let before = v.stat(file);
    v.rename((ROOT, "a"), (ROOT, "b")).unwrap();
    v.rename((ROOT, "a"), (ROOT, "a")).unwrap();
    assert_eq!((v.stat(file), v.names(ROOT).len()), (before, 2));
    assert_eq!(v.rename_with((ROOT, "a"), (ROOT, "b"), NO_REPLACE), Err(Errno::EEXIST));
    v.assert_clean();
}

#[test]
fn flags_decide_about_a_taken_name() {
    let mut v = Volume::new();
    let (a, b) = (v.file(ROOT, "a"), v.file(ROOT, "b"));
    let both = RenameFlags { no_replace: true, exchange: true };
    assert_eq!(v.rename_with((ROOT, "a"), (ROOT, "b"), both), Err(Errno::EINVAL));
    assert_eq!(v.rename_with((ROOT, "a"), (ROOT, "b"), NO_REPLACE), Err(Errno::EEXIST));
    assert_eq!(v.rename_with((ROOT, "a"), (ROOT, "c"), EXCHANGE), Err(Errno::ENOENT));
    v.rename_with((ROOT, "a"), (ROOT, "c"), NO_REPLACE).unwrap();
    v.rename_with((ROOT, "b"), (ROOT, "c"), EXCHANGE).unwrap();
    assert_eq!((v.find(ROOT, "b").unwrap().ino, v.find(ROOT, "c").unwrap().ino), (a, b));
    v.assert_clean();
}

#[test]
fn an_exchange_of_a_file_and_a_directory_keeps_all_counts() {
    let mut v = Volume::new();
    let (d, e) = (v.dir(ROOT, "d"), v.dir(ROOT, "e"));
    let (file, sub) = (v.file(d, "x"), v.dir(e, "y"));
    v.rename_with((d, "x"), (e, "y"), EXCHANGE).unwrap();
    assert_eq!((v.stat(d).nlink, v.stat(e).nlink), (3, 2));
    assert_eq!((v.stat(file).parent, v.stat(sub).parent), (e, d));
    assert_eq!(v.stat(file).ctime, v.stat(sub).ctime);
    v.rename_with((ROOT, "e"), (d, "x"), EXCHANGE).unwrap();
    assert_eq!((v.stat(ROOT).nlink, v.stat(d).nlink), (4, 3));
    v.assert_clean();
}

#[test]
fn a_file_that_has_had_several_names_keeps_the_cover_it_was_born_under() {
    let mut v = Volume::new();
    let (file, dir) = (v.file(ROOT, "a"), v.dir(ROOT, "d"));
    v.link(file, ROOT, "b").unwrap();
    v.rename((ROOT, "a"), (dir, "c")).unwrap();
    assert_eq!(v.stat(file).parent, ROOT);
    v.assert_clean();
}
