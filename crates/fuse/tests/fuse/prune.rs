//! The kernel refers to no more inodes than the mount allows, and inodes in use are not disturbed by that.

use crate::sys::Map;
use crate::volume::{Volume, printed};
use shoal_fuse::MountOptions;
use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Inodes of the mounts below.
const INODES_MAX: usize = 300;
/// Files that are visited, in directories of a hundred.
const FILES: usize = 3_000;
/// Longer than the kernel takes on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether the kernel has `FUSE_NOTIFY_PRUNE`: Linux 6.18.
fn kernel_prunes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("readable");
    let mut parts = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (6, 18)
}

fn bounded() -> Volume {
    Volume::mount_with(MountOptions { inodes_max: INODES_MAX, ..MountOptions::default() })
}

/// Waits until no more than so many inodes are referred to.
fn wait_for_at_most(volume: &Volume, inodes: usize) {
    let begun = Instant::now();
    while volume.client.referred().inodes > inodes {
        assert!(begun.elapsed() < PATIENCE, "{:?} of at most {inodes}", volume.client.referred());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn make_files(volume: &Volume) {
    for file in 0..FILES {
        let dir = volume.path(&format!("dir-{}", file / 100));
        if file % 100 == 0 {
            fs::create_dir(&dir).expect("made");
        }
        fs::write(dir.join(format!("file-{file}")), format!("content {file}")).expect("written");
    }
}

#[test]
fn referenced_inodes_stay_below_the_bound_of_the_mount_while_many_more_are_visited() {
    if !kernel_prunes() {
        return;
    }
    let volume = bounded();
    make_files(&volume);
    wait_for_at_most(&volume, INODES_MAX);
    for _ in 0..2 {
        let lines = printed(volume.shell("cat dir-*/* | tr c '\\n' | grep -c ontent"));
        assert_eq!(lines, FILES.to_string());
        assert_eq!(printed(volume.shell("find . -type f -size +0 | wc -l")), FILES.to_string());
        wait_for_at_most(&volume, INODES_MAX);
    }
    assert!(volume.stats().invalidations.pruned >= (FILES - INODES_MAX) as u64);
    volume.end();
}

#[test]
fn files_in_use_survive_the_pruning_of_inodes() {
    if !kernel_prunes() {
        return;
    }
    let volume = bounded();
    fs::create_dir(volume.path("cwd")).expect("made");
    for name in ["open", "unlinked", "mapped", "cwd/there"] {
        fs::write(volume.path(name), name.repeat(1000)).expect("written");
    }
    let mut open = File::open(volume.path("open")).expect("opens");
    let mut unlinked = File::open(volume.path("unlinked")).expect("opens");
    fs::remove_file(volume.path("unlinked")).expect("removed");
    let file = File::options().read(true).write(true).open(volume.path("mapped")).expect("opens");
    let mut map = Map::new(&file, 6000, libc::MAP_SHARED).expect("mapped");
    drop(file);
    map.bytes()[0] = b'M';
    let mut child = Command::new("sh")
        .args(["-c", "read wait; cat there"])
        .current_dir(volume.path("cwd"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    make_files(&volume);
    wait_for_at_most(&volume, INODES_MAX);
    // Each was named as the oldest more than once.
    make_room_twice(&volume);
    let read = |file: &mut File| {
        let mut text = String::new();
        file.read_to_string(&mut text).expect("read");
        text
    };
    assert_eq!(read(&mut open), "open".repeat(1000));
    assert_eq!(read(&mut unlinked), "unlinked".repeat(1000));
    map.bytes()[1] = b'A';
    map.sync().expect("written back");
    drop(map);
    assert_eq!(fs::read_to_string(volume.path("mapped")).expect("read")[..6], *"MApped");
    drop(child.stdin.take());
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("read");
    assert!(child.wait().expect("ends").success());
    assert_eq!(text, "cwd/there".repeat(1000));
    drop((open, unlinked));
    volume.end();
}

fn make_room_twice(volume: &Volume) {
    for _ in 0..2 {
        printed(volume.shell("find . -type f -size +0"));
        wait_for_at_most(volume, INODES_MAX);
    }
}
