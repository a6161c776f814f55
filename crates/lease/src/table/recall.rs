//! Recalls and their acknowledgements.

use super::{Change, Cover, Item, Pending, Recall, Refusal, RequestId, Table, Target, Waiting};
use shoal_types::{InodeId, SessionId};
use std::collections::BTreeSet;
use std::ops::Bound;

impl Table {
    /// Recalls items from a session. Answers the number of the recall.
    pub(super) fn recall(&mut self, session: SessionId, items: Vec<Item>) -> Option<u64> {
        let state = self.sessions.get_mut(&session)?;
        state.recalls += 1;
        self.recalls += 1;
        let id = state.recalls;
        for item in &items {
            let recalled = match item {
                Item::Downgrade(cover) => self
                    .covers
                    .get_mut(cover)
                    .filter(|cover| cover.exclusive == Some(session))
                    .map(|cover| &mut cover.recalled),
                Item::Release(ino) | Item::Drop(Target { ino, .. }) => self
                    .nodes
                    .get_mut(ino)
                    .filter(|node| node.holder == session)
                    .map(|node| &mut node.recalled),
            };
            if let Some(recalled) = recalled {
                recalled.get_or_insert(id);
            }
        }
        let after = state.answered.iter().copied().collect();
        state.unacked.insert(id, Pending { items, after, since_ms: self.now_ms, again: Vec::new() });
        self.news.insert(session);
        Some(id)
    }

    /// The items of a recall that downgrades the holder of a cover.
    pub(super) fn going_down(&self, cover: InodeId) -> Vec<Item> {
        let Some(found) = self.covers.get(&cover) else { return Vec::new() };
        let its_own = |ino: &&InodeId| {
            let node = self.nodes.get(ino);
            node.is_some_and(|node| Some(node.holder) == found.exclusive && node.recalled.is_none())
        };
        let nodes = found.nodes.iter().filter(its_own).map(|ino| Item::Release(*ino));
        std::iter::once(Item::Downgrade(cover)).chain(nodes).collect()
    }

    /// The recalls to send to a session that has received all up to `seen`.
    pub fn recalls_after(&mut self, session: SessionId, seen: u64) -> Vec<Recall> {
        self.news.remove(&session);
        let Some(state) = self.sessions.get(&session) else { return Vec::new() };
        let tell = |(id, pending): (&u64, &Pending)| {
            // Some replies may have arrived meanwhile.
            let under_way = |token: &&super::Token| state.answered.contains(*token);
            let after = pending.after.iter().filter(under_way).copied().collect();
            Recall { id: *id, after, items: pending.items.clone() }
        };
        state.unacked.range((Bound::Excluded(seen), Bound::Unbounded)).map(tell).collect()
    }

    /// A session has carried a recall out. `unwatched` are covers of which it no longer caches anything. If
    /// the recall asked for references, the caller must have recorded the session's answer before: it may not
    /// be asked again.
    pub fn acknowledge(&mut self, session: SessionId, id: u64, unwatched: &[InodeId]) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let Some(pending) = state.unacked.remove(&id) else { return };
        for item in &pending.items {
            match item {
                Item::Downgrade(cover) => self.downgraded(session, id, *cover),
                Item::Release(ino) | Item::Drop(Target { ino, .. }) => self.released(session, id, *ino),
            }
        }
        if !pending.again.is_empty() {
            self.recall_again(session, id, pending.again);
        } else {
            unwatched.iter().for_each(|cover| self.unwatch(session, id, *cover));
            let mut ready = Vec::new();
            for (request, change) in &mut self.active {
                if change.waits.remove(&(session, id)) && change.waits.is_empty() {
                    ready.push(*request);
                }
            }
            self.ready.extend(ready);
        }
        self.progress();
    }

    /// What the session was told since the recall was sent may be what it had invalidated, or did not have to
    /// invalidate then.
    fn recall_again(&mut self, session: SessionId, id: u64, targets: Vec<Target>) {
        if !self.active.values().any(|change| change.waits.contains(&(session, id))) {
            return;
        }
        let items = targets.into_iter().map(Item::Drop).collect();
        let Some(next) = self.recall(session, items) else { return };
        for change in self.active.values_mut() {
            if change.waits.remove(&(session, id)) {
                change.waits.insert((session, next));
            }
        }
    }

    /// An acknowledged recall asked a session to downgrade. It may have been granted the right anew since:
    /// then it keeps it.
    fn downgraded(&mut self, session: SessionId, recall: u64, cover: InodeId) {
        let Some(found) = self.covers.get_mut(&cover) else { return };
        if found.exclusive == Some(session) && found.recalled.is_some_and(|first| first <= recall) {
            (found.exclusive, found.recalled) = (None, None);
        }
    }

    /// An acknowledged recall asked a session to release an inode. It may have been granted the right anew
    /// since: then it keeps it.
    fn released(&mut self, session: SessionId, recall: u64, ino: InodeId) {
        if let Some(node) = self.nodes.get(&ino)
            && node.holder == session
            && node.recalled.is_some_and(|first| first <= recall)
        {
            self.forget_node(ino);
        }
    }

    /// Removes the right to change a single inode.
    pub(super) fn forget_node(&mut self, ino: InodeId) {
        let Some(node) = self.nodes.remove(&ino) else { return };
        for cover in node.before.into_iter().chain([node.cover]) {
            self.not_under(ino, cover);
        }
    }

    fn not_under(&mut self, ino: InodeId, cover: InodeId) {
        if let Some(found) = self.covers.get_mut(&cover) {
            found.nodes.remove(&ino);
            self.tidy(cover);
        }
    }

    /// Removes a cover without rights.
    pub(super) fn tidy(&mut self, cover: InodeId) {
        if let Some(found) = self.covers.get(&cover)
            && found.watchers.is_empty()
            && found.exclusive.is_none()
            && found.nodes.is_empty()
        {
            self.covers.remove(&cover);
        }
    }

    /// A session cached nothing under a cover when it carried a recall out. It still watches if it has been
    /// told something since then, or may change something there.
    fn unwatch(&mut self, session: SessionId, recall: u64, cover: InodeId) {
        let Some(found) = self.covers.get_mut(&cover) else { return };
        let holds = |ino: &InodeId| self.nodes.get(ino).is_some_and(|node| node.holder == session);
        if found.exclusive == Some(session) || found.nodes.iter().any(holds) {
            return;
        }
        if found.watchers.get(&session).is_some_and(|told| *told < recall) {
            found.watchers.remove(&session);
        }
        self.tidy(cover);
    }

    /// Sessions with a recall that is unacknowledged for longer than this, in milliseconds, and for how long.
    pub fn overdue(&self, longest_ms: u64) -> Vec<(SessionId, u64)> {
        let mut late = Vec::new();
        for (session, state) in &self.sessions {
            let since = state.unacked.values().map(|pending| pending.since_ms).min();
            let waited = since.map_or(0, |since| self.now_ms.saturating_sub(since));
            if waited > longest_ms {
                late.push((*session, waited));
            }
        }
        late
    }

    /// The sessions that a waiting request waits for, for people to read: those that have something recalled
    /// to give back, that are about to change what it is about, or that have not told what they hold.
    pub fn waited_for(&self, id: RequestId) -> BTreeSet<SessionId> {
        if self.recovering() {
            return self.reclaiming().into_iter().collect();
        }
        let mut found = BTreeSet::new();
        let sessions = |change: &Change| change.waits.iter().map(|(session, _)| *session).collect::<Vec<_>>();
        if let Some(change) = self.active.get(&id) {
            found.extend(sessions(change));
            return found;
        }
        let Some(waiting) = self.waiting.get(&id) else { return found };
        for change in self.active.values().filter(|change| waiting.concerns(&change.targets)) {
            found.extend(sessions(change));
            found.insert(change.session);
        }
        if let Waiting::Change { targets, .. } = waiting {
            // It is queued behind these.
            let earlier = self.waiting.range(..id).filter(|(_, earlier)| earlier.concerns(targets));
            found.extend(earlier.map(|(_, earlier)| earlier.session()));
        }
        if let Waiting::Read { session, items } = waiting {
            for item in items {
                let cover = self.covers.get(&item.cover()).and_then(|cover| cover.exclusive);
                let node = self.nodes.get(&item.node()).filter(|node| item.is_of(&node.names));
                found.extend(cover.into_iter().chain(node.map(|node| node.holder)));
            }
            found.remove(session);
        }
        found
    }

    /// Unacknowledged recalls of all sessions, for people to read: session, number, for how many
    /// milliseconds, and of how many items.
    pub fn all_unacknowledged(&self) -> Vec<(SessionId, u64, u64, usize)> {
        let of_session = |(session, state): (&SessionId, &super::Session)| {
            let session = *session;
            let recall = move |(id, pending): (&u64, &Pending)| {
                (session, *id, self.now_ms.saturating_sub(pending.since_ms), pending.items.len())
            };
            state.unacked.iter().map(recall).collect::<Vec<_>>()
        };
        self.sessions.iter().flat_map(of_session).collect()
    }

    /// Unacknowledged recalls of a session, for people to read.
    pub fn unacknowledged(&self, session: SessionId) -> Vec<(u64, Vec<Item>)> {
        let Some(state) = self.sessions.get(&session) else { return Vec::new() };
        state.unacked.iter().map(|(id, pending)| (*id, pending.items.clone())).collect()
    }

    /// Registers inodes that a session has created, or moved to another cover, each with its new cover. The
    /// session gets the right to each alone, even if it holds the whole cover: the right to such an inode
    /// alone may be in flight. Called before another session can see the change.
    pub fn born(&mut self, session: SessionId, inodes: &[(InodeId, InodeId)]) {
        if !self.sessions.contains_key(&session) {
            return;
        }
        for (ino, cover) in inodes {
            let found = self.covers.get(cover);
            if let Some(node) = self.nodes.get(ino) {
                // Otherwise it is an old batch that is retried.
                if node.holder == session {
                    self.count_under(*ino, *cover);
                    self.watch(session, *cover);
                }
            } else if ino == cover {
                let is_seen = |found: &Cover| {
                    found.exclusive.is_some() || found.watchers.keys().any(|watcher| *watcher != session)
                };
                if !found.is_some_and(is_seen) {
                    self.watch(session, *cover);
                    self.hold_cover(session, *cover);
                }
            } else if found.and_then(|found| found.exclusive).is_none_or(|holder| holder == session) {
                // Also if it has been granted the whole cover, as that reply may get lost.
                self.watch(session, *cover);
                self.hold_node(session, *ino, *cover, BTreeSet::new());
            }
        }
    }

    /// Counts a node under another cover. It stays under the old one, too, until the move is
    /// [settled](Self::settled).
    fn count_under(&mut self, ino: InodeId, cover: InodeId) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        if node.cover != cover {
            node.before.retain(|earlier| *earlier != cover);
            node.before.push(std::mem::replace(&mut node.cover, cover));
            self.covers.entry(cover).or_default().nodes.insert(ino);
        }
    }

    /// A batch has been applied, in which these were [born](Self::born): all sessions find them under these
    /// covers.
    pub fn settled(&mut self, session: SessionId, inodes: &[(InodeId, InodeId)]) {
        for (ino, cover) in inodes {
            let Some(node) = self.nodes.get_mut(ino).filter(|node| node.holder == session) else { continue };
            // Later batches may have moved it on.
            let gone = match node.before.iter().position(|earlier| earlier == cover) {
                Some(at) => node.before.drain(..at).collect(),
                None if node.cover == *cover => std::mem::take(&mut node.before),
                None => Vec::new(),
            };
            gone.into_iter().for_each(|earlier| self.not_under(*ino, earlier));
        }
    }

    /// Inodes that no longer exist.
    pub fn gone(&mut self, session: SessionId, inodes: &[InodeId]) {
        for ino in inodes {
            if let Some(node) = self.nodes.get(ino)
                && node.holder == session
                && node.recalled.is_none()
            {
                self.forget_node(*ino);
            }
            if let Some(cover) = self.covers.get_mut(ino)
                && cover.exclusive == Some(session)
                && cover.recalled.is_none()
                && cover.watchers.keys().all(|watcher| *watcher == session)
            {
                cover.exclusive = None;
                cover.watchers.clear();
                self.tidy(*ino);
            }
        }
    }

    /// Refuses a session that is not known.
    pub(super) fn check(&self, session: SessionId) -> Result<(), Refusal> {
        if self.sessions.contains_key(&session) { Ok(()) } else { Err(Refusal::Unknown) }
    }
}
