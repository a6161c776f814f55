//! The metadata server of a volume: a Raft group of replicas that keeps the namespace.
//!
//! **Model.** Every change is a command in the Raft log. Once committed by a majority, it is applied to the
//! namespace, a deterministic state machine over a key-value store, and then answered. A single process
//! (`shoal up`) runs a group of one.
//!
//! ```text
//!  submit ──> proposals ──> driver: Raft, log, one flush per group ──> applier: namespace, store ──> answer
//!  lookup, list, ... ────────────────────────────────────────────> a snapshot of the store, on the caller's thread
//! ```
//!
//! **The path of a change.** [`Server`] takes it (`serve`, `shared`, `proposals`). The driver thread proposes
//! it to Raft and appends it to the log, together with all proposals that arrived during the last flush
//! (`driver`, `storage`). A thread of its own applies committed entries to the store and answers the waiter
//! (`applier`).
//!
//! **Promises.** What was acknowledged survives a crash at any moment. A batch is applied as a whole, once,
//! in its session's order. A read sees everything that was acknowledged before the read began. Room is
//! granted before it is used (`space`, `grants`), so that neither log nor store meets a full disk. All queues
//! are bounded: see [`limits`].
//!
//! **Recovery.** The store has no log of its own: with the data it stores the index up to which it has
//! applied. After a crash it holds some prefix, and the rest is replayed from the Raft log. Whenever the log
//! has grown by a fixed amount, the store is flushed and the log truncated (`flush`).
//!
//! **Replicas** (`replica`, [`Replica`]). One leads and answers; the others follow. The leader reads from its
//! own store, as long as it holds the leader lease (`lead`). A replica that is behind the leader's log
//! fetches the whole state (`snapshot`). Members change one safe step at a time (`driver::membership`). The
//! machinery serves any deterministic state machine ([`Machine`]) over any network ([`Peers`]). A client
//! sends a request without a reply again to the next leader; sequence numbers make such retries idempotent.
//!
//! **Failure.** When the log or the store fails, or is corrupt, the replica stops answering; it never limps
//! on. As long as the others are a majority, they continue without it.
//!
//! **Sessions** (`sessions`). A new leader takes them over. A group of one ends those of an earlier process,
//! since their client lived in the process that died.
//!
//! **Rights** (`rights`, on the table in `leases`). A client may cache what a reply has granted. It is
//! recalled before another client changes it.
//!
//! **Background work** (`background`): dead inodes are reaped, unreferenced blocks deleted, fragmented files
//! compacted. All of it is paced, in bounded steps, and started by the changes that make it necessary. Blocks
//! with too few copies are healed, and moved where an administrator wants them (`background::heal`).
//! Changes queue this work in `tasks`.
//!
//! **Layers.** Modules know only those below them. Driver, applier, flush thread and replica know each other
//! through `core`. The parts of a volume's server know each other through `shared`:
//!
//! ```text
//!  open, leadership, serve, inspect          opens, leads, serves
//!  rights, grants, background                carry out requests and tasks
//!  shared                                    what they share, and the state machine
//!  leases, tasks, space, sessions            its parts, each with its own lock
//!  replica                                   Raft around any state machine
//!  driver, applier, flush                    its threads
//!  core                                      what these threads share, and tell each other
//!  snapshot, disk, storage, applied, lead    a replica's disk, and its leadership
//! ```

mod applied;
mod applier;
mod background;
mod core;
mod digest;
mod disk;
mod driver;
mod flush;
mod grants;
mod inspect;
mod lead;
mod leadership;
mod leases;
pub mod limits;
mod losses;
mod machine;
pub mod offline;
mod open;
mod options;
mod proposals;
mod replica;
mod rights;
mod serve;
mod sessions;
mod shared;
mod sizes;
mod slow;
mod snapshot;
mod space;
mod storage;
mod tasks;

pub use background::heal::healing_order;
pub use background::policies::PolicyState;
pub use background::tier::{Move, Reason};
pub use digest::digest;
pub use disk::OpenError;
pub use inspect::{Cleared, ClearedLock, SessionInfo};
pub use lead::{Role, Status};
pub use leases::ClearLocks;
pub use losses::{LossClass, Losses};
pub use machine::{Machine, Peers};
pub use options::Options;
pub use replica::{Replica, ReplicaOptions};
pub use serve::{BrickUse, SchemeUse, Server};
pub use snapshot::fetch_state;
pub use tasks::{HealStatus, HealTask, RebalanceStatus, TierSettings, TierState, TierStatus};
