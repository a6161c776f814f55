//! Reads: wait for sessions that may change what is read, and register the reader.

use super::{Answer, Change, Item, ReadItem, Refusal, RequestId, Table, Target, Token, Waiting};
use shoal_types::{InodeId, SessionId};
use std::collections::BTreeMap;

impl Table {
    /// A session reads these items. [`Answer::Ready`]: it is registered, and may be told what is read from
    /// the store from now on. If it has to wait, the number is that of the request, to be tried again with
    /// [`Table::retry_read`] when it is ready.
    pub fn read(
        &mut self,
        session: SessionId,
        token: Token,
        items: &[ReadItem],
    ) -> Result<(RequestId, Answer), Refusal> {
        if !self.sessions.contains_key(&session) {
            return Err(Refusal::Unknown);
        }
        let id = self.next_request();
        Ok((id, self.read_as(id, session, token, items)))
    }

    /// Tries a read that has waited once more, perhaps with more items than before.
    pub fn retry_read(
        &mut self,
        id: RequestId,
        session: SessionId,
        token: Token,
        items: &[ReadItem],
    ) -> Result<Answer, Refusal> {
        if !self.sessions.contains_key(&session) {
            return Err(Refusal::Unknown);
        }
        Ok(self.read_as(id, session, token, items))
    }

    fn read_as(&mut self, id: RequestId, session: SessionId, token: Token, items: &[ReadItem]) -> Answer {
        if self.try_read(session, items) {
            self.register(session, token, items);
            return Answer::Ready;
        }
        // The earlier registration is not answered now.
        if let Some(state) = self.sessions.get_mut(&session) {
            state.answered.remove(&token);
        }
        self.waiting.insert(id, Waiting::Read { session, items: items.to_vec() });
        Answer::Waits
    }

    /// Whether no other session conflicts; recalls those that do.
    pub(super) fn try_read(&mut self, session: SessionId, items: &[ReadItem]) -> bool {
        if self.recovering() {
            return false;
        }
        let mut recalls: BTreeMap<SessionId, Vec<Item>> = BTreeMap::new();
        let mut free = true;
        for item in items {
            if let Some(cover) = self.covers.get(&item.cover())
                && let Some(holder) = cover.exclusive.filter(|holder| *holder != session)
            {
                free = false;
                if cover.recalled.is_none() {
                    recalls.entry(holder).or_default().extend(self.going_down(item.cover()));
                }
            }
            if let Some(node) = self.nodes.get(&item.node())
                && node.holder != session
                && item.is_of(&node.names)
            {
                free = false;
                if node.recalled.is_none() {
                    recalls.entry(node.holder).or_default().push(Item::Release(item.node()));
                }
            }
        }
        for (holder, mut items) in recalls {
            items.dedup();
            self.recall(holder, items);
        }
        free && !self.waits_for_change(session, items)
    }

    /// Whether an item is about to be changed, and the session has invalidated it or never had it.
    fn waits_for_change(&self, session: SessionId, items: &[ReadItem]) -> bool {
        self.active.values().any(|change| {
            change.session != session
                && items.iter().any(|item| item.meets_any(&change.targets))
                && self.drop_under_way(change, session).is_none()
        })
    }

    /// The recall that asks a session to invalidate the targets of a change, if it is not acknowledged.
    fn drop_under_way(&self, change: &Change, session: SessionId) -> Option<u64> {
        let state = self.sessions.get(&session)?;
        let drops = |recall: &u64| {
            let pending = state.unacked.get(recall);
            pending.is_some_and(|pending| pending.items.iter().any(|item| matches!(item, Item::Drop(_))))
        };
        let waits = change.waits.iter().filter(|(waited, _)| *waited == session);
        waits.map(|(_, recall)| *recall).find(drops)
    }

    /// The session watches from now on. Changes that have recalled one of these items from it recall that
    /// once more.
    pub(super) fn register(&mut self, session: SessionId, token: Token, items: &[ReadItem]) {
        for item in items {
            self.watch(session, item.cover());
        }
        self.answered(session, token);
        let mut again: Vec<(u64, Target)> = Vec::new();
        for change in self.active.values() {
            let Some(recall) = self.drop_under_way(change, session) else { continue };
            let seen = |target: &&Target| items.iter().any(|item| item.meets(target));
            again.extend(change.targets.iter().filter(seen).map(|target| (recall, target.clone())));
        }
        let Some(state) = self.sessions.get_mut(&session) else { return };
        for (recall, target) in again {
            if let Some(pending) = state.unacked.get_mut(&recall)
                && !pending.again.contains(&target)
            {
                pending.again.push(target);
            }
        }
    }

    /// A session is told something under a cover.
    pub(super) fn watch(&mut self, session: SessionId, cover: InodeId) {
        let recalls = self.sessions.get(&session).map_or(0, |state| state.recalls);
        self.covers.entry(cover).or_default().watchers.insert(session, recalls);
    }

    /// Grants those covers of a registered read that no other session uses, and answers them.
    pub fn alone(&mut self, session: SessionId, items: &[ReadItem]) -> Vec<InodeId> {
        let mut alone = Vec::new();
        for cover in items.iter().map(ReadItem::cover) {
            if !alone.contains(&cover) && self.is_alone(session, cover) {
                self.hold_cover(session, cover);
                alone.push(cover);
            }
        }
        alone
    }

    /// Registers a session for an inode found by a listing, if no other session conflicts. Answers whether it
    /// did.
    pub fn read_along(&mut self, session: SessionId, token: Token, ino: InodeId, cover: InodeId) -> bool {
        let exclusive = self.covers.get(&cover).and_then(|cover| cover.exclusive);
        let held = self.nodes.get(&ino).map(|node| node.holder);
        let item = [ReadItem::Node(ino, cover)];
        let changing = self
            .active
            .values()
            .any(|change| change.session != session && item[0].meets_any(&change.targets));
        let other = |holder: SessionId| holder != session;
        if exclusive.is_some_and(other) || held.is_some_and(other) || changing || self.recovering() {
            return false;
        }
        if !self.watches(session, cover) || token != 0 {
            self.register(session, token, &item);
        }
        true
    }

    /// Whether another session may change all that is under a cover: it downgrades when it is recalled.
    pub fn is_held_by_another(&self, session: SessionId, cover: InodeId) -> bool {
        let exclusive = self.covers.get(&cover).and_then(|cover| cover.exclusive);
        exclusive.is_some_and(|holder| holder != session)
    }

    /// Whether another session may change this inode, or is about to. Readahead does not recall such a right.
    pub fn is_busy(&self, session: SessionId, ino: InodeId) -> bool {
        let changes = |change: &Change| {
            change.session != session && change.targets.iter().any(|target| target.ino == ino)
        };
        self.nodes.get(&ino).is_some_and(|node| node.holder != session)
            || self.active.values().any(changes)
            || self.recovering()
    }

    /// Whether this is the only session.
    pub fn is_only(&self, session: SessionId) -> bool {
        self.sessions.keys().all(|other| *other == session)
    }

    /// Nodes under a cover that other sessions may be changing.
    pub fn held_by_others(&self, session: SessionId, cover: InodeId) -> Vec<InodeId> {
        let Some(found) = self.covers.get(&cover) else { return Vec::new() };
        let held = |ino: &&InodeId| self.nodes.get(ino).is_some_and(|node| node.holder != session);
        let mut others: Vec<InodeId> = found.nodes.iter().filter(held).copied().collect();
        for change in self.active.values().filter(|change| change.session != session) {
            others.extend(
                change.targets.iter().filter(|target| target.cover == cover).map(|target| target.ino),
            );
        }
        others
    }
}

impl ReadItem {
    pub(super) fn cover(&self) -> InodeId {
        match self {
            ReadItem::Name(dir, _) | ReadItem::Listing(dir) => *dir,
            ReadItem::Node(_, cover) => *cover,
        }
    }

    pub(super) fn node(&self) -> InodeId {
        match self {
            ReadItem::Name(dir, _) | ReadItem::Listing(dir) => *dir,
            ReadItem::Node(ino, _) => *ino,
        }
    }

    /// Whether the right to an inode and these names in it covers this item.
    pub(super) fn is_of(&self, names: &std::collections::BTreeSet<shoal_types::Name>) -> bool {
        match self {
            ReadItem::Name(_, name) => names.contains(name),
            ReadItem::Listing(_) | ReadItem::Node(..) => true,
        }
    }
}
