//! The possible events, and their effects.

use crate::client::{Batch, Client, Leaves, NodeRight};
use crate::server::Stage;
use crate::world::*;
use shoal_lease::Table;
use shoal_types::SessionId;

/// One event. Clients and their requests by number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// A client does something, or requests the rights for it, under this number.
    Start(usize, Op, u64),
    /// The server takes a request, or continues with it.
    Serve(usize, u64),
    /// A reply arrives; the operation is done at once, if possible.
    Receive(usize, u64),
    /// A recall is begun, carried out, and acknowledged: in any order with others.
    Begin(usize, u64),
    Finish(usize, u64),
    /// A recall is carried out, and the client stops watching the directory; or every directory in which it
    /// holds nothing.
    FinishAndLeave(usize, u64),
    FinishAndLeaveAll(usize, u64),
    Acknowledge(usize, u64),
    /// The oldest batch of a journal arrives; and is committed.
    Propose(usize),
    Commit(usize),
    /// A client learns of the commit; or it does not, and retries the batch.
    Confirm(usize),
    Resend(usize),
    /// A client's lease expires, and is renewed.
    Expire(usize),
    Renew(usize),
    /// The session of a client without a lease is ended. The client begins another one.
    End(usize),
    /// A new leader without any state of the last one.
    Lead,
    /// A client learns of it, and reclaims what it holds; the reclaim arrives.
    Learn(usize),
    Reclaim(usize),
}

impl World {
    /// Events that need neither a new operation nor a failure.
    pub fn progress(&self, setup: &Setup) -> Vec<Event> {
        let mut events = Vec::new();
        for (c, client) in self.clients.iter().enumerate() {
            for (token, request) in &client.out {
                match request.stage {
                    Stage::Replied(_) => events.push(Event::Receive(c, *token)),
                    Stage::Parked { .. } => {}
                    _ => events.push(Event::Serve(c, *token)),
                }
            }
            let arrived = |recall: &shoal_lease::Recall| {
                setup.fault == Fault::DoesNotWaitForAnswers
                    || !recall.after.iter().any(|token| client.out.contains_key(token))
            };
            let begin = client.inbox.iter().filter(|recall| arrived(recall));
            events.extend(begin.map(|recall| Event::Begin(c, recall.id)));
            events.extend(client.may_finish(setup.kernel).into_iter().map(|id| Event::Finish(c, id)));
            events.extend(client.acks.iter().map(|ack| Event::Acknowledge(c, ack.id)));
            if let Some(batch) = client.journal.front() {
                events.push(match (batch.proposed, batch.applied) {
                    (false, _) => Event::Propose(c),
                    (true, false) => Event::Commit(c),
                    (true, true) => Event::Confirm(c),
                });
            }
            if !client.lease {
                events.push(Event::Renew(c));
            }
            if client.term != self.term && client.may_reclaim() {
                events.push(Event::Learn(c));
            }
            if client.said.is_some() {
                events.push(Event::Reclaim(c));
            }
        }
        events
    }

    /// All other possible events.
    pub fn choices(&self, setup: &Setup) -> Vec<Event> {
        let mut events = Vec::new();
        for (c, client) in self.clients.iter().enumerate() {
            if client.lease && client.ops_left > 0 {
                let token = client.last_token + 1;
                events.extend(setup.ops.iter().map(|op| Event::Start(c, *op, token)));
            }
            let finish = client.may_finish(setup.kernel).into_iter();
            for id in finish {
                events.push(Event::FinishAndLeave(c, id));
                if client.may_leave_more(id) {
                    events.push(Event::FinishAndLeaveAll(c, id));
                }
            }
            if self.ends > 0 {
                let knows = setup.fault != Fault::IgnoresTheEndOfItsLease;
                events.push(if client.lease && knows { Event::Expire(c) } else { Event::End(c) });
            }
            if self.resends > 0 && client.journal.front().is_some_and(|batch| batch.applied) {
                events.push(Event::Resend(c));
            }
        }
        if self.leaders > 0 {
            events.push(Event::Lead);
        }
        events
    }

    /// Whether an event is possible in this world, which may have been taken from a similar one.
    pub fn can_happen(&self, setup: &Setup, event: Event) -> bool {
        match event {
            Event::Start(c, _, token) => {
                let client = &self.clients[c];
                client.lease && client.ops_left > 0 && token > client.last_token
            }
            _ => self.progress(setup).contains(&event) || self.choices(setup).contains(&event),
        }
    }

    pub fn happen(&mut self, setup: &Setup, event: Event) {
        let fault = setup.fault;
        match event {
            Event::Start(c, op, token) => {
                self.clients[c].ops_left -= 1;
                self.attempt(c, op, Some(token));
            }
            Event::Serve(c, token) => self.serve(c, token),
            Event::Receive(c, token) => {
                let Some(request) = self.clients[c].out.remove(&token) else { return };
                let Stage::Replied(reply) = &request.stage else { return };
                self.clients[c].install(&request, reply, fault);
                if self.clients[c].lease {
                    self.attempt(c, request.op, None);
                }
            }
            Event::Begin(c, id) => self.clients[c].begin(id, fault),
            Event::Finish(c, id) => self.clients[c].finish(id, Leaves::Nothing, fault),
            Event::FinishAndLeave(c, id) => self.clients[c].finish(id, Leaves::Dropped, fault),
            Event::FinishAndLeaveAll(c, id) => self.clients[c].finish(id, Leaves::All, fault),
            Event::Acknowledge(c, id) => {
                let acks = &mut self.clients[c].acks;
                let Some(at) = acks.iter().position(|ack| ack.id == id) else { return };
                let ack = acks.remove(at);
                if ack.term == self.term {
                    let session = self.clients[c].session;
                    self.table.arrived(session, ack.below);
                    self.table.acknowledge(session, ack.id, &ack.unwatched);
                }
            }
            Event::Propose(c) => {
                let session = self.clients[c].session;
                let Some(batch) = self.clients[c].journal.front_mut() else { return };
                batch.proposed = true;
                self.table.born(session, &batch.born);
            }
            Event::Commit(c) => self.commit(c),
            Event::Confirm(c) => {
                let client = &mut self.clients[c];
                client.committed += 1;
                for ino in client.journal.pop_front().into_iter().flat_map(|batch| batch.removed) {
                    client.gone.extend(client.nodes.remove(&ino).map(|_| ino));
                }
            }
            Event::Resend(c) => {
                self.resends -= 1;
                let Some(batch) = self.clients[c].journal.front().cloned() else { return };
                self.table.born(self.clients[c].session, &batch.born);
                self.table.settled(self.clients[c].session, &batch.born);
                self.table.gone(self.clients[c].session, &batch.gone);
            }
            Event::Expire(c) => self.clients[c].lease = false,
            Event::Renew(c) => self.clients[c].lease = true,
            Event::End(c) => self.end(c, setup),
            Event::Lead => self.lead(),
            Event::Learn(c) => self.clients[c].reclaim(self.term, fault),
            Event::Reclaim(c) => {
                let Some(said) = self.clients[c].said.take() else { return };
                if said.term == self.term {
                    let session = self.clients[c].session;
                    // What was moved by a batch that is going to be retried is still found at its old place.
                    let (mut nodes, mut moved) = (said.nodes.clone(), Vec::new());
                    for (ino, cover, _) in &mut nodes {
                        if self.store.exists(*ino) && self.store.cover(*ino) != *cover {
                            moved.push((*ino, *cover));
                            *cover = self.store.cover(*ino);
                        }
                    }
                    let taken = self.table.reclaim(session, &said.covers, &nodes, true);
                    self.table.born(session, &moved);
                    if taken.is_err() {
                        self.wrong = Some(format!("what client {c} says contradicts others: {said:?}"));
                    }
                }
            }
        }
        self.pump();
    }

    /// Does an operation if possible; otherwise requests what is missing.
    fn attempt(&mut self, c: usize, op: Op, token: Option<u64>) {
        let made = matches!(op, Op::Create(..)).then(|| op.things()[2]);
        if made.is_some_and(|thing| self.is_used(thing)) {
            return;
        }
        let client = &mut self.clients[c];
        let is_unknown = |thing: &Thing| Some(*thing) != made && !client.cache.contains_key(thing);
        let unknown = op.things().into_iter().find(is_unknown);
        let lacks = !op.wants().iter().all(|(ino, names, _)| client.may(*ino, names));
        let missing = match (op.is_read(), unknown) {
            (true, None) if !matches!(op, Op::List(_)) => return,
            (true, _) => Some((op, false)),
            (false, _) if lacks => Some((op, true)),
            (false, unknown) => unknown.map(|thing| (Op::See(thing), false)),
        };
        if let Some((op, acquires)) = missing {
            if let Some(token) = token {
                client.request(token, op, acquires);
            }
            return;
        }
        match op {
            Op::Move(ino, from, ..) if client.cover(Thing::Node(ino)) != from => {}
            Op::Link(ino, to, _) if client.cover(Thing::Node(ino)) == to => {}
            Op::Remove(ino, dir, _) if client.cover(Thing::Node(ino)) != dir => {}
            _ => self.apply(c, op),
        }
    }

    /// Numbers of inodes are not reused.
    fn is_used(&self, thing: Thing) -> bool {
        self.truth.version(thing) > 0 || matches!(thing, Thing::Node(ino) if self.used.contains(&ino))
    }

    /// A change is done: from now on no client may show the old version.
    fn apply(&mut self, c: usize, op: Op) {
        let client = &mut self.clients[c];
        let mut batch = Batch { gone: std::mem::take(&mut client.gone), ..Batch::default() };
        for thing in op.things() {
            let version = self.truth.version(thing) + 1;
            self.truth.versions.insert(thing, version);
            client.cache.insert(thing, version);
            client.modified.insert(thing, client.committed + client.journal.len() as u64 + 1);
            batch.changes.push((thing, version));
        }
        match op {
            Op::Move(ino, _, to, _) | Op::Link(ino, to, _) => {
                batch.moved.push((ino, to));
                self.truth.places.insert(ino, to);
                client.places.insert(ino, to);
                if let Some(right) = client.nodes.get_mut(&ino) {
                    right.cover = to;
                }
                // Also without a right to it alone: that may be in flight, and is counted under the old
                // directory.
                batch.born.push((ino, to));
            }
            Op::Create(ino, dir, _) if is_dir(ino) => {
                client.covers.insert(ino, true);
                batch.born.push((ino, dir));
                batch.born[0].1 = ino;
            }
            Op::Create(ino, dir, _) => {
                batch.moved.push((ino, dir));
                self.truth.places.insert(ino, dir);
                client.places.insert(ino, dir);
                if !client.covers.get(&dir).is_some_and(|exclusive| *exclusive) {
                    client.nodes.insert(ino, NodeRight { cover: dir, names: Default::default() });
                    batch.born.push((ino, dir));
                }
            }
            Op::Remove(ino, ..) => {
                self.truth.versions.remove(&Thing::Node(ino));
                self.used.insert(ino);
                client.dead.insert(ino);
                client.cache.remove(&Thing::Node(ino));
                batch.changes.retain(|(thing, _)| *thing != Thing::Node(ino));
                batch.changes.push((Thing::Node(ino), 0));
                batch.removed.push(ino);
            }
            _ => {}
        }
        client.journal.push_back(batch);
    }

    fn commit(&mut self, c: usize) {
        let session = self.clients[c].session;
        let Some(batch) = self.clients[c].journal.front_mut() else { return };
        batch.applied = true;
        let batch = batch.clone();
        for (thing, version) in &batch.changes {
            let before = self.store.version(*thing);
            if *version > 0 && before >= *version {
                self.wrong = Some(format!("{thing:?} was changed by another client, too"));
            }
            match version {
                0 => drop(self.store.versions.remove(thing)),
                _ => drop(self.store.versions.insert(*thing, *version)),
            }
        }
        self.store.places.extend(batch.moved.iter().copied());
        self.table.settled(session, &batch.born);
        self.table.gone(session, &batch.gone);
    }

    /// A session ends: its uncommitted changes are void.
    pub fn end(&mut self, c: usize, setup: &Setup) {
        self.ends = self.ends.saturating_sub(1);
        // A batch that has arrived is committed before the end of the session is.
        if self.clients[c].journal.front().is_some_and(|batch| batch.proposed && !batch.applied) {
            self.commit(c);
        }
        let old = &self.clients[c];
        for batch in old.journal.iter().filter(|batch| !batch.applied) {
            for (thing, _) in &batch.changes {
                match self.store.versions.get(thing) {
                    Some(version) => drop(self.truth.versions.insert(*thing, *version)),
                    None => drop(self.truth.versions.remove(thing)),
                }
            }
            for (ino, _) in &batch.moved {
                match self.store.places.get(ino) {
                    Some(place) => drop(self.truth.places.insert(*ino, *place)),
                    None => drop(self.truth.places.remove(ino)),
                }
            }
        }
        self.table.end(old.session);
        if setup.fault == Fault::IgnoresTheEndOfItsLease {
            // The client does not know it, and goes on reading.
            self.clients[c].out.clear();
            self.clients[c].inbox.clear();
            self.clients[c].begun.clear();
            self.clients[c].acks.clear();
            self.clients[c].journal.clear();
            self.clients[c].ops_left = 0;
            return;
        }
        let next = SessionId(old.session.0 + 100);
        let ops_left = old.ops_left;
        self.clients[c] = Client::new(next.0, self.term, ops_left);
        self.table.begin(next);
    }

    /// Messages at the server are lost; those that it has sent are not.
    fn lead(&mut self) {
        self.leaders -= 1;
        self.term += 1;
        self.table = Table::recover(self.clients.iter().map(|client| client.session));
        for client in &mut self.clients {
            client.out.retain(|_, request| matches!(request.stage, Stage::Replied(_)));
            client.inbox.clear();
            // It is retried.
            client.journal.iter_mut().for_each(|batch| batch.proposed &= batch.applied);
        }
    }
}
