//! One way in which the calls so far may have taken place.

use super::footprint::Footprint;
use super::walk::Walk;
use super::{Calls, Known};
use crate::history::Call;
use crate::model::{self, Actor, Id, State};
use crate::ops::{Kind, Op, Outcome};
use std::collections::BTreeSet;

/// A configuration.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct Config {
    state: State,
    /// Calls in progress by number, in the order in which they began.
    pending: Vec<(usize, Progress)>,
}

/// How far a call is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Progress {
    /// It has taken place, it only has to return.
    Done,
    /// Where its paths may have led.
    Begun(Begun),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Begun {
    first: Walk,
    second: Walk,
    /// For each inode that was looked at, the atoms seen so far, one bit each; sorted.
    seen: Vec<(Id, u64)>,
}

impl Begun {
    fn new(state: &State, call: &Call) -> Self {
        let walks = model::paths(&call.op).map(|path| path.map(|(path, target)| Walk::new(path, target)));
        let [first, second] = walks;
        let held = slot(&call.op).and_then(|slot| state.handle(call.worker, slot));
        let first = first.or(held.map(|held| Walk::at(held.id))).unwrap_or_default();
        // Calls with a single path get any inode as their second one.
        Self { first, second: second.unwrap_or(Walk::at(model::ROOT)), seen: Vec::new() }
    }

    /// All pairs of inodes that the paths may have led to.
    fn ends(&self) -> impl Iterator<Item = (Id, Id)> {
        self.first.ends().iter().flat_map(|first| self.second.ends().iter().map(|second| (*first, *second)))
    }

    /// Whether a call without effect can have taken place by now: it failed as it may have, or all that it
    /// saw was true.
    fn look(&mut self, state: &State, known: &Known<'_>, who: Actor, slack: u64) -> bool {
        let op = &known.call.op;
        match &known.call.outcome {
            Some(seen @ Outcome::Failed { errno }) => {
                self.first.failures().contains(errno)
                    || self.second.failures().contains(errno)
                    || self.ends().any(|(first, second)| {
                        model::same(&model::effect(state, who, op, first, second).0, seen)
                    })
            }
            Some(_) if !op.changes() => {
                let all = u64::MAX.checked_shr(64 - known.atoms.len() as u32).unwrap_or(0);
                let mut complete = false;
                for id in self.first.ends() {
                    let at = self.seen.binary_search_by_key(id, |seen| seen.0).unwrap_or_else(|at| {
                        self.seen.insert(at, (*id, 0));
                        at
                    });
                    for (bit, atom) in known.atoms.iter().enumerate() {
                        if self.seen[at].1 & 1 << bit == 0 && atom.holds(state, *id, slack) {
                            self.seen[at].1 |= 1 << bit;
                        }
                    }
                    complete |= self.seen[at].1 == all;
                }
                complete
            }
            _ => false,
        }
    }
}

fn slot(op: &Op) -> Option<u8> {
    match op {
        Op::Read { slot }
        | Op::Write { slot, .. }
        | Op::Ftruncate { slot, .. }
        | Op::Fstat { slot }
        | Op::Fsync { slot } => Some(*slot),
        _ => None,
    }
}

/// Calls that change the link count of a directory, or of another inode.
fn counts_links(call: &Call, directory: bool) -> bool {
    let succeeded = !matches!(call.outcome, None | Some(Outcome::Failed { .. }));
    succeeded
        && match call.op {
            Op::Rename { .. } => true,
            Op::Mkdir { .. } | Op::Rmdir { .. } => directory,
            Op::Unlink { .. } | Op::Link { .. } => !directory,
            _ => false,
        }
}

impl Calls<'_> {
    fn actor(&self, call: usize) -> Actor {
        let known = self.0[call].call;
        let ino = match known.outcome {
            Some(Outcome::Opened { ino }) => ino,
            _ => None,
        };
        Actor { worker: known.worker, makes: call as Id + 1, ino }
    }
}

impl Config {
    /// The state of the tree.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// The calls in progress.
    pub(super) fn running(&self) -> impl Iterator<Item = usize> {
        self.pending.iter().map(|(call, _)| *call)
    }

    /// A call begins.
    pub(super) fn begin(&mut self, calls: &Calls<'_>, call: usize) {
        self.pending.push((call, Progress::Begun(Begun::new(&self.state, calls.0[call].call))));
        self.watch(calls);
    }

    /// Whether it has taken place.
    pub(super) fn is_done(&self, call: usize) -> bool {
        self.pending.iter().any(|(one, progress)| *one == call && *progress == Progress::Done)
    }

    /// The configuration after the return of `call`.
    pub(super) fn retired(mut self, calls: &Calls<'_>, call: usize) -> Self {
        self.pending.retain(|(one, _)| *one != call);
        let mut keep = BTreeSet::new();
        for (one, progress) in &mut self.pending {
            if let Progress::Begun(begun) = progress {
                if calls.0[*one].call.end.is_none() {
                    begun.first.prune(&self.state);
                    begun.second.prune(&self.state);
                }
                keep.extend(begun.first.reached().chain(begun.second.reached()));
            }
        }
        self.state.forget(&keep);
        self
    }

    /// Lets the calls in progress observe the present state.
    fn watch(&mut self, calls: &Calls<'_>) {
        for at in 0..self.pending.len() {
            if self.pending[at].1 == Progress::Done {
                continue;
            }
            let known = &calls.0[self.pending[at].0];
            let slack = match known.call.outcome {
                Some(Outcome::Attributes { kind, .. }) => {
                    let counting =
                        |(one, _): &&(usize, Progress)| counts_links(calls.0[*one].call, kind == Kind::Dir);
                    self.pending.iter().filter(counting).count() as u64
                }
                _ => 0,
            };
            let (call, Progress::Begun(begun)) = &mut self.pending[at] else { continue };
            begun.first.extend(&self.state);
            begun.second.extend(&self.state);
            if begun.look(&self.state, known, calls.actor(*call), slack) {
                self.pending[at].1 = Progress::Done;
            }
        }
    }

    /// The configuration with this state next, in which `done` has taken place.
    fn after(&self, calls: &Calls<'_>, state: State, done: Option<usize>) -> Self {
        let mut next = Self { state, pending: self.pending.clone() };
        if let Some(at) = done {
            next.pending[at].1 = Progress::Done;
        }
        next.watch(calls);
        next
    }

    /// The calls in progress that may influence this one, which is among them.
    fn concern(&self, calls: &Calls<'_>, call: usize) -> Vec<bool> {
        let prints: Vec<Option<Footprint>> = self
            .pending
            .iter()
            .map(|(one, progress)| match progress {
                Progress::Done => None,
                Progress::Begun(Begun { first, second, .. }) => {
                    let known = calls.0[*one].call;
                    let looks = first.looks().chain(second.looks());
                    Some(Footprint::of(&self.state, known, looks, first.ends(), second.ends()))
                }
            })
            .collect();
        let mut concern = vec![false; self.pending.len()];
        let mut next: Vec<usize> =
            self.pending.iter().position(|(one, _)| *one == call).into_iter().collect();
        while let Some(at) = next.pop() {
            let Some(print) = prints[at].as_ref().filter(|_| !concern[at]) else { continue };
            concern[at] = true;
            let near =
                |also: &usize| !concern[*also] && prints[*also].as_ref().is_some_and(|p| p.meets(print));
            next.extend((0..prints.len()).filter(near));
        }
        concern
    }

    /// Adds all configurations that are one step nearer to the return of `call`: a call in progress takes
    /// place, or an inode number becomes known.
    pub(super) fn steps(&self, calls: &Calls<'_>, call: usize, next: &mut Vec<Self>) {
        let concern = self.concern(calls, call);
        for (at, (call, progress)) in self.pending.iter().enumerate() {
            let Progress::Begun(begun) = progress else { continue };
            if !concern[at] {
                continue;
            }
            let Call { op, outcome, .. } = calls.0[*call].call;
            match outcome {
                Some(Outcome::Failed { .. } | Outcome::Odd { .. }) => (),
                Some(Outcome::Attributes { kind, ino, .. }) => self.learn(calls, begun, *kind, *ino, next),
                _ if !op.changes() => (),
                _ => {
                    for (first, second) in begun.ends() {
                        let (model, state) =
                            model::effect(&self.state, calls.actor(*call), op, first, second);
                        let fits = outcome.as_ref().is_none_or(|seen| model::same(&model, seen));
                        if let (true, Some(state)) = (fits, state) {
                            next.push(self.after(calls, state, Some(at)));
                        }
                    }
                }
            }
        }
    }

    /// The number that was seen may be that of an inode whose number is not known yet.
    fn learn(&self, calls: &Calls<'_>, begun: &Begun, kind: Kind, ino: u64, next: &mut Vec<Self>) {
        for id in begun.first.ends() {
            let unknown =
                self.state.inode(*id).is_some_and(|inode| inode.ino.is_none() && inode.body.kind() == kind);
            if unknown {
                let mut state = self.state.clone();
                state.alter(*id, |inode| inode.ino = Some(ino));
                next.push(self.after(calls, state, None));
            }
        }
    }

    /// The outcomes with which the model could let this call return here, if it took place at one moment.
    pub(super) fn possible(&self, calls: &Calls<'_>, call: usize, found: &mut BTreeSet<Outcome>) {
        let Some((_, Progress::Begun(begun))) = self.pending.iter().find(|(one, _)| *one == call) else {
            return;
        };
        let op = &calls.0[call].call.op;
        let who = Actor { ino: None, ..calls.actor(call) };
        for errno in begun.first.failures().iter().chain(begun.second.failures()) {
            found.insert(Outcome::failed(*errno));
        }
        for (first, second) in begun.ends() {
            found.insert(model::effect(&self.state, who, op, first, second).0);
        }
    }
}
