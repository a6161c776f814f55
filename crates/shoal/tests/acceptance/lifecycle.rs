//! The commands around a volume: up, mount, umount, status, stats, sync, fsck, export.

use crate::harness::tree::assert_same;
use crate::harness::volume::{mounted, scratch, shoal};
use crate::harness::{Volume, plain};
use crate::programs::make_tree;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn what_is_written_is_there_after_unmounting_and_mounting_again() {
    let mut volume = Volume::start("lifecycle");
    let local = volume.local().join("tree");
    make_tree(&local, 300);
    make_tree(&volume.path().join("tree"), 300);
    for _ in 0..3 {
        volume.remount();
        assert_same(&volume.path().join("tree"), &local, false);
    }
    volume.stop();
    volume.fsck();
}

#[test]
fn up_in_the_background_mounts_and_umount_stops_it() {
    if plain() {
        return;
    }
    let dir = scratch("background");
    let (data, mount) = (dir.path().join("data"), dir.path().join("mnt"));
    let up =
        || shoal().arg("up").arg("--data").arg(&data).arg("--mount").arg(&mount).arg("--background").ok();
    let lines = up();
    assert!(mounted(&mount));
    assert!(
        (1..=3).contains(&lines.lines().count()) && lines.contains(mount.to_str().expect("UTF-8")),
        "{lines}"
    );
    fs::write(mount.join("file"), b"content").expect("write");
    // Saying it again changes nothing.
    let again = up();
    assert!(again.contains("already"), "{again}");
    assert_eq!(fs::read(mount.join("file")).expect("read"), b"content");

    let status = shoal().arg("status").arg(&mount).ok();
    assert!(status.contains(mount.to_str().expect("UTF-8")), "{status}");
    shoal().arg("sync").arg(&mount).ok();
    let stats = shoal().arg("stats").arg(&mount).ok();
    assert!(stats.contains("kernel requests"), "{stats}");
    shoal().arg("umount").arg(&mount).ok();
    assert!(!mounted(&mount));

    // The data directory is all there is: another mount point will do.
    let other = dir.path().join("other");
    fs::create_dir(&other).expect("mkdir");
    shoal().arg("mount").arg(&data).arg(&other).ok();
    assert_eq!(fs::read(other.join("file")).expect("read"), b"content");
    shoal().arg("umount").arg(&other).ok();
    assert!(!mounted(&other));
    shoal().arg("fsck").arg("--data").arg(&data).ok();
}

#[test]
fn mount_that_is_in_use_is_detached_and_its_process_is_ended_by_the_command_that_is_named() {
    if plain() {
        return;
    }
    let dir = scratch("lazy");
    let (data, mount) = (dir.path().join("data"), dir.path().join("mnt"));
    let up = || shoal().arg("up").arg("--data").arg(&data).arg("--mount").arg(&mount).arg("--background");
    up().ok();
    let user = crate::harness::sh(&mount, "echo content >file; exec sleep 60").start();
    eventually("the program has begun", 10, || mount.join("file").exists());
    let busy = shoal().arg("umount").arg(&mount).outcome();
    assert!(busy.stderr.contains("umount --lazy"), "{busy}");
    let detached = shoal().arg("umount").arg("--lazy").arg(&mount).ok();
    assert!(!mounted(&mount) && detached.contains("(sleep): works in"), "{detached}");
    let kill = detached.split('`').nth(1).expect("a command is named");
    let again = up().outcome();
    assert!(again.stderr.contains(&format!("`{kill}`")), "the same command is named: {again}");
    crate::harness::sh(dir.path(), kill).ok();
    eventually("the data directory is free", 20, || shoal_data_is_free(&data));
    drop(user);
    up().ok();
    assert_eq!(fs::read_to_string(mount.join("file")).expect("read"), "content\n");
    shoal().arg("umount").arg(&mount).ok();
}

/// Whether a volume of this machine can be checked, which takes its data directory for itself.
fn shoal_data_is_free(data: &Path) -> bool {
    let checked = shoal().arg("fsck").arg("--data").arg(data).outcome();
    checked.status.is_some_and(|status| status.success())
}

fn eventually(what: &str, seconds: u64, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(seconds);
    while !is_so() {
        assert!(Instant::now() < until, "{what}, after {seconds} s");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_data_directory_in_use_is_refused_to_others() {
    if plain() {
        return;
    }
    let volume = Volume::start("in-use");
    let other = volume.local();
    for arguments in
        [["mount", "DATA", "OTHER"], ["fsck", "--data", "DATA"], ["up", "--data=DATA", "--mount=OTHER"]]
    {
        let fill = |word: &str| {
            word.replace("DATA", &volume.data().display().to_string())
                .replace("OTHER", &other.display().to_string())
        };
        let command = arguments.iter().fold(shoal(), |command, word| command.arg(fill(word)));
        let outcome = command.limit(30).outcome();
        assert!(outcome.status.is_some_and(|status| !status.success()), "{outcome}");
        assert!(outcome.stderr.contains("in use") || outcome.stderr.contains("process"), "{outcome}");
        assert!(!mounted(&other));
    }
}

#[test]
fn export_writes_the_volume_out_as_plain_files() {
    if plain() {
        return;
    }
    let mut volume = Volume::start("export");
    let tree = volume.path().join("tree");
    make_tree(&tree, 400);
    fs::write(tree.join("large"), vec![3; 11 << 20]).expect("write");
    crate::harness::sh(&tree, "mkfifo fifo; setfattr -n user.a -v b file-0; touch -d 2001-02-03T04:05:06.789 file-1; truncate -s 1G sparse").ok();
    let copy = volume.local().join("copy");
    crate::harness::sh(volume.path(), &format!("cp -a --sparse=always tree {}", copy.display())).ok();
    volume.stop();
    let out = volume.local().join("out");
    shoal().arg("export").arg("--data").arg(volume.data()).arg(&out).ok();
    assert_same(&out.join("tree"), &copy, true);
    assert!(
        fs::metadata(out.join("tree/sparse"))
            .is_ok_and(|meta| std::os::unix::fs::MetadataExt::blocks(&meta) < 1000)
    );
}

#[test]
fn export_of_a_mount_writes_plain_files_and_goes_on_where_it_ended() {
    if plain() {
        return;
    }
    let volume = Volume::start("export-mount");
    let tree = volume.path().join("tree");
    make_tree(&tree, 200);
    crate::harness::sh(
        &tree,
        "ln file-0 again; mkfifo fifo; setfattr -n user.a -v b file-0; truncate -s 1G sparse",
    )
    .ok();
    let copy = volume.local().join("copy");
    crate::harness::sh(volume.path(), &format!("cp -a --sparse=always tree {}", copy.display())).ok();
    let out = volume.local().join("out");
    let export = |to: &Path| shoal().arg("export").arg("--mount").arg(&tree).arg("--verify").arg(to);
    export(&out).ok();
    assert_same(&out, &copy, true);
    fs::remove_file(out.join("file-1")).expect("an exported file can be removed");
    export(&out).ok();
    assert_same(&out, &copy, true);
    let inside = export(&volume.path().join("inside")).outcome();
    assert!(inside.stderr.contains("in the volume itself"), "{inside}");
}

#[test]
fn interrupting_a_server_in_the_foreground_unmounts_cleanly() {
    if plain() {
        return;
    }
    let mut volume = Volume::start("interrupt");
    fs::write(volume.path().join("file"), b"not synced").expect("write");
    volume.interrupt();
    volume.fsck();
    volume.restart();
    assert_eq!(fs::read(volume.path().join("file")).expect("read"), b"not synced");
}
