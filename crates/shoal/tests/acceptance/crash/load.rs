//! A writer that does random steps, records them, and determines after a crash how many survived.

use super::model::{Model, Step};
use crate::harness::tree::{self, Tree};
use crate::harness::{Random, sys};
use std::fs;
use std::path::Path;

/// The most steps of a writer. Usually the server is killed earlier.
const STEPS_MAX: usize = 30_000;

/// What a writer recorded.
pub struct Journal {
    /// The steps in order. The last one may have been in progress when the server died.
    pub steps: Vec<Step>,
    /// Steps that returned.
    pub completed: usize,
    /// Steps that were made durable by an fsync that succeeded.
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
        let parts = step.parts();
        journal.steps.extend(parts.iter().cloned());
        match step.perform(dir) {
            Ok(()) => {}
            Err(errno) if server_is_gone(errno) => break,
            Err(errno) => panic!("{step:?} failed with {errno:?}, which a healthy server has no reason for"),
        }
        // An fsync of any file is a barrier for all earlier steps.
        if matches!(step, Step::Fsync(_)) {
            journal.synced = journal.completed;
        }
        parts.iter().for_each(|part| model.apply(part));
        journal.completed = journal.steps.len();
    }
    journal
}

/// The errnos of calls on a mount whose FUSE server is gone.
fn server_is_gone(errno: sys::Errno) -> bool {
    // ECANCELED: a request that the process had taken over io_uring when it was killed.
    let gone = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED, libc::EIO, libc::ENODEV, libc::EINTR];
    gone.contains(&errno.0)
}

impl Journal {
    /// Finds the number of steps after which the tree equals `found`. Otherwise reports the number that comes
    /// nearest.
    pub fn survivors(&self, found: &Tree) -> Result<usize, String> {
        let counts = format!("{} steps were done and {} made safe", self.completed, self.synced);
        let nearest = match self.scan(found, self.synced) {
            Ok(done) => return Ok(done),
            Err(nearest) => nearest,
        };
        if let Ok(done) = self.scan(found, 0) {
            return Err(format!("{counts}, but only {done} survived"));
        }
        let Nearest { done, differences, .. } = nearest;
        Err(format!(
            "{counts}, and what was found is the state after no number of them. Nearest is that after {done}:\n\
             {differences}    the steps before it: {:?}\n    and after it: {:?}",
            &self.steps[done.saturating_sub(6)..done],
            &self.steps[done..(done + 6).min(self.steps.len())],
        ))
    }

    /// Searches the states after `from` steps and more for `found`.
    fn scan(&self, found: &Tree, from: usize) -> Result<usize, Nearest> {
        let mut model = Model::default();
        let mut nearest = Nearest { done: 0, wrong: usize::MAX, differences: String::new() };
        for done in 0..=self.steps.len() {
            if let Some(step) = done.checked_sub(1).and_then(|last| self.steps.get(last)) {
                model.apply(step);
            }
            if done < from {
                continue;
            }
            let expected = model.tree(found);
            let wrong = count_differences(found, &expected);
            if wrong == 0 {
                return Ok(done);
            }
            if wrong < nearest.wrong {
                nearest = Nearest { done, wrong, differences: tree::differences(found, &expected) };
            }
        }
        Err(nearest)
    }
}

/// The state with the fewest differences.
struct Nearest {
    done: usize,
    wrong: usize,
    differences: String,
}

fn count_differences(found: &Tree, expected: &Tree) -> usize {
    let missing = expected.keys().filter(|path| !found.contains_key(*path)).count();
    missing + found.iter().filter(|(path, node)| expected.get(*path) != Some(node)).count()
}
