//! The service of a volume's metadata group.

use crate::error::MetaError;
use crate::lease::{
    Acquire, AcquireReply, Done, Found, Poll, Query, ReadReply, ReadRequest, Recalls, Reclaim, Token,
    wait_for,
};
use crate::locks::{LockReply, LockRequest};
use crate::{ExtentsReply, FileRecord, ListReply, LookupReply, Prefetch};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_types::{
    BatchSeq, BlockId, BlockInfo, Cookie, InodeId, Name, Origin, Process, SessionId, Statfs, Timestamp,
};

/// Version of the messages; both sides must speak the same.
pub const PROTOCOL_VERSION: u32 = 9;

/// Opens a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionRequest {
    /// [`PROTOCOL_VERSION`] of the client.
    pub protocol: u32,
    /// The client, for people to read: host, process, mount point.
    pub client: String,
    /// A random number of this client. A repeated request with the same number, because the answer was lost,
    /// replaces the session that was opened the first time.
    pub instance: u128,
    /// Where the client runs, if it knows. Silent sessions of earlier runs of its machine are ended.
    pub origin: Option<Origin>,
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
    /// The leader's term, which is that of the session's rights.
    pub term: u64,
    /// A session that has not renewed for this long must answer nothing from its caches, in milliseconds.
    pub lease_ms: u64,
    /// Other sessions of the same run of the same machine. The client closes those whose process is gone.
    pub siblings: Vec<(SessionId, Process)>,
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
    /// The requesting session.
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
    /// The session of the journal.
    pub session: SessionId,
    /// The batch: the one after the last, or a repetition.
    pub seq: BatchSeq,
    /// `Vec<Op>`, encoded by [`encode_ops`](crate::encode_ops): the server logs these bytes unchanged. The
    /// blocks that a batch declares have greater numbers than those of all earlier batches. A block that was
    /// passed over by then is garbage.
    pub ops: Bytes,
    /// Inodes made in the batch that the session may change exclusively from the beginning, with their
    /// covers. They are directories (their own covers), and files in directories that other clients watch.
    pub born: Vec<(InodeId, InodeId)>,
    /// Inodes that were deleted, for which rights may exist.
    pub gone: Vec<InodeId>,
}

/// The batch is durable and applied.
#[derive(Clone, Debug, Default)]
pub struct CommitReply {
    /// All batches up to this one are durable and applied.
    pub seq: BatchSeq,
}

/// Receives the outcome of a commit. It is called once, on a server thread that must not be blocked.
pub type CommitDone = Box<dyn FnOnce(Result<CommitReply, MetaError>) + Send>;

/// A volume's metadata, as clients use it. All calls but [`submit`](Self::submit) block the calling thread;
/// all may be made from many threads at once. Reads see every commit that was reported done before they were
/// made.
pub trait MetaService: Send + Sync + 'static {
    /// Starts a session.
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError>;
    /// Ends a session that has nothing left to commit: its orphans die.
    fn close_session(&self, session: SessionId) -> Result<(), MetaError>;
    /// Grants inode numbers and room, and renews.
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError>;
    /// Takes a batch; `done` is called when it is durable on a majority and applied. Batches must arrive in
    /// order; several may be in flight.
    fn submit(&self, commit: Commit, done: CommitDone);
    /// Reads as soon as no other client is about to change what is read.
    fn read(&self, request: ReadRequest, done: Done<ReadReply>);
    /// Grants rights to change as soon as every other client has invalidated what is to be changed.
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>);
    /// Renews a session, takes its acknowledgements, and returns recalls, at once or after waiting for some.
    fn recalls(&self, poll: Poll, done: Done<Recalls>);
    /// Takes, gives up and tests locks of programs. A request that has to wait is answered when its turn
    /// comes.
    fn lock(&self, request: LockRequest, done: Done<LockReply>);
    /// Reclaims what a session held under an earlier leader. `Unavailable` if the term is not this one's.
    fn reclaim(&self, reclaim: Reclaim) -> Result<(), MetaError>;
    /// Where blocks are; `None` for an unknown or deleted block.
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError>;
    /// Room in the volume.
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError>;

    /// One name, as it is committed, not to be cached.
    fn lookup(&self, session: SessionId, dir: InodeId, name: &Name) -> Result<LookupReply, MetaError> {
        match self.read_once(session, Query::Lookup { dir, name: name.clone() })? {
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
        match self.read_once(session, Query::List { dir, after, prefetch, bytes_max })? {
            Found::List(reply) => Ok(reply),
            _ => Err(MetaError::other_answer()),
        }
    }
    /// One inode, with contents as far as they are inline, not to be cached. `ENOENT` if there is none.
    fn inode(&self, session: SessionId, ino: InodeId) -> Result<FileRecord, MetaError> {
        match self.read_once(session, Query::Inode(ino))? {
            Found::Inode(reply) => Ok(*reply),
            _ => Err(MetaError::other_answer()),
        }
    }
    /// Extents that overlap `[start, end)`, in order, at most `count_max` of them or a few megabytes, and the
    /// blocks they name, not to be cached. If there are more, the reply is complete up to the end of its last
    /// extent.
    fn extents(
        &self,
        session: SessionId,
        ino: InodeId,
        start: u64,
        end: u64,
        count_max: usize,
    ) -> Result<ExtentsReply, MetaError> {
        let count_max = count_max as u64;
        match self.read_once(session, Query::Extents { ino, start, end, count_max })? {
            Found::Extents(reply) => Ok(reply),
            _ => Err(MetaError::other_answer()),
        }
    }
    /// Asks for an answer that is not going to be cached, and waits for it.
    fn read_once(&self, session: SessionId, query: Query) -> Result<Found, MetaError> {
        let request = ReadRequest { session, token: Token::NONE, below: Token::NONE, query };
        wait_for(|done| self.read(request, done)).map(|reply| reply.found)
    }
}
