//! One worker process of a run. It makes calls, reports each one before and after it, and pauses when the
//! round is over.

use super::choose::Chooser;
use super::perform::OpenFiles;
use crate::clock::now_ns;
use crate::limits;
use crate::ops::{Op, Outcome};
use crate::pool;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Its number
    #[arg(long)]
    number: u32,
    /// Seed of its choices
    #[arg(long)]
    seed: u64,
    /// Its directory may die: it ends with the first error that says so
    #[arg(long)]
    mortal: bool,
    /// Every so many looks, tell what the same look returned last time (to test the checker)
    #[arg(long, default_value_t = 0)]
    lie_every: u32,
    /// Where the trees are
    trees: PathBuf,
}

/// A round.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Round {
    /// The tree. A new one begins empty, without open files.
    pub tree: u32,
    /// How many calls to make.
    pub calls: u32,
    /// Whether to pause between calls.
    pub slow: bool,
}

/// A message of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A call begins.
    Begin {
        /// Nanoseconds of the machine's monotonic clock.
        start: u64,
        /// The call.
        op: Op,
    },
    /// It has returned.
    Return {
        /// When it really began.
        start: u64,
        /// When it returned.
        end: u64,
        /// What it returned.
        outcome: Outcome,
    },
    /// The round is over.
    Paused,
}

/// Returns old results instead of new ones.
#[derive(Debug)]
struct Liar {
    every: u32,
    looks: u32,
    last: HashMap<Op, Outcome>,
}

impl Liar {
    fn tell(&mut self, op: &Op, outcome: Outcome) -> Outcome {
        if self.every == 0 || !matches!(op, Op::Lstat { .. } | Op::List { .. }) {
            return outcome;
        }
        self.looks += 1;
        match self.last.insert(op.clone(), outcome.clone()) {
            Some(old) if self.looks.is_multiple_of(self.every) => old,
            _ => outcome,
        }
    }
}

/// The hidden subcommand.
pub fn work(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { number, seed, mortal, lie_every, trees } = arguments;
    // Half of the workers walk from the root of the mount each time, half from inside.
    let base = if number / 2 % 2 == 0 {
        trees
    } else {
        std::env::set_current_dir(&trees)?;
        PathBuf::from(".")
    };
    let (mut at, mut last) = (None, 0);
    let mut files = OpenFiles::new(base.clone());
    let mut chooser = Chooser::new(seed, number);
    let mut liar = Liar { every: lie_every, looks: 0, last: HashMap::new() };
    while let Some(Round { tree, calls, slow }) = pool::receive()? {
        if at.replace(tree) != Some(tree) {
            files = OpenFiles::new(base.join(tree.to_string()));
            liar.last.clear();
            chooser.forget();
        }
        chooser.round();
        for _ in 0..calls {
            if slow {
                std::thread::sleep(Duration::from_micros(chooser.think_us().into()));
            }
            let op = chooser.choose(|slot| files.holds(slot));
            pool::say(&Message::Begin { start: now_ns(), op: op.clone() })?;
            // Calls of one worker never touch, however coarse the clock.
            let start = now_ns().max(last + 1);
            let outcome = files.perform(&op);
            let end = now_ns().max(start);
            last = end;
            let outcome = liar.tell(&op, outcome);
            chooser.learn(&op, &outcome);
            let dead = matches!(outcome, Outcome::Failed { errno } if limits::DEATH_ERRNOS.contains(&errno));
            pool::say(&Message::Return { start, end, outcome })?;
            if mortal && dead {
                return Ok(ExitCode::SUCCESS);
            }
        }
        pool::say(&Message::Paused)?;
    }
    Ok(ExitCode::SUCCESS)
}
