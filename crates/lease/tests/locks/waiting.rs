use crate::common::*;
use shoal_lease::locks::*;

#[test]
fn who_waits_is_granted_in_the_order_of_asking() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    let first = wait(&mut table, posix(C, Write, LockRange::ALL), 1);
    let second = wait(&mut table, posix(B, Write, LockRange::ALL), 2);
    assert_eq!(unlock(&mut table, posix(A, Write, LockRange::ALL)), [first]);
    assert_eq!(unlock(&mut table, posix(C, Write, LockRange::ALL)), [second]);
    assert_eq!(table.waiting_count(), 0);
}

#[test]
fn all_who_wait_to_read_are_granted_together() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    let one = wait(&mut table, posix(C, Read, LockRange::ALL), 1);
    wait(&mut table, posix(B, Write, LockRange::ALL), 2);
    let other = wait(&mut table, posix(D, Read, LockRange::ALL), 3);
    assert_eq!(unlock(&mut table, posix(A, Write, LockRange::ALL)), [one, other]);
}

#[test]
fn part_of_a_range_is_enough_for_who_waits_for_that_part() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, bytes(0, 99)));
    wait(&mut table, posix(B, Write, bytes(0, 99)), 1);
    let part = wait(&mut table, posix(C, Write, bytes(40, 49)), 2);
    assert_eq!(unlock(&mut table, posix(A, Write, bytes(30, 60))), [part]);
}

#[test]
fn a_downgrade_lets_readers_in() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    let reader = wait(&mut table, posix(C, Read, bytes(0, 9)), 1);
    let downgraded = table.set(posix(A, Read, LockRange::ALL), None);
    assert_eq!(downgraded, Settled { outcome: Granted, granted: vec![reader] });
}

#[test]
fn a_granted_lock_that_weakens_its_owners_own_lets_in_who_came_before() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, bytes(0, 9)));
    take(&mut table, posix(B, Write, bytes(10, 19)));
    let reader = wait(&mut table, posix(C, Read, bytes(0, 9)), 1);
    // It requests a shared lock on all bytes: its own exclusive lock becomes a shared one when that is
    // granted.
    let both = wait(&mut table, posix(A, Read, bytes(0, 19)), 2);
    assert_eq!(unlock(&mut table, posix(B, Write, bytes(10, 19))), [both, reader]);
}

#[test]
fn who_does_not_conflict_with_what_is_held_passes_those_who_wait() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Read, LockRange::ALL));
    wait(&mut table, posix(C, Write, LockRange::ALL), 1);
    take(&mut table, posix(B, Read, LockRange::ALL));
}

#[test]
fn a_waiting_upgrade_keeps_its_shared_lock_until_then() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Read, LockRange::ALL));
    take(&mut table, posix(C, Read, LockRange::ALL));
    let upgrade = wait(&mut table, posix(A, Write, LockRange::ALL), 1);
    assert_eq!(held(&table, A), [(LockRange::ALL, Read)]);
    assert_eq!(table.release_owner(FILE, C), [upgrade]);
    assert_eq!(held(&table, A), [(LockRange::ALL, Write)]);
}

#[test]
fn a_cancelled_request_is_never_granted() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    let gone = wait(&mut table, posix(B, Write, LockRange::ALL), 1);
    let stays = wait(&mut table, posix(C, Write, LockRange::ALL), 2);
    assert!(table.cancel(gone));
    assert_eq!(unlock(&mut table, posix(A, Write, LockRange::ALL)), [stays]);
    assert!(!table.cancel(gone), "it does not wait any more");
    assert!(!table.cancel(stays), "it has its lock");
    assert_eq!(held(&table, B), []);
}

#[test]
fn a_request_that_comes_again_keeps_its_turn() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    let wanted = posix(B, Write, LockRange::ALL);
    let first = wait(&mut table, wanted, 1);
    wait(&mut table, posix(C, Write, LockRange::ALL), 2);
    wait(&mut table, wanted, 1);
    assert_eq!(table.waiting_count(), 2);
    assert_eq!(unlock(&mut table, posix(A, Write, LockRange::ALL)), [first]);
    // If the answer is lost, the request is retried, and granted again.
    assert_eq!(table.set(wanted, Some(first)).outcome, Granted);
}

#[test]
fn a_request_that_comes_again_with_another_wish_replaces_the_first() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    let key = wait(&mut table, posix(C, Write, bytes(0, 9)), 1);
    assert_eq!(wait(&mut table, posix(C, Write, bytes(20, 29)), 1), key);
    assert!(unlock(&mut table, posix(A, Write, bytes(0, 9))).is_empty());
    assert_eq!(unlock(&mut table, posix(A, Write, bytes(20, 29))), [key]);
}

#[test]
fn closing_a_file_leaves_what_the_owner_waits_for() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    let waits = wait(&mut table, posix(C, Write, LockRange::ALL), 1);
    table.release_owner(FILE, C);
    assert_eq!(table.release_owner(FILE, A), [waits]);
}

#[test]
fn a_session_that_ends_frees_its_locks_and_waits_no_longer() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, bytes(0, 9)));
    take(&mut table, flock(B, Write));
    take(&mut table, posix(C, Write, bytes(10, 19)));
    wait(&mut table, posix(B, Write, bytes(10, 19)), 1);
    let one = wait(&mut table, posix(C, Write, bytes(0, 9)), 2);
    let other = wait(&mut table, flock(D, Write), 3);
    assert_eq!(table.release_session(A.session), [one, other]);
    assert_eq!((table.held_count(A.session), table.waiting_count()), (0, 0));
    assert!(unlock(&mut table, posix(C, Write, bytes(10, 19))).is_empty(), "the dead get nothing");
}
