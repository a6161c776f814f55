//! A hot tier in memory before a cold one of shards on slow disks: files per second where they are hot, where
//! they are cold, and while other files move.
//!
//! **Model.** Four servers on this machine. Eight threads write files, each in directories of its own, end
//! with an fsync that covers all, and read them through a new mount, the kernel's caches dropped. The same
//! files go to a volume without a tier, on disks like the hot ones, and to one without a tier on the cold
//! disks.
//!
//! **Sizes.** By default there are 8 bricks: a hot and a cold one on each server, for 3 + 1 shards. With
//! `--bricks 28` each server has six cold ones, each on a disk of its own, for twice 8 + 4 shards.
//!
//! **Assumes** that files are blocks: mounts keep no content in the metadata (`inline-limit=0`), since small
//! files that are in the metadata have no tier. The metadata is on the disk of the working directory.

use crate::files::Files;
use crate::limits::{
    SMALL_BLOCK_BYTES, SMALL_THREADS, TIER_COLD_BYTES, TIER_COLD_SPEED, TIER_FILES, TIER_HOT_BYTES,
    TIER_MOVE_WAIT_MAX, TIER_NODES,
};
use crate::measure::Bench;
use crate::nodes;
use crate::throttle::{MemoryDisk, SlowDisk};
use anyhow::{Context, bail};
use serde_json::Value;
use shoal_suites::programs::{bash, quietly};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let files = bench.files.unwrap_or(TIER_FILES).next_multiple_of(SMALL_THREADS);
    let machines = Machines::new(bench)?;
    let scheme = machines.scheme;
    let mut table = vec![
        format!(
            "{files} files of {} KiB, {SMALL_THREADS} threads, files per second:",
            SMALL_BLOCK_BYTES >> 10
        ),
        format!(
            "{} cold disks of {} requests and {} MiB a second{}",
            machines.cold.len(),
            TIER_COLD_SPEED.requests,
            TIER_COLD_SPEED.bytes >> 20,
            machines.limited
        ),
    ];
    let mut note = |line: String| {
        eprintln!("{line}");
        table.push(line);
    };

    let fast = machines.volume("fast", "replica 2", "fast")?;
    note(format!("no tier, on disks in memory, replica 2: {}", fast.both(files)?));
    drop(fast);
    let slow = machines.volume("slow", scheme, "slow")?;
    note(format!("no tier, on the cold disks, {scheme}: {}", slow.both(files)?));
    drop(slow);

    let tiered = machines.volume("tiered", scheme, "cold")?;
    tiered.attach("hot")?;
    let first = tiered.write("first", files)?;
    let read = tiered.read("first", files)?;
    note(format!("tiered, hot: {first:.0} written, {read:.0} read"));
    let moved = tiered.demote_all(|| Ok(()))?.1;
    note(format!(
        "tiered, moving all of it to the cold tier, nothing else running: {:.0}",
        files as f64 / moved
    ));
    let read = tiered.read("first", files)?;
    note(format!("tiered, cold: {read:.0} read"));
    tiered.write("second", files)?;
    let (third, moved) = tiered.demote_all(|| tiered.write("third", files))?;
    note(format!(
        "tiered, hot, while {files} other files move to the cold tier: {third:.0} written ({moved:.0} s until all has moved)"
    ));
    drop(tiered);
    let top = machines.top.clone();
    drop(machines);
    fs::remove_dir_all(&top).with_context(|| top.display().to_string())?;
    bench.facts.extend(table);
    Ok(())
}

/// The servers and the disks.
struct Machines {
    program: PathBuf,
    top: PathBuf,
    /// The disks are unmounted at the end, after the servers.
    _hot: Vec<MemoryDisk>,
    cold: Vec<SlowDisk>,
    /// The scheme of the cold tier.
    scheme: &'static str,
    /// A remark if the cold disks are as fast as the others.
    limited: &'static str,
}

impl Machines {
    fn new(bench: &Bench) -> anyhow::Result<Machines> {
        let (cold_per_node, scheme) = match bench.bricks {
            None | Some(8) => (1, "disperse 4 redundancy 1"),
            Some(28) => (6, "disperse 12 redundancy 4"),
            Some(other) => bail!("{other} bricks: this benchmark knows 8 and 28"),
        };
        let top = bench.dir.join("tier");
        let _ = fs::remove_dir_all(&top);
        fs::create_dir_all(&top)?;
        let (mut hot, mut cold, mut limited) = (Vec::new(), Vec::new(), "");
        for node in 1..=TIER_NODES {
            hot.push(MemoryDisk::new(&top.join(format!("memory{node}")), TIER_HOT_BYTES)?);
            for number in 1..=cold_per_node {
                let disk = SlowDisk::new(&top.join(format!("disk{node}-{number}")), TIER_COLD_BYTES)?;
                if !disk.limit(Some(TIER_COLD_SPEED))? {
                    limited = " (NOT LIMITED: this kernel has no blkio control group of version 1)";
                }
                cold.push(disk);
            }
        }
        let program = bench.program().to_owned();
        let machines = Machines { program, top, _hot: hot, cold, scheme, limited };
        nodes::found(&machines.program, &machines.top, TIER_NODES)?;
        Ok(machines)
    }

    fn shoal(&self) -> Command {
        nodes::shoal(&self.program, &self.top, 1)
    }

    /// Bricks of this name: one in the memory of each node, or one on each slow disk.
    fn bricks(&self, name: &str) -> Vec<String> {
        let brick =
            |node: usize, disk: String| format!("n{node}:{}", self.top.join(disk).join(name).display());
        let cold_per_node = self.cold.len() / TIER_NODES;
        let of_node = |node: usize| match name {
            "fast" | "hot" => vec![brick(node, format!("memory{node}"))],
            _ => (1..=cold_per_node).map(|number| brick(node, format!("disk{node}-{number}"))).collect(),
        };
        (1..=TIER_NODES).flat_map(of_node).collect()
    }

    fn volume(&self, name: &'static str, scheme: &str, bricks: &str) -> anyhow::Result<Tiered<'_>> {
        nodes::create_volume(&self.program, &self.top, (name, scheme), &self.bricks(bricks))?;
        let volume = Tiered { machines: self, name };
        volume.mount()?;
        Ok(volume)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        if let Err(error) = nodes::stop(&self.top, TIER_NODES) {
            eprintln!("{error:#}");
        }
    }
}

/// A volume, mounted once.
struct Tiered<'a> {
    machines: &'a Machines,
    name: &'static str,
}

impl Tiered<'_> {
    fn point(&self) -> PathBuf {
        self.machines.top.join("mnt")
    }

    fn mount(&self) -> anyhow::Result<()> {
        fs::create_dir_all(self.point())?;
        let Machines { program, top, .. } = self.machines;
        nodes::mount_volume(
            program,
            top,
            (TIER_NODES, self.name),
            &self.point(),
            "inline-limit=0,locks=local",
        )
    }

    fn unmount(&self) -> anyhow::Result<()> {
        quietly(self.machines.shoal().arg("umount").arg(self.point()))
    }

    fn set(&self, key: &str, value: &str) -> anyhow::Result<()> {
        quietly(self.machines.shoal().args(["volume", "set", self.name, key, value]))
    }

    /// Puts a hot tier before it that keeps everything until it is told otherwise.
    fn attach(&self, bricks: &str) -> anyhow::Result<()> {
        let mut attach = self.machines.shoal();
        attach.args(["volume", "tier", self.name, "attach", "replica", "2"]);
        quietly(attach.args(self.machines.bricks(bricks)))?;
        self.set("tier.promote-reads", "0")?;
        // A mount learns of it within a second.
        thread::sleep(Duration::from_secs(2));
        Ok(())
    }

    fn hot_blocks(&self) -> anyhow::Result<u64> {
        let mut status = self.machines.shoal();
        let out = status.args(["volume", "tier", self.name, "status", "--json"]).output()?;
        let status: Value = serde_json::from_slice(&out.stdout).context("volume tier status --json")?;
        status["hot_blocks"].as_u64().context("hot_blocks is not reported")
    }

    /// Has all that is hot moved to the cold tier, does something meanwhile, and answers how many seconds the
    /// moving took. Blocks that were used within ten seconds wait that long.
    fn demote_all<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
        thread::sleep(Duration::from_secs(11));
        self.set("tier.demote-after", "1s")?;
        let begun = Instant::now();
        let done = work()?;
        while self.hot_blocks()? > 0 {
            if begun.elapsed() > TIER_MOVE_WAIT_MAX {
                bail!("the hot tier is not empty after {} s", TIER_MOVE_WAIT_MAX.as_secs());
            }
            thread::sleep(Duration::from_millis(500));
        }
        let took = begun.elapsed().as_secs_f64();
        self.set("tier.demote-after", "1d")?;
        Ok((done, took))
    }

    /// Writes files and reads them.
    fn both(&self, files: usize) -> anyhow::Result<String> {
        let written = self.write("files", files)?;
        let read = self.read("files", files)?;
        Ok(format!("{written:.0} written, {read:.0} read"))
    }

    fn files(&self, set: &str, count: usize) -> Files {
        Files { top: self.point().join(set), count, bytes: SMALL_BLOCK_BYTES, threads: SMALL_THREADS }
    }

    fn write(&self, set: &str, count: usize) -> anyhow::Result<f64> {
        self.files(set, count).write()
    }

    /// Reads through a new mount. The servers' pages are dropped, too, so the slow disks are read.
    fn read(&self, set: &str, count: usize) -> anyhow::Result<f64> {
        self.unmount()?;
        bash(&self.machines.top, "sync; echo 3 > /proc/sys/vm/drop_caches")?;
        self.mount()?;
        self.files(set, count).read()
    }
}

impl Drop for Tiered<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error:#}");
        }
    }
}
