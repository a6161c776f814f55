use crate::common::*;
use shoal_lease::locks::*;
use shoal_types::Errno;

#[test]
fn a_new_leader_knows_what_every_session_reclaims() {
    let mut old = LockTable::default();
    take(&mut old, posix(A, Read, bytes(0, 9)));
    take(&mut old, posix(A, Write, from(100)));
    take(&mut old, posix(C, Read, bytes(5, 20)));
    take(&mut old, flock(D, Write));
    let mut new = LockTable::default();
    for session in [A.session, C.session] {
        assert_eq!(new.reclaim(session, old.held_by(session)), Reclaimed::default());
        assert_eq!(new.held_by(session), old.held_by(session));
        assert_eq!(new.held_count(session), old.held_count(session));
    }
}

#[test]
fn reclaiming_the_same_again_changes_nothing() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, bytes(0, 9)));
    take(&mut table, flock(B, Read));
    let before = table.held_by(A.session);
    assert_eq!(table.reclaim(A.session, before.clone()), Reclaimed::default());
    assert_eq!(table.held_by(A.session), before);
}

#[test]
fn what_conflicts_with_another_sessions_locks_is_refused() {
    let mut table = LockTable::default();
    take(&mut table, posix(C, Write, bytes(0, 9)));
    let claims = vec![posix(A, Read, bytes(9, 9)), posix(A, Read, bytes(10, 19))];
    let reclaimed = table.reclaim(A.session, claims.clone());
    assert_eq!(reclaimed.refused, claims[..1]);
    assert_eq!(table.held_by(A.session), claims[1..]);
}

#[test]
fn reclaim_for_another_session_is_refused() {
    let mut table = LockTable::default();
    let reclaimed = table.reclaim(A.session, vec![posix(C, Write, LockRange::ALL)]);
    assert_eq!(reclaimed.refused, [posix(C, Write, LockRange::ALL)]);
    assert_eq!(table.held_by(C.session), []);
}

#[test]
fn every_refusal_has_its_errno() {
    let errno = |outcome: Outcome| outcome.errno();
    assert_eq!(errno(Granted), None);
    assert_eq!(errno(Waiting), None);
    assert_eq!(errno(Outcome::Conflict(flock(A, Read))), Some(Errno::EAGAIN));
    assert_eq!(errno(Deadlock), Some(Errno::EDEADLK));
    assert_eq!(errno(Outcome::NoRoom), Some(Errno::ENOLCK));
}
