//! The metadata server of a volume: a Raft group of replicas that keeps the namespace.
//!
//! **Model.** Every change is a command in the Raft log. A command that a majority has is applied to the namespace, a deterministic state
//! machine over a key-value store, and answered then. A server that is alone in its process (`shoal up`) is a group of one.
//!
//! ```text
//!  submit ──> proposals ──> driver: Raft, log, one flush per group ──> applier: namespace, store ──> answer
//!  lookup, list, ... ────────────────────────────────────────────> a snapshot of the store, on the caller's thread
//! ```
//!
//! **The path of a change.** [`Server`] takes it (`serve`, `shared`, `proposals`), the driver thread proposes it to Raft and appends it to
//! the log, as many at once as have come together during the last flush (`driver`, `storage`); what is committed is applied
//! to the store by a thread of its own (`applier`), which then tells whoever waits.
//!
//! **Promises.** What was answered survives a crash at any moment. A batch is applied as a whole, once, in its session's order. A
//! read sees everything that was answered before it was asked. Room is granted before it is used (`room`), so that neither
//! log nor store meets a full disk. All queues are bounded: see [`limits`].
//!
//! **Recovery.** The store has no log of its own: it remembers the index up to which it was applied together with the data. After a crash it
//! holds some prefix, and everything behind it is replayed from the Raft log. Whenever the log has grown by a fixed amount, the
//! store is flushed and the log cut (`upkeep`).
//!
//! **Replicas** (`replica`, [`Replica`]). One leads and answers; the others follow. It reads from its own store, as long as it holds a lease
//! on the lead (`lead`). Whoever lacks what is not in the log any more fetches the whole state (`snapshot`). Members change one
//! safe step at a time (`driver::steer`). The machinery serves any deterministic state machine ([`Machine`]) over any network
//! ([`Peers`]). What a client was not answered it sends again to the next leader; its numbers make sure that it happens once.
//!
//! **Failure.** When the log or the store fails, or holds what nobody has written, the replica stops answering; it never limps
//! on. As long as the others are a majority, they go on without it.
//!
//! **Sessions** (`sessions`). A new leader takes them over; a server that is alone ends those of an earlier process, since their client lived in
//! the process that died.
//!
//! **Rights** (`leases`). What a client is told it may cache, until others want to change it: then it is recalled.
//!
//! **Background work** (`background`): dead inodes are reaped, unreferenced blocks deleted, fragmented files compacted, paced and
//! in bounded steps, when a change has made such work. Blocks with too few copies are healed, and moved where an administrator
//! wants them (`background::heal`).

mod applier;
mod background;
mod digest;
mod driver;
mod inspect;
mod lead;
mod leadership;
mod leases;
pub mod limits;
mod machine;
pub mod offline;
mod open;
mod proposals;
mod replica;
mod room;
mod serve;
mod sessions;
mod shared;
mod sizes;
mod snapshot;
mod storage;
mod upkeep;

pub use background::heal::{HealStatus, HealTask};
pub use digest::digest;
pub use inspect::{ClearLocks, Cleared, ClearedLock, SessionInfo};
pub use lead::{Role, Status};
pub use machine::{Machine, Peers};
pub use open::{OpenError, Options};
pub use replica::{Replica, ReplicaOptions};
pub use serve::{BrickUse, Server};
pub use snapshot::fetch_state;
