//! The state that all threads of a mount share, and what a request does with it whichever thread answers.

use crate::encode::settled;
use crate::invalidate::{Holds, Invalidator, Write, naming};
use crate::locks::Locks;
use crate::nodeid_alias::NodeIds;
use crate::running::Running;
use crate::slow::{Gauge, Job};
use crate::split_listings::Splits;
use crate::stats::{Counters, Stats, Timer};
use bytes::Bytes;
use shoal_client::{Client, Failure, Fallocate, Reply, Wait, Written};
use shoal_namespace::SetAttr;
use shoal_types::{Errno, Inode, InodeId, SessionId};
use std::sync::Arc;

/// What all threads of a mount share.
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
        let (ops, drops) = (self.counters.snapshot(), self.invalidator.drops());
        Stats { ops, slow_queued, reads, writes, drops }
    }
}

impl Shared {
    /// Whether the kernel may have sent a write before its pages were invalidated. Then they are invalidated
    /// once more before it is answered, which waits. Not so if no other client could have changed the file
    /// since the kernel was permitted to write to it.
    pub(crate) fn may_be_outdated(&self, holds: Holds) -> bool {
        match holds {
            Holds::Pages(Write { ino, .. }) => {
                self.invalidator.was_dropped(ino) && !self.client.may_write_unasked(ino)
            }
            _ => false,
        }
    }

    /// Changes attributes. If the size is among them, the file settles: requests that would show it wait
    /// until the calling thread has consumed the reply.
    pub(crate) fn setattr(&self, wait: Wait, ino: InodeId, set: SetAttr) -> Reply<Inode> {
        let note = |begins| {
            if set.size.is_some() {
                self.invalidator.is_about_to_resize(ino, begins);
            }
        };
        self.client.setattr_observed(wait, ino, set, note)
    }

    /// fallocate(2).
    pub(crate) fn fallocate(
        &self,
        wait: Wait,
        ino: InodeId,
        offset: u64,
        len: u64,
        what: Fallocate,
    ) -> Reply<()> {
        let note = |begins| self.invalidator.is_about_to_grow(ino, begins);
        self.client.fallocate_observed(wait, ino, offset, len, what, note)
    }

    /// copy_file_range(2).
    pub(crate) fn copy_file_range(
        &self,
        wait: Wait,
        src: InodeId,
        src_offset: u64,
        dst: InodeId,
        dst_offset: u64,
        len: u64,
    ) -> Reply<u64> {
        let note = |begins| self.invalidator.is_about_to_grow(dst, begins);
        self.client.copy_file_range_observed(wait, src, src_offset, dst, dst_offset, len, note)
    }

    /// Content for the page cache.
    pub(crate) fn read(&self, wait: Wait, ino: InodeId, offset: u64, len: u32) -> Reply<Vec<Bytes>> {
        let parts = self.read_settled(wait, ino, offset, len)?;
        self.counters.read(ino, parts.iter().map(Bytes::len).sum());
        Ok(parts)
    }

    /// Reads when the file is not being truncated.
    fn read_settled(&self, wait: Wait, ino: InodeId, offset: u64, len: u32) -> Reply<Vec<Bytes>> {
        loop {
            let parts = self.client.read(wait, ino, offset, len)?;
            match wait {
                _ if !self.invalidator.is_being_cut(ino) => return Ok(parts),
                Wait::Never => return Err(Failure::WouldBlock),
                Wait::Allowed if !self.invalidator.wait_until_cut(ino) => return Ok(parts),
                Wait::Allowed => {}
            }
        }
    }

    /// write(2) to a file opened with `flags`.
    ///
    /// With `O_APPEND` the bytes belong at the end of the file. Their offset is where the kernel takes the
    /// end to be, and where it has put the bytes in its page cache.
    ///
    /// With `O_DIRECT` the pages are invalidated once more before the reply (`docs/KERNEL_CACHE.md`, hazard
    /// 20). That may wait for a READ in flight, so a thread does it that answers no READ.
    pub(crate) fn write(
        &self,
        wait: Wait,
        write: Write,
        data: &[u8],
        flags: i32,
        clear_setid: bool,
    ) -> Reply<()> {
        let (client, Write { ino, offset, .. }) = (&self.client, write);
        let (appends, direct) = (flags & libc::O_APPEND != 0, flags & libc::O_DIRECT != 0);
        // What follows in these cases has to wait.
        if wait == Wait::Never && (direct || appends && client.getattr(wait, ino)?.size != offset) {
            return Err(Failure::WouldBlock);
        }
        let late = self.invalidator.late(wait, write);
        let known = (!appends).then_some(offset);
        let note = |begins| late.is_about_to(begins);
        let Written { at, grew } = client.write_observed(wait, ino, known, data, clear_setid, note)?;
        late.is_written(grew);
        self.counters.written(ino, data.len());
        match at == offset {
            true => self.invalidator.is_overwritten(write, data),
            false => self.invalidator.has_appended_elsewhere(ino),
        }
        if direct {
            self.invalidator.is_written_directly(write);
        }
        Ok(())
    }

    /// A job for a call that may wait, of a request that arrived in a session. It counts as waiting from now
    /// on.
    pub(crate) fn job<T, R: Send + 'static>(
        self: &Arc<Shared>,
        timer: Timer,
        holds: Holds,
        session: SessionId,
        reply: R,
        call: impl FnOnce(&Client) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) -> Job {
        let (shared, under_way) = (self.clone(), self.invalidator.under_way(holds));
        let waits = self.running.begin(timer);
        Box::new(move || {
            // A request that waits when its session ends fails. It rests on what the kernel was told in that
            // session.
            let outdated = shared.client.session() != session;
            let outcome = if outdated {
                Err(Errno::EIO.into())
            } else {
                waits.run(|| naming(holds, || call(&shared.client)))
            };
            if let Some(change) = &under_way {
                change.carried_out();
            }
            shared.finish(timer.slow(), reply, outcome, answer);
            drop((waits, under_way));
        })
    }

    pub(crate) fn finish<T, R>(
        &self,
        timer: Timer,
        reply: R,
        outcome: Reply<T>,
        answer: impl FnOnce(R, Result<T, Errno>),
    ) {
        let outcome = match settled(outcome) {
            Err(Errno::ENOENT) if timer.op().is_of_inode() => Err(Errno::ESTALE),
            outcome => outcome,
        };
        self.counters.record(timer, outcome.is_err());
        answer(reply, outcome);
    }
}
