//! Several mounts of one volume on this machine, beside as many programs in one plain directory: at work in separate directories, in one
//! directory in turn, and after each other.

use crate::input::kernel_tar;
use crate::limits::{KERNEL_FILES, MOUNTS_MAX, SECOND_MOUNT_FILES_PER_SECOND_GOAL, TURNS, VISIBLE_CHANGES};
use crate::measure::Bench;
use crate::side::{Side, Which, bash};
use anyhow::{Context, ensure};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Measures all of it.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let archive = kernel_tar()?;
    // The input comes from memory, not from the disk that is measured.
    fs::read(&archive)?;
    let sides = bench.sides_with_mounts(MOUNTS_MAX)?;
    bench.alternate(&sides, |bench, side, run| {
        let mut alone = [Duration::ZERO; 3];
        for mounts in 1..=MOUNTS_MAX {
            let took = apart(bench, side, &archive, mounts)?;
            if mounts == 1 {
                alone = took;
            }
            if side.which == Which::Shoal {
                compare(bench, mounts, took, alone);
            }
        }
        second(bench, side, &archive)?;
        in_turn(bench, side, run)?;
        visible(bench, side, run)
    })
}

/// Unpacks, reads and removes a tree through each of some mounts at the same time. How long each of the three took.
fn apart(
    bench: &mut Bench,
    side: &Side,
    archive: &std::path::Path,
    mounts: usize,
) -> anyhow::Result<[Duration; 3]> {
    let at_once = |script: &str, syncs: bool| -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let works: Vec<_> = (0..mounts)
                .map(|mount| {
                    scope.spawn(move || -> anyhow::Result<()> {
                        bash(&side.mount(mount), &script.replace("TREE", &format!("tree{mount}")))?;
                        if syncs { side.sync_mount(mount) } else { Ok(()) }
                    })
                })
                .collect();
            works.into_iter().try_for_each(|work| work.join().ok().context("a thread died")?)
        })
    };
    let named = |what: &str| match mounts {
        1 => format!("{what} on 1 mount of {MOUNTS_MAX}"),
        _ => format!("{what} on each of {mounts} mounts at once"),
    };
    let unpack = format!("mkdir TREE && tar xf {} -C TREE", archive.display());
    let works = [
        ("unpack 17,477 files, sync", unpack.as_str(), true),
        ("tar them out", "tar cf - TREE | cat >/dev/null", false),
        ("rm -rf, sync", "rm -rf TREE", true),
    ];
    let mut took = [Duration::ZERO; 3];
    for ((what, script, syncs), took) in works.into_iter().zip(&mut took) {
        let started = Instant::now();
        bench.time(side, &named(what), None, || at_once(script, syncs))?;
        *took = started.elapsed();
    }
    Ok(took)
}

/// What that comes to, all mounts together, and beside one alone.
fn compare(bench: &mut Bench, mounts: usize, took: [Duration; 3], alone: [Duration; 3]) {
    let files = (KERNEL_FILES * mounts) as f64;
    let words = ["unpack", "tar", "rm"].iter().zip(took.iter().zip(alone)).map(|(what, (took, alone))| {
        let (took, alone) = (took.as_secs_f64(), alone.as_secs_f64());
        format!("{what} {:.0} files/s, each {:.2} times as long as alone", files / took, took / alone)
    });
    let words: Vec<String> = words.collect();
    bench.facts.push(format!("{mounts} mounts at once, together: {}", words.join("; ")));
}

/// A second mount, where nothing is cached, reads what the first one has just written: with servers that have been at work, and with all caches of
/// the machine empty, theirs too.
fn second(bench: &mut Bench, side: &Side, archive: &std::path::Path) -> anyhow::Result<()> {
    bash(&side.path(), &format!("mkdir tree && tar xf {} -C tree", archive.display()))?;
    side.sync()?;
    side.mount_anew(1)?;
    read_all(bench, side, "a second mount, just mounted")?;
    side.mount_anew(1)?;
    side.empty_caches()?;
    read_all(bench, side, "a second mount, all caches empty")?;
    read_all(bench, side, "a second mount, again")?;
    bash(&side.path(), "rm -rf tree")?;
    side.sync()
}

/// Reads the tree through the second mount.
fn read_all(bench: &mut Bench, side: &Side, by: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    bench.time(side, &format!("17,477 files read by {by}"), None, || {
        bash(&side.mount(1), "tar cf - tree | cat >/dev/null")
    })?;
    if side.which == Which::Shoal {
        let rate = KERNEL_FILES as f64 / started.elapsed().as_secs_f64();
        bench.facts.push(format!(
            "{by}, reads {rate:.0} files/s (goal where nothing is cached: {SECOND_MOUNT_FILES_PER_SECOND_GOAL:.0})"
        ));
    }
    Ok(())
}

/// Two mounts make files in one directory, in turn.
fn in_turn(bench: &mut Bench, side: &Side, run: usize) -> anyhow::Result<()> {
    let dirs = [0, 1].map(|mount| side.mount(mount).join(format!("turns-{run}")));
    fs::create_dir(&dirs[0])?;
    let before = side.recalls()?;
    let started = Instant::now();
    bench.time(side, "1,000 files made in one directory by 2 mounts in turn", None, || {
        for turn in 0..TURNS {
            fs::write(dirs[turn % 2].join(turn.to_string()), b"turn")?;
        }
        Ok(())
    })?;
    let seconds = started.elapsed().as_secs_f64();
    if side.which == Which::Shoal {
        let recalls = (side.recalls()? - before) as f64 / TURNS as f64;
        let rate = TURNS as f64 / seconds;
        bench.facts.push(format!("files made in turn: {rate:.0} per second, {recalls:.2} recalls per file"));
    }
    for dir in &dirs {
        let count = fs::read_dir(dir)?.count();
        ensure!(count == TURNS, "{} has {count} files of {TURNS}", dir.display());
    }
    fs::remove_dir_all(&dirs[0])?;
    Ok(())
}

/// A byte is changed through one mount and read through another, at once; the time of both together.
fn visible(bench: &mut Bench, side: &Side, run: usize) -> anyhow::Result<()> {
    let [written, read]: [PathBuf; 2] = [0, 1].map(|mount| side.mount(mount).join(format!("byte-{run}")));
    fs::write(&written, b"0")?;
    let (written, read) = (File::options().write(true).open(&written)?, File::open(&read)?);
    let mut times = Vec::with_capacity(VISIBLE_CHANGES);
    for change in 0..VISIBLE_CHANGES {
        let (byte, mut found) = ([change as u8], [0]);
        let started = Instant::now();
        written.write_all_at(&byte, 0)?;
        read.read_exact_at(&mut found, 0)?;
        times.push(started.elapsed().as_secs_f64());
        ensure!(found == byte, "change {change} was not seen: {found:?}");
    }
    times.sort_by(f64::total_cmp);
    for (what, percent) in [("median", 50), ("p99", 99)] {
        let what = format!("a byte written on one mount and read on another, {what}");
        bench.keep(side, &what, None, times[times.len() * percent / 100]);
    }
    Ok(())
}
