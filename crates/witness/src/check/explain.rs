//! What to show when a history is not explained: as little as still shows it.

use super::config::Config;
use super::{Calls, Event, Reached, Stats};
use crate::history::{Call, Header};
use crate::limits;
use crate::ops::Outcome;
use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;
use std::time::Instant;

/// Why a history is refused.
#[derive(Debug)]
pub struct Refusal {
    /// Calls of the segment that are needed to see it, by number, in the order in which they began.
    pub calls: Vec<usize>,
    /// The one whose return fits nothing.
    pub stuck: usize,
    /// What it could have returned instead.
    pub possible: BTreeSet<Outcome>,
    /// The states that the segment may have begun in, in words.
    pub before: Vec<String>,
    /// What was checked up to there.
    pub stats: Stats,
}

/// `from` are the configurations at the last quiescent point, `segment` the events since, the last being the return of `stuck`.
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
        // What began or returned later than the call that is stuck plays no part.
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
    Refusal { calls: kept, stuck, possible, before, stats }
}

/// Whether leaving the call out could make a history look wrong that is right.
fn alters(call: &Call) -> bool {
    call.op.changes() && !matches!(call.outcome, Some(Outcome::Failed { .. }))
}

/// Leaves out what may be left out as long as the rest is refused: large parts first, then smaller ones.
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

impl Refusal {
    /// For people.
    pub fn show(&self, calls: &[Call], header: &Header) -> String {
        let mut out = String::new();
        let zero = self.calls.first().map_or(0, |call| calls[*call].start);
        let us = |time: u64| time.saturating_sub(zero) as f64 / 1e3;
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
        for number in &self.calls {
            let call = &calls[*number];
            let end = call.end.map_or("never".to_owned(), |end| format!("{:.1}", us(end)));
            let outcome = call.outcome.as_ref().map_or("?".to_owned(), Outcome::to_string);
            let mark = if *number == self.stuck { "**" } else { "  " };
            let _ = writeln!(
                out,
                " {mark} {:>9.1} - {end:>9}  {:>5} {:>6}  {} -> {outcome}",
                us(call.start),
                header.mount_of(call.worker),
                call.worker,
                call.op,
            );
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
