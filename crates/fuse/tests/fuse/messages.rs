//! Which calls cost a message and which do not.

use crate::volume::{Volume, printed};
use std::fs::{self, File};
use std::io::Write;

fn tree(volume: &Volume) {
    printed(volume.shell(
        "for d in $(seq 20); do mkdir $d; for f in $(seq 20); do head -c 20000 /dev/zero > $d/$f; done; done",
    ));
}

fn count(requests: &[(&str, u64)], name: &str) -> u64 {
    requests.iter().filter(|(op, _)| *op == name).map(|(_, count)| count).sum()
}

#[test]
fn what_was_read_once_is_read_again_without_any_message() {
    let volume = Volume::mount();
    tree(&volume);
    let volume = volume.remount();
    let tar = || drop(printed(volume.shell("tar cf - . | cat > /dev/null")));
    let cold = volume.requests(tar);
    assert!(count(&cold, "read") >= 400, "{cold:?}");
    assert_eq!(volume.requests(tar), []);
}

#[test]
fn open_and_close_cost_nothing() {
    let volume = Volume::mount();
    fs::write(volume.path("file"), "x").expect("written");
    fs::metadata(volume.path("file")).expect("known to the kernel");
    let requests = volume.requests(|| {
        for _ in 0..10 {
            drop(File::open(volume.path("file")).expect("opens"));
            drop(File::open(volume.root()).expect("opens"));
        }
    });
    assert_eq!(requests, []);
}

#[test]
fn creating_the_very_first_file_sends_no_release() {
    let volume = Volume::mount();
    let requests = volume.requests(|| drop(File::create(volume.path("file")).expect("new")));
    assert_eq!(count(&requests, "create"), 1);
    for op in ["open", "release", "flush"] {
        assert_eq!(count(&requests, op), 0, "{requests:?}");
    }
}

#[test]
fn a_listing_brings_the_attributes_of_all_its_files() {
    let volume = Volume::mount();
    printed(volume.shell("mkdir d; cd d; touch $(seq 3000)"));
    let volume = volume.remount();
    let requests = volume.requests(|| drop(printed(volume.shell("find d -size +1"))));
    assert!(count(&requests, "readdirplus") < 100, "{requests:?}");
    assert!(count(&requests, "lookup") < 10, "{requests:?}");
    assert!(count(&requests, "getattr") < 10, "{requests:?}");
}

#[test]
fn absent_name_is_looked_up_once() {
    let volume = Volume::mount();
    let missing = volume.path("missing");
    assert!(!missing.exists());
    assert_eq!(volume.requests(|| assert!(!missing.exists())), []);
}

#[test]
fn a_megabyte_is_written_in_one_message() {
    let volume = Volume::mount();
    let mut file = File::create(volume.path("file")).expect("new");
    let requests = volume.requests(|| file.write_all(&vec![1; 4 << 20]).expect("written"));
    assert_eq!(count(&requests, "write"), 4, "{requests:?}");
}

#[test]
fn unpacking_a_small_file_costs_what_the_kernel_cannot_help() {
    let volume = Volume::mount();
    printed(volume.shell("mkdir src; cd src; for f in $(seq 100); do head -c 9000 /dev/zero > $f; done"));
    printed(volume.shell("tar cf ../archive.tar src && mkdir dst"));
    let requests = volume.requests(|| drop(printed(volume.shell("tar xf ../archive.tar -C dst"))));
    let total: u64 = requests.iter().map(|(_, count)| count).sum();
    assert!(total <= 100 * 11 + 50, "{requests:?}");
    // Everything is answered on the reading threads.
    let slow: u64 = volume.stats().ops.iter().filter(|op| op.name != "statfs").map(|op| op.slow).sum();
    assert!(slow <= 10, "{:?}", volume.stats());
}

#[test]
fn latencies_are_recorded_by_kind() {
    let volume = Volume::mount();
    fs::write(volume.path("file"), "x").expect("written");
    let file = File::open(volume.path("file")).expect("opens");
    file.sync_all().expect("durable");
    let stats = volume.stats();
    let fsync = stats.ops.iter().find(|op| op.name == "fsync").expect("counted");
    assert_eq!((fsync.count, fsync.slow, fsync.errors), (1, 1, 0));
    assert!(fsync.mean_ns() > 0 && fsync.quantile_ns(1.0) >= fsync.mean_ns());
    assert_eq!(stats.slow_queued, 0);
}
