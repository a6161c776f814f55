//! Whether a history can be explained. The question is whether there is an order of all its calls, each at
//! one moment between its begin and its return, in which the model answers what was seen.
//!
//! **How.** Just-in-time linearization (Wing & Gong's search in the form Lowe gave it), breadth first. A
//! [`Config`] is one way in which the calls so far may have taken place: the model's state, and for each call
//! in progress whether it has taken place and what it has seen. Calls take place as late as possible. Only
//! when a call returns, each configuration is replaced by all that follow from letting calls in progress take
//! place until that one has. Equal configurations are merged. At a quiescent point, without calls in
//! progress, only the set of possible states is left; a *segment* lies between two such points. Calls that
//! cannot influence the one that returns, not even through further calls in progress, are left for later
//! ([`footprint`]).
//!
//! **Atomic is what is atomic locally.** A path is walked name by name, each at its own moment, in order; the
//! call itself acts on where that led. A directory on the path may be renamed meanwhile, and Linux does not
//! look again. Reading is not atomic: each name of a listing, each word of a read, the size and the link
//! count may be seen at different moments of the call. Link counts may also differ from the names by the
//! calls in progress, because local file systems change the count first.
//!
//! **Calls without an end** (the worker died) may have taken place at any moment after they began, or never.
//!
//! **Refuses** to guess: a search that grows beyond [`limits::CONFIGS_MAX`] is "too hard", neither explained
//! nor refused.

mod atoms;
mod config;
mod explain;
mod footprint;
mod walk;

pub use explain::Refusal;

use crate::history::Call;
use crate::limits;
use atoms::Atom;
use config::Config;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The result of a check.
#[derive(Debug)]
pub enum Verdict {
    /// There is an order.
    Explained(Stats),
    /// There is none.
    Refused(Box<Refusal>),
    /// Unknown: there are too many orders at this call.
    TooHard(usize),
}

/// Statistics of a check.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stats {
    /// Calls.
    pub calls: usize,
    /// Segments between quiescent points.
    pub segments: usize,
    /// Calls in the longest segment.
    pub longest: usize,
    /// The largest number of configurations kept at once.
    pub configs_max: usize,
}

impl Stats {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.segments += other.segments;
        self.longest = self.longest.max(other.longest);
        self.configs_max = self.configs_max.max(other.configs_max);
    }
}

/// A call in the checker's form.
struct Known<'a> {
    call: &'a Call,
    /// What it saw, if it changes nothing and succeeded.
    atoms: Vec<Atom>,
}

/// The calls of a history, numbered in the order in which they began.
struct Calls<'a>(Vec<Known<'a>>);

/// A begin or a return.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Event {
    time: u64,
    /// At the same moment, begins come first: the calls overlap.
    returns: bool,
    call: usize,
}

/// How far a search has come.
enum Reached {
    /// The end.
    End,
    /// A return without an explanation: the call, how many events came before, all configurations that were
    /// tried.
    Stuck { call: usize, events: usize, tried: Vec<Config> },
    /// Too many configurations at this call.
    TooMany(usize),
}

impl<'a> Calls<'a> {
    fn new(calls: &'a [Call]) -> Self {
        Self(calls.iter().map(|call| Known { call, atoms: atoms::of(call) }).collect())
    }

    /// Begins and returns of these calls in time order. A call that did not return and would change nothing
    /// is left out.
    fn events(&self, calls: impl IntoIterator<Item = usize>) -> Vec<Event> {
        let mut events = Vec::new();
        for call in calls {
            let Call { start, end, op, .. } = self.0[call].call;
            if end.is_some() || op.changes() {
                events.push(Event { time: *start, returns: false, call });
            }
            events.extend(end.map(|time| Event { time, returns: true, call }));
        }
        events.sort_unstable();
        events
    }

    /// Follows events from these configurations. `quiescent` is called at each point without a returning call
    /// in progress.
    fn follow(
        &self,
        from: Vec<Config>,
        events: &[Event],
        mut quiescent: impl FnMut(usize, &[Config]),
    ) -> Reached {
        let mut configs = from;
        let mut running = 0;
        for (at, event) in events.iter().enumerate() {
            if running == 0 {
                quiescent(at, &configs);
            }
            if event.returns {
                running -= 1;
                match self.linearize(configs, event.call) {
                    Ok(linearized) => configs = linearized,
                    Err(Some(tried)) => return Reached::Stuck { call: event.call, events: at, tried },
                    Err(None) => return Reached::TooMany(event.call),
                }
            } else {
                running += usize::from(self.0[event.call].call.end.is_some());
                for config in &mut configs {
                    config.begin(self, event.call);
                }
            }
        }
        Reached::End
    }

    /// All ways to let calls in progress take place until `call` has, and its return. If there is none, the
    /// error holds what was tried, or nothing if that was too much.
    fn linearize(&self, configs: Vec<Config>, call: usize) -> Result<Vec<Config>, Option<Vec<Config>>> {
        let (mut linearized, mut seen, mut next) = (HashSet::new(), HashSet::new(), configs);
        while let Some(config) = next.pop() {
            if config.is_done(call) {
                linearized.insert(config.retired(self, call));
            } else if !seen.contains(&config) {
                config.steps(self, call, &mut next);
                seen.insert(config);
            }
            if seen.len() + linearized.len() > limits::CONFIGS_MAX {
                return Err(None);
            }
        }
        if linearized.is_empty() {
            Err(Some(seen.into_iter().collect()))
        } else {
            Ok(linearized.into_iter().collect())
        }
    }
}

/// Checks calls, which must be in the order in which they began. Trees are checked separately, several at the
/// same time: a history is linearizable if it is so in each part of the state that no call crosses.
pub fn check(calls: &[Call]) -> Verdict {
    let known = Calls::new(calls);
    let mut trees: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (number, call) in calls.iter().enumerate() {
        trees.entry(call.tree).or_default().push(number);
    }
    let trees: Vec<Vec<usize>> = trees.into_values().collect();
    let (next, wrong) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut total = Stats::default();
    let mut verdicts: Vec<(usize, Verdict)> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(trees.len());
        let work = || {
            let mut verdicts = Vec::new();
            while !wrong.load(Ordering::Relaxed) {
                let tree = next.fetch_add(1, Ordering::Relaxed);
                let Some(calls) = trees.get(tree) else { break };
                let verdict = check_tree(&known, calls);
                wrong.fetch_or(!matches!(verdict, Verdict::Explained(_)), Ordering::Relaxed);
                verdicts.push((tree, verdict));
            }
            verdicts
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    verdicts.sort_by_key(|(tree, verdict)| (matches!(verdict, Verdict::TooHard(_)), *tree));
    for (_, verdict) in verdicts {
        match verdict {
            Verdict::Explained(stats) => total.add(stats),
            other => return other,
        }
    }
    assert_eq!(total.calls, calls.len(), "all calls are checked");
    Verdict::Explained(total)
}

/// Whether [`check`] would explain calls, which are all of one tree; `None` if that is too hard. Refusals are
/// quick, because no explanation is built.
pub fn explains(calls: &[Call]) -> Option<bool> {
    let known = Calls::new(calls);
    let events = known.events(0..calls.len());
    match known.follow(vec![Config::default()], &events, |_, _| {}) {
        Reached::End => Some(true),
        Reached::TooMany(_) => None,
        Reached::Stuck { .. } => Some(false),
    }
}

/// Checks calls of one tree.
fn check_tree(known: &Calls<'_>, calls: &[usize]) -> Verdict {
    let events = known.events(calls.iter().copied());
    let mut stats = Stats { calls: calls.len(), ..Stats::default() };
    let mut last = (0, vec![Config::default()]);
    let reached = known.follow(vec![Config::default()], &events, |at, configs| {
        if at > last.0 {
            stats.segments += 1;
            stats.longest = stats.longest.max((at - last.0) / 2);
        }
        stats.configs_max = stats.configs_max.max(configs.len());
        last = (at, configs.to_vec());
    });
    match reached {
        Reached::End => {
            stats.segments += usize::from(events.len() > last.0);
            stats.longest = stats.longest.max((events.len() - last.0) / 2);
            Verdict::Explained(stats)
        }
        Reached::TooMany(call) => Verdict::TooHard(call),
        Reached::Stuck { call, events: at, .. } => {
            let segment = &events[last.0..=at];
            Verdict::Refused(Box::new(explain::refusal(known, last.1, segment, call, stats)))
        }
    }
}

#[cfg(test)]
mod tests;
