//! `cluster`: trees are unpacked, archived and removed by several mounts at once, as in the report on
//! OpenGFS.
//!
//! First each mount has a tree of its own. Then all have one tree in common: each mount unpacks and removes a
//! share of the files of every directory, and reads all of them.

use super::trees::{Work, measure, own_trees};
use crate::turn::Turn;
use anyhow::{Context, ensure};
use std::fmt::Write;
use std::fs;

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    check_mounts(turn)?;
    (1..=turn.tops.len()).try_for_each(|mounts| own_trees(turn, "own trees: ", mounts))?;
    (1..=turn.tops.len()).try_for_each(|mounts| common_tree(turn, mounts))
}

/// All mounts have to show what the first one creates.
fn check_mounts(turn: &Turn) -> anyhow::Result<()> {
    let file = turn.top(0).join("here");
    fs::write(&file, "").with_context(|| file.display().to_string())?;
    for mount in 1..turn.tops.len() {
        let seen = turn.first_top_on(mount).is_some_and(|top| top.join("here").exists());
        let [first, other] = [0, mount].map(|mount| turn.mounts[mount].display());
        ensure!(seen, "suite cluster: {first} and {other} are not mounts of one file system");
    }
    fs::remove_file(&file).with_context(|| file.display().to_string())
}

fn common_tree(turn: &mut Turn, mounts: usize) -> anyhow::Result<()> {
    let parts = &turn.archives.context("the archives were not made")?.parts;
    let share = |mount: usize, command: &str| {
        let mut script = "cd tree; ".to_owned();
        for part in parts.iter().skip(mount).step_by(mounts) {
            let _ = write!(script, "{}; ", command.replace("PART", &format!("'{}'", part.display())));
        }
        script
    };
    let tree = turn.top(0).join("tree");
    fs::create_dir(&tree).with_context(|| tree.display().to_string())?;
    let work = Work {
        called: "common tree: ",
        mounts,
        dir: &|turn, mount| turn.first_top_on(mount).unwrap_or_else(|| turn.top(mount).to_owned()),
        unpack: &|mount| share(mount, "tar xf PART"),
        remove: &|mount| share(mount, r"tar tf PART | sed '/\/$/d' | xargs -r rm -f"),
        // The directories, which no mount may remove before all are done.
        finish: &|_| fs::remove_dir_all(&tree).with_context(|| tree.display().to_string()),
        trees: 1,
    };
    measure(turn, &work)
}
