use crate::common::*;
use shoal_namespace::{Op, XattrSet};
use shoal_types::limits::{XATTR_TOTAL_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use shoal_types::{Errno, InodeId};

#[test]
fn attributes_are_set_replaced_and_removed() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.setxattr(file, "user.a", b"1", XattrSet::Any).unwrap();
    v.setxattr(file, "user.b", b"", XattrSet::Any).unwrap();
    v.setxattr(file, "user.a", b"longer", XattrSet::Any).unwrap();
    let record = v.record(file).unwrap();
    assert_eq!(record.inode.xattrs, 2);
    assert_eq!(record.xattrs, [(attribute("user.a"), "longer".into()), (attribute("user.b"), "".into())]);
    let time = v.now();
    v.run(Op::RemoveXattr { ino: file, name: attribute("user.a"), time }).unwrap();
    assert_eq!((v.stat(file).xattrs, v.stat(file).ctime), (1, time));
    let gone = Op::RemoveXattr { ino: file, name: attribute("user.a"), time };
    assert_eq!(v.run(gone), Err(Errno::ENODATA));
    v.assert_clean();
}

#[test]
fn flags_decide_about_what_exists() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    assert_eq!(v.setxattr(file, "user.a", b"1", XattrSet::Replace), Err(Errno::ENODATA));
    v.setxattr(file, "user.a", b"1", XattrSet::Create).unwrap();
    assert_eq!(v.setxattr(file, "user.a", b"2", XattrSet::Create), Err(Errno::EEXIST));
    v.setxattr(file, "user.a", b"3", XattrSet::Replace).unwrap();
    assert_eq!(v.setxattr(InodeId(4711), "user.a", b"1", XattrSet::Any), Err(Errno::ENOENT));
    v.assert_clean();
}

#[test]
fn values_and_their_sum_are_bounded() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let large = vec![1; XATTR_VALUE_BYTES_MAX];
    assert_eq!(
        v.setxattr(file, "user.a", &vec![1; XATTR_VALUE_BYTES_MAX + 1], XattrSet::Any),
        Err(Errno::E2BIG)
    );
    let fit = XATTR_TOTAL_BYTES_MAX / (XATTR_VALUE_BYTES_MAX + 6);
    for n in 0..fit {
        v.setxattr(file, &format!("user.{n}"), &large, XattrSet::Any).unwrap();
    }
    assert_eq!(v.setxattr(file, "user.x", &large, XattrSet::Any), Err(Errno::ENOSPC));
    v.setxattr(file, "user.0", &large, XattrSet::Any).expect("in the place of its like");
    v.assert_clean();
}

#[test]
fn attributes_die_with_their_file() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.setxattr(file, "user.a", b"1", XattrSet::Any).unwrap();
    let time = v.now();
    let set =
        Op::SetXattr { ino: file, name: attribute("user.b"), value: "2".into(), how: XattrSet::Any, time };
    let unlink = Op::Unlink { parent: ROOT, name: name("a"), time, keep: false };
    v.batch(&[set, unlink]);
    v.assert_clean();
    assert_eq!(v.record(file), None);
}
