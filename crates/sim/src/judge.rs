//! Whether one local file system could have answered what programs saw, given what mounts may have lost.
//!
//! **Loss.** A mount whose machine died, or whose session was ended, may lose its last calls, from some
//! moment on. It never loses what was synced, what other clients have seen, or what is older than the fault.
//! So each such session has several moments at which its part of the history may end. One choice of them must
//! explain everything.

use crate::plan::Plan;
use crate::programs::is_lost;
use shoal_types::SessionId;
use shoal_witness::check::{self, Verdict};
use shoal_witness::history::{Call, Header, VERSION};
use shoal_witness::ops::{Op, Outcome};
use std::collections::BTreeMap;

/// What was done this long before the end of a session, and this long before the fault, is not lost.
const SHIPPED_WITHIN_NS: u64 = 3_000_000_000;
/// Choices of moments that are tried.
const CHOICES_MAX: usize = 1_500;

/// The recorded facts about a world's calls.
pub struct Evidence {
    /// In the order in which they began.
    pub calls: Vec<Call>,
    /// Mount and session of each worker.
    pub lives: BTreeMap<u32, (u32, SessionId)>,
    /// The ends of sessions that did not end with their mount. True: the mount went on in another session.
    pub ends: BTreeMap<SessionId, (u64, bool)>,
    /// When servers gave up silent sessions. From then on their clients must not answer any call.
    pub given_up: BTreeMap<SessionId, u64>,
    /// The times of faults.
    pub spans: Vec<(u64, u64)>,
}

/// The verdict.
pub enum Judgement {
    /// The history is explained; this many calls that had returned were lost.
    Fine(usize),
    /// The history was too hard to check.
    Unchecked,
    /// No choice explains the history.
    Wrong(String),
}

impl Evidence {
    fn session(&self, call: &Call) -> SessionId {
        self.lives[&call.worker].1
    }

    /// The moments at which a session's part of the history may end, the latest first.
    fn moments(&self, session: SessionId, end: u64) -> Vec<u64> {
        let mut from = end.saturating_sub(SHIPPED_WITHIN_NS);
        // A fault may have delayed everything since it began.
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

    /// The calls that count if sessions ended at these moments.
    fn with(&self, cuts: &BTreeMap<SessionId, u64>) -> Vec<Call> {
        let mut calls = self.calls.clone();
        calls.retain_mut(|call| {
            let (mount, session) = self.lives[&call.worker];
            let lost = call.outcome.as_ref().is_some_and(is_lost);
            let Some((end, goes_on)) = self.ends.get(&session).copied() else {
                // The loss of an earlier session is reported once more, by the next fsync and by the next
                // change of a file that lost a change.
                let reported = lost && reports(&call.op);
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

    /// A call that was answered in a session that the servers had given up before it began.
    fn answered_too_late(&self) -> Option<String> {
        let late = |call: &&Call| {
            let session = self.session(call);
            let lost_at = self.ends.get(&session).map_or(u64::MAX, |end| end.0);
            let given_up = self.given_up.get(&session).is_some_and(|at| call.start > *at);
            let failed = matches!(call.outcome, None | Some(Outcome::Failed { .. }));
            // A call that needs no answer may be right at any time.
            let needs_none = matches!(call.op, Op::Fsync { .. });
            given_up && !failed && !needs_none && call.end.is_some_and(|end| end < lost_at)
        };
        let call = self.calls.iter().find(late)?;
        let outcome = call.outcome.as_ref()?;
        Some(format!("answered without a lease, in a session that was given up: {} -> {outcome}", call.op))
    }

    /// Looks for a choice of moments that explains everything.
    pub fn judge(&self, plan: &Plan) -> Judgement {
        if let Some(late) = self.answered_too_late() {
            return Judgement::Wrong(late);
        }
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
        // The finding shows why the history fails with all calls that have returned.
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
                    may_lapse: vec![],
                };
                let lost = if sessions.is_empty() { "" } else { ", whatever the mounts have lost" };
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

/// Calls that report a loss instead of being carried out.
fn reports(op: &Op) -> bool {
    matches!(op, Op::Fsync { .. } | Op::Write { .. } | Op::Truncate { .. } | Op::Ftruncate { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_witness::ops::{Kind, Path};

    const SESSION: SessionId = SessionId(1);
    const SECOND: u64 = 1_000_000_000;

    fn call(worker: u32, at: u64, op: Op, outcome: Outcome) -> Call {
        Call { worker, tree: 0, start: at, end: Some(at + 10), op, outcome: Some(outcome) }
    }

    fn create(name: &str) -> Op {
        let path = path(name);
        Op::Open { path, create: true, exclusive: true, append: false, slot: 0 }
    }

    fn path(name: &str) -> Path {
        Path::new(name.as_bytes())
    }

    fn makes(at: u64, name: &str, ino: u64) -> Call {
        call(0, at, create(name), Outcome::Opened { ino: Some(ino) })
    }

    fn sees(at: u64, name: &str, ino: Option<u64>) -> Call {
        let there = |ino| Outcome::Attributes { kind: Kind::File, ino, links: 1, bytes: 0 };
        let missing = Outcome::failed(libc::ENOENT);
        call(1, at, Op::Lstat { path: path(name) }, ino.map_or(missing, there))
    }

    /// Worker 0 has a session that ends after a second; worker 1 has another one, which does not end.
    fn judged(calls: &[Call], given_up: Option<u64>) -> Judgement {
        let mut calls = calls.to_vec();
        calls.sort_by_key(|call| call.start);
        let evidence = Evidence {
            calls,
            lives: BTreeMap::from([(0, (0, SESSION)), (1, (1, SessionId(2)))]),
            ends: BTreeMap::from([(SESSION, (SECOND, false))]),
            given_up: given_up.map(|at| (SESSION, at)).into_iter().collect(),
            spans: Vec::new(),
        };
        evidence.judge(&Plan::of(1))
    }

    #[test]
    fn the_last_calls_of_a_session_may_be_lost_and_no_others() {
        let two = [makes(100, "a", 7), makes(200, "b", 8)];
        let then = |looks: &[Call]| judged(&[&two[..], looks].concat(), None);
        let after = 2 * SECOND;
        assert!(matches!(
            then(&[sees(after, "a", Some(7)), sees(after + 20, "b", Some(8))]),
            Judgement::Fine(0)
        ));
        assert!(matches!(
            then(&[sees(after, "a", Some(7)), sees(after + 20, "b", None)]),
            Judgement::Fine(1)
        ));
        assert!(matches!(then(&[sees(after, "a", None), sees(after + 20, "b", None)]), Judgement::Fine(2)));
        // The loss is a suffix, and excludes what the other worker has seen.
        assert!(matches!(
            then(&[sees(after, "a", None), sees(after + 20, "b", Some(8))]),
            Judgement::Wrong(_)
        ));
        assert!(matches!(then(&[sees(300, "b", Some(8)), sees(after, "b", None)]), Judgement::Wrong(_)));
    }

    #[test]
    fn a_loss_is_reported_once_more_by_a_change_of_content_in_the_next_session_of_the_mount() {
        let judged = |worker: u32, op: Op| {
            let evidence = Evidence {
                calls: vec![makes(100, "a", 7), call(worker, 2 * SECOND, op, Outcome::failed(libc::EIO))],
                lives: BTreeMap::from([(0, (0, SESSION)), (1, (1, SessionId(2))), (2, (0, SessionId(3)))]),
                ends: BTreeMap::from([(SESSION, (SECOND, true))]),
                given_up: BTreeMap::new(),
                spans: Vec::new(),
            };
            evidence.judge(&Plan::of(1))
        };
        let truncate = || Op::Truncate { path: path("a"), words: 0 };
        assert!(matches!(judged(2, truncate()), Judgement::Fine(_)));
        assert!(matches!(judged(1, truncate()), Judgement::Wrong(_)), "nothing was lost there");
        assert!(matches!(judged(2, Op::Lstat { path: path("a") }), Judgement::Wrong(_)));
    }

    #[test]
    fn what_was_synced_is_not_lost() {
        let synced = call(0, 150, Op::Fsync { slot: 0 }, Outcome::Done);
        let calls = [makes(100, "a", 7), synced, makes(200, "b", 8)];
        let then = |looks: &[Call]| judged(&[&calls[..], looks].concat(), None);
        assert!(matches!(then(&[sees(2 * SECOND, "b", None)]), Judgement::Fine(_)));
        assert!(matches!(then(&[sees(2 * SECOND, "a", None)]), Judgement::Wrong(_)));
    }

    #[test]
    fn a_session_that_was_given_up_answers_nothing() {
        let calls = [makes(100, "a", 7), makes(200, "b", 8)];
        assert!(matches!(judged(&calls, Some(150)), Judgement::Wrong(_)));
        assert!(matches!(judged(&calls, Some(250)), Judgement::Fine(_)));
    }
}
