//! A model of the table of rights: a small world of clients that cache, change and keep journals, with
//! arbitrary delays of every message.
//!
//! Clients carry recalls out, and acknowledge them, in any order.
//!
//! Invariants of every state: no client shows what is older than a completed change of another. No client may
//! change what another shows or may change. A client has every right that it believes to have according to
//! the table. When no event is possible, every request has been answered. When all clients have left, the
//! table is empty.

mod check;
mod client;
mod events;
mod explore;
mod server;
mod world;

use explore::{everywhere, shorten, walk};
use world::*;

fn setup(clients: usize, ops_each: u32, ops: &[Op]) -> Setup {
    Setup {
        clients,
        ops: ops.to_vec(),
        ops_each,
        ends: 0,
        leaders: 0,
        resends: 0,
        kernel: false,
        fault: Fault::None,
    }
}

const ALL: &[Op] = &[
    Op::See(Thing::Node(F1)),
    Op::See(Thing::Node(F2)),
    Op::See(Thing::Node(D1)),
    Op::See(Thing::Name(D1, 0)),
    Op::See(Thing::Name(D2, 1)),
    Op::Lookup(D1, 0, F1),
    Op::Lookup(D2, 0, F1),
    Op::List(D1),
    Op::List(D2),
    Op::Write(F1),
    Op::Write(F2),
    Op::Write(F3),
    Op::Write(D1),
    Op::Both(F1, F2),
    Op::Touch(D1, 0),
    Op::Touch(D1, 1),
    Op::Touch(D2, 1),
    Op::Touch(D3, 0),
    Op::List(D3),
    Op::Move(F1, D1, D2, 0),
    Op::Move(F1, D2, D1, 0),
    Op::Link(F1, D2, 1),
    Op::Link(F1, D1, 1),
    Op::Create(F3, D1, 1),
    Op::Create(D3, D1, 1),
    Op::Remove(F3, D1, 1),
    Op::Remove(F1, D2, 0),
];

/// All kinds of events, with three clients.
fn everything(fault: Fault) -> Setup {
    Setup { ends: 3, leaders: 2, resends: 3, fault, ..setup(3, 40, ALL) }
}

/// Random paths; the first violation, shortened.
fn walks(setup: &Setup, seeds: std::ops::Range<u64>) -> Result<(), String> {
    for seed in seeds {
        if let Err(broken) = walk(setup, seed, 400) {
            return Err(format!("seed {seed}:\n{}", shorten(setup, broken)));
        }
    }
    Ok(())
}

/// `SHOAL_LEASE_SEEDS=from..to` selects other seeds than the usual ones.
fn seeds() -> std::ops::Range<u64> {
    let said = std::env::var("SHOAL_LEASE_SEEDS").unwrap_or_default();
    let ends = said.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    ends.unwrap_or(0..1000)
}

#[test]
fn long_ways_by_chance_lead_nowhere_wrong() {
    if let Err(broken) = walks(&everything(Fault::None), seeds()) {
        panic!("{broken}");
    }
}

#[test]
fn a_file_that_is_written_while_it_moves_is_never_shown_as_it_was() {
    let (there, back) = (Op::Move(F1, D1, D2, 0), Op::Move(F1, D2, D1, 0));
    let (linked, again) = (Op::Link(F1, D2, 1), Op::Link(F1, D1, 1));
    let steady = setup(
        3,
        12,
        &[Op::Write(F1), there, back, linked, again, Op::List(D1), Op::List(D2), Op::Touch(D1, 0)],
    );
    let failing = Setup { leaders: 1, resends: 1, ..steady.clone() };
    for setup in [steady, failing] {
        if let Err(broken) = walks(&setup, seeds()) {
            panic!("{broken}");
        }
    }
}

#[test]
fn a_kernel_that_waits_for_an_answer_before_it_drops_is_never_waited_for_in_a_circle() {
    let failing = Setup { kernel: true, ..everything(Fault::None) };
    let steady = Setup { kernel: true, ..setup(3, 40, ALL) };
    for setup in [failing, steady] {
        if let Err(broken) = walks(&setup, seeds()) {
            panic!("{broken}");
        }
    }
}

#[test]
fn faults_that_are_planted_are_found() {
    let faults = [
        Fault::AcknowledgesWithoutDropping,
        Fault::DropsTheInodeAndNotTheNames,
        Fault::DoesNotWaitForAnswers,
        Fault::IgnoresTheEndOfItsLease,
        Fault::AcknowledgesBeforeItHasCommitted,
        Fault::KeepsTheRight,
        Fault::KeepsWhatItDoesNotWatch,
        Fault::DeclaresCoversOnly,
        Fault::TakesInOldAnswers,
        Fault::DeclaresNothing,
    ];
    for fault in faults {
        let found = walks(&everything(fault), 0..1500);
        assert!(found.is_err(), "{fault:?} was not found");
    }
}

/// Small worlds that are explored completely.
fn small() -> Vec<(&'static str, Setup)> {
    let (see, touch) = (Op::See(Thing::Node(F1)), Op::Touch(D1, 0));
    let name = Op::See(Thing::Name(D1, 0));
    let kernel = Setup { kernel: true, ..setup(3, 1, &[see, Op::Write(F1)]) };
    vec![
        ("a kernel waits", kernel),
        ("two write and read a file", setup(2, 2, &[see, Op::Write(F1)])),
        ("three and a name", setup(3, 1, &[name, touch])),
        ("three and a file", setup(3, 1, &[see, Op::Write(F1)])),
        ("a file moves", setup(2, 1, &[see, Op::Write(F1), Op::Move(F1, D1, D2, 0), Op::List(D2)])),
        ("sessions end", Setup { ends: 1, ..setup(2, 1, &[see, Op::Write(F1), touch]) }),
        ("another leads", Setup { leaders: 1, ..setup(2, 1, &[see, Op::Write(F1)]) }),
    ]
}

#[test]
fn small_worlds_have_no_wrong_states() {
    for (what, setup) in small() {
        match everywhere(&setup, 2_000_000) {
            Ok(seen) => assert!(seen.rests > 0, "{what}: {seen:?}"),
            Err(broken) => panic!("{what}:\n{broken}"),
        }
    }
}
