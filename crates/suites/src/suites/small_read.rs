//! `small-read`: ten thousand small files, read cold by one tar and warm by many at once.

use super::create;
use crate::limits::{FILES_PER_DIR, TARS_PER_PIPED_TAR};
use crate::programs::bash;
use crate::turn::Turn;
use std::fs;

/// A script that runs a command so many times at once.
pub fn at_once(count: usize, command: &str) -> String {
    // `wait` alone would forget which of them failed.
    format!(
        "pids=(); for i in $(seq {count}); do {command} & pids+=($!); done; for p in \"${{pids[@]}}\"; do wait $p; done"
    )
}

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    let (files, bytes, tars) = (turn.files(), turn.plan.file_bytes_of(turn.suite), turn.plan.tars);
    turn.time("create, sync", files, |turn| {
        create(turn.top(0), files, FILES_PER_DIR, |_| vec![b's'; bytes])?;
        turn.sync()
    })?;
    let one = "tar cf - . | cat >/dev/null";
    if turn.make_cold()? {
        turn.time("1 tar, data read, cold", files, |turn| bash(turn.top(0), one))?;
    } else {
        bash(turn.top(0), one)?;
    }
    turn.time("1 tar, data read, warm", files, |turn| bash(turn.top(0), one))?;
    turn.time(&format!("{tars} tars at once, to /dev/null"), files * tars, |turn| {
        bash(turn.top(0), &at_once(tars, "tar cf - . >/dev/null"))
    })?;
    let piped = (tars / TARS_PER_PIPED_TAR).max(1);
    turn.time(&format!("{piped} tars at once, data read"), files * piped, |turn| {
        bash(turn.top(0), &at_once(piped, "(tar cf - . | cat >/dev/null)"))
    })?;
    turn.time("remove, sync", files, |turn| {
        for entry in fs::read_dir(turn.top(0))? {
            fs::remove_dir_all(entry?.path())?;
        }
        turn.sync()
    })
}
