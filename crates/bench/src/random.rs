//! Small random writes, each with an fsync, like those of databases.

use crate::limits::{RANDOM_FILE_BYTES, RANDOM_RECORD_BYTES, RANDOM_WRITES};
use crate::measure::Bench;
use rand::{Rng, SeedableRng};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let sides = bench.sides()?;
    let data = vec![b'r'; RANDOM_RECORD_BYTES];
    bench.alternate(&sides, |bench, side, run| {
        let path = side.path().join("random");
        let mut file = File::create(&path)?;
        for _ in 0..RANDOM_FILE_BYTES >> 20 {
            file.write_all(&[b'f'; 1 << 20])?;
        }
        file.sync_all()?;
        // The same places on both sides.
        let mut random = rand::rngs::StdRng::seed_from_u64(run as u64);
        let what = format!("{RANDOM_WRITES} random writes of 4 KiB, each with fsync");
        bench.time(side, &what, None, || {
            for _ in 0..RANDOM_WRITES {
                let record = random.random_range(0..RANDOM_FILE_BYTES / RANDOM_RECORD_BYTES as u64);
                file.write_all_at(&data, record * RANDOM_RECORD_BYTES as u64)?;
                file.sync_all()?;
            }
            Ok(())
        })?;
        drop(file);
        fs::remove_file(&path)?;
        side.sync()
    })
}
