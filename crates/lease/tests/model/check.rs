//! Invariants of every state, and of the final states.

use crate::world::*;
use shoal_types::InodeId;

impl World {
    /// The invariants of every state. The error is the first violation, in words.
    pub fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        for (c, client) in self.clients.iter().enumerate() {
            if !client.lease {
                continue;
            }
            for (thing, version) in &client.cache {
                if *version != self.truth.version(*thing) {
                    return Err(format!("client {c} would show an old {thing:?}"));
                }
            }
            self.check_rights(c)?;
            if client.term == self.term && !self.table.is_reclaiming(client.session) {
                self.check_table(c)?;
            }
        }
        Ok(())
    }

    /// A client that may change something is the only one that may show it.
    fn check_rights(&self, c: usize) -> Result<(), String> {
        for thing in self.truth.versions.keys().filter(|thing| self.clients[c].may_change(**thing)) {
            for (other, client) in self.clients.iter().enumerate().filter(|(other, _)| *other != c) {
                if client.lease && client.may_change(*thing) {
                    return Err(format!("clients {c} and {other} may both change {thing:?}"));
                }
                if client.lease && client.cache.contains_key(thing) {
                    return Err(format!("client {c} may change {thing:?}, which client {other} shows"));
                }
            }
        }
        Ok(())
    }

    /// A client has every right that it believes to have according to the table.
    fn check_table(&self, c: usize) -> Result<(), String> {
        let (client, table) = (&self.clients[c], &self.table);
        let unborn =
            |ino: InodeId| client.journal.iter().any(|batch| batch.born.iter().any(|one| one.0 == ino));
        for (cover, exclusive) in client.covers.iter().filter(|(cover, _)| !unborn(**cover)) {
            if *exclusive && !table.may_change(client.session, InodeId(0), *cover) {
                return Err(format!(
                    "the table does not know that client {c} may change all under {cover:?}"
                ));
            }
        }
        for ino in client.nodes.keys().filter(|ino| !unborn(**ino)) {
            if !table.may_change(client.session, *ino, InodeId(0)) {
                return Err(format!("the table does not know that client {c} may change {ino:?}"));
            }
        }
        for thing in client.cache.keys().filter(|thing| !client.is_dirty(**thing)) {
            if !table.watches(client.session, client.cover(*thing)) {
                return Err(format!("the table does not know that client {c} shows {thing:?}"));
            }
        }
        Ok(())
    }

    /// In a state without further events, every request has been answered.
    pub fn check_rest(&self) -> Result<(), String> {
        for (c, client) in self.clients.iter().enumerate() {
            if let Some((token, request)) = client.out.iter().next() {
                return Err(format!("client {c} is never answered: {token} {request:?}"));
            }
            if !client.begun.is_empty() || !client.inbox.is_empty() {
                return Err(format!("client {c} never gives back what it was asked for"));
            }
        }
        if self.table.waiting() > 0 || self.table.recovering() {
            return Err(format!("{} requests are left in the table", self.table.waiting()));
        }
        if self.store != self.truth {
            return Err("not everything is committed".into());
        }
        Ok(())
    }

    /// When all clients have left, the table is empty.
    pub fn check_end(mut self) -> Result<(), String> {
        for client in std::mem::take(&mut self.clients) {
            self.table.end(client.session);
        }
        let left = (self.table.len(), self.table.waiting());
        if left == (0, 0) { Ok(()) } else { Err(format!("{left:?} are left in the table")) }
    }
}
