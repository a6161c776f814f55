//! Names: hard links, symbolic links and renames.

use crate::harness::sys::{self, rename};
use crate::harness::tree::names;
use crate::harness::{Volume, sh};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

fn inode(path: &Path) -> (u64, u64) {
    let meta = fs::symlink_metadata(path).expect("stat");
    (meta.ino(), meta.nlink())
}

#[test]
fn all_names_of_a_file_show_the_same_file() {
    let mut volume = Volume::start("links");
    let at = |name: &str| volume.path().join(name);
    fs::create_dir(at("dir")).expect("mkdir");
    fs::write(at("first"), b"one").expect("write");
    fs::hard_link(at("first"), at("dir/second")).expect("link");
    fs::hard_link(at("dir/second"), at("third")).expect("link");
    assert_eq!(inode(&at("first")), inode(&at("dir/second")));
    assert_eq!(inode(&at("first")).1, 3);
    fs::write(at("third"), b"changed through the third").expect("write");
    assert_eq!(fs::read(at("first")).expect("read"), b"changed through the third");
    // A rename onto another name of the same file does nothing at all.
    fs::rename(at("first"), at("third")).expect("rename");
    assert_eq!(inode(&at("first")).1, 3);
    fs::remove_file(at("first")).expect("unlink");
    assert_eq!(inode(&at("third")).1, 2);
    volume.remount();
    let at = |name: &str| volume.path().join(name);
    assert_eq!(inode(&at("third")), inode(&at("dir/second")));
    assert_eq!(fs::read(at("dir/second")).expect("read"), b"changed through the third");
    volume.stop();
    volume.fsck();
}

#[test]
fn a_file_may_have_thousands_of_names() {
    let mut volume = Volume::start("many-links");
    let first = volume.path().join("first");
    fs::write(&first, b"content").expect("write");
    for number in 0..3000 {
        fs::hard_link(&first, volume.path().join(format!("name-{number}"))).expect("link");
    }
    assert_eq!(inode(&first).1, 3001);
    sh(volume.path(), "rm name-*").ok();
    assert_eq!(inode(&first).1, 1);
    volume.stop();
    volume.fsck();
}

#[test]
fn directories_count_their_subdirectories_as_links() {
    let volume = Volume::start("dir-links");
    let top = volume.path().join("top");
    fs::create_dir_all(top.join("a")).expect("mkdir");
    fs::create_dir_all(top.join("b/c")).expect("mkdir");
    assert_eq!(inode(&top).1, 4);
    fs::rename(top.join("b/c"), top.join("c")).expect("rename");
    assert_eq!((inode(&top).1, inode(&top.join("b")).1), (5, 2));
    fs::rename(top.join("c"), top.join("a")).expect("rename over an empty directory");
    assert_eq!(inode(&top).1, 4);
    let refused = fs::hard_link(&top, volume.path().join("other")).expect_err("directories have one name");
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
}

#[test]
fn symlinks_of_any_length_lead_where_they_say() {
    let mut volume = Volume::start("symlinks");
    let longest = "x/".repeat(2047) + "x";
    symlink(&longest, volume.path().join("longest")).expect("4095 bytes are the longest target");
    fs::create_dir(volume.path().join("dir")).expect("mkdir");
    fs::write(volume.path().join("dir/file"), b"found").expect("write");
    symlink("dir", volume.path().join("to-dir")).expect("symlink");
    symlink("to-loop", volume.path().join("to-loop")).expect("symlink");
    volume.remount();
    assert_eq!(fs::read_link(volume.path().join("longest")).expect("readlink").as_os_str().len(), 4095);
    assert_eq!(fs::symlink_metadata(volume.path().join("longest")).expect("lstat").len(), 4095);
    assert_eq!(fs::read(volume.path().join("to-dir/file")).expect("read"), b"found");
    let looped = fs::read(volume.path().join("to-loop")).expect_err("ELOOP");
    assert_eq!(looped.raw_os_error(), Some(libc::ELOOP));
}

#[test]
fn rename_can_refuse_to_replace_and_can_exchange() {
    let mut volume = Volume::start("rename");
    let at = |name: &str| volume.path().join(name);
    fs::write(at("a"), b"a").expect("write");
    fs::create_dir_all(at("d/sub")).expect("mkdir");
    fs::write(at("d/inside"), b"i").expect("write");
    assert_eq!(rename(&at("a"), &at("d/inside"), libc::RENAME_NOREPLACE).expect_err("taken").0, libc::EEXIST);
    rename(&at("a"), &at("b"), libc::RENAME_NOREPLACE).expect("free");
    // A file and a directory change places.
    rename(&at("b"), &at("d"), libc::RENAME_EXCHANGE).expect("exchange");
    assert_eq!(fs::read(at("d")).expect("read"), b"a");
    assert_eq!(fs::read(at("b/inside")).expect("read"), b"i");
    assert_eq!(rename(&at("b"), &at("nothing"), libc::RENAME_EXCHANGE).expect_err("missing").0, libc::ENOENT);
    assert_eq!(rename(&at("b"), &at("b/sub/below"), 0).expect_err("below itself").0, libc::EINVAL);
    assert_eq!(rename(&at("d"), &at("b"), 0).expect_err("a file onto a directory").0, libc::EISDIR);
    assert_eq!(rename(&at("b"), &at("d"), 0).expect_err("a directory onto a file").0, libc::ENOTDIR);
    fs::create_dir(at("empty")).expect("mkdir");
    assert_eq!(rename(&at("empty"), &at("b"), 0).expect_err("not empty").0, libc::ENOTEMPTY);
    volume.remount();
    assert_eq!(names(volume.path()), ["b", "d", "empty"]);
    volume.stop();
    volume.fsck();
}

#[test]
fn a_reader_never_misses_a_file_that_is_replaced_by_rename() {
    const REPLACEMENTS: u32 = 2000;
    let volume = Volume::start("replace");
    let (target, temporary) = (volume.path().join("target"), volume.path().join("temporary"));
    fs::write(&target, "0".repeat(3000)).expect("write");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..REPLACEMENTS {
                fs::write(&temporary, (number % 10).to_string().repeat(3000)).expect("write");
                fs::rename(&temporary, &target).expect("rename");
            }
        });
        while !writer.is_finished() {
            let text = fs::read_to_string(&target).expect("there is always a file");
            assert_eq!(text.len(), 3000);
            assert!(text.bytes().all(|byte| Some(byte) == text.bytes().next()), "a mixture of two versions");
        }
    });
}

#[test]
fn inode_numbers_are_not_used_again() {
    let volume = Volume::start("inode-numbers");
    let path = volume.path().join("file");
    let mut seen = std::collections::HashSet::new();
    for _ in 0..200 {
        fs::write(&path, b"").expect("write");
        if !crate::harness::plain() {
            assert!(seen.insert(inode(&path).0), "an inode number came back");
        }
        fs::remove_file(&path).expect("unlink");
    }
    assert_eq!(sys::getxattr(&path, "user.x".as_ref()).expect_err("gone").0, libc::ENOENT);
}
