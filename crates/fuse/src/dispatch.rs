//! Dispatch of requests: a request is answered from memory on the thread that read it, or else by a thread
//! that may wait.

mod lock_requests;

use crate::answer::{self, Fail};
use crate::encode::settled;
use crate::handle;
use crate::invalidate::{Holds, Invalidator, Write, naming};
use crate::kernel::ENOMEM;
use crate::limits::{LOCK_THREADS, SIZE_WAIT_MAX};
use crate::listing::{Listing, Sink};
use crate::locks::{LockScope, Locks};
use crate::mount_state::Shared;
use crate::nodeid_alias::{NodeIds, inode_id};
use crate::running::Running;
use crate::slow::{Job, Lane, Lanes};
use crate::split_listings::Splits;
use crate::stats::{Asked, Counters, Op, Timer};
use crate::thread::Writing;
use crate::xattr::CAPABILITY;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shoal_channel::{FileHandle, NodeId};
use shoal_client::{Client, Failure, Reply, Wait};
use shoal_types::{Errno, Inode, InodeId};
use std::borrow::Borrow;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An argument that a request lends to a call. It is copied only if the call has to wait.
pub(crate) trait Lent: ToOwned<Owned: Send + 'static> {}

impl<A: ToOwned<Owned: Send + 'static> + ?Sized> Lent for A {}

/// Dispatches requests to the client, and answers them.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    slow: Lanes,
    /// The connection to the kernel, polled to see whether it has been closed.
    device: File,
}

impl Dispatcher {
    pub(crate) fn start(
        client: Arc<Client>,
        device: File,
        slow_threads: usize,
        locks: LockScope,
        root: InodeId,
        slow_operation: Option<Duration>,
    ) -> io::Result<Dispatcher> {
        let locks = Locks::new(locks);
        let slow = Lanes::start(slow_threads, if locks.are_ours() { LOCK_THREADS } else { 0 })?;
        let nodes = Arc::new(NodeIds::new(root));
        let invalidator = Invalidator::new(&client, &nodes);
        let (counters, splits, waiting) = (Counters::new(), Splits::default(), slow.gauge());
        let running = Running::new(slow_operation);
        running.start()?;
        let shared = Shared { client, counters, invalidator, locks, splits, nodes, running, waiting };
        Ok(Dispatcher { shared: Arc::new(shared), slow, device })
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
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

    /// Finishes waiting requests, or makes them fail: the kernel has closed the connection and takes no
    /// replies.
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

    /// Queues a request for a thread that may wait. While the queue is full this thread reads no requests,
    /// and would not notice the end of the mount. So if the mount has ended, waiting calls are interrupted.
    fn submit(&self, lane: Lane, job: Job) {
        self.slow.submit(lane, job, || {
            if self.is_over() {
                self.shared.client.interrupt();
            }
        });
    }

    /// Queues a request about locks of programs.
    fn submit_about_locks(&self, job: Job) {
        self.submit(Lane::Lock, job);
    }

    /// Whether the kernel has closed the connection.
    fn is_over(&self) -> bool {
        let mut device = [PollFd::new(self.device.as_fd(), PollFlags::empty())];
        let polled = poll(&mut device, PollTimeout::ZERO);
        let seen = device.first().and_then(PollFd::revents).unwrap_or(PollFlags::empty());
        polled.is_ok() && seen.intersects(PollFlags::POLLERR | PollFlags::POLLHUP)
    }

    /// Makes a call that changes nothing, and answers with its outcome.
    pub(crate) fn serve<A: Lent + ?Sized, T, R: Send + 'static>(
        &self,
        asked: Asked,
        reply: R,
        arg: &A,
        call: impl Fn(&Client, Wait, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        self.look(asked, |_| Holds::Nothing, reply, arg, call, answer);
    }

    /// Makes a call that changes nothing, and answers with its outcome. `holds` finds the kernel locks that
    /// the request holds; it runs only if the call has to wait.
    pub(crate) fn look<A: Lent + ?Sized, T, R: Send + 'static>(
        &self,
        asked: Asked,
        holds: impl FnOnce(&Client) -> Holds,
        reply: R,
        arg: &A,
        call: impl Fn(&Client, Wait, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let timer = Timer::start(asked);
        match call(&self.shared.client, Wait::Never, arg) {
            Err(Failure::WouldBlock) => {
                let holds = holds(&self.shared.client);
                self.wait(timer, holds, reply, arg, call, answer);
            }
            outcome => self.shared.finish(timer, reply, outcome, answer),
        }
    }

    /// Makes a call that changes something while the request holds kernel locks, and answers with its
    /// outcome.
    pub(crate) fn change<A: Lent + ?Sized, T, R: Send + 'static>(
        &self,
        asked: Asked,
        holds: Holds,
        reply: R,
        arg: &A,
        call: impl Fn(&Client, Wait, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let timer = Timer::start(asked);
        self.shared.invalidator.is_at_work(holds);
        let outcome = match self.shared.may_be_outdated(holds) {
            true => Err(Failure::WouldBlock),
            false => naming(holds, || call(&self.shared.client, Wait::Never, arg)),
        };
        if let Err(Failure::WouldBlock) = outcome {
            return self.wait(timer, holds, reply, arg, call, answer);
        }
        if outcome.is_ok() {
            self.shared.invalidator.changed(holds);
        }
        self.shared.finish(timer, reply, outcome, answer);
        self.shared.invalidator.is_done(holds);
        self.shared.invalidator.is_answered(holds);
    }

    /// Writes back pages that programs have changed through mappings (`docs/KERNEL_CACHE.md`, hazard 15).
    ///
    /// If that cannot be done at once, the baseline of the pages is read first, by a thread that waits only
    /// for servers and bricks. Until then the write does not count as waiting. So a client that changes the
    /// file still waits for these pages to be invalidated, and the content read is that from before its
    /// change.
    pub(crate) fn write_back(&self, write: Write, data: &[u8], reply: shoal_channel::ReplyWrite) {
        let Write { ino, offset, len } = write;
        let (timer, holds) = (Timer::start(Op::Write.of(ino)), Holds::Pages(write));
        let writing = self.shared.invalidator.is_written_back(write);
        let answer = move |reply, done| {
            answer::written(reply, len as u32, done);
            drop(writing);
        };
        let outcome = match self.shared.invalidator.may_differ(ino) {
            true => Err(Failure::WouldBlock),
            false => self.shared.client.write_back(Wait::Never, ino, offset, data, None),
        };
        if outcome != Err(Failure::WouldBlock) {
            if outcome.is_ok() {
                self.shared.counters.written(ino, data.len());
            }
            return self.shared.finish(timer, reply, outcome, answer);
        }
        if self.refuses(timer.op(), holds) {
            return self.shared.finish(timer, reply, Err(ENOMEM.into()), answer);
        }
        let (data, shared, changes) = (data.to_vec(), self.shared.clone(), self.slow.changes());
        let session = shared.client.session();
        let reads = shared.running.begin(timer);
        let job = move || {
            // Without a baseline the pages are written as a whole.
            let mut before = reads.run(|| shared.client.before_write_back(ino, offset, len as u32)).ok();
            drop(reads);
            if let Some(before) = &mut before {
                shared.invalidator.read_from(write, before);
            }
            let (invalidator, counting) = (shared.invalidator.clone(), shared.clone());
            let call = move |client: &Client| -> Reply<()> {
                client.write_back(Wait::Allowed, ino, offset, &data, before.as_ref())?;
                counting.counters.written(ino, data.len());
                // Also if the pages equal the file: a client that waited for their invalidation may have been
                // let go on.
                invalidator.differ(write, &data);
                Ok(())
            };
            changes.submit(shared.job(timer, holds, session, reply, call, answer));
        };
        self.submit(Lane::Read, Box::new(job));
    }

    /// Answers GETXATTR of `security.capability`, which the kernel sends before its first write to a file:
    /// the write gate. The reply waits until this client has the right to change the file. A thread that may
    /// be in a call other than a write is answered at once.
    pub(crate) fn acquire_write_permit(&self, ino: InodeId, tid: u32, reply: shoal_channel::ReplyXattr) {
        let call = move |client: &Client, wait, (): &()| client.getxattr(wait, ino, CAPABILITY);
        let answer = |reply, value| answer::sized(reply, 0, value);
        let Shared { client, invalidator, .. } = &*self.shared;
        let writing = || Writing::of(tid);
        let known = invalidator.was_dropped(ino).then(writing);
        let waits =
            known != Some(None) && client.acquire_write_permit(Wait::Never, ino) == Err(Failure::WouldBlock);
        // The kernel took the end of the file from its cache before it asked. If other clients may have
        // appended since, the bytes will be at a wrong offset of the page cache.
        let misplaces = known.flatten().is_some_and(|writing| writing.appends);
        let writing = (waits || misplaces).then(|| known.unwrap_or_else(writing)).flatten();
        let Some(Writing { appends }) = writing else {
            return self.serve(Op::Getxattr.of(ino), reply, &(), call, answer);
        };
        let timer = Timer::start(Op::Getxattr.of(ino).by(tid));
        if self.slow.refuses(Lane::Change) {
            return self.shared.finish(timer, reply, Err(ENOMEM.into()), answer);
        }
        let invalidator = invalidator.clone();
        let wait = move |client: &Client| {
            // If the right cannot be had, the write fails with the reason.
            if client.acquire_write_permit(Wait::Allowed, ino).is_ok() && appends {
                invalidator.is_about_to_append(ino);
            }
            call(client, Wait::Allowed, &())
        };
        let session = client.session();
        self.submit(Lane::Change, self.shared.job(timer, Holds::Nothing, session, reply, wait, answer));
    }

    /// Answers GETATTR. `is_look`: a thread of the mount asks.
    pub(crate) fn show_attributes(
        &self,
        reply: shoal_channel::ReplyAttr,
        ino: InodeId,
        tid: u32,
        is_look: bool,
    ) {
        let (timer, shared) = (Timer::start(Op::Getattr.of(ino).by(tid)), &self.shared);
        let asked = shared.invalidator.attributes_asked(ino, tid, is_look);
        let outcome = shared.client.getattr(Wait::Never, ino);
        let is_held = outcome.is_ok() && shared.invalidator.is_behind_size_barrier(ino, tid);
        if !is_held && outcome != Err(Failure::WouldBlock) {
            return shared.finish(timer, reply, outcome, |reply, inode| asked.answer(reply, inode));
        }
        // Invalidations wait for GETATTRs in flight, so a GETATTR that waits for the file to settle is
        // withdrawn.
        let (invalidator, mut asked) = (shared.invalidator.clone(), asked.unless(is_held));
        let unanswered = invalidator.unanswered(tid);
        let call = move |client: &Client| loop {
            let is_settled = asked.is_some() || invalidator.wait_until_settled(ino);
            let question = asked.take().unwrap_or_else(|| invalidator.attributes_asked(ino, tid, is_look));
            let inode = client.getattr(Wait::Allowed, ino)?;
            match is_settled && invalidator.is_behind_size_barrier(ino, tid) {
                true => question.withdraw(),
                false => return Ok((question, inode)),
            }
        };
        self.later(timer, Holds::Nothing, reply, call, |reply, told| {
            drop(unanswered);
            match told {
                Ok((asked, inode)) => asked.answer(reply, Ok(inode)),
                Err(why) => reply.fail(why),
            }
        });
    }

    /// Answers GETATTR of a thread that reads an open file, when the kernel has the right size. See
    /// [`Invalidator::size_asked`].
    pub(crate) fn show_size(&self, reply: shoal_channel::ReplyAttr, ino: InodeId, tid: u32) {
        let (timer, begun, shared) =
            (Timer::start(Op::Getattr.of(ino).by(tid)), Instant::now(), self.shared.clone());
        if self.slow.refuses(Lane::Size) {
            let refused = Err::<Inode, _>(ENOMEM.into());
            return shared
                .finish(timer, reply, refused, |reply, inode| answer::attr(reply, ino, inode, |_| true));
        }
        let unanswered = shared.invalidator.unanswered(tid);
        let waits = shared.running.begin(timer);
        let job = move || {
            let Shared { client, invalidator, .. } = &*shared;
            let mut asked = invalidator.size_asked(client, ino, tid, begun);
            let mut outcome = waits.run(|| client.getattr(Wait::Allowed, ino));
            while outcome.is_ok()
                && invalidator.is_behind_size_barrier(ino, tid)
                && begun.elapsed() < SIZE_WAIT_MAX
            {
                asked.withdraw();
                asked = invalidator.size_asked(client, ino, tid, begun);
                outcome = client.getattr(Wait::Allowed, ino);
            }
            drop(unanswered);
            shared.finish(timer.slow(), reply, outcome, |reply, inode| asked.answer(reply, inode));
            drop(waits);
        };
        self.submit(Lane::Size, Box::new(job));
    }

    /// Queues a call for a thread that may wait, unless too many requests wait already.
    fn wait<A: Lent + ?Sized, T, R: Send + 'static>(
        &self,
        timer: Timer,
        holds: Holds,
        reply: R,
        arg: &A,
        call: impl Fn(&Client, Wait, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        if self.refuses(timer.op(), holds) {
            return self.shared.finish(timer, reply, Err(ENOMEM.into()), answer);
        }
        let arg = arg.to_owned();
        let call = move |client: &Client| call(client, Wait::Allowed, arg.borrow());
        self.later(timer, holds, reply, call, answer);
    }

    /// Whether too many requests or bytes wait already for one more to wait.
    fn refuses(&self, op: Op, holds: Holds) -> bool {
        self.slow.refuses(lane(op, holds)) || self.shared.invalidator.is_too_much(holds)
    }

    /// Makes a call that always waits, and answers with its outcome.
    pub(crate) fn serve_slow<T, R: Send + 'static>(
        &self,
        asked: Asked,
        holds: Holds,
        reply: R,
        call: impl FnOnce(&Client) -> Result<T, Errno> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let timer = Timer::start(asked);
        if self.slow.refuses(Lane::of(asked.op)) {
            return self.shared.finish(timer, reply, Err(ENOMEM.into()), answer);
        }
        self.later(timer, holds, reply, move |client| call(client).map_err(Failure::Errno), answer);
    }

    fn later<T, R: Send + 'static>(
        &self,
        timer: Timer,
        holds: Holds,
        reply: R,
        call: impl FnOnce(&Client) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let lane = lane(timer.op(), holds);
        let session = self.shared.client.session();
        self.submit(lane, self.shared.job(timer, holds, session, reply, call, answer));
    }

    /// Lists a directory for a thread, from an offset on.
    pub(crate) fn list<S: Sink>(&self, op: Op, sink: S, tid: u32, dir: InodeId, offset: u64) {
        let timer = Timer::start(op.of(dir).by(tid));
        let mut listing = Listing::new(sink, tid, dir, offset, &self.shared);
        match listing.fill(&self.shared, Wait::Never) {
            Err(Failure::WouldBlock) => {
                let (shared, waits) = (self.shared.clone(), self.shared.running.begin(timer));
                let job = move || {
                    let outcome = waits.run(|| listing.fill(&shared, Wait::Allowed));
                    answer_listing(&shared, timer.slow(), listing, outcome);
                    drop(waits);
                };
                self.submit(Lane::Read, Box::new(job));
            }
            outcome => answer_listing(&self.shared, timer, listing, outcome),
        }
    }

    /// Whether requests through an open file are to be refused.
    pub(crate) fn bars(&self, ino: NodeId, fh: FileHandle) -> bool {
        let Shared { client, locks, .. } = &*self.shared;
        locks.bars(client, fh) || handle::is_mappable(fh) && client.has_lost_mapping_lock(inode_id(ino))
    }

    /// Refuses a request.
    pub(crate) fn refuse(&self, op: Op, reply: impl Fail, why: Errno) {
        self.shared.counters.record(Timer::start(op.unnamed()), true);
        reply.fail(why);
    }

    /// Counts a request that has no reply.
    pub(crate) fn note(&self, timer: Timer) {
        self.shared.counters.record(timer, false);
    }
}

/// Sends a listing, or why there is none.
fn answer_listing<S: Sink>(shared: &Shared, timer: Timer, listing: Listing<S>, outcome: Reply<()>) {
    let outcome = settled(outcome);
    shared.counters.record(timer, outcome.is_err());
    match outcome {
        Ok(()) => listing.send(&shared.invalidator),
        Err(why) => listing.fail(why),
    }
}

/// A request that holds the locks of names waits for other clients even if it only looks names up.
fn lane(op: Op, holds: Holds) -> Lane {
    match holds {
        Holds::Names { .. } => Lane::Change,
        Holds::Nothing | Holds::Dir(_) | Holds::Pages(_) => Lane::of(op),
    }
}
