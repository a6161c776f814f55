//! One large file, in records of several sizes.

use crate::limits::{STREAM_BYTES, STREAM_RECORD_BYTES, goals};
use crate::measure::Bench;
use anyhow::ensure;
use rand::RngCore;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let sides = bench.sides()?;
    for &record in STREAM_RECORD_BYTES {
        let size =
            if record < 1 << 20 { format!("{} KiB", record >> 10) } else { format!("{} MiB", record >> 20) };
        // Random bytes: neither side may win by compressing.
        let mut data = vec![0; record];
        rand::rng().fill_bytes(&mut data);
        bench.alternate(&sides, |bench, side, _| {
            let path = side.path().join("stream");
            let named = |what: &str| format!("{what}, records of {size}");
            bench.time(side, &named("write 2 GiB, fsync"), Some(goals::STREAM), || write(&path, &data))?;
            side.make_cold()?;
            bench.time(side, &named("read 2 GiB, cold"), Some(goals::STREAM), || read(&path, record))?;
            bench.time(side, &named("read 2 GiB, warm"), Some(goals::STREAM), || read(&path, record))?;
            fs::remove_file(&path)?;
            side.sync()
        })?;
    }
    Ok(())
}

fn write(path: &Path, data: &[u8]) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    for _ in 0..STREAM_BYTES / data.len() as u64 {
        file.write_all(data)?;
    }
    file.sync_all()?;
    Ok(())
}

fn read(path: &Path, record: usize) -> anyhow::Result<()> {
    let (mut file, mut buffer, mut total) = (File::open(path)?, vec![0; record], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            more => total += more as u64,
        }
    }
    ensure!(total == STREAM_BYTES, "{} has {total} bytes", path.display());
    Ok(())
}
