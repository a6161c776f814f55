//! Copies and shards beside a plain directory of the same disk: a large file, and many small ones.
//!
//! **Model.** Four servers on this machine with three bricks each, and one volume after the other on them.
//! The large file is written with an fsync, and read after the mount was replaced and the kernel's caches
//! were dropped; so are small files by eight threads. All bricks are on one disk, so that what is stored
//! three times, or one and a half times, is written there so often.
//!
//! **A lost disk.** At the end the content of one brick is deleted, and an empty brick takes its place. The
//! time counts until the healer has nothing left to do, and bytes are those that bricks read and write.
//!
//! **Assumes** that files are blocks: mounts keep no content in the metadata (`inline-limit=0`).

use crate::files::Files;
use crate::fio::Job;
use crate::limits::{
    HEAL_POLL, HEAL_WAIT_MAX, SCHEMES_BRICKS, SCHEMES_BYTES, SCHEMES_FILES, SCHEMES_NODES,
    SCHEMES_RECORD_BYTES, SMALL_BLOCK_BYTES, SMALL_THREADS,
};
use crate::measure::Bench;
use crate::nodes;
use crate::side::drop_caches;
use anyhow::bail;
use shoal_suites::machine::dir_bytes;
use shoal_suites::programs::quietly;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;
use std::{fmt, fs};

/// The volumes, each with its scheme.
const SCHEMES: [(&str, &str); 3] =
    [("copies", "replica 3"), ("six", "disperse 6 redundancy 2"), ("twelve", "disperse 12 redundancy 4")];

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let (program, top) = (bench.program().to_owned(), bench.dir.join("schemes"));
    let files = bench.files.unwrap_or(SCHEMES_FILES).next_multiple_of(SMALL_THREADS);
    let _ = fs::remove_dir_all(&top);
    fs::create_dir_all(top.join("mnt"))?;
    nodes::found(&program, &top, SCHEMES_NODES)?;
    let outcome = measure(&program, &top, files);
    nodes::stop(&top, SCHEMES_NODES)?;
    fs::remove_dir_all(&top)?;
    bench.facts.extend(outcome?);
    Ok(())
}

fn measure(program: &Path, top: &Path, files: usize) -> anyhow::Result<Vec<String>> {
    let mut facts = vec![format!(
        "{} MiB in records of {} KiB, MB/s; {files} files of {} KiB, {SMALL_THREADS} threads, files per second:",
        SCHEMES_BYTES >> 20,
        SCHEMES_RECORD_BYTES >> 10,
        SMALL_BLOCK_BYTES >> 10
    )];
    let mut note = |fact: String| {
        eprintln!("{fact}");
        facts.push(fact);
    };
    let local = top.join("local");
    fs::create_dir_all(&local)?;
    note(format!("a plain directory: {}", figures(&local, files, drop_caches)?));
    fs::remove_dir_all(&local)?;
    for (name, scheme) in SCHEMES {
        let volume = Mounted::create(program, top, (name, scheme))?;
        note(format!("{scheme}: {}", figures(&volume.point, files, || volume.remount())?));
        note(format!("{scheme}, {}", volume.heal_a_lost_disk()?));
    }
    Ok(facts)
}

/// What was measured in one directory, each written and read.
struct Figures {
    /// In 10^6 bytes per second.
    large: (f64, f64),
    /// In files per second.
    small: (f64, f64),
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { large, small } = self;
        write!(f, "large {:.0} MB/s written, {:.0} MB/s read; ", large.0, large.1)?;
        write!(f, "small {:.0} written, {:.0} read", small.0, small.1)
    }
}

fn figures(point: &Path, files: usize, cool: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<Figures> {
    let path = point.join("large");
    let rate = |pattern: &str| -> anyhow::Result<f64> {
        let seconds = Job::whole(&path, pattern, SCHEMES_RECORD_BYTES, SCHEMES_BYTES).run()?;
        Ok(SCHEMES_BYTES as f64 / seconds / 1e6)
    };
    let written = rate("write")?;
    cool()?;
    let large = (written, rate("read")?);
    fs::remove_file(&path)?;
    let files =
        Files { top: point.join("small"), count: files, bytes: SMALL_BLOCK_BYTES, threads: SMALL_THREADS };
    let written = files.write()?;
    cool()?;
    Ok(Figures { large, small: (written, files.read()?) })
}

/// A volume that is mounted. Dropping it unmounts it.
struct Mounted<'a> {
    program: &'a Path,
    top: &'a Path,
    name: &'a str,
    point: PathBuf,
}

impl<'a> Mounted<'a> {
    fn create(
        program: &'a Path,
        top: &'a Path,
        (name, scheme): (&'a str, &str),
    ) -> anyhow::Result<Mounted<'a>> {
        let path = |brick: usize| top.join(format!("{name}-{brick}"));
        let place = |brick: usize| format!("n{}:{}", brick % SCHEMES_NODES + 1, path(brick).display());
        let bricks: Vec<String> = (0..SCHEMES_BRICKS).map(place).collect();
        nodes::create_volume(program, top, (name, scheme), &bricks)?;
        let volume = Mounted { program, top, name, point: top.join("mnt") };
        volume.mount()?;
        Ok(volume)
    }

    fn mount(&self) -> anyhow::Result<()> {
        let of = (SCHEMES_NODES, self.name);
        nodes::mount_volume(self.program, self.top, of, &self.point, "inline-limit=0,locks=local")
    }

    fn unmount(&self) -> anyhow::Result<()> {
        quietly(nodes::shoal(self.program, self.top, 1).arg("umount").arg(&self.point))
    }

    fn remount(&self) -> anyhow::Result<()> {
        self.unmount()?;
        drop_caches()?;
        self.mount()
    }
}

impl Mounted<'_> {
    /// Loses a disk with its share of a large file, and waits until all of it is stored again.
    fn heal_a_lost_disk(&self) -> anyhow::Result<String> {
        fs::remove_dir_all(self.point.join("small"))?;
        let large = self.point.join("lost");
        Job::whole(&large, "write", SCHEMES_RECORD_BYTES, SCHEMES_BYTES).run()?;
        self.wait_until_whole()?;
        let path = self.top.join(format!("{}-0", self.name));
        let lost = dir_bytes(&path)?;
        fs::remove_dir_all(&path)?;
        drop_caches()?;
        // The brick that comes in its place counts from 0.
        let mut before = self.brick_bytes()?;
        before.remove(&*path.to_string_lossy());
        let begun = Instant::now();
        let brick = format!("n1:{}", path.display());
        let mut replace = nodes::shoal(self.program, self.top, 1);
        quietly(replace.args(["volume", "replace-brick", self.name, &brick, &brick]))?;
        self.wait_until_whole()?;
        let (seconds, after) = (begun.elapsed().as_secs_f64(), self.brick_bytes()?);
        let per_byte = |index: usize| {
            let then = |path: &String| before.get(path).map_or(0, |bytes| bytes[index]);
            let moved = after.iter().map(|(path, now)| now[index].saturating_sub(then(path)));
            moved.sum::<u64>() as f64 / lost as f64
        };
        Ok(format!(
            "a disk with {} MiB is lost: healed after {seconds:.1} s, {:.0} MB/s; {:.2} bytes read and {:.2} written \
             for each byte lost",
            lost >> 20,
            lost as f64 / seconds / 1e6,
            per_byte(0),
            per_byte(1)
        ))
    }

    fn brick_bytes(&self) -> anyhow::Result<BTreeMap<String, [u64; 2]>> {
        nodes::brick_bytes(self.program, self.top, SCHEMES_NODES)
    }

    /// Waits until the volume has nothing to heal.
    fn wait_until_whole(&self) -> anyhow::Result<()> {
        let until = Instant::now() + HEAL_WAIT_MAX;
        let mut info = nodes::shoal(self.program, self.top, 1);
        info.args(["volume", "heal", self.name, "info", "summary"]);
        loop {
            let out = info.output()?;
            if out.status.success() {
                return Ok(());
            }
            if Instant::now() >= until {
                bail!("volume {} is not healed:\n{}", self.name, String::from_utf8_lossy(&out.stdout));
            }
            thread::sleep(HEAL_POLL);
        }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error:#}");
        }
    }
}
