//! The budget of memory: held by 64 streams at once, and given back afterwards.

use crate::harness::volume::{scratch, shoal};
use crate::harness::{Volume, plain, sh};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The budget of the process, which is client, server and brick.
const BUDGET_MIB: u64 = 128;
/// What the process may have beside its budget: the program itself (24 MiB), stacks of a hundred threads,
/// batches on their way through the log, and what the allocator has not given back yet.
const ALLOWANCE_MIB: u64 = 80;
/// What it may have some time after the last call: the cache of metadata and the store's stay.
const IDLE_MIB: u64 = 120;
/// Content leaves the block cache after 30 s, and the allocator gives pages back a second later.
const IDLE_WITHIN: Duration = Duration::from_secs(90);
const STREAMS: u8 = 64;
const STREAM_MIB: u64 = 12;
/// The slowest stream has its turn, too: it takes at most so many times as long as the fastest one.
const UNFAIR_MAX: f64 = 8.0;

fn figure(volume: &Volume, list: &str, name: &str) -> u64 {
    let json = shoal().arg("stats").arg(volume.path()).arg("--json").ok();
    let stats: serde_json::Value = serde_json::from_str(&json).expect("stats --json prints JSON");
    let found = stats[list].as_array().and_then(|all| all.iter().find(|one| one["name"] == name));
    found.and_then(|one| one["value"].as_u64()).unwrap_or_else(|| panic!("no {name} in {stats}"))
}

/// A line of `/proc/PID/status`, in MiB: `VmHWM` is the largest resident size so far.
fn status_mib(volume: &Volume, name: &str) -> u64 {
    let pid = volume.pid().expect("the server runs");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("a process has a status");
    let line = status.lines().find(|line| line.starts_with(name)).expect("the line is there");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
}

fn assert_within_budget(volume: &Volume, when: &str) {
    let (peak, most) = (status_mib(volume, "VmHWM"), BUDGET_MIB + ALLOWANCE_MIB);
    eprintln!("{when}: {peak} MiB at most, {} MiB now", status_mib(volume, "VmRSS"));
    assert!(peak <= most, "{when}: {peak} MiB were resident, {most} are allowed:\n{}", volume.log());
}

fn each_stream(dir: &Path, work: impl Fn(u8, PathBuf) + Sync) {
    let work = &work;
    let took: Vec<f64> = thread::scope(|scope| {
        let run = |stream: u8| {
            let path = dir.join(format!("stream-{stream}"));
            move || {
                let begun = Instant::now();
                work(stream, path);
                begun.elapsed().as_secs_f64()
            }
        };
        let streams: Vec<_> = (0..STREAMS).map(|stream| scope.spawn(run(stream))).collect();
        streams.into_iter().map(|stream| stream.join().expect("a stream ends well")).collect()
    });
    let (fastest, slowest) = took.iter().fold((f64::MAX, 0f64), |(a, b), one| (a.min(*one), b.max(*one)));
    eprintln!("the fastest stream took {fastest:.2} s, the slowest {slowest:.2} s");
    assert!(slowest <= UNFAIR_MAX * fastest.max(1.0), "{slowest:.1} s and {fastest:.1} s: a stream starved");
}

/// What a stream has at this place, in MiB.
fn content(stream: u8, at: u64) -> Vec<u8> {
    (0..MIB).map(|byte| (byte as u8).wrapping_mul(stream | 1) ^ (at as u8) ^ (byte >> 8) as u8).collect()
}

#[test]
fn mount_with_64_streams_keeps_to_a_small_budget_and_gives_memory_back() {
    if plain() {
        return;
    }
    let dir = scratch("memory");
    let data = dir.path().join("data");
    let mut volume = Volume::start_with(dir, data, &["-o", &format!("memory={BUDGET_MIB}MiB")]);
    assert_eq!(figure(&volume, "client", "memory_limit_bytes"), BUDGET_MIB * MIB);
    let write = |stream: u8, path: PathBuf| {
        let mut file = File::create(path).expect("create");
        (0..STREAM_MIB).for_each(|at| file.write_all(&content(stream, at)).expect("write"));
        file.sync_all().expect("fsync");
    };
    each_stream(volume.path(), write);
    assert_within_budget(&volume, "64 writers");
    volume.remount();
    let read = |stream: u8, path: PathBuf| {
        let mut file = File::open(path).expect("open");
        let mut buffer = vec![0; MIB as usize];
        for at in 0..STREAM_MIB {
            file.read_exact(&mut buffer).expect("read");
            assert!(buffer == content(stream, at), "stream {stream} differs in MiB {at}");
        }
    };
    each_stream(volume.path(), read);
    assert_within_budget(&volume, "64 readers");
    // Half of them read while the others write, with many small files besides.
    volume.remount();
    let small = || {
        for number in 0..20_000 {
            let dir = volume.path().join(format!("dir-{}", number / 500));
            fs::create_dir_all(&dir).expect("mkdir");
            fs::write(dir.join(format!("file-{number}")), [7; 2000]).expect("write");
        }
    };
    thread::scope(|scope| {
        scope.spawn(small);
        each_stream(volume.path(), |stream, path| match stream % 2 {
            0 => read(stream, path),
            _ => write(stream, path.with_extension("new")),
        });
    });
    assert_within_budget(&volume, "readers, writers and small files");
    assert_eq!(sh(volume.path(), "find . -type f | wc -l").ok().trim(), "20096");
    let until = Instant::now() + IDLE_WITHIN;
    while status_mib(&volume, "VmRSS") > IDLE_MIB {
        let now = status_mib(&volume, "VmRSS");
        assert!(Instant::now() < until, "{now} MiB are still resident:\n{}", volume.log());
        thread::sleep(Duration::from_millis(200));
    }
    eprintln!("idle: {} MiB", status_mib(&volume, "VmRSS"));
    volume.stop();
    volume.fsck();
}

#[test]
fn budget_below_the_minimum_is_refused_with_what_is_needed() {
    if plain() {
        return;
    }
    let dir = scratch("memory-least");
    let mount = dir.path().join("mnt");
    let refused = shoal()
        .arg("up")
        .arg("--options=memory=63MiB")
        .arg("--data")
        .arg(dir.path().join("data"))
        .arg("--mount")
        .arg(&mount)
        .outcome();
    let said = refused.to_string();
    assert!(said.contains("memory") && said.contains("64 MiB at least"), "{said}");
}
