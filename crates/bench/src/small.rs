//! Ten thousand small files, read by many programs in parallel: with locks in the kernel, and with locks
//! across mounts.

use crate::limits::{
    PIPED_TARS_CONCURRENT, SMALL_FILE_BYTES, SMALL_FILES, SMALL_FILES_PER_DIR, TARS_CONCURRENT, goals,
};
use crate::measure::Bench;
use crate::side::{Locks, Side, bash};
use std::fs;
use std::path::Path;

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
        create(&top)?;
        side.sync()
    })?;
    // Once, so that what follows is warm.
    bash(&top, "tar cf - . | cat >/dev/null")?;
    let at_once = |count: usize, command: &str| format!("for i in $(seq {count}); do {command} & done; wait");
    // The goals are those of reads that send no message.
    let goal = beside.is_empty().then_some(goals::CONCURRENT);
    bench.time(side, &format!("100 concurrent tar cf - . >/dev/null{beside}"), goal, || {
        bash(&top, &at_once(TARS_CONCURRENT, "tar cf - . >/dev/null"))
    })?;
    bench.time(side, &format!("20 concurrent tar cf - . | cat >/dev/null{beside}"), goal, || {
        bash(&top, &at_once(PIPED_TARS_CONCURRENT, "(tar cf - . | cat >/dev/null)"))
    })?;
    fs::remove_dir_all(&top)?;
    side.sync()
}

fn create(top: &Path) -> anyhow::Result<()> {
    let content = vec![b's'; SMALL_FILE_BYTES];
    for number in 0..SMALL_FILES {
        let dir = top.join(format!("dir-{}", number / SMALL_FILES_PER_DIR));
        if number % SMALL_FILES_PER_DIR == 0 {
            fs::create_dir_all(&dir)?;
        }
        fs::write(dir.join(format!("file-{number}")), &content)?;
    }
    Ok(())
}
