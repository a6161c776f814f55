//! One large file, written and read cold with fio: in records of several sizes, in sequence, at random, in
//! strides and backward; then several files by several mounts at once.
//!
//! What a volume's mount fetches from bricks, divided by what was read, is printed for each pattern.

use crate::fio::Job;
use crate::limits::{
    STREAM_BYTES, STREAM_CLIENT_BYTES, STREAM_CLIENT_RECORD_BYTES, STREAM_CLIENTS, STREAM_RANDOM_BYTES_MAX,
    STREAM_RANDOM_READS_MAX, STREAM_RECORD_BYTES, STREAM_STRIDES, goals,
};
use crate::measure::Bench;
use crate::side::Side;
use std::collections::BTreeMap;
use std::fs;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    one(bench)?;
    // One process that is server and mount mounts once.
    if bench.nodes > 0 { several(bench) } else { Ok(()) }
}

/// One file and one thread.
fn one(bench: &mut Bench) -> anyhow::Result<()> {
    let goal = if bench.nodes == 0 { goals::STREAM_WRITE } else { goals::STREAM_WRITE_COPIES };
    let mut fetched: BTreeMap<String, f64> = BTreeMap::new();
    let sides = bench.sides()?;
    bench.alternate(&sides, |bench, side, _| {
        let path = side.path().join("stream");
        for &record in STREAM_RECORD_BYTES {
            let what = format!("write {}, fsync, records of {}", size(STREAM_BYTES), size(record));
            // Overwriting would free the old blocks beside it.
            fs::remove_file(&path).or_else(|error| if path.exists() { Err(error) } else { Ok(()) })?;
            side.sync()?;
            let seconds = Job::whole(&path, "write", record, STREAM_BYTES).run()?;
            bench.keep(side, &what, (record >= 64 << 10).then_some(goal), seconds);
        }
        for (what, goal, mut job) in reads() {
            job.files = vec![path.clone()];
            side.make_cold()?;
            let before = side.fetched_bytes()?;
            bench.keep(side, &what, goal, job.run()?);
            if let (Some(before), Some(after)) = (before, side.fetched_bytes()?) {
                let most = fetched.entry(what).or_default();
                *most = most.max((after - before) as f64 / job.bytes as f64);
            }
        }
        fs::remove_file(&path)?;
        side.sync()
    })?;
    let note = |(what, most): (String, f64)| format!("{what}: at most {most:.2} bytes fetched per byte read");
    bench.facts.extend(fetched.into_iter().map(note));
    Ok(())
}

/// What is read of the one file, with its goal.
fn reads() -> Vec<(String, Option<f64>, Job)> {
    let job = |pattern: String, record, bytes| Job {
        files: Vec::new(),
        pattern,
        record,
        size: STREAM_BYTES,
        bytes,
    };
    let mut all = Vec::new();
    for &record in STREAM_RECORD_BYTES {
        let what = format!("read {} in sequence, records of {}", size(STREAM_BYTES), size(record));
        all.push((what, Some(goals::STREAM_READ), job("read".into(), record, STREAM_BYTES)));
    }
    for &record in STREAM_RECORD_BYTES {
        let reads = (STREAM_RANDOM_BYTES_MAX / record).min(STREAM_RANDOM_READS_MAX);
        let what = format!("{reads} random reads of {}", size(record));
        let goal = (record >= 64 << 10).then_some(goals::STREAM_RANDOM);
        all.push((what, goal, job("randread".into(), record, reads * record)));
    }
    for &(record, step) in STREAM_STRIDES {
        let what = format!("{} of each {}", size(record), size(step));
        let pattern = format!("read:{}", step - record);
        all.push((what, Some(goals::STREAM_RANDOM), job(pattern, record, STREAM_BYTES / step * record)));
    }
    all
}

/// Several mounts, each with a file of its own.
fn several(bench: &mut Bench) -> anyhow::Result<()> {
    let most = STREAM_CLIENTS.iter().copied().max().unwrap_or(1);
    let sides = bench.sides_with_mounts(most)?;
    bench.alternate(&sides, |bench, side, _| {
        for &clients in STREAM_CLIENTS {
            let files = (0..clients).map(|client| side.mount(client).join(format!("stream{client}")));
            let mut job = Job::whole(&side.path(), "write", STREAM_CLIENT_RECORD_BYTES, STREAM_CLIENT_BYTES);
            job.files = files.collect();
            let with =
                |what: &str| format!("{what} {} on each of {clients} mounts", size(STREAM_CLIENT_BYTES));
            bench.keep(side, &with("write"), Some(goals::STREAM_WRITE_COPIES), job.run()?);
            side.make_cold()?;
            job.pattern = "read".into();
            bench.keep(side, &with("read"), Some(goals::STREAM_READ), job.run()?);
            for file in &job.files {
                fs::remove_file(file)?;
            }
            side.sync()?;
        }
        Ok(())
    })
}

/// A length in words.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 1 << 20 => format!("{} KiB", bytes >> 10),
        bytes if bytes < 1 << 30 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} GiB", bytes >> 30),
    }
}

impl Side {
    /// Bytes of blocks that the mount has fetched since it began; `None` of a plain directory.
    fn fetched_bytes(&self) -> anyhow::Result<Option<u64>> {
        self.client_figure("blocks_get_bytes_total")
    }
}
