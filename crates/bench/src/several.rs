//! Several mounts of one volume on this machine, compared with as many programs in one plain directory: in
//! separate directories, in one directory in turn, to one file, and one after the other.

use crate::input::kernel_tar;
use crate::limits::{
    KERNEL_FILES, LONGEST_CALL_SECONDS_GOAL, MOUNTS_MAX, SECOND_MOUNT_FILES_PER_SECOND_GOAL, TURNS,
    VISIBLE_CHANGES, goals,
};
use crate::measure::Bench;
use crate::side::{Side, Which};
use anyhow::{Context, ensure};
use shoal_suites::programs::bash;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let archive = kernel_tar()?;
    // The input comes from memory, not from the disk that is measured.
    fs::read(&archive)?;
    let sides = bench.sides_with_mounts(MOUNTS_MAX)?;
    bench.alternate(&sides, |bench, side, run| {
        for mounts in 1..=MOUNTS_MAX {
            apart(bench, side, &archive, mounts)?;
        }
        second(bench, side, &archive)?;
        in_turn(bench, side, run)?;
        halves(bench, side, run)?;
        visible(bench, side, run)
    })?;
    compare(bench);
    Ok(())
}

/// Lengths of records that two mounts write to one file, in bytes, and how many each writes.
const HALVES: [(usize, usize); 3] = [(4 << 10, 2000), (64 << 10, 2000), (1 << 20, 200)];

/// The work of each mount, in parallel with other mounts.
const WORKS: [&str; 3] = ["unpack 17,477 files, sync", "tar them out, just mounted", "rm -rf, sync"];

/// The name of some work by this many mounts.
fn named(work: &str, mounts: usize) -> String {
    match mounts {
        1 => format!("{work}, on 1 mount of {MOUNTS_MAX}"),
        _ => format!("{work}, on each of {mounts} mounts at once"),
    }
}

/// Unpacks, reads and removes a tree of its own through each of some mounts in parallel. It is read by mounts
/// with cold caches, so that their readahead affects the removal.
fn apart(bench: &mut Bench, side: &Side, archive: &std::path::Path, mounts: usize) -> anyhow::Result<()> {
    let at_once = |script: &str, syncs: bool| -> anyhow::Result<()> {
        std::thread::scope(|scope| {
            let works: Vec<_> = (0..mounts)
                .map(|mount| {
                    scope.spawn(move || -> anyhow::Result<()> {
                        let tree = side.mount(mount).join(format!("tree{mount}"));
                        bash(&side.mount(mount), &script.replace("TREE", &tree.display().to_string()))?;
                        if syncs { side.sync_mount(mount) } else { Ok(()) }
                    })
                })
                .collect();
            works.into_iter().try_for_each(|work| work.join().ok().context("a thread died")?)
        })
    };
    let unpack = format!("mkdir TREE && tar xf {} -C TREE", archive.display());
    let scripts =
        [(unpack.as_str(), true), ("cd TREE && tar cf - . | cat >/dev/null", false), ("rm -rf TREE", true)];
    for (work, (script, syncs)) in WORKS.into_iter().zip(scripts) {
        let before = side.latencies()?;
        bench.time(side, &named(work, mounts), None, || at_once(script, syncs))?;
        if side.which == Which::Shoal {
            let [call, fsync] = side.latencies()?.longest_since(&before);
            let met = if call <= LONGEST_CALL_SECONDS_GOAL { "met" } else { "**missed**" };
            let fsync = if syncs { format!(", longest fsync under {fsync:.2} s") } else { String::new() };
            let work = named(work, mounts);
            bench
                .facts
                .push(format!("{work}: longest call under {call:.2} s (goal: about 1 s, {met}){fsync}"));
        }
        if work == WORKS[0] {
            (0..mounts).try_for_each(|mount| side.mount_anew(mount))?;
        }
    }
    Ok(())
}

/// The slowdown of each mount when several work, compared with that of the plain directory, which shares the
/// processors and the disk, too.
fn compare(bench: &mut Bench) {
    for work in WORKS {
        for mounts in 2..=MOUNTS_MAX {
            let find = |mounts| {
                let name = named(work, mounts);
                bench.rows().iter().find(move |row| row.what == name)
            };
            let (Some(alone), Some(together)) = (find(1), find(mounts)) else { continue };
            let (shoal, local) = (together.shoal() / alone.shoal(), together.local() / alone.local());
            let rate = (KERNEL_FILES * mounts) as f64 / together.shoal();
            let ratio = shoal / local;
            let met = if ratio <= goals::SEVERAL { "met" } else { "**missed**" };
            bench.facts.push(format!(
                "{}: {shoal:.2} times as long as on one, in the local directory {local:.2} times: \
                 ratio {ratio:.2} (goal: {:.1}, {met}); {rate:.0} files/s together",
                named(work, mounts),
                goals::SEVERAL,
            ));
        }
    }
}

/// A second mount with cold caches reads what the first one has just written: with warm servers, and with all
/// caches of the machine empty, theirs too.
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

/// Two mounts create files in one directory, in turn.
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

/// Two mounts write at once, the halves of one file or a file each.
fn halves(bench: &mut Bench, side: &Side, run: usize) -> anyhow::Result<()> {
    for (record, count) in HALVES {
        let half = (record * count) as u64;
        for (what, is_one) in [("the halves of one file", true), ("a file each", false)] {
            let paths: [PathBuf; 2] = [0, 1]
                .map(|mount| side.mount(mount).join(format!("half-{run}-{}", mount * usize::from(!is_one))));
            for path in &paths {
                File::create(path)?.set_len(2 * half)?;
            }
            side.sync()?;
            let write = |mount: usize| -> anyhow::Result<()> {
                let file = File::options().write(true).open(&paths[mount])?;
                let (content, begin) = (vec![mount as u8; record], mount as u64 * half);
                (0..count).try_for_each(|at| file.write_all_at(&content, begin + (at * record) as u64))?;
                Ok(file.sync_all()?)
            };
            let work = format!("{count} records of {} KiB on each of 2 mounts, {what}", record >> 10);
            bench.time(side, &work, None, || {
                std::thread::scope(|scope| {
                    let works = [0, 1].map(|mount| scope.spawn(move || write(mount)));
                    works.into_iter().try_for_each(|work| work.join().ok().context("a thread died")?)
                })
            })?;
            for path in &paths {
                let _ = fs::remove_file(path);
            }
        }
    }
    Ok(())
}

/// A byte is changed through one mount and read through another at once; the time of both together.
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
