//! The service of a volume's metadata group.

use crate::lease::{
    Acquire, AcquireReply, Ask, AskReply, Declaration, Done, Found, Poll, Question, Recalls, Token, wait_for,
};
use crate::locks::{LockReply, LockRequest};
use crate::{ExtentsReply, FileRecord, ListReply, LookupReply, Prefetch};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_types::{
    BatchSeq, BlockId, BlockInfo, Cookie, Errno, InodeId, Name, NodeId, SessionId, Statfs, Timestamp,
};

/// Version of the messages; both sides must speak the same.
pub const PROTOCOL_VERSION: u32 = 7;

/// Why a metadata server did not do what it was asked to.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum MetaError {
    /// The operation itself fails: the caller gets this error.
    #[error("{0}")]
    Errno(Errno),
    /// The session has ended (closed, or fenced after missing its renewals). What it still had to say is refused.
    #[error("{0} has ended")]
    Fenced(SessionId),
    /// A batch that should have succeeded did not: the client's cache was wrong. None of the batch was applied.
    #[error("{session}, {seq}: operation {index} was refused with {errno}")]
    Refused {
        /// Whose batch.
        session: SessionId,
        /// Which batch.
        seq: BatchSeq,
        /// Which operation in it.
        index: u32,
        /// Why.
        errno: Errno,
    },
    /// This batch is not the one that comes next: an earlier one has been lost on its way. Send again from there.
    #[error("batch {expected:?} comes next")]
    OutOfOrder {
        /// The one that comes next.
        expected: BatchSeq,
    },
    /// Another replica leads the group, or none does: ask that one, or any.
    #[error("this replica does not lead its group")]
    NotLeader {
        /// Where the leader is, as far as this replica knows.
        leader: Option<NodeId>,
    },
    /// The server is stopping, or cannot reach its majority: try another or wait. Whether the request has been or will be
    /// carried out is not known.
    #[error("the metadata server is not serving: {0}")]
    Unavailable(String),
    /// The two sides speak different versions.
    #[error("the server speaks protocol version {server}, this client {client}")]
    Version {
        /// Its version.
        server: u32,
        /// Ours.
        client: u32,
    },
    /// A message that could not be understood.
    #[error("a message was not understood: {0}")]
    Malformed(String),
    /// The server's disk failed or its state is damaged; it stops.
    #[error("the metadata server failed: {0}")]
    Failed(String),
}

impl MetaError {
    /// What came is the answer to another question.
    pub fn other_answer() -> MetaError {
        MetaError::Malformed("the answer is not the one to the question".into())
    }
}

/// Opens a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionRequest {
    /// [`PROTOCOL_VERSION`] of the client.
    pub protocol: u32,
    /// Who mounts, for people to read: host, process, mount point.
    pub client: String,
    /// A number of this client's own choosing: asking again with the same one, because the answer was lost, takes the place of
    /// the session that was opened the first time.
    pub instance: u128,
}

/// A session's start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenReply {
    /// The new session.
    pub session: SessionId,
    /// The volume's identity, the same for all its life.
    pub volume: u128,
    /// Renew at least this often, in milliseconds.
    pub renew_ms: u64,
    /// Content up to this size is kept inline, in bytes.
    pub inline_bytes: u32,
    /// What the session may use from now on.
    pub grant: GrantReply,
    /// The leader's term, of which the session's rights will be.
    pub term: u64,
    /// Without having renewed for this long the session may answer nothing from its caches, in milliseconds.
    pub lease_ms: u64,
}

/// Room that a session asks for and reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Space {
    /// Bytes it was granted and has not used, and bytes it has used that are not committed yet.
    pub outstanding_bytes: u64,
    /// Bytes it wants in addition.
    pub want_bytes: u64,
}

/// Asks for inode numbers and room ahead of need; also renews the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// Who asks.
    pub session: SessionId,
    /// How many inode numbers, 0 for none.
    pub inodes: u64,
    /// How much room.
    pub space: Space,
}

/// What was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantReply {
    /// The server's wall clock when it answered.
    pub now: Timestamp,
    /// The first of `inodes` consecutive numbers that are the session's alone.
    pub first_inode: u64,
    /// How many.
    pub inodes: u64,
    /// How many bytes may be written in addition: all that was wanted, less, or 0 when the volume is full.
    pub bytes: u64,
}

/// A batch of a session's journal: applied as a whole, once, after all earlier ones.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Whose journal.
    pub session: SessionId,
    /// Which batch: the one after the last, or a repetition.
    pub seq: BatchSeq,
    /// `Vec<Op>`, encoded by [`encode_ops`](crate::encode_ops): the server logs these bytes as they are. The blocks that a batch declares have
    /// greater numbers than those of all batches before it; one that was passed over by then counts as garbage.
    pub ops: Bytes,
    /// Inodes made in it that are the session's alone to change from the beginning, and what they are counted under: directories
    /// (themselves), and files in directories that others watch.
    pub born: Vec<(InodeId, InodeId)>,
    /// Inodes that came to their end, of which there may be rights.
    pub gone: Vec<InodeId>,
}

/// The batch is durable and applied.
#[derive(Clone, Debug, Default)]
pub struct CommitReply {
    /// All batches up to this one are.
    pub seq: BatchSeq,
}

/// Takes the outcome of a commit; called once, on a thread of the server that must not be held up.
pub type CommitDone = Box<dyn FnOnce(Result<CommitReply, MetaError>) + Send>;

/// A volume's metadata, as clients use it. All calls but [`submit`](Self::submit) block the calling thread; all may be made
/// from many threads at once. Reads see every commit that was reported done before they were made.
pub trait MetaService: Send + Sync + 'static {
    /// Starts a session.
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError>;
    /// Ends a session that has nothing left to commit: its orphans die.
    fn close_session(&self, session: SessionId) -> Result<(), MetaError>;
    /// Grants inode numbers and room, and renews.
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError>;
    /// Takes a batch; `done` hears when it is durable on a majority and applied. Batches must arrive in order; several may be
    /// under way.
    fn submit(&self, commit: Commit, done: CommitDone);
    /// Answers a question as soon as nobody else is about to change what it is about.
    fn ask(&self, ask: Ask, done: Done<AskReply>);
    /// Gives rights to change as soon as everybody else has dropped what is to be changed.
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>);
    /// Renews a session, takes its acknowledgements, and answers with recalls, when there are some or when it has waited long enough.
    fn recalls(&self, poll: Poll, done: Done<Recalls>);
    /// Takes, gives up and tests locks of programs. What has to wait for others is answered when its turn comes.
    fn lock(&self, request: LockRequest, done: Done<LockReply>);
    /// Takes what a session held under an earlier leader. `Unavailable` if the term is not this one's.
    fn declare(&self, declaration: Declaration) -> Result<(), MetaError>;
    /// Where blocks are; `None` for one that is not known (any more).
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError>;
    /// Room in the volume.
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError>;

    /// One name, as it is committed, not to be cached.
    fn lookup(&self, session: SessionId, dir: InodeId, name: &Name) -> Result<LookupReply, MetaError> {
        match self.ask_once(session, Question::Lookup { dir, name: name.clone() })? {
            Found::Lookup(reply) => Ok(*reply),
            _ => Err(MetaError::other_answer()),
        }
    }
    /// A directory from after a cookie on, until about `bytes_max` of reply, not to be cached.
    fn list(
        &self,
        session: SessionId,
        dir: InodeId,
        after: Cookie,
        prefetch: Prefetch,
        bytes_max: usize,
    ) -> Result<ListReply, MetaError> {
        let bytes_max = bytes_max as u64;
        match self.ask_once(session, Question::List { dir, after, prefetch, bytes_max })? {
            Found::List(reply) => Ok(reply),
            _ => Err(MetaError::other_answer()),
        }
    }
    /// One inode, with contents as far as they are inline, not to be cached. `ENOENT` if there is none.
    fn inode(&self, session: SessionId, ino: InodeId) -> Result<FileRecord, MetaError> {
        match self.ask_once(session, Question::Inode(ino))? {
            Found::Inode(reply) => Ok(*reply),
            _ => Err(MetaError::other_answer()),
        }
    }
    /// Extents that overlap `[start, end)`, in order, at most `count_max` of them or a few megabytes, and the blocks they name, not to be
    /// cached. If there are more, what is returned is complete up to the end of its last extent.
    fn extents(
        &self,
        session: SessionId,
        ino: InodeId,
        start: u64,
        end: u64,
        count_max: usize,
    ) -> Result<ExtentsReply, MetaError> {
        let count_max = count_max as u64;
        match self.ask_once(session, Question::Extents { ino, start, end, count_max })? {
            Found::Extents(reply) => Ok(reply),
            _ => Err(MetaError::other_answer()),
        }
    }
    /// Asks for an answer that is not going to be cached, and waits for it.
    fn ask_once(&self, session: SessionId, question: Question) -> Result<Found, MetaError> {
        let ask = Ask { session, token: Token::NONE, below: Token::NONE, question };
        wait_for(|done| self.ask(ask, done)).map(|reply| reply.found)
    }
}
