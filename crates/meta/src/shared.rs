//! What the threads of a server share.

use crate::background::heal::Heal;
use crate::background::{Background, Work};
use crate::driver::{DriverStats, Input};
use crate::proposals::{Proposals, Waiter};
use crate::room::Room;
use crate::sessions::Sessions;
use crate::sizes::Sizes;
use crate::upkeep::Upkeep;
use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};
use shoal_namespace::{Command, Fault, Outcome, TreeError, query};
use shoal_store::RocksStore;
use shoal_types::{BlockGroup, BlockId, SessionId};
use shoal_wire::{BlockError, MetaError, VolumeBlocks};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

#[derive(Default)]
struct State {
    applied: u64,
    failed: Option<String>,
    stopping: bool,
}

/// How far the server has come, and whether it goes on.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
    moved: Condvar,
}

/// See the module.
pub(crate) struct Shared {
    /// Written by the applying thread alone.
    pub(crate) store: RocksStore,
    pub(crate) bricks: Arc<dyn VolumeBlocks>,
    pub(crate) room: Room,
    pub(crate) sizes: Sizes,
    pub(crate) sessions: Sessions,
    pub(crate) proposals: Proposals,
    pub(crate) background: Background,
    pub(crate) heal: Heal,
    pub(crate) upkeep: Upkeep,
    pub(crate) driver: Arc<DriverStats>,
    pub(crate) apply_micros: AtomicU64,
    /// Records removed from the store: what could be given back when room is short.
    pub(crate) removed: AtomicU64,
    pub(crate) inputs: Sender<Input>,
    pub(crate) progress: Progress,
}

impl Progress {
    /// Of a store that has come to an index.
    pub(crate) fn at(applied: u64) -> Progress {
        let progress = Progress::default();
        progress.state.lock().applied = applied;
        progress
    }
}

impl Shared {
    /// Index up to which the store is.
    pub(crate) fn applied(&self) -> u64 {
        self.progress.state.lock().applied
    }

    pub(crate) fn set_applied(&self, index: u64) {
        self.progress.state.lock().applied = index;
        self.progress.moved.notify_all();
    }

    /// Waits until the store is as far as `index`.
    pub(crate) fn wait_applied(&self, index: u64, longest: Duration) -> Result<(), MetaError> {
        let due = Instant::now() + longest;
        let mut state = self.progress.state.lock();
        while state.applied < index {
            if let Some(why) = &state.failed {
                return Err(MetaError::Failed(why.clone()));
            }
            if self.progress.moved.wait_until(&mut state, due).timed_out() {
                return Err(MetaError::Unavailable(format!(
                    "replaying the log took longer than {longest:?}"
                )));
            }
        }
        Ok(())
    }

    /// The log or the store cannot be trusted any more: everybody who waits or asks is told so.
    pub(crate) fn fail(&self, why: &str) {
        tracing::error!(why, "the metadata server stops");
        self.progress.state.lock().failed.get_or_insert(why.to_owned());
        self.progress.moved.notify_all();
        self.proposals.give_up(&MetaError::Failed(why.to_owned()));
    }

    /// From here on, what is asked is refused.
    pub(crate) fn stop_serving(&self) {
        self.progress.state.lock().stopping = true;
    }

    pub(crate) fn serving(&self) -> Result<(), MetaError> {
        let state = self.progress.state.lock();
        match &state.failed {
            Some(why) => Err(MetaError::Failed(why.clone())),
            None if state.stopping => Err(stopping()),
            None => Ok(()),
        }
    }

    /// Proposes a command; the waiter hears of its outcome on another thread.
    pub(crate) fn propose_then(&self, command: &Command, waiter: Waiter) {
        if let Err(error) = self.serving() {
            return waiter(Err(error));
        }
        let data = command.encode();
        let (id, mark) = self.proposals.begin(data.len(), waiter);
        let sent = self.inputs.send(Input::Propose { context: mark, data });
        if sent.is_err() || self.serving().is_err() {
            // Whoever gave up meanwhile may have missed this one.
            let error = self.serving().err().unwrap_or_else(stopping);
            if let Some(waiter) = self.proposals.take(id) {
                waiter(Err(error));
            }
        }
    }

    /// Proposes a command and waits for its outcome.
    pub(crate) fn propose(&self, command: &Command) -> Result<Outcome, MetaError> {
        let (done, outcome) = crossbeam_channel::bounded(1);
        self.propose_then(
            command,
            Box::new(move |result| {
                // Whoever asked is still waiting below.
                let _ = done.send(result);
            }),
        );
        outcome.recv().unwrap_or_else(|_| Err(stopping()))
    }

    /// Where a block is.
    pub(crate) fn group_of(&self, id: BlockId) -> Result<BlockGroup, BlockError> {
        match query::block(&self.store, id) {
            Ok(Some(block)) => Ok(block.info.group),
            Ok(None) => Err(BlockError::Missing(id)),
            Err(error) => Err(BlockError::Io { what: "the store".into(), cause: error.to_string() }),
        }
    }

    /// The store is durable up to here: the log before it may go.
    pub(crate) fn flushed(&self, index: u64) {
        // A driver that has ended has no use for it.
        let _ = self.inputs.send(Input::Durable(index));
    }

    /// Ends a session: it is refused from here on, its orphans die, and what it stored without committing is deleted.
    pub(crate) fn end_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.sessions.remove(session);
        while let Outcome::Closed { more: true } = self.propose(&Command::CloseSession { session })? {}
        self.background.add(Work { sweep: vec![session], ..Work::default() });
        Ok(())
    }

    /// Refuses reads of sessions that have ended, and of a server that does not serve.
    pub(crate) fn readable(&self, session: SessionId) -> Result<(), MetaError> {
        self.serving()?;
        self.sessions.check(session)
    }

    /// What a reader hears. A store that cannot be read is the end of the server.
    pub(crate) fn read<T>(&self, outcome: Result<T, Fault<TreeError>>) -> Result<T, MetaError> {
        outcome.map_err(|fault| match fault {
            Fault::Errno(errno) => MetaError::Errno(errno),
            Fault::Tree(error) => {
                self.fail(&error.to_string());
                MetaError::Failed(error.to_string())
            }
        })
    }

    /// [`read`](Self::read) for what cannot fail with an errno.
    pub(crate) fn tree<T>(&self, outcome: Result<T, TreeError>) -> Result<T, MetaError> {
        self.read(outcome.map_err(Fault::Tree))
    }
}

pub(crate) fn stopping() -> MetaError {
    MetaError::Unavailable("it is stopping".into())
}
