//! A GETATTR or SETATTR, from its arrival until it is answered. Invalidations wait for it and for the
//! consumption of its reply ([`getattr_inflight`](super::getattr_inflight)).

use super::{AttrRequest, Invalidator};
use crate::answer;
use crate::host::Thread;
use shoal_runtime::planted::mistake;
use shoal_types::{Errno, FileKind, Inode, InodeId};
use std::sync::Arc;

/// A request for attributes in flight: see [`Invalidator::attributes_asked`].
pub(crate) struct AttributesAsked {
    invalidator: Arc<Invalidator>,
    ino: InodeId,
    /// The calling thread.
    tid: u32,
    attr_request: AttrRequest,
    /// The state of the thread just before the reply.
    before: Option<Thread>,
    /// Only a regular file has content whose old size a read could continue with.
    has_content: bool,
    /// The request comes from a thread of the mount that checks whether the kernel accepts the reply.
    is_size_check: bool,
}

impl AttributesAsked {
    pub(crate) fn answer(mut self, reply: shoal_channel::ReplyAttr, inode: Result<Inode, Errno>) {
        let (invalidator, ino, attr_request) = (self.invalidator.clone(), self.ino, self.attr_request);
        let answer =
            |inode| answer::attr(reply, ino, inode, |inode| invalidator.may_keep(attr_request, ino, inode));
        if self.is_size_check {
            // The size is recorded before the thread continues.
            if let Ok(inode) = &inode {
                invalidator.size_checks.record_reply(self.tid, inode.size, self);
            }
            return answer(inode);
        }
        self.has_content = inode.as_ref().is_ok_and(|inode| inode.kind == FileKind::Regular);
        if self.has_content && invalidator.was_invalidated(ino) {
            self.before = self.invalidator.host.thread_state(self.tid);
        }
        answer(inode);
        drop(self);
    }

    /// Answers a SETATTR with the resulting attributes. The kernel accepts them even if they are invalidated
    /// before it handles the reply. So later invalidations wait until the reply has been consumed, and
    /// attributes that were invalidated recently are sent without permission to cache them.
    pub(crate) fn answer_change(self, reply: shoal_channel::ReplyAttr, inode: Inode, waited: bool) {
        self.invalidator.is_asked_about(self.ino);
        answer::attr(reply, self.ino, Ok(inode), |_| {
            !waited && !self.invalidator.was_invalidated(self.ino)
                || mistake("keep the attributes of a late change")
        });
        self.invalidator.change_answered(self.ino, self.tid);
    }

    /// The request is answered later, and counts as another one then.
    pub(crate) fn withdraw(mut self) {
        self.has_content = false;
    }

    /// Withdraws the request if it has to wait (`waits`) for something else than its inode.
    pub(crate) fn unless(self, waits: bool) -> Option<AttributesAsked> {
        match waits {
            true => {
                self.withdraw();
                None
            }
            false => Some(self),
        }
    }
}

impl Drop for AttributesAsked {
    fn drop(&mut self) {
        let mut state = self.invalidator.state.lock();
        match self.has_content && !self.is_size_check {
            true => state.getattrs.answered(self.ino, self.tid, self.before),
            false => state.getattrs.is_over(self.ino),
        }
    }
}

impl Invalidator {
    /// A thread's request for attributes is in flight until the returned value is dropped, which must be
    /// after the request was answered.
    pub(crate) fn attributes_asked(
        self: &Arc<Invalidator>,
        ino: InodeId,
        tid: u32,
        is_size_check: bool,
    ) -> AttributesAsked {
        self.state.lock().getattrs.begin(ino);
        AttributesAsked {
            invalidator: self.clone(),
            ino,
            tid,
            attr_request: self.begin_attr_request(tid),
            before: None,
            has_content: true,
            is_size_check,
        }
    }
}
