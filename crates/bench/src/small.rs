//! Ten thousand small files, read by many programs in parallel: with locks in the kernel, and with locks
//! across mounts.

use crate::limits::goals;
use crate::measure::Bench;
use crate::side::{Locks, Side};
use shoal_suites::limits::{FILES_PER_DIR, SMALL_FILE_BYTES, SMALL_FILES, TARS, TARS_PER_PIPED_TAR};
use shoal_suites::programs::bash;
use shoal_suites::suites::create;
use shoal_suites::suites::small_read::at_once;
use std::fs;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let sides = bench.sides()?;
    bench.alternate(&sides, |bench, side, run| {
        for (locks, beside) in [(Locks::Local, ""), (Locks::Cluster, ", locks=cluster")] {
            side.set_locks(locks)?;
            one(bench, side, run, beside)?;
        }
        side.set_locks(Locks::Local)
    })
}

/// All measurements with one scope of locks, which is the suffix of their names.
fn one(bench: &mut Bench, side: &Side, run: usize, beside: &str) -> anyhow::Result<()> {
    let top = side.path().join(format!("small-{run}"));
    bench.time(side, &format!("create 10,000 files of 20 KiB, sync{beside}"), None, || {
        create(&top, SMALL_FILES, FILES_PER_DIR, |_| vec![b's'; SMALL_FILE_BYTES])?;
        side.sync()
    })?;
    // Once, so that what follows is warm.
    bash(&top, "tar cf - . | cat >/dev/null")?;
    // The goals are those of reads that send no message.
    let goal = beside.is_empty().then_some(goals::CONCURRENT);
    bench.time(side, &format!("100 concurrent tar cf - . >/dev/null{beside}"), goal, || {
        bash(&top, &at_once(TARS, "tar cf - . >/dev/null"))
    })?;
    bench.time(side, &format!("20 concurrent tar cf - . | cat >/dev/null{beside}"), goal, || {
        bash(&top, &at_once(TARS / TARS_PER_PIPED_TAR, "(tar cf - . | cat >/dev/null)"))
    })?;
    fs::remove_dir_all(&top)?;
    side.sync()
}
