//! The way of a byte from the disk to a program: random reads of the same places, one hop longer each time.
//!
//! **Model.** What a hop costs is the difference between two rows. Counted are the time of one read, which is
//! mostly waiting, and the processor time of all processes on the way, per KiB. The last row is the mount of
//! a cluster whose three servers are on this machine, with all caches empty.

use crate::limits::{PATH_BLOCKS, PATH_READS, PATH_RECORD_BYTES};
use crate::measure::Bench;
use crate::side::Side;
use anyhow::Context;
use bytes::Bytes;
use rand::{Rng, RngCore, SeedableRng};
use shoal_brick::Brick;
use shoal_net::remote::{RemoteBrick, serve_brick};
use shoal_net::{Authority, Handler, Lane, Network, Peer, Replier, Role, Service};
use shoal_suites::programs::stat_of;
use shoal_types::limits::BLOCK_BYTES_MAX;
use shoal_types::{BlockId, BrickId, NodeId, SessionId};
use shoal_wire::BlockService;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Alignment of memory for direct I/O, in bytes.
const ALIGN_BYTES: usize = 4096;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let dir = bench.dir.join("path");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let outcome = measure(bench, &dir);
    fs::remove_dir_all(&dir)?;
    bench.facts.extend(outcome?);
    Ok(())
}

fn measure(bench: &Bench, dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut rows = Vec::new();
    let own = [std::process::id() as i32];
    let mut content = vec![0; BLOCK_BYTES_MAX as usize];
    rand::rng().fill_bytes(&mut content);
    let content = Bytes::from(content);

    let plain = dir.join("plain");
    write(&plain, &content)?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&plain)?;
    let mut memory = vec![0; PATH_RECORD_BYTES[PATH_RECORD_BYTES.len() - 1] + ALIGN_BYTES];
    let skip = memory.as_ptr().align_offset(ALIGN_BYTES);
    let direct = |block: u64, offset: u32, len: usize| {
        let at = block * u64::from(BLOCK_BYTES_MAX) + u64::from(offset);
        Ok(file.read_exact_at(&mut memory[skip..skip + len], at)?)
    };
    rows.push(row("a local file, past the page cache", &own, direct)?);

    let root = dir.join("brick");
    Brick::format(&root)?;
    let brick = Brick::open(&root)?;
    for block in 0..PATH_BLOCKS {
        brick.put(id(block), std::slice::from_ref(&content))?;
    }
    let read =
        |block: u64, offset: u32, len: usize| Ok(brick.get(id(block), offset, len as u32).map(drop)?);
    rows.push(row("a brick: opened, checksums verified", &own, read)?);

    let authority = Authority::create(7)?;
    let network = |role| anyhow::Ok(Network::new(7, authority.issue(&role)?)?);
    let (server, client) = (network(Role::Node(NodeId(1)))?, network(Role::Client("path".into()))?);
    let listener = server.listen("127.0.0.1:0".parse()?, Arc::new(Serves(brick.clone())))?;
    let link = client.link(&listener.address().to_string(), Lane::Blocks);
    let remote = RemoteBrick::new(link, BrickId(1));
    let read =
        |block: u64, offset: u32, len: usize| Ok(remote.get(id(block), offset, len as u32).map(drop)?);
    rows.push(row("the brick by TLS, in this process", &own, read)?);
    drop((remote, listener));

    let side = bench.cluster(3)?;
    let path = side.path().join("path");
    write(&path, &content)?;
    rows.push(mounted(&side, &path)?);
    Ok(rows)
}

fn id(seq: u64) -> BlockId {
    BlockId { session: SessionId(1), seq }
}

/// A file of as many blocks as the brick has.
fn write(path: &Path, block: &[u8]) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    (0..PATH_BLOCKS).try_for_each(|_| file.write_all(block))?;
    Ok(file.sync_all()?)
}

/// The row of a mount, made cold for each length of a record.
fn mounted(side: &Side, path: &Path) -> anyhow::Result<String> {
    let mut cells = Vec::new();
    for &record in PATH_RECORD_BYTES {
        side.make_cold()?;
        let mut processes = side.servers();
        processes.extend([side.server()? as i32, std::process::id() as i32]);
        let (file, mut buffer) = (File::open(path)?, vec![0; record]);
        let read = |block: u64, offset: u32, len: usize| {
            let at = block * u64::from(BLOCK_BYTES_MAX) + u64::from(offset);
            Ok(file.read_exact_at(&mut buffer[..len], at)?)
        };
        cells.push(cell(record, &processes, read)?);
    }
    Ok(line("a mount of three servers, cold", &cells))
}

fn row(
    what: &str,
    processes: &[i32],
    mut read: impl FnMut(u64, u32, usize) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let cells: anyhow::Result<Vec<String>> =
        PATH_RECORD_BYTES.iter().map(|record| cell(*record, processes, &mut read)).collect();
    Ok(line(what, &cells?))
}

fn line(what: &str, cells: &[String]) -> String {
    let line = format!("{what}: {}", cells.join("; "));
    eprintln!("{line}");
    line
}

/// Reads records at the same random places as every other row.
fn cell(
    record: usize,
    processes: &[i32],
    mut read: impl FnMut(u64, u32, usize) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut random = rand::rngs::StdRng::seed_from_u64(record as u64);
    let (begun, used) = (Instant::now(), processor_time(processes)?);
    for _ in 0..PATH_READS {
        let place = random.random_range(0..PATH_BLOCKS * u64::from(BLOCK_BYTES_MAX) / record as u64);
        let at = place * record as u64;
        // The remainder is less than a block's length.
        read(at / u64::from(BLOCK_BYTES_MAX), (at % u64::from(BLOCK_BYTES_MAX)) as u32, record)?;
    }
    let (took, used) = (begun.elapsed(), processor_time(processes)?.saturating_sub(used));
    let kib = (PATH_READS * record as u64) as f64 / 1024.0;
    Ok(format!(
        "{} KiB {:.0} µs, {:.0} ns of processors per KiB",
        record >> 10,
        took.as_secs_f64() * 1e6 / PATH_READS as f64,
        used.as_nanos() as f64 / kib
    ))
}

/// What processes have used of processors so far, in user and kernel mode: see proc_pid_stat(5).
fn processor_time(processes: &[i32]) -> anyhow::Result<Duration> {
    // SAFETY: takes a number, and reads no memory.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let mut ticks = 0;
    for process in processes {
        let fields = stat_of(*process).with_context(|| format!("process {process} is gone"))?;
        ticks += fields.iter().skip(11).take(2).flat_map(|field| field.parse::<u64>()).sum::<u64>();
    }
    Ok(Duration::from_secs_f64(ticks as f64 / ticks_per_second))
}

/// Serves one brick to anyone.
struct Serves(Arc<Brick>);

impl Handler for Serves {
    fn handle(&self, _: &Peer, _: Service, body: Bytes, reply: Replier) {
        serve_brick(&self.0, &body, reply);
    }
}
