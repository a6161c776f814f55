//! Requests that cannot be answered from memory.

use crate::content::pattern;
use crate::gate::{Gate, Lone};
use crate::volume::Volume;
use shoal_client::{Client, Options};
use shoal_fuse::MountOptions;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A mount of so many directories that are not cached, whose servers do not answer until the gate is opened.
/// The file `known` is cached, and the mount may change it.
fn mount_behind_a_shut_gate(directories: usize, options: MountOptions) -> (Volume, Arc<Gate>) {
    let volume = Volume::mount();
    fs::write(volume.path("known"), "warm").expect("written");
    for n in 0..directories {
        fs::create_dir(volume.path(&n.to_string())).expect("new");
    }
    let world = volume.end();
    let gate = Gate::new(world.group.clone());
    let client = Client::open(gate.clone(), world.bricks.clone(), Options::default()).expect("a session");
    let volume = Volume::mount_client(world, client, options);
    fs::write(volume.path("known"), "changed").expect("known from now on, and ours to change");
    gate.shut();
    (volume, gate)
}

#[test]
fn waiting_requests_do_not_delay_others() {
    const WAITING: usize = 20;
    let options = MountOptions { readers: 2, ..MountOptions::default() };
    let (volume, gate) = mount_behind_a_shut_gate(WAITING, options);
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
        assert_eq!(volume.stats().count("readdirplus"), 0, "no request was answered yet");
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

#[test]
fn waiting_requests_delay_no_other_and_are_answered_however_many_they_are() {
    const WAITING: usize = 400;
    const THREADS: usize = 4;
    let options = MountOptions { readers: 2, slow_threads: THREADS, ..MountOptions::default() };
    let (volume, gate) = mount_behind_a_shut_gate(WAITING, options);
    let (queued, wrote, opened) = std::thread::scope(|scope| {
        for n in 0..WAITING {
            let path = volume.path(&n.to_string());
            scope.spawn(move || fs::read_dir(path).expect("at last").count());
        }
        let start = Instant::now();
        let all_wait = || volume.stats().slow_queued + THREADS >= WAITING;
        while !all_wait() && start.elapsed() < PROMPT {
            std::thread::sleep(Duration::from_millis(5));
        }
        let queued = volume.stats().slow_queued;
        let start = Instant::now();
        if all_wait() {
            fs::write(volume.path("known"), "once more").expect("written");
        }
        let wrote = start.elapsed();
        gate.open();
        (queued, wrote, Instant::now())
    });
    assert!(queued + THREADS >= WAITING, "{queued} wait, and the others of {WAITING} were not taken");
    assert!(wrote < PROMPT && opened.elapsed() < PROMPT, "{wrote:?}, {:?}", opened.elapsed());
}

#[test]
fn reads_that_wait_for_bricks_do_not_delay_a_listing() {
    const THREADS: usize = 2;
    let volume = Volume::mount();
    for n in 0..THREADS {
        fs::write(volume.path(&n.to_string()), pattern(300_000)).expect("written");
    }
    fs::create_dir(volume.path("dir")).expect("new");
    let options = MountOptions { slow_threads: THREADS, ..MountOptions::default() };
    let volume = Volume::mount_world(volume.end(), options);
    let away = &volume.world.bricks.away;
    away.store(true, SeqCst);
    let listed = std::thread::scope(|scope| {
        for n in 0..THREADS {
            let path = volume.path(&n.to_string());
            scope.spawn(move || assert!(fs::read(path).expect("at last") == pattern(300_000)));
        }
        let has_thread = |line: &&String| line.starts_with("READ") && !line.contains("waits for thread");
        let start = Instant::now();
        while volume.mounted.in_flight().iter().filter(has_thread).count() < THREADS {
            assert!(start.elapsed() < PROMPT, "{:?}", volume.mounted.in_flight());
            std::thread::sleep(Duration::from_millis(5));
        }
        let (tell, listed) = mpsc::channel();
        let dir = volume.path("dir");
        scope.spawn(move || tell.send(fs::read_dir(dir).expect("read").count()));
        let listed = listed.recv_timeout(PROMPT);
        away.store(false, SeqCst);
        listed
    });
    assert_eq!(listed, Ok(0));
}

#[test]
fn killed_program_ends_while_its_listing_waits_for_a_server() {
    let (volume, gate) = mount_behind_a_shut_gate(1, MountOptions::default());
    let mut program = Command::new("ls").arg(volume.path("0")).spawn().expect("runs");
    let start = Instant::now();
    while gate.waiting() == 0 && start.elapsed() < PROMPT {
        std::thread::sleep(Duration::from_millis(5));
    }
    program.kill().expect("sent");
    let start = Instant::now();
    while program.try_wait().expect("a child").is_none() && start.elapsed() < PROMPT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_shut = gate.waiting() > 0;
    gate.open();
    program.wait().expect("a child");
    assert!(is_shut && start.elapsed() < PROMPT, "{:?}", start.elapsed());
}

/// Programs wait for a cluster without a leader, far more of them than there are threads;
/// then `end` ends the mount.
fn end_while_they_wait(end: impl FnOnce(&Volume)) {
    const WAITING: usize = 200;
    const THREADS: usize = 2;
    let volume = Volume::mount();
    for n in 0..WAITING {
        fs::create_dir(volume.path(&n.to_string())).expect("new");
    }
    let world = volume.end();
    let gate = Gate::new(world.group.clone());
    let options = Options { close_wait: Duration::from_millis(100), ..Options::default() };
    let replicas = Arc::new(Lone(gate.clone()));
    let client = Client::open_replicated(replicas, world.bricks.clone(), options).expect("a session");
    let few = MountOptions { readers: 2, slow_threads: THREADS, ..MountOptions::default() };
    let volume = Volume::mount_client(world, client, few);
    assert_eq!(fs::read_dir(volume.root()).expect("read").count(), WAITING);
    fs::write(volume.path("lost"), "in memory").expect("written");
    gate.depose();
    std::thread::scope(|scope| {
        let start = Instant::now();
        for n in 0..WAITING {
            let path = volume.path(&n.to_string());
            scope.spawn(move || {
                fs::read_dir(path).and_then(|mut names| names.next().transpose()).expect_err("no answer")
            });
        }
        while volume.stats().slow_queued + THREADS < WAITING {
            assert!(start.elapsed() < PROMPT, "{} wait", volume.stats().slow_queued);
            std::thread::sleep(Duration::from_millis(5));
        }
        let start = Instant::now();
        end(&volume);
        volume.mounted.wait().expect("an end");
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    });
    let start = Instant::now();
    assert_eq!(volume.client.close(), Err(shoal_types::Errno::EIO), "what was lost is reported");
    assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
}

/// Longest acceptable time for a mount to end.
const PROMPT: Duration = Duration::from_secs(15);

#[test]
fn a_mount_of_a_dead_cluster_can_be_aborted() {
    end_while_they_wait(|volume| volume.mounted.abort().expect("aborts"));
}

#[test]
fn a_mount_of_a_dead_cluster_can_be_taken_away_from_outside() {
    end_while_they_wait(|volume| {
        let umount = Command::new("umount").args(["-f", "-l"]).arg(volume.root()).status();
        assert!(umount.expect("runs").success());
    });
}
