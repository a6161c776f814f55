//! Sends the journal, in order, and stores its blocks first.

use crate::backoff::Backoff;
use crate::core::{BlockTask, Sealed};
use crate::limits::{JOURNAL_AGE_MAX, PUT_THREADS, PUT_TRIES};
use crate::session::Session;
use bytes::Bytes;
use shoal_namespace::Op;
use shoal_runtime::channel::Receiver;
use shoal_runtime::planted::mistake;
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::Instant;
use shoal_types::{BlockGroup, BlockId, Errno};
use shoal_wire::{BlockError, Commit, CommitReply, MetaError, encode_ops};
use std::sync::Arc;

/// Starts the threads that ship the journal, renew the session, and store blocks.
pub(crate) fn start(session: &Arc<Session>, block_tasks: Receiver<BlockTask>) -> Vec<JoinHandle<()>> {
    let spawn = |name: String, run: Box<dyn FnOnce() + Send>| {
        Builder::new().name(name).spawn(run).expect("the system has room for a thread")
    };
    let mut threads = Vec::new();
    let shipper = Arc::clone(session);
    threads.push(spawn("shoal-journal".into(), Box::new(move || shipper.run_shipper())));
    let renewer = Arc::clone(session);
    threads.push(spawn("shoal-renew".into(), Box::new(move || renewer.run_renewer())));
    for n in 0..PUT_THREADS {
        let (session, block_tasks) = (Arc::clone(session), block_tasks.clone());
        let run = move || block_tasks.iter().for_each(|task| session.run_block_task(task));
        threads.push(spawn(format!("shoal-put-{n}"), Box::new(run)));
    }
    threads
}

impl Session {
    /// Seals the open batch when it is old enough, and ships what is sealed.
    fn run_shipper(self: Arc<Session>) {
        loop {
            let mut state = self.state.lock();
            while !state.stopping && !state.core.journal.has_open() && !state.core.journal.has_sealed() {
                state.shipper_idle = true;
                self.work.wait(&mut state);
            }
            state.shipper_idle = false;
            if state.stopping || state.core.alive().is_err() {
                return;
            }
            let due = Instant::now() + JOURNAL_AGE_MAX;
            while !state.stopping && !state.core.journal.has_sealed() {
                if self.work.wait_until(&mut state, due).timed_out() {
                    state.core.seal();
                    break;
                }
            }
            let low = Session::runs_low(&state.core);
            drop(state);
            self.ship();
            if low {
                self.top_up();
            }
        }
    }

    fn run_renewer(self: Arc<Session>) {
        // Three tries fit into the time that the server allows.
        let pause = self.renew / 3;
        let mut state = self.state.lock();
        while !state.stopping {
            let due = Instant::now() + pause;
            while !state.stopping && !self.ending.wait_until(&mut state, due).timed_out() {}
            if !state.stopping {
                drop(state);
                self.renew();
                state = self.state.lock();
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

    /// Sends those sealed batches that need not wait, neither for blocks nor for the lock, so that a caller
    /// in a hurry need not wait for the shipping thread. The rest is left to that thread.
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
        let mut state = self.state.lock();
        loop {
            let block_tasks = state.core.blocks.take_block_tasks();
            if !block_tasks.is_empty() {
                drop(state);
                self.run_block_tasks(block_tasks);
                state = self.state.lock();
            }
            state.core.alive()?;
            let core = &mut state.core;
            let stored = core.journal.next_blocks().iter().all(|id| core.blocks.is_stored(*id));
            if stored || mistake("name a block before it is stored") {
                return Ok(core.journal.take_sealed());
            }
            if !wait {
                return Ok(None);
            }
            self.changed.wait(&mut state);
        }
    }

    fn send(&self, mut sealed: Sealed) {
        self.say_where(&mut sealed);
        let ops = Bytes::from(encode_ops(&sealed.ops));
        self.counters.batches.add(1);
        self.counters.batch_bytes.add(ops.len() as u64);
        let Sealed { seq, born, gone, ops: sent, .. } = sealed;
        tracing::trace!(session = %self.id, %seq, ops = ?sent, "sends");
        let commit = Commit { session: self.id, seq, ops, born, gone };
        let session = self.me.clone();
        let done = move |outcome| {
            if let Some(session) = session.upgrade() {
                if let Err(MetaError::Refused { index, .. }) = &outcome {
                    let op = sent.get(*index as usize);
                    tracing::error!(%seq, ?op, "the servers refuse what was done here");
                }
                session.committed(outcome);
            }
        };
        self.meta.submit(commit, Box::new(done));
    }

    /// Writes into a batch on which bricks the blocks are that it declares. All of them are durable by now.
    fn say_where(&self, sealed: &mut Sealed) {
        let mut declared = Vec::new();
        for op in &mut sealed.ops {
            if let Op::Write { declare: Some((id, info)), .. } = op {
                // A block without a place could never be found again.
                let early = || mistake("name a block before it is stored").then(BlockGroup::default);
                let place = self.groups.own(*id).or_else(early);
                info.group = place.expect("a durable block of this session has a place");
                declared.push(*id);
            }
        }
        self.groups.sending(sealed.seq, declared);
    }

    /// Gives work on blocks to the threads for it.
    pub(crate) fn run_block_tasks(&self, todo: Vec<BlockTask>) {
        if todo.is_empty() {
            return;
        }
        let block_tasks = self.block_tasks.lock();
        let Some(block_tasks) = &*block_tasks else { return };
        for task in todo {
            // The receivers live as long as the sender does.
            let _ = block_tasks.send(task);
        }
    }

    fn run_block_task(&self, task: BlockTask) {
        if self.state.lock().core.alive().is_err() {
            // The outcome does not matter any more, and what is stored by now is collected with the session.
            return;
        }
        match task {
            BlockTask::Store(id, parts) => self.store(id, &parts),
            BlockTask::Discard(id) => self.discard(id),
        }
    }

    fn store(&self, id: BlockId, parts: &[Bytes]) {
        let wanted = match self.put(id, parts) {
            Ok(group) => {
                self.groups.stored(id, group);
                let core = &mut self.state.lock().core;
                // In an ended session no batch will name it. The servers may have swept that session's blocks
                // before this one was stored.
                core.blocks.stored(id) && core.alive().is_ok()
            }
            Err(error) => {
                let core = &mut self.state.lock().core;
                if core.alive().is_ok() {
                    tracing::error!(block = %id, %error, "a block could not be stored");
                    core.kill(if matches!(error, BlockError::Full) { Errno::ENOSPC } else { Errno::EIO });
                    self.ending.notify_all();
                }
                true
            }
        };
        self.changed.notify_all();
        if !wanted {
            self.discard(id);
        }
    }

    /// Removes a block that nothing names. If that fails, it is collected when the session has ended.
    fn discard(&self, id: BlockId) {
        let group = self.groups.dropped(id);
        if let Err(error) = self.bricks.discard(&[(id, group)]) {
            tracing::warn!(block = %id, %error, "an unneeded block could not be deleted");
        }
    }

    /// Stores a block. Bricks that do not answer are waited for as long as the session lives.
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<BlockGroup, BlockError> {
        let mut backoff = Backoff::new();
        let mut tries = 1;
        let group = loop {
            match self.bricks.store(id, parts) {
                Ok(group) => break group,
                // An earlier try has stored it, and its reply was lost.
                Err(BlockError::Exists(_)) if tries > 1 => break BlockGroup::default(),
                Err(error @ BlockError::Unreachable(_)) => {
                    if backoff.complains() {
                        tracing::warn!(block = %id, %error, "a block waits for bricks to store it");
                    }
                    self.counters.put_waits.add(1);
                    self.pause(backoff.pause()).map_err(|_| error)?;
                }
                Err(error) if tries == PUT_TRIES => return Err(error),
                Err(error) => {
                    tracing::warn!(block = %id, %error, tries, "storing a block failed");
                    tries += 1;
                }
            }
        };
        if backoff.complained() {
            tracing::info!(block = %id, seconds = backoff.waited().as_secs(), "stored after a wait");
        }
        self.counters.puts.add(1);
        self.counters.put_bytes.add(parts.iter().map(|part| part.len() as u64).sum());
        Ok(group)
    }
}

impl Session {
    /// Takes in the outcome of a commit.
    fn committed(&self, outcome: Result<CommitReply, MetaError>) {
        match outcome {
            Ok(reply) => {
                self.groups.committed(reply.seq);
                self.state.lock().core.committed(reply.seq);
                self.changed.notify_all();
            }
            Err(error) => {
                self.refused(error);
            }
        }
    }
}
