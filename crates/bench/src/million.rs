//! Millions of small files on a cluster: whether the last million is as fast as the first, and what it costs.
//!
//! **Model.** Four programs create files of 200 bytes in directories of 1,000, each in a tree of its own,
//! through one mount. A step (a million files) ends with an fsync that covers all of it. Then everything is
//! restarted, read by a cold `find`, and removed by four programs.
//!
//! **Judged** by the rate of the last step as a part of the first step's.

use crate::limits::{
    MILLION_FILE_BYTES, MILLION_FILES, MILLION_FILES_PER_DIR, MILLION_LAST_OF_FIRST_MIN, MILLION_NODES,
    MILLION_PROGRAMS, MILLION_STEP_FILES,
};
use crate::measure::Bench;
use crate::side::Side;
use anyhow::anyhow;
use rand::RngCore;
use shoal_suites::machine::resident_bytes;
use shoal_suites::programs::bash;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let nodes = if bench.nodes == 0 { MILLION_NODES } else { bench.nodes };
    let files = bench.files.unwrap_or(MILLION_FILES);
    let side = bench.cluster(nodes)?;
    let mut facts = Vec::new();
    let mut note = |fact: String| {
        eprintln!("{fact}");
        facts.push(fact);
    };
    note(format!("{files} files, {nodes} servers; empty: {}", costs(&side)?));
    let steps = Steps::of(files);
    let created = steps.each(&side, create)?;
    note(format!("creates, files per second of each {}: {}", steps.files, show(&created)));
    note(format!("with all files created: {}", costs(&side)?));
    let (stopped, started) = side.restart()?;
    note(format!(
        "restart: {:.1} s to stop, {:.1} s to start and mount; then {}",
        stopped.as_secs_f64(),
        started.as_secs_f64(),
        costs(&side)?
    ));
    let begun = Instant::now();
    bash(&side.path(), &format!("test $(find . -type f -size +0 | wc -l) = {}", steps.total()))?;
    let took = begun.elapsed().as_secs_f64();
    note(format!(
        "find, cold, with attributes: {took:.0} s, {:.0} files per second; then {}",
        steps.total() as f64 / took,
        costs(&side)?
    ));
    let removed = steps.each(&side, remove)?;
    note(format!("removes, files per second of each {}: {}", steps.files, show(&removed)));
    note(format!("with all files removed: {}", costs(&side)?));
    bench.facts.extend(facts);
    Ok(())
}

/// The work, in equal steps.
struct Steps {
    /// Files of a step, over all programs.
    files: usize,
    count: usize,
}

impl Steps {
    fn of(files: usize) -> Steps {
        let step = MILLION_STEP_FILES.min(files / 4);
        // Every program has whole directories.
        let unit = MILLION_FILES_PER_DIR * MILLION_PROGRAMS;
        let step = step.div_ceil(unit) * unit;
        Steps { files: step, count: files.div_ceil(step) }
    }

    fn total(&self) -> usize {
        self.files * self.count
    }

    /// The directories of a program in a step.
    fn dirs(&self, side: &Side, step: usize, program: usize) -> Vec<PathBuf> {
        let dirs = self.files / MILLION_FILES_PER_DIR / MILLION_PROGRAMS;
        let top = side.path().join(format!("program-{program}"));
        (step * dirs..(step + 1) * dirs).map(|dir| top.join(format!("dir-{dir}"))).collect()
    }

    /// Runs all steps in sequence, each by all programs; answers the rates, in files per second.
    fn each(&self, side: &Side, work: fn(&[PathBuf]) -> anyhow::Result<()>) -> anyhow::Result<Vec<f64>> {
        let mut rates = Vec::new();
        for step in 0..self.count {
            let begun = Instant::now();
            thread::scope(|scope| -> anyhow::Result<()> {
                let programs: Vec<_> = (0..MILLION_PROGRAMS)
                    .map(|program| self.dirs(side, step, program))
                    .map(|dirs| scope.spawn(move || work(&dirs)))
                    .collect();
                programs.into_iter().try_for_each(|program| {
                    program.join().unwrap_or_else(|_| Err(anyhow!("a program panicked")))
                })
            })?;
            side.sync()?;
            let rate = self.files as f64 / begun.elapsed().as_secs_f64();
            eprintln!("step {}: {rate:.0} files/s; {}", step + 1, costs(side)?);
            rates.push(rate);
        }
        Ok(rates)
    }
}

fn create(dirs: &[PathBuf]) -> anyhow::Result<()> {
    let mut content = [b'm'; MILLION_FILE_BYTES];
    let mut random = rand::rng();
    for dir in dirs {
        fs::create_dir_all(dir)?;
        for file in 0..MILLION_FILES_PER_DIR {
            // Half of it is compressible, like text.
            random.fill_bytes(&mut content[..MILLION_FILE_BYTES / 2]);
            fs::write(dir.join(format!("file-{file}")), content)?;
        }
    }
    Ok(())
}

fn remove(dirs: &[PathBuf]) -> anyhow::Result<()> {
    Ok(dirs.iter().try_for_each(fs::remove_dir_all)?)
}

/// Rates, the last as a part of the first, and whether the goal is met.
fn show(rates: &[f64]) -> String {
    let all: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
    let share = match rates {
        [first, .., last] => last / first,
        _ => 1.0,
    };
    let met = if share >= MILLION_LAST_OF_FIRST_MIN { "met" } else { "**missed**" };
    format!("{} (last/first {share:.2}, goal {MILLION_LAST_OF_FIRST_MIN}: {met})", all.join(", "))
}

/// Memory of the processes and bytes on disk.
fn costs(side: &Side) -> anyhow::Result<String> {
    let mib = |pid: String| anyhow::Ok(resident_bytes(&pid)? >> 20);
    let servers: Vec<String> = side
        .servers()
        .into_iter()
        .map(|pid| Ok(mib(pid.to_string())?.to_string()))
        .collect::<anyhow::Result<_>>()?;
    let mount = mib(side.server()?.to_string())?;
    let disk = side.disk_bytes()? >> 20;
    Ok(format!("servers {} MiB, mount {mount} MiB resident, {disk} MiB on disk", servers.join("/")))
}
