//! One session: composes the parts that work for it, runs calls against its core, and has what they need
//! fetched. `mount` replaces a session that has ended.

use crate::context::{Context, SessionState};
use crate::core::{Core, Outcome, UNKNOWN_THREAD};
use crate::expiry;
use crate::fetch::{Fetched, Fetcher};
use crate::grants::{Grants, take_grant};
use crate::lease::{Lease, Moment};
use crate::limits::WALK_RUNS_AHEAD_BYTES_MAX;
use crate::locks::LockClient;
use crate::mapping_locks::MappingLocks;
use crate::put::BlockWriter;
use crate::reader::BlockReader;
use crate::recalls::RecallWorker;
use crate::shared::MountShared;
use crate::ship::Shipper;
use crate::stats::Stat;
use crate::trace;
use crate::transport::Transport;
use crate::values::{Calling, Failure, Reply, Wait};
use crate::walk::Walker;
use shoal_namespace::Fault;
use shoal_runtime::sync::MutexGuard;
use shoal_runtime::thread::JoinHandle;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{Errno, InodeId};
use shoal_wire::OpenReply;
use std::sync::Arc;

/// One session of a mount.
pub(crate) struct Session {
    pub(crate) context: Arc<Context>,
    pub(crate) begun: Instant,
    pub(crate) shipper: Arc<Shipper>,
    pub(crate) fetcher: Fetcher,
    pub(crate) reader: Arc<BlockReader>,
    /// Locks of programs.
    pub(crate) locks: Arc<LockClient>,
    /// The mapping locks of the mount.
    pub(crate) mapping_locks: Arc<MappingLocks>,
    blocks: Arc<BlockWriter>,
    walker: Arc<Walker>,
    recalls: Arc<RecallWorker>,
}

impl Session {
    /// Starts the threads of a session.
    pub(crate) fn start(
        shared: &Arc<MountShared>,
        mapping_locks: &Arc<MappingLocks>,
        transport: Transport,
        (opened, asked): (OpenReply, Moment),
    ) -> (Arc<Session>, Vec<JoinHandle<()>>) {
        let options = &shared.options;
        let inline_bytes = opened.inline_bytes.min(options.inline_bytes_max);
        let mut core = Core::new(opened.session, inline_bytes, options.cache_bytes);
        core.follows_walks = options.tree_read_ahead;
        take_grant(&mut core, opened.grant);
        core.rights.term = opened.term;
        let lease = Lease::new(asked, Duration::from_millis(opened.lease_ms));
        let context = Context::new(shared, transport, core, lease);
        let grants = Arc::new(Grants::new(&context, Duration::from_millis(opened.renew_ms)));
        let (blocks, tasks) = BlockWriter::new(&context);
        let blocks = Arc::new(blocks);
        let (reader, ahead) = BlockReader::new(&context, options.block_cache_bytes);
        let shipper = Arc::new(Shipper::new(&context, &grants, &blocks));
        let walker = Arc::new(Walker::new(&context));
        let locks = Arc::new(LockClient::new(&context, opened.term));
        let session = Arc::new(Session {
            begun: Instant::now(),
            fetcher: Fetcher::new(&context, &grants, &shipper, &walker),
            recalls: Arc::new(RecallWorker::new(&context, &shipper, &locks, mapping_locks)),
            mapping_locks: mapping_locks.clone(),
            reader: Arc::new(reader),
            context,
            shipper,
            locks,
            blocks,
            walker,
        });
        let mut threads = vec![session.shipper.start(), grants.start()];
        threads.extend(session.blocks.start(&tasks));
        threads.extend(session.reader.start(&ahead));
        threads.extend([session.recalls.start(), expiry::start(&session.context)]);
        threads.extend(session.walker.start());
        (session, threads)
    }

    /// Runs a call until it has its answer.
    pub(crate) fn call<T>(&self, wait: Wait, mut call: impl FnMut(&mut Core) -> Outcome<T>) -> Reply<T> {
        self.call_again(wait, |core, _| call(core))
    }

    /// Runs a call that has no effect: after it the request can still be cancelled.
    pub(crate) fn look<T>(&self, wait: Wait, mut call: impl FnMut(&mut Core) -> Outcome<T>) -> Reply<T> {
        self.run(wait, || (), true, |core, _| call(core))
    }

    /// Runs a call that changes names in these directories.
    pub(crate) fn change_names<T>(
        &self,
        Calling { wait, thread }: Calling,
        dirs: [InodeId; 2],
        mut call: impl FnMut(&mut Core, u32) -> Outcome<T>,
    ) -> Reply<T> {
        let has_changed = || {
            if let (Some(thread), Some(kernel)) = (thread, self.context.shared.kernel.get()) {
                kernel.has_changed(thread, dirs);
            }
        };
        let by = thread.unwrap_or(UNKNOWN_THREAD);
        self.run(wait, has_changed, false, |core, _| call(core, by))
    }

    /// Runs a call; its second argument says whether something was already fetched for it.
    pub(crate) fn call_again<T>(
        &self,
        wait: Wait,
        call: impl FnMut(&mut Core, bool) -> Outcome<T>,
    ) -> Reply<T> {
        self.run(wait, || (), false, call)
    }

    /// `has_changed` is called with the state locked when the call has changed something. `is_look`: the call
    /// has no effect at all, and gives the kernel no reference.
    fn run<T>(
        &self,
        wait: Wait,
        has_changed: impl Fn(),
        is_look: bool,
        mut call: impl FnMut(&mut Core, bool) -> Outcome<T>,
    ) -> Reply<T> {
        let mut fetched: Option<Fetched<'_>> = None;
        let mut again = false;
        loop {
            if !self.context.lease.holds() {
                match wait {
                    Wait::Never => return Err(Failure::WouldBlock),
                    Wait::Allowed => self.context.wait_for_lease()?,
                }
            }
            let mut state = self.context.state.lock();
            state.core.alive()?;
            state.limit_memory();
            match fetched.take() {
                // If the reply is outdated, it is discarded and fetched again.
                Some(fetched) => _ = fetched.install(&mut state.core),
                None => state.core.begin(),
            }
            if !trace::begin_attempt() {
                return Err(Errno::EINTR.into());
            }
            let recorded = state.core.journal.recorded;
            let outcome = call(&mut state.core, again);
            let changed = state.core.journal.recorded != recorded;
            if changed {
                has_changed();
            }
            let returned = state.core.retries.take_news(|| self.context.shared.clock.now());
            self.hand_over(state);
            if returned {
                self.context.changed.notify_all();
            }
            // The process may have been stopped since the lease was checked, so it is checked once more after
            // a read.
            let is_late = outcome.is_ok() && !changed && !self.context.lease.holds();
            trace::end_attempt(is_look || is_late || matches!(outcome, Err(Fault::Tree(_))));
            match outcome {
                Ok(_) if is_late => {}
                Ok(answer) => {
                    if !again {
                        self.context.counters.hits.add(1);
                    }
                    return Ok(answer);
                }
                Err(Fault::Errno(errno)) => return Err(errno.into()),
                Err(Fault::Tree(_)) if wait == Wait::Never => return Err(Failure::WouldBlock),
                Err(Fault::Tree(need)) => {
                    self.context.counters.misses.add(1);
                    fetched = Some(self.fetcher.fetch(need)?);
                    again = true;
                }
            }
        }
    }

    /// The kernel drops references (FORGET). Never waits.
    pub(crate) fn forget(&self, ino: InodeId, count: u64) {
        let mut state = self.context.state.lock();
        state.core.forget(ino, count);
        self.hand_over(state);
    }

    /// Hands the background work that a call has caused to its threads.
    fn hand_over(&self, mut state: MutexGuard<'_, SessionState>) {
        let block_tasks = match state.core.blocks.has_block_tasks() {
            true => state.core.blocks.take_block_tasks(),
            false => Vec::new(),
        };
        state.count_memory();
        self.shipper.wake_for(&state);
        if state.core.walks.take_news() {
            self.walker.wake();
        }
        let runs = state.core.walks.take_runs();
        drop(state);
        if !runs.is_empty() {
            self.reader.read_ahead(&runs, WALK_RUNS_AHEAD_BYTES_MAX);
        }
        self.blocks.run(block_tasks);
        self.reader.shrink_to_budget();
    }

    /// Gives back memory of caches that have not been used for long, or that others need.
    pub(crate) fn release_idle(&self) {
        let mut state = self.context.state.lock();
        state.limit_memory();
        state.core.release_idle();
        self.hand_over(state);
        self.reader.evict_old();
    }

    /// Ends the session. Everything has been flushed.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        let alive = self.context.state.lock().core.alive();
        self.stop();
        if alive == Err(Errno::ENOTCONN) {
            return Ok(());
        }
        let closed = self
            .context
            .transport
            .meta
            .close_session(self.context.id)
            .map_err(|error| self.context.refused(error));
        self.context.give_up();
        closed.and(alive)
    }

    /// Ends this session without a message: the servers have ended it.
    pub(crate) fn retire(&self) {
        self.stop();
        self.context.give_up();
    }

    /// Tells the threads to end.
    fn stop(&self) {
        let mut state = self.context.state.lock();
        state.stopping = true;
        state.core.kill(Errno::ENOTCONN);
        drop(state);
        self.blocks.stop();
        self.reader.stop();
        self.shipper.stop();
        self.walker.stop();
        self.context.changed.notify_all();
        self.context.ending.notify_all();
    }

    pub(crate) fn stats(&self) -> Vec<Stat> {
        let c = &self.context.counters;
        let figure = |(name, value)| Stat { name, value };
        let memory = self.context.shared.options.memory.figures().map(figure);
        let state = self.context.state.lock();
        let core = &state.core;
        // Operations carry times of the servers' clock.
        let oldest = core.journal.uncommitted_operations().1;
        let age_ms = oldest.map_or(0, |since| self.context.shared.clock.age_ms(since));
        [
            ("client_hits_total", c.hits.get()),
            ("client_misses_total", c.misses.get()),
            ("client_listings_total", c.listings.get()),
            ("client_lookups_total", c.lookups.get()),
            ("client_acquires_total", c.acquires.get()),
            ("walk_requests_total", c.walks.get()),
            ("walk_directories_total", core.walks.came),
            ("walk_directories_used_total", core.walks.used),
            ("walk_ahead_bytes", core.walks.bytes() as u64),
            ("client_recalls_total", core.rights.recalled),
            ("journal_operations_total", core.journal.recorded),
            ("journal_merged_total", core.journal.merged),
            ("journal_cancelled_total", core.journal.cancelled),
            ("journal_batches_total", c.batches.get()),
            ("journal_bytes_total", c.batch_bytes.get()),
            ("journal_syncs_total", c.syncs.get()),
            ("journal_uncommitted_batches", core.journal.uncommitted_batches() as u64),
            ("journal_age_ms", age_ms),
            ("journal_uncommitted_bytes", core.uncommitted_bytes()),
            ("blocks_put_total", c.puts.get()),
            ("blocks_put_bytes_total", c.put_bytes.get()),
            ("blocks_get_total", c.gets.get()),
            ("blocks_get_bytes_total", c.get_bytes.get()),
            ("blocks_cache_hits_total", c.block_hits.get()),
            ("blocks_read_bytes_total", c.block_read_bytes.get()),
            ("blocks_put_waits_total", c.put_waits.get()),
            ("blocks_get_waits_total", c.get_waits.get()),
            ("blocks_located_total", c.locates.get()),
            ("kernel_inodes", core.referred_count().inodes as u64),
            ("cache_inodes", core.cache.len() as u64),
            ("cache_bytes", core.cache.bytes() as u64),
            ("room_granted_bytes", core.room),
            ("locks_held", self.locks.count() as u64),
        ]
        .map(figure)
        .into_iter()
        .chain(memory)
        .chain(self.context.transport.failover.iter().flat_map(|failover| failover.stats()))
        .collect()
    }
}
