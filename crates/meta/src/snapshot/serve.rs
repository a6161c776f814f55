//! Serves the state of a replica to others: makes checkpoints, and keeps the log that follows.

use super::{Manifest, SnapshotRequest, decode, encode, io_error, remove};
use crate::applied::{applied_index, applied_term, members};
use crate::limits::{CHECKPOINT_ABANDONED_AFTER, CHECKPOINT_IDLE_MAX, CHECKPOINTS_MAX, STATE_PAGE_BYTES};
use bytes::Bytes;
use raft::prelude::ConfState;
use shoal_namespace::kv::KvStore;
use shoal_runtime::sync::Mutex;
use shoal_runtime::time::Instant;
use shoal_store::RocksStore;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

struct Checkpoint {
    dir: PathBuf,
    files: Vec<(String, u64)>,
    used: Instant,
}

/// The checkpoints of this replica that other replicas are fetching.
pub(crate) struct Checkpoints {
    dir: PathBuf,
    open: Mutex<BTreeMap<u64, Checkpoint>>,
    /// For each checkpoint: its last log entry, or an earlier one while it is made, and the time of the last
    /// fetch. The replica that fetches it needs the log from there on.
    retained: Mutex<BTreeMap<u64, (u64, Instant)>>,
}

impl Checkpoints {
    /// Removes the checkpoints of an earlier process.
    pub(crate) fn new(dir: &Path) -> Checkpoints {
        let dir = dir.join("checkpoints");
        if let Err(why) = remove(&dir) {
            tracing::warn!(why, "removing old checkpoints failed");
        }
        Checkpoints { dir, open: Mutex::default(), retained: Mutex::default() }
    }

    pub(crate) fn answer(
        &self,
        store: &RocksStore,
        founders: &ConfState,
        request: &[u8],
    ) -> Result<Bytes, String> {
        match decode(request)? {
            SnapshotRequest::Begin => self.begin(store, founders).map(|manifest| encode(&manifest)),
            SnapshotRequest::Page { checkpoint, file, offset, len } => {
                self.page(checkpoint, file, offset, len)
            }
            SnapshotRequest::End { checkpoint } => {
                let ended = self.open.lock().remove(&checkpoint);
                ended.map_or(Ok(()), |one| remove(&one.dir))?;
                Ok(Bytes::new())
            }
        }
    }

    /// The log entries up to which other replicas have, or will soon have, the state.
    pub(crate) fn retained_log_starts(&self) -> Vec<u64> {
        let mut retained = self.retained.lock();
        retained.retain(|_, (_, asked)| asked.elapsed() <= CHECKPOINT_IDLE_MAX);
        retained.values().map(|(index, _)| *index).collect()
    }

    /// Removes checkpoints that are no longer fetched.
    pub(crate) fn prune(&self) {
        let mut open = self.open.lock();
        open.retain(|_, one| {
            let used = one.used.elapsed() <= CHECKPOINT_IDLE_MAX;
            if !used && let Err(why) = remove(&one.dir) {
                tracing::warn!(why, "removing a checkpoint failed");
            }
            used
        });
    }

    fn begin(&self, store: &RocksStore, founders: &ConfState) -> Result<Manifest, String> {
        self.prune();
        let mut open = self.open.lock();
        if open.len() >= CHECKPOINTS_MAX {
            self.drop_abandoned(&mut open)?;
        }
        if open.len() >= CHECKPOINTS_MAX {
            return Err("others are fetching the state already; try again later".into());
        }
        std::fs::create_dir_all(&self.dir).map_err(io_error(&self.dir))?;
        let checkpoint = shoal_runtime::random::number();
        let dir = self.dir.join(format!("{checkpoint:016x}"));
        self.retain_log(store, checkpoint)?;
        let made = make(store, founders, checkpoint, &dir);
        match &made {
            Ok(manifest) => {
                let files = manifest.files.clone();
                self.retained.lock().insert(checkpoint, (manifest.index, Instant::now()));
                open.insert(checkpoint, Checkpoint { dir, files, used: Instant::now() });
            }
            Err(_) => {
                self.retained.lock().remove(&checkpoint);
                remove(&dir)?;
            }
        }
        made
    }

    /// Keeps the log from the store's last entry on, before the store is copied: while the copy is made, the
    /// log may be truncated.
    fn retain_log(&self, store: &RocksStore, checkpoint: u64) -> Result<(), String> {
        // Locked first: if the store advances after it was read, the log is not truncated before this entry
        // is seen.
        let mut retained = self.retained.lock();
        let index = applied_index(store).map_err(|error| error.to_string())?;
        retained.insert(checkpoint, (index, Instant::now()));
        Ok(())
    }

    /// Makes room for another checkpoint by removing the one that has been idle for longest, if that is above
    /// a limit.
    fn drop_abandoned(&self, open: &mut BTreeMap<u64, Checkpoint>) -> Result<(), String> {
        let idle = open.iter().min_by_key(|(_, one)| one.used);
        let idle = idle.filter(|(_, one)| one.used.elapsed() > CHECKPOINT_ABANDONED_AFTER).map(|(id, _)| *id);
        let Some((id, one)) = idle.and_then(|id| open.remove_entry(&id)) else { return Ok(()) };
        self.retained.lock().remove(&id);
        remove(&one.dir)
    }

    fn page(&self, checkpoint: u64, file: u32, offset: u64, len: u32) -> Result<Bytes, String> {
        let path = {
            let mut open = self.open.lock();
            let one = open.get_mut(&checkpoint).ok_or("there is no such checkpoint (any more)")?;
            one.used = Instant::now();
            if let Some((_, asked)) = self.retained.lock().get_mut(&checkpoint) {
                *asked = one.used;
            }
            let (name, _) = one.files.get(file as usize).ok_or("there is no such file")?;
            one.dir.join(name)
        };
        let mut page = vec![0; (len as usize).min(STATE_PAGE_BYTES)];
        let read = File::open(&path).and_then(|open| open.read_exact_at(&mut page, offset));
        read.map_err(io_error(&path))?;
        Ok(page.into())
    }
}

/// Copies a store, and reads from the copy what it holds.
fn make(store: &RocksStore, founders: &ConfState, checkpoint: u64, dir: &Path) -> Result<Manifest, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    store.flush().map_err(|error| failed(&error))?;
    store.checkpoint(dir).map_err(|error| failed(&error))?;
    // Only the copy itself knows its last entry. The copy must not change: a file with the same name in the
    // next checkpoint has the same content.
    let copy = RocksStore::open_read_only(dir).map_err(|error| failed(&error))?;
    let index = applied_index(&copy).map_err(|error| failed(&error))?;
    let term = applied_term(&copy).map_err(|error| failed(&error))?;
    let members = members(&copy).map_err(|error| failed(&error))?;
    drop(copy);
    let term = term
        .ok_or("the store is of a version that could not be copied to other replicas; write to it first")?;
    let members = members.unwrap_or_else(|| founders.clone());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(io_error(dir))? {
        let entry = entry.map_err(io_error(dir))?;
        let name = entry.file_name().into_string().map_err(|name| format!("{name:?}"))?;
        // Left by opening it: its lock, and its log files.
        if name != "LOCK" && !name.starts_with("LOG") {
            files.push((name, entry.metadata().map_err(io_error(dir))?.len()));
        }
    }
    let (voters, learners) = (members.voters, members.learners);
    Ok(Manifest { checkpoint, index, term, voters, learners, files })
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Err(why) = remove(&self.dir) {
            tracing::warn!(why, "removing checkpoints failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_namespace::keys::{Singleton, singleton};
    use shoal_namespace::kv::WriteBatch;
    use shoal_namespace::records;
    use shoal_store::RocksOptions;

    fn store(dir: &Path, applied: u64) -> RocksStore {
        let store = RocksStore::open(dir, &RocksOptions { create: true, ..RocksOptions::default() });
        let store = store.expect("store");
        let mut batch = WriteBatch::default();
        for (which, value) in [(Singleton::Applied, applied), (Singleton::AppliedTerm, 1)] {
            batch.changes.insert(singleton(which), Some(records::encode(&value)));
        }
        store.write(&batch).expect("write");
        store
    }

    #[test]
    fn fetcher_that_died_makes_way_for_another() {
        let dir = tempfile::tempdir().expect("tempdir");
        let store = store(&dir.path().join("store"), 7);
        let checkpoints = Checkpoints::new(dir.path());
        let begin = || checkpoints.begin(&store, &ConfState::default());
        let made: Vec<u64> = (0..CHECKPOINTS_MAX).map(|_| begin().expect("begun").checkpoint).collect();
        assert!(begin().is_err(), "all of them may still be fetched from");
        let long_ago = Instant::now().checked_sub(CHECKPOINT_ABANDONED_AFTER * 2).expect("a clock that runs");
        if let Some(one) = checkpoints.open.lock().get_mut(&made[1]) {
            one.used = long_ago;
        }
        begin().expect("begun");
        assert!(checkpoints.page(made[0], 0, 0, 0).is_ok());
        assert!(checkpoints.page(made[1], 0, 0, 0).is_err());
        assert_eq!(checkpoints.retained_log_starts(), vec![7; CHECKPOINTS_MAX]);
        assert!(begin().is_err());
    }

    #[test]
    fn log_is_kept_from_before_the_checkpoint_is_made() {
        let dir = tempfile::tempdir().expect("tempdir");
        let store = store(&dir.path().join("store"), 7);
        let checkpoints = Checkpoints::new(dir.path());
        checkpoints.retain_log(&store, 1).expect("promised");
        assert_eq!(checkpoints.retained_log_starts(), [7]);
    }

    #[test]
    fn reading_a_checkpoint_does_not_change_its_files() {
        let dir = tempfile::tempdir().expect("tempdir");
        let store = store(&dir.path().join("store"), 7);
        let checkpoints = Checkpoints::new(dir.path());
        let begin = || checkpoints.begin(&store, &ConfState::default()).expect("begun").files;
        let tables = |files: Vec<(String, u64)>| {
            files.into_iter().filter(|(name, _)| name.ends_with(".sst")).collect::<Vec<_>>()
        };
        let (first, second) = (tables(begin()), tables(begin()));
        assert!(!first.is_empty());
        assert_eq!(first, second, "a newer checkpoint has the same");
    }
}
