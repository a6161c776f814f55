//! Throughput of a brick beside that of the disk under it:
//! `cargo run --release -p shoal-brick --example throughput -- DIRECTORY [MEBIBYTES]`.

use bytes::Bytes;
use shoal_brick::Brick;
use shoal_types::{BlockId, SessionId};
use shoal_wire::BlockService;
use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const BLOCK_BYTES: usize = 4 << 20;
const ROUNDS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: throughput DIRECTORY [MEBIBYTES]")?).join("throughput");
    let blocks = args.next().map_or(Ok(512), |text| text.parse::<u64>())? / 4;
    let block: Vec<u8> =
        (0..BLOCK_BYTES as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let block = Bytes::from(block);
    let mut rates: [Vec<f64>; 6] = Default::default();
    for _ in 0..ROUNDS {
        std::fs::create_dir_all(&dir)?;
        let plain = dir.join("plain");
        rates[0].push(rate(blocks, || write_plain(&plain, &block, blocks))?);
        forget_caches();
        rates[3].push(rate(blocks, || read_plain(&plain))?);
        std::fs::remove_file(&plain)?;
        Brick::format(&dir.join("brick"))?;
        let brick = Brick::open(&dir.join("brick"))?;
        for (slot, threads) in [(1, 1), (2, 8)] {
            let put = |seq| {
                Ok(brick.put(BlockId { session: SessionId(threads), seq }, std::slice::from_ref(&block))?)
            };
            rates[slot].push(rate(blocks, || parallel(threads, blocks, &put))?);
        }
        forget_caches();
        for (slot, threads) in [(4, 1), (5, 8)] {
            let get = |seq| {
                let id = BlockId { session: SessionId(threads), seq };
                Ok(brick.get(id, 0, BLOCK_BYTES as u32).map(drop)?)
            };
            rates[slot].push(rate(blocks, || parallel(threads, blocks, &get))?);
        }
        drop(brick);
        std::fs::remove_dir_all(&dir)?;
    }
    let names = [
        "write + fsync, one file",
        "put, 1 thread",
        "put, 8 threads",
        "cold read, one file",
        "cold get, 1 thread",
        "cold get, 8 threads",
    ];
    for (name, rates) in names.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        println!(
            "{name:24} {:6.0} MB/s (median of {ROUNDS}; {:.0} to {:.0})",
            rates[ROUNDS / 2],
            rates[0],
            rates[ROUNDS - 1]
        );
    }
    Ok(())
}

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Megabytes per second of what moves this many blocks.
fn rate(blocks: u64, work: impl FnOnce() -> Outcome) -> Result<f64, Box<dyn Error>> {
    let started = Instant::now();
    work().map_err(|error| error.to_string())?;
    Ok(blocks as f64 * BLOCK_BYTES as f64 / 1e6 / started.elapsed().as_secs_f64())
}

fn parallel(threads: u64, blocks: u64, work: &(impl Fn(u64) -> Outcome + Sync)) -> Outcome {
    let next = AtomicU64::new(0);
    let run = || {
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                seq if seq < blocks => work(seq)?,
                _ => return Ok(()),
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })
}

fn write_plain(path: &Path, block: &[u8], blocks: u64) -> Outcome {
    let mut file = File::create(path)?;
    for _ in 0..blocks {
        file.write_all(block)?;
    }
    Ok(file.sync_all()?)
}

fn read_plain(path: &Path) -> Outcome {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BLOCK_BYTES];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

fn forget_caches() {
    if let Err(error) = std::fs::write("/proc/sys/vm/drop_caches", "3") {
        eprintln!("caches stay warm: {error}");
    }
}
