//! Runs calls against the core, and fetches what they need.

use crate::api::{Failure, Reply, Wait};
use crate::core::{Core, Errand, Need, Outcome, Ticket};
use crate::failover::Failover;
use crate::groups::Groups;
use crate::limits::{
    DIR_CONTENT_BYTES_MAX, EXTENTS_PAGE, INODE_GRANT, INODE_LOW, LIST_PAGE_BYTES, ROOM_GRANT_BYTES,
    ROOM_LOW_BYTES, UNCOMMITTED_BYTES_MAX,
};
use crate::reader::Reader;
use crate::stats::{Counters, Stat};
use crate::{Options, ship};
use parking_lot::{Condvar, Mutex, MutexGuard};
use shoal_namespace::Fault;
use shoal_types::{BatchSeq, Cookie, Errno, InodeId, Name, SessionId};
use shoal_wire::{Grant, GrantReply, MetaError, MetaService, OpenReply, Prefetch, Space, VolumeBlocks};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the one lock protects.
pub(crate) struct State {
    pub(crate) core: Core,
    /// The shipping thread waits for something to do.
    pub(crate) shipper_idle: bool,
    pub(crate) stopping: bool,
    /// Nobody waits for the calls that wait.
    pub(crate) interrupted: bool,
}

/// See the module.
pub(crate) struct Shell {
    /// For callbacks.
    pub(crate) me: Weak<Shell>,
    pub(crate) session: SessionId,
    pub(crate) renew: Duration,
    pub(crate) meta: Arc<dyn MetaService>,
    /// The same, if it is several replicas.
    failover: Option<Arc<Failover>>,
    fail_after: Option<Duration>,
    close_wait: Duration,
    pub(crate) bricks: Arc<dyn VolumeBlocks>,
    pub(crate) state: Mutex<State>,
    /// Something was committed, stored, granted, or lost.
    pub(crate) changed: Condvar,
    /// There is something to ship.
    pub(crate) work: Condvar,
    /// Held by whoever sends batches, so that they leave in order.
    pub(crate) shipping: Mutex<()>,
    /// Held by whoever asks for grants, so that a burst of needs asks once.
    granting: Mutex<()>,
    pub(crate) reader: Reader,
    pub(crate) groups: Groups,
    pub(crate) errands: Mutex<Option<crossbeam_channel::Sender<Errand>>>,
    pub(crate) counters: Counters,
}

impl Shell {
    /// Starts the client's threads.
    pub(crate) fn start(
        meta: Arc<dyn MetaService>,
        failover: Option<Arc<Failover>>,
        bricks: Arc<dyn VolumeBlocks>,
        opened: OpenReply,
        options: &Options,
    ) -> (Arc<Shell>, Vec<JoinHandle<()>>) {
        let mut core = Core::new(opened.session, opened.inline_bytes, options.cache_bytes);
        take_grant(&mut core, opened.grant);
        // Bounded by the window of uncommitted bytes, not by the channel.
        let (errands, todo) = crossbeam_channel::unbounded();
        let (reader, ahead) = Reader::new(options.block_cache_bytes);
        let shell = Arc::new_cyclic(|me| Shell {
            me: me.clone(),
            session: opened.session,
            renew: Duration::from_millis(opened.renew_ms),
            meta,
            failover,
            fail_after: options.fail_after,
            close_wait: options.close_wait,
            bricks,
            state: Mutex::new(State { core, shipper_idle: false, stopping: false, interrupted: false }),
            changed: Condvar::new(),
            work: Condvar::new(),
            shipping: Mutex::new(()),
            granting: Mutex::new(()),
            reader,
            groups: Groups::default(),
            errands: Mutex::new(Some(errands)),
            counters: Counters::default(),
        });
        let mut threads = ship::start(&shell, todo);
        threads.extend(crate::reader::start(&shell, ahead));
        (shell, threads)
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
        let mut fetched = false;
        loop {
            let mut state = self.state.lock();
            if !fetched {
                state.core.begin();
            }
            let outcome = call(&mut state.core, fetched);
            let errands = match state.core.blocks.has_errands() {
                true => state.core.blocks.take_errands(),
                false => Vec::new(),
            };
            let sealed = state.core.journal.has_sealed();
            if sealed || (state.shipper_idle && state.core.journal.has_open()) {
                self.work.notify_one();
            }
            drop(state);
            self.run_errands(errands);
            match outcome {
                Ok(answer) => {
                    if !fetched {
                        self.counters.hits.add(1);
                    }
                    return Ok(answer);
                }
                Err(Fault::Errno(errno)) => return Err(errno.into()),
                Err(Fault::Tree(_)) if wait == Wait::Never => return Err(Failure::WouldBlock),
                Err(Fault::Tree(need)) => {
                    self.counters.misses.add(1);
                    self.fetch(need)?;
                    fetched = true;
                }
            }
        }
    }

    /// Gets what a call needs.
    fn fetch(&self, need: Need) -> Result<(), Errno> {
        match need {
            Need::Inode(ino) => self.fetch_inode(ino),
            Need::Name(dir, name) => self.fetch_name(dir, &name),
            Need::Directory { dir, contents } => self.fetch_directory(dir, contents),
            Need::Extents(ino, start) => self.fetch_extents(ino, start),
            Need::Inodes => self.fetch_grant(0, true),
            Need::Room(bytes) => self.fetch_grant(bytes, false),
            Need::Window => self.wait_for_window(),
        }
    }

    fn ticket(&self) -> Ticket {
        self.state.lock().core.ticket()
    }

    fn fetch_inode(&self, ino: InodeId) -> Result<(), Errno> {
        self.counters.lookups.add(1);
        let ticket = self.ticket();
        let record = self.meta.inode(self.session, ino).map_err(|error| self.refused(error))?;
        self.state.lock().core.install_inode(ticket, record);
        Ok(())
    }

    fn fetch_name(&self, dir: InodeId, name: &Name) -> Result<(), Errno> {
        self.counters.lookups.add(1);
        let ticket = self.ticket();
        let reply = self.meta.lookup(self.session, dir, name).map_err(|error| self.refused(error))?;
        self.state.lock().core.install_name(ticket, dir, name, reply.found);
        Ok(())
    }

    fn fetch_directory(&self, dir: InodeId, contents: bool) -> Result<(), Errno> {
        let ticket = self.ticket();
        let mut after = Cookie::START;
        let mut budget = if contents { DIR_CONTENT_BYTES_MAX } else { 0 };
        loop {
            self.counters.listings.add(1);
            let prefetch = if budget > 0 { Prefetch::Contents } else { Prefetch::Attributes };
            let page = self
                .meta
                .list(self.session, dir, after, prefetch, LIST_PAGE_BYTES)
                .map_err(|error| self.refused(error))?;
            budget = budget.saturating_sub(LIST_PAGE_BYTES);
            let last = page.entries.last().map(|entry| entry.name.cookie());
            let mut state = self.state.lock();
            state.core.install_page(ticket, dir, page.entries);
            if page.end {
                state.core.install_end(ticket, dir);
                return Ok(());
            }
            drop(state);
            after = last.ok_or(Errno::EIO)?;
        }
    }

    fn fetch_extents(&self, ino: InodeId, start: u64) -> Result<(), Errno> {
        self.counters.lookups.add(1);
        let ticket = self.ticket();
        let reply = self
            .meta
            .extents(self.session, ino, start, u64::MAX, EXTENTS_PAGE)
            .map_err(|error| self.refused(error))?;
        self.groups.learn(reply.blocks.iter().map(|(id, info)| (*id, info.group)));
        self.state.lock().core.install_extents(ticket, ino, start, reply);
        Ok(())
    }

    /// Asks for more inode numbers or room, unless somebody else just did.
    fn fetch_grant(&self, bytes: u64, inodes: bool) -> Result<(), Errno> {
        let _one = self.granting.lock();
        let (room, none_left) = {
            let core = &self.state.lock().core;
            (core.room, core.inodes.is_empty())
        };
        if if inodes { !none_left } else { room >= bytes } {
            return Ok(());
        }
        let ask = |want: u64| self.grant(if inodes { INODE_GRANT } else { 0 }, want);
        if inodes {
            return ask(0);
        }
        ask(bytes.max(ROOM_GRANT_BYTES))?;
        if self.state.lock().core.room >= bytes {
            return Ok(());
        }
        // Perhaps what is under way frees room, or was counted twice while it was.
        self.flush()?;
        let lacking = bytes.saturating_sub(self.state.lock().core.room);
        ask(lacking)?;
        if self.state.lock().core.room >= bytes { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    /// Asks for a grant and takes it; also renews the session.
    fn grant(&self, inodes: u64, want_bytes: u64) -> Result<(), Errno> {
        let outstanding_bytes = {
            let core = &self.state.lock().core;
            core.room + core.journal.uncommitted_room()
        };
        let grant = Grant { session: self.session, inodes, space: Space { outstanding_bytes, want_bytes } };
        let granted = self.meta.grant(grant).map_err(|error| self.refused(error))?;
        take_grant(&mut self.state.lock().core, granted);
        Ok(())
    }

    /// Renews the session, and tops grants up before anybody has to wait for them.
    pub(crate) fn renew(&self) {
        let _one = self.granting.lock();
        let (inodes, room) = {
            let core = &self.state.lock().core;
            (core.inodes.end - core.inodes.start, core.room)
        };
        let inodes = if inodes < INODE_LOW { INODE_GRANT } else { 0 };
        let want = if room < ROOM_LOW_BYTES { ROOM_GRANT_BYTES } else { 0 };
        // A refusal here concerns nobody yet: whoever needs the room will ask again and hear of it.
        if let Err(errno) = self.grant(inodes, want) {
            tracing::debug!(%errno, "renewing the session");
        }
    }

    /// Whether grants run low.
    pub(crate) fn runs_low(core: &Core) -> bool {
        core.room < ROOM_LOW_BYTES || core.inodes.end - core.inodes.start < INODE_LOW
    }

    fn wait_for_window(&self) -> Result<(), Errno> {
        self.state.lock().core.seal();
        self.ship_ready();
        let until = self.until();
        let mut state = self.state.lock();
        while state.core.uncommitted_bytes() > UNCOMMITTED_BYTES_MAX / 2 {
            self.wait_for_change(&mut state, until)?;
        }
        Ok(())
    }

    /// When a call that begins to wait now is to fail.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.fail_after.map(|wait| Instant::now() + wait)
    }

    /// Waits until something has changed. Fails when there is no point in waiting any longer.
    fn wait_for_change(
        &self,
        state: &mut MutexGuard<'_, State>,
        until: Option<Instant>,
    ) -> Result<(), Errno> {
        state.core.alive()?;
        if state.interrupted || until.is_some_and(|until| until <= Instant::now()) {
            return Err(Errno::EIO);
        }
        match until {
            Some(until) => drop(self.changed.wait_until(state, until)),
            None => self.changed.wait(state),
        }
        Ok(())
    }

    /// Waits before something is tried again; fails at once when the session comes to an end.
    pub(crate) fn pause(&self, pause: Duration) -> Result<(), Errno> {
        let due = Instant::now() + pause;
        let mut state = self.state.lock();
        loop {
            state.core.alive()?;
            if self.changed.wait_until(&mut state, due).timed_out() {
                return Ok(());
            }
        }
    }

    /// The same for a call that somebody waits for, perhaps no longer.
    pub(crate) fn pause_call(&self, pause: Duration, until: Option<Instant>) -> Result<(), Errno> {
        if self.state.lock().interrupted || until.is_some_and(|until| until <= Instant::now()) {
            return Err(Errno::EIO);
        }
        self.pause(pause)
    }

    /// Everything done so far is durable when this returns.
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        let seq = {
            let mut state = self.state.lock();
            state.core.alive()?;
            state.core.seal()
        };
        self.wait_committed(seq)
    }

    fn wait_committed(&self, seq: BatchSeq) -> Result<(), Errno> {
        if self.state.lock().core.cache.acked() >= seq {
            return self.state.lock().core.alive();
        }
        self.counters.syncs.add(1);
        self.ship_ready();
        let until = self.until();
        let mut state = self.state.lock();
        while state.core.cache.acked() < seq {
            self.wait_for_change(&mut state, until)?;
        }
        Ok(())
    }

    /// Everything is durable when this returns `Ok`. Gives up when for long nothing has become so.
    pub(crate) fn last_flush(&self) -> Result<(), Errno> {
        let seq = {
            let mut state = self.state.lock();
            state.core.alive()?;
            state.core.seal()
        };
        self.work.notify_one();
        let mut state = self.state.lock();
        let mut left = state.core.uncommitted_bytes();
        let mut due = Instant::now() + self.close_wait;
        while state.core.cache.acked() < seq {
            state.core.alive()?;
            self.changed.wait_until(&mut state, due);
            let now = state.core.uncommitted_bytes();
            if now < left {
                left = now;
                due = Instant::now() + self.close_wait;
            } else if Instant::now() >= due {
                let (batches, seconds) =
                    (state.core.journal.uncommitted_batches(), self.close_wait.as_secs());
                tracing::error!(
                    bytes = left,
                    batches,
                    seconds,
                    "servers did not answer: the last changes could not be made durable, and are lost"
                );
                return Err(Errno::EIO);
            }
        }
        Ok(())
    }

    /// Calls that wait for others fail from now on.
    pub(crate) fn interrupt(&self) {
        self.state.lock().interrupted = true;
        self.changed.notify_all();
        if let Some(failover) = &self.failover {
            failover.interrupt();
        }
    }

    /// Turns a server's refusal into what the caller gets. Only [`MetaError::Errno`] is about the call itself.
    pub(crate) fn refused(&self, error: MetaError) -> Errno {
        match error {
            MetaError::Errno(errno) => errno,
            other => {
                let mut state = self.state.lock();
                match &other {
                    _ if state.stopping || state.core.alive().is_err() => {}
                    MetaError::Fenced(_) => tracing::error!(
                        session = self.session.0,
                        "the servers ended this mount's session, because they did not hear of it for too long: what was not \
                         synced is lost, and every call fails; unmount and mount again"
                    ),
                    other => tracing::error!(session = self.session.0, error = %other, "the session is lost"),
                }
                state.core.kill(Errno::EIO);
                self.changed.notify_all();
                Errno::EIO
            }
        }
    }

    /// Ends the session. Everything has been flushed.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        let alive = self.state.lock().core.alive();
        self.stop();
        if alive == Err(Errno::ENOTCONN) {
            return Ok(());
        }
        let closed = self.meta.close_session(self.session).map_err(|error| self.refused(error));
        self.give_up();
        closed.and(alive)
    }

    /// Nothing is sent any more, and nobody waits for servers.
    pub(crate) fn give_up(&self) {
        if let Some(failover) = &self.failover {
            failover.stop();
        }
    }

    /// Tells the threads to end.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        state.core.kill(Errno::ENOTCONN);
        drop(state);
        self.errands.lock().take();
        self.reader.stop();
        self.work.notify_all();
        self.changed.notify_all();
    }

    pub(crate) fn stats(&self) -> Vec<Stat> {
        let c = &self.counters;
        let state = self.state.lock();
        let core = &state.core;
        [
            ("client_hits_total", c.hits.get()),
            ("client_misses_total", c.misses.get()),
            ("client_listings_total", c.listings.get()),
            ("client_lookups_total", c.lookups.get()),
            ("journal_operations_total", core.journal.recorded),
            ("journal_merged_total", core.journal.merged),
            ("journal_cancelled_total", core.journal.cancelled),
            ("journal_batches_total", c.batches.get()),
            ("journal_bytes_total", c.batch_bytes.get()),
            ("journal_syncs_total", c.syncs.get()),
            ("journal_uncommitted_batches", core.journal.uncommitted_batches() as u64),
            ("journal_uncommitted_bytes", core.uncommitted_bytes()),
            ("blocks_put_total", c.puts.get()),
            ("blocks_put_bytes_total", c.put_bytes.get()),
            ("blocks_get_total", c.gets.get()),
            ("blocks_get_bytes_total", c.get_bytes.get()),
            ("blocks_cache_hits_total", c.block_hits.get()),
            ("blocks_put_waits_total", c.put_waits.get()),
            ("blocks_get_waits_total", c.get_waits.get()),
            ("blocks_located_total", c.locates.get()),
            ("cache_inodes", core.cache.len() as u64),
            ("cache_bytes", core.cache.bytes() as u64),
            ("room_granted_bytes", core.room),
        ]
        .map(|(name, value)| Stat { name, value })
        .into_iter()
        .chain(self.failover.iter().flat_map(|failover| failover.stats()))
        .collect()
    }
}

fn take_grant(core: &mut Core, grant: GrantReply) {
    core.room += grant.bytes;
    if grant.inodes > 0 {
        // What was left of the old range is given up: numbers are plenty, and ranges stay simple.
        core.inodes = grant.first_inode..grant.first_inode + grant.inodes;
    }
}
