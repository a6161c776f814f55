//! Counts the client's calls to the metadata service and to bricks, and measures their latencies.

use crate::limits::{SLOW_BLOCK, SLOW_BLOCKS_LOGGED_MAX, SLOW_BLOCKS_LOGGED_PERIOD};
use crate::profile::{Marker, Profile, Profiled};
use bytes::Bytes;
use shoal_fuse::OpStats;
use shoal_runtime::histogram::{Histogram, Snapshot};
use shoal_runtime::log_limit::LogLimit;
use shoal_types::{BlockId, BlockInfo, SessionId, Statfs};
use shoal_wire::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Latencies of one kind of call.
struct Watch {
    name: &'static str,
    errors: AtomicU64,
    latency: Histogram,
}

impl Watch {
    fn new(name: &'static str) -> Watch {
        Watch { name, errors: AtomicU64::new(0), latency: Histogram::default() }
    }

    fn time<T, E>(&self, call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let started = Instant::now();
        let outcome = call();
        self.record(started, outcome.is_err());
        outcome
    }

    fn record(&self, started: Instant, failed: bool) {
        self.latency.record(started.elapsed());
        self.errors.fetch_add(u64::from(failed), Relaxed);
    }

    fn read(&self) -> OpStats {
        let errors = self.errors.load(Relaxed);
        OpStats { errors, ..op_stats(self.name, &self.latency.snapshot()) }
    }
}

/// Latencies of one kind of call or step, none of which failed.
pub fn op_stats(name: &'static str, latency: &Snapshot) -> OpStats {
    let Snapshot { total, buckets } = *latency;
    OpStats { name, count: latency.count(), errors: 0, slow: 0, total_ns: total, latency: buckets }
}

/// A brick whose calls are measured.
pub struct MeasuredBlocks {
    inner: Arc<dyn BlockService>,
    put: Watch,
    get: Watch,
    delete: Watch,
    list: Watch,
    /// What the brick is called in the log.
    name: String,
    slow_log: LogLimit,
    /// Sizes of what was written and read, in bytes.
    writes: Histogram,
    reads: Histogram,
    marker: Marker,
}

impl MeasuredBlocks {
    pub fn new(inner: Arc<dyn BlockService>, name: String) -> MeasuredBlocks {
        let [put, get, delete, list] = ["put", "get", "delete", "list"].map(Watch::new);
        let [writes, reads] = [(); 2].map(|()| Histogram::default());
        let slow_log = LogLimit::new(SLOW_BLOCKS_LOGGED_MAX, SLOW_BLOCKS_LOGGED_PERIOD);
        let marker = Marker::new();
        MeasuredBlocks { inner, put, get, delete, list, name, slow_log, writes, reads, marker }
    }

    /// Logs a call if it took long. The mount's log names the same block.
    fn note_slow(&self, call: &str, id: BlockId, started: Instant) {
        let took = started.elapsed();
        if took > SLOW_BLOCK
            && let Some(left_out) = self.slow_log.admits()
        {
            let (brick, seconds) = (&self.name, took.as_secs_f64());
            tracing::warn!(brick, left_out, "slow brick: {call} of block {id} took {seconds:.1} s");
        }
    }

    /// The measurements of each kind of call that occurred.
    pub fn stats(&self) -> Vec<OpStats> {
        occurred([&self.put, &self.get, &self.delete, &self.list])
    }

    /// What the brick has done, as an answer to a round of questions.
    pub fn profiled(&self, round: u64, marks: bool) -> Profiled {
        self.marker.answer(round, marks, || {
            Profile::of(self.reads.snapshot(), self.writes.snapshot(), &self.stats(), &[])
        })
    }

    /// The sizes of what was written and read, in bytes.
    pub fn sizes(&self) -> (Snapshot, Snapshot) {
        (self.writes.snapshot(), self.reads.snapshot())
    }
}

impl BlockService for MeasuredBlocks {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        let started = Instant::now();
        let outcome = self.put.time(|| self.inner.put(id, parts));
        self.note_slow("put", id, started);
        outcome?;
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        self.writes.add(bytes as u64);
        Ok(())
    }
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        let started = Instant::now();
        let outcome = self.get.time(|| self.inner.get(id, offset, len));
        self.note_slow("get", id, started);
        let bytes = outcome?;
        self.reads.add(bytes.len() as u64);
        Ok(bytes)
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
    fn check(&self, id: BlockId) -> Result<u32, BlockError> {
        self.inner.check(id)
    }
    fn take_reads(&self) -> Result<Vec<(BlockId, u32)>, BlockError> {
        self.inner.take_reads()
    }
    fn note_reads(&self, reads: Vec<(BlockId, u32)>) {
        self.inner.note_reads(reads);
    }
}

/// Latencies of calls to a metadata service, by kind.
pub struct MetaWatches {
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

impl Default for MetaWatches {
    fn default() -> MetaWatches {
        let [commit, lookup, list, walk, inode, extents, acquire] =
            ["commit", "lookup", "list", "walk", "inode", "extents", "acquire"]
                .map(|name| Arc::new(Watch::new(name)));
        MetaWatches { commit, lookup, list, walk, inode, extents, acquire, grant: Watch::new("grant") }
    }
}

impl MetaWatches {
    /// The measurements of each kind of call that occurred.
    pub fn stats(&self) -> Vec<OpStats> {
        let Self { commit, lookup, list, walk, inode, extents, acquire, grant } = self;
        occurred([commit, lookup, list, walk, inode, extents, acquire, grant])
    }
}

/// A metadata service whose calls are measured.
pub struct MeasuredMeta {
    inner: Arc<dyn MetaService>,
    watches: Arc<MetaWatches>,
}

impl MeasuredMeta {
    /// Several services may share the measurements.
    pub fn new(inner: Arc<dyn MetaService>, watches: Arc<MetaWatches>) -> MeasuredMeta {
        MeasuredMeta { inner, watches }
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
        self.watches.grant.time(|| self.inner.grant(grant))
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        let (watch, started) = (self.watches.commit.clone(), Instant::now());
        let measured = move |outcome: Result<CommitReply, MetaError>| {
            watch.record(started, outcome.is_err());
            done(outcome);
        };
        self.inner.submit(commit, Box::new(measured));
    }
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        let watch = match request.query {
            Query::Lookup { .. } => &self.watches.lookup,
            Query::List { .. } => &self.watches.list,
            Query::Walk { .. } => &self.watches.walk,
            Query::Inode(_) => &self.watches.inode,
            Query::Extents { .. } => &self.watches.extents,
        };
        self.inner.read(request, measured(watch, done));
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        self.inner.acquire(acquire, measured(&self.watches.acquire, done));
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
