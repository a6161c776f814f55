use super::walk::Walk;
use super::*;
use crate::history::{Cuts, Header, History, Tolerance, VERSION};
use crate::model::{self, Actor, ROOT, State};
use crate::ops::{How, Kind, Listed, Op, Outcome, Path, Word};
use crate::run::choose::Chooser;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn path(text: &str) -> Path {
    Path::try_from(text.to_owned()).expect("a path")
}

fn call(worker: u32, during: std::ops::Range<u64>, op: Op, outcome: Outcome) -> Call {
    Call { worker, tree: 0, start: during.start, end: Some(during.end), op, outcome: Some(outcome) }
}

fn endless(worker: u32, start: u64, op: Op) -> Call {
    Call { worker, tree: 0, start, end: None, op, outcome: None }
}

fn create(at: &str) -> Op {
    Op::Open { path: path(at), create: true, exclusive: true, append: false, slot: 0 }
}

fn open(at: &str) -> Op {
    Op::Open { path: path(at), create: false, exclusive: false, append: false, slot: 0 }
}

fn write(at: u64, word: u64) -> Op {
    Op::Write { slot: 0, at, word: Word(word) }
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename { from: path(from), to: path(to), how: How::Replace }
}

fn mkdir(at: &str) -> Op {
    Op::Mkdir { path: path(at) }
}

fn rmdir(at: &str) -> Op {
    Op::Rmdir { path: path(at) }
}

fn unlink(at: &str) -> Op {
    Op::Unlink { path: path(at) }
}

fn link(from: &str, to: &str) -> Op {
    Op::Link { from: path(from), to: path(to) }
}

fn lstat(at: &str) -> Op {
    Op::Lstat { path: path(at) }
}

fn list(at: &str) -> Op {
    Op::List { path: path(at) }
}

const READ: Op = Op::Read { slot: 0 };
const DONE: Outcome = Outcome::Done;

fn opened(ino: u64) -> Outcome {
    Outcome::Opened { ino: Some(ino) }
}

fn missing() -> Outcome {
    Outcome::failed(libc::ENOENT)
}

fn file(ino: u64, links: u64, words: u64) -> Outcome {
    Outcome::Attributes { kind: Kind::File, ino, links, bytes: words * 8 }
}

fn content(words: &[u64]) -> Outcome {
    Outcome::Content { words: words.iter().map(|word| Word(*word)).collect() }
}

fn names(listed: &[(&str, u64)]) -> Outcome {
    let one = |(name, ino): &(&str, u64)| Listed { name: (*name).to_owned(), kind: None, ino: *ino };
    Outcome::Names { listed: listed.iter().map(one).collect() }
}

fn sorted(mut calls: Vec<Call>) -> Vec<Call> {
    calls.sort_by_key(|call| call.start);
    calls
}

#[track_caller]
fn explained(calls: Vec<Call>) {
    let calls = sorted(calls);
    match check(&calls) {
        Verdict::Explained(_) => (),
        Verdict::Refused(refusal) => panic!("{}", refusal.show(&calls, &header())),
        Verdict::TooHard(call) => panic!("too hard at {call}"),
    }
}

/// The calls are refused, at the last one in the list.
#[track_caller]
fn refused(calls: Vec<Call>) {
    let last = calls.last().expect("some calls").clone();
    let calls = sorted(calls);
    match check(&calls) {
        Verdict::Refused(refusal) => assert_eq!(calls[refusal.stuck], last),
        other => panic!("{other:?}"),
    }
}

fn header() -> Header {
    let dirs = vec!["/a".to_owned(), "/b".to_owned()];
    Header { shoal_witness_history: VERSION, seed: 1, dirs, workers: 2, may_die: vec![1], may_lapse: vec![] }
}

#[test]
fn a_read_that_began_after_a_write_had_returned_sees_it() {
    let begin = || {
        vec![
            call(0, 0..1, create("a"), opened(7)),
            call(1, 2..3, open("a"), opened(7)),
            call(0, 10..20, write(0, 5), DONE),
        ]
    };
    let with = |during, seen: &[u64]| [begin(), vec![call(1, during, READ, content(seen))]].concat();
    explained(with(30..40, &[5]));
    refused(with(30..40, &[]));
    refused(with(30..40, &[6]));
    explained(with(15..40, &[]));
    explained(with(15..40, &[5]));
    // At the same moment, the calls overlap.
    explained(with(20..40, &[]));
}

#[test]
fn values_do_not_go_back() {
    refused(vec![
        call(0, 0..1, create("a"), opened(7)),
        call(1, 2..3, open("a"), opened(7)),
        call(0, 10..90, write(0, 5), DONE),
        call(1, 20..30, READ, content(&[5])),
        call(1, 40..50, READ, content(&[])),
    ]);
}

#[test]
fn an_append_is_not_lost() {
    let append = |worker, during: std::ops::Range<u64>| {
        let opens = Op::Open { path: path("a"), create: false, exclusive: false, append: true, slot: 0 };
        let word = u64::from(worker) + 1;
        [
            call(worker, during.start - 2..during.start - 1, opens, opened(7)),
            call(worker, during, write(0, word), DONE),
        ]
    };
    let with = |seen: &[u64]| {
        let mut calls = vec![call(2, 0..1, create("a"), opened(7))];
        calls.extend(append(0, 10..30));
        calls.extend(append(1, 11..29));
        calls.push(call(2, 40..50, READ, content(seen)));
        calls
    };
    explained(with(&[1, 2]));
    explained(with(&[2, 1]));
    refused(with(&[1]));
    refused(with(&[2]));
}

#[test]
fn a_listing_shows_what_stays_and_nothing_that_never_was() {
    let with = |listed: &[(&str, u64)]| {
        vec![
            call(0, 0..1, create("a"), opened(7)),
            call(0, 2..3, create("b"), opened(8)),
            call(0, 20..30, create("c"), opened(9)),
            call(0, 31..32, unlink("b"), DONE),
            call(1, 15..40, list("."), names(listed)),
        ]
    };
    explained(with(&[("a", 7), ("b", 8)]));
    explained(with(&[("a", 7), ("c", 9)]));
    explained(with(&[("a", 7)]));
    refused(with(&[("b", 8), ("c", 9)]));
    refused(with(&[("a", 7), ("d", 10)]));
    refused(with(&[("a", 7), (".hidden", 10)]));
    refused(with(&[("a", 7), ("a", 7)]));
    refused(with(&[("a", 8)]));
}

#[test]
fn a_name_that_was_missing_is_there_once_it_was_made_elsewhere() {
    let with = |outcome| {
        vec![
            call(1, 0..1, lstat("a"), missing()),
            call(0, 2..3, create("a"), opened(7)),
            call(1, 4..5, lstat("a"), outcome),
        ]
    };
    explained(with(file(7, 1, 0)));
    refused(with(missing()));
    refused(with(file(8, 1, 0)));
    refused(with(file(7, 1, 3)));
}

#[test]
fn a_rename_is_not_seen_half() {
    let with = |first: Outcome, second: Outcome, names: [&str; 2]| {
        vec![
            call(0, 0..1, create("a"), opened(7)),
            call(0, 10..90, rename("a", "b"), DONE),
            call(1, 20..30, lstat(names[0]), first),
            call(1, 40..50, lstat(names[1]), second),
        ]
    };
    explained(with(file(7, 1, 0), file(7, 1, 0), ["a", "b"]));
    explained(with(file(7, 1, 0), missing(), ["b", "a"]));
    explained(with(missing(), missing(), ["b", "a"]));
    refused(with(file(7, 1, 0), file(7, 1, 0), ["b", "a"]));
    refused(with(missing(), missing(), ["a", "b"]));
}

#[test]
fn a_file_renamed_over_another_is_what_readers_find() {
    let with = |ino, words: &[u64]| {
        vec![
            call(0, 0..1, create("a"), opened(7)),
            call(0, 2..3, write(0, 1), DONE),
            call(0, 4..5, create("b"), opened(8)),
            call(0, 6..7, write(0, 2), DONE),
            call(0, 10..11, rename("b", "a"), DONE),
            call(1, 20..21, open("a"), opened(ino)),
            call(1, 22..23, READ, content(words)),
        ]
    };
    explained(with(8, &[2]));
    refused(with(8, &[1]));
    refused(with(8, &[]));
    let mut old = with(7, &[1]);
    old.pop();
    refused(old);
}

#[test]
fn one_of_two_exclusive_creates_fails() {
    let with = |second| vec![call(0, 0..20, create("a"), opened(7)), call(1, 5..15, create("a"), second)];
    explained(with(Outcome::failed(libc::EEXIST)));
    let both = sorted(with(opened(8)));
    assert!(matches!(check(&both), Verdict::Refused(_)));
}

#[test]
fn a_directory_is_removed_empty_or_not_at_all() {
    let with = |made: Outcome, removed: Outcome| {
        vec![
            call(0, 0..1, mkdir("p"), DONE),
            call(0, 10..20, create("p/a"), made),
            call(1, 10..20, rmdir("p"), removed),
        ]
    };
    explained(with(opened(7), Outcome::failed(libc::ENOTEMPTY)));
    explained(with(opened(7), Outcome::failed(libc::EEXIST)));
    explained(with(missing(), DONE));
    let calls = sorted(with(opened(7), DONE));
    assert!(matches!(check(&calls), Verdict::Refused(_)));
}

#[test]
fn a_removed_file_lives_in_the_hands_of_those_who_have_it_open() {
    let with = |last: Outcome| {
        vec![
            call(0, 0..1, create("a"), opened(7)),
            call(0, 2..3, write(0, 5), DONE),
            call(1, 4..5, unlink("a"), DONE),
            call(1, 6..7, create("a"), opened(8)),
            call(0, 8..9, READ, content(&[5])),
            call(0, 10..11, Op::Fstat { slot: 0 }, last),
        ]
    };
    explained(with(file(7, 0, 1)));
    refused(with(file(7, 1, 1)));
    refused(with(file(8, 0, 1)));
}

#[test]
fn what_was_begun_and_never_returned_may_have_happened_or_not() {
    let with = |outcomes: [Outcome; 2]| {
        let [first, second] = outcomes;
        vec![
            call(0, 0..1, create("a"), opened(7)),
            endless(0, 2, unlink("a")),
            call(1, 10..11, lstat("a"), first),
            call(1, 20..21, lstat("a"), second),
        ]
    };
    explained(with([file(7, 1, 0), file(7, 1, 0)]));
    explained(with([file(7, 1, 0), missing()]));
    explained(with([missing(), missing()]));
    refused(with([missing(), file(7, 1, 0)]));
}

#[test]
fn a_path_is_walked_name_by_name() {
    // The directory was found as p, and is q when the file is made in it: Linux does not look again.
    let with = |begun| {
        vec![
            call(0, 0..1, mkdir("p"), DONE),
            call(1, begun..50, create("p/a"), opened(7)),
            call(0, 10..20, rename("p", "q"), DONE),
            call(0, 30..40, list("q"), names(&[])),
            call(0, 60..70, list("q"), names(&[("a", 7)])),
        ]
    };
    explained(with(5));
    let late = sorted(with(25));
    assert!(matches!(check(&late), Verdict::Refused(_)));
}

#[test]
fn link_counts_agree_with_the_names_when_nothing_is_in_progress() {
    let with = |during, links| {
        vec![
            call(0, 0..1, create("a"), opened(7)),
            call(0, 10..20, link("a", "b"), DONE),
            call(1, during, lstat("a"), file(7, links, 0)),
        ]
    };
    explained(with(30..31, 2));
    refused(with(30..31, 1));
    explained(with(15..31, 1));
    explained(with(15..31, 2));
    refused(with(15..31, 4));
}

#[test]
fn directories_keep_their_numbers_and_each_has_its_own() {
    let dir = |ino| Outcome::Attributes { kind: Kind::Dir, ino, links: 2, bytes: 0 };
    let with = |at: &str, ino| {
        vec![
            call(0, 0..1, mkdir("p"), DONE),
            call(0, 2..3, lstat("p"), dir(5)),
            call(0, 4..5, rename("p", "q"), DONE),
            call(0, 6..7, mkdir("p"), DONE),
            call(1, 8..9, lstat("p"), dir(6)),
            call(1, 10..11, lstat(at), dir(ino)),
        ]
    };
    explained(with("q", 5));
    explained(with("p", 6));
    refused(with("q", 6));
    refused(with("p", 5));
}

#[test]
fn odd_results_are_never_explained() {
    refused(vec![call(0, 0..1, list("."), Outcome::Odd { what: "a fish".into() })]);
    refused(vec![
        call(0, 0..1, create("a"), opened(7)),
        call(0, 2..3, write(0, 1), Outcome::failed(libc::EIO)),
    ]);
}

#[test]
fn trees_have_nothing_to_do_with_each_other() {
    let mut second = call(1, 2..3, create("a"), opened(8));
    second.tree = 1;
    explained(vec![call(0, 0..1, create("a"), opened(7)), second]);
}

#[test]
fn what_is_refused_is_shown_with_no_more_calls_than_it_needs() {
    let mut calls = vec![endless(9, 0, mkdir("q")), call(3, 1..99, create("c"), opened(3))];
    for at in 0..10 {
        calls.push(call(2, 2 + at..50 + at, lstat("b"), missing()));
    }
    calls.push(call(1, 70..71, lstat("a"), file(7, 1, 0)));
    let calls = sorted(calls);
    let Verdict::Refused(refusal) = check(&calls) else { panic!("not refused") };
    let ops: Vec<_> = refusal.calls.iter().map(|number| calls[*number].op.to_string()).collect();
    assert_eq!(ops, ["mkdir q", "open c create exclusive as #0", "lstat a"]);
    assert_eq!(refusal.possible.iter().collect::<Vec<_>>(), [&missing()]);
    let text = refusal.show(&calls, &header());
    assert!(text.contains("** ") && text.contains("lstat a -> File ino 7 links 1 size 0"), "{text}");
}

#[test]
fn stale_handles_are_forgiven_only_on_request_and_deaths_only_where_they_are_allowed() {
    let stale = Outcome::failed(libc::ESTALE);
    let history = |worker, outcome: Outcome| History {
        header: header(),
        calls: vec![
            call(0, 0..1, create("a"), opened(7)),
            call(worker, 2..3, unlink("a"), outcome),
            call(0, 4..5, lstat("a"), file(7, 1, 0)),
        ],
    };
    let explained = |history: &History, tolerated: &[Tolerance]| {
        matches!(check(&history.prepared(tolerated, &Cuts::new())), Verdict::Explained(_))
    };
    assert!(!explained(&history(0, stale.clone()), &[]));
    assert!(explained(&history(0, stale), &[Tolerance::Estale]));
    // Worker 1 works in directory 1, which may die.
    assert!(explained(&history(1, Outcome::failed(libc::ENOTCONN)), &[]));
    assert!(!explained(&history(0, Outcome::failed(libc::ENOTCONN)), &[]));
}

/// Whether some cut explains it.
fn explained_by_a_loss(calls: Vec<Call>) -> bool {
    explained_by_a_loss_on(header(), calls)
}

fn explained_by_a_loss_on(header: Header, calls: Vec<Call>) -> bool {
    let history = History { header, calls: sorted(calls) };
    history.cuts().iter().any(|cuts| matches!(check(&history.prepared(&[], cuts)), Verdict::Explained(_)))
}

#[test]
fn a_mount_that_dies_may_lose_its_last_calls_and_no_others() {
    let second = 1_000_000_000;
    let dead = call(1, 60..61, lstat("a"), Outcome::failed(libc::ENOTCONN));
    let makes = |at: u64, name: &str, ino| call(1, at..at + 2, create(name), opened(ino));
    let sees = |name: &str, seen| call(0, 70..71, lstat(name), seen);
    // Worker 1 works in directory 1, which may die.
    let two = [makes(10, "a", 7), makes(20, "b", 8), call(1, 30..31, lstat("b"), file(8, 1, 0))];
    let with = |more: &[Call]| [two.as_slice(), more].concat();
    assert!(explained_by_a_loss(with(&[dead.clone(), sees("a", file(7, 1, 0)), sees("b", missing())])));
    assert!(explained_by_a_loss(with(&[dead.clone(), sees("a", missing())])));
    // The loss is a suffix: an earlier call is not lost alone.
    let late = |name: &str, seen| call(0, 80..81, lstat(name), seen);
    assert!(!explained_by_a_loss(with(&[dead.clone(), sees("a", missing()), late("b", file(8, 1, 0))])));
    // What was seen elsewhere stays.
    let seen = call(0, 40..41, lstat("a"), file(7, 1, 0));
    assert!(!explained_by_a_loss(with(&[dead.clone(), seen, sees("a", missing())])));
    // A mount that lives loses nothing, and neither synced nor old changes are lost.
    assert!(!explained_by_a_loss(with(&[sees("b", missing())])));
    let synced = call(1, 40..41, Op::Fsync { slot: 0 }, Outcome::Done);
    assert!(!explained_by_a_loss(with(&[synced, dead.clone(), sees("b", missing())])));
    let much_later = call(1, 9 * second..9 * second + 1, create("c"), opened(9));
    let end = [dead, much_later, call(0, 10 * second..10 * second + 1, lstat("b"), missing())];
    assert!(!explained_by_a_loss(with(&end)));
}

#[test]
fn a_mount_that_was_cut_off_may_lose_its_last_calls_once_and_counts_again_afterwards() {
    let explained = |calls: &[&[Call]]| {
        let header = Header { may_die: vec![], may_lapse: vec![1], ..header() };
        explained_by_a_loss_on(header, calls.concat())
    };
    let in_tree = |tree, call| Call { tree, ..call };
    // Worker 1 works in directory 1, which may be cut off. It is in the first tree when it hears of that.
    let makes = |at: u64, name: &str, ino| call(1, at..at + 2, create(name), opened(ino));
    let sees = |at: u64, name: &str, seen| call(0, at..at + 1, lstat(name), seen);
    let begin = [makes(10, "a", 7), makes(20, "b", 8), call(1, 30..31, lstat("b"), file(8, 1, 0))];
    let eio = call(1, 40..60, lstat("a"), Outcome::failed(libc::EIO));
    let lapse = std::slice::from_ref(&eio);
    assert!(explained(&[&begin, lapse, &[sees(50, "a", file(7, 1, 0)), sees(52, "b", missing())]]));
    assert!(explained(&[&begin, lapse, &[sees(50, "a", missing())]]));
    assert!(!explained(&[&begin, &[sees(50, "a", missing())]]), "nothing says that anything was lost");
    assert!(!explained(&[&begin, lapse, &[sees(50, "a", missing()), sees(52, "b", file(8, 1, 0))]]));
    assert!(!explained(&[&begin, lapse, &[sees(35, "a", file(7, 1, 0)), sees(52, "a", missing())]]));
    let stale = call(1, 40..60, lstat("a"), Outcome::failed(libc::ESTALE));
    assert!(!explained(&[&begin, &[stale], &[sees(50, "a", missing())]]));
    // In the next tree it has lost nothing, and what it does there counts, on both sides.
    let next = |at: u64, seen| [in_tree(1, makes(at, "a", 9)), in_tree(1, sees(at + 5, "a", seen))];
    assert!(explained(&[&begin, lapse, &next(70, file(9, 1, 0))]));
    assert!(!explained(&[&begin, lapse, &next(70, missing())]));
    // What it did in an earlier tree counts, too, up to where it was lost.
    let early = |seen| [in_tree(1, makes(1, "a", 9)), in_tree(1, sees(50, "a", seen))];
    assert!(explained(&[&early(file(9, 1, 0)), &begin, lapse]));
    assert!(explained(&[&early(missing()), &begin, lapse, &[sees(50, "a", missing())]]));
    assert!(!explained(&[&early(missing()), &begin, lapse, &[sees(50, "a", file(7, 1, 0))]]));
}

#[test]
fn what_is_read_while_it_is_written_to_on_the_same_mount_is_forgiven_only_on_request() {
    let one = Word::of(0, 1);
    let history = |reader: u32, read: std::ops::Range<u64>| History {
        header: header(),
        calls: sorted(vec![
            call(0, 0..1, create("a"), opened(7)),
            call(
                reader,
                2..3,
                Op::Open { path: path("a"), create: false, exclusive: false, append: false, slot: 0 },
                opened(7),
            ),
            call(0, 4..10, Op::Write { slot: 0, at: 0, word: one }, Outcome::Done),
            call(reader, read, Op::Read { slot: 0 }, Outcome::Content { words: vec![Word::of(5, 5)] }),
        ]),
    };
    let explained = |reader, read, tolerated: &[Tolerance]| {
        matches!(check(&history(reader, read).prepared(tolerated, &Cuts::new())), Verdict::Explained(_))
    };
    assert!(!explained(2, 5..6, &[]));
    assert!(explained(2, 5..6, &[Tolerance::Contended]));
    assert!(!explained(1, 5..6, &[Tolerance::Contended]), "on another mount");
    assert!(!explained(2, 12..13, &[Tolerance::Contended]), "no writer is left");
}

#[test]
fn a_history_is_written_and_read_back() {
    let mut calls = simulated(3, 4, 200);
    calls.push(endless(2, u64::MAX, unlink("a")));
    calls.push(endless(9, u64::MAX, mkdir("p")));
    let history = History { header: header(), calls };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("history");
    history.save(&file).expect("it is written");
    assert_eq!(History::load(&file).expect("it is read"), history);
    std::fs::write(&file, "{}").expect("it is written");
    assert!(History::load(&file).is_err());
}

/// A call of the simulation.
struct Running {
    op: Op,
    start: u64,
    acts: u64,
    end: u64,
    outcome: Option<Outcome>,
}

/// A history in which each call really takes place at one moment between its begin and its return.
fn simulated(seed: u64, workers: u32, count: usize) -> Vec<Call> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut state = State::default();
    state.alter(ROOT, |root| root.ino = Some(1));
    let mut choosers: Vec<Chooser> = (0..workers).map(|worker| Chooser::new(seed, worker)).collect();
    let mut running: Vec<Option<Running>> = (0..workers).map(|_| None).collect();
    let (mut calls, mut makes) = (Vec::new(), 0);
    for now in 0.. {
        for worker in 0..workers {
            let slot = &mut running[worker as usize];
            let chooser = &mut choosers[worker as usize];
            match slot {
                None if calls.len() < count && rng.random_bool(0.3) => {
                    if rng.random_bool(0.05) {
                        chooser.round();
                    }
                    let op = chooser.choose(|slot| state.handle(worker, slot).is_some());
                    let acts = now + 1 + rng.random_range(0..10);
                    let end = acts + 1 + rng.random_range(0..10);
                    *slot = Some(Running { op, start: now, acts, end, outcome: None });
                }
                Some(one) if one.acts == now => {
                    makes += 1;
                    one.outcome = Some(act(&mut state, worker, makes, &one.op));
                }
                Some(one) if one.end == now => {
                    let outcome = one.outcome.take().expect("it has acted");
                    chooser.learn(&one.op, &outcome);
                    calls.push(call(worker, one.start..now, one.op.clone(), outcome));
                    *slot = None;
                }
                _ => (),
            }
        }
        if calls.len() >= count && running.iter().all(Option::is_none) {
            break;
        }
    }
    sorted(calls)
}

/// Walks and takes place at once.
fn act(state: &mut State, worker: u32, makes: u32, op: &Op) -> Outcome {
    let slot = match op {
        Op::Read { slot } | Op::Write { slot, .. } | Op::Ftruncate { slot, .. } => Some(*slot),
        Op::Fstat { slot } | Op::Fsync { slot } => Some(*slot),
        _ => None,
    };
    let mut ends = [slot.and_then(|slot| state.handle(worker, slot)).map_or(ROOT, |held| held.id), ROOT];
    for (end, way) in ends.iter_mut().zip(model::paths(op)) {
        let Some((path, target)) = way else { continue };
        let mut walk = Walk::new(path, target);
        walk.extend(state);
        match (walk.failures(), walk.ends()) {
            ([errno, ..], _) => return Outcome::failed(*errno),
            (_, [id, ..]) => *end = *id,
            _ => unreachable!("a walk ends or fails"),
        }
    }
    let found = |state: &State| -> Option<u64> {
        let Op::Open { path, .. } = op else { return None };
        let id = state.lookup(ends[0], path.split_last()?.0).ok()??;
        state.inode(id)?.ino
    };
    let ino = Some(found(state).unwrap_or(1000 + u64::from(makes)));
    let (outcome, after) = model::effect(state, Actor { worker, makes, ino }, op, ends[0], ends[1]);
    if let Some(after) = after {
        *state = after;
        state.alter(makes, |made| made.ino = Some(1000 + u64::from(makes)));
    }
    outcome
}

#[test]
fn what_one_file_system_did_is_explained() {
    for seed in 0..20 {
        let calls = simulated(seed, 2 + seed as u32 % 5, 600);
        assert_eq!(explains(&calls), Some(true));
        match check(&calls) {
            Verdict::Explained(stats) => assert_eq!(stats.calls, calls.len()),
            Verdict::Refused(refusal) => panic!("seed {seed}: {}", refusal.show(&calls, &header())),
            Verdict::TooHard(call) => panic!("seed {seed}: too hard at {call}"),
        }
    }
}

#[test]
fn a_result_from_the_past_is_mostly_refused() {
    let (mut tried, mut caught) = (0, 0);
    for seed in 0..40 {
        let mut calls = simulated(seed, 3, 300);
        let mut rng = SmallRng::seed_from_u64(seed);
        // The last look that differs from an earlier one at the same inode gets the earlier result.
        let looks = |call: &Call| matches!(call.op, Op::Lstat { .. } | Op::List { .. });
        let pairs: Vec<(usize, usize)> = (0..calls.len())
            .flat_map(|late| (0..late).map(move |early| (early, late)))
            .filter(|(early, late)| {
                let (early, late) = (&calls[*early], &calls[*late]);
                looks(early) && early.op == late.op && early.outcome != late.outcome
            })
            .collect();
        if pairs.is_empty() {
            continue;
        }
        let (early, late) = pairs[rng.random_range(0..pairs.len())];
        calls[late].outcome = calls[early].outcome.clone();
        tried += 1;
        let refused = matches!(check(&calls), Verdict::Refused(_));
        assert_eq!(explains(&calls), Some(!refused));
        caught += usize::from(refused);
    }
    assert!(tried >= 30 && caught * 10 >= tried * 8, "{caught} of {tried}");
}
