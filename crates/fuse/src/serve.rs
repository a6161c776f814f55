//! How a request is answered: from memory on the thread that read it, or else by a thread that may wait.

use crate::answer::{self, Fail};
use crate::encode::settled;
use crate::kernel::ENOMEM;
use crate::limits::LOCK_THREADS;
use crate::listing::{Listing, Sink, Splits};
use crate::locks::{LockScope, Locks};
use crate::nodes::Nodes;
use crate::slow::{Gauge, Job, Lane, Lanes};
use crate::stale::{Dropper, Holds, Write};
use crate::stats::{Counters, Op, Stats, Timer};
use fuser::FileHandle;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shoal_client::{Client, Failure, KernelCache, Reply, Stale, Wait};
use shoal_types::{Errno, Inode, InodeId, SessionId};
use std::borrow::Borrow;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// What a request lends to a call. It is copied only if the call has to wait.
pub(crate) trait Lent: ToOwned<Owned: Send + 'static> {}

impl<A: ToOwned<Owned: Send + 'static> + ?Sized> Lent for A {}

/// What all threads of a mount share.
pub(crate) struct Shared {
    pub client: Arc<Client>,
    pub counters: Counters,
    /// Makes the kernel drop what others change.
    pub stale: Arc<Dropper>,
    /// Of programs.
    pub locks: Locks,
    pub splits: Splits,
    pub nodes: Arc<Nodes>,
    waiting: Gauge,
}

impl Shared {
    pub(crate) fn stats(&self) -> Stats {
        let slow_queued = self.waiting.waiting();
        Stats { ops: self.counters.snapshot(), slow_queued, drops: self.stale.drops() }
    }
}

/// Answers requests.
pub(crate) struct Server {
    shared: Arc<Shared>,
    slow: Lanes,
    /// The conversation with the kernel, to see whether it is over.
    device: File,
}

impl Server {
    pub(crate) fn start(
        client: Arc<Client>,
        device: File,
        slow_threads: usize,
        locks: LockScope,
    ) -> io::Result<Server> {
        let locks = Locks::new(locks);
        let slow = Lanes::start(slow_threads, if locks.are_ours() { LOCK_THREADS } else { 0 })?;
        let nodes = Arc::<Nodes>::default();
        let stale = Dropper::new(&client, &nodes);
        let (counters, splits, waiting) = (Counters::new(), Splits::default(), slow.gauge());
        let shared = Shared { client, counters, stale, locks, splits, nodes, waiting };
        Ok(Server { shared: Arc::new(shared), slow, device })
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    pub(crate) fn stale(&self) -> &Arc<Dropper> {
        &self.shared.stale
    }

    pub(crate) fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Finishes what waits, or has it fail: the kernel has gone, and nobody waits for an answer.
    pub(crate) fn drain(&mut self) {
        let Shared { client, stale, locks, .. } = &*self.shared;
        stale.end();
        locks.end_all(|wait| self.cancel(wait));
        self.slow.drain(|| client.interrupt());
        if !locks.are_over() {
            client.interrupt();
            locks.are_over();
        }
    }

    /// Has a request answered by a thread that may wait. While there is none, requests are not read, and so the end of the
    /// mount would not be noticed: if it has come, what waits is interrupted.
    fn submit(&self, lane: Lane, job: Job) {
        self.slow.submit(lane, job, || {
            if self.is_over() {
                self.shared.client.interrupt();
            }
        });
    }

    /// The same with what is about locks of programs.
    pub(crate) fn submit_about_locks(&self, job: Job) {
        self.submit(Lane::Lock, job);
    }

    /// Whether the kernel has ended the conversation.
    fn is_over(&self) -> bool {
        let mut device = [PollFd::new(self.device.as_fd(), PollFlags::empty())];
        let polled = poll(&mut device, PollTimeout::ZERO);
        let seen = device.first().and_then(PollFd::revents).unwrap_or(PollFlags::empty());
        polled.is_ok() && seen.intersects(PollFlags::POLLERR | PollFlags::POLLHUP)
    }

    /// Makes a call that changes nothing, and answers with its outcome.
    pub(crate) fn serve<A: Lent + ?Sized, T, R: Send + 'static>(
        &self,
        op: Op,
        reply: R,
        arg: &A,
        call: impl Fn(&Client, Wait, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        self.look(op, |_| Holds::Nothing, reply, arg, call, answer);
    }

    /// The same, where it is found out only if the call has to wait what the kernel holds.
    pub(crate) fn look<A: Lent + ?Sized, T, R: Send + 'static>(
        &self,
        op: Op,
        holds: impl FnOnce(&Client) -> Holds,
        reply: R,
        arg: &A,
        call: impl Fn(&Client, Wait, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let timer = Timer::start(op);
        match call(&self.shared.client, Wait::Never, arg) {
            Err(Failure::WouldBlock) => {
                let holds = holds(&self.shared.client);
                self.wait(timer, holds, reply, arg, call, answer);
            }
            outcome => self.shared.finish(timer, reply, outcome, answer),
        }
    }

    /// The same with a call that changes something, while the kernel holds locks.
    pub(crate) fn change<A: Lent + ?Sized, T, R: Send + 'static>(
        &self,
        op: Op,
        holds: Holds,
        reply: R,
        arg: &A,
        call: impl Fn(&Client, Wait, &A) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let timer = Timer::start(op);
        self.shared.stale.is_at_work(holds);
        let outcome = match self.shared.stale.may_be_outdated(holds) {
            true => Err(Failure::WouldBlock),
            false => call(&self.shared.client, Wait::Never, arg),
        };
        if let Err(Failure::WouldBlock) = outcome {
            return self.wait(timer, holds, reply, arg, call, answer);
        }
        if outcome.is_ok() {
            self.shared.stale.changed(holds);
        }
        self.shared.finish(timer, reply, outcome, answer);
    }

    /// Has pages written back that programs have changed through mappings. If that cannot be done at once, it is found out first what they were read from, by a
    /// thread that waits for nobody but servers and bricks. Until then the write does not count as waiting: so others who change the file
    /// wait for these pages to be dropped, and what is found is what was there before them.
    pub(crate) fn write_back(&self, write: Write, data: &[u8], reply: fuser::ReplyWrite) {
        let Write { ino, offset, len } = write;
        let (timer, holds) = (Timer::start(Op::Write), Holds::Pages(write));
        let answer = move |reply, done| answer::written(reply, len as u32, done);
        let outcome = match self.shared.stale.may_be_outdated(holds) {
            true => Err(Failure::WouldBlock),
            false => self.shared.client.write_back(Wait::Never, ino, offset, data, None).map(drop),
        };
        if outcome != Err(Failure::WouldBlock) {
            return self.shared.finish(timer, reply, outcome, answer);
        }
        if self.refuses(timer.op(), holds) {
            return self.shared.finish(timer, reply, Err(ENOMEM.into()), answer);
        }
        let (data, shared, changes) = (data.to_vec(), self.shared.clone(), self.slow.changes());
        let session = shared.client.session();
        let job = move || {
            // What cannot be read is replaced as a whole.
            let mut before = shared.client.before_write_back(ino, offset, len as u32).ok();
            if let Some(before) = &mut before {
                shared.stale.read_from(write, before);
            }
            let stale = shared.stale.clone();
            let call = move |client: &Client| -> Reply<()> {
                if !client.write_back(Wait::Allowed, ino, offset, &data, before.as_ref())? {
                    stale.differ(write, &data);
                }
                Ok(())
            };
            changes.submit(shared.job(timer, holds, session, reply, call, answer));
        };
        self.submit(Lane::Read, Box::new(job));
    }

    /// Answers a thread that reads an open file with its attributes, when the kernel has taken the size in. See [`Dropper::size_asked`].
    pub(crate) fn show_size(&self, reply: fuser::ReplyAttr, ino: InodeId, tid: u32) {
        let (timer, begun, shared) = (Timer::start(Op::Getattr), Instant::now(), self.shared.clone());
        if self.slow.refuses(Lane::Size) {
            let refused = Err::<Inode, _>(ENOMEM.into());
            return shared
                .finish(timer, reply, refused, |reply, inode| answer::attr(reply, ino, inode, |_| true));
        }
        let job = move || {
            let Shared { client, stale, .. } = &*shared;
            let asked = stale.size_asked(client, ino, tid, begun);
            let outcome = client.getattr(Wait::Allowed, ino);
            shared.finish(timer.slow(), reply, outcome, |reply, inode| asked.answer(reply, inode));
        };
        self.submit(Lane::Size, Box::new(job));
    }

    /// Has a call made by a thread that may wait, unless that would be too much.
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
        let (arg, stale) = (arg.to_owned(), self.shared.stale.clone());
        let call = move |client: &Client| {
            if stale.may_be_outdated(holds) {
                match call(client, Wait::Never, arg.borrow()) {
                    Err(Failure::WouldBlock) => stale.is_waiting(holds),
                    outcome => return outcome,
                }
            }
            call(client, Wait::Allowed, arg.borrow())
        };
        self.later(timer, holds, reply, call, answer);
    }

    /// Whether too much waits already for a request to wait as well.
    fn refuses(&self, op: Op, holds: Holds) -> bool {
        self.slow.refuses(lane(op, holds)) || self.shared.stale.is_too_much(holds)
    }

    /// Makes a call that always waits.
    pub(crate) fn serve_slow<T, R: Send + 'static>(
        &self,
        op: Op,
        holds: Holds,
        reply: R,
        call: impl FnOnce(&Client) -> Result<T, Errno> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) {
        let timer = Timer::start(op);
        if self.slow.refuses(Lane::of(op)) {
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

    /// Lists a directory from an offset on, for a thread.
    pub(crate) fn list<S: Sink>(&self, op: Op, sink: S, tid: u32, dir: InodeId, offset: u64) {
        let timer = Timer::start(op);
        let mut listing = Listing::new(sink, tid, dir, offset, &self.shared);
        match listing.fill(&self.shared, Wait::Never) {
            Err(Failure::WouldBlock) => {
                let shared = self.shared.clone();
                let job = move || {
                    let outcome = listing.fill(&shared, Wait::Allowed);
                    shared.listed(timer.slow(), listing, outcome);
                };
                self.submit(Lane::Read, Box::new(job));
            }
            outcome => self.shared.listed(timer, listing, outcome),
        }
    }

    /// Whether what is done through an open file is to be refused.
    pub(crate) fn bars(&self, fh: FileHandle) -> bool {
        self.shared.locks.bars(&self.shared.client, fh)
    }

    /// Refuses a request.
    pub(crate) fn refuse(&self, op: Op, reply: impl Fail, why: Errno) {
        self.shared.counters.record(Timer::start(op), true);
        reply.fail(why);
    }

    /// Counts a request that has no reply.
    pub(crate) fn note(&self, timer: Timer) {
        self.shared.counters.record(timer, false);
    }
}

impl Shared {
    /// write(2) with `O_APPEND`. The bytes belong at the end of the file; `offset` is where the kernel takes it to be, and where
    /// it has put the bytes into its cache.
    pub(crate) fn append(
        &self,
        wait: Wait,
        ino: InodeId,
        offset: u64,
        data: &[u8],
        clear_setid: bool,
    ) -> Reply<()> {
        let client = &self.client;
        if wait == Wait::Never && client.getattr(wait, ino)?.size != offset {
            // What comes then can wait.
            return Err(Failure::WouldBlock);
        }
        if client.append(wait, ino, data, clear_setid)? != offset {
            self.stale.forget(&[Stale::Node(ino)]);
        }
        Ok(())
    }

    /// A call that may wait, of a request that came in a session. It counts as waiting from now on.
    fn job<T, R: Send + 'static>(
        self: &Arc<Shared>,
        timer: Timer,
        holds: Holds,
        session: SessionId,
        reply: R,
        call: impl FnOnce(&Client) -> Reply<T> + Send + 'static,
        answer: impl FnOnce(R, Result<T, Errno>) + Send + 'static,
    ) -> Job {
        let (shared, under_way) = (self.clone(), self.stale.under_way(holds));
        Box::new(move || {
            // Whoever waits when the session ends hears of it; and what the kernel made of the request was told by that session.
            let outdated = shared.client.session() != session;
            let outcome = if outdated { Err(Errno::EIO.into()) } else { call(&shared.client) };
            if let Some(change) = &under_way {
                change.carried_out();
            }
            shared.finish(timer.slow(), reply, outcome, answer);
            drop(under_way);
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

    fn listed<S: Sink>(&self, timer: Timer, listing: Listing<S>, outcome: Reply<()>) {
        let outcome = settled(outcome);
        self.counters.record(timer, outcome.is_err());
        match outcome {
            Ok(()) => listing.send(),
            Err(why) => listing.fail(why),
        }
    }
}

/// Whoever holds the locks of names waits for others, also when he only looks.
fn lane(op: Op, holds: Holds) -> Lane {
    match holds {
        Holds::Names { .. } => Lane::Change,
        Holds::Nothing | Holds::Dir(_) | Holds::Pages(_) => Lane::of(op),
    }
}
