//! A mounted volume, as a plain Rust API: session, cache, journal, content. No FUSE in it.
//!
//! **The model.** What a client has cached is right: it is recalled before another client changes it. What
//! the client has the right to change, it changes in its cache at once, and appends the operation to a
//! journal. The journal streams to the metadata server in batches. A call waits for a server only in these
//! cases: the first access to something, the first change of something that another client watches, fsync(2),
//! and a full window of uncommitted bytes.
//!
//! **The parts.** [`core`] is pure: cache, journal and blocks in progress, without clock, threads or I/O. It
//! answers or says what it needs. The session around it has one lock for the core and never holds it while it
//! waits:
//! - [`mount`]: replaces a session that the servers have ended;
//! - [`session`]: runs calls against the core and fetches what they need;
//! - [`fetch`]: from the servers, with the right to keep it; [`lease`]: until it is recalled;
//! - [`ship`]: sends the journal, in order, and stores its blocks first;
//! - [`mapped`]: writes back what programs change through shared mappings; [`mapping_locks`]: says which
//!   mount may have such mappings of a file;
//! - [`reader`]: reads blocks, and ahead of sequential readers; [`locate`]: from whichever bricks have them
//!   ([`groups`]);
//! - [`failover`]: finds the leader among the replicas of a metadata group, and sends again what one of them
//!   lost;
//! - [`walk`]: prefetches for programs that walk through trees;
//! - [`locks`]: locks of programs, which exclude each other across mounts;
//! - [`trace`]: what a call waits for, for the log of slow operations;
//! - [`wait`]: every wait that servers or bricks can cause.
//!
//! **Promises.** Commit order is the order of the calls. `fsync` returns when everything before it is
//! durable. Memory is bounded by [`limits`]. No loss is silent: when the servers have ended the session, the
//! next `fsync` reports what was lost, and the mount continues in a new session. When something acknowledged
//! has been lost otherwise, every later call fails. Calls wait for servers and bricks that do not answer, and
//! can be interrupted.

mod acl;
mod api;
mod backoff;
mod clock;
mod core;
mod dump;
mod failover;
mod fetch;
mod grants;
mod groups;
mod kernel;
mod lease;
pub mod limits;
mod locate;
mod locks;
mod mapped;
mod mapping_locks;
mod mount;
mod reader;
mod sequence;
mod session;
mod ship;
mod stats;
mod trace;
mod wait;
mod walk;

pub use crate::core::Referred;
pub use api::{Caller, Entry, Failure, Fallocate, Looked, Reply, Seek, Visit, Wait, Written};
pub use failover::{Failover, FailoverOptions, Replicas};
pub use kernel::{KernelCache, Stale};
pub use locks::{Lock, LockWait};
pub use mapped::Before;
pub use mapping_locks::Creation;
pub use shoal_wire::{LockKind, LockRange, LockRecord, LockSpace};
pub use stats::Stat;
pub use trace::{Hop, Trace, Waiting, waits};

use mount::{Mount, Servers};
use shoal_types::{Errno, InodeId, Origin, Process, SessionId};
use shoal_wire::{Denial, MetaError, MetaService, VolumeBlocks};
use std::sync::Arc;
use std::time::Duration;

/// A mounted volume, across its sessions. Calls may be made from many threads at once.
pub struct Client {
    mount: Arc<Mount>,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the client, for administrators.
    pub name: String,
    /// Where the client runs, so that the servers do not wait for sessions that it left behind when it died.
    pub origin: Option<Origin>,
    /// Whether a process of this machine, in this PID namespace, has certainly ended.
    pub has_ended: fn(&Process) -> bool,
    /// Room for cached metadata and small contents, in bytes.
    pub cache_bytes: usize,
    /// Room for cached blocks and read-ahead, in bytes.
    pub block_cache_bytes: usize,
    /// Opening the session gives up when no server of a cluster has led for this long.
    pub open_wait: Duration,
    /// Calls that have waited this long for servers or bricks fail with `EIO`; `None`: they wait as long as
    /// it takes.
    pub fail_after: Option<Duration>,
    /// [`Client::close`] gives up when nothing has become durable for this long.
    pub close_wait: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: format!("process {}", std::process::id()),
            origin: None,
            has_ended: |_| false,
            cache_bytes: limits::CACHE_BYTES_DEFAULT,
            block_cache_bytes: limits::BLOCK_CACHE_BYTES_DEFAULT,
            open_wait: limits::OPEN_WAIT_DEFAULT,
            fail_after: None,
            close_wait: limits::CLOSE_WAIT_DEFAULT,
        }
    }
}

impl Client {
    /// Opens a session with a metadata service that is always there.
    pub fn open(
        meta: Arc<dyn MetaService>,
        blocks: Arc<dyn VolumeBlocks>,
        options: Options,
    ) -> Result<Arc<Client>, MetaError> {
        Ok(Arc::new(Client { mount: Mount::begin(Servers::One(meta), blocks, options)? }))
    }

    /// Opens a session with whichever of several replicas leads, now and later.
    pub fn open_replicated(
        replicas: Arc<dyn Replicas>,
        blocks: Arc<dyn VolumeBlocks>,
        options: Options,
    ) -> Result<Arc<Client>, MetaError> {
        Ok(Arc::new(Client { mount: Mount::begin(Servers::Several(replicas), blocks, options)? }))
    }

    /// The session's number. It changes when the servers have ended a session.
    pub fn session(&self) -> SessionId {
        self.mount.with_current(|session| session.id)
    }

    /// What the client has done so far, for administrators and monitoring.
    pub fn stats(&self) -> Vec<Stat> {
        self.mount.stats()
    }

    /// Sessions that the servers have ended since the last call, and what was lost with each, in words for
    /// administrators.
    pub fn take_losses(&self) -> Vec<String> {
        self.mount.take_losses()
    }

    /// Calls that wait for servers or bricks, now and from now on, fail with `EIO`. What was written is still
    /// being sent, and [`close`](Self::close) still waits for that.
    pub fn interrupt(&self) {
        self.mount.interrupt();
    }

    /// The mount was taken away by force. Calls that wait fail, and [`close`](Self::close) waits for hardly
    /// anything.
    pub fn abandon(&self) {
        self.mount.abandon();
    }

    /// Why the servers do not serve this client at present, if they have said so, and how many operations
    /// were lost with the session that they ended.
    pub fn denial(&self) -> Option<(Denial, u64)> {
        let session = self.current();
        let state = session.state.lock();
        state.denied.clone().map(|denial| (denial, state.core.loss().operations))
    }

    /// Commits everything and ends the session. Later calls fail with `ENOTCONN`. Reports if something was
    /// lost, and gives up when servers or bricks have not answered for long ([`Options::close_wait`]).
    pub fn close(&self) -> Result<(), Errno> {
        let session = self.mount.end();
        if let Some((_, lost)) = self.denial() {
            // There is no session that could be closed.
            session.retire();
            self.mount.join();
            return if lost == 0 { Ok(()) } else { Err(Errno::EIO) };
        }
        // Unless an fsync of the root has reported it.
        let told = session.state.lock().core.report_to_sync(InodeId::ROOT);
        let flushed = session.last_flush();
        if flushed.is_err() {
            // No server answers, or what is left is refused.
            session.give_up();
        }
        let closed = session.close();
        self.mount.join();
        told.and(flushed).and(closed)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.mount.end().retire();
    }
}
