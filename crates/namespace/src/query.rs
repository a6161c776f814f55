//! Reads.
mod reply;
pub use reply::{DirEntry, ExtentsReply, FileRecord, ListReply, LookupReply, Prefetch};
