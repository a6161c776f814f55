//! The replica that fetches a state.
//!
//! While a state is fetched, the group continues to write, and the log entries after the state must still be
//! in the leader's log when the fetch is complete. A leader keeps a bounded number of bytes for that. So if
//! more bytes were fetched than the bound, a newer checkpoint is fetched in another round. Most files of it
//! are those of the one before, so a round fetches what was written during the last one. Rounds are repeated
//! until one is as short as the bound. So fetching ends, if it is faster than writing.

use super::{Manifest, SnapshotRequest, decode, encode, incoming, install, io_error, remove, sync_dir};
use crate::limits::{FETCH_ROUNDS_MAX, STATE_PAGE_BYTES};
use crate::machine::Peers;
use crate::sizes::{Sizes, disk_bytes};
use bytes::Bytes;
use shoal_types::ReplicaId;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Fetches the state of a group for a new replica, from any of the others. The replica can be opened
/// afterwards. `stop` is called periodically, and ends the fetch.
pub fn fetch_state(dir: &Path, peers: &dyn Peers, stop: &dyn Fn() -> bool) -> Result<(), String> {
    shoal_runtime::durable::create_dir_all(dir).map_err(io_error(dir))?;
    let disk = disk_bytes(dir).map_err(|error| error.to_string())?;
    let kept = Sizes::for_disk(disk.0).log_fetched_bytes();
    let mut reasons = Vec::new();
    for from in peers.others() {
        match fetch(dir, (peers, from), kept, stop) {
            Ok(()) => return Ok(()),
            Err(why) => reasons.push(format!("{from}: {why}")),
        }
    }
    if reasons.is_empty() {
        Err("there is no replica to fetch it from".into())
    } else {
        Err(reasons.join("; "))
    }
}

/// Fetches the state from one replica, which keeps `kept` bytes of its log meanwhile.
pub(crate) fn fetch(
    dir: &Path,
    (peers, from): (&dyn Peers, ReplicaId),
    kept: u64,
    stop: &dyn Fn() -> bool,
) -> Result<(), String> {
    if install(dir).exists() {
        return Ok(());
    }
    let place = incoming(dir);
    remove(&place)?;
    let store = place.join("store");
    std::fs::create_dir_all(&store).map_err(io_error(&store))?;
    let fetching = Fetching { peers, from, store: &store, stop };
    let mut manifest = fetching.begin()?;
    tracing::info!(%from, index = manifest.index, "fetching the state from another replica");
    let mut fetched = fetching.files(&manifest, &BTreeSet::new())?;
    for _ in 1..FETCH_ROUNDS_MAX {
        if fetched <= kept {
            break;
        }
        // If a newer checkpoint is refused, for example because more replicas are fetching, this one is used.
        let Ok(newer) = fetching.begin() else { break };
        // If the earlier checkpoint still exists, both were made by the same process from the same store.
        let known = fetching.immutable_files(&manifest).unwrap_or_default();
        fetching.end(&manifest);
        tracing::info!(%from, index = newer.index, fetched, "bringing the state up to date");
        fetched = fetching.files(&newer, &known)?;
        manifest = newer;
    }
    sync_dir(&store)?;
    let path = place.join("manifest");
    let mut file = File::create(&path).map_err(io_error(&path))?;
    file.write_all(&encode(&manifest)).and_then(|()| file.sync_all()).map_err(io_error(&path))?;
    sync_dir(&place)?;
    fetching.end(&manifest);
    std::fs::rename(&place, install(dir)).map_err(io_error(&place))?;
    sync_dir(dir)?;
    tracing::info!(%from, index = manifest.index, "fetched the state");
    Ok(())
}

/// A state that is being fetched.
struct Fetching<'a> {
    peers: &'a dyn Peers,
    from: ReplicaId,
    /// Directory of its files.
    store: &'a Path,
    stop: &'a dyn Fn() -> bool,
}

impl Fetching<'_> {
    fn begin(&self) -> Result<Manifest, String> {
        let manifest: Manifest = decode(&self.peers.request(self.from, encode(&SnapshotRequest::Begin))?)?;
        match manifest.files.iter().find(|(name, _)| !is_name(name)) {
            Some((name, _)) => Err(format!("{name:?} is no name of a file")),
            None => Ok(manifest),
        }
    }

    fn end(&self, manifest: &Manifest) {
        // If this gets lost, the other replica removes the checkpoint after a timeout.
        let _ =
            self.peers.request(self.from, encode(&SnapshotRequest::End { checkpoint: manifest.checkpoint }));
    }

    /// Files that a newer checkpoint of the same store shares with this one, if it still exists.
    fn immutable_files(&self, manifest: &Manifest) -> Option<BTreeSet<(String, u64)>> {
        self.page(manifest, 0, 0, 0).ok()?;
        let immutable = |(name, _): &&(String, u64)| name.ends_with(".sst") || name.ends_with(".blob");
        Some(manifest.files.iter().filter(immutable).cloned().collect())
    }

    /// Fetches the missing files of a checkpoint. Returns how many bytes were fetched.
    fn files(&self, manifest: &Manifest, known: &BTreeSet<(String, u64)>) -> Result<u64, String> {
        for entry in std::fs::read_dir(self.store).map_err(io_error(self.store))? {
            let path = entry.map_err(io_error(self.store))?.path();
            let is_in = |(name, _): &(String, u64)| path.file_name().is_some_and(|file| *file == **name);
            if !manifest.files.iter().any(is_in) {
                std::fs::remove_file(&path).map_err(io_error(&path))?;
            }
        }
        let mut fetched = 0;
        for (number, one) in manifest.files.iter().enumerate().filter(|(_, one)| !known.contains(*one)) {
            self.file(manifest, number as u32, one)?;
            fetched += one.1;
        }
        Ok(fetched)
    }

    fn file(&self, manifest: &Manifest, number: u32, (name, len): &(String, u64)) -> Result<(), String> {
        let path = self.store.join(name);
        let mut file = File::create(&path).map_err(io_error(&path))?;
        let mut offset = 0;
        while offset < *len {
            if (self.stop)() {
                return Err("stopping".into());
            }
            let want = (len - offset).min(STATE_PAGE_BYTES as u64) as u32;
            let page = self.page(manifest, number, offset, want)?;
            if page.len() != want as usize {
                return Err(format!("{name}: {} bytes instead of {want}", page.len()));
            }
            file.write_all(&page).map_err(io_error(&path))?;
            offset += u64::from(want);
        }
        file.sync_all().map_err(io_error(&path))
    }

    fn page(&self, manifest: &Manifest, file: u32, offset: u64, len: u32) -> Result<Bytes, String> {
        let request = SnapshotRequest::Page { checkpoint: manifest.checkpoint, file, offset, len };
        self.peers.request(self.from, encode(&request))
    }
}

fn is_name(name: &str) -> bool {
    !(name.is_empty() || name.contains('/') || name.starts_with('.'))
}
