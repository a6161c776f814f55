use crate::common::*;
use shoal_namespace::query;
use shoal_types::Errno;

#[test]
fn the_last_name_takes_the_file_with_it() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.write(file, 0, b"hello").unwrap();
    let block = v.write_block(file, 1 << 20, 4096);
    v.unlink(ROOT, "a", false).unwrap();
    assert_eq!((v.record(file), v.find(ROOT, "a")), (None, None));
    assert_eq!((v.refs(block), v.garbage()), (Some(0), vec![block]));
    let counters = query::counters(&v.store).unwrap();
    assert_eq!((counters.inodes, counters.used_bytes), (1, 0));
    v.assert_clean();
}

#[test]
fn a_file_that_is_referred_to_lives_on_without_a_name() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.write(file, 0, b"hello").unwrap();
    v.unlink(ROOT, "a", true).unwrap();
    assert_eq!((v.stat(file).nlink, v.read(file)), (0, b"hello".to_vec()));
    assert_eq!(query::holds(&v.store, v.session, 9).unwrap(), [file]);
    v.write(file, 5, b" world").unwrap();
    assert_eq!(v.read(file), b"hello world");
    v.assert_clean();
}

#[test]
fn other_names_keep_a_file_alive() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.link(file, ROOT, "b").unwrap();
    v.unlink(ROOT, "a", false).unwrap();
    let inode = v.stat(file);
    assert_eq!((inode.nlink, inode.ctime), (1, v.stat(ROOT).mtime));
    assert_eq!(v.stat(ROOT).entries, 1);
    v.assert_clean();
}

#[test]
fn directories_and_missing_names_are_refused() {
    let mut v = Volume::new();
    v.dir(ROOT, "d");
    assert_eq!(v.unlink(ROOT, "d", false), Err(Errno::EISDIR));
    assert_eq!(v.unlink(ROOT, "x", false), Err(Errno::ENOENT));
}

#[test]
fn a_file_of_many_extents_is_taken_apart_in_steps() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.setxattr(file, "user.x", b"1", Default::default()).unwrap();
    let blocks: Vec<_> = (0..300).map(|n| v.write_block(file, n * 8192, 4096)).collect();
    v.assert_clean();
    v.unlink(ROOT, "a", false).unwrap();
    assert_eq!(v.record(file), None);
    assert_eq!(query::counters(&v.store).unwrap().used_bytes, 0);
    assert_eq!(query::reap_queue(&v.store, 9).unwrap(), [file]);
    assert_eq!(v.garbage(), []);
    v.assert_clean();
    let new = shoal_namespace::Op::Create {
        parent: ROOT,
        name: name("b"),
        ino: file,
        new: blank(shoal_types::FileKind::Regular, at(1)),
    };
    assert_eq!(v.run(new), Err(Errno::EEXIST), "its number is not free while any of it is there");
    v.clean_up();
    assert!(blocks.iter().all(|id| v.refs(*id).is_none()));
    v.assert_clean();
}
