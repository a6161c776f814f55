use crate::sys::errno;
use crate::volume::Volume;
use crate::world::World;
use shoal_fuse::{MountError, MountOptions};
use std::fs::{self, File};
use std::io::Read;
use std::process::Command;
use std::time::Duration;

fn is_mounted(volume: &Volume) -> bool {
    let root = volume.root().to_str().expect("text");
    fs::read_to_string("/proc/mounts").expect("readable").lines().any(|line| line.contains(root))
}

#[test]
fn unmount_of_a_mount_in_use_fails_until_it_is_unused() {
    let volume = Volume::mount();
    fs::write(volume.path("file"), "x").expect("written");
    let mut file = File::open(volume.path("file")).expect("opens");
    assert!(matches!(volume.mounted.unmount(), Err(MountError::Busy { .. })));
    let mut text = String::new();
    file.read_to_string(&mut text).expect("still there");
    drop(file);
    volume.unmount();
    assert!(!is_mounted(&volume));
    volume.mounted.unmount().expect("once more is no error");
}

#[test]
fn umount_from_outside_ends_the_mount() {
    let volume = Volume::mount();
    fs::write(volume.path("file"), "x").expect("written");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            while !Command::new("umount").arg(volume.root()).status().expect("runs").success() {}
        });
        volume.mounted.wait().expect("a clean end");
    });
    assert!(volume.mounted.has_ended());
    volume.client.close().expect("committed");
}

#[test]
fn mount_in_use_can_be_detached_by_force() {
    let volume = Volume::mount();
    fs::write(volume.path("file"), "x").expect("written");
    let file = File::open(volume.path("file")).expect("opens");
    volume.mounted.abort().expect("ends");
    assert!(!is_mounted(&volume));
    let code = errno(file.metadata());
    assert!([0, libc::ENOTCONN, libc::ECONNABORTED].contains(&code), "{code}");
    assert_eq!(errno(file.sync_all()), libc::ENOTCONN);
}

#[test]
fn dropping_a_mount_ends_it() {
    let volume = Volume::mount();
    let root = volume.root().to_path_buf();
    let _open = File::open(&root).expect("opens");
    let Volume { mounted, .. } = volume;
    drop(mounted);
    assert!(!fs::read_to_string("/proc/mounts").unwrap().contains(root.to_str().unwrap()));
}

#[test]
fn what_was_written_before_the_unmount_is_there_after_it() {
    let volume = Volume::mount();
    for n in 0..500 {
        fs::write(volume.path(&n.to_string()), n.to_string()).expect("written");
    }
    let volume = volume.remount();
    for n in 0..500 {
        assert_eq!(fs::read_to_string(volume.path(&n.to_string())).expect("there"), n.to_string());
    }
}

#[test]
fn mount_options_reach_the_kernel() {
    let options = MountOptions {
        source: "pool/volume one".into(),
        nodev: true,
        nosuid: true,
        noexec: true,
        read_ahead_kib: 512,
        ..MountOptions::default()
    };
    let volume = Volume::mount_with(options);
    let mounts = fs::read_to_string("/proc/mounts").expect("readable");
    let root = volume.root().to_str().expect("text");
    let line = mounts.lines().find(|line| line.contains(root)).expect("mounted");
    for word in [
        "pool/volume\\040one ",
        "fuse.shoal",
        "nodev",
        "nosuid",
        "noexec",
        "default_permissions",
        "allow_other",
    ] {
        assert!(line.contains(word), "{word} in {line}");
    }
    let device = String::from_utf8(
        Command::new("stat").args(["-c", "%Hd:%Ld"]).arg(volume.root()).output().expect("runs").stdout,
    )
    .expect("text");
    let read_ahead = fs::read_to_string(format!("/sys/class/bdi/{}/read_ahead_kb", device.trim()));
    assert_eq!(read_ahead.expect("readable").trim(), "512");
}

#[test]
fn a_mount_point_must_be_a_directory() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let world = World::new();
    let mount = |path| shoal_fuse::mount(world.mount(), path, MountOptions::default()).map(drop);
    assert!(matches!(mount(file.path()), Err(MountError::Mountpoint { .. })));
    let missing = mount(std::path::Path::new("/no/such/directory"));
    assert!(matches!(missing, Err(MountError::Mountpoint { .. })));
}

#[test]
fn priming_file_is_not_visible() {
    let volume = Volume::mount();
    assert_eq!(fs::read_dir(volume.root()).expect("readable").count(), 0);
    assert!(!volume.path(".shoal-teaches-the-kernel-to-open").exists());
    File::create_new(volume.path(".shoal-teaches-the-kernel-to-open")).expect("a name like any other");
}
