//! The server: the steps of a request, between which other events are possible.

use crate::world::*;
use shoal_lease::{Answer, ReadItem, RequestId, Right, Target};
use shoal_types::InodeId;
use std::collections::BTreeMap;

/// A reply in flight.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub term: u64,
    pub found: Vec<(Thing, Version)>,
    pub places: BTreeMap<InodeId, InodeId>,
    pub exclusive: Vec<InodeId>,
    pub rights: Vec<Right>,
}

/// The progress of a request.
#[derive(Clone, Debug)]
pub enum Stage {
    /// In flight to the server.
    Sent { below: u64 },
    /// It waits for other clients; a change with its known targets.
    Parked { id: RequestId, known: Vec<Target> },
    /// It has waited and may continue. A change has to look its targets up once more.
    Ready { id: RequestId, known: Vec<Target> },
    /// It is registered for these, and the store is about to be read.
    Registered { id: RequestId, items: Vec<ReadItem>, held: Vec<InodeId>, exclusive: Vec<InodeId> },
    /// The reply is in flight.
    Replied(Reply),
}

impl World {
    /// One step of the server with a request. Replies in flight are received by the client.
    pub fn serve(&mut self, c: usize, token: u64) {
        let Some(request) = self.clients[c].out.get(&token).cloned() else { return };
        let session = self.clients[c].session;
        if let Stage::Sent { below } = request.stage {
            self.table.arrived(session, below);
        }
        let next = match (request.stage, request.acquires) {
            (Stage::Sent { .. }, false) => self.ask(c, token, request.op, None),
            (Stage::Ready { id, .. }, false) => self.ask(c, token, request.op, Some(id)),
            (Stage::Sent { .. }, true) => self.acquire(c, token, request.op),
            (Stage::Ready { id, known }, true) => self.look_again(c, token, request.op, id, known),
            (Stage::Registered { id, items, held, exclusive }, _) => {
                match self.about(request.op) {
                    Some(now) if now.iter().all(|item| items.contains(item)) => {
                        Stage::Replied(self.read(c, token, request.op, &held, exclusive))
                    }
                    // The cover of an item has changed.
                    Some(_) => self.ask(c, token, request.op, Some(id)),
                    None => Stage::Replied(Reply::default()),
                }
            }
            (stage @ (Stage::Parked { .. } | Stage::Replied(_)), _) => stage,
        };
        if let Some(request) = self.clients[c].out.get_mut(&token) {
            request.stage = next;
        }
        self.pump();
    }

    /// Continues waiting requests, and sends recalls.
    pub fn pump(&mut self) {
        for id in self.table.ready() {
            for request in self.clients.iter_mut().flat_map(|client| client.out.values_mut()) {
                if let Stage::Parked { id: parked, known } = &request.stage
                    && *parked == id
                {
                    request.stage = Stage::Ready { id, known: known.clone() };
                }
            }
        }
        for session in self.table.news() {
            for client in self.clients.iter_mut().filter(|client| client.session == session) {
                let told = self.table.recalls_after(session, client.seen);
                client.seen = told.last().map_or(client.seen, |recall| recall.id);
                client.inbox.extend(told);
            }
        }
    }

    fn about(&self, op: Op) -> Option<Vec<ReadItem>> {
        let item = |thing: Thing| match thing {
            Thing::Name(dir, number) => Some(ReadItem::Name(dir, name(number))),
            Thing::Node(ino) => self.store.exists(ino).then(|| ReadItem::Node(ino, self.store.cover(ino))),
        };
        match op {
            Op::List(dir) => self.store.exists(dir).then(|| vec![ReadItem::Listing(dir)]),
            _ => {
                let needed = op.things().into_iter().filter(|thing| op.is_read() || self.existing(*thing));
                needed.map(item).collect()
            }
        }
    }

    fn existing(&self, thing: Thing) -> bool {
        !matches!(thing, Thing::Node(ino) if !self.store.exists(ino))
    }

    fn ask(&mut self, c: usize, token: u64, op: Op, id: Option<RequestId>) -> Stage {
        let session = self.clients[c].session;
        // None of it exists.
        let Some(items) = self.about(op) else { return Stage::Replied(Reply::default()) };
        let answer = match id {
            None => self.table.read(session, token, &items),
            Some(id) => self.table.retry_read(id, session, token, &items).map(|answer| (id, answer)),
        };
        match answer.expect("the session lives") {
            (id, Answer::Ready) => {
                let held = match op {
                    Op::List(dir) => self.table.held_by_others(session, dir),
                    _ => Vec::new(),
                };
                let exclusive = self.table.alone(session, &items);
                Stage::Registered { id, items, held, exclusive }
            }
            (id, Answer::Waits) => Stage::Parked { id, known: Vec::new() },
        }
    }

    fn read(&mut self, c: usize, token: u64, op: Op, held: &[InodeId], exclusive: Vec<InodeId>) -> Reply {
        let mut things = op.things();
        if let Op::List(dir) = op {
            for ino in [F1, F2, F3, D3].into_iter().filter(|ino| self.store.exists(*ino)).collect::<Vec<_>>()
            {
                let listed = match is_dir(ino) {
                    true => dir == D1 && self.table.read_along(self.clients[c].session, token, ino, ino),
                    false => self.store.cover(ino) == dir && !held.contains(&ino),
                };
                things.extend(listed.then_some(Thing::Node(ino)));
            }
        }
        let found = things.into_iter().map(|thing| (thing, self.store.version(thing))).collect();
        let (term, places) = (self.term, self.store.places.clone());
        Reply { term, found, places, exclusive, rights: Vec::new() }
    }

    /// The targets of a change in this state.
    fn targets(&self, op: Op) -> Option<Vec<Target>> {
        let there = |want: &Want| self.store.exists(want.0).then(|| self.target(want));
        op.wants().iter().map(there).collect()
    }

    fn acquire(&mut self, c: usize, token: u64, op: Op) -> Stage {
        let Some(known) = self.targets(op) else { return Stage::Replied(Reply::default()) };
        let session = self.clients[c].session;
        match self.table.acquire(session, token, known.clone()).expect("the session lives") {
            (id, Answer::Ready) => Stage::Ready { id, known },
            (id, Answer::Waits) => Stage::Parked { id, known },
        }
    }

    fn look_again(&mut self, c: usize, token: u64, op: Op, id: RequestId, known: Vec<Target>) -> Stage {
        let Some(now) = self.targets(op) else {
            self.table.give_up(id);
            return Stage::Replied(Reply::default());
        };
        let lacking: Vec<Target> = now.iter().filter(|target| !known.contains(target)).cloned().collect();
        if !lacking.is_empty() {
            return match self.table.extend(id, lacking) {
                Some(Answer::Ready) => Stage::Ready { id, known: now },
                Some(Answer::Waits) => Stage::Parked { id, known: now },
                None => {
                    self.table.give_up(id);
                    self.acquire(c, token, op)
                }
            };
        }
        self.table.keep_only(id, &now.iter().map(|target| target.ino).collect());
        let is_target = |thing: &Thing| {
            let (Thing::Node(ino) | Thing::Name(ino, _)) = *thing;
            known.iter().any(|target| target.ino == ino)
        };
        let found = op
            .things()
            .into_iter()
            .filter(is_target)
            .map(|thing| (thing, self.store.version(thing)))
            .collect();
        let (term, places) = (self.term, self.store.places.clone());
        let rights = self.table.finish(id);
        Stage::Replied(Reply { term, found, places, exclusive: Vec::new(), rights })
    }
}
