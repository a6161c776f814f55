//! Worlds that are lived through at every test run. More of them: `make sim SEEDS=1000`.

use shoal_sim::mistakes;
use shoal_sim::plan::Plan;
use shoal_sim::story::live;

/// How many of the first seeds. About five of them take a second.
const SEEDS: u64 = 60;

/// Seeds that once found something, each with what it was. What a seed does changes with the code, so these are worlds like any other by now;
/// what they found has a test of its own beside the code that was mended.
const SEEDS_THAT_FOUND: &[(u64, &str)] = &[
    (151, "a new leader showed what had been changed under a right that was just being given back"),
    (41, "a file that got a second name was held as a cover here and as an inode at the server"),
    (895, "letting go of a file that a rename had moved ended the hold on what the same rename had replaced"),
    (1425, "a file of several names was read as it had been before another client wrote to it"),
    (2, "two wants of one inode: the names of the second were not taken for given"),
];

fn level() -> tracing::Level {
    tracing::Level::ERROR
}

#[test]
fn two_runs_of_one_seed_are_the_same_to_the_last_turn() {
    for seed in 1..=6 {
        let (one, other) = (live(&Plan::of(seed), false, level()), live(&Plan::of(seed), false, level()));
        assert_eq!(
            (one.digest, one.turns, one.calls),
            (other.digest, other.turns, other.calls),
            "seed {seed}"
        );
        let next = live(&Plan::of(seed + 1), false, level());
        assert_ne!(one.digest, next.digest, "seeds {seed} and {}", seed + 1);
    }
}

#[test]
fn nothing_goes_wrong_in_the_first_worlds_and_in_those_that_found_something() {
    let known = SEEDS_THAT_FOUND.iter().map(|(seed, _)| *seed).filter(|seed| *seed > SEEDS);
    for seed in (1..=SEEDS).chain(known) {
        let report = live(&Plan::of(seed), false, level());
        assert!(
            report.findings.is_empty(),
            "shoal-sim --seed {seed} --trace\n{}",
            report.findings.join("\n")
        );
    }
}

#[test]
fn a_planted_mistake_is_found() {
    let planted = [
        ("acknowledge a recall without carrying it out", 5),
        ("give inode numbers twice", 5),
        ("leave out a change on one replica", 5),
    ];
    for (mistake, seeds) in planted {
        assert!(mistakes::find(mistake, 1..1 + seeds).is_some(), "{mistake}: not found by {seeds} seeds");
    }
}
