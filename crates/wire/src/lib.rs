//! The messages of clients, metadata servers and bricks, and the two services that they call.
//!
//! In one process a service is called directly. Between machines the same messages go through a transport
//! that implements the same traits, so no caller can tell the difference.

mod block;
mod denial;
mod error;
mod lease;
mod locks;
mod meta;

pub use block::{BlockError, BlockPage, BlockService, GetDone, Moment, Moments, VolumeBlocks};
pub use denial::{Denial, Reason};
pub use error::MetaError;
pub use lease::{
    Ack, Acquire, AcquireReply, Done, Found, Item, MOVES, Poll, Query, ReadReply, ReadRequest, Recall,
    Recalls, Reclaim, Right, Token, Want, WantName, wait_for,
};
pub use locks::{LockOp, LockOutcome, LockReply, LockRequest};
pub use meta::{
    Commit, CommitDone, CommitReply, Grant, GrantReply, MetaService, OpenReply, PROTOCOL_VERSION,
    SessionRequest, Space,
};
// Locks are the same on the wire as in the table.
pub use shoal_lease::locks::{LockKind, LockOwner, LockRange, LockRecord, LockSpace};
// Replies to reads, and the encoding, are the same on the wire as in the namespace.
pub use shoal_namespace::codec::{
    CodecError, OPS_VERSION, OPS_VERSION_FLAGS, decode, decode_ops, encode, encode_behind, encode_ops,
};
pub use shoal_namespace::query::{
    DirEntry, ExtentsReply, FileRecord, ListReply, LookupReply, Prefetch, WalkEntry, WalkReply,
};
