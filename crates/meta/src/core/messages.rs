//! Messages between the threads of a replica.

use raft::prelude::{ConfState, Entry, Message};
use shoal_runtime::time::Instant;
use shoal_types::ReplicaId;

/// Input of the driver.
pub(crate) enum Input {
    /// A command to propose.
    Propose {
        /// Names the proposal; comes back with the committed entry.
        id: u64,
        /// The id, as it stands in the log.
        context: [u8; 16],
        /// An encoded command.
        data: Vec<u8>,
        /// The term in which it may be proposed; `None` for any.
        term: Option<u64>,
        /// When it was proposed.
        since: Instant,
    },
    /// A message of another replica.
    Message(Box<Message>),
    /// The wanted members of the group.
    SetWantedMembers(Vec<ReplicaId>),
    /// Hand leadership over, if this replica has it.
    Transfer,
    /// Entries up to here are applied.
    Applied(u64),
    /// Entries up to here are durable in the store.
    Durable(u64),
    /// End the thread.
    Stop,
}

/// A committed entry; `members`: the group from it on, if it changes the members.
pub(crate) struct Committed {
    pub(crate) entry: Entry,
    pub(crate) members: Option<ConfState>,
}

/// Memory that an entry takes while it waits to be applied, in bytes, about.
pub(crate) fn applying_bytes(entry: &Entry) -> usize {
    entry.data.len() + std::mem::size_of::<Entry>()
}
