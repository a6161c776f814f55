//! Worlds that run with every `make test`. More of them: `make sim SEEDS=1000`.

use shoal_sim::mistakes;
use shoal_sim::plan::Plan;
use shoal_sim::world::{Report, run};

/// The first seeds. A second runs about five of them.
const SEEDS: u64 = 60;

/// Seeds that once found something, with what that was. What a seed does changes with the code, so these are
/// ordinary worlds by now. What they found has a test beside the code that was fixed.
const SEEDS_THAT_FOUND: &[(u64, &str)] = &[
    (151, "a new leader showed what had been changed under a right that was just being given back"),
    (41, "a file that got a second name was held as a cover here and as an inode at the server"),
    (895, "letting go of a file that a rename had moved ended the hold on what the same rename had replaced"),
    (1425, "a file of several names was read as it had been before another client wrote to it"),
    (2, "two wants of one inode: the names of the second were not taken for given"),
    (2845, "a request was made again under the token of a lost answer, which a recall then waited for"),
    (3400, "a file was moved over the directory that it is in with EISDIR"),
    (
        10251,
        "a file of several names that was moved was said to be counted apart once more, and others were ended for it",
    ),
    (10455, "the same, with a batch that came once more"),
    (
        2206,
        "an open file that was moved into a directory was read as it had been once the directory was removed",
    ),
];

fn level() -> tracing::Level {
    tracing::Level::ERROR
}

/// Counts of rare events. An event that never happens in these worlds is not simulated.
#[derive(Default, Debug)]
struct Rare {
    sessions_ended: usize,
    clients_died: usize,
    calls_lost: usize,
    states_fetched: u64,
    changes_of_members: u64,
    blocks: usize,
    sharded: usize,
    moved: (usize, usize),
    converted: usize,
    bricks_removed: usize,
    worlds: usize,
    unchecked: usize,
}

impl Rare {
    fn add(&mut self, report: &Report) {
        self.sessions_ended += report.sessions_lost.0;
        self.clients_died += report.sessions_lost.1;
        self.calls_lost += report.calls_lost;
        self.states_fetched += report.snapshots;
        self.changes_of_members += report.changes;
        self.blocks += report.blocks;
        self.sharded += report.sharded;
        self.moved = (self.moved.0 + report.moved.0, self.moved.1 + report.moved.1);
        self.converted += report.converted;
        self.bricks_removed += report.changed_bricks.1;
        self.worlds += 1;
        self.unchecked += usize::from(report.unchecked);
    }

    fn assert_all(&self) {
        let Rare { sessions_ended, clients_died, calls_lost, states_fetched, changes_of_members, .. } = *self;
        assert!(sessions_ended > 0 && clients_died > 0 && calls_lost > 0, "{self:?}");
        assert!(states_fetched > 0 && changes_of_members > 0 && self.blocks > 0, "{self:?}");
        assert!(self.sharded > 0 && self.moved.0 > 0 && self.moved.1 > 0, "{self:?}");
        assert!(self.converted > 0 && self.bricks_removed > 0, "{self:?}");
        assert!(self.unchecked * 20 < self.worlds, "{self:?}");
    }
}

#[test]
fn two_runs_of_one_seed_are_the_same_to_the_last_turn() {
    for seed in 1..=6 {
        let (one, other) = (run(&Plan::of(seed), false, level()), run(&Plan::of(seed), false, level()));
        assert_eq!(
            (one.digest, one.turns, one.calls),
            (other.digest, other.turns, other.calls),
            "seed {seed}"
        );
        let next = run(&Plan::of(seed + 1), false, level());
        assert_ne!(one.digest, next.digest, "seeds {seed} and {}", seed + 1);
    }
}

#[test]
fn nothing_goes_wrong_in_the_first_worlds_and_in_those_that_found_something() {
    let known = SEEDS_THAT_FOUND.iter().map(|(seed, _)| *seed).filter(|seed| *seed > SEEDS);
    let mut rare = Rare::default();
    for seed in (1..=SEEDS).chain(known) {
        let report = run(&Plan::of(seed), false, level());
        assert!(
            report.findings.is_empty(),
            "shoal-sim --seed {seed} --trace\n{}",
            report.findings.join("\n")
        );
        rare.add(&report);
    }
    rare.assert_all();
}

/// Some defects that most worlds find; `shoal-sim --mistakes` plants all of them. Which seeds find one
/// changes with the code.
#[test]
fn planted_mistakes_are_found() {
    let planted = [
        "skip a change on one replica",
        "allocate inode numbers twice",
        "do not resend batches to a new leader",
        "forget one watcher",
        "acknowledge a recall without invalidating",
        "grant no rights to new inodes",
        "keep the rights of an ended session",
        "commit a block before it is stored",
    ];
    for mistake in planted {
        assert!(mistakes::find(mistake, 1..1 + SEEDS).is_some(), "{mistake}: not found by {SEEDS} seeds");
    }
}
