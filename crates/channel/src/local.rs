//! A connection within this process: the caller plays the kernel.
//!
//! **Model.** The caller hands over messages of the protocol, byte by byte as the kernel would send them, and
//! gets the replies through a [`ReplyPath`] of its own. Everything between is the production code. A
//! simulation runs a file system this way.

use crate::abi::InitFlags;
use crate::filesystem::{Filesystem, dispatch};
use crate::reply::ReplyPath;
use crate::request::{Operation, decode};
use crate::session::answer;
use std::io;
use std::sync::Arc;

/// One of the threads that take requests, and its value of the file system.
pub struct LocalConnection<F> {
    filesystem: F,
    path: Arc<dyn ReplyPath>,
    /// `FUSE_SETXATTR_EXT` is negotiated.
    extended: bool,
}

impl<F: Filesystem> LocalConnection<F> {
    /// Begins a mount with an INIT of the caller.
    pub fn begin(mut filesystem: F, init: &[u8], path: Arc<dyn ReplyPath>) -> io::Result<LocalConnection<F>> {
        let (request, operation) = decode(init, false).map_err(io::Error::other)?;
        let Operation::Init(mut init) = operation else {
            return Err(io::Error::other("the first request is not INIT"));
        };
        init.flags -= InitFlags::OVER_IO_URING;
        let (settings, _) = answer(&*path, request.unique(), &init, &mut filesystem)?
            .ok_or_else(|| io::Error::other("another major version"))?;
        let extended = settings.flags.contains(InitFlags::SETXATTR_EXT);
        Ok(LocalConnection { filesystem, path, extended })
    }

    /// For one more thread that takes requests.
    pub fn for_thread(&self) -> LocalConnection<F> {
        let (filesystem, path) = (self.filesystem.for_thread(), self.path.clone());
        LocalConnection { filesystem, path, extended: self.extended }
    }

    /// Takes a request. The reply may come later, from another thread.
    pub fn take(&mut self, message: &[u8]) -> io::Result<()> {
        let (request, operation) = decode(message, self.extended).map_err(io::Error::other)?;
        dispatch(&mut self.filesystem, &request, operation, self.path.clone());
        Ok(())
    }

    /// Ends the mount, after all other threads and their values.
    pub fn end(mut self) -> io::Result<()> {
        self.filesystem.destroy()
    }
}
