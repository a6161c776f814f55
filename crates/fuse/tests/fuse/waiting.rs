//! Requests that cannot be answered from memory.

use crate::content::pattern;
use crate::gate::Gate;
use crate::volume::Volume;
use shoal_client::{Client, Options};
use shoal_fuse::MountOptions;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

#[test]
fn those_who_wait_hold_up_nobody_else() {
    const WAITING: usize = 20;
    let volume = Volume::mount();
    fs::write(volume.path("known"), "warm").expect("written");
    for n in 0..WAITING {
        fs::create_dir(volume.path(&n.to_string())).expect("new");
    }
    let world = volume.end();
    let gate = Gate::new(world.group.clone());
    let client = Client::open(gate.clone(), world.bricks.clone(), Options::default()).expect("a session");
    let options = MountOptions { readers: 2, ..MountOptions::default() };
    let volume = Volume::mount_client(world, client, options);
    fs::read(volume.path("known")).expect("known from now on");
    gate.shut();
    std::thread::scope(|scope| {
        for n in 0..WAITING {
            let path = volume.path(&n.to_string());
            scope.spawn(move || fs::read_dir(path).expect("at last").count());
        }
        // Far more of them wait than there are threads that read requests.
        let (start, mut rounds) = (Instant::now(), 0);
        while volume.stats().count("readdirplus") == 0 && start.elapsed() < Duration::from_millis(200) {
            fs::write(volume.path("known"), "changed").expect("written");
            assert_eq!(fs::read(volume.path("known")).expect("read"), b"changed");
            rounds += 1;
        }
        assert!(rounds > 10, "{rounds} rounds");
        assert_eq!(volume.stats().count("readdirplus"), 0, "nobody was answered yet");
        gate.open();
    });
    assert!(volume.stats().count("readdirplus") >= WAITING as u64);
}

#[test]
fn many_cold_readers_all_get_their_bytes() {
    let volume = Volume::mount();
    for n in 0..50 {
        fs::write(volume.path(&n.to_string()), pattern(300_000 + n)).expect("written");
    }
    let volume = volume.remount();
    std::thread::scope(|scope| {
        for n in 0..50 {
            let path = volume.path(&n.to_string());
            scope.spawn(move || assert!(fs::read(path).expect("read") == pattern(300_000 + n)));
        }
    });
    assert!(volume.stats().ops.iter().any(|op| op.name == "read" && op.slow > 0));
}

#[test]
fn many_fsyncs_at_once_all_return() {
    let volume = Volume::mount();
    std::thread::scope(|scope| {
        for n in 0..100u64 {
            let file = File::create(volume.path(&n.to_string())).expect("new");
            scope.spawn(move || {
                for round in 0..10 {
                    file.write_all_at(b"x", round).expect("written");
                    file.sync_all().expect("durable");
                }
            });
        }
    });
    assert_eq!(volume.stats().count("fsync"), 1000);
}

#[test]
fn a_lost_write_is_reported_by_fsync() {
    let volume = Volume::mount();
    let file = File::create(volume.path("file")).expect("new");
    volume.world.bricks.broken.store(true, std::sync::atomic::Ordering::SeqCst);
    let written = file.write_all_at(&pattern(8 << 20), 0);
    assert!(written.is_err() || file.sync_all().is_err());
}
