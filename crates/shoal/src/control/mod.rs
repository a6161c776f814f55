//! Talking to a running node: a Unix socket in its data directory, one JSON object per line in either direction.
//!
//! Whoever may open the data directory may ask; there are no other rights to it. A conversation is one request and its
//! answers, the last of which says so by the connection's end.

mod client;
mod messages;
mod server;

pub use client::{ControlError, Conversation, ask};
pub use messages::{Number, OpReport, Request, ScrubReport, Statistics, Status, Synced};
pub use server::{Answer, Control, Handler};

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The address of a data directory's socket. Paths of sockets have at most 107 bytes, those of directories do not; so the
/// directory is named by an open file, which must live as long as the address is used.
fn address(data: &Path) -> std::io::Result<(PathBuf, OwnedFd)> {
    let dir = OwnedFd::from(std::fs::File::open(data)?);
    Ok((PathBuf::from(format!("/proc/self/fd/{}/control.sock", dir.as_raw_fd())), dir))
}
