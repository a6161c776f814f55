//! Locks of programs at a single server.

mod support;

use shoal_meta::{ClearLocks, Options, Server};
use shoal_types::{InodeId, SessionId};
use shoal_wire::{
    LockKind, LockOp, LockOutcome, LockOwner, LockRange, LockRecord, LockReply, LockRequest, LockSpace,
    MetaError, MetaService,
};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::*;

const FILE: InodeId = InodeId(1000);

type Told = Receiver<Result<LockReply, MetaError>>;

/// A lock of the first ten bytes.
fn record(session: SessionId, owner: u64, kind: LockKind) -> LockRecord {
    LockRecord {
        ino: FILE,
        space: LockSpace::Posix,
        owner: LockOwner { session, owner },
        pid: 1,
        range: LockRange::new(0, 9).expect("a range"),
        kind,
    }
}

fn write(session: &Session, wait: bool) -> LockOp {
    LockOp::Set { lock: record(session.id, 1, LockKind::Write), wait }
}

fn unset(session: &Session) -> LockOp {
    let owner = LockOwner { session: session.id, owner: 1 };
    LockOp::Unset { ino: FILE, space: LockSpace::Posix, owner, range: LockRange::ALL }
}

fn begin(session: &Session, id: u64, below: u64, op: LockOp) -> Told {
    let (tell, told) = channel();
    let request = LockRequest { session: session.id, id, below, op };
    session.server.lock(request, Box::new(move |answer| drop(tell.send(answer))));
    told
}

#[track_caller]
fn outcome(told: &Told) -> LockOutcome {
    told.recv_timeout(Duration::from_secs(20)).expect("in time").expect("an answer").outcome
}

#[track_caller]
fn ask(session: &Session, id: u64, op: LockOp) -> LockOutcome {
    outcome(&begin(session, id, id, op))
}

/// A server and two sessions.
fn two(options: Options) -> (tempfile::TempDir, Arc<Server>, Session, Session) {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = Server::open(dir.path(), Arc::<MemBricks>::default(), options).expect("open");
    let (one, other) = (Session::open(&server), Session::open(&server));
    (dir, server, one, other)
}

#[test]
fn a_lock_excludes_other_sessions_and_the_answer_tells_what_is_held() {
    let (_dir, _server, one, other) = two(options());
    let told = begin(&one, 1, 1, write(&one, false)).recv().expect("told").expect("an answer");
    assert_eq!(told.outcome, LockOutcome::Done);
    assert_eq!(told.held, [record(one.id, 1, LockKind::Write)]);
    let in_the_way = LockOutcome::Conflict(record(one.id, 1, LockKind::Write));
    assert_eq!(ask(&other, 1, write(&other, false)), in_the_way);
    assert_eq!(ask(&other, 2, LockOp::Test(record(other.id, 1, LockKind::Read))), in_the_way);
    assert_eq!(ask(&one, 2, LockOp::Test(record(one.id, 1, LockKind::Write))), LockOutcome::Done);
    let told = begin(&one, 3, 3, unset(&one)).recv().expect("told").expect("an answer");
    assert!(told.held.is_empty());
    assert_eq!(ask(&other, 3, write(&other, false)), LockOutcome::Done);
}

#[test]
fn waiter_is_answered_when_the_lock_is_released_or_the_wait_cancelled() {
    let (_dir, server, one, other) = two(options());
    assert_eq!(ask(&one, 1, write(&one, true)), LockOutcome::Done);
    let waits = begin(&other, 1, 1, write(&other, true));
    let gives_up =
        begin(&other, 2, 1, LockOp::Set { lock: record(other.id, 2, LockKind::Write), wait: true });
    assert_eq!(stat(&server, "locks_waiting"), 2);
    assert_eq!(ask(&other, 3, LockOp::Cancel { id: 2 }), LockOutcome::Done);
    assert_eq!(outcome(&gives_up), LockOutcome::Cancelled);
    assert!(waits.try_recv().is_err());
    let owners = vec![LockOwner { session: one.id, owner: 1 }];
    assert_eq!(ask(&one, 2, LockOp::Release { ino: FILE, owners }), LockOutcome::Done);
    assert_eq!(outcome(&waits), LockOutcome::Done);
    // Too late to be cancelled.
    assert_eq!(ask(&other, 4, LockOp::Cancel { id: 1 }), LockOutcome::Done);
    assert!(matches!(ask(&one, 3, write(&one, false)), LockOutcome::Conflict(_)));
    assert_eq!((stat(&server, "locks"), stat(&server, "locks_waiting")), (1, 0));
}

#[test]
fn lock_request_cancelled_before_it_arrived_does_not_wait() {
    let (_dir, _server, one, other) = two(options());
    assert_eq!(ask(&one, 1, write(&one, false)), LockOutcome::Done);
    let cancel = begin(&other, 2, 1, LockOp::Cancel { id: 1 });
    assert_eq!(outcome(&cancel), LockOutcome::Done);
    assert_eq!(outcome(&begin(&other, 1, 1, write(&other, true))), LockOutcome::Cancelled);
}

#[test]
fn retried_lock_request_is_idempotent_and_a_late_duplicate_is_refused() {
    let (_dir, server, one, other) = two(options());
    for _ in 0..2 {
        assert_eq!(ask(&one, 1, write(&one, false)), LockOutcome::Done);
    }
    // The connection of the first request is lost.
    let lost = begin(&other, 1, 1, write(&other, true));
    let waits = begin(&other, 1, 1, write(&other, true));
    assert!(matches!(lost.recv().expect("told"), Err(MetaError::Unavailable(_))));
    assert_eq!(stat(&server, "locks_waiting"), 1);
    assert_eq!(ask(&one, 2, unset(&one)), LockOutcome::Done);
    assert_eq!(outcome(&waits), LockOutcome::Done);
    assert_eq!(ask(&other, 2, unset(&other)), LockOutcome::Done);
    // It must not set what has been released.
    let late = begin(&other, 1, 1, write(&other, false)).recv().expect("told");
    assert!(matches!(late, Err(MetaError::Malformed(_))));
    assert_eq!(stat(&server, "locks"), 0);
}

#[test]
fn locks_of_another_session_can_be_neither_taken_nor_released() {
    let (_dir, server, one, other) = two(options());
    assert_eq!(ask(&one, 1, write(&one, false)), LockOutcome::Done);
    for (id, op) in [(1, unset(&one)), (2, write(&one, false))] {
        let refused = begin(&other, id, id, op).recv().expect("told");
        assert!(matches!(refused, Err(MetaError::Malformed(_))));
    }
    assert_eq!(stat(&server, "locks"), 1);
}

#[test]
fn end_of_a_session_releases_its_locks_and_refuses_its_waiters() {
    let (_dir, server, one, other) = two(options());
    assert_eq!(ask(&one, 1, write(&one, false)), LockOutcome::Done);
    let waits = begin(&other, 1, 1, write(&other, true));
    let third = Session::open(&server);
    let gone = begin(&third, 1, 1, write(&third, true));
    server.close_session(third.id).expect("closed");
    assert!(matches!(gone.recv().expect("told"), Err(MetaError::Fenced(id)) if id == third.id));
    server.close_session(one.id).expect("closed");
    assert_eq!(outcome(&waits), LockOutcome::Done);
    assert!(matches!(begin(&one, 2, 2, unset(&one)).recv().expect("told"), Err(MetaError::Fenced(_))));
}

#[test]
fn silent_session_is_ended_when_another_waits_for_its_locks_and_not_before() {
    let dead_after = Duration::from_millis(300);
    let (_dir, server, one, other) = two(Options { session_dead_after: Some(dead_after), ..options() });
    assert_eq!(ask(&one, 1, write(&one, false)), LockOutcome::Done);
    std::thread::sleep(dead_after * 2);
    assert_eq!(stat(&server, "sessions"), 2, "no session wants anything");
    assert_eq!(ask(&other, 1, write(&other, true)), LockOutcome::Done);
    assert_eq!(stat(&server, "sessions"), 1);
    // A request that does not wait, and is retried.
    let third = Session::open(&server);
    let mut id = 1;
    eventually("it is ended", || {
        id += 1;
        ask(&third, id, write(&third, false)) == LockOutcome::Done
    });
}

#[test]
fn locks_cleared_by_an_administrator_are_free_and_waiters_are_refused() {
    let (_dir, server, one, other) = two(options());
    assert_eq!(ask(&one, 1, write(&one, false)), LockOutcome::Done);
    let waits = begin(&other, 1, 1, write(&other, true));
    let infos = server.session_infos().expect("led");
    let held: Vec<_> = infos.iter().map(|info| (info.session, info.locks, info.locks_waiting)).collect();
    assert_eq!(held, [(one.id, 1, 0), (other.id, 0, 1)]);

    let clear = |blocked, granted, range| {
        let cleared = server.clear_locks(FILE, ClearLocks { blocked, granted, range }).expect("led");
        (cleared.blocked_count, cleared.granted_count)
    };
    let elsewhere = LockRange::new(100, 200).expect("a range");
    assert_eq!(clear(true, true, elsewhere), (0, 0), "no lock is there");
    assert_eq!(clear(true, false, LockRange::ALL), (1, 0));
    assert_eq!(outcome(&waits), LockOutcome::NoRoom);
    assert!(matches!(ask(&other, 2, write(&other, false)), LockOutcome::Conflict(_)), "still held");

    let waits = begin(&other, 3, 3, write(&other, true));
    assert_eq!(clear(false, true, LockRange::ALL), (0, 1));
    assert_eq!(outcome(&waits), LockOutcome::Done, "the next in line has it");
    // The former holder does not learn of it, and releases a lock that it does not have.
    assert_eq!(ask(&one, 2, unset(&one)), LockOutcome::Done);
    assert!(matches!(ask(&one, 3, write(&one, false)), LockOutcome::Conflict(_)));
    assert_eq!(clear(true, true, LockRange::ALL), (0, 1));
    assert_eq!((stat(&server, "locks"), stat(&server, "locks_waiting")), (0, 0));
}
