//! `smallfile`: threads that create, stat, read, rename and delete files, each in directories of its own.

use super::{file, read};
use crate::interrupt;
use crate::limits::FILES_PER_DIR;
use crate::turn::Turn;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};

/// Does something to every file of every thread.
fn each(turn: &Turn, work: impl Fn(&Path) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let threads = turn.plan.threads;
    turn.parallel(threads, |thread| {
        let dir = own(turn, thread);
        // The remainder goes to the first threads.
        let files = turn.files() / threads + usize::from(thread < turn.files() % threads);
        for number in 0..files {
            interrupt::check()?;
            let path = file(&dir, number, FILES_PER_DIR);
            work(&path).with_context(|| path.display().to_string())?;
        }
        Ok(())
    })
}

fn own(turn: &Turn, thread: usize) -> PathBuf {
    turn.top(thread).join(format!("thread-{thread}"))
}

fn renamed(path: &Path) -> PathBuf {
    path.with_extension("renamed")
}

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    let (files, bytes) = (turn.files(), turn.plan.file_bytes_of(turn.suite));
    let content = vec![b'f'; bytes];
    turn.time("create, sync", files, |turn| {
        each(turn, |path| {
            if let Some(dir) = path.parent().filter(|dir| !dir.exists()) {
                fs::create_dir_all(dir)?;
            }
            Ok(fs::write(path, &content)?)
        })?;
        turn.sync()
    })?;
    let stat = |turn: &Turn| each(turn, |path| Ok(fs::metadata(path).map(drop)?));
    let read_all = |turn: &Turn| each(turn, |path| read(path, bytes));
    if turn.make_cold()? {
        turn.time("stat, cold", files, stat)?;
    }
    turn.time("stat, warm", files, stat)?;
    if turn.make_cold()? {
        turn.time("read, cold", files, read_all)?;
    }
    turn.time("read, warm", files, read_all)?;
    turn.time("rename, sync", files, |turn| {
        each(turn, |path| Ok(fs::rename(path, renamed(path))?))?;
        turn.sync()
    })?;
    turn.time("delete, sync", files, |turn| {
        each(turn, |path| Ok(fs::remove_file(renamed(path))?))?;
        turn.sync()
    })
}
