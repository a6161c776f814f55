use crate::content::pattern;
use crate::sys::{copy_file_range, errno};
use crate::volume::{Volume, printed};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

#[test]
fn copied_range_and_its_source_change_independently() {
    let volume = Volume::mount();
    fs::write(volume.path("a"), pattern(1 << 20)).expect("written");
    let a = File::open(volume.path("a")).unwrap();
    let b = File::options().read(true).write(true).create_new(true).open(volume.path("b")).unwrap();
    assert_eq!(copy_file_range(&a, 1000, &b, 50, 500_000).unwrap(), 500_000);
    let copied = fs::read(volume.path("b")).unwrap();
    assert_eq!(copied.len(), 500_050);
    assert!(copied[50..] == pattern(1 << 20)[1000..501_000]);
    b.write_all_at(b"changed", 60).expect("written");
    assert!(fs::read(volume.path("a")).unwrap() == pattern(1 << 20));
    assert_eq!(&fs::read(volume.path("b")).unwrap()[60..67], b"changed");
}

#[test]
fn a_copy_ends_where_its_source_ends() {
    let volume = Volume::mount();
    fs::write(volume.path("a"), pattern(1000)).expect("written");
    let a = File::open(volume.path("a")).unwrap();
    let b = File::create(volume.path("b")).unwrap();
    assert_eq!(copy_file_range(&a, 600, &b, 0, 10_000).unwrap(), 400);
    assert_eq!(copy_file_range(&a, 1000, &b, 400, 10_000).unwrap(), 0);
}

#[test]
fn copy_reads_dirty_pages_and_invalidates_cached_ones() {
    let volume = Volume::mount();
    fs::write(volume.path("b"), vec![1; 20_000]).expect("written");
    fs::read(volume.path("b")).expect("cached by the kernel now");
    fs::write(volume.path("a"), pattern(20_000)).expect("written");
    let a = File::open(volume.path("a")).unwrap();
    let b = File::options().write(true).open(volume.path("b")).unwrap();
    assert_eq!(copy_file_range(&a, 0, &b, 0, 20_000).unwrap(), 20_000);
    assert!(fs::read(volume.path("b")).unwrap() == pattern(20_000));
}

#[test]
fn overlapping_ranges_of_one_file_are_refused() {
    let volume = Volume::mount();
    fs::write(volume.path("a"), pattern(10_000)).expect("written");
    let a = File::options().read(true).write(true).open(volume.path("a")).unwrap();
    assert_eq!(errno(copy_file_range(&a, 0, &a, 100, 1000)), libc::EINVAL);
    assert_eq!(copy_file_range(&a, 0, &a, 5000, 1000).unwrap(), 1000);
    assert!(fs::read(volume.path("a")).unwrap()[5000..6000] == pattern(1000));
}

#[test]
fn cp_copies_a_large_file_without_moving_its_bytes() {
    let volume = Volume::mount();
    fs::write(volume.path("a"), pattern(16 << 20)).expect("written");
    let requests = volume.requests(|| {
        printed(volume.shell("cp --reflink=auto a b"));
    });
    assert!(requests.iter().all(|(name, _)| *name != "write" && *name != "read"), "{requests:?}");
    assert!(fs::read(volume.path("b")).unwrap() == pattern(16 << 20));
}
