//! The namespace of a volume: a deterministic state machine over inodes, directory entries, extended
//! attributes and extents.
//!
//! **One implementation, two places.** Every operation in [`ops`] is written once against the [`Tree`] trait.
//! The metadata server runs it over its key-value store ([`kv_tree`]); a client that holds the right to
//! change things runs the very same code over its cache, at once, and sends the operation afterwards. So the
//! two cannot disagree about what `rename` means.
//!
//! **Promises.** No clock, no randomness, no I/O, no threads: the same state and the same command give the
//! same state, byte for byte. An operation reads and checks everything before its first write, so one that
//! fails (with an errno, or because a tree does not know something yet) has changed nothing.
//!
//! **Not here.** Permissions: the kernel of the client checks them (`default_permissions`). Times, inode
//! numbers and inherited modes: the caller chooses them, and they stand in the operation.

pub mod check;
pub mod codec;
pub mod command;
pub mod heat;
pub mod keys;
pub mod kv;
pub mod kv_tree;
pub mod limits;
pub mod op;
pub mod ops;
pub mod query;
pub mod records;
pub mod stored;
pub mod tree;

pub use command::{Command, Outcome, apply_command};
pub use kv_tree::KvTree;
pub use op::{Op, RenameFlags, SetAttr, XattrSet};
pub use stored::TreeError;
pub use tree::{Dentry, Fault, Tree};
