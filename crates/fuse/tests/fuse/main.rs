//! Real mounts of a real client over the real state machine in memory. One module per family of system calls; they take root
//! and `/dev/fuse`.

mod attributes;
mod content;
mod copying;
mod directories;
mod gate;
mod lifecycle;
mod locks;
mod messages;
mod names;
mod permissions;
mod sys;
mod volume;
mod waiting;
mod xattrs;

/// The in-memory volume that the client's own tests use.
#[path = "../../../client/tests/support/mod.rs"]
mod world;
