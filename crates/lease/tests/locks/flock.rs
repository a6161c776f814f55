use crate::common::*;
use shoal_lease::locks::*;

#[test]
fn flock_and_fcntl_do_not_see_each_other() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    take(&mut table, flock(C, Write));
    assert!(!attempt(&mut table, flock(A, Read)));
    assert!(!attempt(&mut table, posix(C, Read, bytes(0, 0))));
}

#[test]
fn an_flock_is_of_the_whole_file_whatever_range_is_named() {
    let mut table = LockTable::default();
    take(&mut table, LockRecord { range: bytes(0, 9), ..flock(A, Write) });
    assert!(!attempt(&mut table, LockRecord { range: bytes(50, 59), ..flock(B, Write) }));
    unlock(&mut table, LockRecord { range: bytes(70, 79), ..flock(A, Write) });
    take(&mut table, flock(B, Write));
}

#[test]
fn shared_flocks_exclude_an_exclusive_one() {
    let mut table = LockTable::default();
    take(&mut table, flock(A, Read));
    take(&mut table, flock(C, Read));
    assert!(!attempt(&mut table, flock(D, Write)));
}

#[test]
fn a_conversion_that_must_not_wait_and_fails_has_given_up_the_old_lock() {
    let mut table = LockTable::default();
    take(&mut table, flock(A, Read));
    take(&mut table, flock(C, Read));
    assert!(!attempt(&mut table, flock(A, Write)));
    assert_eq!(held(&table, A), []);
    take(&mut table, flock(C, Write));
}

#[test]
fn two_who_upgrade_at_once_get_it_one_after_the_other() {
    let mut table = LockTable::default();
    take(&mut table, flock(A, Read));
    take(&mut table, flock(C, Read));
    let first = wait(&mut table, flock(A, Write), 1);
    take(&mut table, flock(C, Write));
    assert_eq!(unlock(&mut table, flock(C, Write)), [first]);
    assert_eq!(held(&table, A), [(LockRange::ALL, Write)]);
}

#[test]
fn a_conversion_lets_in_who_waited_for_the_old_lock() {
    let mut table = LockTable::default();
    take(&mut table, flock(A, Write));
    let reader = wait(&mut table, flock(C, Read), 1);
    let downgraded = table.set(flock(A, Read), None);
    assert_eq!(downgraded, Settled { outcome: Granted, granted: vec![reader] });
}

#[test]
fn taking_the_same_flock_again_changes_nothing() {
    let mut table = LockTable::default();
    take(&mut table, flock(A, Write));
    let waits = wait(&mut table, flock(C, Write), 1);
    take(&mut table, flock(A, Write));
    assert_eq!(table.release_owner(FILE, A), [waits]);
}
