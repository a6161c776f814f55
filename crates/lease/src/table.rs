//! The table: see the [crate].

mod acquire;
mod read;
mod recall;
mod recover;

use crate::limits::ANSWERED_MAX;
use shoal_types::{InodeId, Name, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// A request that waits: numbered in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RequestId(pub u64);

/// The number that a client gave to a request; 0: none.
pub type Token = u64;

/// Something that is going to be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The inode.
    pub ino: InodeId,
    /// What it is counted under.
    pub cover: InodeId,
    /// Names in it.
    pub names: BTreeSet<Name>,
    /// Whoever refers to it is asked to say so.
    pub hold: bool,
}

/// Something that is looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadItem {
    /// What a name in a directory stands for.
    Name(InodeId, Name),
    /// All names in a directory.
    Listing(InodeId),
    /// An inode, and what it is counted under.
    Node(InodeId, InodeId),
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It may go on.
    Ready,
    /// It waits: [`Table::ready`] will name it.
    Waits,
}

/// Why something was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such session.
    Unknown,
    /// It contradicts what others hold.
    Contradiction,
}

/// A right to change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Right {
    /// Everything under a cover.
    Cover(InodeId),
    /// An inode.
    Node(InodeId),
}

/// What a session has a right to, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// Covers that it may cache.
    pub watched: u64,
    /// Covers and single inodes that it alone may change.
    pub exclusive: u64,
}

/// What a session is to give back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// The right to change a cover; it goes on watching. Single inodes that it may change there are released
    /// with it.
    Downgrade(InodeId),
    /// The right to change an inode; it goes on caching it.
    Release(InodeId),
    /// An inode and names in it, rights included; it goes on watching the cover.
    Drop(Target),
}

/// What a session is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recall {
    /// Counts the recalls of a session, from 1.
    pub id: u64,
    /// Requests that were answered before, and whose answers may be under way.
    pub after: Vec<Token>,
    /// What is to be given back.
    pub items: Vec<Item>,
}

/// A cover.
#[derive(Clone, Debug, Default)]
struct Cover {
    /// Each with the number of recalls that it had been sent when it was last told something: what it says in
    /// answer to later ones may be older than that.
    watchers: BTreeMap<SessionId, u64>,
    exclusive: Option<SessionId>,
    /// The first recall that told the holder to go down. What it says in answer to earlier ones is not about
    /// what it holds now.
    recalled: Option<u64>,
    /// Nodes under it that single sessions may change, those included that are just moving elsewhere. They
    /// stay when one of them gets the cover: it may have moved an inode elsewhere meanwhile, or learn of the
    /// smaller right after the greater one.
    nodes: BTreeSet<InodeId>,
}

/// An inode that one session may change.
#[derive(Clone, Debug)]
struct Node {
    holder: SessionId,
    cover: InodeId,
    /// What it was counted under before, the oldest first, where everybody still finds it: the batches that
    /// move it are under way.
    before: Vec<InodeId>,
    names: BTreeSet<Name>,
    /// As in [`Cover`].
    recalled: Option<u64>,
}

/// A session, as far as rights go.
#[derive(Clone, Debug, Default)]
struct Session {
    recalls: u64,
    /// Told, or to be told, and not acknowledged.
    unacked: BTreeMap<u64, Pending>,
    /// Requests that were answered and may not have arrived.
    answered: BTreeSet<Token>,
    /// Has not said yet what it held under the last leader.
    undeclared: bool,
}

/// A recall that is under way.
#[derive(Clone, Debug)]
struct Pending {
    items: Vec<Item>,
    /// Requests that had been answered.
    after: Vec<Token>,
    since_ms: u64,
    /// What the change that waits for it is about and the session was told since: its acknowledgement does
    /// not count for that.
    again: Vec<Target>,
}

/// A change that waits for others, or is being prepared.
#[derive(Clone, Debug)]
struct Change {
    session: SessionId,
    token: Token,
    targets: Vec<Target>,
    /// Targets before this one have been asked back from everybody.
    asked: usize,
    /// Recalls that it waits for.
    waits: BTreeSet<(SessionId, u64)>,
}

/// A request that waits.
#[derive(Clone, Debug)]
enum Waiting {
    Read { session: SessionId, items: Vec<ReadItem> },
    Change { session: SessionId, token: Token, targets: Vec<Target> },
}

/// See the [crate].
#[derive(Clone, Debug, Default)]
pub struct Table {
    covers: BTreeMap<InodeId, Cover>,
    nodes: BTreeMap<InodeId, Node>,
    sessions: BTreeMap<SessionId, Session>,
    requests: u64,
    waiting: BTreeMap<RequestId, Waiting>,
    active: BTreeMap<RequestId, Change>,
    /// Waiting requests that may go on.
    ready: Vec<RequestId>,
    /// Sessions that there is something to tell.
    news: BTreeSet<SessionId>,
    now_ms: u64,
    /// Recalls so far.
    recalls: u64,
}

impl Table {
    /// Of a volume that nobody has mounted.
    pub fn new() -> Table {
        Table::default()
    }

    /// What time it is, in milliseconds since any fixed moment.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// A session has begun. Nothing happens if it is known already.
    pub fn begin(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default();
    }

    /// A session has ended: what it held and was asked for is free. Its waiting requests are forgotten.
    pub fn end(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.news.remove(&session);
        self.nodes.retain(|_, node| node.holder != session);
        let nodes = &self.nodes;
        self.covers.retain(|_, cover| {
            cover.watchers.remove(&session);
            if cover.exclusive == Some(session) {
                (cover.exclusive, cover.recalled) = (None, None);
            }
            cover.nodes.retain(|ino| nodes.contains_key(ino));
            cover.exclusive.is_some() || !cover.watchers.is_empty() || !cover.nodes.is_empty()
        });
        self.waiting.retain(|_, waiting| waiting.session() != session);
        self.active.retain(|_, change| change.session != session);
        for (id, change) in &mut self.active {
            let waited = change.waits.len();
            change.waits.retain(|(waited, _)| *waited != session);
            if waited > 0 && change.waits.is_empty() {
                self.ready.push(*id);
            }
        }
        self.progress();
    }

    /// Whether it lives.
    pub fn knows(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// The session has taken in the answers to all requests below this one.
    pub fn arrived(&mut self, session: SessionId, below: Token) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.answered = session.answered.split_off(&below);
        }
    }

    /// A request is answered, and the answer may be under way for a while.
    fn answered(&mut self, session: SessionId, token: Token) {
        if let Some(state) = self.sessions.get_mut(&session)
            && token != 0
        {
            state.answered.insert(token);
            // A client that never says what has arrived has itself to blame.
            while state.answered.len() > ANSWERED_MAX {
                state.answered.pop_first();
            }
        }
    }

    /// Requests that have waited and may go on now. Each is asked again with [`Table::retry`].
    pub fn ready(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.ready)
    }

    /// Sessions that there is something to tell.
    pub fn news(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.news).into_iter().collect()
    }

    /// Recalls decided so far.
    pub fn recalls(&self) -> u64 {
        self.recalls
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.active.len()
    }

    /// Covers and nodes that somebody has a right to.
    pub fn len(&self) -> usize {
        self.covers.len() + self.nodes.len()
    }

    /// Whether nobody has any right.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rights of each session, for people to read.
    pub fn rights(&self) -> BTreeMap<SessionId, Rights> {
        let none = |(session, _): (&SessionId, &Session)| (*session, Rights::default());
        let mut rights: BTreeMap<SessionId, Rights> = self.sessions.iter().map(none).collect();
        for cover in self.covers.values() {
            for session in cover.watchers.keys() {
                rights.entry(*session).or_default().watched += 1;
            }
            if let Some(session) = cover.exclusive {
                rights.entry(session).or_default().exclusive += 1;
            }
        }
        for node in self.nodes.values() {
            rights.entry(node.holder).or_default().exclusive += 1;
        }
        rights
    }

    /// Whether a session may change an inode, without asking. For tests and assertions.
    pub fn may_change(&self, session: SessionId, ino: InodeId, cover: InodeId) -> bool {
        self.covers.get(&cover).is_some_and(|cover| cover.exclusive == Some(session))
            || self.nodes.get(&ino).is_some_and(|node| node.holder == session)
    }

    /// Whether a session watches a cover or holds it. For tests and assertions.
    pub fn watches(&self, session: SessionId, cover: InodeId) -> bool {
        self.covers.get(&cover).is_some_and(|cover| cover.watchers.contains_key(&session))
    }

    fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// Looks at everything that waits, in the order of arrival.
    fn progress(&mut self) {
        let ids: Vec<RequestId> = self.waiting.keys().copied().collect();
        let mut ahead: Vec<RequestId> = Vec::new();
        for id in ids {
            let free = match self.waiting.get(&id) {
                Some(Waiting::Read { session, items }) => {
                    let (session, items) = (*session, items.clone());
                    self.try_read(session, &items)
                }
                Some(Waiting::Change { targets, .. }) => {
                    let blocked = self.is_being_changed(targets)
                        || ahead.iter().any(|earlier| {
                            self.waiting.get(earlier).is_some_and(|waiting| waiting.concerns(targets))
                        });
                    !blocked && !self.recovering()
                }
                None => continue,
            };
            if !free {
                ahead.push(id);
                continue;
            }
            match self.waiting.remove(&id) {
                Some(Waiting::Change { session, token, targets }) => {
                    let answer = self.activate(id, session, token, targets);
                    self.ready.extend((answer == Answer::Ready).then_some(id));
                }
                Some(Waiting::Read { session, items }) => {
                    // It watches from now on, so that the changes that have waited for it do not pass it.
                    self.register(session, 0, &items);
                    self.ready.push(id);
                }
                None => {}
            }
        }
    }
}

impl Waiting {
    fn session(&self) -> SessionId {
        match self {
            Waiting::Read { session, .. } | Waiting::Change { session, .. } => *session,
        }
    }

    /// Whether it is about something that is to be changed.
    fn concerns(&self, targets: &[Target]) -> bool {
        match self {
            Waiting::Read { items, .. } => items.iter().any(|item| item.meets_any(targets)),
            Waiting::Change { targets: others, .. } => share(others, targets),
        }
    }
}

impl ReadItem {
    /// Whether a change of one of these is one of what is looked at.
    fn meets_any(&self, targets: &[Target]) -> bool {
        targets.iter().any(|target| self.meets(target))
    }

    fn meets(&self, target: &Target) -> bool {
        match self {
            ReadItem::Name(dir, name) => target.ino == *dir && target.names.contains(name),
            ReadItem::Listing(ino) | ReadItem::Node(ino, _) => target.ino == *ino,
        }
    }
}

/// Whether two changes are about the same inode.
fn share(one: &[Target], other: &[Target]) -> bool {
    one.iter().any(|target| other.iter().any(|another| another.ino == target.ino))
}
