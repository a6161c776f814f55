//! The thread that applies committed entries to the store, in order, and tells whoever waits for them.

use crate::background::Work;
use crate::driver::Input;
use crate::shared::Shared;
use crossbeam_channel::{Receiver, Sender};
use raft::prelude::{Entry, EntryType};
use shoal_namespace::keys::{self, KeyRange, Singleton, singleton};
use shoal_namespace::kv::{KvRead, KvStore, WriteBatch};
use shoal_namespace::{Command, Outcome, TreeError, apply_command, records};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The index of the last entry that a store has applied; 0 for a new one.
pub(crate) fn applied_index(store: &impl KvRead) -> Result<u64, TreeError> {
    let key = singleton(Singleton::Applied);
    match store.get(&key)? {
        None => Ok(0),
        Some(value) => records::decode(&value).map_err(|error| TreeError::damaged(&key, error)),
    }
}

/// Applies one entry. `data` is empty for an entry that a new leader begins its term with.
pub(crate) fn apply_entry(
    store: &impl KvStore,
    index: u64,
    data: &[u8],
) -> Result<(Option<Outcome>, WriteBatch), String> {
    let mut batch = WriteBatch::default();
    let mut applied = None;
    if !data.is_empty() {
        let command = Command::decode(data).map_err(|error| format!("log entry {index}: {error}"))?;
        let (changes, outcome) =
            apply_command(store, &command).map_err(|error| format!("log entry {index}: {error}"))?;
        batch = changes;
        applied = Some(outcome);
    }
    batch.changes.insert(singleton(Singleton::Applied), Some(records::encode(&index)));
    store.write(&batch).map_err(|error| format!("log entry {index}: {error}"))?;
    Ok((applied, batch))
}

/// Runs until the driver hands nothing over any more.
pub(crate) fn run(
    shared: &Arc<Shared>,
    groups: &Receiver<Vec<Entry>>,
    driver: &Sender<Input>,
) -> Result<(), String> {
    for group in groups {
        let mut last = 0;
        for entry in group {
            last = entry.index;
            if entry.entry_type != EntryType::EntryNormal as i32 {
                return Err(format!("log entry {last}: its kind is unknown to this program"));
            }
            let begun = Instant::now();
            let (outcome, batch) = apply_entry(&shared.store, entry.index, &entry.data)?;
            shared.apply_micros.fetch_add(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
            shared.set_applied(entry.index);
            let removed = batch.changes.values().filter(|value| value.is_none()).count();
            shared.removed.fetch_add(removed as u64, Ordering::Relaxed);
            look_for_work(shared, &batch);
            if let Some(outcome) = outcome {
                shared.proposals.complete(&entry.context, outcome);
            }
        }
        // The driver only stops after this thread's channel is closed.
        let _ = driver.send(Input::Applied(last));
    }
    Ok(())
}

/// Wakes the background work that a change has made.
fn look_for_work(shared: &Shared, batch: &WriteBatch) {
    let puts = |(from, to): KeyRange| {
        let range = (Bound::Included(from), Bound::Excluded(to));
        batch.changes.range::<Vec<u8>, _>(range).any(|(_, value)| value.is_some())
    };
    if puts(keys::degraded_range(None)) {
        shared.heal.copies_are_short();
    }
    shared.background.add(Work {
        reap: puts(keys::all_reap()),
        collect: puts(keys::garbage_range(None)),
        compact: puts(keys::compact_range(None)),
        ..Work::default()
    });
}
