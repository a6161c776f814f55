//! Dispatch of requests: a request is answered from memory on the thread that read it, or else by a thread
//! that may wait.

mod attributes;
mod lock_requests;
mod pending;
mod writes;

pub(crate) use pending::Pending;

use crate::context::Context;
use crate::handle;
use crate::host::HostRef;
use crate::invalidate::Invalidator;
use crate::limits::LOCK_THREADS;
use crate::locks::{LockScope, Locks};
use crate::mount_state::Shared;
use crate::nodeid_alias::{NodeIds, inode_id};
use crate::running::Running;
use crate::slow::{Job, Lane, Lanes};
use crate::split_listings::Splits;
use crate::stats::Counters;
use shoal_channel::{FileHandle, NodeId};
use shoal_client::Client;
use shoal_types::InodeId;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Dispatches requests to the client, and answers them.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    slow: Lanes,
}

impl Dispatcher {
    pub(crate) fn start(
        client: Arc<Client>,
        host: &HostRef,
        slow_threads: usize,
        locks: LockScope,
        root: InodeId,
        slow_operation: Option<Duration>,
    ) -> io::Result<Dispatcher> {
        let locks = Locks::new(locks);
        let slow = Lanes::start(slow_threads, if locks.are_ours() { LOCK_THREADS } else { 0 })?;
        let nodes = Arc::new(NodeIds::new(root));
        let invalidator = Invalidator::new(&client, &nodes, host);
        let (counters, splits, waiting) = (Counters::new(), Splits::default(), slow.gauge());
        let running = Running::new(slow_operation, host);
        running.start()?;
        let shared = Shared { client, counters, invalidator, locks, splits, nodes, running, waiting };
        Ok(Dispatcher { shared: Arc::new(shared), slow })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn invalidator(&self) -> &Arc<Invalidator> {
        &self.shared.invalidator
    }

    pub(crate) fn client(&self) -> &Client {
        &self.shared.client
    }

    /// The inode of a node id.
    pub(crate) fn inode(&self, node: NodeId) -> InodeId {
        self.shared.nodes.inode(node)
    }

    /// Finishes the requests that wait, or makes them fail: the kernel has closed the connection.
    pub(crate) fn drain(&mut self) {
        let Shared { client, invalidator, locks, running, .. } = &*self.shared;
        running.end();
        invalidator.end();
        locks.end_all(|wait| self.cancel(wait));
        self.slow.drain(|| client.interrupt());
        if !locks.are_over() {
            client.interrupt();
            locks.are_over();
        }
    }

    /// Queues a request for a thread that may wait.
    fn submit(&self, lane: Lane, job: Job) {
        self.slow.submit(lane, job);
    }

    /// A request with its unsent reply.
    pub(crate) fn pending<R>(&self, context: Context, reply: R) -> Pending<'_, R> {
        Pending { dispatcher: self, context, reply }
    }

    /// Whether requests through an open file are to be refused, because a lock taken through it was lost with
    /// a session.
    pub(crate) fn bars(&self, ino: NodeId, fh: FileHandle) -> bool {
        let Shared { client, locks, .. } = &*self.shared;
        locks.bars(client, fh) || handle::is_mappable(fh) && client.has_lost_mapping_lock(inode_id(ino))
    }

    /// Counts a request that needs no reply, or has been answered without [`Dispatcher::pending`].
    pub(crate) fn note(&self, context: &Context) {
        self.shared.counters.record(context, false);
    }
}
