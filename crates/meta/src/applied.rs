//! The applied state of a store: the last applied entry, and the group's members as of it. An entry's changes
//! and its index are written together.

use crate::machine::Machine;
use prost::Message;
use raft::prelude::ConfState;
use shoal_namespace::keys::{Singleton, singleton};
use shoal_namespace::kv::{KvRead, KvStore, WriteBatch};
use shoal_namespace::{TreeError, records};
use shoal_store::RocksStore;

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
