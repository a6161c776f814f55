//! A request that has not been answered. Its call is made on the thread that read it, without waiting. If the
//! call would block, it is made once more by a thread that may wait.

use super::Dispatcher;
use crate::answer::ErrorReply;
use crate::context::{Context, Holds};
use crate::encode::settled;
use crate::kernel::ENOMEM;
use crate::listing::{Listing, ListingBuffer};
use crate::mount_state::{Attempt, Shared};
use crate::slow::{Job, Lane};
use shoal_client::{Client, Failure, Reply, Wait};
use shoal_runtime::budget::Use;
use shoal_types::{Errno, InodeId, SessionId};
use std::borrow::Borrow;
use std::sync::Arc;

/// An argument that a request lends to a call. It is cloned only if the call has to wait.
pub(crate) trait BorrowedArg: ToOwned<Owned: Send + 'static> {}

impl<A: ToOwned<Owned: Send + 'static> + ?Sized> BorrowedArg for A {}

/// A request with its unsent reply. One of its methods makes the call and answers with the outcome.
pub(crate) struct Pending<'a, R> {
    pub(super) dispatcher: &'a Dispatcher,
    pub context: Context,
    pub(super) reply: R,
}

impl<'a, R: ErrorReply + Send + 'static> Pending<'a, R> {
    /// The request holds these kernel locks.
    pub(crate) fn holding(mut self, holds: Holds) -> Pending<'a, R> {
        self.context.holds = holds;
        self
    }

    /// The request is about this inode.
    pub(crate) fn about(mut self, ino: InodeId) -> Pending<'a, R> {
        self.context.ino = ino;
        self
    }

    /// The request is counted for no inode.
    pub(crate) fn unnamed(mut self) -> Pending<'a, R> {
        self.context = self.context.unnamed();
        self
    }

    /// Makes a call that changes nothing.
    pub(crate) fn serve<A: BorrowedArg + ?Sized, T>(
        self,
        arg: &A,
        call: impl Fn(Attempt<'_>, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        self.look(|_| Holds::Nothing, arg, call, answer);
    }

    /// Makes a call that changes nothing. `holds` finds the kernel locks that the request holds; it runs only
    /// if the call has to wait.
    pub(crate) fn look<A: BorrowedArg + ?Sized, T>(
        self,
        holds: impl FnOnce(&Client) -> Holds,
        arg: &A,
        call: impl Fn(Attempt<'_>, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        match call(self.at_once(), arg) {
            Err(Failure::WouldBlock) => {
                let holds = holds(&self.shared().client);
                self.holding(holds).wait(arg, call, answer);
            }
            outcome => self.finish(outcome, answer),
        }
    }

    /// Makes a call that changes something while the request holds kernel locks.
    pub(crate) fn change<A: BorrowedArg + ?Sized, T>(
        self,
        arg: &A,
        call: impl Fn(Attempt<'_>, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let (shared, holds) = (self.shared(), self.context.holds);
        shared.invalidator.is_at_work(holds);
        let outcome = match shared.may_be_outdated(holds) {
            true => Err(Failure::WouldBlock),
            false => call(self.at_once(), arg),
        };
        if let Err(Failure::WouldBlock) = outcome {
            return self.wait(arg, call, answer);
        }
        if outcome.is_ok() {
            shared.invalidator.changed(holds);
        }
        self.finish(outcome, answer);
        shared.invalidator.is_done(holds);
        shared.invalidator.is_answered(holds);
    }

    /// Makes a call that always goes to a thread that may wait.
    pub(crate) fn serve_slow<T>(
        self,
        call: impl FnOnce(Attempt<'_>) -> Result<T, Errno> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        if self.dispatcher.slow.refuses(Lane::of(&self.context)) {
            return self.finish(Err(ENOMEM.into()), answer);
        }
        self.later(move |attempt| call(attempt).map_err(Failure::Errno), answer);
    }

    /// Refuses the request. It is counted for no inode.
    pub(crate) fn refuse(self, why: Errno) {
        self.shared().counters.record(&self.context.unnamed(), true);
        self.reply.fail(why);
    }

    /// Answers without the client. It is counted for no inode.
    pub(crate) fn answer_otherwise(self, answer: impl FnOnce(R)) {
        self.dispatcher.note(&self.context.unnamed());
        answer(self.reply);
    }

    /// Lists a directory, from an offset on.
    pub(crate) fn list(self, offset: u64)
    where
        R: ListingBuffer,
    {
        let Pending { dispatcher, context, reply } = self;
        let shared = &dispatcher.shared;
        let mut listing = Listing::new(reply, &context, offset, shared);
        match listing.fill(Attempt { shared, context: &context, wait: Wait::Never }) {
            Err(Failure::WouldBlock) => {
                let waits = shared.running.begin(context, Some(listing.canceller()));
                let shared = shared.clone();
                let job = move || {
                    let attempt = Attempt { shared: &shared, context: &context, wait: Wait::Allowed };
                    let outcome = waits.run(|| listing.fill(attempt));
                    answer_listing(&shared, &context.slow(), listing, outcome);
                    drop(waits);
                };
                dispatcher.submit(Lane::Read, Box::new(job));
            }
            outcome => answer_listing(shared, &context, listing, outcome),
        }
    }

    pub(super) fn shared(&self) -> &'a Arc<Shared> {
        &self.dispatcher.shared
    }

    /// The attempt on the thread that has read the request.
    fn at_once(&self) -> Attempt<'_> {
        Attempt { shared: self.shared(), context: &self.context, wait: Wait::Never }
    }

    pub(super) fn finish<T>(self, outcome: Reply<T>, answer: impl FnOnce(R, Result<T, Errno>)) {
        self.shared().finish(&self.context, self.reply, outcome, answer);
    }

    /// Queues a call for a thread that may wait, unless too many requests wait already.
    fn wait<A: BorrowedArg + ?Sized, T>(
        self,
        arg: &A,
        call: impl Fn(Attempt<'_>, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        if self.is_too_much() {
            return self.finish(Err(ENOMEM.into()), answer);
        }
        let arg = arg.to_owned();
        self.later(move |attempt| call(attempt, arg.borrow()), answer);
    }

    /// Whether so many requests or bytes wait that this one is refused.
    pub(super) fn is_too_much(&self) -> bool {
        self.dispatcher.slow.refuses(Lane::of(&self.context))
            || self.shared().invalidator.is_too_much(self.context.holds)
    }

    /// Queues a call for a thread that may wait.
    pub(super) fn later<T>(
        self,
        call: impl FnOnce(Attempt<'_>) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let (dispatcher, lane) = (self.dispatcher, Lane::of(&self.context));
        dispatcher.submit(lane, self.waiting().job(call, answer));
    }

    /// Turns this into a request for a thread that may wait.
    pub(super) fn waiting(self) -> Waiting<R> {
        let Pending { dispatcher, context, reply } = self;
        let shared = dispatcher.shared.clone();
        let session = shared.client.session();
        Waiting { shared, context, session, reply }
    }
}

/// A request to be answered by a thread that may wait.
pub(super) struct Waiting<R> {
    pub shared: Arc<Shared>,
    pub context: Context,
    /// The session in which it arrived.
    session: SessionId,
    reply: R,
}

impl<R: ErrorReply + Send + 'static> Waiting<R> {
    /// A job for its call. It counts as waiting from now on.
    pub(super) fn job<T>(
        self,
        call: impl FnOnce(Attempt<'_>) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) -> Job {
        let Waiting { shared, context, session, mut reply } = self;
        let waiting_change = shared.invalidator.begin_waiting_change(context.holds);
        // A write owns its bytes, and makes a second copy when it is carried out.
        let bytes = if let Holds::Pages(write) = context.holds { 2 * write.len as usize } else { 0 };
        let memory = shared.client.memory().count(Use::Requests, bytes);
        let waits = shared.running.begin(context, Some(reply.canceller()));
        Box::new(move || {
            // A request fails if its session ends while it waits: the kernel has sent it on the basis of
            // replies of that session.
            let outdated = shared.client.session() != session;
            let attempt = Attempt { shared: &shared, context: &context, wait: Wait::Allowed };
            let outcome = if outdated { Err(Errno::EIO.into()) } else { waits.run(|| call(attempt)) };
            if let Some(change) = &waiting_change {
                change.carried_out();
            }
            shared.finish(&context.slow(), reply, outcome, answer);
            drop((waits, waiting_change, memory));
        })
    }
}

/// Sends a listing, or the error.
fn answer_listing<S: ListingBuffer>(
    shared: &Shared,
    context: &Context,
    listing: Listing<S>,
    outcome: Reply<()>,
) {
    let outcome = settled(outcome);
    shared.counters.record(context, outcome.is_err());
    match outcome {
        Ok(()) => listing.send(&shared.invalidator),
        Err(why) => listing.fail(why),
    }
}
