//! Whether what programs saw is what one local file system could have answered, with what mounts may have lost.
//!
//! **Loss.** A mount whose machine died, or whose session was ended, may lose its last calls, from some moment on; never what was synced, nor what others
//! have seen, nor what is older than what was wrong. So each such session has moments at which its part of the history may end, and one choice of them must
//! explain everything.

use crate::plan::Plan;
use crate::programs::is_lost;
use shoal_types::SessionId;
use shoal_witness::check::{self, Verdict};
use shoal_witness::history::{Call, Header, VERSION};
use shoal_witness::ops::{Op, Outcome};
use std::collections::BTreeMap;

/// What was done this long before the end of a session, and before whatever was wrong then, is not lost.
const SHIPPED_WITHIN_NS: u64 = 3_000_000_000;
/// Choices of moments that are tried.
const CHOICES_MAX: usize = 1_500;

/// What is known of a world's calls.
pub struct Evidence {
    /// In the order in which they began.
    pub calls: Vec<Call>,
    /// Mount and session of each worker.
    pub lives: BTreeMap<u32, (u32, SessionId)>,
    /// Sessions that did not end with their mount: when they did. True: the mount went on in another one.
    pub ends: BTreeMap<SessionId, (u64, bool)>,
    /// When something was wrong.
    pub spans: Vec<(u64, u64)>,
}

/// What came of it.
pub enum Judgement {
    /// All is well; so many calls of those that had returned were lost.
    Fine(usize),
    /// It was too much to look at.
    Unchecked,
    /// This cannot be.
    Wrong(String),
}

impl Evidence {
    fn session(&self, call: &Call) -> SessionId {
        self.lives[&call.worker].1
    }

    /// When the part of the history of a session that has ended may end, the latest first.
    fn moments(&self, session: SessionId, end: u64) -> Vec<u64> {
        let mut from = end.saturating_sub(SHIPPED_WITHIN_NS);
        // What was wrong may have held up everything since it began.
        let mut spans = self.spans.clone();
        spans.sort_unstable_by_key(|span| std::cmp::Reverse(span.1));
        for (begun, over) in spans {
            if begun < end && over > from {
                from = from.min(begun.saturating_sub(SHIPPED_WITHIN_NS));
            }
        }
        let own = || self.calls.iter().filter(|call| self.session(call) == session);
        let synced =
            own().filter(|call| matches!((&call.op, &call.outcome), (Op::Fsync { .. }, Some(Outcome::Done))));
        let kept = synced.map(|call| call.start).max().unwrap_or(0).max(from);
        let changes = own().filter(|call| changes(&call.op)).filter_map(|call| call.end);
        let mut moments: Vec<u64> =
            changes.flat_map(|end| [end, end - 1]).filter(|at| *at >= kept && *at < end).collect();
        moments.extend([end, kept.min(end)]);
        moments.sort_unstable();
        moments.dedup();
        moments.reverse();
        moments
    }

    /// The calls that count if sessions ended with these moments.
    fn with(&self, cuts: &BTreeMap<SessionId, u64>) -> Vec<Call> {
        let mut calls = self.calls.clone();
        calls.retain_mut(|call| {
            let (mount, session) = self.lives[&call.worker];
            let lost = call.outcome.as_ref().is_some_and(is_lost);
            let Some((end, goes_on)) = self.ends.get(&session).copied() else {
                // The loss of an earlier session is reported once more, by the next fsync.
                let reported = lost && matches!(call.op, Op::Fsync { .. });
                return !(reported && self.has_lost(mount));
            };
            let cut = cuts.get(&session).copied().unwrap_or(end);
            if lost && goes_on && call.start > end {
                // There was no session to do it in.
                return false;
            }
            let crosses = call.end.is_none_or(|at| at > end);
            if lost || crosses || call.end.is_some_and(|at| at > cut) {
                (call.end, call.outcome) = (None, None);
            }
            (goes_on && crosses && !lost) || call.start <= cut
        });
        calls.sort_by_key(|call| call.start);
        calls
    }

    fn has_lost(&self, mount: u32) -> bool {
        self.lives
            .values()
            .any(|(of, session)| *of == mount && self.ends.get(session).is_some_and(|(_, goes_on)| *goes_on))
    }

    /// Looks for a choice of moments that explains everything.
    pub fn judge(&self, plan: &Plan) -> Judgement {
        let known = |session: &&SessionId| self.lives.values().any(|(_, of)| of == *session);
        let sessions: Vec<SessionId> = self.ends.keys().filter(known).copied().collect();
        let moments: Vec<Vec<u64>> =
            sessions.iter().map(|session| self.moments(*session, self.ends[session].0)).collect();
        let choices = moments.iter().map(Vec::len).fold(1usize, usize::saturating_mul);
        let mut hard = choices > CHOICES_MAX;
        for number in 0..choices.min(CHOICES_MAX) {
            let mut rest = number;
            let pick = |(session, moments): (&SessionId, &Vec<u64>)| {
                let at = moments[rest % moments.len()];
                rest /= moments.len();
                (*session, at)
            };
            let cuts: BTreeMap<SessionId, u64> = sessions.iter().zip(&moments).map(pick).collect();
            let calls = self.with(&cuts);
            match check::explains(&calls) {
                Some(true) => {
                    let all = self.with(&BTreeMap::new());
                    let returned = |calls: &[Call]| calls.iter().filter(|call| call.end.is_some()).count();
                    return Judgement::Fine(returned(&all) - returned(&calls));
                }
                Some(false) => {}
                None => hard = true,
            }
        }
        if hard {
            return Judgement::Unchecked;
        }
        // What is shown is why it is not so with all calls that have returned.
        let calls = self.with(&BTreeMap::new());
        match check::check(&calls) {
            Verdict::Refused(refusal) => {
                let dirs = (0..plan.clients).map(|client| format!("client {client}")).collect();
                let header = Header {
                    shoal_witness_history: VERSION,
                    seed: plan.seed,
                    dirs,
                    workers: plan.workers,
                    may_die: vec![],
                };
                let lost = if sessions.is_empty() { "" } else { ", whatever was lost" };
                let shown = refusal.show(&calls, &header);
                Judgement::Wrong(format!("no local file system does this{lost}:\n{shown}"))
            }
            _ => Judgement::Unchecked,
        }
    }
}

fn changes(op: &Op) -> bool {
    !matches!(
        op,
        Op::Lstat { .. }
            | Op::List { .. }
            | Op::Read { .. }
            | Op::Readlink { .. }
            | Op::Fstat { .. }
            | Op::Fsync { .. }
    )
}
