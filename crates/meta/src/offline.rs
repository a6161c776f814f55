//! A volume's state without a server, for checks and for taking data out.

use crate::applier::{applied_index, apply_entry};
use crate::open::{self, OpenError, Options};
use crate::storage::split;
use shoal_namespace::kv::KvStore;
use shoal_store::RocksStore;
use std::path::Path;

/// Opens the state in a directory, and replays into the store what is in the log behind it, as the next start of the
/// server would. The caller makes sure that no server runs on it.
pub fn open(dir: &Path) -> Result<RocksStore, OpenError> {
    let open::Disk { log, store, .. } = open::disk(dir, Options::default())?;
    let applied = applied_index(&store)?;
    if applied > log.last_index() || applied + 1 < log.first_index() {
        return Err(OpenError::Mismatch(format!(
            "the store is at entry {applied}, but the log holds {} to {}: they do not belong together",
            log.first_index(),
            log.last_index()
        )));
    }
    for index in applied + 1..=log.last_index() {
        let entry = log.entry(index)?;
        let (_, data) = split(&entry.payload)
            .ok_or_else(|| OpenError::Mismatch(format!("log entry {index} has no context")))?;
        apply_entry(&store, index, &data).map_err(OpenError::Mismatch)?;
    }
    store.flush()?;
    Ok(store)
}
