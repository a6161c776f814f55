//! One session: runs calls against its core, and fetches what they need. `mount` replaces a session that has
//! ended.

use crate::api::{Failure, Reply, Wait};
use crate::core::{BlockTask, Core, Outcome};
use crate::failover::Failover;
use crate::fetch::{Fetched, Tokens};
use crate::grants::take_grant;
use crate::groups::Groups;
use crate::lease::{Lease, Moment, RecallQueue, Recallers};
use crate::limits::WALK_RUNS_AHEAD_BYTES_MAX;
use crate::locks::Locks;
use crate::mount::{MountShared, Transport};
use crate::reader::Reader;
use crate::ship;
use crate::stats::{Counters, Stat};
use shoal_namespace::Fault;
use shoal_runtime::sync::{Condvar, Mutex, MutexGuard};
use shoal_runtime::thread::JoinHandle;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{Errno, InodeId, SessionId};
use shoal_wire::{Denial, MetaError, MetaService, OpenReply, VolumeBlocks};
use std::sync::{Arc, Weak};

/// What the session's one lock protects.
pub(crate) struct State {
    pub(crate) core: Core,
    /// The shipping thread waits for work.
    pub(crate) shipper_idle: bool,
    pub(crate) stopping: bool,
    /// Calls that wait are to fail: the mount has been interrupted.
    pub(crate) interrupted: bool,
    /// The servers have ended the session: another one follows.
    pub(crate) ended: bool,
    /// The denial because of which they ended it.
    pub(crate) denied: Option<Denial>,
    /// The mount was taken away by force: nothing is worth a long wait any more.
    pub(crate) abandoned: bool,
}

/// One session of a mount.
pub(crate) struct Session {
    /// For callbacks.
    pub(crate) me: Weak<Session>,
    pub(crate) shared: Arc<MountShared>,
    pub(crate) id: SessionId,
    pub(crate) begun: Instant,
    pub(crate) renew: Duration,
    pub(crate) meta: Arc<dyn MetaService>,
    /// `meta` as several replicas, if it is that.
    pub(crate) failover: Option<Arc<Failover>>,
    pub(crate) fail_after: Option<Duration>,
    pub(crate) close_wait: Duration,
    pub(crate) bricks: Arc<dyn VolumeBlocks>,
    pub(crate) state: Mutex<State>,
    /// Something was committed, stored, granted, or lost.
    pub(crate) changed: Condvar,
    /// The session comes to an end. Threads that wait for nothing else are not woken by `changed`.
    pub(crate) ending: Condvar,
    /// There is something to ship.
    pub(crate) work: Condvar,
    /// There may be something to prefetch.
    pub(crate) walking: Condvar,
    /// A prefetch has been answered, or has failed.
    pub(crate) walked: Condvar,
    /// Held while batches are sent, so that they leave in order.
    pub(crate) shipping: Mutex<()>,
    /// Held while grants are requested, so that a burst of needs makes one request.
    pub(crate) granting: Mutex<()>,
    pub(crate) lease: Lease,
    pub(crate) tokens: Tokens,
    /// Locks of programs.
    pub(crate) locks: Locks,
    /// Recalls to be carried out, each with its term.
    pub(crate) recalls: RecallQueue,
    pub(crate) recallers: Mutex<Recallers>,
    pub(crate) reader: Reader,
    pub(crate) groups: Groups,
    pub(crate) block_tasks: Mutex<Option<shoal_runtime::channel::Sender<BlockTask>>>,
    pub(crate) counters: Counters,
}

impl Session {
    /// Starts the threads of a session.
    pub(crate) fn start(
        shared: &Arc<MountShared>,
        Transport { meta, failover }: Transport,
        (opened, asked): (OpenReply, Moment),
    ) -> (Arc<Session>, Vec<JoinHandle<()>>) {
        let options = &shared.options;
        let mut core = Core::new(opened.session, opened.inline_bytes, options.cache_bytes);
        take_grant(&mut core, opened.grant);
        core.rights.term = opened.term;
        // Bounded by the window of uncommitted bytes, not by the channel.
        let (block_tasks, todo) = shoal_runtime::channel::unbounded();
        let (reader, ahead) = Reader::new(options.block_cache_bytes);
        let session = Arc::new_cyclic(|me| Session {
            me: me.clone(),
            shared: shared.clone(),
            id: opened.session,
            begun: Instant::now(),
            renew: Duration::from_millis(opened.renew_ms),
            meta,
            failover,
            fail_after: options.fail_after,
            close_wait: options.close_wait,
            bricks: shared.bricks.clone(),
            state: Mutex::new(State {
                core,
                shipper_idle: false,
                stopping: false,
                interrupted: false,
                ended: false,
                denied: None,
                abandoned: false,
            }),
            changed: Condvar::new(),
            ending: Condvar::new(),
            work: Condvar::new(),
            walking: Condvar::new(),
            walked: Condvar::new(),
            shipping: Mutex::new(()),
            granting: Mutex::new(()),
            lease: Lease::new(asked, Duration::from_millis(opened.lease_ms)),
            tokens: Tokens::default(),
            locks: Locks::new(opened.term),
            // Bounded by the number of recalls that the servers send at once.
            recalls: shoal_runtime::channel::unbounded(),
            recallers: Mutex::default(),
            reader,
            groups: Groups::default(),
            block_tasks: Mutex::new(Some(block_tasks)),
            counters: Counters::default(),
        });
        let mut threads = ship::start(&session, todo);
        threads.extend(crate::reader::start(&session, ahead));
        threads.extend(crate::lease::start(&session));
        threads.extend(crate::walk::start(&session));
        (session, threads)
    }

    /// Runs a call until it has its answer.
    pub(crate) fn call<T>(&self, wait: Wait, mut call: impl FnMut(&mut Core) -> Outcome<T>) -> Reply<T> {
        self.call_again(wait, |core, _| call(core))
    }

    /// Runs a call that wants to know whether something was already fetched for it.
    pub(crate) fn call_again<T>(
        &self,
        wait: Wait,
        mut call: impl FnMut(&mut Core, bool) -> Outcome<T>,
    ) -> Reply<T> {
        let mut fetched: Option<Fetched<'_>> = None;
        let mut again = false;
        loop {
            if !self.lease.holds() {
                match wait {
                    Wait::Never => return Err(Failure::WouldBlock),
                    Wait::Allowed => self.wait_for_lease()?,
                }
            }
            let mut state = self.state.lock();
            state.core.alive()?;
            match fetched.take() {
                // If it does not count any more, it is fetched once more.
                Some(fetched) => _ = fetched.install(&mut state.core),
                None => state.core.begin(),
            }
            let recorded = state.core.journal.recorded;
            let outcome = call(&mut state.core, again);
            let changed = state.core.journal.recorded != recorded;
            if changed && let Some(kernel) = self.shared.kernel.get() {
                kernel.has_changed();
            }
            let returned = state.core.retries.take_news(|| self.shared.clock.now());
            self.see_to(state);
            if returned {
                self.changed.notify_all();
            }
            match outcome {
                // The process may have been stopped since the lease was checked. So it is checked again, now
                // that the answer is there.
                Ok(_) if !changed && !self.lease.holds() => {}
                Ok(answer) => {
                    if !again {
                        self.counters.hits.add(1);
                    }
                    return Ok(answer);
                }
                Err(Fault::Errno(errno)) => return Err(errno.into()),
                Err(Fault::Tree(_)) if wait == Wait::Never => return Err(Failure::WouldBlock),
                Err(Fault::Tree(need)) => {
                    self.counters.misses.add(1);
                    fetched = Some(self.fetch(need)?);
                    again = true;
                }
            }
        }
    }

    /// The kernel drops references. Never waits.
    pub(crate) fn forget(&self, ino: InodeId, count: u64) {
        let mut state = self.state.lock();
        state.core.forget(ino, count);
        self.see_to(state);
    }

    /// Hands over the work that a call has left, to the threads for it.
    fn see_to(&self, mut state: MutexGuard<'_, State>) {
        let block_tasks = match state.core.blocks.has_errands() {
            true => state.core.blocks.take_block_tasks(),
            false => Vec::new(),
        };
        let sealed = state.core.journal.has_sealed();
        if sealed || (state.shipper_idle && state.core.journal.has_open()) {
            self.work.notify_one();
        }
        if state.core.walks.take_news() {
            self.walking.notify_one();
        }
        let runs = state.core.walks.take_runs();
        drop(state);
        if !runs.is_empty() {
            self.read_ahead(&runs, WALK_RUNS_AHEAD_BYTES_MAX);
        }
        self.run_block_tasks(block_tasks);
    }

    /// Turns an error of a server into the caller's. Only [`MetaError::Errno`] is about the call itself;
    /// every other one ends the session.
    pub(crate) fn refused(&self, error: MetaError) -> Errno {
        match error {
            MetaError::Errno(errno) => errno,
            other => {
                let errno = match &other {
                    MetaError::Denied(denial) => denial.reason.errno(),
                    _ => Errno::EIO,
                };
                let mut state = self.state.lock();
                match &other {
                    _ if state.stopping || state.core.alive().is_err() => {}
                    MetaError::Fenced(_) | MetaError::Denied(_) => {
                        state.ended = true;
                        if let MetaError::Denied(denial) = &other {
                            state.denied = Some(denial.clone());
                        }
                        // The receiver lives as long as the mount.
                        let _ = self.shared.ended.send(self.id);
                    }
                    other => tracing::error!(session = self.id.0, error = %other, "the session is lost"),
                }
                state.core.kill(errno);
                self.changed.notify_all();
                self.ending.notify_all();
                errno
            }
        }
    }

    pub(crate) fn stats(&self) -> Vec<Stat> {
        let c = &self.counters;
        let state = self.state.lock();
        let core = &state.core;
        // Operations bear the time of the servers' clock.
        let oldest = core.journal.uncommitted_operations().1;
        let age_ms = oldest.map_or(0, |since| self.shared.clock.age_ms(since));
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
        .map(|(name, value)| Stat { name, value })
        .into_iter()
        .chain(self.failover.iter().flat_map(|failover| failover.stats()))
        .collect()
    }
}
