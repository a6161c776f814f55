//! Holes, reserved room and shared ranges.

use crate::harness::{Volume, sh, sys};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
const MIB: u64 = 1 << 20;

fn open(path: &Path) -> std::os::fd::OwnedFd {
    sys::open(path, libc::O_RDWR | libc::O_CREAT, 0o644).expect("open")
}

/// Bytes that a file takes.
fn taken(path: &Path) -> u64 {
    fs::metadata(path).expect("stat").blocks() * 512
}

#[test]
fn holes_take_no_room_and_read_as_zeros() {
    let mut volume = Volume::start("holes");
    let path = volume.path().join("sparse");
    let file = open(&path);
    sys::pwrite(&file, b"far away", 1 << 40).expect("write");
    sys::pwrite(&file, &[7; 10_000], 5 * MIB).expect("write");
    assert_eq!(sys::lseek(&file, 0, libc::SEEK_END), Ok((1 << 40) + 8));
    assert!(taken(&path) < MIB, "a sparse file takes {} bytes", taken(&path));
    assert_eq!(sys::pread(&file, 4096, 100 * MIB), Ok(vec![0; 4096]));
    let data = sys::lseek(&file, 0, libc::SEEK_DATA).expect("there is data");
    assert!(data <= 5 * MIB && data > 4 * MIB, "the first data are said to begin at {data}");
    let hole = sys::lseek(&file, 5 * MIB, libc::SEEK_HOLE).expect("there is a hole");
    assert!((5 * MIB + 10_000..6 * MIB).contains(&hole), "the hole is said to begin at {hole}");
    let data = sys::lseek(&file, 10 * MIB, libc::SEEK_DATA).expect("there is data");
    assert!(data > (1 << 40) - MIB && data <= 1 << 40);
    assert_eq!(sys::lseek(&file, (1 << 40) + 8, libc::SEEK_DATA).expect_err("nothing there").0, libc::ENXIO);
    drop(file);
    volume.remount();
    let path = volume.path().join("sparse");
    assert_eq!(sys::pread(&open(&path), 8, 1 << 40), Ok(b"far away".to_vec()));
    assert!(taken(&path) < MIB);
    volume.stop();
    volume.fsck();
}

#[test]
fn punched_holes_give_room_back_and_zeroed_ranges_read_as_zeros() {
    let mut volume = Volume::start("punch");
    let path = volume.path().join("file");
    let file = open(&path);
    let mut expected: Vec<u8> = (0..16 * MIB).map(|i| (i / 4099) as u8 | 1).collect();
    fs::write(&path, &expected).expect("write");
    let before = taken(&path);
    sys::fallocate(&file, HOLE, 3 * MIB + 17, 9 * MIB).expect("punch");
    expected[3 * MIB as usize + 17..12 * MIB as usize + 17].fill(0);
    assert!(fs::read(&path).expect("read") == expected);
    assert!(taken(&path) + 8 * MIB <= before, "{before} bytes before, {} after punching 9 MiB", taken(&path));
    sys::fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 15 * MIB, 3 * MIB).expect("zero, growing the file");
    expected.resize(18 * MIB as usize, 0);
    expected[15 * MIB as usize..].fill(0);
    assert!(fs::read(&path).expect("read") == expected);
    let keep = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    sys::fallocate(&file, keep, 17 * MIB, 5 * MIB).expect("zero, keeping the size");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 18 * MIB);
    drop(file);
    volume.remount();
    assert!(fs::read(volume.path().join("file")).expect("read") == expected);
    volume.stop();
    volume.fsck();
}

#[test]
fn fallocate_reserves_and_leaves_content_alone() {
    let mut volume = Volume::start("fallocate");
    let path = volume.path().join("file");
    let file = open(&path);
    sys::pwrite(&file, &[5; 1000], 3000).expect("write");
    sys::fallocate(&file, 0, 0, 10 * MIB).expect("fallocate");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 10 * MIB);
    assert!(taken(&path) >= 10 * MIB, "10 MiB were reserved, {} are taken", taken(&path));
    sys::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 10 * MIB, 10 * MIB).expect("fallocate");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 10 * MIB);
    let mut expected = vec![0; 10 * MIB as usize];
    expected[3000..4000].fill(5);
    assert!(fs::read(&path).expect("read") == expected);
    let refused = sys::fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, MIB);
    if !crate::harness::plain() {
        assert_eq!(refused.expect_err("collapsing is not offered").0, libc::EOPNOTSUPP);
    }
    drop(file);
    volume.stop();
    volume.fsck();
}

#[test]
fn copied_ranges_have_separate_futures() {
    let mut volume = Volume::start("clone-range");
    let (source, target) = (volume.path().join("source"), volume.path().join("target"));
    let mut content: Vec<u8> = (0..9 * MIB).map(|i| (i / 1021) as u8).collect();
    fs::write(&source, &content).expect("write");
    fs::write(&target, vec![0xff; 2 * MIB as usize]).expect("write");
    let (from, to) = (open(&source), open(&target));
    let mut done = 0;
    while done < 7 * MIB {
        let got = sys::copy_file_range(&from, 123 + done, &to, 77_777 + done, (7 * MIB - done) as usize)
            .expect("copy");
        assert!(got > 0);
        done += got;
    }
    let mut expected = vec![0xff; 77_777];
    expected.extend_from_slice(&content[123..123 + 7 * MIB as usize]);
    assert!(fs::read(&target).expect("read") == expected);
    sys::pwrite(&from, &[0; 100], 5 * MIB).expect("write");
    content[5 * MIB as usize..5 * MIB as usize + 100].fill(0);
    sys::pwrite(&to, &[1; 100], 6 * MIB).expect("write");
    expected[6 * MIB as usize..6 * MIB as usize + 100].fill(1);
    assert!(fs::read(&target).expect("read") == expected);
    drop((from, to));
    fs::write(volume.path().join("other"), b"").expect("write");
    volume.remount();
    assert!(fs::read(&source).expect("read") == content);
    fs::remove_file(&source).expect("unlink");
    assert!(fs::read(&target).expect("read") == expected, "the copy died with its source");
    volume.stop();
    volume.fsck();
}

#[test]
fn tools_that_know_holes_find_them() {
    let volume = Volume::start("sparse-tools");
    let script = "truncate -s 500M sparse && printf begin | dd of=sparse conv=notrunc status=none
        printf end | dd of=sparse bs=1 seek=400M conv=notrunc status=none
        cp --sparse=auto sparse copy && cmp sparse copy && test $(du -k copy | cut -f1) -lt 2000
        tar -S -cf sparse.tar sparse && test $(stat -c %s sparse.tar) -lt 2000000";
    sh(volume.path(), script).ok();
}
