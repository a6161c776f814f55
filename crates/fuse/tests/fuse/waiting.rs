//! Requests that cannot be answered from memory.

use crate::content::pattern;
use crate::volume::Volume;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

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
