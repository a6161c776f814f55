//! Extended attributes and POSIX access control lists.

use crate::harness::{Volume, run, sh, sys};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

#[track_caller]
fn errno<T: std::fmt::Debug>(result: sys::Sys<T>) -> i32 {
    result.expect_err("this must fail").0
}

#[test]
fn extended_attributes_are_kept_on_files_of_every_kind() {
    let mut volume = Volume::start("xattrs");
    let at = |name: &str| volume.path().join(name);
    fs::write(at("file"), b"").expect("write");
    fs::create_dir(at("dir")).expect("mkdir");
    symlink("file", at("symlink")).expect("symlink");
    let set = |path: &Path, name: &str, value: &[u8]| sys::setxattr(path, name.as_ref(), value, 0);
    let large = vec![0xa5; 60_000];
    set(&at("file"), "user.empty", b"").expect("setxattr");
    set(&at("file"), "user.binary", b"\0\xff\0").expect("setxattr");
    if !crate::harness::plain() {
        set(&at("file"), "user.large", &large).expect("setxattr of 60,000 bytes");
    }
    set(&at("dir"), "user.dir", b"dir").expect("setxattr");
    set(&at("symlink"), "trusted.symlink", b"link").expect("setxattr");
    set(&at("file"), "security.test", b"security").expect("setxattr");
    // The kernel reserves user attributes for files and directories.
    assert_eq!(errno(set(&at("symlink"), "user.symlink", b"")), libc::EPERM);
    assert_eq!(errno(set(&at("file"), "unknown.prefix", b"")), libc::EOPNOTSUPP);

    assert_eq!(errno(sys::setxattr(&at("dir"), "user.dir".as_ref(), b"", libc::XATTR_CREATE)), libc::EEXIST);
    assert_eq!(
        errno(sys::setxattr(&at("dir"), "user.none".as_ref(), b"", libc::XATTR_REPLACE)),
        libc::ENODATA
    );
    sys::setxattr(&at("dir"), "user.dir".as_ref(), b"new", libc::XATTR_REPLACE).expect("replace");
    assert_eq!(errno(sys::getxattr(&at("dir"), "user.none".as_ref())), libc::ENODATA);
    assert_eq!(errno(sys::removexattr(&at("dir"), "user.none".as_ref())), libc::ENODATA);

    volume.remount();
    let at = |name: &str| volume.path().join(name);
    let get = |path: &Path, name: &str| sys::getxattr(path, name.as_ref()).expect("getxattr");
    assert_eq!(get(&at("file"), "user.empty"), b"");
    assert_eq!(get(&at("file"), "user.binary"), b"\0\xff\0");
    if !crate::harness::plain() {
        assert_eq!(get(&at("file"), "user.large"), large);
    }
    assert_eq!(get(&at("dir"), "user.dir"), b"new");
    assert_eq!(get(&at("symlink"), "trusted.symlink"), b"link");
    assert!(sys::listxattr(&at("file")).expect("listxattr").contains(&"user.empty".into()));
    sys::removexattr(&at("dir"), "user.dir".as_ref()).expect("removexattr");
    assert!(sys::listxattr(&at("dir")).expect("listxattr").is_empty());
    let listed = sys::as_user(2, 2, || sys::listxattr(&at("symlink"))).expect("listxattr");
    assert!(listed.is_empty(), "trusted attributes are for root only, {listed:?}");
    volume.stop();
    volume.fsck();
}

#[test]
fn access_control_lists_are_kept_and_obeyed() {
    let mut volume = Volume::start("acls");
    let script = "echo secret > file && chmod 600 file && setfacl -m u:bin:r,g:daemon:rw file
        mkdir dir && setfacl -d -m u:bin:rwx,o::- dir && touch dir/inherits && mkdir dir/sub";
    sh(volume.path(), script).ok();
    let check = |volume: &Volume| {
        let get = |path: &str| run("getfacl").arg("-cp").arg(volume.path().join(path)).ok();
        assert_eq!(
            get("file").trim(),
            "user::rw-\nuser:bin:r--\ngroup::---\ngroup:daemon:rw-\nmask::rw-\nother::---"
        );
        // chmod's group bits set the mask now.
        assert_eq!(fs::metadata(volume.path().join("file")).expect("stat").mode() & 0o777, 0o660);
        assert!(get("dir").contains("default:user:bin:rwx"));
        assert!(get("dir/sub").contains("default:user:bin:rwx"), "a directory hands its defaults down");
        assert!(get("dir/inherits").contains("user:bin:rwx\t#effective:rw-"), "{}", get("dir/inherits"));
        assert!(get("dir/inherits").contains("other::---"));
        sys::as_user(2, 2, || {
            assert_eq!(
                fs::read(volume.path().join("file")).expect("the ACL lets the user bin read"),
                b"secret\n"
            );
            let write = fs::write(volume.path().join("file"), b"").expect_err("but not write");
            assert_eq!(write.raw_os_error(), Some(libc::EACCES));
        });
        sys::as_user(12345, 12345, || {
            let read = fs::read(volume.path().join("file")).expect_err("another user may not read");
            assert_eq!(read.raw_os_error(), Some(libc::EACCES));
        });
    };
    check(&volume);
    volume.remount();
    check(&volume);
    let file = volume.path().join("file");
    sys::chmod(&file, 0o640).expect("chmod");
    let acl = run("getfacl").arg("-cp").arg(&file).ok();
    assert!(acl.contains("mask::r--"), "chmod sets the mask:\n{acl}");
    sh(volume.path(), "setfacl -b file && setfacl -k dir").ok();
    assert!(sys::listxattr(&file).expect("listxattr").is_empty());
    volume.stop();
    volume.fsck();
}
