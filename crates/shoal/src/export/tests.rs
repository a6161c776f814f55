use super::*;
use crate::fixture::{Fixture, at, name};
use bytes::Bytes;
use shoal_namespace::{Op, SetAttr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::SystemTime;

#[derive(Default)]
struct Heard {
    problems: Vec<String>,
}

impl Listener for Heard {
    fn progress(&mut self, _: &Summary) {}
    fn problem(&mut self, what: &str) {
        self.problems.push(what.to_owned());
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn a_volume_comes_out_as_it_is() {
    if !is_root() {
        return eprintln!("not tested: owners and devices take root");
    }
    let mut volume = Fixture::new();
    let dir = volume.directory(InodeId::ROOT, "dir");
    let empty = volume.directory(dir, "empty");
    let small = volume.file(dir, "small");
    volume.write(small, 0, &Bytes::from_static(b"hello"));
    let large = volume.file(dir, "large");
    volume.write_block(large, 0, &Bytes::from(vec![1; 200_000]));
    volume.write_block(large, 5_000_000, &Bytes::from(vec![2; 100]));
    volume.create(dir, "link", FileKind::Symlink, "small", 0);
    volume.create(dir, "pipe", FileKind::Fifo, "", 0);
    volume.create(dir, "socket", FileKind::Socket, "", 0);
    volume.create(dir, "null", FileKind::CharDevice, "", (1 << 8) | 3);
    volume.op(Op::Link { ino: small, parent: empty, name: name("again"), time: at(7) });
    volume.xattr(small, "user.comment", b"blue");
    volume.xattr(small, "security.capability", b"\x01\0\0\x02\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let set = SetAttr {
        perm: Some(0o6755),
        mtime: Some(at(-5)),
        atime: Some(at(3)),
        ctime: Some(at(9)),
        ..SetAttr::default()
    };
    volume.op(Op::SetAttr { ino: small, set });
    volume.op(Op::SetAttr { ino: dir, set: SetAttr { perm: Some(0o1777), ..set } });

    let target = volume.dir.path().join("out");
    let mut heard = Heard::default();
    let summary = export(&volume.store, &*volume.brick, &target, &mut heard).unwrap();
    assert_eq!(heard.problems, Vec::<String>::new());
    assert_eq!((summary.files, summary.bytes, summary.problems), (10, 200_105, 0));

    let out = target.join("dir");
    let meta = out.join("small").metadata().unwrap();
    assert_eq!(std::fs::read(out.join("small")).unwrap(), b"hello");
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.nlink()), (0o6755, 1000, 2000, 2));
    assert_eq!(meta.modified().unwrap(), SystemTime::from(at(-5)));
    assert_eq!(meta.accessed().unwrap(), SystemTime::from(at(3)));
    assert_eq!(out.join("empty/again").metadata().unwrap().ino(), meta.ino());
    for (attribute, len) in [("user.comment", 4), ("security.capability", 20)] {
        let path = std::ffi::CString::new(out.join("small").to_str().unwrap()).unwrap();
        let attribute = std::ffi::CString::new(attribute).unwrap();
        // SAFETY: both strings end with NUL; no buffer is given.
        let got = unsafe { libc::getxattr(path.as_ptr(), attribute.as_ptr(), std::ptr::null_mut(), 0) };
        assert_eq!(got, len, "{attribute:?}");
    }
    let mut content = std::fs::read(out.join("large")).unwrap();
    assert_eq!(content.len(), 5_000_100);
    assert_eq!(content.split_off(5_000_000), [2; 100]);
    assert_eq!(content.split_off(200_000), vec![0; 4_800_000]);
    assert_eq!(content, vec![1; 200_000]);
    assert!(out.join("large").metadata().unwrap().blocks() * 512 < 1_000_000, "holes stay holes");
    assert_eq!(std::fs::read_link(out.join("link")).unwrap(), Path::new("small"));
    assert!(out.join("pipe").symlink_metadata().unwrap().file_type().is_fifo());
    assert!(out.join("socket").symlink_metadata().unwrap().file_type().is_socket());
    let null = out.join("null").symlink_metadata().unwrap();
    assert!(null.file_type().is_char_device());
    assert_eq!(null.rdev(), nix::sys::stat::makedev(1, 3));
    let dir = out.metadata().unwrap();
    assert_eq!((dir.mode() & 0o7777, dir.modified().unwrap()), (0o1777, SystemTime::from(at(-5))));
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_comes_out() {
    let mut volume = Fixture::new();
    let file = volume.file(InodeId::ROOT, "file");
    let lost = volume.write_block(file, 0, &Bytes::from(vec![1; 1000]));
    volume.write_block(file, 1000, &Bytes::from(vec![2; 1000]));
    volume.brick.delete(&[lost]).unwrap();
    let target = volume.dir.path().join("out");
    let mut heard = Heard::default();
    let summary = export(&volume.store, &*volume.brick, &target, &mut heard).unwrap();
    assert!(summary.problems >= 1);
    assert!(
        heard.problems[0].starts_with("/file: bytes 0 to 999 cannot be read: block"),
        "{:?}",
        heard.problems
    );
    let content = std::fs::read(target.join("file")).unwrap();
    assert_eq!(content, [vec![0; 1000], vec![2; 1000]].concat());
}

#[test]
fn trees_deeper_than_a_path_may_be_long_come_out() {
    let mut volume = Fixture::new();
    let mut dir = InodeId::ROOT;
    for _ in 0..60 {
        dir = volume.directory(dir, &"d".repeat(200));
    }
    let file = volume.file(dir, "file");
    volume.write(file, 0, &Bytes::from_static(b"deep"));
    let target = volume.dir.path().join("out");
    let summary = export(&volume.store, &*volume.brick, &target, &mut Heard::default()).unwrap();
    assert_eq!((summary.files, summary.bytes), (62, 4));
}

#[test]
fn a_target_with_something_in_it_is_refused() {
    let volume = Fixture::new();
    let outcome = export(&volume.store, &*volume.brick, volume.dir.path(), &mut Heard::default());
    assert!(outcome.unwrap_err().to_string().contains("not empty"));
}
