use crate::common::*;

#[test]
fn two_sessions_watch_the_same_directory() {
    let mut table = table();
    look(&mut table, A, see(FILE));
    look(&mut table, B, ReadItem::Listing(DIR));
    assert!(table.watches(A, DIR) && table.watches(B, DIR) && !table.watches(C, DIR));
    assert!(table.news().is_empty());
}

#[test]
fn a_holder_of_a_directory_goes_down_for_a_reader_and_goes_on_watching() {
    let mut table = held_cover();
    let reader = wait(&mut table, B, see(FILE2));
    assert_eq!(table.news(), [A]);
    assert_eq!(told(&mut table, A).items, [Item::Downgrade(DIR)]);
    assert!(table.ready().is_empty());
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [reader]);
    assert_eq!(table.retry_read(reader, B, 0, &[see(FILE2)]), Ok(Answer::Ready));
    assert!(!table.may_change(A, FILE, DIR) && table.watches(A, DIR) && table.watches(B, DIR));
}

#[test]
fn a_holder_of_a_file_gives_it_back_for_a_reader_of_that_file_only() {
    let mut table = held_file();
    look(&mut table, B, see(FILE2));
    let reader = wait(&mut table, B, see(FILE));
    assert_eq!(told(&mut table, A).items, [Item::Release(FILE)]);
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [reader]);
}

#[test]
fn many_readers_recall_a_holder_once() {
    let mut table = held_file();
    let first = wait(&mut table, B, see(FILE));
    let second = wait(&mut table, C, see(FILE));
    assert_eq!(table.recalls_after(A, 0).len(), 1);
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [first, second]);
}

#[test]
fn a_reader_that_has_not_acknowledged_is_answered_and_its_acknowledgement_then_does_not_count() {
    let mut table = held_file();
    let (change, answer) = want(&mut table, A, &[file(FILE2)]);
    assert_eq!(answer, Answer::Waits);
    let recall = told(&mut table, B);
    look(&mut table, B, see(FILE2));
    table.acknowledge(B, recall.id, &[]);
    assert!(table.ready().is_empty());
    let again = told(&mut table, B);
    assert_eq!((again.id, &again.items), (recall.id + 1, &vec![Item::Drop(file(FILE2))]));
    table.acknowledge(B, again.id, &[]);
    assert_eq!(table.ready(), [change]);
}

#[test]
fn looking_at_something_else_does_not_call_an_acknowledgement_in_doubt() {
    let mut table = held_file();
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    look(&mut table, B, see_name("unrelated"));
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
}

#[test]
fn a_reader_that_has_acknowledged_waits_until_the_change_is_made() {
    let mut table = held_file();
    look(&mut table, C, see_name("other"));
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    acknowledge(&mut table, B);
    let reader = wait(&mut table, B, see(FILE2));
    look(&mut table, C, see(FILE2));
    acknowledge(&mut table, C);
    assert!(table.ready().is_empty(), "what C was told last has to be dropped, too");
    acknowledge(&mut table, C);
    assert_eq!(table.ready(), [change]);
    table.finish(change);
    assert!(table.ready().is_empty(), "now A may change it");
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [reader]);
}

#[test]
fn client_that_did_not_watch_waits_for_a_change_in_preparation() {
    let mut table = held_file();
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    let reader = wait(&mut table, C, see(FILE2));
    table.give_up(change);
    assert_eq!(table.ready(), [reader]);
}

#[test]
fn inodes_on_the_way_are_sent_along_only_if_no_client_may_be_changing_them() {
    let mut table = held_file();
    look(&mut table, B, ReadItem::Listing(OTHER));
    assert_eq!(table.held_by_others(B, DIR), [FILE]);
    assert!(!table.read_along(B, 7, FILE, DIR));
    assert!(table.read_along(A, 7, FILE, DIR), "it is its own");
    assert!(table.read_along(C, 7, OTHER, OTHER) && table.watches(C, OTHER));
    assert!(table.news().is_empty(), "no client is asked for it");
}

#[test]
fn what_a_reader_is_told_of_a_change_that_waits_for_it_anyway_is_dropped_too() {
    let mut table = held_file();
    let (change, _) = want(&mut table, A, &[file(FILE2), names(OTHER, &["x"])]);
    let recall = told(&mut table, B);
    assert_eq!(recall.items, [Item::Drop(file(FILE2))], "it has not watched the other directory");
    look(&mut table, B, ReadItem::Listing(OTHER));
    table.acknowledge(B, recall.id, &[]);
    assert_eq!(told(&mut table, B).items, [Item::Drop(names(OTHER, &["x"]))]);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
}
