//! Changes: all other sessions invalidate what is to be changed first.

use super::{Answer, Change, Item, Node, Refusal, RequestId, Right, Table, Target, Token, Waiting, share};
use shoal_types::{InodeId, Name, SessionId};
use std::collections::{BTreeMap, BTreeSet};

impl Table {
    /// A session requests the right to change these targets. [`Answer::Ready`]: all other sessions have
    /// invalidated them, and cannot read them until the request is [finished](Self::finish) or [given
    /// up](Self::give_up).
    pub fn acquire(
        &mut self,
        session: SessionId,
        token: Token,
        targets: Vec<Target>,
    ) -> Result<(RequestId, Answer), Refusal> {
        self.check(session)?;
        let id = self.next_request();
        let blocked = self.recovering()
            || self.is_being_changed(&targets)
            || self.waiting.values().any(|waiting| waiting.concerns(&targets));
        if blocked {
            self.waiting.insert(id, Waiting::Change { session, token, targets });
            return Ok((id, Answer::Waits));
        }
        Ok((id, self.activate(id, session, token, targets)))
    }

    /// Whether another change has one of these targets.
    pub(super) fn is_being_changed(&self, targets: &[Target]) -> bool {
        self.active.values().any(|change| share(&change.targets, targets))
    }

    /// Starts a change that no earlier request blocks.
    pub(super) fn activate(
        &mut self,
        id: RequestId,
        session: SessionId,
        token: Token,
        targets: Vec<Target>,
    ) -> Answer {
        let waits = BTreeSet::new();
        self.active.insert(id, Change { session, token, targets, recalled: 0, waits });
        self.recall_others(id)
    }

    /// Adds targets to a request that is ready. `None` if another change has one of them: then the request
    /// has to be made anew.
    pub fn extend(&mut self, id: RequestId, more: Vec<Target>) -> Option<Answer> {
        let session = self.active.get(&id)?.session;
        let busy = self.active.iter().any(|(other, change)| {
            *other != id && change.session != session && share(&change.targets, &more)
        });
        let own = self.active.iter().any(|(other, change)| {
            *other != id && change.session == session && share(&change.targets, &more)
        });
        if busy || own {
            return None;
        }
        let change = self.active.get_mut(&id)?;
        for target in more {
            match change.targets.iter_mut().position(|known| known.ino == target.ino) {
                // Its cover, its names, or that it loses its last name, were not known before: it is recalled
                // once more.
                Some(at) => {
                    let mut known = change.targets.remove(at);
                    if at < change.recalled {
                        change.recalled -= 1;
                    }
                    known.cover = target.cover;
                    known.names.extend(target.names);
                    known.hold |= target.hold;
                    change.targets.push(known);
                }
                None => change.targets.push(target),
            }
        }
        let answer = self.recall_others(id);
        // A session that is recalled again may have to read the targets first, so its waiting reads are
        // tried.
        self.progress();
        Some(answer)
    }

    /// Recalls the new targets from other sessions. A holder is asked to downgrade in a recall of its own,
    /// before the one that asks it to invalidate. A read may wait for the first, while the second waits for
    /// that read.
    fn recall_others(&mut self, id: RequestId) -> Answer {
        let Some(change) = self.active.get_mut(&id) else { return Answer::Waits };
        let session = change.session;
        let targets: Vec<Target> = change.targets.iter().skip(change.recalled).cloned().collect();
        change.recalled = change.targets.len();
        let mut down: BTreeMap<SessionId, Vec<Item>> = BTreeMap::new();
        let mut drops: BTreeMap<SessionId, Vec<Item>> = BTreeMap::new();
        let mut waits = BTreeSet::new();
        for target in targets {
            let mut others = BTreeSet::new();
            if let Some(cover) = self.covers.get(&target.cover) {
                others.extend(cover.watchers.keys().copied());
                if let Some(holder) = cover.exclusive.filter(|holder| *holder != session) {
                    others.insert(holder);
                    match cover.recalled {
                        // The holder has been asked, and has not downgraded yet.
                        Some(first) => drop(waits.insert((holder, first))),
                        None => down.entry(holder).or_default().extend(self.going_down(target.cover)),
                    }
                }
            }
            if let Some(node) = self.nodes.get(&target.ino).filter(|node| node.holder != session) {
                others.insert(node.holder);
                if node.recalled.is_none() {
                    down.entry(node.holder).or_default().push(Item::Release(target.ino));
                }
            }
            others.remove(&session);
            for other in others {
                drops.entry(other).or_default().push(Item::Drop(target.clone()));
            }
        }
        for items in down.values_mut() {
            let mut said = Vec::new();
            items.retain(|item| {
                !said.contains(item) && {
                    said.push(item.clone());
                    true
                }
            });
        }
        for (other, items) in down.into_iter().chain(drops) {
            waits.extend(self.recall(other, items).map(|recall| (other, recall)));
        }
        let Some(change) = self.active.get_mut(&id) else { return Answer::Waits };
        change.waits.extend(waits);
        if change.waits.is_empty() { Answer::Ready } else { Answer::Waits }
    }
    /// Reduces a request that is ready to the wanted inodes; no rights to the rest are granted.
    pub fn keep_only(&mut self, id: RequestId, wanted: &BTreeSet<InodeId>) {
        let Some(change) = self.active.get_mut(&id) else { return };
        let before = change.targets.len();
        change.targets.retain(|target| wanted.contains(&target.ino));
        if change.targets.len() < before {
            change.recalled = change.targets.len();
            self.progress();
        }
    }

    /// Grants the rights of a request: to the whole cover if no other session uses it.
    pub fn finish(&mut self, id: RequestId) -> Vec<Right> {
        let Some(change) = self.active.remove(&id) else { return Vec::new() };
        let Change { session, token, targets, .. } = change;
        let mut rights = BTreeSet::new();
        for target in targets {
            rights.insert(self.grant(session, target));
        }
        self.answered(session, token);
        self.progress();
        rights.into_iter().collect()
    }

    fn grant(&mut self, session: SessionId, target: Target) -> Right {
        let Target { ino, cover, names, .. } = target;
        // The session has moved the inode since, in a batch that the lookup for this request could not see
        // yet.
        let moved = self.nodes.get(&ino).filter(|node| node.holder == session).map(|node| node.cover);
        let cover = moved.unwrap_or(cover);
        self.watch(session, cover);
        if self.is_alone(session, cover) {
            self.hold_cover(session, cover);
            return Right::Cover(cover);
        }
        self.hold_node(session, ino, cover, names);
        Right::Node(ino)
    }

    /// Grants a session the right to change an inode, and these names in addition to those it may already
    /// change.
    pub(super) fn hold_node(
        &mut self,
        session: SessionId,
        ino: InodeId,
        cover: InodeId,
        names: BTreeSet<Name>,
    ) {
        let (mut names, mut before) = (names, Vec::new());
        match self.nodes.get(&ino) {
            Some(old) if old.holder == session && old.cover == cover => {
                names.extend(old.names.iter().cloned());
                before = old.before.clone();
            }
            Some(_) => self.forget_node(ino),
            None => {}
        }
        self.covers.entry(cover).or_default().nodes.insert(ino);
        // A new right: it has to be recalled anew.
        self.nodes.insert(ino, Node { holder: session, cover, before, names, recalled: None });
    }

    /// Whether no other session watches a cover, holds anything under it, or waits for that.
    pub(super) fn is_alone(&self, session: SessionId, cover: InodeId) -> bool {
        let Some(found) = self.covers.get(&cover) else { return false };
        let held = |ino: &InodeId| {
            self.nodes.get(ino).is_some_and(|node| node.holder != session || node.recalled.is_some())
        };
        found.watchers.len() == 1
            && found.watchers.contains_key(&session)
            && found.exclusive.is_none_or(|holder| holder == session)
            && found.recalled.is_none()
            && !found.nodes.iter().any(held)
            && !self.wanted_by_others(session, cover)
    }

    pub(super) fn hold_cover(&mut self, session: SessionId, cover: InodeId) {
        let Some(found) = self.covers.get_mut(&cover) else { return };
        found.exclusive = Some(session);
    }

    /// Whether another session waits for something under a cover.
    fn wanted_by_others(&self, session: SessionId, cover: InodeId) -> bool {
        let of_cover = |targets: &[Target]| targets.iter().any(|target| target.cover == cover);
        self.active.values().any(|change| change.session != session && of_cover(&change.targets))
            || self.waiting.values().any(|waiting| match waiting {
                Waiting::Change { session: other, targets, .. } => *other != session && of_cover(targets),
                Waiting::Read { session: other, items } => {
                    *other != session && items.iter().any(|item| item.is_under(cover))
                }
            })
    }

    /// Removes a request that waits or is ready.
    pub fn give_up(&mut self, id: RequestId) {
        self.waiting.remove(&id);
        self.active.remove(&id);
        self.progress();
    }
}

impl super::ReadItem {
    fn is_under(&self, cover: InodeId) -> bool {
        match self {
            super::ReadItem::Name(dir, _) | super::ReadItem::Listing(dir) => *dir == cover,
            super::ReadItem::Node(_, under) => *under == cover,
        }
    }
}
