//! GETATTR.

use super::Pending;
use crate::answer::{self, ErrorReply};
use crate::kernel::ENOMEM;
use crate::limits::SIZE_WAIT_MAX;
use crate::mount_state::{Attempt, Shared};
use crate::slow::Lane;
use shoal_channel::ReplyAttr;
use shoal_client::{Failure, Wait};
use shoal_types::Inode;

impl Pending<'_, ReplyAttr> {
    /// Answers GETATTR. `is_size_check`: it comes from a thread of the mount that checks the size.
    pub(crate) fn show_attributes(self, is_size_check: bool) {
        let (ino, thread, shared) = (self.context.ino, self.context.thread, self.shared());
        let asked = shared.invalidator.attributes_asked(ino, thread, is_size_check);
        let outcome = shared.client.getattr(Wait::Never, ino);
        let is_held = outcome.is_ok() && shared.invalidator.is_behind_size_barrier(ino, thread);
        if !is_held && outcome != Err(Failure::WouldBlock) {
            return self.finish(outcome, |reply, inode| asked.answer(reply, inode));
        }
        // Invalidations wait for GETATTRs in flight, so a GETATTR that waits for the file to settle is
        // withdrawn.
        let mut asked = asked.unless(is_held);
        let unanswered = shared.invalidator.unanswered(thread);
        let call = move |attempt: Attempt<'_>| loop {
            let Shared { client, invalidator, .. } = attempt.shared;
            let is_settled = asked.is_some() || invalidator.wait_until_settled(ino);
            let question =
                asked.take().unwrap_or_else(|| invalidator.attributes_asked(ino, thread, is_size_check));
            let inode = client.getattr(Wait::Allowed, ino)?;
            match is_settled && invalidator.is_behind_size_barrier(ino, thread) {
                true => question.withdraw(),
                false => return Ok((question, inode)),
            }
        };
        self.later(call, |reply, told| {
            drop(unanswered);
            match told {
                Ok((asked, inode)) => asked.answer(reply, Ok(inode)),
                Err(why) => reply.fail(why),
            }
        });
    }

    /// Answers GETATTR of a thread that reads an open file, when the kernel has the right size. See
    /// [`Invalidator::size_asked`](crate::invalidate::Invalidator::size_asked).
    pub(crate) fn show_size(self) {
        let Pending { dispatcher, context, mut reply } = self;
        let (ino, thread, begun, shared) =
            (context.ino, context.thread, context.begun, dispatcher.shared.clone());
        if dispatcher.slow.refuses(Lane::Size) {
            let refused = Err::<Inode, _>(ENOMEM.into());
            return shared
                .finish(&context, reply, refused, |reply, inode| answer::attr(reply, ino, inode, |_| true));
        }
        let unanswered = shared.invalidator.unanswered(thread);
        let waits = shared.running.begin(context, Some(reply.canceller()));
        let job = move || {
            let Shared { client, invalidator, .. } = &*shared;
            let mut asked = invalidator.size_asked(client, ino, thread, begun);
            let mut outcome = waits.run(|| client.getattr(Wait::Allowed, ino));
            while outcome.is_ok()
                && invalidator.is_behind_size_barrier(ino, thread)
                && begun.elapsed() < SIZE_WAIT_MAX
            {
                asked.withdraw();
                asked = invalidator.size_asked(client, ino, thread, begun);
                outcome = client.getattr(Wait::Allowed, ino);
            }
            drop(unanswered);
            shared.finish(&context.slow(), reply, outcome, |reply, inode| asked.answer(reply, inode));
            drop(waits);
        };
        dispatcher.submit(Lane::Size, Box::new(job));
    }
}
