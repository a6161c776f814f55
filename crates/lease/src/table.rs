//! The table: see the [crate].

mod acquire;
mod read;
mod recall;
mod recover;

use crate::limits::ANSWERED_MAX;
use shoal_types::{InodeId, Name, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// A request's number, in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RequestId(pub u64);

/// The number that a client gave to a request; 0: none.
pub type Token = u64;

/// An inode that is to be changed, and names in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The inode.
    pub ino: InodeId,
    /// Its cover.
    pub cover: InodeId,
    /// Names in it.
    pub names: BTreeSet<Name>,
    /// Sessions that refer to the inode are asked to report it.
    pub hold: bool,
}

/// What a read is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadItem {
    /// The dentry of a name in a directory.
    Name(InodeId, Name),
    /// All names of a directory.
    Listing(InodeId),
    /// An inode, and its cover.
    Node(InodeId, InodeId),
}

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It may go on.
    Ready,
    /// It waits: [`Table::ready`] will name it.
    Waits,
}

/// Why a call was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such session.
    Unknown,
    /// It contradicts what other sessions hold.
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

/// The rights of a session, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// Covers that it may cache.
    pub watched: u64,
    /// Covers and single inodes that it holds exclusively.
    pub exclusive: u64,
}

/// What a recall asks a session to give back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// The right to change a cover; the session still watches it. Rights to single inodes under it are
    /// released with it.
    Downgrade(InodeId),
    /// The right to change an inode; the session may still cache it.
    Release(InodeId),
    /// An inode and names in it: invalidate them, and release the rights. The session still watches the
    /// cover.
    Drop(Target),
}

/// A recall as it is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recall {
    /// Counts the recalls of a session, from 1.
    pub id: u64,
    /// Requests that were answered before, and whose replies may be in flight.
    pub after: Vec<Token>,
    /// What to give back.
    pub items: Vec<Item>,
}

/// The rights to a cover.
#[derive(Clone, Debug, Default)]
struct Cover {
    /// Each with the number of recalls that it had been sent when it was last told something. What it says in
    /// answer to later ones may be older than that.
    watchers: BTreeMap<SessionId, u64>,
    exclusive: Option<SessionId>,
    /// The first recall that asked the holder to downgrade. Acknowledgements of earlier recalls are not about
    /// the current right.
    recalled: Option<u64>,
    /// Single inodes under it that sessions may change, those included that are being moved elsewhere. They
    /// stay when one of these sessions gets the cover: it may have moved an inode meanwhile, or learn of the
    /// smaller right after the greater one.
    nodes: BTreeSet<InodeId>,
}

/// The right to change one inode.
#[derive(Clone, Debug)]
struct Node {
    holder: SessionId,
    cover: InodeId,
    /// Its earlier covers, the oldest first. Other sessions still find it there, as the batches that move it
    /// are not applied yet.
    before: Vec<InodeId>,
    names: BTreeSet<Name>,
    /// The first recall that asked the holder to release it.
    recalled: Option<u64>,
}

/// What the table knows of a session.
#[derive(Clone, Debug, Default)]
struct Session {
    recalls: u64,
    /// Recalls that are sent, or to be sent, and not acknowledged.
    unacked: BTreeMap<u64, Pending>,
    /// Requests whose replies may be in flight.
    answered: BTreeSet<Token>,
    /// It has not reclaimed yet what it held under the last leader.
    reclaiming: bool,
}

/// A recall that is not acknowledged.
#[derive(Clone, Debug)]
struct Pending {
    items: Vec<Item>,
    /// Requests that had been answered.
    after: Vec<Token>,
    since_ms: u64,
    /// Targets of the waiting change that the session was told about since: its acknowledgement does not
    /// count for these.
    again: Vec<Target>,
}

/// A change that waits for acknowledgements, or is being prepared.
#[derive(Clone, Debug)]
struct Change {
    session: SessionId,
    token: Token,
    targets: Vec<Target>,
    /// How many targets have been recalled from all other sessions.
    recalled: usize,
    /// Recalls that it waits for.
    waits: BTreeSet<(SessionId, u64)>,
}

/// A request that waits.
#[derive(Clone, Debug)]
enum Waiting {
    Read { session: SessionId, items: Vec<ReadItem> },
    Change { session: SessionId, token: Token, targets: Vec<Target> },
}

/// The table of rights.
#[derive(Clone, Debug, Default)]
pub struct Table {
    covers: BTreeMap<InodeId, Cover>,
    nodes: BTreeMap<InodeId, Node>,
    sessions: BTreeMap<SessionId, Session>,
    requests: u64,
    waiting: BTreeMap<RequestId, Waiting>,
    active: BTreeMap<RequestId, Change>,
    /// Waiting requests that may continue.
    ready: Vec<RequestId>,
    /// Sessions with recalls to be sent.
    news: BTreeSet<SessionId>,
    now_ms: u64,
    /// Recalls so far.
    recalls: u64,
}

impl Table {
    /// The table of a volume without sessions.
    pub fn new() -> Table {
        Table::default()
    }

    /// Sets the time, in milliseconds since any fixed moment.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// A session has begun. Nothing happens if it is known already.
    pub fn begin(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default();
    }

    /// A session has ended: its rights, recalls and waiting requests are removed.
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

    /// Whether the session is alive.
    pub fn knows(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// The session has received the replies to all requests below this one.
    pub fn arrived(&mut self, session: SessionId, below: Token) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.answered = session.answered.split_off(&below);
        }
    }

    /// A request is answered, and its reply may be in flight for a while.
    fn answered(&mut self, session: SessionId, token: Token) {
        if let Some(state) = self.sessions.get_mut(&session)
            && token != 0
        {
            state.answered.insert(token);
            // The set is bounded even if a client never reports arrivals; that only harms its own cache.
            while state.answered.len() > ANSWERED_MAX {
                state.answered.pop_first();
            }
        }
    }

    /// Takes the requests that have waited and may continue now. Each is tried again with [`Table::retry`].
    pub fn ready(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.ready)
    }

    /// Takes the sessions with recalls to be sent.
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

    /// Covers and nodes with a right of some session.
    pub fn len(&self) -> usize {
        self.covers.len() + self.nodes.len()
    }

    /// Whether no session has any right.
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

    /// Whether a session may change an inode without a request. For tests and assertions.
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

    /// Checks all waiting requests, in the order of arrival.
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
                    // It watches from now on, so that changes which waited for this read recall it.
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

    /// Whether it is about one of these targets.
    fn concerns(&self, targets: &[Target]) -> bool {
        match self {
            Waiting::Read { items, .. } => items.iter().any(|item| item.meets_any(targets)),
            Waiting::Change { targets: others, .. } => share(others, targets),
        }
    }
}

impl ReadItem {
    /// Whether a change of one of these targets is visible to this read.
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
