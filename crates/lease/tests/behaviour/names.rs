use crate::common::*;

/// `A` may change one name of `DIR`, which `B` watches.
fn held_name() -> Table {
    let mut table = table();
    look(&mut table, A, see_name("x"));
    look(&mut table, B, see_name("y"));
    let (id, _) = want(&mut table, A, &[names(DIR, &["x"])]);
    acknowledge(&mut table, B);
    assert_eq!(table.finish(id), [Right::Node(DIR)]);
    table.ready();
    table
}

#[test]
fn only_the_names_that_are_changed_are_dropped() {
    let mut table = table();
    look(&mut table, B, ReadItem::Listing(DIR));
    want(&mut table, A, &[names(DIR, &["x", "z"])]);
    assert_eq!(told(&mut table, B).items, [Item::Drop(names(DIR, &["x", "z"]))]);
}

#[test]
fn a_name_that_is_not_announced_is_looked_up_without_waiting() {
    let mut table = held_name();
    look(&mut table, B, see_name("y"));
    wait(&mut table, B, see_name("x"));
    assert_eq!(told(&mut table, A).items, [Item::Release(DIR)]);
}

#[test]
fn listing_and_directory_wait_for_the_holder_of_a_name() {
    for item in [ReadItem::Listing(DIR), ReadItem::Node(DIR, DIR)] {
        let mut table = held_name();
        wait(&mut table, C, item);
        assert_eq!(told(&mut table, A).items, [Item::Release(DIR)]);
    }
}

#[test]
fn more_names_are_added_to_those_that_are_held() {
    let mut table = held_name();
    let (id, answer) = want(&mut table, A, &[names(DIR, &["z"])]);
    assert_eq!((answer, told(&mut table, B).items), (Answer::Waits, vec![Item::Drop(names(DIR, &["z"]))]));
    acknowledge(&mut table, B);
    table.finish(id);
    wait(&mut table, B, see_name("x"));
    wait(&mut table, B, see_name("z"));
    look(&mut table, B, see_name("y"));
}

#[test]
fn names_granted_during_a_recall_are_recalled_again() {
    let mut table = held_name();
    let reader = wait(&mut table, B, see_name("x"));
    let first = told(&mut table, A);
    let (id, _) = want(&mut table, A, &[names(DIR, &["z"])]);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [id]);
    table.finish(id);
    // It may have released the old name before it was granted the new one.
    table.acknowledge(A, first.id, &[]);
    assert!(table.may_change(A, DIR, DIR) && table.ready().is_empty());
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [reader]);
}

#[test]
fn two_names_of_a_directory_are_changed_one_after_the_other() {
    let mut table = held_name();
    let (change, _) = want(&mut table, B, &[names(DIR, &["y"])]);
    assert_eq!(items(&mut table, A), [vec![Item::Release(DIR)], vec![Item::Drop(names(DIR, &["y"]))]]);
    acknowledge(&mut table, A);
    assert_eq!((table.ready(), table.may_change(A, DIR, DIR)), (vec![change], false));
}
