//! What clients, metadata servers and bricks say to each other, and the two services they say it to.
//!
//! In one process a service is called directly. Between machines the same messages go through a transport
//! that implements the same traits, so nobody above this crate can tell the difference.

mod block;
mod denial;
mod lease;
mod locks;
mod meta;

pub use block::{BlockError, BlockPage, BlockService, Moment, Moments, VolumeBlocks};
pub use denial::{Denial, Reason};
pub use lease::{
    Ack, Acquire, AcquireReply, Ask, AskReply, Declaration, Done, Found, Item, MOVES, Poll, Question, Recall,
    Recalls, Right, Token, Want, WantName, wait_for,
};
pub use locks::{LockOp, LockOutcome, LockReply, LockRequest};
pub use meta::{
    Commit, CommitDone, CommitReply, Grant, GrantReply, MetaError, MetaService, OpenReply, PROTOCOL_VERSION,
    SessionRequest, Space,
};
// What locks are: the same on the wire as in the table.
pub use shoal_lease::locks::{LockKind, LockOwner, LockRange, LockRecord, LockSpace};
// What reads are answered with, and how everything is encoded: the same on the wire as in the namespace.
pub use shoal_namespace::codec::{
    CodecError, OPS_VERSION, decode, decode_ops, encode, encode_behind, encode_ops,
};
pub use shoal_namespace::query::{
    DirEntry, ExtentsReply, FileRecord, ListReply, LookupReply, Prefetch, WalkEntry, WalkReply,
};
