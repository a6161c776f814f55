//! A mounted volume: its life, from opening to closing. Its calls are in [`api`](crate::api).

use crate::failover::Replicas;
use crate::kernel::KernelCache;
use crate::mount::Mount;
use crate::options::Options;
use crate::session::Session;
use crate::stats::Stat;
use crate::transport::Servers;
use shoal_runtime::budget::Budget;
use shoal_types::{Errno, InodeId, SessionId};
use shoal_wire::{Denial, MetaError, MetaService, VolumeBlocks};
use std::sync::Arc;

/// A mounted volume, across its sessions. Calls may be made from many threads at once.
pub struct Client {
    pub(crate) mount: Arc<Mount>,
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
        self.mount.with_current(|session| session.context.id)
    }

    /// Counters of the client, for administrators and monitoring.
    pub fn stats(&self) -> Vec<Stat> {
        self.mount.stats()
    }

    /// The budget for all buffers and caches.
    pub fn memory(&self) -> &Arc<Budget> {
        self.mount.memory()
    }

    /// Gives back memory of caches that have not been used for long, or that others need.
    pub fn release_idle(&self) {
        self.current().release_idle();
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

    /// The mount was unmounted by force. Calls that wait fail, and [`close`](Self::close) is cut short.
    pub fn abandon(&self) {
        self.mount.abandon();
    }

    /// Why the servers do not serve this client at present, if they have said so, and how many operations
    /// were lost with the session that they ended.
    pub fn denial(&self) -> Option<(Denial, u64)> {
        let session = self.current();
        let state = session.context.state.lock();
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
        let told = session.context.state.lock().core.report_to_sync(InodeId::ROOT);
        let flushed = session.shipper.last_flush();
        if flushed.is_err() {
            // No server answers, or what is left is refused.
            session.context.give_up();
        }
        let closed = session.close();
        self.mount.join();
        told.and(flushed).and(closed)
    }

    /// Sets the cache in front of this client. The first one stays.
    pub fn set_kernel(&self, kernel: Arc<dyn KernelCache>) {
        self.mount.set_kernel(kernel);
    }

    /// Whether the kernel refers to an inode: a reply has named it, perhaps one that is still in flight, and
    /// it was not yet forgotten.
    pub fn refers(&self, ino: InodeId) -> bool {
        self.mount.with_current(|session| session.context.state.lock().core.referred(ino))
    }

    pub(crate) fn current(&self) -> Arc<Session> {
        self.mount.current()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.mount.end().retire();
    }
}
