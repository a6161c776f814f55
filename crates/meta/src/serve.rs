//! The service: what clients ask, and who waits for what.

use crate::background::{Background, Work};
use crate::driver::{DriverStats, Input};
use crate::limits::*;
use crate::room::Room;
use crate::sessions::Sessions;
use crate::sizes::Sizes;
use crate::upkeep::{self, Upkeep};
use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};
use shoal_namespace::kv::{KvRead, KvStore};
use shoal_namespace::{Command, Fault, Outcome, TreeError, query};
use shoal_store::RocksStore;
use shoal_types::{Cookie, Errno, InodeId, Name, SessionId, Statfs, Timestamp};
use shoal_wire::{
    BlockService, Commit, CommitDone, CommitReply, ExtentsReply, FileRecord, Grant, GrantReply, Lease,
    LeaseKind, ListReply, LookupReply, MetaError, MetaService, OpenReply, PROTOCOL_VERSION, Prefetch,
    SessionRequest,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Hears of a command's outcome.
type Waiter = Box<dyn FnOnce(Result<Outcome, MetaError>) + Send>;

/// A proposal that is under way.
struct Proposal {
    bytes: usize,
    waiter: Waiter,
}

#[derive(Default)]
struct Progress {
    applied: u64,
    failed: Option<String>,
    stopping: bool,
}

/// What the server's threads share.
pub(crate) struct Shared {
    pub(crate) store: RocksStore,
    pub(crate) bricks: Arc<dyn BlockService>,
    pub(crate) room: Room,
    pub(crate) background: Background,
    pub(crate) upkeep: Upkeep,
    pub(crate) driver: Arc<DriverStats>,
    pub(crate) sizes: Sizes,
    pub(crate) apply_micros: AtomicU64,
    /// Tells this process's proposals from those of an earlier one in the log.
    incarnation: u64,
    next: AtomicU64,
    inputs: Sender<Input>,
    proposals: Mutex<(HashMap<u64, Proposal>, usize)>,
    /// Proposals were completed.
    completed: Condvar,
    progress: Mutex<Progress>,
    progressed: Condvar,
    pub(crate) sessions: Sessions,
}

impl Shared {
    pub(crate) fn new(
        store: RocksStore,
        bricks: Arc<dyn BlockService>,
        room: Room,
        sessions: Sessions,
        sizes: Sizes,
        driver: Arc<DriverStats>,
        inputs: Sender<Input>,
        applied: u64,
    ) -> Shared {
        Shared {
            store,
            bricks,
            room,
            background: Background::default(),
            upkeep: Upkeep::default(),
            driver,
            sizes,
            apply_micros: AtomicU64::new(0),
            incarnation: rand::random(),
            next: AtomicU64::new(0),
            inputs,
            proposals: Mutex::default(),
            completed: Condvar::new(),
            progress: Mutex::new(Progress { applied, ..Progress::default() }),
            progressed: Condvar::new(),
            sessions,
        }
    }

    /// Index up to which the store is.
    pub(crate) fn applied(&self) -> u64 {
        self.progress.lock().applied
    }

    pub(crate) fn set_applied(&self, index: u64) {
        self.progress.lock().applied = index;
        self.progressed.notify_all();
    }

    /// Waits until the store is as far as `index`.
    pub(crate) fn wait_applied(&self, index: u64, longest: Duration) -> Result<(), MetaError> {
        let due = Instant::now() + longest;
        let mut progress = self.progress.lock();
        while progress.applied < index {
            if let Some(why) = &progress.failed {
                return Err(MetaError::Failed(why.clone()));
            }
            if self.progressed.wait_until(&mut progress, due).timed_out() {
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
        self.progress.lock().failed.get_or_insert(why.to_owned());
        self.give_up(&MetaError::Failed(why.to_owned()));
    }

    fn give_up(&self, error: &MetaError) {
        let waiting = std::mem::take(&mut *self.proposals.lock());
        self.progressed.notify_all();
        self.completed.notify_all();
        for (_, proposal) in waiting.0 {
            (proposal.waiter)(Err(error.clone()));
        }
    }

    pub(crate) fn serving(&self) -> Result<(), MetaError> {
        let progress = self.progress.lock();
        match &progress.failed {
            Some(why) => Err(MetaError::Failed(why.clone())),
            None if progress.stopping => Err(MetaError::Unavailable("it is stopping".into())),
            None => Ok(()),
        }
    }

    /// Proposes a command; the waiter hears of its outcome on another thread.
    fn propose_then(&self, command: &Command, waiter: Waiter) {
        if let Err(error) = self.serving() {
            return waiter(Err(error));
        }
        let data = command.encode();
        let bytes = data.len();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut proposals = self.proposals.lock();
            while proposals.1 > PROPOSED_BYTES_MAX || proposals.0.len() >= PROPOSALS_MAX {
                self.completed.wait(&mut proposals);
            }
            proposals.1 += bytes;
            proposals.0.insert(id, Proposal { bytes, waiter });
        }
        let mut context = [0; 16];
        context[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        context[8..].copy_from_slice(&id.to_le_bytes());
        if self.inputs.send(Input::Propose { context, data }).is_err() || self.serving().is_err() {
            // Whoever failed meanwhile may have missed this one.
            let error = self.serving().err().unwrap_or(MetaError::Unavailable("it is stopping".into()));
            if let Some(proposal) = self.take(id) {
                (proposal.waiter)(Err(error));
            }
        }
    }

    fn take(&self, id: u64) -> Option<Proposal> {
        let mut proposals = self.proposals.lock();
        let proposal = proposals.0.remove(&id)?;
        proposals.1 -= proposal.bytes;
        drop(proposals);
        self.completed.notify_all();
        Some(proposal)
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
        outcome.recv().unwrap_or_else(|_| Err(MetaError::Unavailable("it is stopping".into())))
    }

    /// A proposal of this process was applied; one of an earlier process has nobody waiting.
    pub(crate) fn complete(&self, context: &[u8], outcome: Outcome) {
        let Some((incarnation, id)) = context.split_first_chunk::<8>() else { return };
        let Ok(id) = <[u8; 8]>::try_from(id) else { return };
        if u64::from_le_bytes(*incarnation) == self.incarnation
            && let Some(proposal) = self.take(u64::from_le_bytes(id))
        {
            (proposal.waiter)(Ok(outcome));
        }
    }

    /// The store is durable up to here: the log before it may go.
    pub(crate) fn flushed(&self, index: u64) {
        // A driver that has ended has no use for it.
        let _ = self.inputs.send(Input::Durable(index));
    }

    /// Ends a session in the state machine: its orphans die, its inode numbers are void.
    pub(crate) fn end_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.sessions.remove(session);
        while let Outcome::Closed { more: true } = self.propose(&Command::CloseSession { session })? {}
        self.background.add(Work { sweep: vec![session], ..Work::default() });
        Ok(())
    }

    /// Refuses reads of sessions that have ended, and of a server that does not serve.
    fn readable(&self, session: SessionId) -> Result<(), MetaError> {
        self.serving()?;
        self.sessions.check(session)
    }

    fn read<T>(&self, outcome: Result<T, Fault<TreeError>>) -> Result<T, MetaError> {
        outcome.map_err(|fault| match fault {
            Fault::Errno(errno) => MetaError::Errno(errno),
            Fault::Tree(error) => {
                self.fail(&error.to_string());
                MetaError::Failed(error.to_string())
            }
        })
    }

    fn tree<T>(&self, outcome: Result<T, TreeError>) -> Result<T, MetaError> {
        self.read(outcome.map_err(Fault::Tree))
    }
}

/// A volume's metadata server. Dropping it stops it as a crash would; [`shutdown`](Self::shutdown) is the orderly way.
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Stops: what is under way is finished or refused, and the store is flushed so that the next start replays nothing.
    pub fn shutdown(&self) {
        self.stop();
        if let Err(error) = self.shared.store.flush() {
            tracing::error!(%error, "flushing the store at the end");
        }
    }

    fn stop(&self) {
        self.shared.progress.lock().stopping = true;
        self.shared.background.stop();
        self.shared.upkeep.stop();
        // The driver may be gone already, if it failed.
        let _ = self.shared.inputs.send(Input::Stop);
        let threads = std::mem::take(&mut *self.threads.lock());
        // A waiter may hold the last reference to the server: the thread that calls it cannot wait for itself.
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        self.shared.give_up(&MetaError::Unavailable("it is stopping".into()));
    }

    /// Counters, for people and for monitoring. Names of things that only grow end in `_total`.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let shared = &self.shared;
        let driver = &shared.driver;
        let mut stats = vec![
            ("raft_proposals_total", driver.proposals.load(Ordering::Relaxed)),
            ("raft_proposed_bytes_total", driver.bytes.load(Ordering::Relaxed)),
            ("raft_log_flushes_total", driver.flushes.load(Ordering::Relaxed)),
            ("raft_log_bytes", driver.log_bytes.load(Ordering::Relaxed)),
            ("raft_applied_index", shared.applied()),
            ("apply_microseconds_total", shared.apply_micros.load(Ordering::Relaxed)),
            ("proposals_waiting", shared.proposals.lock().0.len() as u64),
            ("sessions", shared.sessions.count() as u64),
        ];
        stats.push(("granted_bytes", shared.sessions.outstanding_bytes()));
        stats.extend(shared.upkeep.stats());
        stats.extend(shared.background.stats());
        stats.extend(shared.store.stats());
        stats
    }

    /// Makes everything applied durable in the store and has the log cut, as happens by itself from time to time.
    pub fn flush(&self) -> Result<(), MetaError> {
        self.shared.serving()?;
        upkeep::flush(&self.shared).map_err(|error| MetaError::Failed(error.to_string()))
    }

    /// A digest of the whole state, and the log index it belongs to. Replicas at the same index have the same digest.
    pub fn digest(&self) -> Result<(u64, u128), MetaError> {
        let shared = &self.shared;
        let snapshot = shared.store.snapshot();
        let index = shared.tree(crate::applier::applied_index(&snapshot))?;
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        let scanned = snapshot.scan(&[], &[0xff; 16], &mut |key, value| {
            hash.update(&(key.len() as u64).to_le_bytes());
            hash.update(key);
            hash.update(&(value.len() as u64).to_le_bytes());
            hash.update(value);
            std::ops::ControlFlow::Continue(())
        });
        shared.tree(scanned.map_err(TreeError::from))?;
        Ok((index, hash.digest128()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl MetaService for Server {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        let shared = &self.shared;
        shared.serving()?;
        if request.protocol != PROTOCOL_VERSION {
            return Err(MetaError::Version { server: PROTOCOL_VERSION, client: request.protocol });
        }
        let _one = shared.sessions.opening.lock();
        let dead = (shared.sessions.dead())
            .map_err(|(_, client)| MetaError::Unavailable(format!("the volume is mounted by {client}")))?;
        for session in dead {
            tracing::warn!(%session, "ending a session that does not renew any more");
            shared.end_session(session)?;
        }
        let now = Timestamp::now();
        let client = request.client.clone();
        let open = Command::OpenSession { client: request.client, time: now, inodes: INODES_AT_START };
        let Outcome::Opened { session, first, inodes } = shared.propose(&open)? else {
            return Err(MetaError::Failed("a session was not opened".into()));
        };
        shared.sessions.add(session, client);
        let volume = shared.tree(query::volume(&shared.store))?;
        let volume = volume.ok_or_else(|| MetaError::Failed("the store holds no volume".into()))?;
        Ok(OpenReply {
            session,
            volume: volume.id,
            renew_ms: RENEW.as_millis() as u64,
            inline_bytes: volume.options.inline_bytes,
            now: Timestamp::now(),
            grant: GrantReply { first_inode: first.0, inodes, bytes: 0 },
            leases: vec![Lease { cover: InodeId::ROOT, kind: LeaseKind::Exclusive }],
        })
    }

    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.shared.end_session(session)
    }

    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        let shared = &self.shared;
        shared.serving()?;
        shared.sessions.report(grant.session, grant.space.outstanding_bytes)?;
        let mut reply = GrantReply::default();
        if grant.inodes > 0 {
            let command = Command::GrantInodes { session: grant.session, count: grant.inodes };
            match shared.propose(&command)? {
                Outcome::Granted { first, inodes } => (reply.first_inode, reply.inodes) = (first.0, inodes),
                _ => return Err(MetaError::Fenced(grant.session)),
            }
        }
        if grant.space.want_bytes > 0 {
            reply.bytes = shared.grant_room(grant.session, grant.space.want_bytes)?;
        }
        Ok(reply)
    }

    fn submit(&self, commit: Commit, done: CommitDone) {
        let (session, seq) = (commit.session, commit.seq);
        if let Err(error) = self.shared.sessions.renew(session) {
            return done(Err(error));
        }
        let command = Command::Batch { session, seq, ops: commit.ops };
        self.shared.propose_then(
            &command,
            Box::new(move |outcome| {
                done(outcome.and_then(|outcome| match outcome {
                    Outcome::Applied { seq } => Ok(CommitReply { seq }),
                    Outcome::Fenced { session } => Err(MetaError::Fenced(session)),
                    Outcome::Refused { index, errno } => {
                        Err(MetaError::Refused { session, seq, index, errno })
                    }
                    // A mistake of the client's, which makes the batch one that cannot be applied.
                    other => {
                        tracing::error!(%session, %seq, ?other, "a batch makes no sense");
                        Err(MetaError::Refused { session, seq, index: 0, errno: Errno::EINVAL })
                    }
                }));
            }),
        );
    }

    fn lookup(&self, session: SessionId, dir: InodeId, name: &Name) -> Result<LookupReply, MetaError> {
        self.shared.readable(session)?;
        self.shared.read(query::lookup(&self.shared.store.snapshot(), dir, name))
    }

    fn list(
        &self,
        session: SessionId,
        dir: InodeId,
        after: Cookie,
        prefetch: Prefetch,
        bytes_max: usize,
    ) -> Result<ListReply, MetaError> {
        self.shared.readable(session)?;
        self.shared.read(query::list(&self.shared.store.snapshot(), dir, after, prefetch, bytes_max))
    }

    fn inode(&self, session: SessionId, ino: InodeId) -> Result<FileRecord, MetaError> {
        self.shared.readable(session)?;
        self.shared.read(query::inode(&self.shared.store.snapshot(), ino))
    }

    fn extents(
        &self,
        session: SessionId,
        ino: InodeId,
        start: u64,
        end: u64,
        count_max: usize,
    ) -> Result<ExtentsReply, MetaError> {
        self.shared.readable(session)?;
        self.shared.read(query::extents(&self.shared.store.snapshot(), ino, start, end, count_max))
    }

    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.shared.readable(session)?;
        let shared = &self.shared;
        let counters = shared.tree(query::counters(&shared.store))?;
        shared.room.statfs(shared.dues(), counters.used_bytes, counters.inodes)
    }
}
