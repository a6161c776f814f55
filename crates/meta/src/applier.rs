//! The applier: a thread that applies committed entries to the store, in order, and answers their waiters.

use crate::driver::{Input, applying_bytes};
use crate::machine::Machine;
use crate::replica::Core;
use prost::Message;
use raft::prelude::{ConfState, Entry, EntryType};
use shoal_namespace::keys::{Singleton, singleton};
use shoal_namespace::kv::{KvRead, KvStore, WriteBatch};
use shoal_namespace::{TreeError, records};
use shoal_runtime::channel::{Receiver, Sender};
use shoal_runtime::planted::mistake;
use shoal_runtime::time::{Duration, Instant};
use shoal_store::RocksStore;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Delay of a store in a planted defect of the simulator.
const SLOW_STORE: Duration = Duration::from_millis(5);

/// A committed entry; `members`: the group from it on, if it changes the members.
pub(crate) struct Committed {
    pub(crate) entry: Entry,
    pub(crate) members: Option<ConfState>,
}

/// The index of the last entry that a store has applied; 0 for a new one.
pub(crate) fn applied_index(store: &impl KvRead) -> Result<u64, TreeError> {
    Ok(number(store, Singleton::Applied)?.unwrap_or(0))
}

/// The term of that entry; `None` in a store from before the term was recorded.
pub(crate) fn applied_term(store: &impl KvRead) -> Result<Option<u64>, TreeError> {
    number(store, Singleton::AppliedTerm)
}

fn number(store: &impl KvRead, which: Singleton) -> Result<Option<u64>, TreeError> {
    let key = singleton(which);
    match store.get(&key)? {
        None => Ok(None),
        Some(value) => records::decode(&value).map(Some).map_err(|error| TreeError::damaged(&key, error)),
    }
}

/// The members of the group as of that entry; `None`: its first members.
pub(crate) fn members(store: &impl KvRead) -> Result<Option<ConfState>, TreeError> {
    let key = singleton(Singleton::Members);
    let Some(value) = store.get(&key)? else { return Ok(None) };
    let bytes: Vec<u8> = records::decode(&value).map_err(|error| TreeError::damaged(&key, error))?;
    ConfState::decode(bytes.as_slice()).map(Some).map_err(|error| TreeError::damaged(&key, error))
}

/// Applies one entry. `data` is empty for the first entry of a new leader's term.
pub(crate) fn apply_entry<M: Machine>(
    machine: &M,
    store: &RocksStore,
    (index, term): (u64, u64),
    data: &[u8],
    members: Option<&ConfState>,
) -> Result<(Option<M::Outcome>, WriteBatch), String> {
    let mut batch = WriteBatch::default();
    let mut applied = None;
    if !data.is_empty() && members.is_none() {
        let (changes, outcome) =
            machine.apply(store, data).map_err(|error| format!("log entry {index}: {error}"))?;
        batch = changes;
        applied = Some(outcome);
    }
    let mut put = |which, value| batch.changes.insert(singleton(which), Some(value));
    put(Singleton::Applied, records::encode(&index));
    put(Singleton::AppliedTerm, records::encode(&term));
    if let Some(members) = members {
        put(Singleton::Members, records::encode(&members.encode_to_vec()));
    }
    store.write(&batch).map_err(|error| format!("log entry {index}: {error}"))?;
    Ok((applied, batch))
}

/// Runs until the driver's channel is closed.
pub(crate) fn run<M: Machine>(
    core: &Arc<Core<M>>,
    groups: &Receiver<Vec<Committed>>,
    driver: &Sender<Input>,
) -> Result<(), String> {
    for group in groups {
        let mut last = 0;
        for Committed { entry, members } in group {
            last = entry.index;
            let known = [EntryType::EntryNormal as i32, EntryType::EntryConfChange as i32];
            if !known.contains(&entry.entry_type) {
                return Err(format!("log entry {last}: its kind is unknown to this program"));
            }
            let bytes = applying_bytes(&entry);
            let begun = Instant::now();
            let at = (entry.index, entry.term);
            if mistake("say that it is applied before it is") {
                core.set_applied(entry.index);
                shoal_runtime::thread::sleep(SLOW_STORE);
            }
            let (outcome, batch) =
                apply_entry(&*core.machine, &core.store, at, &entry.data, members.as_ref())?;
            core.apply.record(begun.elapsed());
            core.applying_bytes.fetch_sub(bytes, Ordering::Relaxed);
            core.set_applied(entry.index);
            let removed = batch.changes.values().filter(|value| value.is_none()).count();
            core.removed.fetch_add(removed as u64, Ordering::Relaxed);
            core.machine.applied(&batch);
            if let Some(outcome) = outcome {
                core.proposals.complete(&entry.context, outcome);
            }
        }
        // The driver only stops after this thread's channel is closed.
        let _ = driver.send(Input::Applied(last));
    }
    Ok(())
}
