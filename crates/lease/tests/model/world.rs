//! A small world: its objects, the operations of its clients, and its state.
//!
//! Everything that can be cached is a *thing* with a version: an inode, or a name in a directory. A change
//! makes a new version. The *truth* has a change from the moment in which its client considers it done; the
//! *store* of the server has it when it is committed.

use crate::client::Client;
use shoal_lease::{Table, Target};
use shoal_types::{InodeId, Name};
use std::collections::{BTreeMap, BTreeSet};

pub const D1: InodeId = InodeId(20);
pub const D2: InodeId = InodeId(30);
/// A directory that does not exist in the beginning.
pub const D3: InodeId = InodeId(40);
pub const F1: InodeId = InodeId(21);
pub const F2: InodeId = InodeId(22);
/// A file that does not exist in the beginning.
pub const F3: InodeId = InodeId(23);

/// Counts the versions of a thing. 0: there is none.
pub type Version = u32;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Thing {
    Node(InodeId),
    Name(InodeId, u8),
}

/// An operation of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    See(Thing),
    /// A name, and the inode that it leads to.
    Lookup(InodeId, u8, InodeId),
    List(InodeId),
    Write(InodeId),
    /// Two inodes at once.
    Both(InodeId, InodeId),
    /// Changes what a name leads to.
    Touch(InodeId, u8),
    /// Moves a file from one directory to another, under the same name.
    Move(InodeId, InodeId, InodeId, u8),
    /// Gives a file another name. It gets a cover of its own, and nothing is changed in its old one.
    Link(InodeId, InodeId, u8),
    /// A new file, or a new directory.
    Create(InodeId, InodeId, u8),
    /// A file that loses its only name.
    Remove(InodeId, InodeId, u8),
}

/// A wanted inode, names in it, and whether it may have another cover afterwards.
pub type Want = (InodeId, BTreeSet<u8>, bool);

pub fn is_dir(ino: InodeId) -> bool {
    [D1, D2, D3].contains(&ino)
}

pub fn name(number: u8) -> Name {
    Name::new(vec![b'a' + number]).expect("a letter")
}

pub fn number(name: &Name) -> u8 {
    name.as_bytes()[0] - b'a'
}

impl Op {
    pub fn is_read(&self) -> bool {
        matches!(self, Op::See(_) | Op::Lookup(..) | Op::List(_))
    }

    /// The rights that it needs.
    pub fn wants(&self) -> Vec<Want> {
        let node = |ino: InodeId, hold: bool| (ino, BTreeSet::new(), hold);
        let named = |dir: InodeId, name: u8| (dir, BTreeSet::from([name]), false);
        match *self {
            Op::See(_) | Op::Lookup(..) | Op::List(_) => Vec::new(),
            Op::Write(ino) => vec![node(ino, false)],
            Op::Both(one, other) => vec![node(one, false), node(other, false)],
            Op::Touch(dir, name) => vec![named(dir, name)],
            Op::Create(_, dir, name) => vec![named(dir, name)],
            Op::Move(ino, from, to, name) => vec![named(from, name), named(to, name), node(ino, true)],
            Op::Link(ino, dir, name) | Op::Remove(ino, dir, name) => vec![named(dir, name), node(ino, true)],
        }
    }

    /// What it reads or changes.
    pub fn things(&self) -> Vec<Thing> {
        match *self {
            Op::See(thing) => vec![thing],
            Op::Lookup(dir, name, ino) => vec![Thing::Name(dir, name), Thing::Node(ino)],
            Op::List(dir) => vec![Thing::Name(dir, 0), Thing::Name(dir, 1)],
            Op::Write(ino) => vec![Thing::Node(ino)],
            Op::Both(one, other) => vec![Thing::Node(one), Thing::Node(other)],
            Op::Touch(dir, name) => vec![Thing::Node(dir), Thing::Name(dir, name)],
            Op::Create(ino, dir, name) | Op::Remove(ino, dir, name) | Op::Link(ino, dir, name) => {
                vec![Thing::Node(dir), Thing::Name(dir, name), Thing::Node(ino)]
            }
            Op::Move(ino, from, to, name) => vec![
                Thing::Node(from),
                Thing::Name(from, name),
                Thing::Node(to),
                Thing::Name(to, name),
                Thing::Node(ino),
            ],
        }
    }
}

/// Versions, and where files are.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct State {
    pub versions: BTreeMap<Thing, Version>,
    pub places: BTreeMap<InodeId, InodeId>,
}

impl State {
    pub fn version(&self, thing: Thing) -> Version {
        self.versions.get(&thing).copied().unwrap_or(0)
    }

    pub fn exists(&self, ino: InodeId) -> bool {
        self.version(Thing::Node(ino)) > 0
    }

    /// The cover of an inode.
    pub fn cover(&self, ino: InodeId) -> InodeId {
        if is_dir(ino) { ino } else { self.places.get(&ino).copied().unwrap_or(ino) }
    }
}

/// A planted defect, which the checks must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// A client acknowledges without invalidating.
    AcknowledgesWithoutDropping,
    DropsTheInodeAndNotTheNames,
    /// Recalls are carried out while earlier replies are in flight.
    DoesNotWaitForAnswers,
    /// A client uses its cache after its lease has expired.
    IgnoresTheEndOfItsLease,
    AcknowledgesBeforeItHasCommitted,
    /// A client goes on changing what it was asked to downgrade.
    KeepsTheRight,
    /// It reports that it caches nothing of a directory, and keeps some.
    KeepsWhatItDoesNotWatch,
    /// Rights to single inodes are not reclaimed from a new leader.
    DeclaresCoversOnly,
    /// Replies of former leaders are installed.
    TakesInOldAnswers,
    /// Replies of former leaders are ignored, but nothing is reclaimed from the new one.
    DeclaresNothing,
}

/// The parameters of a world.
#[derive(Clone, Debug)]
pub struct Setup {
    pub clients: usize,
    pub ops: Vec<Op>,
    /// Operations that each client begins.
    pub ops_each: u32,
    /// Sessions that end.
    pub ends: u32,
    /// Leaders that take over.
    pub leaders: u32,
    /// Retried batches.
    pub resends: u32,
    /// A kernel that waits for a reply prevents the invalidation of what it waits for.
    pub kernel: bool,
    pub fault: Fault,
}

#[derive(Clone, Debug)]
pub struct World {
    pub table: Table,
    pub term: u64,
    pub store: State,
    pub truth: State,
    pub clients: Vec<Client>,
    /// A violation that was found in an event.
    pub wrong: Option<String>,
    /// Inodes that were removed.
    pub used: BTreeSet<InodeId>,
    pub ends: u32,
    pub leaders: u32,
    pub resends: u32,
}

impl World {
    pub fn new(setup: &Setup) -> World {
        let mut state = State::default();
        for ino in [D1, D2, F1, F2] {
            state.versions.insert(Thing::Node(ino), 1);
        }
        for thing in [Thing::Name(D1, 0), Thing::Name(D1, 1), Thing::Name(D2, 0), Thing::Name(D2, 1)] {
            state.versions.insert(thing, 1);
        }
        state.places.extend([(F1, D1), (F2, D1)]);
        let mut table = Table::new();
        let clients: Vec<Client> =
            (0..setup.clients).map(|number| Client::new(number as u64 + 1, 1, setup.ops_each)).collect();
        clients.iter().for_each(|client| table.begin(client.session));
        let (ends, leaders, resends) = (setup.ends, setup.leaders, setup.resends);
        World {
            table,
            term: 1,
            store: state.clone(),
            truth: state,
            clients,
            wrong: None,
            used: BTreeSet::new(),
            ends,
            leaders,
            resends,
        }
    }

    /// A want as a target of the table.
    pub fn target(&self, (ino, names, hold): &Want) -> Target {
        let names = names.iter().map(|number| name(*number)).collect();
        Target { ino: *ino, cover: self.store.cover(*ino), names, hold: *hold }
    }
}
