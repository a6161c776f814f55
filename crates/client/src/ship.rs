//! Sends the journal, in order, each batch after its blocks are durable.

use crate::context::{Context, SessionState};
use crate::core::Sealed;
use crate::grants::{Grants, runs_low};
use crate::put::BlockWriter;
use bytes::Bytes;
use shoal_namespace::Op;
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::Instant;
use shoal_types::{BlockGroup, Errno};
use shoal_wire::{Commit, CommitReply, MetaError, encode_ops};
use std::sync::Arc;

/// Sends the journal of a session.
pub(crate) struct Shipper {
    pub(crate) context: Arc<Context>,
    grants: Arc<Grants>,
    blocks: Arc<BlockWriter>,
    /// There is something to ship.
    pub(crate) work: Condvar,
    /// Held while batches are sent, so that they leave in order.
    shipping: Mutex<()>,
}

impl Shipper {
    pub(crate) fn new(context: &Arc<Context>, grants: &Arc<Grants>, blocks: &Arc<BlockWriter>) -> Shipper {
        let (context, grants, blocks) = (context.clone(), grants.clone(), blocks.clone());
        Shipper { context, grants, blocks, work: Condvar::new(), shipping: Mutex::new(()) }
    }

    /// Starts the thread that ships the journal.
    pub(crate) fn start(self: &Arc<Shipper>) -> JoinHandle<()> {
        let shipper = Arc::clone(self);
        let run = move || shipper.run();
        Builder::new().name("shoal-journal".into()).spawn(run).expect("the system has room for a thread")
    }

    /// Wakes the shipping thread if a call has left work for it.
    pub(crate) fn wake_for(&self, state: &SessionState) {
        let sealed = state.core.journal.has_sealed();
        if sealed || (state.shipper_idle && state.core.journal.has_open()) {
            self.work.notify_one();
        }
    }

    /// The session is stopping: wakes the shipping thread.
    pub(crate) fn stop(&self) {
        self.work.notify_all();
    }

    /// Seals the open batch when it is old enough, and ships what is sealed.
    fn run(&self) {
        loop {
            let mut state = self.context.state.lock();
            while !state.stopping && !state.core.journal.has_open() && !state.core.journal.has_sealed() {
                state.shipper_idle = true;
                self.work.wait(&mut state);
            }
            state.shipper_idle = false;
            if state.stopping || state.core.alive().is_err() {
                return;
            }
            let due = Instant::now() + self.context.shared.options.journal_age_max;
            while !state.stopping && !state.core.journal.has_sealed() {
                if self.work.wait_until(&mut state, due).timed_out() {
                    state.core.seal();
                    break;
                }
            }
            let low = runs_low(&state.core);
            drop(state);
            self.ship();
            if low {
                self.grants.top_up();
            }
        }
    }

    /// Sends every sealed batch, each after its blocks are durable.
    fn ship(&self) {
        let _order = self.shipping.lock();
        while let Ok(Some(sealed)) = self.next_sealed(true) {
            self.send(sealed);
        }
    }

    /// Sends the sealed batches that wait neither for blocks nor for the lock, on the calling thread, which
    /// saves a wake-up. The rest is left to the shipping thread.
    pub(crate) fn ship_ready(&self) {
        if let Some(_order) = self.shipping.try_lock() {
            while let Ok(Some(sealed)) = self.next_sealed(false) {
                self.send(sealed);
            }
        }
        self.work.notify_one();
    }

    /// The next sealed batch, once its blocks are durable. `None` if there is none, or if it is not ready and
    /// `wait` is false. Fails when the session has come to an end.
    fn next_sealed(&self, wait: bool) -> Result<Option<Sealed>, Errno> {
        let mut state = self.context.state.lock();
        loop {
            let block_tasks = state.core.blocks.take_block_tasks();
            if !block_tasks.is_empty() {
                drop(state);
                self.blocks.run(block_tasks);
                state = self.context.state.lock();
            }
            state.core.alive()?;
            let core = &mut state.core;
            let stored = core.journal.next_blocks().iter().all(|id| core.blocks.is_stored(*id));
            if stored || mistake("commit a block before it is stored") {
                return Ok(core.journal.take_sealed());
            }
            if !wait {
                return Ok(None);
            }
            self.context.changed.wait(&mut state);
        }
    }

    fn send(&self, mut sealed: Sealed) {
        self.say_where(&mut sealed);
        let ops = Bytes::from(encode_ops(&sealed.ops));
        self.context.counters.batches.add(1);
        self.context.counters.batch_bytes.add(ops.len() as u64);
        let Sealed { seq, born, gone, ops: sent, .. } = sealed;
        tracing::trace!(session = %self.context.id, %seq, ops = ?sent, "sends");
        let commit = Commit { session: self.context.id, seq, ops, born, gone };
        let context = Arc::downgrade(&self.context);
        let done = move |outcome| {
            if let Some(context) = context.upgrade() {
                if let Err(MetaError::Refused { index, .. }) = &outcome {
                    let op = sent.get(*index as usize);
                    tracing::error!(%seq, ?op, "the servers refuse what was done here");
                }
                committed(&context, outcome);
            }
        };
        self.context.transport.meta.submit(commit, Box::new(done));
    }

    /// Writes into a batch on which bricks the blocks are that it declares. All of them are durable by now.
    fn say_where(&self, sealed: &mut Sealed) {
        let mut declared = Vec::new();
        for op in &mut sealed.ops {
            if let Op::Write { declare: Some((id, info)), .. } = op {
                // A block without a group could never be found again.
                let early = || mistake("commit a block before it is stored").then(BlockGroup::default);
                let place = self.context.groups.own(*id).or_else(early);
                info.group = place.expect("a durable block of this session has a place");
                declared.push(*id);
            }
        }
        self.context.groups.sending(sealed.seq, declared);
    }
}

/// Records the outcome of a commit in the core.
fn committed(context: &Context, outcome: Result<CommitReply, MetaError>) {
    match outcome {
        Ok(reply) => {
            context.groups.committed(reply.seq);
            context.state.lock().committed(reply.seq);
            context.changed.notify_all();
        }
        Err(error) => {
            context.refused(error);
        }
    }
}
