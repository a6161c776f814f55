use crate::sys::{Handle, errno, mknod, renameat2};
use crate::volume::Volume;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

#[test]
fn a_name_exists_from_creation_to_removal() {
    let volume = Volume::mount();
    let path = volume.path("file");
    assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
    File::create_new(&path).expect("there was none");
    assert!(fs::metadata(&path).expect("exists").is_file());
    assert_eq!(errno(File::create_new(&path)), libc::EEXIST);
    fs::remove_file(&path).expect("exists");
    assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
    File::create_new(&path).expect("a name can be used again");
}

#[test]
fn names_have_up_to_255_bytes() {
    let volume = Volume::mount();
    File::create(volume.path(&"x".repeat(255))).expect("fits");
    assert_eq!(errno(File::create(volume.path(&"x".repeat(256)))), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::metadata(volume.path(&"y".repeat(256)))), libc::ENAMETOOLONG);
    assert_eq!(errno(fs::create_dir(volume.path(&"y".repeat(256)))), libc::ENAMETOOLONG);
}

#[test]
fn directories_are_removed_only_when_empty() {
    let volume = Volume::mount();
    fs::create_dir_all(volume.path("a/b")).expect("new");
    assert_eq!(errno(fs::remove_dir(volume.path("a"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::remove_file(volume.path("a"))), libc::EISDIR);
    assert_eq!(fs::metadata(volume.path("a")).expect("exists").nlink(), 3);
    fs::remove_dir(volume.path("a/b")).expect("empty");
    assert_eq!(fs::metadata(volume.path("a")).expect("exists").nlink(), 2);
    fs::remove_dir(volume.path("a")).expect("empty");
}

#[test]
fn every_kind_of_file_can_be_made() {
    let volume = Volume::mount();
    let device = libc::makedev(300, 70_000);
    for (name, mode) in [
        ("fifo", libc::S_IFIFO),
        ("socket", libc::S_IFSOCK),
        ("char", libc::S_IFCHR),
        ("block", libc::S_IFBLK),
        ("plain", libc::S_IFREG),
    ] {
        mknod(&volume.path(name), mode | 0o600, device).expect(name);
        assert_eq!(fs::metadata(volume.path(name)).expect(name).mode() & libc::S_IFMT, mode);
    }
    let block = fs::metadata(volume.path("block")).expect("exists");
    assert!(block.file_type().is_block_device());
    assert_eq!(block.rdev(), device);
    let volume = volume.remount();
    assert_eq!(fs::metadata(volume.path("char")).expect("exists").rdev(), device);
}

#[test]
fn a_symlink_keeps_its_target_to_the_byte() {
    let volume = Volume::mount();
    let target = "t".repeat(4095);
    symlink(&target, volume.path("link")).expect("fits");
    assert_eq!(fs::read_link(volume.path("link")).expect("a link").as_os_str(), &*target);
    let meta = fs::symlink_metadata(volume.path("link")).expect("exists");
    assert_eq!((meta.len(), meta.mode() & 0o7777), (4095, 0o777));
    fs::write(volume.path("file"), "through").expect("written");
    symlink("file", volume.path("short")).expect("fits");
    assert_eq!(fs::read_to_string(volume.path("short")).expect("followed"), "through");
}

#[test]
fn a_second_name_is_the_same_file() {
    let volume = Volume::mount();
    fs::create_dir(volume.path("d")).expect("new");
    fs::write(volume.path("a"), "1").expect("written");
    fs::hard_link(volume.path("a"), volume.path("d/b")).expect("linked");
    fs::write(volume.path("d/b"), "22").expect("written");
    let (a, b) = (fs::metadata(volume.path("a")).unwrap(), fs::metadata(volume.path("d/b")).unwrap());
    assert_eq!((a.ino(), a.nlink(), a.len()), (b.ino(), 2, 2));
    assert_eq!(errno(fs::hard_link(volume.path("a"), volume.path("d/b"))), libc::EEXIST);
    assert_eq!(errno(fs::hard_link(volume.path("d"), volume.path("e"))), libc::EPERM);
    fs::remove_file(volume.path("a")).expect("removed");
    assert_eq!(fs::metadata(volume.path("d/b")).unwrap().nlink(), 1);
    assert_eq!(fs::read_to_string(volume.path("d/b")).unwrap(), "22");
}

#[test]
fn rename_replaces_unless_it_must_not() {
    let volume = Volume::mount();
    let (a, b, c) = (volume.path("a"), volume.path("b"), volume.path("c"));
    fs::write(&a, "a").expect("written");
    fs::write(&b, "b").expect("written");
    assert_eq!(errno(renameat2(&a, &b, libc::RENAME_NOREPLACE)), libc::EEXIST);
    renameat2(&a, &c, libc::RENAME_NOREPLACE).expect("free");
    fs::rename(&c, &b).expect("replaces");
    assert_eq!(fs::read_to_string(&b).unwrap(), "a");
    assert_eq!(errno(fs::metadata(&a)), libc::ENOENT);
    assert_eq!(errno(fs::metadata(&c)), libc::ENOENT);
}

#[test]
fn rename_exchanges_two_names() {
    let volume = Volume::mount();
    fs::create_dir(volume.path("dir")).expect("new");
    fs::write(volume.path("dir/inner"), "inner").expect("written");
    fs::write(volume.path("file"), "file").expect("written");
    renameat2(&volume.path("dir"), &volume.path("file"), libc::RENAME_EXCHANGE).expect("exchanged");
    assert_eq!(fs::read_to_string(volume.path("dir")).unwrap(), "file");
    assert_eq!(fs::read_to_string(volume.path("file/inner")).unwrap(), "inner");
    let missing = renameat2(&volume.path("dir"), &volume.path("no"), libc::RENAME_EXCHANGE);
    assert_eq!(errno(missing), libc::ENOENT);
}

#[test]
fn whiteouts_are_refused() {
    let volume = Volume::mount();
    fs::write(volume.path("a"), "a").expect("written");
    let outcome = renameat2(&volume.path("a"), &volume.path("b"), libc::RENAME_WHITEOUT);
    assert_eq!(errno(outcome), libc::EINVAL);
    assert!(volume.path("a").exists());
}

#[test]
fn a_directory_does_not_move_below_itself() {
    let volume = Volume::mount();
    fs::create_dir_all(volume.path("a/b/c")).expect("new");
    assert_eq!(errno(fs::rename(volume.path("a"), volume.path("a/b/c/d"))), libc::EINVAL);
    fs::create_dir(volume.path("x")).expect("new");
    fs::rename(volume.path("a/b"), volume.path("x/b")).expect("moved");
    assert!(volume.path("x/b/c").is_dir());
    let parent = fs::metadata(volume.path("x/b/..")).unwrap().ino();
    assert_eq!(parent, fs::metadata(volume.path("x")).unwrap().ino());
}

#[test]
fn a_file_handle_finds_its_file_after_a_new_mount() {
    let volume = Volume::mount();
    fs::create_dir_all(volume.path("a/b")).expect("new");
    fs::write(volume.path("a/b/file"), "content").expect("written");
    fs::write(volume.path("gone"), "content").expect("written");
    let handles = ["a/b/file", "a/b", "gone"].map(|name| Handle::of(&volume.path(name)).expect(name));
    fs::remove_file(volume.path("gone")).expect("removed");
    let volume = volume.remount();
    let [file, dir, gone] = handles;
    let mut text = String::new();
    file.open(volume.root()).expect("found").read_to_string(&mut text).expect("readable");
    assert_eq!(text, "content");
    let dir = dir.open(volume.root()).expect("found");
    assert_eq!(dir.metadata().unwrap().ino(), fs::metadata(volume.path("a/b")).unwrap().ino());
    assert_eq!(errno(gone.open(volume.root())), libc::ESTALE);
}
