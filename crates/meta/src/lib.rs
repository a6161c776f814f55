//! The metadata server of a volume: a Raft group of (for now) one replica, that keeps the namespace.
//!
//! **The path of a change.** [`Server`] takes it (`serve`), the driver thread proposes it to Raft and appends it to the log, as
//! many at once as have come together during the last flush (`driver`, `storage`); what is committed is applied to
//! the store by a thread of its own (`applier`), which then tells whoever waits. Reads go to a snapshot of the store on
//! the thread that asks.
//!
//! **Recovery.** The store has no log of its own: it remembers the index up to which it was applied together with the data.
//! After a crash it holds some prefix, and everything behind it is replayed from the Raft log.
//!
//! **Failure.** When the log or the store fails, or holds what nobody has written, the server stops answering; it never limps on.
//!
//! **Sessions.** One session at a time may hold a volume for now. Those of an earlier process are ended when the server
//! opens: their client lived in the process that died. A session that still renews is not ended for another.
//!
//! **Background work** (`background`): dead inodes are reaped, unreferenced blocks deleted, fragmented files compacted.

mod applier;
mod background;
mod digest;
mod driver;
pub mod limits;
pub mod offline;
mod open;
mod proposals;
mod room;
mod serve;
mod sessions;
mod shared;
mod sizes;
mod storage;
mod upkeep;

pub use digest::digest;
pub use open::{OpenError, Options};
pub use serve::Server;
