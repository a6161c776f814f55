//! `git`: a repository is filled, looked at, changed and cleaned.

use super::create;
use crate::limits::FILES_PER_DIR;
use crate::programs::quietly;
use crate::turn::Turn;
use rand::{RngCore, SeedableRng};
use std::path::Path;
use std::process::Command;

/// Runs git without the settings of the user who measures.
fn git(dir: &Path, words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"]);
    // A directory that another user owns, as on a mount with mapped users.
    command.args(["-c", "safe.directory=*", "-c", "maintenance.auto=false"]);
    quietly(command.args(words).current_dir(dir))
}

/// Writes all files anew, with content of a version.
fn tree(turn: &Turn, version: u64) -> anyhow::Result<()> {
    let bytes = turn.plan.file_bytes_of(turn.suite);
    create(turn.top(0), turn.files(), FILES_PER_DIR, |number| {
        let mut content = vec![0; bytes];
        rand::rngs::StdRng::seed_from_u64(version << 32 | number as u64).fill_bytes(&mut content);
        content
    })
}

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    let files = turn.files();
    git(turn.top(0), &["init", "-q", "-b", "one"])?;
    tree(turn, 1)?;
    turn.time("git add and commit, sync", files, |turn| {
        git(turn.top(0), &["add", "."])?;
        git(turn.top(0), &["commit", "-q", "-m", "one"])?;
        turn.sync()
    })?;
    if turn.make_cold()? {
        turn.time("git status, cold", files, |turn| git(turn.top(0), &["status", "--short"]))?;
    }
    turn.time("git status, warm", files, |turn| git(turn.top(0), &["status", "--short"]))?;
    git(turn.top(0), &["checkout", "-q", "-b", "two"])?;
    tree(turn, 2)?;
    git(turn.top(0), &["commit", "-q", "-a", "-m", "two"])?;
    turn.time("git checkout of all files, sync", files, |turn| {
        git(turn.top(0), &["checkout", "-q", "one"])?;
        turn.sync()
    })?;
    turn.time("git gc, sync", files, |turn| {
        git(turn.top(0), &["gc", "-q"])?;
        turn.sync()
    })
}
