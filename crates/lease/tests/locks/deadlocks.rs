use crate::common::*;
use shoal_lease::locks::*;

fn of(owner: LockOwner, byte: u64) -> LockRecord {
    posix(owner, Write, bytes(byte, byte))
}

fn outcome(table: &mut LockTable, lock: LockRecord, request: u64) -> Outcome {
    table.set(lock, Some(key(&lock, request))).outcome
}

#[test]
fn two_who_would_wait_for_each_other_are_told() {
    let mut table = LockTable::default();
    take(&mut table, of(A, 0));
    take(&mut table, of(C, 1));
    wait(&mut table, of(A, 1), 1);
    assert_eq!(outcome(&mut table, of(C, 0), 2), Deadlock);
    // The refused owner keeps its locks.
    assert_eq!(held(&table, C), [(bytes(1, 1), Write)]);
    assert_eq!(table.waiting_count(), 1);
}

#[test]
fn a_circle_over_several_owners_and_files_is_found() {
    let mut table = LockTable::default();
    let elsewhere = |owner, byte| LockRecord { ino: OTHER, ..of(owner, byte) };
    take(&mut table, of(A, 0));
    take(&mut table, elsewhere(B, 0));
    take(&mut table, of(C, 2));
    take(&mut table, elsewhere(D, 3));
    wait(&mut table, elsewhere(A, 0), 1);
    wait(&mut table, of(B, 2), 2);
    wait(&mut table, elsewhere(C, 3), 3);
    assert_eq!(outcome(&mut table, of(D, 0), 4), Deadlock);
}

#[test]
fn two_who_share_and_both_want_it_alone_are_a_deadlock() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Read, bytes(0, 0)));
    take(&mut table, posix(C, Read, bytes(0, 0)));
    let first = wait(&mut table, of(A, 0), 1);
    assert_eq!(outcome(&mut table, of(C, 0), 2), Deadlock);
    assert_eq!(table.release_owner(FILE, C), [first]);
}

#[test]
fn request_that_does_not_wait_is_never_a_deadlock() {
    let mut table = LockTable::default();
    take(&mut table, of(A, 0));
    take(&mut table, of(C, 1));
    wait(&mut table, of(A, 1), 1);
    assert!(!attempt(&mut table, of(C, 0)));
}

#[test]
fn a_cancelled_request_is_no_part_of_a_circle() {
    let mut table = LockTable::default();
    take(&mut table, of(A, 0));
    take(&mut table, of(C, 1));
    let given_up = wait(&mut table, of(A, 1), 1);
    assert!(table.cancel(given_up));
    wait(&mut table, of(C, 0), 2);
}

#[test]
fn a_chain_without_a_circle_waits() {
    let mut table = LockTable::default();
    take(&mut table, of(A, 0));
    take(&mut table, of(B, 1));
    take(&mut table, of(C, 2));
    wait(&mut table, of(C, 1), 1);
    wait(&mut table, of(B, 0), 2);
    wait(&mut table, of(D, 2), 3);
}

#[test]
fn flock_has_no_deadlock_detection() {
    let mut table = LockTable::default();
    let elsewhere = |owner| LockRecord { ino: OTHER, ..flock(owner, Write) };
    take(&mut table, flock(A, Write));
    take(&mut table, elsewhere(C));
    wait(&mut table, elsewhere(A), 1);
    wait(&mut table, flock(C, Write), 2);
}
