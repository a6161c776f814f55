//! Erasure coding alone, on one core: bytes of block per second.

use crate::limits::{CODING_BLOCK_BYTES, CODING_PART_BYTES, CODING_ROUNDS, CODING_SCHEMES};
use crate::measure::Bench;
use anyhow::{Context, ensure};
use bytes::Bytes;
use rand::RngCore;
use shoal_coding::{Coder, CodingError, Layout, Scheme, Shard};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The median of several rounds.
fn median<T>(mut work: impl FnMut() -> Result<T, CodingError>) -> Result<Duration, CodingError> {
    let mut times = Vec::with_capacity(CODING_ROUNDS);
    for _ in 0..CODING_ROUNDS {
        let begun = Instant::now();
        black_box(work()?);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times[CODING_ROUNDS / 2])
}

/// Encodes and decodes blocks of the largest size, with one shard and with as many lost as may be, and a
/// small part of a lost shard, as a degraded small read does.
pub fn run(_: &mut Bench) -> anyhow::Result<()> {
    let mut content = vec![0; CODING_BLOCK_BYTES];
    rand::rng().fill_bytes(&mut content);
    let block = Bytes::from(content);
    println!("coding, one core, blocks of {} MiB", CODING_BLOCK_BYTES >> 20);
    println!(
        "scheme   encode GB/s   decode 1 lost   decode m lost   {} KiB of a lost shard, us",
        CODING_PART_BYTES >> 10
    );
    for (data, parity) in CODING_SCHEMES {
        let scheme = Scheme::new(*data, *parity).context("no such scheme")?;
        let layout = Layout { scheme, len: block.len() as u32 };
        let mut coder = Coder::new();
        let shards = coder.encode(scheme, &block)?;
        ensure!(coder.decode(layout, &shards[*parity..])? == block, "{scheme} decodes to something else");
        let rate = |time: Duration| block.len() as f64 / time.as_secs_f64() / 1e9;
        let encode = median(|| coder.encode(scheme, &block))?;
        let one = median(|| coder.decode(layout, &shards[1..]))?;
        let all = median(|| coder.decode(layout, &shards[*parity..]))?;
        let parts: Option<Vec<Shard>> =
            shards[1..=*data].iter().map(|shard| shard.part(scheme, 0..CODING_PART_BYTES)).collect();
        let parts = parts.context("shards are shorter than the part")?;
        let part = median(|| coder.restore(scheme, &[0], &parts))?;
        println!(
            "{:<8} {:>11.2} {:>15.2} {:>15.2} {:>25}",
            scheme.to_string(),
            rate(encode),
            rate(one),
            rate(all),
            part.as_micros()
        );
    }
    Ok(())
}
