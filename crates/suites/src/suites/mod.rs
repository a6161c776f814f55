//! The workloads, one file each.

mod build;
mod cluster;
mod git;
mod maildir;
pub mod small_read;
mod smallfile;
mod stream;
pub mod trees;
mod untar;
mod web;

use crate::interrupt;
use crate::plan::Suite;
use crate::turn::Turn;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};

/// Runs one suite on one system.
pub(crate) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    match turn.suite {
        Suite::SmallRead => small_read::run(turn),
        Suite::Untar => untar::run(turn),
        Suite::Cluster => cluster::run(turn),
        Suite::Smallfile => smallfile::run(turn),
        Suite::Stream => stream::run(turn),
        Suite::Web => web::run(turn),
        Suite::Git => git::run(turn),
        Suite::Maildir => maildir::run(turn),
        Suite::Build => build::run(turn),
    }
}

/// The path of a file in a tree with so many files per directory.
fn file(top: &Path, number: usize, per_dir: usize) -> PathBuf {
    top.join(format!("dir-{}", number / per_dir)).join(format!("file-{number}"))
}

/// Creates a tree of files.
pub fn create(
    top: &Path,
    files: usize,
    per_dir: usize,
    content: impl Fn(usize) -> Vec<u8>,
) -> anyhow::Result<()> {
    for number in 0..files {
        interrupt::check()?;
        let path = file(top, number, per_dir);
        if number % per_dir == 0
            && let Some(dir) = path.parent()
        {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        fs::write(&path, content(number)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Reads a file; a length that is not the expected one is an error.
fn read(path: &Path, length: usize) -> anyhow::Result<()> {
    let content = fs::read(path).with_context(|| path.display().to_string())?;
    anyhow::ensure!(content.len() == length, "{} has {} bytes, not {length}", path.display(), content.len());
    Ok(())
}
