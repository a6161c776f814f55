//! The field's benchmarks of clustered file systems, each as a ratio to a plain local directory on the same
//! disk.
//!
//! **Model.** A benchmark does the same work on two *sides*: a new Shoal volume, and a plain directory beside
//! its data directory. Runs alternate between the sides and are repeated; the median of each side counts.
//! Work that writes ends with everything on disk, on both sides. "Cold" means that Shoal was restarted and
//! the kernel's caches dropped.
//!
//! **Promises.** Nothing is left behind but the cached input (`kernel-17477.tar`). Each measurement is
//! printed at once, so that a long run can be judged early.
//!
//! **Refuses** to compare figures from different machines or runs: only ratios within one run mean anything.

mod coding;
mod database;
mod files;
mod fio;
mod healing;
mod input;
mod limits;
mod measure;
mod memory;
mod million;
mod nodes;
mod path;
mod random;
mod report;
mod schemes;
mod several;
mod side;
mod small;
mod space;
mod store;
mod stream;
mod throttle;
mod tier;
mod unpack;

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use measure::Bench;
use std::path::PathBuf;

/// Measures Shoal against a plain directory on the same disk. Needs root: it mounts and drops caches.
#[derive(Debug, Parser)]
#[command(name = "shoal-bench", version)]
struct Arguments {
    /// What to measure
    #[arg(default_value = "all")]
    what: Vec<What>,
    /// The shoal program
    #[arg(long, value_name = "FILE")]
    shoal: Option<PathBuf>,
    /// Where to work: a directory on the disk to measure
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Times that each thing is measured on each side [default: 3; 1 of several mounts alone, which takes as
    /// long]
    #[arg(long)]
    runs: Option<usize>,
    /// Measure a cluster of so many servers on this machine, each block on all of them
    #[arg(long, default_value_t = 0, value_name = "N")]
    nodes: usize,
    /// Create so many files, or blocks, in the benchmarks `million`, `store`, `healing`, `schemes` and
    /// `tier`
    #[arg(long, value_name = "N")]
    files: Option<usize>,
    /// Bricks of the benchmark `tier`: 8 or 28 [default: 8]
    #[arg(long, value_name = "N")]
    bricks: Option<usize>,
    /// The store's block cache, in the benchmark `store` [default: a share of memory]
    #[arg(long, value_name = "MIB")]
    cache: Option<usize>,
    /// Also write the table to this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Everything below but `several`, `million`, `store`, `coding`, `path`, `healing`, `schemes`, `tier` and
    /// `space`
    All,
    /// Unpack 17,477 kernel files, tar them out cold and warm, remove them
    Unpack,
    /// 10,000 files of 20 KiB, read by many tars at once
    Small,
    /// 1 GiB with fio: written, read cold in sequence, at random and in strides, records of 4 KiB to 16 MiB
    Stream,
    /// 4 KiB random writes with an fsync each
    Random,
    /// PostgreSQL under pgbench
    Database,
    /// Several mounts of one volume: at work in separate directories, in one, and after each other
    Several,
    /// Memory with one million files, in one process
    Memory,
    /// 5 million files on three servers: creating, memory, restart, cold find, removing, by the million
    Million,
    /// The metadata store alone, with 10 million keys of small files
    Store,
    /// Erasure coding alone, on one core
    Coding,
    /// Random reads, one hop further from the disk each time: time and processor time of each
    Path,
    /// What must be healed of 5 million blocks in shards, and in which order
    Healing,
    /// Copies and shards beside a plain directory: a large file, and small ones
    Schemes,
    /// A hot tier in memory before slow disks: small files hot, cold, and while other files move
    Tier,
    /// The space that a tree takes as three copies and as 8 + 4 shards
    Space,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!(nix::unistd::geteuid().is_root(), "benchmarks mount and drop caches: run them as root");
    let runs = arguments.runs.unwrap_or(match arguments.what[..] {
        [What::Several] => limits::RUNS_SEVERAL_DEFAULT,
        _ => limits::RUNS_DEFAULT,
    });
    ensure!(runs > 0, "--runs wants at least 1");
    let shoal = match arguments.shoal {
        Some(shoal) => shoal,
        None => std::env::current_exe()?.with_file_name("shoal"),
    };
    ensure!(shoal.exists(), "{} is not there: build it, or name it with --shoal", shoal.display());
    let dir = arguments.dir.map_or_else(input::cache_dir, Ok)?.join("bench");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;

    let mut bench = Bench::new(&shoal, &dir, runs, arguments.nodes)?;
    bench.files = arguments.files;
    bench.bricks = arguments.bricks;
    bench.cache_bytes = arguments.cache.map(|mib| mib << 20);
    let all = arguments.what.contains(&What::All);
    let asked = |what: What| {
        arguments.what.contains(&what)
            || (all
                && !matches!(
                    what,
                    What::Several
                        | What::Million
                        | What::Store
                        | What::Coding
                        | What::Path
                        | What::Healing
                        | What::Schemes
                        | What::Tier
                        | What::Space
                ))
    };
    for (what, run) in [
        (What::Unpack, unpack::run as fn(&mut Bench) -> anyhow::Result<()>),
        (What::Small, small::run),
        (What::Stream, stream::run),
        (What::Random, random::run),
        (What::Database, database::run),
        (What::Several, several::run),
        (What::Memory, memory::run),
        (What::Million, million::run),
        (What::Store, store::run),
        (What::Coding, coding::run),
        (What::Path, path::run),
        (What::Healing, healing::run),
        (What::Schemes, schemes::run),
        (What::Tier, tier::run),
        (What::Space, space::run),
    ] {
        // It measures the memory of a single process.
        if asked(what) && !(what == What::Memory && arguments.nodes > 0) {
            run(&mut bench)?;
        }
    }
    let page = report::page(&bench, &shoal_suites::machine::describe(&dir)?);
    println!("\n{page}");
    if let Some(path) = &arguments.write {
        report::write(path, &page)?;
    }
    Ok(())
}
