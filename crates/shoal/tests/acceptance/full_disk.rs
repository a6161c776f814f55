//! The disk under the volume fills up: programs get `ENOSPC`, no data are lost, and freed space can be used
//! again.

use crate::harness::{Volume, plain, run, seed, sh, sys, volume};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Size of the disk. Small, so that filling it is quick; large compared to an empty volume.
const DISK_MIB: u64 = 400;
/// The same disk must take at least this much content before it is full.
const USABLE_MIB: u64 = 120;
/// The server may take this long to free removed content.
const FREE_LIMIT: Duration = Duration::from_secs(60);

/// A small tmpfs for one test. Unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn new(place: &Path) -> Disk {
        fs::create_dir_all(place).expect("a directory can be made");
        run("mount")
            .arg("-t")
            .arg("tmpfs")
            .arg("-o")
            .arg(format!("size={DISK_MIB}m"))
            .arg("shoal-test")
            .arg(place)
            .ok();
        Disk(place.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        volume::detach(&self.0);
    }
}

/// A volume on a small disk. It is dropped before its disk.
struct Small {
    volume: Volume,
    _disk: Disk,
}

fn small(topic: &str) -> Small {
    let dir = volume::scratch(topic);
    let disk = Disk::new(&dir.path().join("disk"));
    let data = disk.0.join("data");
    Small { volume: Volume::start_with(dir, data, &[]), _disk: disk }
}

/// Files that must survive, small and large.
fn keepers(top: &Path) {
    fs::create_dir(top).expect("mkdir");
    for number in 0..200u32 {
        fs::write(top.join(format!("small-{number}")), number.to_string().repeat(500)).expect("write");
    }
    fs::write(top.join("large"), vec![0xab; 20 << 20]).expect("write");
    File::open(top).expect("open").sync_all().expect("fsync");
}

fn keepers_are_whole(top: &Path) {
    for number in 0..200u32 {
        let content = fs::read_to_string(top.join(format!("small-{number}"))).expect("read");
        assert!(content == number.to_string().repeat(500), "small-{number} has changed");
    }
    assert!(fs::read(top.join("large")).expect("read") == vec![0xab; 20 << 20], "the large file has changed");
}

/// Appends until the disk is full; returns the bytes that the volume accepted.
fn fill(path: &Path) -> u64 {
    let mut file = File::options().create(true).append(true).open(path).expect("create");
    let record: Vec<u8> = (0..1u32 << 20).map(|i| (i * 7 / 3) as u8).collect();
    let mut accepted = 0;
    loop {
        match file.write(&record) {
            Ok(written) => accepted += written as u64,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "a full disk is told by ENOSPC");
                return accepted;
            }
        }
        assert!(accepted < DISK_MIB << 20, "the volume accepts more than its disk holds");
    }
}

/// Waits until this much can be written and fsynced again.
fn writable_again(volume: &Volume, mib: usize) {
    let started = Instant::now();
    loop {
        let path = volume.path().join("again");
        let wrote = File::create(&path).and_then(|mut file| {
            file.write_all(&vec![1; mib << 20])?;
            file.sync_all()
        });
        match wrote {
            Ok(()) => break fs::remove_file(path).expect("unlink"),
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && started.elapsed() < FREE_LIMIT => {
                let _ = fs::remove_file(&path);
                std::thread::sleep(Duration::from_millis(200));
            }
            Err(error) => {
                panic!("{mib} MiB cannot be written {:?} after more were freed: {error}", started.elapsed())
            }
        }
    }
}

#[test]
fn a_disk_full_of_large_files_says_so_and_heals_when_they_go() {
    if plain() {
        return;
    }
    let Small { mut volume, _disk } = small("full-large");
    let keep = volume.path().join("keep");
    keepers(&keep);
    let filler = volume.path().join("filler");
    let accepted = fill(&filler);
    assert!(accepted >= USABLE_MIB << 20, "only {accepted} bytes fitted on {DISK_MIB} MiB");
    File::open(&filler).expect("open").sync_all().expect("what was accepted can be made durable");
    assert_eq!(fs::metadata(&filler).expect("stat").len(), accepted);
    keepers_are_whole(&keep);

    // A full volume can be restarted, also after a crash, and has lost nothing.
    volume.kill();
    volume.fsck();
    volume.restart();
    keepers_are_whole(&keep);
    assert_eq!(fs::metadata(&filler).expect("stat").len(), accepted);

    fs::remove_file(&filler).expect("removing works on a full disk");
    writable_again(&volume, 80);
    keepers_are_whole(&keep);
    volume.stop();
    volume.fsck();
}

#[test]
fn a_disk_full_of_small_files_says_so_and_heals_when_they_go() {
    if plain() {
        return;
    }
    let Small { mut volume, _disk } = small("full-small");
    let keep = volume.path().join("keep");
    keepers(&keep);
    let many = volume.path().join("many");
    fs::create_dir(&many).expect("mkdir");
    let mut random = crate::harness::Random::new(seed());
    let mut contents: Vec<(u64, Vec<u8>)> = Vec::new();
    let full = (0..).find_map(|number| {
        let content = random.bytes(40_000);
        match fs::write(many.join(format!("{number}")), &content) {
            Ok(()) => {
                contents.push((number, content[..16].to_vec()));
                None
            }
            Err(error) => Some(error),
        }
    });
    assert_eq!(
        full.and_then(|error| error.raw_os_error()),
        Some(libc::ENOSPC),
        "a full disk is told by ENOSPC"
    );
    assert!(
        contents.len() as u64 * 40_000 >= USABLE_MIB << 19,
        "only {} files of 40 KB fitted",
        contents.len()
    );
    volume.sync();
    volume.remount();
    keepers_are_whole(&keep);
    for (number, beginning) in &contents {
        let content = fs::read(many.join(format!("{number}"))).expect("read");
        assert_eq!(content.len(), 40_000, "file {number}");
        assert!(content.starts_with(beginning), "file {number} has changed");
    }
    sh(volume.path(), "rm -rf many").ok();
    writable_again(&volume, 60);
    keepers_are_whole(&keep);
    volume.stop();
    volume.fsck();
}

#[test]
fn room_in_use_is_counted_and_given_back() {
    if plain() {
        return;
    }
    // On a tmpfs: concurrent tests use the real disks.
    let Small { volume, _disk } = small("statfs");
    volume.sync();
    let before = sys::used_bytes(volume.path());
    let path = volume.path().join("file");
    fs::write(&path, crate::harness::Random::new(seed()).bytes(64 << 20)).expect("write");
    volume.sync();
    let grown = sys::used_bytes(volume.path()).saturating_sub(before);
    assert!(grown > 48 << 20, "64 MiB were written, {grown} bytes more are in use");
    fs::remove_file(&path).expect("unlink");
    volume.sync();
    let deadline = Instant::now() + FREE_LIMIT;
    while sys::used_bytes(volume.path()).saturating_sub(before) > 32 << 20 {
        assert!(Instant::now() < deadline, "the room of a removed file is not given back");
        std::thread::sleep(Duration::from_millis(100));
    }
}
