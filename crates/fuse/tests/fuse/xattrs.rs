use crate::sys::{errno, getxattr, listxattr, removexattr, setxattr};
use crate::volume::{Volume, printed};
use std::fs::{self, File};
use std::os::unix::fs::symlink;

#[test]
fn an_attribute_is_set_read_listed_and_removed() {
    let volume = Volume::mount();
    let path = volume.path("file");
    File::create(&path).expect("new");
    setxattr(&path, "user.a", b"one", 0).expect("set");
    setxattr(&path, "user.b", b"", 0).expect("set");
    assert_eq!(getxattr(&path, "user.a", 100).unwrap().1, b"one");
    assert_eq!(getxattr(&path, "user.b", 100).unwrap().0, 0);
    let (len, list) = listxattr(&path, 100).unwrap();
    let mut names: Vec<_> = list.split(|b| *b == 0).filter(|name| !name.is_empty()).collect();
    names.sort();
    assert_eq!((len, names), (14, vec![&b"user.a"[..], &b"user.b"[..]]));
    removexattr(&path, "user.a").expect("removed");
    assert_eq!(errno(getxattr(&path, "user.a", 100)), libc::ENODATA);
    assert_eq!(errno(removexattr(&path, "user.a")), libc::ENODATA);
    let volume = volume.remount();
    assert_eq!(listxattr(&volume.path("file"), 100).unwrap().1, b"user.b\0");
}

#[test]
fn names_of_attributes_may_contain_slashes() {
    let volume = Volume::mount();
    let path = volume.path("file");
    File::create(&path).expect("new");
    setxattr(&path, "user.foo/bar", b"one", 0).expect("set");
    setxattr(&path, "user.", b"no", 0).expect_err("a prefix is no name");
    let volume = volume.remount();
    let path = volume.path("file");
    assert_eq!(getxattr(&path, "user.foo/bar", 100).unwrap().1, b"one");
    removexattr(&path, "user.foo/bar").expect("removed");
    assert_eq!(listxattr(&path, 0).unwrap().0, 0);
}

#[test]
fn sizes_can_be_asked_for_and_short_buffers_are_refused() {
    let volume = Volume::mount();
    let path = volume.path("file");
    File::create(&path).expect("new");
    setxattr(&path, "user.a", &[7; 1000], 0).expect("set");
    assert_eq!(getxattr(&path, "user.a", 0).unwrap().0, 1000);
    assert_eq!(errno(getxattr(&path, "user.a", 999)), libc::ERANGE);
    assert_eq!(getxattr(&path, "user.a", 1000).unwrap().1, [7; 1000]);
    assert_eq!(listxattr(&path, 0).unwrap().0, 7);
    assert_eq!(errno(listxattr(&path, 6)), libc::ERANGE);
}

#[test]
fn a_value_has_up_to_64_kib() {
    let volume = Volume::mount();
    let path = volume.path("file");
    File::create(&path).expect("new");
    setxattr(&path, "user.a", &[7; 65_536], 0).expect("set");
    assert_eq!(getxattr(&path, "user.a", 65_536).unwrap().1, [7; 65_536]);
    assert_eq!(errno(setxattr(&path, "user.a", &[7; 65_537], 0)), libc::E2BIG);
    assert_eq!(errno(setxattr(&path, &format!("user.{}", "n".repeat(251)), b"", 0)), libc::ERANGE);
}

#[test]
fn create_and_replace_are_told_apart() {
    let volume = Volume::mount();
    let path = volume.path("file");
    File::create(&path).expect("new");
    assert_eq!(errno(setxattr(&path, "user.a", b"1", libc::XATTR_REPLACE)), libc::ENODATA);
    setxattr(&path, "user.a", b"1", libc::XATTR_CREATE).expect("new");
    assert_eq!(errno(setxattr(&path, "user.a", b"2", libc::XATTR_CREATE)), libc::EEXIST);
    setxattr(&path, "user.a", b"2", libc::XATTR_REPLACE).expect("there");
    assert_eq!(getxattr(&path, "user.a", 9).unwrap().1, b"2");
}

#[test]
fn trusted_attributes_are_for_root_alone() {
    let volume = Volume::mount();
    let path = volume.path("file");
    File::create(&path).expect("new");
    setxattr(&path, "trusted.a", b"1", 0).expect("root may");
    setxattr(&path, "user.b", b"1", 0).expect("set");
    assert_eq!(listxattr(&path, 100).unwrap().0, 17);
    let seen = printed(volume.shell_unprivileged("getfattr -m - file"));
    assert!(seen.contains("user.b") && !seen.contains("trusted.a"), "{seen}");
    assert!(!volume.shell_unprivileged("getfattr -n trusted.a file").status.success());
}

#[test]
fn symlinks_and_directories_have_attributes_too() {
    let volume = Volume::mount();
    symlink("nowhere", volume.path("link")).expect("new");
    fs::create_dir(volume.path("dir")).expect("new");
    setxattr(&volume.path("link"), "trusted.a", b"1", 0).expect("set");
    setxattr(&volume.path("dir"), "user.a", b"1", 0).expect("set");
    assert_eq!(errno(setxattr(&volume.path("link"), "user.a", b"1", 0)), libc::EPERM);
    assert_eq!(getxattr(&volume.path("link"), "trusted.a", 9).unwrap().1, b"1");
}

#[test]
fn acl_admits_the_users_that_it_names() {
    let volume = Volume::mount();
    printed(volume.shell("echo secret > file; chmod 600 file"));
    assert!(!volume.shell_unprivileged("cat file").status.success());
    printed(volume.shell("setfacl -m u:65534:r file"));
    assert_eq!(printed(volume.shell_unprivileged("cat file")), "secret");
    assert!(!volume.shell_unprivileged("echo no >> file").status.success());
    assert_eq!(printed(volume.shell("stat -c %a file")), "640", "the mask shows as group bits");
    printed(volume.shell("chmod g-r file"));
    assert!(!volume.shell_unprivileged("cat file").status.success(), "chmod changes the mask");
    let volume = volume.remount();
    assert!(printed(volume.shell("getfacl -cnp file")).contains("user:65534:r--"));
}

#[test]
fn a_default_acl_is_inherited_in_place_of_the_umask() {
    let volume = Volume::mount();
    printed(volume.shell("mkdir d && setfacl -d -m u:65534:rwx,g::rwx,o::r d"));
    printed(volume.shell("umask 077; touch d/file; mkdir d/sub; touch plain"));
    assert_eq!(printed(volume.shell("stat -c %a d/file d/sub plain")), "664\n774\n600");
    assert!(printed(volume.shell("getfacl -cnp d/sub")).contains("default:user:65534:rwx"));
    printed(volume.shell_unprivileged("echo mine >> d/file"));
}

#[test]
fn capabilities_are_lost_by_writing() {
    let volume = Volume::mount();
    fs::copy("/bin/true", volume.path("program")).expect("copied");
    // CAP_NET_BIND_SERVICE, permitted and effective, as setcap(8) writes it.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    setxattr(&volume.path("program"), "security.capability", &capability, 0).expect("set");
    printed(volume.shell("echo >> program"));
    assert_eq!(errno(getxattr(&volume.path("program"), "security.capability", 100)), libc::ENODATA);
}
