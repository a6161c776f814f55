//! Rights to cache and to change: how clients acquire them, and how the leader recalls them.
//!
//! **Reads** ([`ReadRequest`]): the reply may be cached until it is recalled. **Changes** need rights that
//! are *acquired* ([`Acquire`]): by then every other client has invalidated what is to be changed.
//! **Recalls** come in the order in which they were decided, as the answer to a long-poll ([`Poll`]). The
//! long-poll also renews the session.
//!
//! **Order.** A recall names the requests ([`Token`]) that were answered before it and whose answers may
//! still be in flight. The client takes those in first. So a recall never overtakes the answer that it
//! invalidates.
//!
//! **Leaders.** All of this is in the memory of the leader that granted it. Its successor begins with an
//! empty table and another [`term`](ReadReply::term). Each session [reclaims](Reclaim) what it holds, and
//! answers of other terms are ignored.

use crate::{ExtentsReply, FileRecord, ListReply, LookupReply, MetaError, Prefetch, WalkReply};
use serde::{Deserialize, Serialize};
use shoal_lease::locks::LockRecord;
use shoal_types::{Cookie, InodeId, Name, SessionId};

/// The number of a request among those of its session: each is greater than the ones before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Token(pub u64);

impl Token {
    /// For a read whose reply will not be cached.
    pub const NONE: Token = Token(0);
    /// Letters of a request's name in logs.
    pub const NAME_LETTERS_MAX: usize = 200;

    /// What the logs of mount and leader call this request of a session, and what it is about.
    pub fn request_name(self, session: SessionId, about: &str) -> String {
        let text = format!("request {}.{} ({about})", session.0, self.0);
        text.chars().take(Token::NAME_LETTERS_MAX).collect()
    }
}

/// A move of a directory to another directory holds the right to this, as if it were an inode. So no two
/// concurrent moves form a ring.
pub const MOVES: InodeId = InodeId(3);

/// What is read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Query {
    /// One name.
    Lookup {
        /// The directory.
        dir: InodeId,
        /// The name.
        name: Name,
    },
    /// A directory, from after a cookie on. Entries whose inodes another client may be changing come without
    /// their records.
    List {
        /// The directory.
        dir: InodeId,
        /// Where the listing resumes.
        after: Cookie,
        /// What is sent along with the entries.
        prefetch: Prefetch,
        /// About how long the answer may be, in bytes.
        bytes_max: u64,
    },
    /// Directories that will probably be read soon, in this order, each whole. A directory in which another
    /// client works is left out, so that the client is not disturbed.
    Walk {
        /// The directories.
        dirs: Vec<InodeId>,
        /// What is sent along with the entries.
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

/// A read, whose reply may be cached until it is recalled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadRequest {
    /// The requesting session.
    pub session: SessionId,
    /// This request, or [`Token::NONE`].
    pub token: Token,
    /// The answers to all requests before this one have been taken in.
    pub below: Token,
    /// What is read.
    pub query: Query,
}

/// The result of a [`Query`], of the same kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Found {
    /// To [`Query::Lookup`].
    Lookup(Box<LookupReply>),
    /// To [`Query::List`].
    List(ListReply),
    /// To [`Query::Walk`].
    Walk(WalkReply),
    /// To [`Query::Inode`].
    Inode(Box<FileRecord>),
    /// To [`Query::Extents`].
    Extents(ExtentsReply),
}

/// The reply to [`ReadRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadReply {
    /// The leader's term: the answer counts while the session's rights are those of this term.
    pub term: u64,
    /// The answer.
    pub found: Found,
    /// Covers without another watcher: the session may also change what is counted under them.
    pub exclusive: Vec<InodeId>,
}

/// A name that is to be changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WantName {
    /// The name.
    pub name: Name,
    /// The inode behind the name is to be changed, too: it loses the name.
    pub takes: bool,
}

/// An inode that is to be changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Want {
    /// The inode, or [`MOVES`].
    pub ino: InodeId,
    /// Of a directory: the names that are to be changed.
    pub names: Vec<WantName>,
    /// It will be counted under another cover afterwards, or may cease to exist: clients that refer to it say
    /// so.
    pub hold: bool,
}

/// Asks for the right to change some inodes, all of them or none.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Acquire {
    /// The requesting session.
    pub session: SessionId,
    /// This request.
    pub token: Token,
    /// As in [`ReadRequest`].
    pub below: Token,
    /// The inodes and names.
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
    /// As in [`ReadReply`].
    pub term: u64,
    /// The rights.
    pub rights: Vec<Right>,
    /// The wanted inodes and those that wanted names stand for, where those were taken along.
    pub records: Vec<FileRecord>,
    /// The wanted names.
    pub names: Vec<(InodeId, Name, LookupReply)>,
}

/// Part of a recall.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Item {
    /// The right to change what is counted under an inode: what was changed is committed first. All of it may
    /// stay cached.
    Downgrade(InodeId),
    /// The right to change a single inode: what was changed is committed first. It may stay cached.
    Release(InodeId),
    /// An inode is going to change: changes of it are committed, and it is invalidated. Of a directory, that
    /// covers its attributes, these names, and the knowledge that its names are complete. Its other names
    /// stay.
    Drop {
        /// The inode.
        ino: InodeId,
        /// What it is counted under.
        cover: InodeId,
        /// The names.
        names: Vec<Name>,
        /// A client whose kernel refers to the inode says so in [`Ack::refers`].
        hold: bool,
    },
}

/// Rights that another client needs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recall {
    /// The recall's number in its session.
    pub id: u64,
    /// Requests that were answered before and whose answers may be in flight: the client takes them in first.
    pub after: Vec<Token>,
    /// What is recalled.
    pub items: Vec<Item>,
}

/// A recall has been carried out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ack {
    /// The recall's number.
    pub id: u64,
    /// Inodes that the client's kernel refers to. They are recorded whatever the term is, and before the rest
    /// counts.
    pub refers: Vec<InodeId>,
    /// Covers of which nothing is cached any more.
    pub unwatched: Vec<InodeId>,
}

/// Renews the session, acknowledges, and waits for recalls.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Poll {
    /// The polling session.
    pub session: SessionId,
    /// The term of its rights.
    pub term: u64,
    /// The newest recall that it has received.
    pub seen: u64,
    /// The recalls that it has carried out.
    pub acks: Vec<Ack>,
    /// The answers to all requests before this one have been taken in.
    pub below: Token,
    /// How long to wait for recalls, in milliseconds. 0: only acknowledge, and return no recalls.
    pub wait_ms: u64,
}

/// Recalls, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Recalls {
    /// The leader's term.
    pub term: u64,
    /// The leader's table has nothing of this session, which must reclaim what it holds.
    pub reclaim: bool,
    /// The recalls.
    pub recalls: Vec<Recall>,
}

/// What a session holds, reclaimed from a new leader, in parts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reclaim {
    /// The session.
    pub session: SessionId,
    /// The leader's term.
    pub term: u64,
    /// Covers of which something is cached, and whether all of each may be changed.
    pub covers: Vec<(InodeId, bool)>,
    /// Single inodes that may be changed, what they are counted under, and names that may be.
    pub nodes: Vec<(InodeId, InodeId, Vec<Name>)>,
    /// Locks of its programs.
    pub locks: Vec<LockRecord>,
    /// Inodes that its kernel refers to and that it has reported to a leader without an answer.
    pub refers: Vec<InodeId>,
    /// This is the last part.
    pub last: bool,
}

impl Reclaim {
    /// An empty part that is not the last.
    pub fn part(session: SessionId, term: u64) -> Reclaim {
        let (covers, nodes, locks, refers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Reclaim { session, term, covers, nodes, locks, refers, last: false }
    }
}

/// Receives an answer. It is called once, on a thread that must not be blocked.
pub type Done<T> = Box<dyn FnOnce(Result<T, MetaError>) + Send>;

/// Makes a call that answers later, and waits for the answer.
pub fn wait_for<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> Result<T, MetaError> {
    let (tell, told) = shoal_runtime::channel::bounded(1);
    call(Box::new(move |answer| {
        // The receiver is waiting below.
        let _ = tell.send(answer);
    }));
    told.recv().unwrap_or_else(|_| Err(MetaError::Unavailable("the request was dropped".into())))
}
