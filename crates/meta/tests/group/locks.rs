//! Locks of programs when leadership changes.

use crate::cluster::{Cluster, PATIENCE, eventually, open_session};
use shoal_meta::Server;
use shoal_types::{InodeId, SessionId};
use shoal_wire::{
    LockKind, LockOp, LockOutcome, LockOwner, LockRange, LockRecord, LockReply, LockRequest, LockSpace,
    MetaError, MetaService, Poll, Reclaim, Token, wait_for,
};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

fn record(session: SessionId) -> LockRecord {
    LockRecord {
        ino: InodeId(1000),
        space: LockSpace::Flock,
        owner: LockOwner { session, owner: 1 },
        pid: 1,
        range: LockRange::ALL,
        kind: LockKind::Write,
    }
}

fn begin(server: &Server, session: SessionId, id: u64, wait: bool) -> Receiver<Result<LockReply, MetaError>> {
    let (tell, told) = channel();
    let op = LockOp::Set { lock: record(session), wait };
    let request = LockRequest { session, id, below: id, op };
    server.lock(request, Box::new(move |answer| drop(tell.send(answer))));
    told
}

/// Reclaims all locks of a session.
fn reclaim(server: &Server, session: SessionId, locks: Vec<LockRecord>) -> Result<(), MetaError> {
    let poll = Poll { session, term: 0, seen: 0, acks: Vec::new(), below: Token(1), wait_ms: 0 };
    let told = wait_for(|done| server.recalls(poll, done))?;
    assert!(told.reclaim);
    let (covers, nodes) = (Vec::new(), Vec::new());
    server.reclaim(Reclaim { session, term: told.term, covers, nodes, locks, refers: Vec::new(), last: true })
}

#[test]
fn a_new_leader_grants_no_lock_before_all_sessions_have_reclaimed_theirs() {
    let mut cluster = Cluster::new(3);
    let [one, other] = [1, 2].map(|n| open_session(&mut cluster, &format!("{n}"), n).expect("a session").id);
    let first = cluster.await_leader();
    let held = begin(&cluster.up[&first], one, 1, false).recv().expect("told").expect("an answer");
    assert_eq!(held.outcome, LockOutcome::Done);
    let waits = begin(&cluster.up[&first], other, 1, true);
    cluster.crash(first);
    waits.recv().expect("told").expect_err("its leader is gone");
    // The next leader does not have the lock yet, as its session has not reclaimed it.
    let next = cluster.await_leader();
    let server = cluster.up[&next].clone();
    eventually("it serves", || server.statfs(other).is_ok());
    let again = begin(&server, other, 1, false);
    let waits = begin(&server, other, 2, true);
    let gives_up = begin(&server, other, 3, true);
    let cancel = LockRequest { session: other, id: 4, below: 1, op: LockOp::Cancel { id: 3 } };
    wait_for(|done| server.lock(cancel, done)).expect("cancelled");
    let cancelled = gives_up.recv_timeout(PATIENCE).expect("in time").expect("an answer");
    assert_eq!((cancelled.outcome, cancelled.at), (LockOutcome::Cancelled, 0), "held may be anything");
    reclaim(&server, other, Vec::new()).expect("declared");
    assert_eq!(again.recv_timeout(Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
    reclaim(&server, one, vec![record(one)]).expect("declared");
    let refused = again.recv_timeout(PATIENCE).expect("in time").expect("an answer");
    assert_eq!(refused.outcome, LockOutcome::Conflict(record(one)));
    assert_ne!(refused.term, held.term);
    let owners = vec![LockOwner { session: one, owner: 1 }];
    let release =
        LockRequest { session: one, id: 2, below: 2, op: LockOp::Release { ino: InodeId(1000), owners } };
    wait_for(|done| server.lock(release, done)).expect("released");
    let granted = waits.recv_timeout(PATIENCE).expect("in time").expect("an answer");
    assert_eq!((granted.outcome, granted.held), (LockOutcome::Done, vec![record(other)]));
    drop(server);
}

#[test]
fn session_that_ends_instead_of_reclaiming_delays_no_other() {
    let mut cluster = Cluster::new(3);
    let [one, other] = [1, 2].map(|n| open_session(&mut cluster, &format!("{n}"), n).expect("a session").id);
    let first = cluster.await_leader();
    begin(&cluster.up[&first], one, 1, false).recv().expect("told").expect("an answer");
    cluster.crash(first);
    let next = cluster.await_leader();
    let server = cluster.up[&next].clone();
    eventually("it serves", || server.statfs(other).is_ok());
    let waits = begin(&server, other, 1, true);
    reclaim(&server, other, Vec::new()).expect("declared");
    server.close_session(one).expect("ended");
    let granted = waits.recv_timeout(PATIENCE).expect("in time").expect("an answer");
    assert_eq!(granted.outcome, LockOutcome::Done);
    drop(server);
}
