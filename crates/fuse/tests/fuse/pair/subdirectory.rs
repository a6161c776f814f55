//! A mount whose root is a subdirectory of the volume, beside mounts of the whole volume.

use super::{Pair, Side, client, pair};
use crate::sys::errno;
use shoal_client::Wait;
use shoal_fuse::MountOptions;
use shoal_types::InodeId;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Mounts a directory of the volume, `name` in its root.
fn subdirectory(pair: &Pair, name: &str) -> Side {
    let client = client(pair.server.clone(), &pair.bricks);
    let found = client.lookup(Wait::Allowed, InodeId::ROOT, name.as_bytes()).expect("answered");
    let root = found.expect("there").ino;
    Side::mount(pair.dir.path().join("sub"), client, MountOptions { root, ..MountOptions::default() })
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().expect("text")).collect();
    names.sort();
    names
}

#[test]
fn subdirectory_mount_shows_the_subtree_and_both_sides_see_changes_at_once() {
    pair(|pair| {
        let whole = &pair.a;
        fs::create_dir_all(whole.path("top/inner")).expect("new");
        fs::write(whole.path("top/file"), "one").expect("written");
        fs::write(whole.path("outside"), "").expect("written");
        pair.step("mount");
        let sub = subdirectory(pair, "top");
        assert_eq!(names(sub.root()), ["file", "inner"]);
        let (seen, top) =
            (fs::metadata(sub.root()).expect("there"), fs::metadata(whole.path("top")).expect("there"));
        assert_eq!((seen.ino(), seen.nlink()), (top.ino(), top.nlink()));
        assert_eq!(fs::metadata(sub.path("inner/..")).expect("there").ino(), top.ino());
        // An entry keeps its directory open.
        let listed = fs::read_dir(sub.root()).expect("listed").map(|entry| entry.expect("an entry"));
        let listed: Vec<_> = listed.map(|entry| (entry.file_name(), entry.ino())).collect();
        let inner = fs::metadata(whole.path("top/inner")).expect("there").ino();
        assert!(listed.contains(&("inner".into(), inner)), "{listed:?}");

        for round in 0..3 {
            pair.step(format!("{round}: names and content"));
            let name = format!("new{round}");
            assert!(!sub.path(&name).exists() && !whole.path(&format!("top/{name}")).exists());
            fs::write(whole.path(&format!("top/{name}")), "from outside").expect("written");
            assert_eq!(fs::read_to_string(sub.path(&name)).expect("seen"), "from outside");
            fs::write(sub.path(&name), "from inside").expect("written");
            assert_eq!(fs::read_to_string(whole.path(&format!("top/{name}"))).expect("seen"), "from inside");
            fs::rename(sub.path(&name), sub.path("moved")).expect("renamed");
            assert!(names(&whole.path("top")).contains(&"moved".to_owned()));
            fs::remove_file(whole.path("top/moved")).expect("removed");
            assert_eq!(names(sub.root()), ["file", "inner"]);
            pair.step(format!("{round}: attributes of the root"));
            let mode = 0o700 + round;
            fs::set_permissions(whole.path("top"), fs::Permissions::from_mode(mode)).expect("changed");
            assert_eq!(fs::metadata(sub.root()).expect("there").mode() & 0o7777, mode);
            fs::set_permissions(sub.root(), fs::Permissions::from_mode(0o755)).expect("changed");
            assert_eq!(fs::metadata(whole.path("top")).expect("there").mode() & 0o7777, 0o755);
            File::open(sub.root()).and_then(|root| root.sync_all()).expect("synced");
        }
        pair.step("unmount");
        sub.end();
    });
}

#[test]
fn subdirectory_mount_follows_its_directory_when_it_is_moved() {
    pair(|pair| {
        let whole = &pair.a;
        fs::create_dir(whole.path("top")).expect("new");
        fs::create_dir(whole.path("elsewhere")).expect("new");
        let sub = subdirectory(pair, "top");
        fs::write(sub.path("before"), "").expect("written");
        let ino = fs::metadata(sub.root()).expect("there").ino();
        pair.step("move");
        fs::rename(whole.path("top"), whole.path("elsewhere/new")).expect("moved");
        assert_eq!(names(sub.root()), ["before"]);
        fs::write(sub.path("after"), "").expect("written");
        assert_eq!(names(&whole.path("elsewhere/new")), ["after", "before"]);
        fs::write(whole.path("elsewhere/new/third"), "").expect("written");
        assert_eq!(names(sub.root()), ["after", "before", "third"]);
        // A directory that takes the old name is another one.
        fs::create_dir(whole.path("top")).expect("new");
        assert_eq!((names(sub.root()).len(), fs::metadata(sub.root()).expect("there").ino()), (3, ino));
        sub.end();
    });
}

#[test]
fn subdirectory_mount_is_empty_for_good_when_its_directory_is_removed() {
    pair(|pair| {
        let whole = &pair.a;
        fs::create_dir(whole.path("top")).expect("new");
        let sub = subdirectory(pair, "top");
        fs::write(sub.path("file"), "").expect("written");
        assert_eq!(errno(fs::remove_dir(whole.path("top"))), libc::ENOTEMPTY);
        pair.step("remove");
        fs::remove_file(whole.path("top/file")).expect("removed");
        fs::remove_dir(whole.path("top")).expect("removed");
        assert_eq!(names(sub.root()), [""; 0]);
        assert_eq!(fs::metadata(sub.root()).expect("kept while it is mounted").nlink(), 0);
        assert_eq!(errno(fs::write(sub.path("new"), "")), libc::ENOENT);
        assert_eq!(errno(fs::create_dir(sub.path("new"))), libc::ENOENT);
        // The name stands for another directory from now on.
        fs::create_dir(whole.path("top")).expect("new");
        fs::write(whole.path("top/new"), "").expect("written");
        assert_eq!(names(sub.root()), [""; 0]);
        pair.step("unmount");
        sub.end();
    });
}

#[test]
fn root_of_subdirectory_mount_that_is_moved_below_an_open_directory_is_found_there() {
    pair(|pair| {
        let whole = &pair.a;
        fs::create_dir_all(whole.path("top/inner")).expect("new");
        let sub = subdirectory(pair, "top");
        let inner = File::open(sub.path("inner")).expect("opens");
        pair.step("move what is open out of the subtree, and the subtree into it");
        fs::rename(whole.path("top/inner"), whole.path("inner")).expect("moved");
        fs::rename(whole.path("top"), whole.path("inner/top")).expect("moved");
        let again = Path::new("/proc/self/fd").join(inner.as_raw_fd().to_string()).join("top");
        pair.step("look at it by name");
        let ino = fs::metadata(sub.root()).expect("there").ino();
        assert_eq!(fs::metadata(&again).expect("found").ino(), ino);
        fs::write(again.join("by-name"), "").expect("written");
        fs::write(sub.path("by-root"), "").expect("written");
        fs::write(whole.path("inner/top/outside"), "").expect("written");
        for dir in [again.as_path(), sub.root(), &whole.path("inner/top")] {
            assert_eq!(names(dir), ["by-name", "by-root", "outside"], "{}", dir.display());
        }
        drop(inner);
        sub.end();
    });
}
