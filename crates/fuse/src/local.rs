//! A mount without a kernel: requests come from this process, and a [`Host`] of the caller stands for the
//! machine. Everything else is the code of a real mount. A simulation runs the front end this way.

use crate::dispatch::Dispatcher;
use crate::filesystem::Filesystem;
use crate::host::{Host, HostRef};
use crate::locks::LockScope;
use crate::prime::Primer;
use shoal_channel::{LocalConnection, ReplyPath};
use shoal_client::Client;
use shoal_types::InodeId;
use std::io;
use std::sync::Arc;

/// Options of a local mount.
#[derive(Clone, Copy, Debug)]
pub struct LocalOptions {
    /// Threads for requests that have to wait: this many for reads of metadata, as many for content, and as
    /// many for changes.
    pub slow_threads: usize,
    /// Largest read or write request, in bytes.
    pub request_bytes_max: u32,
    /// Inodes that the kernel may refer to, as far as they are not in use.
    pub inodes_max: usize,
}

/// One of the threads of a local mount that take requests.
pub struct LocalMount(LocalConnection<Filesystem>);

impl LocalMount {
    /// Mounts a volume. `init` is the kernel's INIT; replies go to `replies`.
    pub fn begin(
        client: &Arc<Client>,
        host: Arc<dyn Host>,
        options: LocalOptions,
        init: &[u8],
        replies: Arc<dyn ReplyPath>,
    ) -> io::Result<LocalMount> {
        let LocalOptions { slow_threads, request_bytes_max, inodes_max } = options;
        let host = HostRef::new(host);
        let dispatcher =
            Dispatcher::start(client.clone(), &host, slow_threads, LockScope::Local, InodeId::ROOT, None)?;
        let invalidator = dispatcher.invalidator().clone();
        invalidator.begin();
        client.set_kernel(invalidator.clone());
        invalidator.bound_references(inodes_max)?;
        let front = Filesystem::new(Arc::new(dispatcher), Primer::default(), request_bytes_max, 0);
        LocalConnection::begin(front, init, replies).map(LocalMount)
    }

    /// For one more thread that takes requests.
    pub fn for_thread(&self) -> LocalMount {
        LocalMount(self.0.for_thread())
    }

    /// Takes a request: a message of the protocol. The reply may come later.
    pub fn take(&mut self, message: &[u8]) -> io::Result<()> {
        self.0.take(message)
    }

    /// Ends the mount, after all other threads and their values.
    pub fn end(self) -> io::Result<()> {
        self.0.end()
    }
}
