//! Grants rights to change: recalls the targets from all other sessions first, then grants and answers.

use crate::leases::{Acquiring, Parked};
use crate::limits::WANTS_MAX;
use crate::shared::Shared;
use shoal_lease::{Answer, RequestId, Right, Target};
use shoal_namespace::kv::{KvRead, KvStore};
use shoal_namespace::{Fault, TreeError, query};
use shoal_types::{Errno, InodeId};
use shoal_wire::{AcquireReply, Done, MOVES, MetaError, Want};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The next step.
enum Step {
    /// It waits for other sessions.
    Parked,
    /// It is ready; its targets are looked up once more.
    Ready,
}

impl Shared {
    /// Continues a request as far as it can.
    pub(super) fn continue_acquire(
        self: &Arc<Self>,
        term: u64,
        acquiring: Box<Acquiring>,
        done: Done<AcquireReply>,
    ) {
        let mut kept = Some((acquiring, done));
        match self.try_acquire(term, &mut kept) {
            Ok(None) => {}
            Ok(Some(reply)) => {
                if let Some((_, done)) = kept {
                    done(Ok(reply));
                }
            }
            Err(error) => {
                let Some((acquiring, done)) = kept else { return };
                if let Some(id) = acquiring.id {
                    // The table of another term has no such request.
                    let _ = self.with_table(term, |leases| leases.table.give_up(id));
                }
                done(Err(error));
            }
        }
    }

    fn try_acquire(
        self: &Arc<Self>,
        term: u64,
        kept: &mut Option<(Box<Acquiring>, Done<AcquireReply>)>,
    ) -> Result<Option<AcquireReply>, MetaError> {
        loop {
            let Some((acquiring, _)) = kept.as_mut() else { return Ok(None) };
            let wants = &acquiring.acquire.wants;
            if wants.len() > WANTS_MAX || wants.iter().any(|want| want.names.len() > WANTS_MAX) {
                return Err(MetaError::Malformed("too much is wanted at once".into()));
            }
            let targets = self.read(targets(&self.store.snapshot(), wants))?;
            let lacking: Vec<Target> =
                targets.iter().filter(|target| !contains(&acquiring.targets, target)).cloned().collect();
            if acquiring.id.is_none() || !lacking.is_empty() {
                match self.enqueue(term, targets, lacking, kept)? {
                    Step::Parked => return Ok(None),
                    Step::Ready => continue,
                }
            }
            let Some(id) = acquiring.id else { continue };
            let wanted = targets.iter().map(|target| target.ino).collect();
            acquiring.targets = targets;
            self.with_table(term, |leases| leases.table.keep_only(id, &wanted))?;
            return self.grant(term, id, acquiring).map(Some);
        }
    }

    /// Queues a request, or extends it.
    fn enqueue(
        self: &Arc<Self>,
        term: u64,
        targets: Vec<Target>,
        lacking: Vec<Target>,
        kept: &mut Option<(Box<Acquiring>, Done<AcquireReply>)>,
    ) -> Result<Step, MetaError> {
        self.with_table(term, |leases| {
            let Some((acquiring, _)) = kept.as_mut() else { return Ok(Step::Parked) };
            let (session, token) = (acquiring.acquire.session, acquiring.acquire.token.0);
            leases.table.arrived(session, acquiring.acquire.below.0);
            let extended = acquiring.id.map(|id| (id, leases.table.extend(id, lacking)));
            let (id, answer) = match extended {
                Some((id, Some(answer))) => (id, answer),
                other => {
                    // Another session is about to change a target: the request is queued again behind it,
                    // with all targets known by now.
                    if let Some((id, None)) = other {
                        leases.table.give_up(id);
                    }
                    acquiring.targets.clear();
                    match leases.table.acquire(session, token, targets.clone()) {
                        Ok(taken) => taken,
                        Err(_) => return Err(MetaError::Fenced(session)),
                    }
                }
            };
            acquiring.id = Some(id);
            for target in targets {
                match acquiring.targets.iter_mut().find(|known| known.ino == target.ino) {
                    Some(known) => *known = target,
                    None => acquiring.targets.push(target),
                }
            }
            if answer == Answer::Ready {
                return Ok(Step::Ready);
            }
            if let Some((acquiring, done)) = kept.take() {
                leases.park(id, Parked::Acquire(acquiring, done));
            }
            Ok(Step::Parked)
        })?
    }

    fn grant(
        self: &Arc<Self>,
        term: u64,
        id: RequestId,
        acquiring: &Acquiring,
    ) -> Result<AcquireReply, MetaError> {
        let state = self.store.snapshot();
        let mut reply = AcquireReply { term, ..AcquireReply::default() };
        for want in acquiring.acquire.wants.iter().filter(|want| want.ino != MOVES) {
            match query::inode(&state, want.ino) {
                Err(Fault::Errno(Errno::ENOENT)) => continue,
                found => reply.records.push(self.read(found)?),
            }
            for wanted in &want.names {
                let found = self.read(query::lookup(&state, want.ino, &wanted.name))?;
                // Left out if the inode was not recalled from other sessions, even if its name was.
                if let Some((_, record)) = &found.found
                    && !acquiring.targets.iter().any(|target| target.ino == record.ino)
                {
                    continue;
                }
                reply.names.push((want.ino, wanted.name.clone(), found));
            }
        }
        drop(state);
        let session = acquiring.acquire.session;
        let rights = self.with_table(term, |leases| {
            let rights = leases.table.finish(id);
            leases.table.knows(session).then_some(rights)
        })?;
        let rights = rights.ok_or(MetaError::Fenced(session))?;
        tracing::trace!(%session, token = acquiring.acquire.token.0, ?rights, targets = ?acquiring.targets, "rights");
        self.still_leads(term)?;
        let right = |right| match right {
            Right::Cover(ino) => shoal_wire::Right::Cover(ino),
            Right::Node(ino) => shoal_wire::Right::Node(ino),
        };
        reply.rights = rights.into_iter().map(right).collect();
        Ok(reply)
    }
}

/// Whether `known` has a target with all its names.
fn contains(known: &[Target], target: &Target) -> bool {
    known.iter().any(|one| {
        one.ino == target.ino
            && one.cover == target.cover
            && target.names.is_subset(&one.names)
            && (one.hold || !target.hold)
    })
}

/// The targets of the wants in this state, including the inodes that wanted names lead to.
fn targets(state: &(impl KvRead + ?Sized), wants: &[Want]) -> Result<Vec<Target>, Fault<TreeError>> {
    let mut found: BTreeMap<InodeId, Target> = BTreeMap::new();
    let mut add = |ino: InodeId, names: BTreeSet<_>, hold: bool| -> Result<(), Fault<TreeError>> {
        let cover = match ino == MOVES {
            true => MOVES,
            false => match query::record(state, ino)? {
                Some(inode) => inode.cover(ino),
                // Either it was created in a batch that is not committed, or it was deleted. The reply has no
                // record of it.
                None => return Ok(()),
            },
        };
        let target = found.entry(ino).or_insert(Target { ino, cover, names: BTreeSet::new(), hold: false });
        target.names.extend(names);
        target.hold |= hold;
        Ok(())
    };
    for want in wants {
        add(want.ino, want.names.iter().map(|wanted| wanted.name.clone()).collect(), want.hold)?;
        for wanted in want.names.iter().filter(|wanted| wanted.takes) {
            match query::resolve(state, want.ino, &wanted.name) {
                Ok(Some((ino, _))) => add(ino, BTreeSet::new(), true)?,
                Ok(None) | Err(Fault::Errno(Errno::ENOENT)) => {}
                Err(fault) => return Err(fault),
            }
        }
    }
    Ok(found.into_values().collect())
}
