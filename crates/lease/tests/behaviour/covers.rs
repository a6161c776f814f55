use crate::common::*;

#[test]
fn only_user_of_a_directory_gets_its_cover() {
    let table = held_cover();
    assert!(
        table.may_change(A, FILE2, DIR)
            && table.may_change(A, DIR, DIR)
            && !table.may_change(A, OTHER, OTHER)
    );
}

#[test]
fn reader_of_an_unwatched_directory_may_get_its_cover() {
    let mut table = table();
    look(&mut table, A, see(FILE));
    assert_eq!(table.alone(A, &[see(FILE), see(FILE2)]), [DIR]);
    look(&mut table, B, ReadItem::Listing(OTHER));
    look(&mut table, A, ReadItem::Listing(OTHER));
    assert!(table.alone(A, &[ReadItem::Listing(OTHER)]).is_empty());
}

#[test]
fn cover_is_not_granted_while_another_client_waits_for_the_directory() {
    let mut table = held_cover();
    let reader = wait(&mut table, B, see(FILE));
    assert!(table.alone(A, &[see(FILE)]).is_empty());
    let (id, _) = want(&mut table, A, &[file(FILE2)]);
    assert_eq!(table.finish(id), [Right::Node(FILE2)]);
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [reader]);
    assert!(table.may_change(A, FILE2, DIR), "given after it had been asked to go down");
}

#[test]
fn client_that_released_all_of_a_directory_no_longer_blocks_its_cover() {
    let mut table = held_file();
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    let recall = told(&mut table, B);
    table.acknowledge(B, recall.id, &[DIR]);
    assert!(!table.watches(B, DIR));
    assert_eq!(table.finish(change), [Right::Cover(DIR)]);
}

#[test]
fn client_that_was_sent_news_since_its_release_still_watches() {
    let mut table = held_file();
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    let recall = told(&mut table, B);
    // Unrelated to the change: the acknowledgement counts, but not that nothing is cached.
    look(&mut table, B, see_name("y"));
    table.acknowledge(B, recall.id, &[DIR]);
    assert!(table.watches(B, DIR));
    assert_eq!((table.ready(), table.finish(change)), (vec![change], vec![Right::Node(FILE2)]));
    let (_, answer) = want(&mut table, A, &[names(DIR, &["y"])]);
    assert_eq!(answer, Answer::Waits);
}

#[test]
fn holder_of_a_right_inside_a_directory_watches_it() {
    let mut table = held_file();
    want(&mut table, B, &[file(FILE2)]);
    let recall = told(&mut table, A);
    table.acknowledge(A, recall.id, &[DIR]);
    assert!(table.watches(A, DIR) && table.may_change(A, FILE, DIR));
}

#[test]
fn client_that_releases_a_directory_releases_all_inside_it() {
    // B stops watching, and A gets the whole directory.
    let mut table = held_file();
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    let recall = told(&mut table, B);
    table.acknowledge(B, recall.id, &[DIR]);
    assert_eq!(table.finish(change), [Right::Cover(DIR)]);
    let reader = wait(&mut table, B, see(FILE));
    let recall = table.recalls_after(A, 0).pop().expect("it is asked");
    assert_eq!(recall.items, [Item::Downgrade(DIR), Item::Release(FILE)]);
    acknowledge(&mut table, A);
    assert_eq!(table.ready().last(), Some(&reader));
    assert!(!table.may_change(A, FILE, DIR) && !table.may_change(A, FILE2, DIR));
}

#[test]
fn an_inode_that_was_held_alone_stays_held_when_its_old_directory_is() {
    // A moves FILE to another directory, which no session knows here yet; then it gets its old directory.
    let mut table = held_file();
    look(&mut table, C, ReadItem::Listing(OTHER));
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    let recall = told(&mut table, B);
    table.acknowledge(B, recall.id, &[DIR]);
    assert_eq!(table.finish(change), [Right::Cover(DIR)]);
    wait(&mut table, C, ReadItem::Node(FILE, OTHER));
    assert_eq!(told(&mut table, A).items, [Item::Release(FILE)]);
}

#[test]
fn an_answer_to_an_older_recall_does_not_take_what_was_given_since() {
    let mut table = held_cover();
    let reader = wait(&mut table, B, see(FILE));
    let (change, _) = want(&mut table, C, &[file(FILE2)]);
    let told: Vec<u64> = table.recalls_after(A, 0).iter().map(|recall| recall.id).collect();
    assert_eq!(told, [1, 2], "one for each");
    // Both stop watching before A has acknowledged the second recall.
    table.acknowledge(A, 1, &[]);
    assert_eq!(table.ready(), [reader]);
    table.give_up(change);
    table.end(B);
    table.end(C);
    look(&mut table, A, see(FILE));
    assert_eq!(table.alone(A, &[see(FILE)]), [DIR]);
    table.begin(B);
    let reader = wait(&mut table, B, see(FILE));
    table.acknowledge(A, 2, &[]);
    assert!(table.may_change(A, FILE, DIR) && table.ready().is_empty());
    table.acknowledge(A, 3, &[]);
    assert_eq!(table.ready(), [reader]);
}
