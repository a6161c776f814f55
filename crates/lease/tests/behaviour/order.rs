use crate::common::*;

/// `A` has watched, and `B` wants to change `FILE`, while replies 1 and 2 are in flight to `A`.
fn answered() -> Table {
    let mut table = table();
    look(&mut table, B, see_name("x"));
    for token in [1, 2] {
        assert_eq!(table.read(A, token, &[see(FILE)]).map(|(_, answer)| answer), Ok(Answer::Ready));
    }
    want(&mut table, B, &[file(FILE)]);
    table
}

#[test]
fn a_recall_names_the_answers_that_may_be_on_their_way() {
    let mut table = answered();
    assert_eq!(told(&mut table, A).after, [1, 2]);
}

#[test]
fn answers_that_have_arrived_are_not_named() {
    let mut table = answered();
    table.arrived(A, 2);
    assert_eq!(told(&mut table, A).after, [2]);
    table.arrived(A, 3);
    assert!(told(&mut table, A).after.is_empty());
}

#[test]
fn answers_that_come_after_a_recall_are_not_named_in_it() {
    let mut table = answered();
    look(&mut table, A, see_name("x"));
    assert_eq!(table.read(A, 3, &[see_name("y")]).map(|(_, answer)| answer), Ok(Answer::Ready));
    assert_eq!(told(&mut table, A).after, [1, 2]);
}

#[test]
fn rights_that_may_be_on_their_way_are_named() {
    let mut table = table();
    let (id, answer) = table.acquire(A, 5, vec![file(FILE)]).expect("the session lives");
    assert_eq!((answer, table.finish(id)), (Answer::Ready, vec![Right::Cover(DIR)]));
    wait(&mut table, B, see(FILE));
    assert_eq!(told(&mut table, A).after, [5]);
}

#[test]
fn what_is_recalled_once_more_comes_after_what_was_answered_meanwhile() {
    let mut table = answered();
    let recall = told(&mut table, A);
    assert_eq!(table.read(A, 3, &[see(FILE)]).map(|(_, answer)| answer), Ok(Answer::Ready));
    table.acknowledge(A, recall.id, &[]);
    assert_eq!(told(&mut table, A).after, [1, 2, 3]);
}

#[test]
fn unacknowledged_recall_is_repeated_to_holders_that_have_not_seen_it() {
    let mut table = held_file();
    wait(&mut table, B, see(FILE));
    want(&mut table, B, &[file(FILE2)]);
    let all = table.recalls_after(A, 0);
    assert_eq!(all.iter().map(|recall| recall.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(table.recalls_after(A, 0), all);
    assert_eq!(table.recalls_after(A, 1), all[1..]);
    table.acknowledge(A, 1, &[]);
    assert_eq!(table.recalls_after(A, 0), all[1..]);
    assert!(table.recalls_after(A, 2).is_empty() && table.recalls_after(A, u64::MAX).is_empty());
}

#[test]
fn an_acknowledgement_that_comes_twice_or_is_made_up_changes_nothing() {
    let mut table = held_file();
    let reader = wait(&mut table, B, see(FILE));
    table.acknowledge(A, 99, &[DIR]);
    assert!(table.ready().is_empty());
    table.acknowledge(A, 1, &[]);
    table.acknowledge(A, 1, &[DIR]);
    assert_eq!(table.ready(), [reader]);
    assert!(table.watches(A, DIR));
}

#[test]
fn waiting_request_names_the_sessions_that_it_waits_for() {
    let mut table = held_file();
    let read = wait(&mut table, B, see(FILE));
    assert_eq!(table.waited_for(read), [A].into());
    let (behind, answer) = want(&mut table, C, &[file(FILE)]);
    assert_eq!((answer, table.waited_for(behind)), (Answer::Waits, [B].into()));
    let recalls = table.all_unacknowledged();
    assert_eq!(recalls.iter().map(|(session, id, ..)| (*session, *id)).collect::<Vec<_>>(), [(A, 1)]);
    table.acknowledge(A, 1, &[]);
    assert_eq!((table.waited_for(read), table.ready()), ([].into(), vec![read]));
    // The change is next, and has recalled the file from both that may have it cached.
    assert_eq!(table.waited_for(behind), [A, B].into());
}
