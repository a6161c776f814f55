//! Counts the client's calls to the metadata service and to bricks, and measures their latencies.

use bytes::Bytes;
use shoal_fuse::OpStats;
use shoal_fuse::limits::LATENCY_BUCKETS;
use shoal_types::{BlockId, BlockInfo, SessionId, Statfs};
use shoal_wire::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Latencies of one kind of call.
struct Watch {
    name: &'static str,
    errors: AtomicU64,
    total_ns: AtomicU64,
    latency: [AtomicU64; LATENCY_BUCKETS],
}

impl Watch {
    fn new(name: &'static str) -> Watch {
        let zero = || AtomicU64::new(0);
        Watch {
            name,
            errors: zero(),
            total_ns: zero(),
            latency: [const { AtomicU64::new(0) }; LATENCY_BUCKETS],
        }
    }

    fn time<T, E>(&self, call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let started = Instant::now();
        let outcome = call();
        self.record(started, outcome.is_err());
        outcome
    }

    fn record(&self, started: Instant, failed: bool) {
        let ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let bucket = (ns.max(1).ilog2() as usize).min(LATENCY_BUCKETS - 1);
        if let Some(count) = self.latency.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        self.total_ns.fetch_add(ns, Relaxed);
        self.errors.fetch_add(u64::from(failed), Relaxed);
    }

    fn read(&self) -> OpStats {
        let latency: [u64; LATENCY_BUCKETS] = std::array::from_fn(|bucket| match self.latency.get(bucket) {
            Some(count) => count.load(Relaxed),
            None => 0,
        });
        OpStats {
            name: self.name,
            count: latency.iter().sum(),
            errors: self.errors.load(Relaxed),
            slow: 0,
            total_ns: self.total_ns.load(Relaxed),
            latency,
        }
    }
}

/// A brick whose calls are measured.
pub struct MeasuredBlocks {
    inner: Arc<dyn BlockService>,
    put: Watch,
    get: Watch,
    delete: Watch,
    list: Watch,
}

impl MeasuredBlocks {
    pub fn new(inner: Arc<dyn BlockService>) -> MeasuredBlocks {
        let [put, get, delete, list] = ["put", "get", "delete", "list"].map(Watch::new);
        MeasuredBlocks { inner, put, get, delete, list }
    }

    /// The measurements of each kind of call that occurred.
    pub fn stats(&self) -> Vec<OpStats> {
        occurred([&self.put, &self.get, &self.delete, &self.list])
    }
}

impl BlockService for MeasuredBlocks {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        self.put.time(|| self.inner.put(id, parts))
    }
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        self.get.time(|| self.inner.get(id, offset, len))
    }
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        self.delete.time(|| self.inner.delete(ids))
    }
    fn moment(&self) -> Result<Moment, BlockError> {
        self.inner.moment()
    }
    fn delete_older(&self, ids: &[BlockId], than: Moment) -> Result<Vec<BlockId>, BlockError> {
        self.delete.time(|| self.inner.delete_older(ids, than))
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        self.inner.length(id)
    }
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        self.list.time(|| self.inner.list(from))
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.inner.sessions()
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        self.inner.statfs()
    }
}

/// A metadata service whose calls are measured.
pub struct MeasuredMeta {
    inner: Arc<dyn MetaService>,
    /// From sending a batch to its durable commit.
    commit: Arc<Watch>,
    /// From a request to its reply, waiting for other clients included.
    lookup: Arc<Watch>,
    list: Arc<Watch>,
    walk: Arc<Watch>,
    inode: Arc<Watch>,
    extents: Arc<Watch>,
    acquire: Arc<Watch>,
    grant: Watch,
}

impl MeasuredMeta {
    pub fn new(inner: Arc<dyn MetaService>) -> MeasuredMeta {
        let [commit, lookup, list, walk, inode, extents, acquire] =
            ["commit", "lookup", "list", "walk", "inode", "extents", "acquire"]
                .map(|name| Arc::new(Watch::new(name)));
        MeasuredMeta {
            inner,
            commit,
            lookup,
            list,
            walk,
            inode,
            extents,
            acquire,
            grant: Watch::new("grant"),
        }
    }

    /// The measurements of each kind of call that occurred.
    pub fn stats(&self) -> Vec<OpStats> {
        let Self { commit, lookup, list, walk, inode, extents, acquire, grant, .. } = self;
        occurred([commit, lookup, list, walk, inode, extents, acquire, grant])
    }
}

impl MetaService for MeasuredMeta {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        self.inner.open_session(request)
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.inner.close_session(session)
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        self.grant.time(|| self.inner.grant(grant))
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        let (watch, started) = (self.commit.clone(), Instant::now());
        let measured = move |outcome: Result<CommitReply, MetaError>| {
            watch.record(started, outcome.is_err());
            done(outcome);
        };
        self.inner.submit(commit, Box::new(measured));
    }
    fn ask(&self, ask: Ask, done: Done<AskReply>) {
        let watch = match ask.question {
            Question::Lookup { .. } => &self.lookup,
            Question::List { .. } => &self.list,
            Question::Walk { .. } => &self.walk,
            Question::Inode(_) => &self.inode,
            Question::Extents { .. } => &self.extents,
        };
        self.inner.ask(ask, measured(watch, done));
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        self.inner.acquire(acquire, measured(&self.acquire, done));
    }
    // The long-poll for recalls is idle most of the time; its latency means nothing.
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        self.inner.recalls(poll, done);
    }
    // A lock request may wait for as long as programs hold their locks.
    fn lock(&self, request: shoal_wire::LockRequest, done: Done<shoal_wire::LockReply>) {
        self.inner.lock(request, done);
    }
    fn reclaim(&self, declaration: Reclaim) -> Result<(), MetaError> {
        self.inner.reclaim(declaration)
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.inner.blocks(session, ids)
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.inner.statfs(session)
    }
}

/// Wraps a completion so that its outcome is measured.
fn measured<T: 'static>(watch: &Arc<Watch>, done: Done<T>) -> Done<T> {
    let (watch, started) = (watch.clone(), Instant::now());
    Box::new(move |outcome| {
        watch.record(started, outcome.is_err());
        done(outcome);
    })
}

fn occurred<const N: usize>(watches: [&Watch; N]) -> Vec<OpStats> {
    watches.map(Watch::read).into_iter().filter(|stats| stats.count > 0).collect()
}
