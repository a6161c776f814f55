//! The metadata service and the brick with a stop-watch: how often the client calls each, and how long that takes.

use bytes::Bytes;
use shoal_fuse::OpStats;
use shoal_fuse::limits::LATENCY_BUCKETS;
use shoal_types::{BlockId, BlockInfo, Cookie, InodeId, Name, SessionId, Statfs};
use shoal_wire::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Calls of one kind.
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

/// A brick, measured.
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

    /// What was measured, kinds of calls that occurred.
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
    fn list(&self, session: SessionId) -> Result<Vec<BlockStat>, BlockError> {
        self.list.time(|| self.inner.list(session))
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.inner.sessions()
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        self.inner.statfs()
    }
}

/// A metadata service, measured.
pub struct MeasuredMeta {
    inner: Arc<dyn MetaService>,
    /// From handing a batch over to hearing that it is durable.
    commit: Arc<Watch>,
    lookup: Watch,
    list: Watch,
    inode: Watch,
    extents: Watch,
    grant: Watch,
}

impl MeasuredMeta {
    pub fn new(inner: Arc<dyn MetaService>) -> MeasuredMeta {
        let [lookup, list, inode, extents, grant] =
            ["lookup", "list", "inode", "extents", "grant"].map(Watch::new);
        MeasuredMeta { inner, commit: Arc::new(Watch::new("commit")), lookup, list, inode, extents, grant }
    }

    /// What was measured, kinds of calls that occurred.
    pub fn stats(&self) -> Vec<OpStats> {
        occurred([&self.commit, &self.lookup, &self.list, &self.inode, &self.extents, &self.grant])
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
    fn lookup(&self, session: SessionId, dir: InodeId, name: &Name) -> Result<LookupReply, MetaError> {
        self.lookup.time(|| self.inner.lookup(session, dir, name))
    }
    fn list(
        &self,
        session: SessionId,
        dir: InodeId,
        after: Cookie,
        prefetch: Prefetch,
        bytes_max: usize,
    ) -> Result<ListReply, MetaError> {
        self.list.time(|| self.inner.list(session, dir, after, prefetch, bytes_max))
    }
    fn inode(&self, session: SessionId, ino: InodeId) -> Result<FileRecord, MetaError> {
        self.inode.time(|| self.inner.inode(session, ino))
    }
    fn extents(
        &self,
        session: SessionId,
        ino: InodeId,
        start: u64,
        end: u64,
        count_max: usize,
    ) -> Result<ExtentsReply, MetaError> {
        self.extents.time(|| self.inner.extents(session, ino, start, end, count_max))
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.inner.blocks(session, ids)
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.inner.statfs(session)
    }
}

fn occurred<const N: usize>(watches: [&Watch; N]) -> Vec<OpStats> {
    watches.map(Watch::read).into_iter().filter(|stats| stats.count > 0).collect()
}
