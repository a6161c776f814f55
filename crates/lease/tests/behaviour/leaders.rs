use crate::common::*;

#[test]
fn everything_waits_until_every_session_has_said_what_it_holds() {
    let mut table = Table::recover([A, B]);
    let reader = wait(&mut table, A, see(FILE));
    let (change, answer) = want(&mut table, A, &[names(OTHER, &["x"])]);
    assert_eq!(answer, Answer::Waits);
    assert!(!table.read_along(A, 1, OTHER, OTHER));
    assert_eq!(table.reclaim(A, &[(DIR, false)], &[], true), Ok(()));
    assert_eq!((table.reclaiming(), table.is_reclaiming(A)), (vec![B], false));
    assert!(table.ready().is_empty());
    assert_eq!(table.reclaim(B, &[(DIR, false)], &[(FILE, DIR, vec![])], true), Ok(()));
    assert!(!table.recovering());
    assert_eq!(table.ready(), [change], "B may be changing what A wants to see");
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [reader]);
}

#[test]
fn a_session_that_ends_need_not_say_anything() {
    let mut table = Table::recover([A, B]);
    let reader = wait(&mut table, A, see(FILE));
    assert_eq!(table.reclaim(A, &[], &[], true), Ok(()));
    table.end(B);
    assert_eq!(table.ready(), [reader]);
}

#[test]
fn what_was_reclaimed_is_held_as_before() {
    let mut table = Table::recover([A, B]);
    table.reclaim(A, &[(OTHER, true)], &[], false).expect("no other session contradicts");
    table.reclaim(A, &[], &[(DIR, DIR, vec![name("x")])], true).expect("no other session contradicts");
    table.reclaim(B, &[(DIR, false)], &[], true).expect("no other session contradicts");
    assert!(table.may_change(A, FILE, OTHER) && table.may_change(A, DIR, DIR));
    look(&mut table, B, see_name("y"));
    wait(&mut table, B, see_name("x"));
    wait(&mut table, B, ReadItem::Listing(OTHER));
    assert_eq!(table.recalls_after(A, 0).len(), 2);
}

#[test]
fn what_contradicts_others_is_refused() {
    let reclaimed = |covers: &[(InodeId, bool)], nodes: &[(InodeId, InodeId, Vec<Name>)]| {
        let mut table = Table::recover([A, B]);
        table.reclaim(A, covers, nodes, true).expect("it is the first");
        table
    };
    let refused = Err(Refusal::Contradiction);
    let mut table = reclaimed(&[(DIR, true)], &[]);
    assert_eq!(table.reclaim(B, &[(DIR, true)], &[], true), refused);
    assert_eq!(table.reclaim(B, &[(DIR, false)], &[], true), refused);
    assert_eq!(table.reclaim(B, &[], &[(FILE, DIR, vec![])], true), refused);
    let mut table = reclaimed(&[(DIR, false)], &[]);
    assert_eq!(table.reclaim(B, &[(DIR, true)], &[], true), refused);
    let mut table = reclaimed(&[], &[(FILE, DIR, vec![])]);
    assert_eq!(table.reclaim(B, &[], &[(FILE, DIR, vec![])], true), refused);
    assert!(table.recovering());
    table.end(B);
    assert!(!table.recovering() && table.may_change(A, FILE, DIR) && !table.watches(B, DIR));
}

#[test]
fn a_reclaim_that_comes_twice_counts_once() {
    let mut table = Table::recover([A, B]);
    table.reclaim(A, &[(DIR, false)], &[(FILE, DIR, vec![])], false).expect("no other session contradicts");
    // It has moved the file before it reclaims again.
    let again = [(FILE, OTHER, vec![])];
    table.reclaim(A, &[(DIR, false), (OTHER, false)], &again, true).expect("no other session contradicts");
    table.reclaim(A, &[(InodeId(77), true)], &[], true).expect("it has said so already");
    table.reclaim(B, &[(DIR, false)], &[], true).expect("no other session contradicts");
    assert!(!table.may_change(A, InodeId(78), InodeId(77)));
    wait(&mut table, B, see(FILE));
    acknowledge(&mut table, A);
    table.end(B);
    assert_eq!(take(&mut table, A, file(FILE2)), [Right::Cover(DIR)]);
    table.end(A);
    assert!(table.is_empty());
}

#[test]
fn what_is_born_while_others_reclaim_is_held() {
    let mut table = Table::recover([A, B]);
    table.reclaim(A, &[(DIR, false)], &[], true).expect("no other session contradicts");
    table.born(A, &[(FILE, DIR)]);
    table.reclaim(B, &[(DIR, false)], &[], true).expect("no other session contradicts");
    wait(&mut table, B, see(FILE));
}
