//! A mounted volume, as a plain Rust API: session, cache, journal, content. No FUSE in it.
//!
//! **The model.** A cached object is valid: it is recalled before another client changes it. What the client
//! has the right to change, it changes in its cache at once, and appends the operation to a journal. The
//! journal is sent to the metadata leader in batches. A call waits for a server only in these cases: first
//! access to an object, first change of one that another client watches, fsync(2), and a full window of
//! uncommitted bytes.
//!
//! **The parts.** [`core`] is pure: cache, journal and blocks in progress, without clock, threads or I/O. It
//! answers or says what it needs. The session around it has one lock for the core and never holds it while it
//! waits. Each module uses only those below it in this list:
//! - [`api`]: the calls; [`mapped`]: writes back what programs change through shared mappings;
//! - [`client`]: opens and closes the volume; [`mount`]: replaces a session that the servers have ended;
//! - [`session`]: composes the parts of a session, runs calls against the core and has their needs fetched;
//! - [`fetch`]: fetches metadata, with the right to cache it; [`recalls`]: gives these rights back;
//! - [`mapping_locks`]: which mount may have shared writable mappings of a file; [`locks`]: locks of
//!   programs, which exclude each other across mounts;
//! - [`flush`]: waits for the journal; [`ship`]: sends it, in order; [`put`]: stores its blocks first;
//! - [`grants`]: room and inode numbers; [`expiry`]: invalidates all caches when the lease runs out;
//! - [`reader`]: reads blocks, and ahead of sequential readers; [`locate`]: finds the bricks that have them;
//! - [`walk`]: prefetches for programs that walk through trees;
//! - [`wait`]: waits that servers or bricks can cause;
//! - [`context`]: what these parts share: the connection ([`transport`]), the state and its lock, the
//!   [`lease`], requests in flight ([`tokens`]) and the groups of blocks ([`groups`]);
//! - [`failover`]: finds the leader among the replicas of a metadata group, and resends uncommitted batches
//!   to it;
//! - [`memory`]: the session's parts in the process's budget; [`streams`]: how many files are being read;
//! - [`trace`]: what a call waits for, for the log of slow operations.
//!
//! **Promises.** Commit order is the order of the calls. `fsync` returns when everything before it is
//! durable. Memory is bounded by [`limits`]. No loss is silent: when the servers have ended the session, the
//! next `fsync` reports what was lost, and the mount continues in a new session. When something acknowledged
//! has been lost otherwise, every later call fails. Calls wait for servers and bricks that do not answer, and
//! can be interrupted.

mod acl;
mod api;
mod backoff;
mod client;
mod clock;
mod context;
mod core;
mod dump;
mod expiry;
mod failover;
mod fetch;
mod flush;
mod grants;
mod groups;
mod kernel;
mod lease;
pub mod limits;
mod locate;
mod locks;
mod mapped;
mod mapping_locks;
mod memory;
mod mount;
mod options;
mod put;
mod reader;
mod recalls;
mod sequence;
mod session;
mod shared;
mod ship;
mod stats;
mod streams;
mod tokens;
mod trace;
mod transport;
mod values;
mod wait;
mod walk;

pub use crate::core::Referred;
pub use api::Creation;
pub use client::Client;
pub use failover::{Failover, FailoverOptions, Replicas};
pub use kernel::{KernelCache, Stale};
pub use locks::{Lock, LockWait};
pub use mapped::Before;
pub use options::Options;
pub use shoal_wire::{LockKind, LockRange, LockRecord, LockSpace};
pub use stats::Stat;
pub use trace::{Hop, Trace, Waiting, waits};
pub use values::{
    Caller, Calling, Entry, Failure, Fallocate, LookupResult, Reply, Seek, SeekResult, Visit, Wait, Written,
};
