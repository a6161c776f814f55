use crate::common::*;
use shoal_lease::locks::*;

#[test]
fn overlapping_locks_of_two_owners_conflict_unless_both_are_shared() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Read, bytes(10, 19)));
    take(&mut table, posix(C, Read, bytes(15, 24)));
    assert!(!attempt(&mut table, posix(B, Write, bytes(19, 19))));
    assert!(!attempt(&mut table, posix(D, Write, from(24))));
    take(&mut table, posix(D, Write, from(25)));
    take(&mut table, posix(B, Write, bytes(0, 9)));
    assert!(!attempt(&mut table, posix(A, Read, from(9))));
}

#[test]
fn the_same_number_in_two_sessions_is_two_owners() {
    let mut table = LockTable::default();
    assert_eq!(A.owner, C.owner);
    take(&mut table, posix(A, Write, LockRange::ALL));
    assert!(!attempt(&mut table, posix(C, Read, LockRange::ALL)));
}

#[test]
fn locks_of_one_file_say_nothing_about_another() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    take(&mut table, LockRecord { ino: OTHER, ..posix(C, Write, LockRange::ALL) });
}

#[test]
fn the_lock_in_the_way_that_begins_first_is_named_with_its_process() {
    let mut table = LockTable::default();
    take(&mut table, posix(C, Read, bytes(40, 49)));
    take(&mut table, posix(B, Write, bytes(20, 29)));
    take(&mut table, posix(B, Read, bytes(0, 9)));
    let wanted = posix(A, Write, bytes(5, 60));
    assert_eq!(table.get(&wanted), Some(posix(B, Read, bytes(0, 9))));
    assert_eq!(table.set(wanted, None).outcome, Outcome::Conflict(posix(B, Read, bytes(0, 9))));
    assert_eq!(table.get(&posix(A, Read, bytes(5, 60))), Some(posix(B, Write, bytes(20, 29))));
    assert_eq!(table.get(&posix(A, Write, bytes(10, 19))), None);
    assert_eq!(table.get(&posix(B, Write, bytes(0, 39))), None, "one's own are not in the way");
}

#[test]
fn unlocking_the_middle_leaves_both_ends() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Write, LockRange::ALL));
    unlock(&mut table, posix(A, Write, bytes(10, 19)));
    assert_eq!(held(&table, A), [(bytes(0, 9), Write), (from(20), Write)]);
    take(&mut table, posix(B, Write, bytes(10, 19)));
    assert!(!attempt(&mut table, posix(B, Read, bytes(9, 10))));
}

#[test]
fn neighbouring_locks_of_the_same_kind_are_one() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Read, bytes(0, 9)));
    take(&mut table, posix(A, Read, bytes(20, 29)));
    take(&mut table, posix(A, Read, bytes(10, 19)));
    assert_eq!(held(&table, A), [(bytes(0, 29), Read)]);
    take(&mut table, posix(A, Write, from(30)));
    assert_eq!(held(&table, A), [(bytes(0, 29), Read), (from(30), Write)]);
    assert_eq!(table.held_count(A.session), 2);
}

#[test]
fn what_an_owner_sets_replaces_what_it_had_there() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Read, bytes(0, 99)));
    take(&mut table, posix(A, Write, bytes(40, 49)));
    assert_eq!(held(&table, A), [(bytes(0, 39), Read), (bytes(40, 49), Write), (bytes(50, 99), Read)]);
    take(&mut table, posix(A, Read, bytes(45, 60)));
    assert_eq!(held(&table, A), [(bytes(0, 39), Read), (bytes(40, 44), Write), (bytes(45, 99), Read)]);
    take(&mut table, posix(A, Write, LockRange::ALL));
    assert_eq!(held(&table, A), [(LockRange::ALL, Write)]);
}

#[test]
fn an_upgrade_that_is_refused_leaves_the_shared_lock() {
    let mut table = LockTable::default();
    take(&mut table, posix(A, Read, bytes(0, 9)));
    take(&mut table, posix(C, Read, bytes(5, 9)));
    assert!(!attempt(&mut table, posix(A, Write, bytes(0, 9))));
    assert_eq!(held(&table, A), [(bytes(0, 9), Read)]);
    take(&mut table, posix(A, Write, bytes(0, 4)));
}

#[test]
fn unlocking_what_is_not_locked_is_no_error() {
    let mut table = LockTable::default();
    assert!(unlock(&mut table, posix(A, Read, LockRange::ALL)).is_empty());
    take(&mut table, posix(C, Write, LockRange::ALL));
    assert!(unlock(&mut table, posix(A, Read, LockRange::ALL)).is_empty());
    assert_eq!(held(&table, C), [(LockRange::ALL, Write)]);
}

#[test]
fn closing_a_file_gives_up_the_owners_locks_of_that_file_only() {
    let mut table = LockTable::default();
    let elsewhere = LockRecord { ino: OTHER, ..posix(A, Write, LockRange::ALL) };
    take(&mut table, posix(A, Write, bytes(0, 9)));
    take(&mut table, posix(A, Read, bytes(20, 29)));
    take(&mut table, posix(B, Read, bytes(20, 29)));
    take(&mut table, elsewhere);
    assert!(table.release_owner(FILE, A).is_empty());
    assert_eq!(table.held_by(A.session), [posix(B, Read, bytes(20, 29)), elsewhere]);
    assert_eq!(table.held_count(A.session), 2);
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused_in_words_and_in_bytes() {
    assert!(LockRange::new(10, 9).is_err());
    assert!(LockRange::new(LockRange::EOF + 1, u64::MAX).is_err());
    assert_eq!(LockRange::new(5, u64::MAX), Ok(from(5)));
    let decoded = |start: u64, end: u64| {
        let bytes = postcard::to_allocvec(&(start, end)).expect("two numbers");
        postcard::from_bytes::<LockRange>(&bytes)
    };
    assert_eq!(decoded(3, 4), Ok(bytes(3, 4)));
    assert!(decoded(10, 9).is_err());
}
