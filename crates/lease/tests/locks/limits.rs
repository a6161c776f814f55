use crate::common::*;
use shoal_lease::limits::*;
use shoal_lease::locks::*;

/// A session with as many locks as it may have, less some: single bytes, each with a gap after it.
fn nearly_full(less: usize) -> LockTable {
    let mut table = LockTable::default();
    for n in 0..(LOCKS_PER_SESSION_MAX - less) as u64 {
        take(&mut table, posix(A, Write, bytes(2 * n, 2 * n)));
    }
    table
}

#[test]
fn lock_limit_is_per_session() {
    let mut table = nearly_full(0);
    let far = from(1 << 40);
    assert_eq!(table.set(posix(B, Read, far), None).outcome, Outcome::NoRoom);
    assert_eq!(table.set(flock(A, Read), None).outcome, Outcome::NoRoom);
    take(&mut table, posix(C, Read, far));
    // A request that does not increase their number is always possible.
    take(&mut table, posix(A, Read, bytes(0, 0)));
    take(&mut table, posix(A, Write, bytes(0, 9)));
    take(&mut table, posix(B, Read, far));
    unlock(&mut table, posix(A, Write, LockRange::ALL));
    assert_eq!(table.held_count(A.session), 1);
}

#[test]
fn the_middle_of_a_lock_cannot_be_given_up_without_room() {
    let mut table = nearly_full(1);
    let far = bytes(1 << 40, (1 << 40) + 9);
    take(&mut table, posix(A, Write, far));
    let middle = bytes((1 << 40) + 4, (1 << 40) + 4);
    assert_eq!(table.unlock(FILE, Posix, A, middle).outcome, Outcome::NoRoom);
    assert_eq!(table.get(&posix(C, Read, from(1 << 40))), Some(posix(A, Write, far)), "nothing has changed");
    unlock(&mut table, posix(A, Write, bytes(0, 0)));
    unlock(&mut table, posix(A, Write, middle));
}

#[test]
fn room_for_a_waiting_lock_is_kept() {
    let mut table = nearly_full(LOCKS_PER_WAITER + 1);
    let wanted = LockRecord { ino: OTHER, ..posix(A, Write, LockRange::ALL) };
    let in_the_way = LockRecord { owner: C, ..wanted };
    take(&mut table, in_the_way);
    let waits = wait(&mut table, wanted, 1);
    take(&mut table, flock(A, Write));
    assert_eq!(table.set(flock(B, Write), None).outcome, Outcome::Conflict(flock(A, Write)));
    assert_eq!(table.set(posix(A, Read, from(1 << 40)), None).outcome, Outcome::NoRoom);
    assert_eq!(table.set(wanted, Some(key(&wanted, 2))).outcome, Outcome::NoRoom);
    assert_eq!(unlock(&mut table, in_the_way), [waits]);
    assert!(table.held_count(A.session) <= LOCKS_PER_SESSION_MAX);
}

#[test]
fn only_so_many_wait_for_one_file() {
    let mut table = LockTable::default();
    take(&mut table, flock(A, Write));
    for n in 0..WAITERS_PER_INODE_MAX as u64 {
        wait(&mut table, flock(owner(1000 + n, 1), Write), 1);
    }
    let late = flock(owner(9, 9), Write);
    assert_eq!(table.set(late, Some(key(&late, 1))).outcome, Outcome::NoRoom);
    // Another session has its own limit; and a release makes room here.
    take(&mut table, LockRecord { ino: OTHER, ..flock(C, Write) });
    wait(&mut table, LockRecord { ino: OTHER, ..late }, 2);
    assert!(table.cancel(RequestKey { session: owner(1000, 1).session, request: 1 }));
    wait(&mut table, late, 3);
}
