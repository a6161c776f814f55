use crate::sys::{errno, utimens};
use crate::volume::{Volume, printed};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::time::{Duration, SystemTime};

#[test]
fn times_are_kept_to_the_nanosecond_before_1970_too() {
    let volume = Volume::mount();
    let path = volume.path("file");
    File::create(&path).expect("new");
    for (atime, mtime) in [((1, 2), (3, 999_999_999)), ((-5, 300_000_000), (-1, 0)), ((1 << 33, 1), (0, 0))] {
        utimens(&path, atime, mtime).expect("set");
        let meta = fs::metadata(&path).expect("exists");
        assert_eq!(((meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec())), (atime, mtime));
    }
    let volume = volume.remount();
    let meta = fs::metadata(volume.path("file")).expect("exists");
    assert_eq!((meta.atime(), meta.atime_nsec()), (1 << 33, 1));
}

#[test]
fn utime_now_and_omit_mean_what_they_say() {
    let volume = Volume::mount();
    let path = volume.path("file");
    File::create(&path).expect("new");
    utimens(&path, (100, 0), (200, 0)).expect("set");
    utimens(&path, (0, libc::UTIME_OMIT), (0, libc::UTIME_NOW)).expect("set");
    let meta = fs::metadata(&path).expect("exists");
    assert_eq!(meta.atime(), 100);
    let age = SystemTime::now().duration_since(meta.modified().unwrap()).unwrap_or_default();
    assert!(age < Duration::from_secs(10), "{age:?}");
}

#[test]
fn writing_moves_mtime_and_ctime_and_reading_moves_nothing() {
    let volume = Volume::mount();
    let path = volume.path("file");
    fs::write(&path, "one").expect("written");
    let before = fs::metadata(&path).expect("exists");
    std::thread::sleep(Duration::from_millis(5));
    fs::read(&path).expect("read");
    let read = fs::metadata(&path).expect("exists");
    assert_eq!(read.accessed().unwrap(), before.accessed().unwrap());
    fs::write(&path, "two").expect("written");
    let after = fs::metadata(&path).expect("exists");
    assert!(after.modified().unwrap() > before.modified().unwrap());
    let ctime = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec());
    assert!(ctime(&after) > ctime(&before));
}

#[test]
fn chmod_and_chown_are_seen_at_once() {
    let volume = Volume::mount();
    let path = volume.path("file");
    File::create(&path).expect("new");
    fs::set_permissions(&path, Permissions::from_mode(0o4751)).expect("set");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4751);
    chown(&path, Some(12), None).expect("set");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (12, 0));
}

#[test]
fn truncation_cuts_and_extends_with_zeros() {
    let volume = Volume::mount();
    let path = volume.path("file");
    fs::write(&path, "0123456789").expect("written");
    let file = File::options().write(true).open(&path).expect("exists");
    file.set_len(4).expect("cut");
    file.set_len(8).expect("extended");
    assert_eq!(fs::read(&path).unwrap(), b"0123\0\0\0\0");
    assert_eq!(errno(file.set_len(i64::MAX as u64)), 0);
    assert_eq!(fs::metadata(&path).unwrap().len(), i64::MAX as u64);
    File::options().write(true).truncate(true).open(&path).expect("exists");
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn stat_shows_blocks_and_a_block_size() {
    let volume = Volume::mount();
    let path = volume.path("file");
    fs::write(&path, vec![7; 10_000]).expect("written");
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.len(), meta.blocks(), meta.blksize()), (10_000, 20, 4096));
}

#[test]
fn birth_times_are_shown_and_kept() {
    let volume = Volume::mount();
    let before = SystemTime::now();
    let path = volume.path("file");
    fs::write(&path, "one").expect("written");
    let born = |volume: &Volume| fs::metadata(volume.path("file")).unwrap().created().expect("a birth time");
    let shown = born(&volume);
    let age = shown.duration_since(before - Duration::from_secs(1)).expect("not before");
    assert!(age < Duration::from_secs(60), "{age:?}");
    utimens(&path, (100, 0), (200, 0)).expect("set");
    fs::write(&path, "two").expect("written");
    assert_eq!(born(&volume), shown);
    assert_eq!(fs::metadata(&path).unwrap().len(), 3);
    assert_eq!(born(&volume.remount()), shown);
}

#[test]
fn df_knows_the_volume() {
    let volume = Volume::mount();
    let shown = printed(volume.shell("df --output=source,fstype,target . | tail -1"));
    let words: Vec<_> = shown.split_whitespace().collect();
    assert_eq!(words, ["shoal", "fuse.shoal", volume.root().to_str().unwrap()]);
    assert_eq!(printed(volume.shell("stat -f -c '%S %l' .")), "4096 255");
}
