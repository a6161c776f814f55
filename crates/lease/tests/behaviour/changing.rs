use crate::common::*;

#[test]
fn a_change_has_others_drop_what_is_changed_and_they_watch_on() {
    let mut table = table();
    look(&mut table, A, see(FILE));
    look(&mut table, B, see(FILE));
    let (change, answer) = want(&mut table, A, &[file(FILE)]);
    assert_eq!((answer, table.news()), (Answer::Waits, vec![B]));
    assert_eq!(told(&mut table, B).items, [Item::Drop(file(FILE))]);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
    assert_eq!(table.finish(change), [Right::Node(FILE)]);
    assert!(table.watches(B, DIR) && table.may_change(A, FILE, DIR) && !table.may_change(A, FILE2, DIR));
}

#[test]
fn a_change_takes_what_another_may_change() {
    let mut table = held_file();
    let (change, _) = want(&mut table, B, &[file(FILE)]);
    assert_eq!(items(&mut table, A), [vec![Item::Release(FILE)], vec![Item::Drop(file(FILE))]]);
    assert!(table.may_change(A, FILE, DIR), "until it says that it does not");
    acknowledge(&mut table, A);
    assert!(!table.may_change(A, FILE, DIR));
    table.finish(change);
    assert!(table.may_change(B, FILE, DIR));
}

#[test]
fn the_holder_of_a_directory_goes_down_and_drops_for_a_change() {
    let mut table = held_cover();
    let (change, _) = want(&mut table, B, &[file(FILE)]);
    assert_eq!(items(&mut table, A), [vec![Item::Downgrade(DIR)], vec![Item::Drop(file(FILE))]]);
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [change]);
    assert_eq!(table.finish(change), [Right::Node(FILE)]);
}

#[test]
fn changes_of_the_same_inode_go_on_in_the_order_of_asking() {
    let mut table = held_file();
    let (first, _) = want(&mut table, B, &[file(FILE)]);
    let (second, _) = want(&mut table, C, &[file(FILE)]);
    let (third, _) = want(&mut table, A, &[file(FILE)]);
    assert_eq!(table.waiting(), 3);
    let mut order = Vec::new();
    for _ in 0..3 {
        [A, B, C].into_iter().for_each(|session| acknowledge(&mut table, session));
        for id in table.ready() {
            order.push(id);
            table.finish(id);
        }
    }
    assert_eq!(order, [first, second, third]);
    assert_eq!(table.waiting(), 0);
}

#[test]
fn changes_of_different_inodes_do_not_wait_for_each_other() {
    let mut table = held_file();
    let (first, _) = want(&mut table, A, &[file(FILE2)]);
    let (second, _) = want(&mut table, B, &[file(FILE)]);
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [second]);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [first]);
}

#[test]
fn older_reads_come_before_changes() {
    let mut table = held_file();
    let reader = wait(&mut table, B, see(FILE));
    let (change, answer) = want(&mut table, C, &[file(FILE)]);
    assert_eq!(answer, Answer::Waits);
    assert_eq!(told(&mut table, A).items, [Item::Release(FILE)], "no client is asked to drop it yet");
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [reader]);
    assert_eq!(table.recalls_after(B, 1).len(), 1, "B counts as a watcher before it is answered");
    assert_eq!(table.retry_read(reader, B, 0, &[see(FILE)]), Ok(Answer::Ready));
    acknowledge(&mut table, A);
    acknowledge(&mut table, B);
    assert!(table.ready().is_empty(), "B was answered after it had been asked");
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
}

#[test]
fn a_request_that_finds_that_it_is_about_more_asks_for_that_too() {
    let mut table = held_file();
    let (change, _) = want(&mut table, A, &[names(DIR, &["x"])]);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
    assert_eq!(table.extend(change, vec![file(FILE2)]), Some(Answer::Waits));
    assert_eq!(told(&mut table, B).items, [Item::Drop(file(FILE2))]);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
    assert_eq!(table.extend(change, Vec::new()), Some(Answer::Ready));
    assert_eq!(table.finish(change), [Right::Node(DIR), Right::Node(FILE2)]);
}

#[test]
fn a_target_that_is_counted_elsewhere_by_now_is_asked_for_there() {
    let mut table = held_file();
    look(&mut table, C, ReadItem::Listing(OTHER));
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    acknowledge(&mut table, B);
    let moved = Target { cover: OTHER, ..file(FILE2) };
    assert_eq!(table.extend(change, vec![moved.clone()]), Some(Answer::Waits));
    assert_eq!(told(&mut table, C).items, [Item::Drop(moved)]);
    assert!(table.recalls_after(B, 0).is_empty(), "only those who watch there");
}

#[test]
fn a_request_that_would_need_what_is_about_to_be_changed_has_to_be_made_anew() {
    let mut table = held_file();
    let (first, _) = want(&mut table, A, &[file(FILE2)]);
    let (second, answer) = want(&mut table, C, &[names(OTHER, &["x"])]);
    assert_eq!((answer, table.extend(second, vec![file(FILE2)])), (Answer::Ready, None));
    table.give_up(second);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [first]);
}

#[test]
fn a_request_that_is_given_up_lets_the_next_one_go_on() {
    let mut table = held_file();
    let (first, _) = want(&mut table, B, &[file(FILE)]);
    let (second, _) = want(&mut table, C, &[file(FILE)]);
    let (third, _) = want(&mut table, B, &[file(FILE)]);
    table.give_up(first);
    table.give_up(second);
    assert_eq!(table.waiting(), 1);
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [third]);
    assert!(table.finish(first).is_empty(), "it is not wanted any more");
}

#[test]
fn holder_is_recalled_again_if_it_reread_the_inode_before_acking() {
    let mut table = held_file();
    let lost = Target { hold: true, ..file(FILE2) };
    let (change, _) = want(&mut table, A, &[lost]);
    let recall = told(&mut table, B);
    look(&mut table, B, see(FILE2));
    table.acknowledge(B, recall.id, &[]);
    assert_eq!(table.ready(), []);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
}

#[test]
fn readers_go_on_when_the_holder_has_gone_down_though_it_has_not_dropped() {
    let mut table = held_cover();
    let (change, _) = want(&mut table, C, &[file(FILE)]);
    let reader = wait(&mut table, B, see_name("x"));
    table.acknowledge(A, 1, &[]);
    assert_eq!(table.ready(), [reader]);
    table.acknowledge(A, 2, &[]);
    assert_eq!(table.ready(), [change]);

    let mut table = held_file();
    let (change, _) = want(&mut table, C, &[file(FILE)]);
    let reader = wait(&mut table, B, see(FILE));
    table.acknowledge(A, 1, &[]);
    assert_eq!(table.ready(), [reader], "what it is told it drops afterwards");
    table.acknowledge(A, 2, &[]);
    acknowledge(&mut table, B);
    assert!(table.ready().is_empty());
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
}

#[test]
fn a_holder_that_has_dropped_and_not_gone_down_is_waited_for() {
    let mut table = held_cover();
    let (change, _) = want(&mut table, B, &[file(FILE)]);
    table.acknowledge(A, 2, &[DIR]);
    assert!(table.ready().is_empty() && table.may_change(A, FILE2, DIR) && table.watches(A, DIR));
    let reader = wait(&mut table, A, see(FILE));
    table.acknowledge(A, 1, &[]);
    assert_eq!((table.ready(), table.may_change(A, FILE2, DIR)), (vec![change], false));
    table.finish(change);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [reader]);
}

#[test]
fn a_release_that_is_acknowledged_after_the_drop_takes_nothing_that_was_given_since() {
    let mut table = held_file();
    let (change, _) = want(&mut table, B, &[file(FILE)]);
    table.acknowledge(A, 2, &[]);
    table.give_up(change);
    let (change, _) = want(&mut table, A, &[file(FILE)]);
    acknowledge(&mut table, B);
    assert_eq!(table.finish(change), [Right::Node(FILE)]);
    table.acknowledge(A, 1, &[]);
    assert!(table.may_change(A, FILE, DIR));
}

#[test]
fn a_holder_that_is_going_down_already_is_not_told_twice_and_is_waited_for() {
    let mut table = held_cover();
    wait(&mut table, B, see_name("x"));
    let (change, _) = want(&mut table, C, &[file(FILE)]);
    assert_eq!(items(&mut table, A), [vec![Item::Downgrade(DIR)], vec![Item::Drop(file(FILE))]]);
    table.acknowledge(A, 2, &[]);
    table.end(B);
    assert!(table.ready().is_empty());
    table.acknowledge(A, 1, &[]);
    assert_eq!(table.ready(), [change]);
}

#[test]
fn waiting_reader_is_answered_before_its_new_lease_is_recalled() {
    let mut table = held_file();
    look(&mut table, B, ReadItem::Listing(OTHER));
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
    let reader = wait(&mut table, B, see(FILE2));
    assert_eq!(table.extend(change, vec![Target { cover: OTHER, ..file(FILE2) }]), Some(Answer::Waits));
    assert_eq!(table.ready(), [reader]);
}
