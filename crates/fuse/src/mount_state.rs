//! The state that all threads of a mount share, and one attempt of a request over it.

use crate::context::{Context, Holds, Write};
use crate::encode::settled;
use crate::invalidate::Invalidator;
use crate::locks::Locks;
use crate::nodeid_alias::NodeIds;
use crate::running::Running;
use crate::slow::Gauge;
use crate::split_listings::Splits;
use crate::stats::{Counters, Stats};
use bytes::Bytes;
use shoal_client::{Calling, Client, Failure, Fallocate, Reply, Wait, Written};
use shoal_namespace::SetAttr;
use shoal_types::{Errno, Inode, InodeId};
use std::sync::Arc;

/// The state shared by all threads of a mount.
pub(crate) struct Shared {
    pub client: Arc<Client>,
    pub counters: Counters,
    /// Invalidates what the kernel caches.
    pub invalidator: Arc<Invalidator>,
    /// Locks of programs.
    pub locks: Locks,
    pub splits: Splits,
    pub nodes: Arc<NodeIds>,
    /// The requests that wait.
    pub running: Arc<Running>,
    pub waiting: Gauge,
}

impl Shared {
    pub(crate) fn stats(&self) -> Stats {
        let slow_queued = self.waiting.waiting();
        let (reads, writes) = self.counters.sizes();
        let (ops, invalidations) = (self.counters.snapshot(), self.invalidator.invalidation_counts());
        Stats { ops, slow_queued, reads, writes, invalidations }
    }

    /// Whether the kernel may have sent a write before its pages were invalidated. Then they are invalidated
    /// once more before it is answered, which waits. Not so if no other client could have changed the file
    /// since the kernel was permitted to write to it.
    pub(crate) fn may_be_outdated(&self, holds: Holds) -> bool {
        match holds {
            Holds::Pages(Write { ino, .. }) => {
                self.invalidator.was_invalidated(ino) && !self.client.has_write_permit(ino)
            }
            _ => false,
        }
    }

    /// Counts a request, and answers it with the outcome of its call.
    pub(crate) fn finish<T, R>(
        &self,
        context: &Context,
        reply: R,
        outcome: Reply<T>,
        answer: impl FnOnce(R, Result<T, Errno>),
    ) {
        let outcome = match settled(outcome) {
            Err(Errno::ENOENT) if context.op.is_of_inode() => Err(Errno::ESTALE),
            outcome => outcome,
        };
        self.counters.record(context, outcome.is_err());
        answer(reply, outcome);
    }
}

/// One attempt to carry out a request: the first may not wait, and the second may.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub shared: &'a Shared,
    pub context: &'a Context,
    pub wait: Wait,
}

impl<'a> Attempt<'a> {
    pub(crate) fn client(self) -> &'a Client {
        &self.shared.client
    }

    /// The context of a client call that changes names.
    pub(crate) fn calling(self) -> Calling {
        self.wait.by(self.context.thread)
    }

    /// Changes attributes. If the size is among them, the file settles: requests that would show it wait
    /// until the calling thread has consumed the reply.
    pub(crate) fn setattr(self, set: SetAttr) -> Reply<Inode> {
        let ino = self.context.ino;
        let note = |begins| {
            if set.size.is_some() {
                self.shared.invalidator.is_about_to_resize(ino, begins);
            }
        };
        self.client().setattr_observed(self.wait, ino, set, note)
    }

    /// fallocate(2).
    pub(crate) fn fallocate(self, offset: u64, len: u64, what: Fallocate) -> Reply<()> {
        let ino = self.context.ino;
        let note = |begins| self.shared.invalidator.is_about_to_grow(ino, begins);
        self.client().fallocate_observed(self.wait, ino, offset, len, what, note)
    }

    /// copy_file_range(2) from another file.
    pub(crate) fn copy_file_range(self, src: InodeId, src_offset: u64, offset: u64, len: u64) -> Reply<u64> {
        let ino = self.context.ino;
        let note = |begins| self.shared.invalidator.is_about_to_grow(ino, begins);
        self.client().copy_file_range_observed(self.wait, src, src_offset, ino, offset, len, note)
    }

    /// Content for the page cache.
    pub(crate) fn read(self, offset: u64, len: u32) -> Reply<Vec<Bytes>> {
        let parts = self.read_settled(offset, len)?;
        self.shared.counters.read(self.context, parts.iter().map(Bytes::len).sum());
        Ok(parts)
    }

    /// Reads when the file is not being truncated.
    fn read_settled(self, offset: u64, len: u32) -> Reply<Vec<Bytes>> {
        let (ino, invalidator) = (self.context.ino, &self.shared.invalidator);
        loop {
            let parts = self.client().read(self.wait, ino, offset, len)?;
            match self.wait {
                _ if !invalidator.is_being_cut(ino) => return Ok(parts),
                Wait::Never => return Err(Failure::WouldBlock),
                Wait::Allowed if !invalidator.wait_until_cut(ino) => return Ok(parts),
                Wait::Allowed => {}
            }
        }
    }

    /// write(2) to a file opened with `flags`.
    ///
    /// With `O_APPEND` the bytes are stored at the end of the file. The request's offset is the kernel's
    /// `i_size`, at which it has put the bytes in its page cache.
    ///
    /// With `O_DIRECT` the pages are invalidated once more before the reply (`docs/KERNEL_CACHE.md`, hazard
    /// 20). That may wait for a READ in flight, so a thread does it that answers no READ.
    pub(crate) fn write(self, write: Write, data: &[u8], flags: i32, clear_setid: bool) -> Reply<()> {
        let Attempt { shared: Shared { counters, invalidator, client, .. }, context, wait } = self;
        let Write { ino, offset, .. } = write;
        let (appends, direct) = (flags & libc::O_APPEND != 0, flags & libc::O_DIRECT != 0);
        // The invalidations below have to wait.
        if wait == Wait::Never && (direct || appends && client.getattr(wait, ino)?.size != offset) {
            return Err(Failure::WouldBlock);
        }
        let tracked = invalidator.track_write(wait, write);
        let known = (!appends).then_some(offset);
        let note = |begins| tracked.is_about_to(begins);
        let Written { at, grew } = client.write_observed(wait, ino, known, data, clear_setid, note)?;
        tracked.is_written(grew);
        counters.written(context, data.len());
        match at == offset {
            true => invalidator.is_overwritten(write, data),
            false => invalidator.has_appended_elsewhere(ino),
        }
        if direct {
            invalidator.is_written_directly(write);
        }
        Ok(())
    }
}
