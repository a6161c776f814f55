//! Timeouts: answers long-polls that have waited long enough, and fences sessions that have been silent or
//! have kept a recalled lease for too long.

use crate::leases::TermLeases;
use crate::limits::*;
use crate::shared::Shared;
use shoal_runtime::planted::mistake;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::SessionId;
use std::sync::Arc;

/// Runs until the server stops.
pub(crate) fn run(shared: &Arc<Shared>) {
    while shared.leases.wait_tick() {
        if let Ok(term) = shared.leads() {
            tick(shared, term);
        }
    }
}

fn tick(shared: &Arc<Shared>, term: u64) {
    let dead_after = match mistake("end sessions before their lease expires") {
        true => shared.sessions.dead_after() / 8,
        false => shared.sessions.dead_after(),
    };
    let found = shared.with_table(term, |leases| {
        leases.expire_polls(Instant::now()).into_iter().for_each(|job| shared.leases.run(job));
        let late = leases.table.overdue(dead_after.min(RECALL_MAX).as_millis() as u64 / 2);
        (late, leases.table.reclaiming(), leases.since.elapsed())
    });
    let Ok((late, reclaiming, since)) = found else { return };
    shared.log_slow_waiters();
    let mut ended = Vec::new();
    for (session, waited_ms) in late {
        let silence = shared.sessions.silence(session);
        let stuck = waited_ms > RECALL_MAX.as_millis() as u64;
        if silence > dead_after || stuck {
            ended.push((session, silence, stuck));
        }
    }
    for session in reclaiming {
        let silence = shared.sessions.silence(session);
        if since > dead_after && silence > dead_after {
            ended.push((session, silence, false));
        }
    }
    for (session, silence) in shared.sessions.silent_for(dead_after) {
        let blocks_others = |leases: &mut TermLeases| leases.locks.blocks_others(session, silence);
        if shared.with_table(term, blocks_others) == Ok(true) {
            ended.push((session, silence, false));
        }
    }
    for (session, silence) in shared.sessions.silent_for(SESSION_FORGOTTEN_AFTER) {
        ended.push((session, silence, false));
    }
    for (session, silence, stuck) in ended {
        end(shared, session, silence, stuck);
    }
}

fn end(shared: &Arc<Shared>, session: SessionId, silence: Duration, stuck: bool) {
    let client = shared.sessions.client(session);
    let why = if stuck { "it has not released a recalled lease" } else { "it is silent" };
    shared.note_ended(format!("session {} of {client} was ended: {why}", session.0));
    if stuck {
        let owed = shared.leases.unacknowledged(session);
        tracing::warn!(%session, client, ?owed, "ending a session that does not release a recalled lease");
    } else {
        let seconds = silence.as_secs();
        tracing::warn!(%session, client, seconds, "ending a session whose client is silent");
    }
    if let Err(error) = shared.end_session(session) {
        // It is retried, here or by the next leader.
        tracing::warn!(%session, %error, "a session could not be ended");
    }
}
