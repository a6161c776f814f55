//! Sends the journal, in order, and stores its blocks first.

use crate::limits::{JOURNAL_AGE_MAX, PUT_THREADS, PUT_TRIES};
use crate::shell::Shell;
use bytes::Bytes;
use crossbeam_channel::Receiver;
use shoal_types::{BlockGroup, BlockId, Errno};
use shoal_wire::{BlockError, Commit, CommitReply, MetaError, encode_ops};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

/// Starts the thread that ships, the thread that renews, and those that store blocks.
pub(crate) fn start(shell: &Arc<Shell>, stores: Receiver<(BlockId, Vec<Bytes>)>) -> Vec<JoinHandle<()>> {
    let spawn = |name: String, run: Box<dyn FnOnce() + Send>| {
        Builder::new().name(name).spawn(run).expect("the system has room for a thread")
    };
    let mut threads = Vec::new();
    let shipper = Arc::clone(shell);
    threads.push(spawn("shoal-journal".into(), Box::new(move || shipper.run_shipper())));
    let renewer = Arc::clone(shell);
    threads.push(spawn("shoal-renew".into(), Box::new(move || renewer.run_renewer())));
    for n in 0..PUT_THREADS {
        let (shell, stores) = (Arc::clone(shell), stores.clone());
        threads.push(spawn(format!("shoal-put-{n}"), Box::new(move || shell.run_store(&stores))));
    }
    threads
}

impl Shell {
    /// Seals the open batch when it is old enough, and ships what is sealed.
    fn run_shipper(self: Arc<Shell>) {
        loop {
            let mut state = self.state.lock();
            while !state.stopping && !state.core.journal.has_open() && !state.core.journal.has_sealed() {
                state.shipper_idle = true;
                self.work.wait(&mut state);
            }
            state.shipper_idle = false;
            if state.stopping {
                return;
            }
            let due = Instant::now() + JOURNAL_AGE_MAX;
            while !state.stopping && !state.core.journal.has_sealed() {
                if self.work.wait_until(&mut state, due).timed_out() {
                    state.core.seal();
                    break;
                }
            }
            let low = Shell::runs_low(&state.core);
            drop(state);
            self.ship();
            if low {
                self.renew();
            }
        }
    }

    fn run_renewer(self: Arc<Shell>) {
        // Three tries fit into the time that the server allows.
        let pause = self.renew / 3;
        let mut state = self.state.lock();
        while !state.stopping {
            let due = Instant::now() + pause;
            while !state.stopping && !self.changed.wait_until(&mut state, due).timed_out() {}
            if !state.stopping {
                drop(state);
                self.renew();
                state = self.state.lock();
            }
        }
    }

    /// Sends every sealed batch, each after its blocks are durable.
    pub(crate) fn ship(&self) {
        let _order = self.shipping.lock();
        loop {
            let (sealed, ready) = {
                let core = &mut self.state.lock().core;
                (core.journal.take_sealed(), core.blocks.take_ready())
            };
            self.store(ready);
            let Some(sealed) = sealed else { return };
            let ops = Bytes::from(encode_ops(&sealed.ops));
            if !sealed.blocks.is_empty() {
                let mut state = self.state.lock();
                while sealed.blocks.iter().any(|id| !state.core.blocks.is_stored(*id)) {
                    if state.core.alive().is_err() {
                        return;
                    }
                    self.changed.wait(&mut state);
                }
            }
            self.counters.batches.add(1);
            self.counters.batch_bytes.add(ops.len() as u64);
            let commit = Commit { session: self.session, seq: sealed.seq, ops };
            let shell = self.me.clone();
            self.meta.submit(
                commit,
                Box::new(move |outcome| {
                    if let Some(shell) = shell.upgrade() {
                        shell.committed(outcome);
                    }
                }),
            );
        }
    }

    /// Gives blocks to the threads that store them.
    pub(crate) fn store(&self, ready: Vec<(BlockId, Vec<Bytes>)>) {
        if ready.is_empty() {
            return;
        }
        let puts = self.puts.lock();
        let Some(puts) = &*puts else { return };
        for block in ready {
            // The receivers live as long as the sender does.
            let _ = puts.send(block);
        }
    }

    fn run_store(&self, stores: &Receiver<(BlockId, Vec<Bytes>)>) {
        for (id, parts) in stores {
            let stored = self.put(id, &parts);
            let wanted = {
                let core = &mut self.state.lock().core;
                match &stored {
                    Ok(()) => core.blocks.stored(id),
                    Err(error) => {
                        tracing::error!(block = %id, %error, "a block could not be stored");
                        core.kill(if matches!(error, BlockError::Full) { Errno::ENOSPC } else { Errno::EIO });
                        true
                    }
                }
            };
            self.changed.notify_all();
            if !wanted && let Err(error) = self.bricks.discard(&[(id, BlockGroup::default())]) {
                tracing::warn!(block = %id, %error, "an unneeded block could not be deleted");
            }
        }
    }

    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        let mut tries = 1;
        loop {
            match self.bricks.store(id, parts) {
                Ok(_) => break,
                // An earlier try got further than it could say.
                Err(BlockError::Exists(_)) if tries > 1 => break,
                Err(error) if tries == PUT_TRIES => return Err(error),
                Err(error) => tracing::warn!(block = %id, %error, tries, "storing a block failed"),
            }
            tries += 1;
        }
        self.counters.puts.add(1);
        self.counters.put_bytes.add(parts.iter().map(|part| part.len() as u64).sum());
        Ok(())
    }
}

impl Shell {
    /// The outcome of a commit.
    fn committed(&self, outcome: Result<CommitReply, MetaError>) {
        match outcome {
            Ok(reply) => {
                self.state.lock().core.committed(reply.seq);
                self.changed.notify_all();
            }
            Err(error) => {
                self.refused(error);
            }
        }
    }
}
