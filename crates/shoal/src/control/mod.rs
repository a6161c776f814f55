//! Control of a running node: a Unix socket in its data directory, one JSON object per line in either
//! direction.
//!
//! Access to the data directory is the only permission that is checked. A conversation is one request and its
//! answers; the connection is closed after the last one.

mod client;
mod messages;
mod server;

pub use client::{ControlError, ReplyStream, request};
pub use messages::{
    BrickStatistics, Dumped, HealStatistics, NodeStatistics, Number, Piece, Pieces, Place, ReplicaStatistics,
    Request, ScrubReport, Statistics, Status, Synced,
};
pub use server::{Answer, Control, Handler};

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The address of a data directory's socket. A socket's path is limited to 107 bytes, and a directory's path
/// may be longer. So the address names the directory by an open file descriptor, which must live as long as
/// the address is used.
fn address(data: &Path) -> std::io::Result<(PathBuf, OwnedFd)> {
    let dir = OwnedFd::from(std::fs::File::open(data)?);
    Ok((PathBuf::from(format!("/proc/self/fd/{}/control.sock", dir.as_raw_fd())), dir))
}
