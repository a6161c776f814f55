//! A server over a temporary directory and bricks in memory, and a client that submits by hand.

#![allow(dead_code)]

use bytes::Bytes;
use shoal_meta::{Options, Server};
use shoal_namespace::check::{Finding, Visitor, check};
use shoal_namespace::kv::KvRead;
use shoal_namespace::op::{NewInode, Op};
use shoal_types::{
    BatchSeq, BlockGroup, BlockId, BlockInfo, BlockRef, Extent, FileKind, InodeId, Name, SessionId, Statfs,
    Timestamp,
};
use shoal_wire::{
    BlockError, BlockPage, BlockService, Commit, CommitReply, Grant, GrantReply, MetaError, MetaService,
    OpenReply, PROTOCOL_VERSION, SessionRequest, Space, encode_ops,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

pub const VOLUME: u128 = 0x5eed;
/// Blocks in one page of a listing of bricks in memory.
pub const LIST_BLOCKS_MAX: usize = 64;

/// The longest hold, so that a failing test ends.
const HELD_MAX: Duration = Duration::from_secs(60);

/// Whether the write of a stored block is held back from its writer.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Held {
    #[default]
    Nothing,
    NextCompaction,
    This(BlockId),
}

/// Bricks in memory.
pub struct MemBricks {
    pub blocks: Mutex<BTreeMap<BlockId, Bytes>>,
    pub free_bytes: Mutex<u64>,
    held: Mutex<Held>,
    let_go: Condvar,
}

impl Default for MemBricks {
    fn default() -> MemBricks {
        let (blocks, free_bytes) = (Mutex::default(), Mutex::new(u64::MAX / 2));
        MemBricks { blocks, free_bytes, held: Mutex::default(), let_go: Condvar::new() }
    }
}

impl MemBricks {
    pub fn count(&self) -> usize {
        self.blocks.lock().expect("lock").len()
    }

    /// Holds the reply to the next write of a compaction, until it is released.
    pub fn hold_next_compaction(&self) {
        *self.held.lock().expect("lock") = Held::NextCompaction;
    }

    /// The block whose reply is held.
    pub fn held(&self) -> Option<BlockId> {
        match *self.held.lock().expect("lock") {
            Held::This(id) => Some(id),
            _ => None,
        }
    }

    pub fn let_go(&self) {
        *self.held.lock().expect("lock") = Held::Nothing;
        self.let_go.notify_all();
    }
}

impl BlockService for MemBricks {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        self.blocks.lock().expect("lock").insert(id, parts.concat().into());
        let mut held = self.held.lock().expect("lock");
        if id.session == SessionId::SERVER && *held == Held::NextCompaction {
            *held = Held::This(id);
            let is_held = |held: &mut Held| *held == Held::This(id);
            drop(self.let_go.wait_timeout_while(held, HELD_MAX, is_held).expect("lock"));
        }
        Ok(())
    }
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        let blocks = self.blocks.lock().expect("lock");
        let block = blocks.get(&id).ok_or(BlockError::Missing(id))?;
        Ok(block.slice(offset as usize..(offset + len) as usize))
    }
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        let mut blocks = self.blocks.lock().expect("lock");
        ids.iter().for_each(|id| drop(blocks.remove(id)));
        Ok(())
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        let blocks = self.blocks.lock().expect("lock");
        blocks.get(&id).map(|bytes| bytes.len() as u32).ok_or(BlockError::Missing(id))
    }
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        let blocks = self.blocks.lock().expect("lock");
        let of = blocks.range(from..).map(|(id, _)| *id).filter(|id| id.session == from.session);
        Ok(BlockPage::cut(of.collect(), LIST_BLOCKS_MAX))
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        let blocks = self.blocks.lock().expect("lock");
        Ok(blocks.keys().map(|id| id.session).collect::<BTreeSet<_>>().into_iter().collect())
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        let free_bytes = *self.free_bytes.lock().expect("lock");
        Ok(Statfs { total_bytes: free_bytes, free_bytes, ..Statfs::default() })
    }
}

pub fn options() -> Options {
    Options { create: Some(VOLUME), compact_after: Some(Duration::from_millis(20)), ..Options::default() }
}

pub fn open(dir: &Path, bricks: &Arc<MemBricks>) -> Arc<Server> {
    Server::open(dir, bricks.clone(), options()).expect("open")
}

pub fn time(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

pub fn name(name: &str) -> Name {
    Name::try_from(name).expect("name")
}

/// A session that is used by hand.
pub struct Session {
    pub server: Arc<Server>,
    pub id: SessionId,
    pub opened: OpenReply,
    pub seq: BatchSeq,
    pub next_inode: u64,
    pub next_block: u64,
}

pub type Outcome = Receiver<Result<CommitReply, MetaError>>;

impl Session {
    pub fn try_open(server: &Arc<Server>) -> Result<Session, MetaError> {
        let request =
            SessionRequest { protocol: PROTOCOL_VERSION, client: "test".into(), instance: 0, origin: None };
        let opened = server.open_session(request)?;
        let next_inode = opened.grant.first_inode;
        Ok(Session {
            server: server.clone(),
            id: opened.session,
            opened,
            seq: BatchSeq(0),
            next_inode,
            next_block: 0,
        })
    }

    pub fn open(server: &Arc<Server>) -> Session {
        Session::try_open(server).expect("session")
    }

    /// Sends a batch without waiting.
    pub fn send(&mut self, ops: &[Op]) -> Outcome {
        self.seq = self.seq.next();
        self.send_as(self.seq, ops)
    }

    pub fn send_as(&self, seq: BatchSeq, ops: &[Op]) -> Outcome {
        let (tell, outcome) = channel();
        let ops = encode_ops(ops).into();
        let commit = Commit { session: self.id, seq, ops, born: Vec::new(), gone: Vec::new() };
        self.server.submit(commit, Box::new(move |reply| drop(tell.send(reply))));
        outcome
    }

    pub fn commit(&mut self, ops: &[Op]) {
        self.try_commit(ops).expect("commit");
    }

    pub fn try_commit(&mut self, ops: &[Op]) -> Result<CommitReply, MetaError> {
        self.send(ops).recv().expect("an answer")
    }

    pub fn create(&mut self, parent: InodeId, file: &str, kind: FileKind) -> (InodeId, Op) {
        let ino = InodeId(self.next_inode);
        self.next_inode += 1;
        let new = NewInode {
            kind,
            perm: 0o644,
            uid: 1,
            gid: 2,
            rdev: 0,
            target: Bytes::new(),
            time: time(7),
            generation: 1,
            xattrs: Vec::new(),
        };
        (ino, Op::Create { parent, name: name(file), ino, new })
    }

    /// Creates an empty file in the root directory.
    pub fn touch(&mut self, file: &str) -> InodeId {
        let (ino, op) = self.create(InodeId::ROOT, file, FileKind::Regular);
        self.commit(&[op]);
        ino
    }

    /// Stores a block; answers the operation that puts it into a file.
    pub fn block(&mut self, bricks: &MemBricks, ino: InodeId, offset: u64, bytes: Vec<u8>) -> (BlockId, Op) {
        self.next_block += 1;
        let id = BlockId { session: self.id, seq: self.next_block };
        let len = bytes.len() as u32;
        bricks.put(id, &[bytes.into()]).expect("put");
        let content = Some(Extent::Block(BlockRef { id, offset: 0, len }));
        let declare = Some((id, BlockInfo { len, group: BlockGroup::default() }));
        (id, write_op(ino, offset, u64::from(len), content, declare))
    }

    pub fn grant(
        &self,
        inodes: u64,
        outstanding_bytes: u64,
        want_bytes: u64,
    ) -> Result<GrantReply, MetaError> {
        self.server.grant(Grant { session: self.id, inodes, space: Space { outstanding_bytes, want_bytes } })
    }
}

pub fn inline_op(ino: InodeId, offset: u64, bytes: &[u8]) -> Op {
    write_op(ino, offset, bytes.len() as u64, Some(Extent::Inline(Bytes::copy_from_slice(bytes))), None)
}

pub fn write_op(
    ino: InodeId,
    offset: u64,
    len: u64,
    content: Option<Extent>,
    declare: Option<(BlockId, BlockInfo)>,
) -> Op {
    Op::Write {
        ino,
        offset,
        len,
        content,
        size_min: offset + len,
        time: time(9),
        clear_setid: false,
        declare,
    }
}

pub fn unlink_op(file: &str, keep: bool) -> Op {
    Op::Unlink { parent: InodeId::ROOT, name: name(file), time: time(9), keep }
}

/// All bytes of a file, according to its extents.
pub fn read_file(session: &Session, bricks: &MemBricks, ino: InodeId) -> Vec<u8> {
    let size = session.server.inode(session.id, ino).expect("inode").inode.size;
    let mut bytes = vec![0; size as usize];
    for (offset, extent) in extents(session, ino) {
        let content = match &extent {
            Extent::Inline(content) => content.clone(),
            Extent::Block(block) => bricks.get(block.id, block.offset, block.len).expect("get"),
            Extent::Zero { .. } => continue,
        };
        bytes[offset as usize..offset as usize + content.len()].copy_from_slice(&content);
    }
    bytes
}

pub fn extents(session: &Session, ino: InodeId) -> Vec<(u64, Extent)> {
    let (mut extents, mut start) = (Vec::new(), 0);
    loop {
        let page = session.server.extents(session.id, ino, start, u64::MAX, usize::MAX).expect("extents");
        extents.extend(page.extents);
        if !page.more {
            return extents;
        }
        let (last, extent) = extents.last().expect("a page that is not the last holds extents");
        start = last + extent.len();
    }
}

/// Asserts that the whole state is consistent.
pub fn assert_consistent(state: &impl KvRead) {
    struct Findings(Vec<String>);
    impl Visitor for Findings {
        fn finding(&mut self, finding: Finding) {
            self.0.push(finding.to_string());
        }
    }
    let mut findings = Findings(Vec::new());
    check(state, &mut findings).expect("check");
    assert!(findings.0.is_empty(), "{:#?}", findings.0);
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn stat(server: &Server, name: &str) -> u64 {
    server.stats().into_iter().find(|(found, _)| *found == name).map(|(_, value)| value).expect("a figure")
}
