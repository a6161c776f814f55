//! The report of a refused history: as short as possible.

use super::config::Config;
use super::{Calls, Event, Reached, Stats};
use crate::history::{Call, Header};
use crate::limits;
use crate::model;
use crate::ops::{Op, Outcome, Path};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::time::Instant;

/// Why a history is refused.
#[derive(Debug)]
pub struct Refusal {
    /// Calls of the segment that are needed for the refusal, by number, in the order in which they began.
    pub calls: Vec<usize>,
    /// The call whose return has no explanation.
    pub stuck: usize,
    /// What it could have returned instead.
    pub possible: BTreeSet<Outcome>,
    /// The states that the segment may have begun in, in words.
    pub before: Vec<String>,
    /// What was checked up to there.
    pub stats: Stats,
    /// Earlier calls that changed what the stuck call is about, by number: for the reader only.
    pub earlier: Vec<usize>,
}

/// `from` are the configurations at the last quiescent point, `segment` the events since, the last being the
/// return of `stuck`.
pub(super) fn refusal(
    calls: &Calls<'_>,
    from: Vec<Config>,
    segment: &[Event],
    stuck: usize,
    stats: Stats,
) -> Refusal {
    let mut kept: Vec<usize> =
        segment.iter().filter(|event| !event.returns).map(|event| event.call).collect();
    let end = segment.last().map_or(0, |event| event.time);
    let events = |of: &[usize]| {
        let mut events = calls.events(of.iter().copied());
        // What began or returned later than the stuck call plays no part.
        events.retain(|event| (event.time, event.returns) <= (end, true));
        events
    };
    let refused = |of: &[usize]| matches!(calls.follow(from.clone(), &events(of), |_, _| ()), Reached::Stuck { call, .. } if call == stuck);
    shrink(&mut kept, |call| call != stuck && !alters(calls.0[call].call), refused);
    let mut possible = BTreeSet::new();
    if let Reached::Stuck { tried, .. } = calls.follow(from.clone(), &events(&kept), |_, _| ()) {
        for config in tried {
            config.possible(calls, stuck, &mut possible);
        }
    }
    // Calls without an end may have begun long ago.
    kept.extend(from.iter().flat_map(Config::running));
    kept.sort_unstable();
    kept.dedup();
    let before: HashSet<String> = from.iter().map(|config| config.state().to_string()).collect();
    let mut before: Vec<String> = before.into_iter().collect();
    before.sort();
    let first = segment.first().map_or(0, |event| event.call);
    let earlier = earlier(calls, first, stuck);
    Refusal { calls: kept, stuck, possible, before, stats, earlier }
}

/// The last changes before call `first` to anything on the path of `stuck`, or directly below it.
fn earlier(calls: &Calls<'_>, first: usize, stuck: usize) -> Vec<usize> {
    let tree = calls.0[stuck].call.tree;
    let mut open = BTreeMap::new();
    let mut changed: Vec<(usize, Vec<&Path>)> = Vec::new();
    let mut about = Vec::new();
    for (number, known) in calls.0.iter().enumerate().take(stuck + 1) {
        let Call { worker, op, .. } = known.call;
        if known.call.tree != tree {
            continue;
        }
        let mut paths: Vec<&Path> = model::paths(op).into_iter().flatten().map(|(path, _)| path).collect();
        match op {
            Op::Open { path, slot, .. } if alters(known.call) => drop(open.insert((worker, slot), path)),
            Op::Write { slot, .. } | Op::Ftruncate { slot, .. } => paths.extend(open.get(&(worker, slot))),
            Op::Read { slot } | Op::Fstat { slot } => paths.extend(open.get(&(worker, slot))),
            _ => (),
        }
        if number == stuck {
            about = paths;
        } else if number < first && alters(known.call) && !matches!(op, Op::Open { create: false, .. }) {
            changed.push((number, paths));
        }
    }
    let near = |path: &Path| {
        about.iter().any(|about| {
            let (path, about) = (path.names(), about.names());
            about.starts_with(path) || path.starts_with(about) && path.len() == about.len() + 1
        })
    };
    let related = changed.iter().rev().filter(|(_, paths)| paths.iter().any(|path| near(path)));
    let mut last: Vec<usize> = related.map(|(number, _)| *number).take(EARLIER_SHOWN).collect();
    last.reverse();
    last
}

/// Whether leaving the call out could make a history look wrong that is right.
fn alters(call: &Call) -> bool {
    call.op.changes() && !matches!(call.outcome, Some(Outcome::Failed { .. }))
}

/// Leaves out calls as long as the rest is still refused: large parts first, then smaller ones.
fn shrink(kept: &mut Vec<usize>, may_go: impl Fn(usize) -> bool, refused: impl Fn(&[usize]) -> bool) {
    let (began, mut attempts) = (Instant::now(), 0);
    let mut part = kept.len();
    while part > 0 {
        let candidates: Vec<usize> = kept.iter().copied().filter(|call| may_go(*call)).collect();
        for gone in candidates.chunks(part) {
            attempts += 1;
            if attempts > limits::SHRINK_ATTEMPTS_MAX || began.elapsed() > limits::SHRINK_TIME_MAX {
                return;
            }
            let rest: Vec<usize> = kept.iter().copied().filter(|call| !gone.contains(call)).collect();
            if refused(&rest) {
                *kept = rest;
            }
        }
        part /= 2;
    }
}

/// States shown of those that a segment may have begun in.
const STATES_SHOWN: usize = 3;
/// Outcomes shown of those that the model could accept.
const POSSIBLE_SHOWN: usize = 12;
/// Earlier changes shown.
const EARLIER_SHOWN: usize = 8;

impl Refusal {
    /// The report, for people.
    pub fn show(&self, calls: &[Call], header: &Header) -> String {
        let mut out = String::new();
        let zero = self.calls.first().map_or(0, |call| calls[*call].start);
        let us = |time: u64| (time as f64 - zero as f64) / 1e3;
        let line = |out: &mut String, number: usize| {
            let call = &calls[number];
            let end = call.end.map_or("never".to_owned(), |end| format!("{:.1}", us(end)));
            let outcome = call.outcome.as_ref().map_or("?".to_owned(), Outcome::to_string);
            let mark = if number == self.stuck { "**" } else { "  " };
            let mount = header.mount_of(call.worker);
            let start = us(call.start);
            let Call { worker, op, .. } = call;
            let _ =
                writeln!(out, " {mark} {start:>9.1} - {end:>9}  {mount:>5} {worker:>6}  {op} -> {outcome}");
        };
        let _ = writeln!(
            out,
            "NOT EXPLAINED: segment {} of tree {}, {} calls shown",
            self.stats.segments + 1,
            calls[self.stuck].tree,
            self.calls.len()
        );
        for state in self.before.iter().take(STATES_SHOWN) {
            let _ = writeln!(out, "  before it: {state}");
        }
        if self.before.len() > STATES_SHOWN {
            let _ = writeln!(out, "  or one of {} other states", self.before.len() - STATES_SHOWN);
        }
        let _ = writeln!(out, "    {:>9}   {:>9}  mount worker  call", "begin us", "return us");
        for number in &self.earlier {
            line(&mut out, *number);
        }
        if !self.earlier.is_empty() {
            let _ = writeln!(out, "    (above: what changed it last; below: what cannot be)");
        }
        for number in &self.calls {
            line(&mut out, *number);
        }
        let _ = writeln!(out, "  Nothing explains what the call marked ** returned. It could have returned:");
        for outcome in self.possible.iter().take(POSSIBLE_SHOWN) {
            let _ = writeln!(out, "      {outcome}");
        }
        if self.possible.is_empty() {
            let _ = writeln!(out, "      nothing: the calls before it do not fit together, either");
        }
        if self.possible.len() > POSSIBLE_SHOWN {
            let _ = writeln!(out, "      or one of {} more", self.possible.len() - POSSIBLE_SHOWN);
        }
        out
    }
}
