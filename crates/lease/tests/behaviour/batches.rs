use crate::common::*;

const NEW: InodeId = InodeId(50);

#[test]
fn a_new_directory_is_its_makers_alone() {
    let mut table = table();
    table.born(A, &[(NEW, NEW)]);
    assert!(table.may_change(A, NEW, NEW) && table.watches(A, NEW));
    wait(&mut table, B, ReadItem::Listing(NEW));
    assert_eq!(told(&mut table, A).items, [Item::Downgrade(NEW)]);
}

#[test]
fn a_new_file_in_a_shared_directory_is_its_makers_alone() {
    let mut table = held_file();
    table.born(A, &[(NEW, DIR)]);
    assert!(table.may_change(A, NEW, DIR));
    wait(&mut table, B, see(NEW));
    assert_eq!(told(&mut table, A).items, [Item::Release(NEW)]);
}

#[test]
fn an_old_batch_that_comes_once_more_takes_nothing_from_others() {
    let mut table = table();
    table.born(A, &[(NEW, NEW)]);
    let reader = wait(&mut table, B, ReadItem::Listing(NEW));
    acknowledge(&mut table, A);
    assert_eq!(table.retry_read(reader, B, 0, &[ReadItem::Listing(NEW)]), Ok(Answer::Ready));
    table.born(A, &[(NEW, NEW)]);
    assert!(!table.may_change(A, NEW, NEW));

    let mut table = held_file();
    table.born(B, &[(FILE, DIR)]);
    assert!(table.may_change(A, FILE, DIR) && !table.may_change(B, FILE, DIR));
    table.born(B, &[(FILE, OTHER)]);
    assert!(!table.watches(B, OTHER));
    table.end(A);
    table.end(B);
    assert!(table.is_empty());
}

#[test]
fn what_is_no_more_leaves_nothing_behind() {
    let mut table = held_file();
    table.born(A, &[(NEW, NEW)]);
    let before = table.len();
    table.gone(A, &[NEW, FILE]);
    assert_eq!(table.len(), before - 2);
    table.gone(A, &[NEW, FILE]);
    assert_eq!(table.len(), before - 2);
    look(&mut table, B, see(FILE));
}

#[test]
fn lease_of_another_session_is_not_released_by_a_foreign_batch() {
    let mut table = held_file();
    table.gone(B, &[FILE, DIR]);
    assert!(table.may_change(A, FILE, DIR) && table.watches(A, DIR));
}

#[test]
fn recalled_lease_stays_until_its_holder_releases_it() {
    let mut table = held_file();
    let reader = wait(&mut table, B, see(FILE));
    table.gone(A, &[FILE]);
    assert!(table.ready().is_empty());
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [reader]);
}

#[test]
fn an_inode_that_is_held_and_moves_is_held_where_it_is_then() {
    let mut table = held_file();
    look(&mut table, C, ReadItem::Listing(OTHER));
    table.born(A, &[(FILE, OTHER)]);
    assert_eq!(table.held_by_others(C, OTHER), [FILE]);
    assert_eq!(table.held_by_others(C, DIR), [FILE], "there it is found until the batch has been applied");
    table.settled(A, &[(FILE, OTHER)]);
    assert!(table.held_by_others(C, DIR).is_empty() && table.watches(A, OTHER));
    table.born(B, &[(FILE, DIR)]);
    assert_eq!(table.held_by_others(C, OTHER), [FILE], "only its holder can say so");
}

#[test]
fn what_its_holder_moves_while_asking_for_it_once_more_is_held_where_it_is_then() {
    let mut table = held_file();
    look(&mut table, C, ReadItem::Listing(OTHER));
    let (id, _) = want(&mut table, A, &[file(FILE)]);
    table.born(A, &[(FILE, OTHER)]);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [id]);
    assert_eq!(table.finish(id), [Right::Node(FILE)]);
    assert_eq!(table.held_by_others(C, OTHER), [FILE]);
    table.settled(A, &[(FILE, OTHER)]);
    assert!(table.held_by_others(C, DIR).is_empty());
}

#[test]
fn what_moves_on_and_back_is_held_wherever_it_is_found() {
    let mut table = held_file();
    table.born(A, &[(FILE, OTHER)]);
    table.born(A, &[(FILE, DIR)]);
    let held = |table: &Table| [DIR, OTHER].map(|dir| table.held_by_others(C, dir).len());
    assert_eq!(held(&table), [1, 1]);
    table.settled(A, &[(FILE, OTHER)]);
    assert_eq!(held(&table), [1, 1]);
    table.settled(A, &[(FILE, DIR)]);
    assert_eq!(held(&table), [1, 0]);
    // A recall in the middle removes all of it.
    table.born(A, &[(FILE, OTHER)]);
    table.gone(A, &[FILE]);
    assert_eq!(held(&table), [0, 0]);
}

#[test]
fn what_a_request_is_not_about_any_more_is_not_given() {
    let mut table = held_file();
    let (id, _) = want(&mut table, B, &[file(FILE2), file(FILE)]);
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [id]);
    let (later, answer) = want(&mut table, A, &[file(FILE)]);
    assert_eq!(answer, Answer::Waits);
    table.keep_only(id, &[FILE2].into());
    assert_eq!(table.finish(id), [Right::Node(FILE2)]);
    assert!(!table.may_change(B, FILE, DIR));
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [later]);
    assert_eq!(table.finish(later), [Right::Node(FILE)]);
}

#[test]
fn new_file_is_held_also_by_the_holder_of_its_directory_cover() {
    let mut table = held_cover();
    table.born(A, &[(NEW, DIR)]);
    wait(&mut table, B, ReadItem::Listing(DIR));
    assert_eq!(told(&mut table, A).items, [Item::Downgrade(DIR), Item::Release(NEW)]);
}
