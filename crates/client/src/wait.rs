//! Waiting: for the window, for durability, for servers and bricks that do not answer, and for the end.
//!
//! Besides success, three things end a wait: the session dies, the mount's time limit (`fail_after`) is over,
//! or the mount is interrupted (`interrupt`). In the latter two cases the call fails and the session goes on.

use crate::limits::{ABANDONED_CLOSE_WAIT, RETRY_WAIT_MAX, UNCOMMITTED_BYTES_MAX};
use crate::session::{Session, State};
use crate::trace::{Hop, waits};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::MutexGuard;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{BatchSeq, Errno, InodeId};

impl Session {
    /// Waits until enough is committed for writers to go on.
    pub(crate) fn wait_for_window(&self) -> Result<(), Errno> {
        self.state.lock().core.seal();
        self.ship_ready();
        let until = self.until();
        let _waits = waits(Hop::Commit, || {
            format!("room in the window of {} uncommitted bytes", UNCOMMITTED_BYTES_MAX)
        });
        let mut state = self.state.lock();
        while state.core.uncommitted_bytes() > UNCOMMITTED_BYTES_MAX / 2 {
            self.wait_for_change(&mut state, until)?;
        }
        Ok(())
    }

    /// Waits until no thread of this mount waits for the right to change names in these directories, for a
    /// bounded time.
    pub(crate) fn wait_for_turn(&self, dirs: &[InodeId]) -> Result<(), Errno> {
        let until = Instant::now() + RETRY_WAIT_MAX;
        let _waits = waits(Hop::Metadata, || format!("another thread of this mount that asks for {dirs:?}"));
        let mut state = self.state.lock();
        while state.core.retries.are_waited_for(dirs) {
            state.core.alive()?;
            if state.interrupted || self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the right to change a file, which is being recalled, has been given back.
    pub(crate) fn wait_for_recall(&self, ino: InodeId) -> Result<(), Errno> {
        let until = self.until();
        let _waits = waits(Hop::Recall, || format!("inode {}, which another client gets", ino.0));
        let mut state = self.state.lock();
        while state.core.is_closed_to_writers(ino) {
            self.wait_for_change(&mut state, until)?;
        }
        Ok(())
    }

    /// When a call that begins to wait now is to fail.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.fail_after.map(|wait| Instant::now() + wait)
    }

    /// Waits until something has changed. Fails when there is no point in waiting any longer.
    pub(crate) fn wait_for_change(
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

    /// Waits before a retry; fails at once when the session comes to an end.
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

    /// Waits before a retry of a call, which also fails when the mount is interrupted or its time is over.
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
        if mistake("say at once that it is durable") {
            return Ok(());
        }
        self.wait_committed(seq)
    }

    fn wait_committed(&self, seq: BatchSeq) -> Result<(), Errno> {
        if self.state.lock().core.cache.acked() >= seq {
            return self.state.lock().core.alive();
        }
        self.counters.syncs.add(1);
        let until = self.until();
        let _waits = waits(Hop::Commit, || format!("the journal up to batch {}.{}", self.id.0, seq.0));
        self.wait_acked(seq, |state| self.wait_for_change(state, until))
    }

    /// Waits until the journal is committed up to a batch, for a recall. Fails only when the session has come
    /// to an end.
    pub(crate) fn wait_for_commit(&self, seq: BatchSeq) -> Result<(), Errno> {
        self.wait_acked(seq, |state| {
            state.core.alive()?;
            self.changed.wait(state);
            Ok(())
        })?;
        self.state.lock().core.alive()
    }

    fn wait_acked(
        &self,
        seq: BatchSeq,
        mut wait: impl FnMut(&mut MutexGuard<'_, State>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.core.cache.acked() < seq {
            drop(state);
            self.ship_ready();
            state = self.state.lock();
        }
        while state.core.cache.acked() < seq {
            wait(&mut state)?;
        }
        Ok(())
    }

    /// Makes everything durable, or gives up when nothing has become durable for long.
    pub(crate) fn last_flush(&self) -> Result<(), Errno> {
        let seq = {
            let mut state = self.state.lock();
            state.core.alive()?;
            state.core.seal()
        };
        self.work.notify_one();
        let mut state = self.state.lock();
        let mut left = state.core.uncommitted_bytes();
        let wait = if state.abandoned { ABANDONED_CLOSE_WAIT } else { self.close_wait };
        let mut due = Instant::now() + wait;
        while state.core.cache.acked() < seq {
            state.core.alive()?;
            self.changed.wait_until(&mut state, due);
            let now = state.core.uncommitted_bytes();
            if now < left {
                left = now;
                due = Instant::now() + wait;
            } else if Instant::now() >= due {
                let (batches, seconds) = (state.core.journal.uncommitted_batches(), wait.as_secs());
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

    /// Calls that wait for servers or bricks fail from now on.
    pub(crate) fn interrupt(&self) {
        self.state.lock().interrupted = true;
        self.changed.notify_all();
        if let Some(failover) = &self.failover {
            failover.interrupt();
        }
    }

    /// Ends the session. Everything has been flushed.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        let alive = self.state.lock().core.alive();
        self.stop();
        if alive == Err(Errno::ENOTCONN) {
            return Ok(());
        }
        let closed = self.meta.close_session(self.id).map_err(|error| self.refused(error));
        self.give_up();
        closed.and(alive)
    }

    /// Nothing is sent any more, and no call waits for servers.
    pub(crate) fn give_up(&self) {
        if let Some(failover) = &self.failover {
            failover.stop();
        }
    }

    /// Ends this session, which another one replaces.
    pub(crate) fn retire(&self) {
        self.stop();
        self.give_up();
    }

    /// Tells the threads to end.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        state.core.kill(Errno::ENOTCONN);
        drop(state);
        self.block_tasks.lock().take();
        self.reader.stop();
        self.work.notify_all();
        self.walking.notify_all();
        self.changed.notify_all();
        self.ending.notify_all();
    }
}
