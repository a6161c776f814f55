//! Replaces a replica's state by a fetched one, before the replica is opened.

use super::{Manifest, decode, incoming, install, io_error, remove, sync_dir};
use crate::disk::OpenError;
use crate::sizes::{Sizes, disk_bytes};
use crate::storage::{decode_state, encode_state};
use raft::prelude::HardState;
use shoal_runtime::durable;
use shoal_store::{LogError, RaftLog};
use std::path::Path;

/// Completes an installation that was begun, if there is one. May be interrupted at any point and called
/// again.
pub(crate) fn finish_install(dir: &Path, log_bytes: Option<u64>) -> Result<(), OpenError> {
    finish(dir, log_bytes).map_err(|why| OpenError::Mismatch(format!("taking over the state: {why}")))
}

fn finish(dir: &Path, log_bytes: Option<u64>) -> Result<(), String> {
    let (place, done) = (install(dir), dir.join("installed"));
    for rest in [&done, &incoming(dir)] {
        remove(rest)?;
    }
    if !place.exists() {
        return Ok(());
    }
    exchange(dir, &place, log_bytes)?;
    // In one step, so that an interrupted removal does not leave something that looks like a state to be
    // installed.
    std::fs::rename(&place, &done).map_err(io_error(&place))?;
    sync_dir(dir)?;
    remove(&done)
}

fn exchange(dir: &Path, place: &Path, log_bytes: Option<u64>) -> Result<(), String> {
    let path = place.join("manifest");
    let manifest: Manifest = decode(&std::fs::read(&path).map_err(io_error(&path))?)?;
    let (log, store, new) = (dir.join("log"), dir.join("store"), place.join("store"));
    let mut sizes = Sizes::for_disk(disk_bytes(dir).map_err(|error| error.to_string())?.0);
    sizes.log_bytes = log_bytes.unwrap_or(sizes.log_bytes);
    let log_error = |error: LogError| error.to_string();
    // The vote must survive the replacement of the log.
    let promise = place.join("promise");
    if !promise.exists() {
        if RaftLog::exists(&log).map_err(log_error)? {
            let old = RaftLog::open(&log, sizes.log_options()).map_err(log_error)?;
            if is_known(&old, &manifest) {
                tracing::info!(index = manifest.index, "the state that was fetched is older than the log");
                return Ok(());
            }
        }
        let mut hard = HardState { term: manifest.term, ..HardState::default() };
        if RaftLog::exists(&log).map_err(log_error)? {
            let old = RaftLog::open(&log, sizes.log_options()).map_err(log_error)?;
            let (state, _) = decode_state(old.state())?;
            if state.term >= hard.term {
                hard = state;
            }
        }
        hard.commit = manifest.index;
        let state = encode_state(&hard, &manifest.members());
        durable::replace(place, "promise", &state, 0o666).map_err(io_error(&promise))?;
    }
    let state = std::fs::read(&promise).map_err(io_error(&promise))?;
    if new.exists() {
        remove(&store)?;
        std::fs::rename(&new, &store).map_err(io_error(&new))?;
        sync_dir(dir)?;
        sync_dir(place)?;
    }
    remove(&log)?;
    std::fs::create_dir_all(&log).map_err(io_error(&log))?;
    RaftLog::create(&log, sizes.log_options(), manifest.index, manifest.term, &state).map_err(log_error)?;
    sync_dir(dir)
}

/// Whether the log has all entries that the state contains. The replica continued while it fetched, and may
/// be ahead of the state: entries that it has acknowledged since must not be lost.
fn is_known(log: &RaftLog, manifest: &Manifest) -> bool {
    manifest.index < log.first_index() || log.term(manifest.index) == Some(manifest.term)
}
