//! Requests that write, apart from write(2): writeback of mapped pages, and the write gate.

use super::Pending;
use crate::answer;
use crate::context::{Holds, Write};
use crate::host::Writing;
use crate::kernel::ENOMEM;
use crate::mount_state::{Attempt, Shared};
use crate::slow::Lane;
use crate::xattr::CAPABILITY;
use shoal_channel::{ReplyWrite, ReplyXattr};
use shoal_client::{Failure, Reply, Wait};
use shoal_runtime::planted::mistake;

impl Pending<'_, ReplyWrite> {
    /// Writes back pages that programs have changed through mappings (`docs/KERNEL_CACHE.md`, hazard 15).
    ///
    /// If that cannot be done at once, the baseline of the pages is read first, by a thread that waits only
    /// for servers and bricks. Until then the write does not count as waiting. So a client that changes the
    /// file still waits for these pages to be invalidated, and the content read is that from before its
    /// change.
    pub(crate) fn write_back(self, write: Write, data: &[u8]) {
        let Write { ino, offset, len } = write;
        let (dispatcher, pending) = (self.dispatcher, self.holding(Holds::Pages(write)));
        let shared = pending.shared();
        let writing = shared.invalidator.is_written_back(write);
        let answer = move |reply, done| {
            answer::written(reply, len as u32, done);
            drop(writing);
        };
        let outcome = match shared.invalidator.may_differ(ino) {
            true => Err(Failure::WouldBlock),
            false => shared.client.write_back(Wait::Never, ino, offset, data, None),
        };
        if outcome != Err(Failure::WouldBlock) {
            if outcome.is_ok() {
                shared.counters.written(&pending.context, data.len());
            }
            return pending.finish(outcome, answer);
        }
        if pending.is_too_much() {
            return pending.finish(Err(ENOMEM.into()), answer);
        }
        let (data, changes) = (data.to_vec(), dispatcher.slow.changes());
        let reads = shared.running.begin(pending.context, None);
        let waiting = pending.waiting();
        let job = move || {
            let Shared { client, invalidator, .. } = &*waiting.shared;
            // Without a baseline the pages are written as a whole.
            let mut before = reads.run(|| client.before_write_back(ino, offset, len as u32)).ok();
            drop(reads);
            if let Some(before) = &mut before {
                invalidator.read_from(write, before);
            }
            let call = move |attempt: Attempt<'_>| -> Reply<()> {
                let Shared { client, counters, invalidator, .. } = attempt.shared;
                client.write_back(Wait::Allowed, ino, offset, &data, before.as_ref())?;
                counters.written(attempt.context, data.len());
                // Also if the pages equal the file: a client that waited for their invalidation may have been
                // granted its change.
                invalidator.differ(write, &data);
                Ok(())
            };
            changes.submit(waiting.job(call, answer));
        };
        dispatcher.submit(Lane::Content, Box::new(job));
    }
}

impl Pending<'_, ReplyXattr> {
    /// Answers GETXATTR of `security.capability`, which the kernel sends before its first write to a file:
    /// the write gate. The reply waits until this client has the right to change the file. A thread that may
    /// be in a call other than a write is answered at once.
    pub(crate) fn acquire_write_permit(self) {
        let (ino, thread) = (self.context.ino, self.context.thread);
        let call =
            move |attempt: Attempt<'_>, (): &()| attempt.client().getxattr(attempt.wait, ino, CAPABILITY);
        let answer = |reply, value| answer::sized(reply, 0, value);
        let Shared { client, invalidator, .. } = &**self.shared();
        let writing = || invalidator.host().writing(thread);
        let known = invalidator.was_invalidated(ino).then(writing);
        let waits = known != Some(None)
            && !mistake("let every writer pass")
            && client.acquire_write_permit(Wait::Never, ino) == Err(Failure::WouldBlock);
        // The kernel took the end of the file from its cache before this request. If other clients may have
        // appended since, the bytes will be at a wrong offset of the page cache.
        let misplaces = known.flatten().is_some_and(|writing| writing.appends);
        let writing = (waits || misplaces).then(|| known.unwrap_or_else(writing)).flatten();
        let Some(Writing { appends }) = writing else {
            return self.serve(&(), call, answer);
        };
        let dispatcher = self.dispatcher;
        if dispatcher.slow.refuses(Lane::Change) {
            return self.finish(Err(ENOMEM.into()), answer);
        }
        let wait = move |attempt: Attempt<'_>| {
            // If the right cannot be had, the write fails with the reason.
            if attempt.client().acquire_write_permit(Wait::Allowed, ino).is_ok() && appends {
                attempt.shared.invalidator.is_about_to_append(ino);
            }
            call(attempt, &())
        };
        dispatcher.submit(Lane::Change, self.waiting().job(wait, answer));
    }
}
