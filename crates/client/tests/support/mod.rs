//! A metadata group and a brick in memory, without Raft and disks: the real state machine behind the
//! service's trait.

#![allow(dead_code)]

use bytes::Bytes;
use parking_lot::Mutex;
use shoal_client::{Caller, Client, Creation, Entry, Options, Reply, Wait};
use shoal_namespace::kv::{KvStore, MemStore};
use shoal_namespace::records::VolumeOptions;
use shoal_namespace::{Command, Fault, Outcome, TreeError, apply_command, query};
use shoal_types::{BlockGroup, BlockId, BlockInfo, BrickId, InodeId, SessionId, Statfs, Timestamp};
use shoal_wire::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A metadata group in memory.
pub struct Group {
    pub store: MemStore,
    applying: Mutex<()>,
    /// Bytes that may still be granted.
    pub free_bytes: AtomicU64,
    /// Sessions up to this one have been ended.
    pub fenced: AtomicU64,
    /// Bytes of the largest batch so far.
    pub largest: AtomicU64,
    /// Lookups of block groups by clients.
    pub located: AtomicU64,
    /// Blocks that have been moved, and where to.
    pub moved: Mutex<HashMap<BlockId, BlockGroup>>,
    /// Its clock is ahead of this machine's, in seconds.
    pub ahead_secs: AtomicI64,
    /// Operations applied so far, in order.
    pub applied: Mutex<Vec<shoal_namespace::Op>>,
}

impl Group {
    pub fn new(inline_bytes: u32) -> Arc<Group> {
        let group = Group {
            store: MemStore::new(),
            applying: Mutex::new(()),
            free_bytes: AtomicU64::new(u64::MAX / 4),
            fenced: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            located: AtomicU64::new(0),
            moved: Mutex::default(),
            ahead_secs: AtomicI64::new(0),
            applied: Mutex::default(),
        };
        let options = VolumeOptions { inline_bytes, ..VolumeOptions::default() };
        let outcome = group.apply(Command::Format {
            volume: 1,
            uid: 0,
            gid: 0,
            perm: 0o755,
            time: Timestamp::default(),
            options,
        });
        assert_eq!(outcome, Outcome::Done);
        Arc::new(group)
    }

    pub fn apply(&self, command: Command) -> Outcome {
        let _one = self.applying.lock();
        let (batch, outcome) = apply_command(&self.store, &command).expect("a sound store");
        self.store.write(&batch).expect("memory does not fail");
        outcome
    }

    /// What its clock shows.
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        Timestamp { secs: now.secs + self.ahead_secs.load(Ordering::SeqCst), ..now }
    }

    /// Ends a session, and all before it.
    pub fn fence(&self, session: SessionId) {
        self.fenced.store(session.0, Ordering::SeqCst);
    }

    fn is_fenced(&self, session: SessionId) -> bool {
        session.0 <= self.fenced.load(Ordering::SeqCst)
    }

    fn read<T>(&self, outcome: Result<T, Fault<TreeError>>) -> Result<T, MetaError> {
        outcome.map_err(|fault| match fault {
            Fault::Errno(errno) => MetaError::Errno(errno),
            Fault::Tree(error) => MetaError::Failed(error.to_string()),
        })
    }
}

impl Group {
    pub fn answer(&self, query: &Query) -> Result<Found, MetaError> {
        let state = self.store.snapshot();
        self.read(match query {
            Query::Lookup { dir, name } => {
                query::lookup(&state, *dir, name).map(|reply| Found::Lookup(Box::new(reply)))
            }
            Query::List { dir, after, prefetch, bytes_max } => {
                query::list(&state, *dir, *after, *prefetch, *bytes_max as usize).map(Found::List)
            }
            Query::Walk { dirs, prefetch, bytes_target, bytes_max } => {
                let (target, max) = (*bytes_target as usize, *bytes_max as usize);
                query::walk(&state, dirs, *prefetch, target, max).map(Found::Walk).map_err(Fault::Tree)
            }
            Query::Inode(ino) => query::inode(&state, *ino).map(|record| Found::Inode(Box::new(record))),
            Query::Extents { ino, start, end, count_max } => {
                query::extents(&state, *ino, *start, *end, *count_max as usize).map(Found::Extents)
            }
        })
    }

    pub fn grant_all(&self, wants: &[Want]) -> Result<AcquireReply, MetaError> {
        let state = self.store.snapshot();
        let mut reply = AcquireReply::default();
        for want in wants.iter().filter(|want| want.ino != MOVES) {
            // The server lacks what the client has not committed.
            let Ok(record) = query::inode(&state, want.ino) else { continue };
            reply.rights.push(Right::Cover(record.inode.cover(want.ino)));
            reply.records.push(record);
            for wanted in &want.names {
                let found = self.read(query::lookup(&state, want.ino, &wanted.name))?;
                if let Some((_, record)) = &found.found {
                    reply.rights.push(Right::Cover(record.inode.cover(record.ino)));
                }
                reply.names.push((want.ino, wanted.name.clone(), found));
            }
        }
        if wants.iter().any(|want| want.ino == MOVES) {
            reply.rights.push(Right::Cover(MOVES));
        }
        Ok(reply)
    }
}

impl MetaService for Group {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        let open = Command::OpenSession { client: request.client, time: Timestamp::now(), inodes: 1000 };
        let Outcome::Opened { session, first, inodes } = self.apply(open) else { panic!("no session") };
        let options = query::volume(&self.store).unwrap().unwrap().options;
        Ok(OpenReply {
            session,
            volume: 1,
            renew_ms: 60_000,
            inline_bytes: options.inline_bytes,
            grant: GrantReply { now: self.now(), first_inode: first.0, inodes, bytes: 0 },
            term: 0,
            lease_ms: 60_000,
            siblings: Vec::new(),
        })
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        while let Outcome::Closed { more: true } = self.apply(Command::CloseSession { session }) {}
        Ok(())
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        let mut reply = GrantReply { now: self.now(), first_inode: 0, inodes: 0, bytes: 0 };
        if grant.inodes > 0 {
            let command = Command::GrantInodes { session: grant.session, count: grant.inodes };
            if let Outcome::Granted { first, inodes } = self.apply(command) {
                (reply.first_inode, reply.inodes) = (first.0, inodes);
            }
        }
        reply.bytes = self.free_bytes.load(Ordering::SeqCst).min(grant.space.want_bytes);
        self.free_bytes.fetch_sub(reply.bytes, Ordering::SeqCst);
        Ok(reply)
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        if self.is_fenced(commit.session) {
            return done(Err(MetaError::Fenced(commit.session)));
        }
        self.largest.fetch_max(commit.ops.len() as u64, Ordering::SeqCst);
        let ops = decode_ops(&commit.ops).expect("well-formed operations");
        self.applied.lock().extend(ops.iter().cloned());
        let outcome = self.apply(Command::batch(commit.session, commit.seq, commit.ops));
        done(match outcome {
            Outcome::Applied { seq } => Ok(CommitReply { seq }),
            other => panic!("{:?} of {:?}: {other:?} of {ops:?}", commit.seq, commit.session),
        });
    }
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        done(self.answer(&request.query).map(|found| ReadReply { term: 0, found, exclusive: Vec::new() }));
    }
    /// Grants every right: there is one client.
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        done(self.grant_all(&acquire.wants));
    }
    /// There are no recalls.
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        std::thread::sleep(Duration::from_millis(poll.wait_ms.min(20)));
        done(match self.is_fenced(poll.session) {
            true => Err(MetaError::Fenced(poll.session)),
            false => Ok(Recalls::default()),
        });
    }
    /// It keeps no locks.
    fn lock(&self, _: LockRequest, done: Done<LockReply>) {
        done(Err(MetaError::Errno(shoal_types::Errno::ENOLCK)));
    }
    fn reclaim(&self, _: Reclaim) -> Result<(), MetaError> {
        Ok(())
    }
    fn blocks(&self, _: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.located.fetch_add(1, Ordering::SeqCst);
        let moved = self.moved.lock();
        let find = |id: &BlockId| {
            let info = query::block(&self.store, *id).unwrap()?.info;
            Some(BlockInfo { group: *moved.get(id).unwrap_or(&info.group), ..info })
        };
        Ok(ids.iter().map(find).collect())
    }
    fn statfs(&self, _: SessionId) -> Result<Statfs, MetaError> {
        Ok(Statfs::default())
    }
}

/// Blocks in one page of what bricks in memory list.
const LIST_BLOCKS_MAX: usize = 64;

/// Blocks in memory.
#[derive(Default)]
pub struct Bricks {
    pub blocks: Mutex<HashMap<BlockId, Bytes>>,
    /// Every put fails while this is set.
    pub broken: AtomicBool,
    /// No get is answered while this is set.
    pub away: AtomicBool,
    /// No deletion returns while this is set.
    pub hangs: AtomicBool,
    /// Blocks of which something was read.
    pub read: Mutex<HashSet<BlockId>>,
}

impl BlockService for Bricks {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(BlockError::Io { what: "disk".into(), cause: "broken by the test".into() });
        }
        match self.blocks.lock().insert(id, parts.concat().into()) {
            None => Ok(()),
            Some(_) => Err(BlockError::Exists(id)),
        }
    }
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(BlockError::Unreachable("away".into()));
        }
        self.read.lock().insert(id);
        let blocks = self.blocks.lock();
        let block = blocks.get(&id).ok_or(BlockError::Missing(id))?;
        Ok(block.slice(offset as usize..(offset + len) as usize))
    }
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut blocks = self.blocks.lock();
        ids.iter().for_each(|id| drop(blocks.remove(id)));
        Ok(())
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        self.blocks.lock().get(&id).map(|bytes| bytes.len() as u32).ok_or(BlockError::Missing(id))
    }
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        let blocks = self.blocks.lock();
        let own = blocks.keys().filter(|id| id.session == from.session && **id >= from);
        let mut own: Vec<BlockId> = own.copied().collect();
        own.sort_unstable();
        Ok(BlockPage::cut(own, LIST_BLOCKS_MAX))
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        Ok(self.blocks.lock().keys().map(|id| id.session).collect())
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        let room = u64::MAX / 4;
        Ok(Statfs { total_bytes: room, free_bytes: room, ..Statfs::default() })
    }
}

/// Copies of blocks on several bricks in memory.
pub struct Spread {
    copies: usize,
    bricks: Mutex<BTreeMap<u16, OneBrick>>,
}

#[derive(Default)]
struct OneBrick {
    down: bool,
    blocks: HashMap<BlockId, Bytes>,
}

impl Spread {
    pub fn new(bricks: u16, copies: usize) -> Arc<Spread> {
        let bricks = (1..=bricks).map(|brick| (brick, OneBrick::default())).collect();
        Arc::new(Spread { copies, bricks: Mutex::new(bricks) })
    }

    pub fn set_down(&self, brick: u16, down: bool) {
        self.bricks.lock().get_mut(&brick).expect("a brick").down = down;
    }

    /// Moves all copies of all blocks from some bricks to other ones, and tells no client.
    pub fn shift(&self, by: u16) -> impl Fn(BlockGroup) -> BlockGroup {
        let mut bricks = self.bricks.lock();
        let count = bricks.len() as u16;
        let to = move |brick: u16| (brick - 1 + by) % count + 1;
        let mut all: BTreeMap<u16, _> =
            bricks.iter_mut().map(|(brick, one)| (to(*brick), std::mem::take(&mut one.blocks))).collect();
        for (brick, one) in bricks.iter_mut() {
            one.blocks = all.remove(brick).expect("one for each");
        }
        move |group| BlockGroup::new(group.bricks().map(|brick| BrickId(to(brick.0)))).expect("as many")
    }

    /// Bricks that have a block.
    pub fn holders(&self, id: BlockId) -> BlockGroup {
        let bricks = self.bricks.lock();
        let holders = bricks.iter().filter(|(_, one)| one.blocks.contains_key(&id));
        BlockGroup::new(holders.map(|(brick, _)| BrickId(*brick))).expect("few")
    }

    pub fn count(&self) -> usize {
        self.bricks.lock().values().map(|one| one.blocks.len()).sum()
    }
}

impl VolumeBlocks for Spread {
    fn store(&self, id: BlockId, parts: &[Bytes]) -> Result<BlockGroup, BlockError> {
        let mut bricks = self.bricks.lock();
        let first = id.seq as usize % bricks.len();
        let mut up: Vec<_> = bricks.iter_mut().filter(|(_, one)| !one.down).collect();
        if up.len() < self.copies {
            return Err(BlockError::Unreachable(format!("{} bricks answer", up.len())));
        }
        up.rotate_left(first % self.copies.max(1));
        let chosen = up.into_iter().take(self.copies).map(|(brick, one)| {
            one.blocks.insert(id, parts.concat().into());
            BrickId(*brick)
        });
        Ok(BlockGroup::new(chosen).expect("few"))
    }
    fn fetch(&self, id: BlockId, group: BlockGroup, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        let bricks = self.bricks.lock();
        assert!(!group.is_empty(), "{id} is in no group");
        let mut down = false;
        for brick in group.bricks() {
            match &bricks[&brick.0] {
                one if one.down => down = true,
                one => {
                    if let Some(block) = one.blocks.get(&id) {
                        return Ok(block.slice(offset as usize..(offset + len) as usize));
                    }
                }
            }
        }
        Err(if down { BlockError::Unreachable("down".into()) } else { BlockError::Missing(id) })
    }
    fn discard(&self, blocks: &[(BlockId, BlockGroup)]) -> Result<Vec<BlockId>, BlockError> {
        let mut bricks = self.bricks.lock();
        for (id, group) in blocks {
            assert!(!group.is_empty(), "{id} is in no group");
            group.bricks().for_each(|brick| drop(bricks.get_mut(&brick.0).unwrap().blocks.remove(id)));
        }
        Ok(Vec::new())
    }
    fn copies(&self, _: BlockId) -> Result<BlockPage<(BlockId, BlockGroup)>, BlockError> {
        Ok(BlockPage { blocks: Vec::new(), next: None })
    }
    fn stored_sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        Ok(Vec::new())
    }
    fn room(&self) -> Result<Statfs, BlockError> {
        Ok(Statfs::default())
    }
    fn is_whole(&self, group: BlockGroup) -> bool {
        group.len() >= self.copies
    }
    fn heal(&self, _: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        Ok(info.group)
    }
}

/// A volume to mount.
pub struct World {
    pub group: Arc<Group>,
    pub bricks: Arc<Bricks>,
}

impl World {
    pub fn new() -> World {
        World::with_inline(4096)
    }
    pub fn with_inline(inline_bytes: u32) -> World {
        World { group: Group::new(inline_bytes), bricks: Arc::default() }
    }
    pub fn mount(&self) -> Arc<Client> {
        self.mount_with(Options::default())
    }
    pub fn mount_with(&self, options: Options) -> Arc<Client> {
        Client::open(self.group.clone(), self.bricks.clone(), options).expect("a session")
    }
}

/// A program opens a file of the root that it does not find.
pub fn open_new(client: &Client, caller: &Caller, name: &[u8]) -> Reply<Entry> {
    let (parent, mode) = (InodeId::ROOT, 0o100644);
    let creation = Creation { caller, parent, name, mode, exclusive: false, mappable: false };
    client.create_open(Wait::Allowed.by(1), &creation)
}
