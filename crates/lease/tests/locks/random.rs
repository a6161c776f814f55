//! Random operations have the same outcome in the table and in the model.

use crate::common::*;
use crate::model::{BYTES, Model, OWNERS, Verdict, range};
use proptest::prelude::*;
use shoal_lease::locks::*;
use shoal_types::SessionId;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Step {
    Set { lock: LockRecord, wait: bool },
    Unlock(LockRecord),
    Cancel(usize),
    Close(LockRecord),
    End(SessionId),
}

fn lock() -> impl Strategy<Value = LockRecord> {
    let place = (prop_oneof![Just(FILE), Just(OTHER)], prop_oneof![3 => Just(Posix), 1 => Just(Flock)]);
    let ends = prop_oneof![3 => (0..BYTES, 0..BYTES), 1 => Just((0, BYTES - 1))];
    let kind = prop_oneof![Just(Read), Just(Write)];
    (place, prop::sample::select(&OWNERS[..]), ends, kind).prop_map(|((ino, space), owner, (a, b), kind)| {
        let range = if space == Flock { LockRange::ALL } else { range(a.min(b), a.max(b)) };
        LockRecord { ino, space, ..posix(owner, kind, range) }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (lock(), any::<bool>()).prop_map(|(lock, wait)| Step::Set { lock, wait }),
        4 => lock().prop_map(Step::Unlock),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => lock().prop_map(Step::Close),
        1 => prop_oneof![Just(A.session), Just(C.session)].prop_map(Step::End),
    ];
    prop::collection::vec(step, 1..80)
}

struct Both {
    table: LockTable,
    model: Model,
    /// Every request that had to wait, and its lock.
    asked: Vec<(RequestKey, LockRecord)>,
    /// Requests that no longer wait, for any reason.
    over: BTreeSet<RequestKey>,
}

impl Both {
    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let (granted, expected) = match step {
            Step::Set { lock, wait } => self.set(*lock, *wait)?,
            Step::Unlock(lock) => {
                let settled = self.table.unlock(lock.ino, lock.space, lock.owner, lock.range);
                prop_assert_eq!(settled.outcome, Granted);
                (settled.granted, self.model.unlock(lock.ino, lock.space, lock.owner, lock.range))
            }
            Step::Cancel(n) => {
                if let Some((key, _)) = self.asked.get(n % self.asked.len().max(1)) {
                    prop_assert_eq!(self.table.cancel(*key), self.model.cancel(*key));
                    self.over.insert(*key);
                }
                (vec![], vec![])
            }
            Step::Close(lock) => (
                self.table.release_owner(lock.ino, lock.owner),
                self.model.release_owner(lock.ino, lock.owner),
            ),
            Step::End(session) => {
                let ended = self.asked.iter().filter(|(key, _)| key.session == *session);
                self.over.extend(ended.map(|(key, _)| *key));
                (self.table.release_session(*session), self.model.release_session(*session))
            }
        };
        self.granted(granted, expected, matches!(step, Step::End(_)))
    }

    fn set(
        &mut self,
        lock: LockRecord,
        wait: bool,
    ) -> Result<(Vec<RequestKey>, Vec<RequestKey>), TestCaseError> {
        let key = key(&lock, self.asked.len() as u64);
        let settled = self.table.set(lock, wait.then_some(key));
        let (verdict, expected) = self.model.set(lock, wait.then_some(key));
        prop_assert_eq!(
            verdict,
            match settled.outcome {
                Outcome::Granted => Verdict::Granted,
                Outcome::Conflict(_) => Verdict::Conflict,
                Outcome::Waiting => Verdict::Waiting,
                Outcome::Deadlock => Verdict::Deadlock,
                Outcome::NoRoom => return Err(TestCaseError::fail("there is room")),
            }
        );
        if settled.outcome == Waiting {
            self.asked.push((key, lock));
        }
        Ok((settled.granted, expected))
    }

    /// A session's end frees several files at once: the order is defined for each file only.
    fn granted(
        &mut self,
        mut granted: Vec<RequestKey>,
        mut expected: Vec<RequestKey>,
        any_order: bool,
    ) -> Result<(), TestCaseError> {
        if any_order {
            granted.sort();
            expected.sort();
        }
        prop_assert_eq!(&granted, &expected);
        for key in granted {
            prop_assert!(self.over.insert(key), "{:?} had ended already", key);
        }
        Ok(())
    }

    fn agree(&self) -> Result<(), TestCaseError> {
        for session in [A.session, C.session] {
            let held = self.table.held_by(session);
            prop_assert_eq!(self.table.held_count(session), held.len());
            prop_assert_eq!(held, self.model.held_by(session));
        }
        prop_assert_eq!(self.table.waiting_count(), self.model.waiting.len());
        for owner in OWNERS {
            for kind in [Read, Write] {
                for byte in 0..BYTES {
                    self.same_conflicts(&posix(owner, kind, range(byte, byte)))?;
                }
                self.same_conflicts(&flock(owner, kind))?;
                self.same_conflicts(&posix(owner, kind, range(2, BYTES - 1)))?;
            }
        }
        Ok(())
    }

    fn same_conflicts(&self, wanted: &LockRecord) -> Result<(), TestCaseError> {
        let expected = self.model.conflicting_owners(wanted);
        match self.table.get(wanted) {
            None => prop_assert!(expected.is_empty(), "{:?} is free", wanted),
            Some(holder) => {
                prop_assert!(expected.contains(&holder.owner));
                prop_assert!(holder.range.overlaps(wanted.range) && holder.kind.conflicts(wanted.kind));
                prop_assert!(self.table.held_by(holder.owner.session).contains(&holder));
            }
        }
        Ok(())
    }

    /// Holders release their locks, until no owner holds any.
    fn wind_down(&mut self) -> Result<(), TestCaseError> {
        // Each waiter is granted once, so this ends.
        for _ in 0..=self.asked.len() + OWNERS.len() * 4 * BYTES as usize {
            let sessions = [A.session, C.session].into_iter();
            let Some(lock) = sessions.flat_map(|session| self.table.held_by(session)).next() else { break };
            self.run(&Step::Unlock(lock))?;
        }
        prop_assert_eq!(self.table.waiting_count(), 0);
        let lost = self.asked.iter().find(|(key, _)| !self.over.contains(key));
        prop_assert!(lost.is_none(), "{:?} was never granted", lost);
        prop_assert!(self.table.is_empty(), "something is left: {:?}", self.table);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_locks_match_a_simple_model_and_every_wait_ends(steps in steps()) {
        let mut both = Both {
            table: LockTable::default(),
            model: Model::default(),
            asked: Vec::new(),
            over: BTreeSet::new(),
        };
        for step in &steps {
            both.run(step)?;
            both.agree()?;
        }
        both.wind_down()?;
    }
}
