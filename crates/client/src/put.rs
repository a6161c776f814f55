//! Stores the blocks of a session on bricks, and deletes those that no operation will name.
//!
//! Blocks are deleted by a thread of its own: a deletion waits for each brick that has a copy, and a brick
//! that hangs must not delay stores on others.

use crate::backoff::Backoff;
use crate::context::Context;
use crate::core::BlockTask;
use crate::limits::{PUT_THREADS, PUT_TRIES};
use bytes::Bytes;
use shoal_runtime::channel::{self, Receiver, Sender};
use shoal_runtime::sync::Mutex;
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_types::{BlockGroup, BlockId, Errno, InodeId, Policy};
use shoal_wire::BlockError;
use std::sync::Arc;

/// Stores blocks, on threads of its own.
pub(crate) struct BlockWriter {
    context: Arc<Context>,
    /// Gone when the session ends.
    tasks: Mutex<Option<Queues<Sender<BlockTask>>>>,
}

/// One end of both queues.
pub(crate) struct Queues<E> {
    stores: E,
    discards: E,
}

impl BlockWriter {
    pub(crate) fn new(context: &Arc<Context>) -> (BlockWriter, Queues<Receiver<BlockTask>>) {
        // Bounded by the window of uncommitted bytes, not by the channel. A deletion is some bytes of memory.
        let ((stores, to_store), (discards, to_discard)) = (channel::unbounded(), channel::unbounded());
        let tasks = Mutex::new(Some(Queues { stores, discards }));
        let todo = Queues { stores: to_store, discards: to_discard };
        (BlockWriter { context: context.clone(), tasks }, todo)
    }

    /// Starts the threads that store blocks, and the one that deletes them.
    pub(crate) fn start(
        self: &Arc<BlockWriter>,
        todo: &Queues<Receiver<BlockTask>>,
    ) -> impl Iterator<Item = JoinHandle<()>> {
        let stores = (0..PUT_THREADS).map(|n| (format!("shoal-put-{n}"), &todo.stores));
        let discards = std::iter::once(("shoal-discard".to_owned(), &todo.discards));
        stores.chain(discards).map(move |(name, todo)| {
            let (writer, todo) = (Arc::clone(self), todo.clone());
            let run = move || todo.iter().for_each(|task| writer.run_one(task));
            Builder::new().name(name).spawn(run).expect("the system has room for a thread")
        })
    }

    /// Takes no further work.
    pub(crate) fn stop(&self) {
        self.tasks.lock().take();
    }

    /// Queues work on blocks for the threads.
    pub(crate) fn run(&self, todo: Vec<BlockTask>) {
        if todo.is_empty() {
            return;
        }
        let tasks = self.tasks.lock();
        let Some(tasks) = &*tasks else { return };
        for task in todo {
            let queue = if let BlockTask::Discard(_) = task { &tasks.discards } else { &tasks.stores };
            // The receivers live as long as the sender does.
            let _ = queue.send(task);
        }
    }

    fn run_one(&self, task: BlockTask) {
        if self.context.state.lock().core.alive().is_err() {
            // The outcome does not matter any more: the blocks of an ended session are swept.
            return;
        }
        match task {
            BlockTask::Store(id, ino, parts) => self.store(id, ino, &parts),
            BlockTask::Discard(id) => self.discard(id),
        }
    }

    fn store(&self, id: BlockId, ino: InodeId, parts: &[Bytes]) {
        let (wanted, alive) = match self.put(id, ino, parts) {
            Ok(group) => {
                self.context.groups.stored(id, group);
                let mut state = self.context.state.lock();
                let wanted = state.core.blocks.stored(id);
                state.count_memory();
                // In an ended session no batch will name it. The servers may have swept that session's blocks
                // before this one was stored.
                let alive = state.core.alive().is_ok();
                (wanted && alive, alive)
            }
            Err(error) => {
                let core = &mut self.context.state.lock().core;
                if core.alive().is_ok() {
                    tracing::error!(block = %id, %error, "a block could not be stored");
                    core.kill(if matches!(error, BlockError::Full) { Errno::ENOSPC } else { Errno::EIO });
                    self.context.ending.notify_all();
                }
                (true, false)
            }
        };
        self.context.changed.notify_all();
        match wanted {
            true => {}
            false if alive => self.run(vec![BlockTask::Discard(id)]),
            // Nothing is queued any more.
            false => self.discard(id),
        }
    }

    /// The policy of a file. Where a directory above it is not cached, its content is stored as if there were
    /// none, and is moved or converted later.
    fn policy_of(&self, ino: InodeId) -> Policy {
        let policies = self.context.shared.bricks.policies();
        if policies.is_empty() {
            return Policy::default();
        }
        self.context.state.lock().core.policy_of(ino, &policies)
    }

    /// Removes a block that nothing names. If that fails, it is collected when the session has ended.
    fn discard(&self, id: BlockId) {
        let group = self.context.groups.dropped(id);
        if let Err(error) = self.context.shared.bricks.discard(&[(id, group)]) {
            tracing::warn!(block = %id, %error, "an unneeded block could not be deleted");
        }
    }

    /// Stores a block. Bricks that do not answer are waited for as long as the session lives.
    fn put(&self, id: BlockId, ino: InodeId, parts: &[Bytes]) -> Result<BlockGroup, BlockError> {
        let policy = self.policy_of(ino);
        let mut backoff = Backoff::new();
        let mut tries = 1;
        let group = loop {
            match self.context.shared.bricks.store_with_policy(id, parts, policy) {
                Ok(group) => break group,
                // An earlier try has stored it, and its reply was lost.
                Err(BlockError::Exists(_)) if tries > 1 => break BlockGroup::default(),
                Err(error @ BlockError::Unreachable(_)) => {
                    if backoff.complains() {
                        tracing::warn!(block = %id, %error, "a block waits for bricks to store it");
                    }
                    self.context.counters.put_waits.add(1);
                    self.context.pause(backoff.pause()).map_err(|_| error)?;
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
        self.context.counters.puts.add(1);
        self.context.counters.put_bytes.add(parts.iter().map(|part| part.len() as u64).sum());
        Ok(group)
    }
}
