//! Trees like the kernel's, unpacked, archived and removed by one mount or by several at once.

use super::create;
use crate::limits::{FILES_PER_DIR, TREE_PARTS};
use crate::plan::{Plan, Suite};
use crate::programs::bash;
use crate::turn::{Archives, Turn};
use anyhow::Context;
use rand::{Rng, RngCore, SeedableRng};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Files of a directory: the kernel has 13 on average.
const PER_DIR: usize = 13;

/// Makes what is unpacked: the same files each time.
pub fn archives(dir: &Path, plan: &Plan) -> anyhow::Result<Archives> {
    let files = plan.files_of(Suite::Untar);
    let mean = plan.file_bytes_of(Suite::Untar);
    let per_dir = PER_DIR.min(FILES_PER_DIR);
    create(&dir.join("tree"), files, per_dir, |number| {
        let mut random = rand::rngs::StdRng::seed_from_u64(number as u64);
        // Most files are short and a few are long: the product of two even distributions.
        let part = random.random::<f64>() * random.random::<f64>();
        let mut content = vec![0; (4.0 * part * mean as f64) as usize];
        random.fill_bytes(&mut content);
        content
    })?;
    bash(dir, "tar cf tree.tar -C tree .")?;
    let mut parts = Vec::new();
    if plan.suites.contains(&Suite::Cluster) {
        for part in 0..TREE_PARTS {
            let mut list = String::new();
            let mut last = PathBuf::new();
            for number in (part..files).step_by(TREE_PARTS) {
                let file = super::file(Path::new("."), number, per_dir);
                // Each directory, too: GNU tar 1.34 fails with ENOENT where it lacks a directory that another
                // tar makes at that moment (`maybe_recoverable`).
                if let Some(parent) = file.parent().filter(|parent| *parent != last) {
                    let _ = writeln!(list, "{}", parent.display());
                    last = parent.to_owned();
                }
                let _ = writeln!(list, "{}", file.display());
            }
            let path = dir.join(format!("part{part}.tar"));
            let listed = dir.join("list");
            fs::write(&listed, list).context("the list of a part")?;
            bash(
                dir,
                &format!("tar cf '{}' --no-recursion -C tree -T '{}'", path.display(), listed.display()),
            )?;
            parts.push(path);
        }
    }
    bash(dir, "rm -r tree")?;
    Ok(Archives { tree: dir.join("tree.tar"), parts })
}

/// How the mounts divide the work.
pub(super) struct Work<'a> {
    /// What stands before the name of each measurement.
    pub called: &'a str,
    /// How many mounts work at once.
    pub mounts: usize,
    /// The directory in which a mount works.
    pub dir: &'a (dyn Fn(&Turn, usize) -> PathBuf + Sync),
    /// The script by which a mount unpacks into `tree`.
    pub unpack: &'a (dyn Fn(usize) -> String + Sync),
    /// The script by which a mount removes that.
    pub remove: &'a (dyn Fn(usize) -> String + Sync),
    /// What is left to do when all have removed.
    pub finish: &'a dyn Fn(&Turn) -> anyhow::Result<()>,
    /// Trees that the mounts unpack together.
    pub trees: usize,
}

/// Measures all three steps.
pub(super) fn measure(turn: &mut Turn, work: &Work) -> anyhow::Result<()> {
    let files = turn.files() * work.trees;
    let called = |what: &str| format!("{}{what}{}", work.called, on_mounts(work.mounts));
    let all = |turn: &Turn, script: &(dyn Fn(usize) -> String + Sync)| {
        turn.parallel(work.mounts, |mount| bash(&(work.dir)(turn, mount), &script(mount)))
    };
    turn.time(&called("unpack, sync"), files, |turn| {
        all(turn, work.unpack)?;
        turn.sync()
    })?;
    let tar = |turn: &Turn| all(turn, &|_| "tar cf - tree | cat >/dev/null".to_owned());
    let read = turn.files() * work.mounts;
    if turn.make_cold()? {
        turn.time(&called("tar, data read, cold"), read, tar)?;
    } else {
        tar(turn)?;
    }
    turn.time(&called("tar, data read, warm"), read, tar)?;
    turn.time(&called("rm -rf, sync"), files, |turn| {
        all(turn, work.remove)?;
        (work.finish)(turn)?;
        turn.sync()
    })
}

/// Each mount has a tree of its own.
pub(super) fn own_trees(turn: &mut Turn, called: &str, mounts: usize) -> anyhow::Result<()> {
    let archives = turn.archives.context("the archives were not made")?;
    let unpack = format!("mkdir tree && tar xf '{}' -C tree", archives.tree.display());
    let work = Work {
        called,
        mounts,
        dir: &|turn, mount| turn.top(mount).to_owned(),
        unpack: &|_| unpack.clone(),
        remove: &|_| "rm -rf tree".to_owned(),
        finish: &|_| Ok(()),
        trees: mounts,
    };
    measure(turn, &work)
}

const ON: &str = " on ";
const MOUNTS: &str = " mounts at once";

/// The end of a measurement's name, by the number of mounts.
fn on_mounts(mounts: usize) -> String {
    if mounts == 1 { String::new() } else { format!("{ON}{mounts}{MOUNTS}") }
}

/// A measurement's name without its end, and the number of mounts.
pub(crate) fn split_mounts(what: &str) -> (&str, usize) {
    let split = what.strip_suffix(MOUNTS).and_then(|rest| rest.rsplit_once(ON));
    split.and_then(|(work, mounts)| Some((work, mounts.parse().ok()?))).unwrap_or((what, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_mounts_is_the_end_of_a_name() {
        for mounts in [1, 2, 12] {
            let name = format!("unpack, sync{}", on_mounts(mounts));
            assert_eq!(split_mounts(&name), ("unpack, sync", mounts));
        }
        assert_eq!(split_mounts("tar on mounts at once"), ("tar on mounts at once", 1));
    }

    #[test]
    fn parts_are_together_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        let plan =
            Plan { suites: vec![Suite::Cluster], files: Some(30), file_bytes: Some(100), ..Plan::default() };
        let made = archives(dir.path(), &plan).unwrap();
        let script =
            |archive: &Path, to: &str| format!("mkdir -p {to} && tar xf '{}' -C {to}", archive.display());
        bash(dir.path(), &script(&made.tree, "whole")).unwrap();
        for part in &made.parts {
            bash(dir.path(), &script(part, "parts")).unwrap();
        }
        bash(dir.path(), "diff -r whole parts && test \"$(find parts -type f | wc -l)\" = 30").unwrap();
    }
}
