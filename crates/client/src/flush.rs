//! Waits for the journal: until it is durable, or until its window has room.

use crate::context::SessionState;
use crate::limits::ABANDONED_CLOSE_WAIT;
use crate::ship::Shipper;
use crate::trace::{Hop, waits};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::MutexGuard;
use shoal_runtime::time::Instant;
use shoal_types::{BatchSeq, Errno};

impl Shipper {
    /// Waits until the window of uncommitted bytes has room. Only commits of this session make room, and they
    /// wait for no memory.
    pub(crate) fn wait_for_window(&self) -> Result<(), Errno> {
        let window = {
            let core = &mut self.context.state.lock().core;
            core.seal();
            core.window_bytes()
        };
        self.ship_ready();
        let until = self.context.until();
        let _waits = waits(Hop::Commit, || format!("room in the window of {window} uncommitted bytes"));
        let mut state = self.context.state.lock();
        while state.core.uncommitted_bytes() > window / 2 {
            self.context.wait_for_change(&mut state, until)?;
        }
        Ok(())
    }

    /// Everything done so far is durable when this returns.
    pub(crate) fn flush(&self) -> Result<(), Errno> {
        let seq = {
            let mut state = self.context.state.lock();
            state.core.alive()?;
            state.core.seal()
        };
        if mistake("complete fsync at once") {
            return Ok(());
        }
        self.wait_committed(seq)
    }

    fn wait_committed(&self, seq: BatchSeq) -> Result<(), Errno> {
        if self.context.state.lock().core.cache.acked() >= seq {
            return self.context.state.lock().core.alive();
        }
        self.context.counters.syncs.add(1);
        let until = self.context.until();
        let _waits =
            waits(Hop::Commit, || format!("the journal up to batch {}.{}", self.context.id.0, seq.0));
        self.wait_acked(seq, |state| self.context.wait_for_change(state, until))
    }

    /// Waits until the journal is committed up to a batch, for a recall. Fails only when the session has come
    /// to an end.
    pub(crate) fn wait_for_commit(&self, seq: BatchSeq) -> Result<(), Errno> {
        self.wait_acked(seq, |state| {
            state.core.alive()?;
            self.context.changed.wait(state);
            Ok(())
        })?;
        self.context.state.lock().core.alive()
    }

    fn wait_acked(
        &self,
        seq: BatchSeq,
        mut wait: impl FnMut(&mut MutexGuard<'_, SessionState>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut state = self.context.state.lock();
        if state.core.cache.acked() < seq {
            drop(state);
            self.ship_ready();
            state = self.context.state.lock();
        }
        while state.core.cache.acked() < seq {
            wait(&mut state)?;
        }
        Ok(())
    }

    /// Commits everything, or gives up when nothing was committed for long.
    pub(crate) fn last_flush(&self) -> Result<(), Errno> {
        let seq = {
            let mut state = self.context.state.lock();
            state.core.alive()?;
            state.core.seal()
        };
        self.work.notify_one();
        let mut state = self.context.state.lock();
        let mut left = state.core.uncommitted_bytes();
        let wait =
            if state.abandoned { ABANDONED_CLOSE_WAIT } else { self.context.shared.options.close_wait };
        let mut due = Instant::now() + wait;
        while state.core.cache.acked() < seq {
            state.core.alive()?;
            self.context.changed.wait_until(&mut state, due);
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
}
