//! Cold reads of a large file: at random, in strides, backward, in sequence, by one reader and by several.
//!
//! What a volume's mount fetches from bricks, divided by what was read, is printed for each pattern.

use crate::limits::{READS_BYTES, READS_READERS, READS_STRIDE_BYTES, goals};
use crate::measure::Bench;
use crate::side::Side;
use rand::seq::SliceRandom;
use rand::{RngCore, SeedableRng};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let sides = bench.sides()?;
    for side in &sides {
        write(&side.path().join("reads"))?;
    }
    let mut fetched = Vec::new();
    bench.alternate(&sides, |bench, side, run| {
        let path = side.path().join("reads");
        for pattern in patterns(run as u64) {
            side.make_cold()?;
            let before = side.fetched_bytes()?;
            let Pattern { what, record, readers } = &pattern;
            bench.time(side, what, Some(goals::READS), || read(&path, *record, readers))?;
            if let (Some(before), Some(after)) = (before, side.fetched_bytes()?) {
                let wanted: usize = readers.iter().map(|offsets| offsets.len() * record).sum();
                fetched.push((what.clone(), (after - before) as f64 / wanted as f64));
            }
        }
        Ok(())
    })?;
    let mut names: Vec<&String> = fetched.iter().map(|(what, _)| what).collect();
    names.dedup();
    for name in names.iter().take(names.len() / bench.runs.max(1)) {
        let of_it = fetched.iter().filter(|(what, _)| what == *name).map(|(_, ratio)| *ratio);
        let most = of_it.fold(0.0, f64::max);
        bench.facts.push(format!("{name}: at most {most:.2} bytes fetched per byte read"));
    }
    Ok(())
}

/// What is read, and in which order.
struct Pattern {
    what: String,
    /// Bytes of one read.
    record: usize,
    /// The offsets that each reader reads.
    readers: Vec<Vec<u64>>,
}

fn patterns(seed: u64) -> Vec<Pattern> {
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let mut patterns = Vec::new();
    for (record, count) in [(64 << 10, 1024), (256 << 10, 512), (1 << 20, 192), (4 << 20, 64)] {
        let mut offsets: Vec<u64> = (0..READS_BYTES / record as u64).map(|n| n * record as u64).collect();
        offsets.shuffle(&mut random);
        offsets.truncate(count);
        let what = format!("{count} random reads of {} KiB", record >> 10);
        patterns.push(Pattern { what, record, readers: vec![offsets] });
    }
    let strides = (0..READS_BYTES / READS_STRIDE_BYTES).map(|n| n * READS_STRIDE_BYTES).collect();
    patterns.push(Pattern {
        what: "256 KiB of each 1 MiB".into(),
        record: 256 << 10,
        readers: vec![strides],
    });
    let backward = (0..READS_BYTES / (1 << 20)).rev().map(|n| n << 20).collect();
    patterns.push(Pattern {
        what: "backward, records of 1 MiB".into(),
        record: 1 << 20,
        readers: vec![backward],
    });
    for readers in [1, READS_READERS] {
        let part = READS_BYTES / readers;
        let reader = |n: u64| (0..part / (1 << 20)).map(|record| n * part + (record << 20)).collect();
        let what = match readers {
            1 => "in sequence, records of 1 MiB".into(),
            readers => format!("{readers} readers in sequence, each of a part, records of 1 MiB"),
        };
        patterns.push(Pattern { what, record: 1 << 20, readers: (0..readers).map(reader).collect() });
    }
    patterns
}

fn write(path: &Path) -> anyhow::Result<()> {
    let mut data = vec![0; 1 << 20];
    rand::rng().fill_bytes(&mut data);
    let mut file = File::create(path)?;
    for _ in 0..READS_BYTES / data.len() as u64 {
        file.write_all(&data)?;
    }
    Ok(file.sync_all()?)
}

fn read(path: &Path, record: usize, readers: &[Vec<u64>]) -> anyhow::Result<()> {
    let one = |offsets: &Vec<u64>| -> anyhow::Result<()> {
        let (file, mut buffer) = (File::open(path)?, vec![0; record]);
        offsets.iter().try_for_each(|offset| Ok(file.read_exact_at(&mut buffer, *offset)?))
    };
    std::thread::scope(|scope| {
        let started: Vec<_> = readers.iter().map(|offsets| scope.spawn(move || one(offsets))).collect();
        started.into_iter().try_for_each(|reader| reader.join().expect("it does not panic"))
    })
}

impl Side {
    /// Bytes of blocks that the mount has fetched since it began; `None` of a plain directory.
    fn fetched_bytes(&self) -> anyhow::Result<Option<u64>> {
        self.client_figure("blocks_get_bytes_total")
    }
}
