//! Work that nobody waits for: dead inodes are reaped, unreferenced blocks deleted, fragmented files compacted.
//!
//! One thread, woken when something was applied, in paced rounds. It decides nothing by itself: what it finds it proposes, and the state
//! machine checks it again.

use crate::compact;
use crate::limits::*;
use crate::serve::Shared;
use parking_lot::{Condvar, Mutex};
use shoal_namespace::{Command, Outcome, query};
use shoal_types::{BlockId, SessionId};
use shoal_wire::MetaError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Default)]
struct Wake {
    nudged: bool,
    ended: bool,
    stop: bool,
}

/// How the thread is woken, and what it has done.
#[derive(Default)]
pub(crate) struct Background {
    wake: Mutex<Wake>,
    woken: Condvar,
    reaped: AtomicU64,
    collected: AtomicU64,
    pub(crate) compacted: AtomicU64,
}

impl Background {
    /// Something was applied that may have left work.
    pub(crate) fn nudge(&self) {
        let mut wake = self.wake.lock();
        if !wake.nudged {
            wake.nudged = true;
            self.woken.notify_one();
        }
    }

    /// A session has ended: blocks that it stored and never committed are garbage.
    pub(crate) fn collect_blocks_of_ended_sessions(&self) {
        self.wake.lock().ended = true;
        self.woken.notify_one();
    }

    pub(crate) fn stop(&self) {
        self.wake.lock().stop = true;
        self.woken.notify_one();
    }

    pub(crate) fn stopping(&self) -> bool {
        self.wake.lock().stop
    }

    pub(crate) fn stats(&self) -> [(&'static str, u64); 3] {
        [
            ("background_reaped_inodes_total", self.reaped.load(Ordering::Relaxed)),
            ("background_collected_blocks_total", self.collected.load(Ordering::Relaxed)),
            ("background_compacted_blocks_total", self.compacted.load(Ordering::Relaxed)),
        ]
    }

    /// Waits for work. Answers whether sessions have ended; `None` at the end.
    fn wait(&self) -> Option<bool> {
        let mut wake = self.wake.lock();
        while !wake.nudged && !wake.ended && !wake.stop {
            self.woken.wait(&mut wake);
        }
        let due = Instant::now() + BACKGROUND_PAUSE;
        while !wake.stop && !self.woken.wait_until(&mut wake, due).timed_out() {}
        wake.nudged = false;
        let ended = std::mem::take(&mut wake.ended);
        (!wake.stop).then_some(ended)
    }
}

/// Runs until the server stops.
pub(crate) fn run(shared: &Arc<Shared>) {
    while let Some(ended) = shared.background.wait() {
        let round = round(shared, ended);
        match round {
            Ok(()) => {}
            Err(MetaError::Unavailable(_) | MetaError::Failed(_)) => return,
            Err(error) => tracing::warn!(%error, "background work"),
        }
    }
}

fn round(shared: &Shared, ended: bool) -> Result<(), MetaError> {
    reap(shared)?;
    if ended {
        uncommitted(shared)?;
    }
    compact::round(shared)?;
    collect(shared)
}

fn broken(error: impl ToString) -> MetaError {
    MetaError::Failed(error.to_string())
}

/// Takes dead inodes apart, in bounded steps.
fn reap(shared: &Shared) -> Result<(), MetaError> {
    loop {
        let dead = query::reap_queue(&shared.store, BACKGROUND_PAGE).map_err(broken)?;
        if dead.is_empty() || shared.background.stopping() {
            return Ok(());
        }
        for ino in dead {
            while let Outcome::Reaped { more: true } =
                shared.propose(&Command::Reap { ino, extents_max: REAP_EXTENTS })?
            {}
            shared.background.reaped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Deletes blocks that no content refers to.
fn collect(shared: &Shared) -> Result<(), MetaError> {
    loop {
        let garbage = query::garbage(&shared.store, None, BACKGROUND_PAGE).map_err(broken)?;
        if garbage.is_empty() || shared.background.stopping() {
            return Ok(());
        }
        let blocks: Vec<BlockId> = garbage.into_iter().map(|(id, _)| id).collect();
        if let Err(error) = shared.bricks.delete(&blocks) {
            // They stay on the list; the next round tries again.
            tracing::warn!(%error, "deleting unreferenced blocks");
            return Ok(());
        }
        shared.background.collected.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        shared.propose(&Command::Collected { blocks })?;
    }
}

/// Deletes blocks that a session stored and did not live to commit. The server's own are looked at too: this thread is the one
/// that writes them, and it has none under way now.
fn uncommitted(shared: &Shared) -> Result<(), MetaError> {
    let sessions = match shared.bricks.sessions() {
        Ok(sessions) => sessions,
        Err(error) => {
            tracing::warn!(%error, "listing blocks");
            return Ok(());
        }
    };
    for session in sessions {
        if session != SessionId::SERVER
            && (shared.is_alive(session) || query::session(&shared.store, session).map_err(broken)?.is_some())
        {
            continue;
        }
        let Ok(blocks) = shared.bricks.list(session) else { continue };
        for page in blocks.chunks(BACKGROUND_PAGE) {
            let mut unknown = Vec::new();
            for block in page {
                if query::block(&shared.store, block.id).map_err(broken)?.is_none() {
                    unknown.push(block.id);
                }
            }
            if !unknown.is_empty()
                && let Err(error) = shared.bricks.delete(&unknown)
            {
                tracing::warn!(%error, "deleting uncommitted blocks");
            }
            shared.background.collected.fetch_add(unknown.len() as u64, Ordering::Relaxed);
            if shared.background.stopping() {
                return Ok(());
            }
        }
    }
    Ok(())
}
