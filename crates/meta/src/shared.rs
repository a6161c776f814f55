//! The state shared by the threads of a volume's server.

use crate::leases::Leases;
use crate::limits::ADOPTION_PATIENCE;
use crate::machine::Machine;
use crate::proposals::Waiter;
use crate::replica::Replica;
use crate::sessions::Sessions;
use crate::space::Room;
use crate::tasks::{Background, Heal, Tiering, Work};
use shoal_namespace::keys::{self, KeyRange};
use shoal_namespace::kv::{KvStore, WriteBatch};
use shoal_namespace::{Command, Fault, Outcome, TreeError, apply_command, query};
use shoal_runtime::log_limit::LogLimit;
use shoal_runtime::planted::mistake;
use shoal_runtime::random;
use shoal_runtime::sync::Mutex;
use shoal_store::{RocksSnapshot, RocksStore};
use shoal_types::{BlockGroup, BlockId, SessionId};
use shoal_wire::{BlockError, MetaError, VolumeBlocks};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The namespace as a replicated state machine.
pub(crate) struct Namespace {
    pub(crate) background: Arc<Background>,
    pub(crate) heal: Arc<Heal>,
    pub(crate) leases: Arc<Leases>,
}

impl Namespace {
    pub(crate) fn new() -> Arc<Namespace> {
        let leases = Arc::new(Leases::new());
        Arc::new(Namespace { background: Arc::default(), heal: Arc::default(), leases })
    }
}

/// Applies a batch once more if it has been applied before: a planted defect.
fn apply_again(store: &RocksStore, command: &Command) -> Option<(WriteBatch, Outcome)> {
    let (Command::Batch { session, seq, ops } | Command::BatchV2 { session, seq, ops }) = command else {
        return None;
    };
    let last = query::session(store, *session).ok()??.last;
    let again = Command::batch(*session, last.next(), ops.clone());
    let (mut batch, outcome) = apply_command(store, &again).ok().filter(|_| *seq <= last)?;
    batch.changes.remove(&keys::session(*session));
    Some((batch, outcome))
}

impl Machine for Namespace {
    type Outcome = Outcome;

    fn apply(&self, store: &RocksStore, data: &[u8]) -> Result<(WriteBatch, Outcome), String> {
        let command = Command::decode(data).map_err(|error| error.to_string())?;
        if mistake("apply a retried batch twice")
            && let Some(applied) = apply_again(store, &command)
        {
            return Ok(applied);
        }
        let mut applied = apply_command(store, &command).map_err(|error| error.to_string())?;
        if mistake("skip a change on one replica") && random::number().is_multiple_of(100) {
            applied.0.changes.pop_last();
        }
        Ok(applied)
    }

    /// Wakes the background tasks for which a batch adds work.
    fn applied(&self, batch: &WriteBatch) {
        let puts = |(from, to): KeyRange| {
            let range = (Bound::Included(from), Bound::Excluded(to));
            batch.changes.range::<Vec<u8>, _>(range).any(|(_, value)| value.is_some())
        };
        if puts(keys::degraded_range(None)) {
            self.heal.copies_are_short();
        }
        self.background.add(Work {
            reap: puts(keys::all_reap()),
            collect: puts(keys::garbage_range(None)),
            compact: puts(keys::compact_range(None)),
            ..Work::default()
        });
    }

    fn deposed(&self) {
        self.background.stop();
        self.heal.lead(false);
        self.leases.deposed();
    }
}

/// The shared state of a volume's server.
pub(crate) struct Shared {
    pub(crate) replica: Replica<Namespace>,
    /// The replica's store.
    pub(crate) store: Arc<RocksStore>,
    pub(crate) bricks: Arc<dyn VolumeBlocks>,
    pub(crate) room: Room,
    pub(crate) sessions: Sessions,
    pub(crate) leases: Arc<Leases>,
    pub(crate) background: Arc<Background>,
    pub(crate) heal: Arc<Heal>,
    pub(crate) tiering: Tiering,
    /// The term to which the table of sessions belongs.
    pub(crate) adopted: AtomicU64,
    pub(crate) slow_log: LogLimit,
    /// One line of text for each session that this server has ended.
    pub(crate) ended: Mutex<Vec<String>>,
}

impl Shared {
    /// The term in which this server serves. Waits if it leads, but does not know the sessions yet.
    pub(crate) fn serving(&self) -> Result<u64, MetaError> {
        let core = &self.replica.core;
        let term = core.leading()?;
        let ready = |term: u64| (self.adopted.load(Ordering::Acquire) == term).then_some(term);
        if let Some(term) = ready(term) {
            return Ok(term);
        }
        core.wait_for(ADOPTION_PATIENCE, |applied| core.lead.holds(applied).and_then(ready))
    }

    /// Admits a request of a session, and renews the session. Returns the term in which this server serves.
    pub(crate) fn admit(&self, session: SessionId) -> Result<u64, MetaError> {
        let term = self.serving()?;
        match self.sessions.renew(session) {
            Err(_) if mistake("accept requests of an ended session") => {}
            known => known?,
        }
        Ok(term)
    }

    /// Like [`serving`](Self::serving), without waiting.
    pub(crate) fn leads(&self) -> Result<u64, MetaError> {
        let core = &self.replica.core;
        let adopted = self.adopted.load(Ordering::Acquire);
        core.lead.holds(core.applied()).filter(|term| *term == adopted).ok_or_else(|| core.not_leader())
    }

    /// Proposes a command; the waiter is called with its outcome on another thread.
    pub(crate) fn propose_then(&self, command: &Command, waiter: Waiter<Outcome>) {
        self.replica.core.propose_then(command.encode(), waiter);
    }

    /// Proposes a command and waits for its outcome.
    pub(crate) fn propose(&self, command: &Command) -> Result<Outcome, MetaError> {
        self.replica.core.propose(None, command.encode())
    }

    /// Proposes a command as the leader of this term and waits for its outcome. Whatever another leader does
    /// comes before the term or after the command.
    pub(crate) fn propose_in(&self, term: u64, command: &Command) -> Result<Outcome, MetaError> {
        self.replica.core.propose(Some(term), command.encode())
    }

    /// Waits until the store has applied all that was committed before this call, and confirms that no other
    /// replica led the group then.
    pub(crate) fn catch_up(&self) -> Result<(), MetaError> {
        self.propose(&Command::GrantBlocks { count: 0 }).map(drop)
    }

    /// The bricks of a block.
    pub(crate) fn group_of(&self, id: BlockId) -> Result<BlockGroup, BlockError> {
        match query::block(&self.store, id) {
            Ok(Some(block)) => Ok(block.info.group),
            Ok(None) => Err(BlockError::Missing(id)),
            Err(error) => Err(BlockError::Io { what: "the store".into(), cause: error.to_string() }),
        }
    }

    /// Reads for a session, from a state that contains all acknowledged changes. Fails if the session has
    /// ended, or if this server does not lead throughout the read.
    pub(crate) fn read_for<T>(
        &self,
        session: SessionId,
        read: impl FnOnce(&RocksSnapshot<'_>) -> Result<T, Fault<TreeError>>,
    ) -> Result<T, MetaError> {
        let term = self.serving()?;
        self.sessions.check(session)?;
        let found = self.read(read(&self.store.snapshot()));
        self.still_leads(term)?;
        found
    }

    /// Fails if this replica has lost leadership since it began `term`: what it has read may be stale.
    pub(crate) fn still_leads(&self, term: u64) -> Result<(), MetaError> {
        let core = &self.replica.core;
        match core.lead.holds(core.applied()) {
            Some(now) if now == term => Ok(()),
            _ => Err(core.not_leader()),
        }
    }

    /// The result of a read. A store that cannot be read stops the server.
    pub(crate) fn read<T>(&self, outcome: Result<T, Fault<TreeError>>) -> Result<T, MetaError> {
        outcome.map_err(|fault| match fault {
            Fault::Errno(errno) => MetaError::Errno(errno),
            Fault::Tree(error) => {
                self.replica.core.fail(&error.to_string());
                MetaError::Failed(error.to_string())
            }
        })
    }

    /// [`read`](Self::read) for reads that cannot fail with an errno.
    pub(crate) fn tree<T>(&self, outcome: Result<T, TreeError>) -> Result<T, MetaError> {
        self.read(outcome.map_err(Fault::Tree))
    }
}
