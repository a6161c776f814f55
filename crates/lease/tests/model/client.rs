//! A client: a cache, rights, a journal, recalls in progress, and requests in flight.

use crate::server::{Reply, Stage};
use crate::world::*;
use shoal_lease::{Item, Recall, Right};
use shoal_types::{InodeId, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A local change that is not committed.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub changes: Vec<(Thing, Version)>,
    pub moved: Vec<(InodeId, InodeId)>,
    pub born: Vec<(InodeId, InodeId)>,
    /// Inodes whose removal was committed before this.
    pub gone: Vec<InodeId>,
    /// Inodes that it removes. They stay held until that is committed: until then another client could be
    /// told about them.
    pub removed: Vec<InodeId>,
    /// The server has received it, and is about to commit it.
    pub proposed: bool,
    /// It is committed, and the client does not know it yet.
    pub applied: bool,
}

#[derive(Clone, Debug)]
pub struct NodeRight {
    pub cover: InodeId,
    pub names: BTreeSet<u8>,
}

/// A recall that has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    pub recall: Recall,
    /// The journal has to be committed up to here.
    pub needed: u64,
    /// The term of the leader that sent it.
    pub term: u64,
}

/// An acknowledgement in flight.
#[derive(Clone, Debug)]
pub struct Ack {
    pub id: u64,
    pub term: u64,
    pub unwatched: Vec<InodeId>,
    pub below: u64,
}

/// A client's reclaim from a new leader.
#[derive(Clone, Debug)]
pub struct Said {
    pub term: u64,
    pub covers: Vec<(InodeId, bool)>,
    pub nodes: Vec<(InodeId, InodeId, Vec<shoal_types::Name>)>,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub struct Request {
    pub op: Op,
    /// It requests the right to change; otherwise it reads.
    pub acquires: bool,
    /// Counts of commits and of invalidations when it was made.
    pub ticket: (u64, u64),
    pub stage: Stage,
}

/// Covers that a client stops watching when it has carried a recall out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Leaves {
    Nothing,
    /// Those of what it invalidates.
    Dropped,
    /// All in which it holds nothing.
    All,
}

#[derive(Clone, Debug)]
pub struct Client {
    pub session: SessionId,
    /// Its session lease is valid.
    pub lease: bool,
    pub term: u64,
    pub cache: BTreeMap<Thing, Version>,
    pub places: BTreeMap<InodeId, InodeId>,
    /// Covers with cached content, and whether all of each may be changed.
    pub covers: BTreeMap<InodeId, bool>,
    pub nodes: BTreeMap<InodeId, NodeRight>,
    /// Inodes that it has removed: replies in flight may still contain them.
    pub dead: BTreeSet<InodeId>,
    /// Inodes whose removal is committed, to be reported with the next batch.
    pub gone: Vec<InodeId>,
    pub journal: VecDeque<Batch>,
    pub committed: u64,
    /// Recalls that it has received. Each is carried out independently.
    pub inbox: Vec<Recall>,
    pub seen: u64,
    pub begun: Vec<Begun>,
    pub acks: Vec<Ack>,
    pub said: Option<Said>,
    pub out: BTreeMap<u64, Request>,
    pub last_token: u64,
    pub ops_left: u32,
    /// The batch that changed each thing last; the count of invalidations, and the newest change among them.
    pub modified: BTreeMap<Thing, u64>,
    pub dropped: u64,
    pub dropped_modified: u64,
}

impl Client {
    pub fn new(session: u64, term: u64, ops_left: u32) -> Client {
        Client {
            session: SessionId(session),
            lease: true,
            term,
            cache: BTreeMap::new(),
            places: BTreeMap::new(),
            covers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            dead: BTreeSet::new(),
            gone: Vec::new(),
            journal: VecDeque::new(),
            committed: 0,
            inbox: Vec::new(),
            seen: 0,
            begun: Vec::new(),
            acks: Vec::new(),
            said: None,
            out: BTreeMap::new(),
            last_token: 0,
            ops_left,
            modified: BTreeMap::new(),
            dropped: 0,
            dropped_modified: 0,
        }
    }

    pub fn cover(&self, thing: Thing) -> InodeId {
        match thing {
            Thing::Name(dir, _) => dir,
            Thing::Node(ino) if is_dir(ino) => ino,
            Thing::Node(ino) => self.places.get(&ino).copied().unwrap_or(ino),
        }
    }

    /// All replies to requests before this have been received.
    pub fn below(&self) -> u64 {
        self.out.keys().next().copied().unwrap_or(self.last_token + 1)
    }

    pub fn may(&self, ino: InodeId, names: &BTreeSet<u8>) -> bool {
        let whole = self.covers.get(&self.cover(Thing::Node(ino))).is_some_and(|exclusive| *exclusive);
        whole || self.nodes.get(&ino).is_some_and(|right| right.names.is_superset(names))
    }

    /// Whether it believes that it may change a thing.
    pub fn may_change(&self, thing: Thing) -> bool {
        match thing {
            Thing::Node(ino) => self.may(ino, &BTreeSet::new()),
            Thing::Name(dir, name) => self.may(dir, &BTreeSet::from([name])),
        }
    }

    pub fn is_dirty(&self, thing: Thing) -> bool {
        self.journal.iter().any(|batch| batch.changes.iter().any(|(changed, _)| *changed == thing))
    }

    pub fn request(&mut self, token: u64, op: Op, acquires: bool) {
        self.last_token = token;
        let ticket = (self.committed, self.dropped);
        self.out.insert(token, Request { op, acquires, ticket, stage: Stage::Sent { below: 0 } });
        let below = self.below();
        self.out.insert(token, Request { op, acquires, ticket, stage: Stage::Sent { below } });
    }

    /// Installs a reply, all of which must be true at this moment.
    pub fn install(&mut self, request: &Request, reply: &Reply, fault: Fault) {
        let op = request.op;
        if reply.term != self.term && fault != Fault::TakesInOldAnswers {
            return;
        }
        for right in &reply.rights {
            match right {
                Right::Cover(cover) => {
                    self.covers.insert(*cover, true);
                    self.nodes.retain(|_, node| node.cover != *cover);
                }
                Right::Node(ino) if self.dead.contains(ino) => {}
                Right::Node(ino) => {
                    let cover = reply.places.get(ino).copied().unwrap_or(*ino);
                    self.covers.entry(cover).or_insert(false);
                    let names = op.wants().into_iter().find(|want| want.0 == *ino).map(|want| want.1);
                    let right = self.nodes.entry(*ino).or_insert(NodeRight { cover, names: BTreeSet::new() });
                    right.cover = cover;
                    right.names.extend(names.unwrap_or_default());
                }
            }
        }
        for cover in &reply.exclusive {
            self.covers.insert(*cover, true);
            self.nodes.retain(|_, node| node.cover != *cover);
        }
        // A thing that was changed here and invalidated since the request was made: the reply may be older.
        let (committed, dropped) = request.ticket;
        if self.dropped != dropped && self.dropped_modified > committed {
            return;
        }
        for (thing, version) in &reply.found {
            if self.cache.contains_key(thing) || *version == 0 {
                continue;
            }
            if matches!(thing, Thing::Node(ino) if self.dead.contains(ino)) {
                continue;
            }
            if let Thing::Node(ino) = thing
                && let Some(place) = reply.places.get(ino)
            {
                self.places.insert(*ino, *place);
            }
            let cover = self.cover(*thing);
            self.covers.entry(cover).or_insert(false);
            self.cache.insert(*thing, *version);
        }
    }

    /// Nothing of this recall is changed any more.
    pub fn begin(&mut self, id: u64, fault: Fault) {
        let Some(at) = self.inbox.iter().position(|recall| recall.id == id) else { return };
        let recall = self.inbox.remove(at);
        if fault != Fault::KeepsTheRight {
            self.let_go(&recall);
        }
        let needed = self.committed + self.journal.len() as u64;
        let needed = if fault == Fault::AcknowledgesBeforeItHasCommitted { 0 } else { needed };
        let term = self.term;
        self.begun.push(Begun { recall, needed, term });
        // The order does not matter: sorting makes equal worlds compare equal.
        self.begun.sort_by_key(|begun| begun.recall.id);
    }

    fn let_go(&mut self, recall: &Recall) {
        for item in &recall.items {
            match item {
                Item::Downgrade(cover) => {
                    self.covers.entry(*cover).and_modify(|exclusive| *exclusive = false);
                }
                Item::Release(ino) => drop(self.nodes.remove(ino)),
                Item::Drop(target) => drop(self.nodes.remove(&target.ino)),
            }
        }
    }

    /// What a recall asks it to invalidate.
    fn to_drop(recall: &Recall) -> Vec<Thing> {
        let mut things = Vec::new();
        for item in &recall.items {
            if let Item::Drop(target) = item {
                things.push(Thing::Node(target.ino));
                things.extend(target.names.iter().map(|name| Thing::Name(target.ino, number(name))));
            }
        }
        things
    }

    /// Whether a kernel that waits for a reply prevents the invalidation: of names in a directory of a
    /// lookup, or of a file that is being read.
    fn is_kept(&self, recall: &Recall) -> bool {
        let meets = |drop: &Thing, seen: &Thing| match (drop, seen) {
            (Thing::Name(one, _), Thing::Name(other, _)) => one == other,
            _ => drop == seen,
        };
        let things = Self::to_drop(recall);
        let reads = self.out.values().filter(|request| !request.acquires);
        let seen: Vec<Thing> = reads.filter_map(|request| request.op.things().first().copied()).collect();
        things.iter().any(|drop| seen.iter().any(|seen| meets(drop, seen)))
    }

    /// Recalls that may be acknowledged now.
    pub fn may_finish(&self, kernel: bool) -> Vec<u64> {
        let may = |begun: &&Begun| self.committed >= begun.needed && !(kernel && self.is_kept(&begun.recall));
        self.begun.iter().filter(may).map(|begun| begun.recall.id).collect()
    }

    /// Only the kernel is waited for.
    pub fn may_reclaim(&self) -> bool {
        self.begun.iter().all(|begun| self.committed >= begun.needed)
    }

    /// Whether there are covers that it may leave besides those of a recall.
    pub fn may_leave_more(&self, id: u64) -> bool {
        let Some(begun) = self.begun.iter().find(|begun| begun.recall.id == id) else { return false };
        let dropped: Vec<InodeId> =
            Self::to_drop(&begun.recall).iter().map(|thing| self.cover(*thing)).collect();
        self.covers.keys().any(|cover| !dropped.contains(cover) && self.may_leave(*cover))
    }

    /// The changes are committed: invalidates the recalled things, and all else under the covers that the
    /// client leaves, if possible.
    pub fn finish(&mut self, id: u64, leaves: Leaves, fault: Fault) {
        let Some(at) = self.begun.iter().position(|begun| begun.recall.id == id) else { return };
        let Begun { recall, term, .. } = self.begun[at].clone();
        let things = Self::to_drop(&recall);
        if things.iter().any(|thing| self.is_dirty(*thing)) && fault == Fault::None {
            // It was granted the right anew meanwhile, and has changed it: release it once more.
            self.let_go(&recall);
            self.begun[at].needed = self.committed + self.journal.len() as u64;
            return;
        }
        self.begun.remove(at);
        let mut unwatched = Vec::new();
        let mut covers: Vec<_> = match leaves {
            Leaves::Nothing => Vec::new(),
            Leaves::Dropped => things.iter().map(|thing| self.cover(*thing)).collect(),
            Leaves::All => self.covers.keys().copied().collect(),
        };
        covers.dedup();
        for thing in &things {
            match fault {
                Fault::AcknowledgesWithoutDropping => {}
                Fault::DropsTheInodeAndNotTheNames if matches!(thing, Thing::Name(..)) => {}
                _ => self.forget(*thing),
            }
        }
        for cover in covers {
            if !unwatched.contains(&cover) && self.may_leave(cover) {
                if fault != Fault::KeepsWhatItDoesNotWatch {
                    let gone: Vec<Thing> = self.under(cover);
                    gone.iter().for_each(|thing| self.forget(*thing));
                }
                self.covers.remove(&cover);
                unwatched.push(cover);
            }
        }
        let below = self.below();
        if term == self.term {
            self.acks.push(Ack { id, term, unwatched, below });
            self.acks.sort_by_key(|ack| ack.id);
        }
    }

    fn forget(&mut self, thing: Thing) {
        self.cache.remove(&thing);
        if let Thing::Node(ino) = thing {
            self.places.remove(&ino);
        }
        self.dropped += 1;
        self.dropped_modified = self.dropped_modified.max(self.modified.get(&thing).copied().unwrap_or(0));
    }

    fn under(&self, cover: InodeId) -> Vec<Thing> {
        self.cache.keys().copied().filter(|thing| self.cover(*thing) == cover).collect()
    }

    fn may_leave(&self, cover: InodeId) -> bool {
        self.covers.get(&cover) == Some(&false)
            && !self.nodes.values().any(|right| right.cover == cover)
            && !self.under(cover).iter().any(|thing| self.is_dirty(*thing))
    }

    /// What it reclaims from a new leader.
    pub fn reclaim(&mut self, term: u64, fault: Fault) {
        let node = |(ino, right): (&InodeId, &NodeRight)| {
            (*ino, right.cover, right.names.iter().map(|number| name(*number)).collect())
        };
        let mut said = Said {
            term,
            covers: self.covers.iter().map(|(cover, exclusive)| (*cover, *exclusive)).collect(),
            nodes: self.nodes.iter().map(node).collect(),
        };
        match fault {
            Fault::DeclaresCoversOnly => said.nodes.clear(),
            Fault::DeclaresNothing => (said.nodes, said.covers) = (Vec::new(), Vec::new()),
            _ => {}
        }
        self.said = Some(said);
        self.term = term;
        self.seen = 0;
        self.inbox.clear();
        self.acks.clear();
    }
}
