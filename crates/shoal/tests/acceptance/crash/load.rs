//! A writer: does random steps in order, notes each, and afterwards tells how many of them survived.

use super::model::{Model, Step};
use crate::harness::tree::{self, Tree};
use crate::harness::{Random, sys};
use std::fs;
use std::path::Path;

/// A writer stops here; the kill comes earlier as a rule.
const STEPS_MAX: usize = 30_000;

/// What a writer noted.
pub struct Journal {
    /// The steps it did, in order. The last may have been under way when the server died.
    pub steps: Vec<Step>,
    /// How many were done for certain.
    pub completed: usize,
    /// How many were done when the last fsync that succeeded began.
    pub synced: usize,
}

/// Writes in a directory until the server dies.
pub fn run(dir: &Path, seed: u64) -> Journal {
    let mut random = Random::new(seed);
    let mut journal = Journal { steps: Vec::new(), completed: 0, synced: 0 };
    let mut model = Model::default();
    if fs::create_dir(dir).is_err() {
        return journal;
    }
    while journal.completed < STEPS_MAX {
        let step = model.random_step(&mut random, journal.steps.len() as u64);
        journal.steps.push(step.clone());
        match step.perform(dir) {
            Ok(()) => {}
            Err(errno) if server_is_gone(errno) => break,
            Err(errno) => panic!("{step:?} failed with {errno:?}, which a healthy server has no reason for"),
        }
        if matches!(step, Step::Fsync(_)) {
            journal.synced = journal.completed;
        }
        model.apply(&step);
        journal.completed += 1;
    }
    journal
}

/// How a dead FUSE server looks to programs.
fn server_is_gone(errno: sys::Errno) -> bool {
    matches!(errno.0, libc::ENOTCONN | libc::ECONNABORTED | libc::EIO | libc::ENODEV | libc::EINTR)
}

impl Journal {
    /// Finds the number of steps after which the tree looked as it was found. Otherwise tells which number comes nearest.
    pub fn survivors(&self, found: &Tree) -> Result<usize, String> {
        let mut model = Model::default();
        let mut nearest: Option<(usize, usize, String)> = None;
        for done in 0..=self.steps.len() {
            if done > 0 {
                model.apply(&self.steps[done - 1]);
            }
            if done < self.synced {
                continue;
            }
            let expected = model.tree(found);
            let wrong = count_differences(found, &expected);
            if wrong == 0 {
                return Ok(done);
            }
            if nearest.as_ref().is_none_or(|(_, fewest, _)| wrong < *fewest) {
                nearest = Some((done, wrong, tree::differences(found, &expected)));
            }
        }
        let (done, _, differences) = nearest.unwrap_or_default();
        Err(format!(
            "no prefix of its {} steps (of which {} were fsynced) looks like what was found. Nearest is the state after {done}:\n\
             {differences}    the steps before it: {:?}\n    and after it: {:?}",
            self.steps.len(),
            self.synced,
            &self.steps[done.saturating_sub(6)..done],
            &self.steps[done..(done + 6).min(self.steps.len())],
        ))
    }
}

fn count_differences(found: &Tree, expected: &Tree) -> usize {
    let missing = expected.keys().filter(|path| !found.contains_key(*path)).count();
    missing + found.iter().filter(|(path, node)| expected.get(*path) != Some(node)).count()
}
