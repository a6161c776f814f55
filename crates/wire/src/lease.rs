//! Rights to cache and to change: how clients ask for them, and how they are taken back.
//!
//! **Reads** are *asked* ([`Ask`]): the answer may be cached until it is recalled. **Changes** need rights that are *acquired*
//! ([`Acquire`]): everybody else has then dropped what is to be changed. **Recalls** come in the order in which they were decided, by a
//! question that the server keeps until it has something to say ([`Poll`]), which renews the session, too.
//!
//! **Order.** A recall names the requests ([`Token`]) that were answered before it and whose answers may still be on their way:
//! the client takes those in first. So a recall never overtakes the answer that it takes back.
//!
//! **Leaders.** All of this is in the memory of the leader that granted it. Its successor begins with nothing, and with another
//! [`term`](AskReply::term): each session [declares](Declaration) what it holds, and answers of other terms count for nothing.

use crate::{ExtentsReply, FileRecord, ListReply, LookupReply, MetaError, Prefetch, WalkReply};
use serde::{Deserialize, Serialize};
use shoal_lease::locks::LockRecord;
use shoal_types::{Cookie, InodeId, Name, SessionId};

/// The number of a request among those of its session: each is greater than the ones before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Token(pub u64);

impl Token {
    /// Of a question whose answer will not be cached.
    pub const NONE: Token = Token(0);
}

/// Whoever moves directories from one to another holds this, as if it were an inode: so that no two moves together make a ring.
pub const MOVES: InodeId = InodeId(3);

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Question {
    /// One name.
    Lookup {
        /// The directory.
        dir: InodeId,
        /// The name.
        name: Name,
    },
    /// A directory, from after a cookie on. Entries whose inodes somebody else may be changing come without their records.
    List {
        /// The directory.
        dir: InodeId,
        /// Where to go on.
        after: Cookie,
        /// What should come along.
        prefetch: Prefetch,
        /// About how long the answer may be, in bytes.
        bytes_max: u64,
    },
    /// Directories that will probably be looked at soon, in this order, each whole. Nobody who works in one of them is disturbed: it does not come
    /// along.
    Walk {
        /// The directories.
        dirs: Vec<InodeId>,
        /// What should come along.
        prefetch: Prefetch,
        /// None is begun when the answer is this long, in bytes.
        bytes_target: u64,
        /// About how long the answer may be, in bytes.
        bytes_max: u64,
    },
    /// One inode, with contents as far as they are inline.
    Inode(InodeId),
    /// Extents that overlap `[start, end)`, in order, and the blocks they name.
    Extents {
        /// The file.
        ino: InodeId,
        /// Where the range begins.
        start: u64,
        /// Where it ends.
        end: u64,
        /// At most this many, and not so many that the answer becomes long.
        count_max: u64,
    },
}

/// Asks, for an answer that may be cached until it is recalled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// Who asks.
    pub session: SessionId,
    /// This request, or [`Token::NONE`].
    pub token: Token,
    /// The answers to all requests before this one have been taken in.
    pub below: Token,
    /// What.
    pub question: Question,
}

/// The answer to a [`Question`], of the same kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Found {
    /// See there.
    Lookup(Box<LookupReply>),
    /// See there.
    List(ListReply),
    /// See there.
    Walk(WalkReply),
    /// See there.
    Inode(Box<FileRecord>),
    /// See there.
    Extents(ExtentsReply),
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AskReply {
    /// The leader's term: the answer counts while the session's rights are those of this term.
    pub term: u64,
    /// The answer.
    pub found: Found,
    /// Covers that nobody else watches: the session may change what is counted under them, too.
    pub exclusive: Vec<InodeId>,
}

/// A name that is to be changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WantName {
    /// The name.
    pub name: Name,
    /// What it stands for is to be changed, too: it loses the name.
    pub takes: bool,
}

/// An inode that is to be changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Want {
    /// The inode, or [`MOVES`].
    pub ino: InodeId,
    /// Of a directory: the names that are to be changed.
    pub names: Vec<WantName>,
    /// It will be counted elsewhere afterwards, or may cease to be: whoever refers to it says so.
    pub hold: bool,
}

/// Asks for the right to change some inodes, all of them or none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Acquire {
    /// Who asks.
    pub session: SessionId,
    /// This request.
    pub token: Token,
    /// As in [`Ask`].
    pub below: Token,
    /// What.
    pub wants: Vec<Want>,
}

/// A right to change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Right {
    /// Everything that is counted under this inode.
    Cover(InodeId),
    /// This inode, and of a directory only the names that were wanted.
    Node(InodeId),
}

/// What was acquired, and how it looks now.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AcquireReply {
    /// As in [`AskReply`].
    pub term: u64,
    /// The rights.
    pub rights: Vec<Right>,
    /// The wanted inodes and those that wanted names stand for, where those were taken along.
    pub records: Vec<FileRecord>,
    /// The wanted names.
    pub names: Vec<(InodeId, Name, LookupReply)>,
}

/// Something to be given back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Item {
    /// The right to change what is counted under an inode: what was changed is committed first. All of it may stay cached.
    Downgrade(InodeId),
    /// The same of a single inode.
    Release(InodeId),
    /// An inode is going to change: it is committed and forgotten. Of a directory, that is its attributes, these names, and that its names
    /// are all known; its other names stay.
    Drop {
        /// The inode.
        ino: InodeId,
        /// What it is counted under.
        cover: InodeId,
        /// The names.
        names: Vec<Name>,
        /// Whoever's kernel refers to the inode says so in [`Ack::refers`].
        hold: bool,
    },
}

/// Rights that others need.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recall {
    /// Counts the recalls of a session.
    pub id: u64,
    /// Requests that were answered before and whose answers may not have arrived: they are taken in first.
    pub after: Vec<Token>,
    /// What.
    pub items: Vec<Item>,
}

/// A recall has been carried out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ack {
    /// Which.
    pub id: u64,
    /// Inodes that the client's kernel refers to. They are noted in whatever term that is, and before the rest counts.
    pub refers: Vec<InodeId>,
    /// Covers of which nothing is cached any more.
    pub unwatched: Vec<InodeId>,
}

/// Renews the session, acknowledges, and waits for recalls.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Poll {
    /// Who asks.
    pub session: SessionId,
    /// The term that its rights are of.
    pub term: u64,
    /// The newest recall that it has heard of.
    pub seen: u64,
    /// What it has carried out.
    pub acks: Vec<Ack>,
    /// Up to where answers have been taken in.
    pub below: Token,
    /// How long to wait if there are none, in milliseconds; 0: only to acknowledge, and no recalls are answered.
    pub wait_ms: u64,
}

/// Recalls, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Recalls {
    /// The leader's term.
    pub term: u64,
    /// Its memory has nothing of this session: it is to declare what it holds.
    pub declare: bool,
    /// The recalls.
    pub recalls: Vec<Recall>,
}

/// What a session holds, said to a new leader, in parts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Declaration {
    /// Who.
    pub session: SessionId,
    /// The term it is said in.
    pub term: u64,
    /// Covers of which something is cached, and whether all of each may be changed.
    pub covers: Vec<(InodeId, bool)>,
    /// Single inodes that may be changed, what they are counted under, and names that may be.
    pub nodes: Vec<(InodeId, InodeId, Vec<Name>)>,
    /// Locks of its programs.
    pub locks: Vec<LockRecord>,
    /// Inodes that its kernel refers to, which it has said to a leader that has not answered.
    pub refers: Vec<InodeId>,
    /// That was all.
    pub last: bool,
}

impl Declaration {
    /// A part that says nothing yet, and is not the last one.
    pub fn part(session: SessionId, term: u64) -> Declaration {
        let (covers, nodes, locks, refers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Declaration { session, term, covers, nodes, locks, refers, last: false }
    }
}

/// Takes an answer; called once, on a thread that must not be held up.
pub type Done<T> = Box<dyn FnOnce(Result<T, MetaError>) + Send>;

/// Makes a call that answers later, and waits for the answer.
pub fn wait_for<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Result<T, MetaError> {
    let (tell, told) = shoal_runtime::channel::bounded(1);
    call(Box::new(move |answer| {
        // Whoever asked is waiting below.
        let _ = tell.send(answer);
    }));
    told.recv().unwrap_or_else(|_| Err(MetaError::Unavailable("the request was dropped".into())))
}
