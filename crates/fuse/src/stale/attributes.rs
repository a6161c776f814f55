//! A question of the kernel's for the attributes of an inode, from when it came until it is answered. What is dropped waits for whoever was answered
//! ([`asked`](super::asked)).

use super::{Asking, Dropper};
use crate::answer;
use crate::thread::Thread;
use shoal_types::{Errno, FileKind, Inode, InodeId};
use std::sync::Arc;

/// See [`Dropper::attributes_asked`].
pub(crate) struct AttributesAsked {
    stale: Arc<Dropper>,
    ino: InodeId,
    /// The thread that asks.
    tid: u32,
    asking: Asking,
    /// What it did just before it was answered.
    before: Option<Thread>,
    /// Nobody reads what has no content, and so nobody goes on with an old size of it.
    has_content: bool,
    /// One of our own threads asks, to see what the kernel makes of the answer.
    is_look: bool,
}

impl AttributesAsked {
    pub(crate) fn answer(mut self, reply: fuser::ReplyAttr, inode: Result<Inode, Errno>) {
        let (stale, ino, asking) = (self.stale.clone(), self.ino, self.asking);
        let answer = |inode| answer::attr(reply, ino, inode, |inode| stale.may_keep(asking, ino, inode));
        if self.is_look {
            // Before the thread goes on.
            if let Ok(inode) = &inode {
                stale.looks.tell(self.tid, inode.size, self);
            }
            return answer(inode);
        }
        self.has_content = inode.as_ref().is_ok_and(|inode| inode.kind == FileKind::Regular);
        if self.has_content && stale.was_dropped(ino) {
            self.before = Thread::look_at(self.tid);
        }
        answer(inode);
        drop(self);
    }

    /// Answers a change of attributes with those that it has led to. The kernel takes them even if it is told to drop them before it looks at them: so whoever
    /// drops them from now on waits until it has, and those that were dropped not long ago do not last.
    pub(crate) fn answer_change(self, reply: fuser::ReplyAttr, inode: Inode, waited: bool) {
        self.stale.is_asked_about(self.ino);
        answer::attr(reply, self.ino, Ok(inode), |_| !waited && !self.stale.was_dropped(self.ino));
        self.stale.is_taken_in(self.ino, self.tid);
    }

    /// It is not answered yet, and is taken for another question when it is.
    pub(crate) fn withdraw(mut self) {
        self.has_content = false;
    }

    /// The same, if it has to wait for something else than what it is about.
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
        let mut state = self.stale.state.lock();
        match self.has_content && !self.is_look {
            true => state.questions.answered(self.ino, self.tid, self.before),
            false => state.questions.is_over(self.ino),
        }
    }
}

impl Dropper {
    /// A thread asks the kernel, and that us, for the attributes of an inode, until the answer is dropped, which must not be before the request
    /// was answered.
    pub(crate) fn attributes_asked(
        self: &Arc<Dropper>,
        ino: InodeId,
        tid: u32,
        is_look: bool,
    ) -> AttributesAsked {
        self.state.lock().questions.asked(ino);
        AttributesAsked {
            stale: self.clone(),
            ino,
            tid,
            asking: self.asks(tid),
            before: None,
            has_content: true,
            is_look,
        }
    }
}
