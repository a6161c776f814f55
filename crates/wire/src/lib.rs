//! What clients, metadata servers and bricks say to each other, and the two services they say it to.
//!
//! In one process a service is called directly. Between machines the same messages go through a transport
//! that implements the same traits, so nobody above this crate can tell the difference.

mod block;
mod codec;
mod meta;

pub use block::{BlockError, BlockService, BlockStat};
pub use codec::{CodecError, OPS_VERSION, decode, decode_ops, encode, encode_ops};
pub use meta::{
    Commit, CommitDone, CommitReply, DirEntry, ExtentsReply, FileRecord, Grant, GrantReply, Lease, LeaseKind, ListReply,
    LookupReply, MetaError, MetaService, OpenReply, Prefetch, PROTOCOL_VERSION, SessionRequest, Space,
};
