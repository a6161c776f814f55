use crate::common::*;

#[test]
fn request_without_a_session_is_refused() {
    let mut table = Table::new();
    assert_eq!(table.read(A, 1, &[see(FILE)]), Err(Refusal::Unknown));
    assert_eq!(table.retry_read(RequestId(1), A, 1, &[see(FILE)]), Err(Refusal::Unknown));
    assert_eq!(table.acquire(A, 1, vec![file(FILE)]), Err(Refusal::Unknown));
    assert_eq!(table.reclaim(A, &[(DIR, true)], &[], true), Err(Refusal::Unknown));
    table.born(A, &[(DIR, DIR)]);
    table.gone(A, &[DIR]);
    table.acknowledge(A, 1, &[]);
    assert!(table.recalls_after(A, 0).is_empty() && table.is_empty() && !table.knows(A));
}

#[test]
fn a_change_goes_on_when_the_session_that_it_waits_for_ends() {
    let mut table = held_file();
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    table.end(B);
    assert_eq!(table.ready(), [change]);
    assert_eq!(table.finish(change), [Right::Cover(DIR)]);
}

#[test]
fn a_read_goes_on_when_the_holder_ends() {
    for mut table in [held_file(), held_cover()] {
        let reader = wait(&mut table, B, see(FILE));
        table.end(A);
        assert_eq!(table.ready(), [reader]);
    }
}

#[test]
fn what_a_session_waits_for_ends_with_it() {
    let mut table = held_file();
    let (first, _) = want(&mut table, B, &[file(FILE)]);
    let (second, _) = want(&mut table, C, &[file(FILE)]);
    wait(&mut table, B, see(FILE));
    table.end(B);
    assert_eq!(table.waiting(), 1);
    assert!(table.ready().is_empty(), "A has not given it back");
    acknowledge(&mut table, A);
    assert_eq!(table.ready(), [second]);
    assert_eq!(table.extend(first, Vec::new()), None);
    assert!(table.finish(first).is_empty());
}

#[test]
fn a_change_that_is_ready_ends_with_its_session() {
    let mut table = held_file();
    let (change, _) = want(&mut table, C, &[file(FILE)]);
    acknowledge(&mut table, A);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
    let reader = wait(&mut table, B, see(FILE));
    table.end(C);
    assert_eq!(table.ready(), [reader]);
    assert!(table.finish(change).is_empty() && !table.may_change(C, FILE, DIR));
}

#[test]
fn an_end_among_many_that_are_waited_for_is_not_enough() {
    let mut table = held_file();
    look(&mut table, C, see_name("y"));
    let (change, _) = want(&mut table, A, &[file(FILE2)]);
    table.end(C);
    assert!(table.ready().is_empty());
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [change]);
}

#[test]
fn nothing_is_left_when_all_sessions_have_ended() {
    let mut table = held_file();
    take(&mut table, C, names(OTHER, &["x"]));
    table.born(C, &[(InodeId(31), OTHER), (InodeId(32), InodeId(32))]);
    wait(&mut table, B, see(FILE));
    want(&mut table, C, &[file(FILE)]);
    [A, B, C].into_iter().for_each(|session| table.end(session));
    assert!(table.is_empty());
    assert_eq!((table.waiting(), table.news()), (0, vec![]));
}

#[test]
fn a_session_that_is_said_to_begin_twice_keeps_what_it_has() {
    let mut table = held_file();
    wait(&mut table, B, see(FILE));
    let recall = told(&mut table, A);
    table.begin(A);
    assert_eq!(told(&mut table, A), recall);
}

#[test]
fn session_that_owes_an_acknowledgement_for_too_long_is_reported() {
    let mut table = held_file();
    table.set_now(1000);
    wait(&mut table, B, see(FILE));
    table.set_now(3000);
    assert!(table.overdue(2000).is_empty());
    table.set_now(3001);
    assert_eq!(table.overdue(2000), [(A, 2001)]);
    assert_eq!(table.unacknowledged(A), [(1, vec![Item::Release(FILE)])]);
    acknowledge(&mut table, A);
    assert!(table.overdue(0).is_empty());
}
