//! `maildir`: threads deliver messages, each with an fsync, read them and expunge them.

use super::read;
use crate::interrupt;
use crate::turn::Turn;
use anyhow::{Context, ensure};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

/// The mailbox of a thread.
fn mailbox(turn: &Turn, thread: usize) -> PathBuf {
    turn.top(thread).join(format!("user-{thread}"))
}

fn names(dir: &PathBuf) -> anyhow::Result<Vec<std::ffi::OsString>> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    let (bytes, threads) = (turn.plan.file_bytes_of(turn.suite), turn.plan.threads);
    let each = turn.files().div_ceil(threads);
    let files = each * threads;
    let content = vec![b'm'; bytes];
    for thread in 0..threads {
        for folder in ["tmp", "new", "cur"] {
            fs::create_dir_all(mailbox(turn, thread).join(folder))?;
        }
    }
    turn.sync()?;
    turn.time("deliver, fsync each", files, |turn| {
        turn.parallel(threads, |thread| {
            let mailbox = mailbox(turn, thread);
            for number in 0..each {
                interrupt::check()?;
                let temporary = mailbox.join("tmp").join(format!("message-{number}"));
                let mut file = File::create_new(&temporary)?;
                file.write_all(&content)?;
                file.sync_all()?;
                fs::rename(&temporary, mailbox.join("new").join(format!("message-{number}")))?;
            }
            // The names are on disk, too.
            Ok(File::open(mailbox.join("new"))?.sync_all()?)
        })
    })?;
    let fetch = |turn: &Turn| {
        turn.parallel(threads, |thread| {
            let folder = mailbox(turn, thread).join("cur");
            let names = names(&folder)?;
            ensure!(names.len() == each, "{} lists {} messages, not {each}", folder.display(), names.len());
            names.iter().try_for_each(|name| read(&folder.join(name), bytes))
        })
    };
    turn.time("see new messages, sync", files, |turn| {
        turn.parallel(threads, |thread| {
            let mailbox = mailbox(turn, thread);
            for name in names(&mailbox.join("new"))? {
                let mut seen = name.clone();
                seen.push(":2,S");
                fs::rename(mailbox.join("new").join(&name), mailbox.join("cur").join(seen))?;
            }
            Ok(())
        })?;
        turn.sync()
    })?;
    if turn.make_cold()? {
        turn.time("list and read, cold", files, fetch)?;
    } else {
        fetch(turn)?;
    }
    turn.time("list and read, warm", files, fetch)?;
    turn.time("expunge, sync", files, |turn| {
        turn.parallel(threads, |thread| {
            let folder = mailbox(turn, thread).join("cur");
            names(&folder)?.iter().try_for_each(|name| Ok(fs::remove_file(folder.join(name))?))
        })?;
        turn.sync()
    })
}
