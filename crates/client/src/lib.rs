//! A mounted volume, as a plain Rust API: session, cache, journal, content. No FUSE in it.
//!
//! **The model.** What a client has cached is right: it is told before anybody else changes it. What it holds the right to change, it
//! changes on its own copy at once, and appends the operation to a journal, which streams to the metadata server in batches. Nothing waits for
//! a server but: the first look at something, the first change where others look, fsync(2), and a writer who is too far ahead.
//!
//! **The parts.** [`core`] is pure: cache, journal and blocks under way, without clock, threads or I/O. It answers or says
//! what it needs. The shell around it has one lock for the core and never holds it while it waits:
//! - [`mount`]: has a session follow the one that the servers have ended;
//! - [`shell`]: runs calls against the core and fetches what they need;
//! - [`fetch`]: from the servers, with the right to keep it; [`lease`]: until it is recalled;
//! - [`ship`]: sends the journal, in order, and stores its blocks first;
//! - [`mapped`]: writes back what programs change through shared mappings;
//! - [`reader`]: reads blocks, and ahead of sequential readers; [`locate`]: from whichever bricks have them ([`groups`]);
//! - [`failover`]: finds the leader among the replicas of a metadata group, and sends again what one of them lost;
//! - [`walk`]: asks ahead of programs that walk through trees;
//! - [`locks`]: of programs, that exclude between mounts;
//! - [`wait`]: every wait that servers or bricks can cause.
//!
//! **Promises.** Commit order is the order of the calls. `fsync` returns when everything before it is durable. Memory is bounded by
//! [`limits`]. Never silence: when the servers have ended the session, what was lost is reported by the next `fsync`, and the mount goes on in a new
//! one; when something acknowledged has been lost otherwise, every later call fails. Servers and bricks that do not answer are waited for, and
//! whoever waits can be interrupted.

mod acl;
mod api;
mod clock;
mod core;
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
mod mount;
mod patience;
mod reader;
mod sequence;
mod shell;
mod ship;
mod stats;
mod wait;
mod walk;

pub use crate::core::Referred;
pub use api::{Caller, Entry, Failure, Fallocate, Looked, Reply, Seek, Visit, Wait, Written};
pub use failover::{Failover, FailoverOptions, Replicas};
pub use kernel::{KernelCache, Stale};
pub use locks::{Lock, LockWait};
pub use mapped::Before;
pub use shoal_wire::{LockKind, LockRange, LockRecord, LockSpace};
pub use stats::Stat;

use mount::{Mount, Servers};
use shoal_types::{Errno, InodeId, Origin, Process, SessionId};
use shoal_wire::{Denial, MetaError, MetaService, VolumeBlocks};
use std::sync::Arc;
use std::time::Duration;

/// A session with a volume. Calls may be made from many threads at once.
pub struct Client {
    mount: Arc<Mount>,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who mounts, for people to read.
    pub name: String,
    /// Where it runs, so that sessions which it left behind when it died are not waited for.
    pub origin: Option<Origin>,
    /// Whether a process of this machine, in this PID namespace, is gone for certain.
    pub has_ended: fn(&Process) -> bool,
    /// Room for cached metadata and small contents, in bytes.
    pub cache_bytes: usize,
    /// Room for cached blocks and read-ahead, in bytes.
    pub block_cache_bytes: usize,
    /// Opening the session gives up when no server of a cluster has led for this long.
    pub open_wait: Duration,
    /// Calls that have waited this long for servers or bricks fail with `EIO`; `None`: they wait as long as it takes.
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

    /// The session's number. It is another one when the servers have ended the first.
    pub fn session(&self) -> SessionId {
        self.mount.with_current(|shell| shell.session)
    }

    /// What the client has done so far, for people and for monitoring.
    pub fn stats(&self) -> Vec<Stat> {
        self.mount.stats()
    }

    /// Calls that wait for servers or bricks, now and from now on, fail with `EIO`: nobody waits for them any more. What was
    /// written is still on its way, and [`close`](Self::close) still waits for that.
    pub fn interrupt(&self) {
        self.mount.interrupt();
    }

    /// The mount was taken away by force. Calls that wait fail, and [`close`](Self::close) waits for hardly anything.
    pub fn abandon(&self) {
        self.mount.abandon();
    }

    /// Why the servers do not serve this client at present, if they have said so, and how many operations were lost with the session
    /// that ended by it.
    pub fn denial(&self) -> Option<(Denial, u64)> {
        let shell = self.shell();
        let state = shell.state.lock();
        state.denied.clone().map(|denial| (denial, state.core.loss().operations))
    }

    /// Commits everything and ends the session. Later calls fail with `ENOTCONN`. Reports if something was lost, and gives up
    /// when servers or bricks have not answered for long ([`Options::close_wait`]).
    pub fn close(&self) -> Result<(), Errno> {
        let shell = self.mount.end();
        if let Some((_, lost)) = self.denial() {
            // There is no session, and nobody to tell of its end.
            shell.retire();
            self.mount.join();
            return if lost == 0 { Ok(()) } else { Err(Errno::EIO) };
        }
        // Unless an fsync of the root has told it.
        let told = shell.state.lock().core.report_to_sync(InodeId::ROOT);
        let flushed = shell.last_flush();
        if flushed.is_err() {
            // Nobody answers, or what is left is refused.
            shell.give_up();
        }
        let closed = shell.close();
        self.mount.join();
        told.and(flushed).and(closed)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.mount.end().retire();
    }
}
