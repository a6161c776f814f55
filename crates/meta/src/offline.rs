//! A volume's state without a server, for checks and for taking data out.

use crate::applied::{applied_index, apply_entry, members};
use crate::disk::{Disk, OpenError};
use crate::shared::Namespace;
use crate::snapshot;
use crate::storage::{LogStorage, from_log};
use prost::Message;
use raft::prelude::{ConfChange, EntryType};
use shoal_namespace::kv::KvStore;
use shoal_store::RocksStore;
use std::path::Path;

/// Opens the state in a directory, and replays into the store the rest of the log, as the next start of the
/// server would. Of one of several replicas only what it knows to be committed is replayed, and no further
/// than to a change of the group's members. The caller makes sure that no server runs on it.
pub fn open(dir: &Path) -> Result<RocksStore, OpenError> {
    snapshot::finish_install(dir, None)?;
    let Disk { log, store, .. } = Disk::open(dir, None, None, None)?;
    let applied = applied_index(&store)?;
    let storage = LogStorage::new(log, applied, members(&store)?).map_err(OpenError::Mismatch)?;
    let alone = storage.voters().len() == 1;
    let end = if alone { storage.log.last_index() } else { storage.committed() };
    let machine = Namespace::new();
    for index in applied + 1..=end {
        let entry =
            from_log(storage.log.entry(index)?).map_err(|error| OpenError::Mismatch(error.to_string()))?;
        if entry.entry_type == EntryType::EntryConfChange as i32 {
            let change = ConfChange::decode(entry.data.as_slice());
            tracing::info!(index, ?change, "the state is shown as it was before the group's members changed");
            break;
        }
        apply_entry(&*machine, &store, (index, entry.term), &entry.data, None)
            .map_err(OpenError::Mismatch)?;
    }
    store.flush()?;
    Ok(store)
}
