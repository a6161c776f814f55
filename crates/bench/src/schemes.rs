//! Copies and shards beside a plain directory of the same disk: a large file, and many small ones.
//!
//! **Model.** Four servers on this machine with three bricks each, and one volume after the other on them.
//! The large file is written with an fsync, and read after the mount was replaced and the kernel's caches
//! were dropped; so are small files by eight threads. All bricks are on one disk, so that what is stored
//! three times, or one and a half times, is written there so often.
//!
//! **Assumes** that files are blocks: mounts keep no content in the metadata (`inline-limit=0`).

use crate::files::Files;
use crate::fio::Job;
use crate::limits::{
    SCHEMES_BRICKS, SCHEMES_BYTES, SCHEMES_FILES, SCHEMES_NODES, SCHEMES_RECORD_BYTES, SMALL_BLOCK_BYTES,
    SMALL_THREADS,
};
use crate::measure::Bench;
use crate::nodes;
use crate::side::drop_caches;
use shoal_suites::programs::quietly;
use std::fs;
use std::path::{Path, PathBuf};

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
    let mut note = |what: &str, figures: &Figures| {
        let Figures { large, small } = figures;
        let fact = format!(
            "{what}: large {:.0} MB/s written, {:.0} MB/s read; small {:.0} written, {:.0} read",
            large.0, large.1, small.0, small.1
        );
        eprintln!("{fact}");
        facts.push(fact);
    };
    let local = top.join("local");
    fs::create_dir_all(&local)?;
    note("a plain directory", &figures(&local, files, drop_caches)?);
    fs::remove_dir_all(&local)?;
    for (name, scheme) in SCHEMES {
        let volume = Mounted::create(program, top, (name, scheme))?;
        note(scheme, &figures(&volume.point, files, || volume.remount())?);
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

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error:#}");
        }
    }
}
