//! Real mounts of a real client over the real state machine in memory, or over a real server for two mounts
//! (`pair`). One module per family of system calls; they need root and `/dev/fuse`.

mod attributes;
mod content;
mod copying;
mod direct;
mod directories;
mod ends;
mod gate;
mod lifecycle;
mod locks;
mod messages;
mod names;
mod pair;
mod permissions;
mod prune;
mod stale;
mod sys;
mod volume;
mod waiting;
mod xattrs;

/// The connection to a server that the client's own tests cut.
#[path = "../../../client/tests/support/cut.rs"]
mod way;
/// The in-memory volume that the client's own tests use.
#[path = "../../../client/tests/support/mod.rs"]
mod world;
