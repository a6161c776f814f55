//! The vocabulary of Shoal: identifiers, attributes, names, times, errors and the limits that every
//! other crate shares.
//!
//! Nothing here does anything: no I/O, no clock, no state. A word defined here means the same in the
//! namespace, on the wire and on disk.

mod attr;
mod content;
mod errno;
mod group;
mod id;
pub mod limits;
mod name;
mod origin;
mod policies;
mod scheme;
mod size;
mod time;

pub use attr::{FileKind, Inode, InodeFlags, Statfs, mode};
pub use content::{BlockInfo, BlockRef, Extent};
pub use errno::Errno;
pub use group::{BRICK_NUMBER_MAX, BlockGroup, GROUP_BRICKS_MAX, SHARD_COLUMN_BYTES, Tier};
pub use id::{BatchSeq, BlockId, BrickId, GroupId, Incarnation, InodeId, NodeId, ReplicaId, SessionId};
pub use name::{Cookie, Name, NameError, XattrName, XattrNameError};
pub use origin::{Origin, Process};
pub use policies::{InodePolicies, Pins, Policies, Policy, Schemes, nearest_policy};
pub use scheme::{BlockScheme, Shards};
pub use size::parse_bytes;
pub use time::Timestamp;
