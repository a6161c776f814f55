//! A cluster of bricks in memory that fail on request.

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use shoal_cluster::map::{ClusterMap, Shards};
use shoal_cluster::{Bricks, Command, Outcome, ReplicatedBlocks, apply};
use shoal_types::{BlockGroup, BlockId, BrickId, GroupId, NodeId, SessionId, Statfs, Timestamp};
use shoal_wire::{BlockError, BlockPage, BlockService, GetDone, Moment, VolumeBlocks};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

pub const VOLUME: GroupId = GroupId(77);
/// Blocks in one page of a brick's listing.
pub const LIST_BLOCKS_MAX: usize = 16;

#[derive(Default)]
struct State {
    blocks: BTreeMap<BlockId, Bytes>,
    damaged: BTreeSet<BlockId>,
    down: bool,
    stuck: bool,
    full: bool,
    /// What is put is damaged on the disk.
    spoils: bool,
    reads: BTreeMap<BlockId, u32>,
    gets: u64,
    /// Reads fail after so many more of them.
    gets_left: Option<u64>,
    /// Writes so far, and the last write of each block.
    puts: u64,
    put: BTreeMap<BlockId, u64>,
}

/// A brick in memory.
#[derive(Default)]
pub struct MemBrick {
    state: Mutex<State>,
    released: Condvar,
    /// The brick itself, if it answers reads without blocking the caller.
    itself: OnceLock<Weak<MemBrick>>,
}

impl MemBrick {
    /// Every other brick answers reads without blocking the caller, as bricks on other machines do.
    fn new(id: BrickId) -> Arc<MemBrick> {
        let brick = Arc::new(MemBrick::default());
        if id.0 % 2 == 1 {
            brick.itself.get_or_init(|| Arc::downgrade(&brick));
        }
        brick
    }

    /// Sets whether every request fails.
    pub fn set_down(&self, down: bool) {
        self.state.lock().down = down;
    }
    /// Sets whether requests block.
    pub fn set_stuck(&self, stuck: bool) {
        self.state.lock().stuck = stuck;
        self.released.notify_all();
    }
    pub fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }
    pub fn set_gets_left(&self, gets: u64) {
        self.state.lock().gets_left = Some(gets);
    }
    pub fn set_spoils(&self, spoils: bool) {
        self.state.lock().spoils = spoils;
    }
    pub fn damage(&self, id: BlockId) {
        self.state.lock().damaged.insert(id);
    }
    pub fn is_damaged(&self, id: BlockId) -> bool {
        self.state.lock().damaged.contains(&id)
    }
    pub fn has(&self, id: BlockId) -> bool {
        self.state.lock().blocks.contains_key(&id)
    }
    pub fn content(&self, id: BlockId) -> Option<Bytes> {
        self.state.lock().blocks.get(&id).cloned()
    }
    pub fn remove(&self, id: BlockId) {
        self.state.lock().blocks.remove(&id);
    }
    pub fn wipe(&self) {
        let mut state = self.state.lock();
        state.blocks.clear();
        state.damaged.clear();
    }
    pub fn len(&self) -> usize {
        self.state.lock().blocks.len()
    }
    pub fn gets(&self) -> u64 {
        self.state.lock().gets
    }

    fn enter(&self) -> Result<parking_lot::MutexGuard<'_, State>, BlockError> {
        let mut state = self.state.lock();
        while state.stuck {
            self.released.wait(&mut state);
        }
        if state.down { Err(BlockError::Unreachable("it is down".into())) } else { Ok(state) }
    }
}

impl BlockService for MemBrick {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        let mut state = self.enter()?;
        if state.full {
            return Err(BlockError::Full);
        }
        state.puts += 1;
        let put = state.puts;
        state.put.insert(id, put);
        if state.blocks.contains_key(&id) && !state.damaged.remove(&id) {
            return Err(BlockError::Exists(id));
        }
        if state.spoils {
            state.damaged.insert(id);
        }
        state.blocks.insert(id, parts.concat().into());
        Ok(())
    }
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        let mut state = self.enter()?;
        state.gets += 1;
        state.gets_left = match state.gets_left {
            Some(0) => return Err(BlockError::Unreachable("it has failed".into())),
            left => left.map(|left| left - 1),
        };
        if state.damaged.contains(&id) {
            return Err(BlockError::Corrupt { id, what: "damaged by the test".into() });
        }
        let block = state.blocks.get(&id).ok_or(BlockError::Missing(id))?;
        let range = offset as usize..(offset + len) as usize;
        if range.end > block.len() {
            return Err(BlockError::Invalid { id, what: "beyond its end".into() });
        }
        let content = block.slice(range);
        *state.reads.entry(id).or_default() += 1;
        Ok(content)
    }
    fn get_then(&self, id: BlockId, offset: u32, len: u32, done: GetDone) -> Result<(), GetDone> {
        let Some(itself) = self.itself.get().and_then(Weak::upgrade) else { return Err(done) };
        std::thread::spawn(move || done(itself.get(id, offset, len)));
        Ok(())
    }
    fn check(&self, id: BlockId) -> Result<u32, BlockError> {
        match self.is_damaged(id) {
            true => Err(BlockError::Corrupt { id, what: "damaged by the test".into() }),
            false => self.length(id),
        }
    }
    fn take_reads(&self) -> Result<Vec<(BlockId, u32)>, BlockError> {
        Ok(std::mem::take(&mut self.enter()?.reads).into_iter().collect())
    }
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        let mut state = self.enter()?;
        for id in ids {
            state.blocks.remove(id);
            state.damaged.remove(id);
        }
        Ok(())
    }
    fn moment(&self) -> Result<Moment, BlockError> {
        Ok(Moment { life: 1, puts: self.enter()?.puts })
    }
    fn delete_older(&self, ids: &[BlockId], than: Moment) -> Result<Vec<BlockId>, BlockError> {
        let mut state = self.enter()?;
        let (later, older): (Vec<BlockId>, Vec<BlockId>) =
            ids.iter().partition(|id| state.put.get(id).is_some_and(|put| *put > than.puts));
        for id in older {
            state.blocks.remove(&id);
            state.damaged.remove(&id);
        }
        Ok(later)
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        let state = self.enter()?;
        state.blocks.get(&id).map(|content| content.len() as u32).ok_or(BlockError::Missing(id))
    }
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        let state = self.enter()?;
        let own = state.blocks.range(from..).map(|(id, _)| *id).filter(|id| id.session == from.session);
        Ok(BlockPage::cut(own.collect(), LIST_BLOCKS_MAX))
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        let state = self.enter()?;
        let all: BTreeSet<SessionId> = state.blocks.keys().map(|id| id.session).collect();
        Ok(all.into_iter().collect())
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        drop(self.enter()?);
        Ok(Statfs { total_bytes: 1 << 40, free_bytes: 1 << 39, ..Statfs::default() })
    }
}

/// The bricks of a cluster and its map.
pub struct World {
    pub map: RwLock<Arc<ClusterMap>>,
    bricks: RwLock<BTreeMap<BrickId, Arc<MemBrick>>>,
    pub here: Mutex<Option<NodeId>>,
}

impl Bricks for World {
    fn brick(&self, id: BrickId) -> Option<Arc<dyn BlockService>> {
        Some(self.bricks.read().get(&id)?.clone())
    }
    fn map(&self) -> Arc<ClusterMap> {
        self.map.read().clone()
    }
    fn here(&self) -> Option<NodeId> {
        *self.here.lock()
    }
}

impl World {
    /// A cluster with a volume on these nodes' bricks: one brick for each occurrence of a node.
    pub fn new(nodes: u32, replica: u8, bricks: &[u32]) -> (Arc<World>, Arc<ReplicatedBlocks>) {
        let (name, time, bricks) = ("v".to_owned(), Timestamp::default(), places(bricks));
        let create = Command::CreateVolume { name, id: VOLUME, replica, bricks, force: true, time };
        World::with(nodes, create)
    }

    /// Three nodes with a volume of two copies on these bricks, and the third node as the arbiter.
    pub fn arbitrated(bricks: &[u32]) -> (Arc<World>, Arc<ReplicatedBlocks>) {
        let (name, time, arbiters) = ("v".to_owned(), Timestamp::default(), vec![NodeId(3)]);
        let bricks = places(bricks);
        World::with(3, Command::CreateArbitrated { name, id: VOLUME, bricks, arbiters, force: false, time })
    }

    /// A volume of `data` + `parity` shards, on one brick of each node.
    pub fn sharded(data: u8, parity: u8, nodes: u32) -> (Arc<World>, Arc<ReplicatedBlocks>) {
        let bricks: Vec<u32> = (1..=nodes).collect();
        let (world, blocks) = World::new(nodes, parity + 1, &bricks);
        let mut map = (**world.map.read()).clone();
        map.schemes.insert(VOLUME, Shards { data, parity });
        *world.map.write() = Arc::new(map);
        (world, blocks)
    }

    fn with(nodes: u32, create: Command) -> (Arc<World>, Arc<ReplicatedBlocks>) {
        let world = Arc::new(World {
            map: RwLock::new(Arc::new(ClusterMap::default())),
            bricks: RwLock::default(),
            here: Mutex::new(None),
        });
        let time = Timestamp::default();
        let node = |number: u32| (format!("n{number}"), format!("n{number}:7470"));
        let (name, address) = node(1);
        world.change(Command::Init { cluster: 9, name, address, authority: "A".into(), time });
        world.change(Command::IssueToken { secret: 5, expires: Timestamp { secs: 1000, nanos: 0 }, time });
        for number in 2..=nodes {
            let (name, address) = node(number);
            world.change(Command::Join { secret: 5, name, address, time });
        }
        world.change(create);
        let blocks = ReplicatedBlocks::new(VOLUME, world.clone());
        (world, blocks)
    }

    /// Applies a command; new bricks start empty.
    pub fn change(&self, command: Command) -> Outcome {
        let mut map = self.map.write();
        let (next, outcome) = apply(&map, &command);
        assert!(!matches!(outcome, Outcome::Refused(_)), "{command:?}: {outcome:?}");
        for id in next.bricks.keys() {
            self.bricks.write().entry(*id).or_insert_with(|| MemBrick::new(*id));
        }
        *map = Arc::new(next);
        outcome
    }

    pub fn mem(&self, id: BrickId) -> Arc<MemBrick> {
        self.bricks.read()[&id].clone()
    }

    pub fn ids(&self) -> Vec<BrickId> {
        self.bricks.read().keys().copied().collect()
    }

    /// Bricks that have a block.
    pub fn holders(&self, id: BlockId) -> BlockGroup {
        let bricks = self.bricks.read();
        BlockGroup::new(bricks.iter().filter(|(_, it)| it.has(id)).map(|(brick, _)| *brick)).unwrap()
    }

    pub fn node_of(&self, id: BrickId) -> NodeId {
        self.map.read().bricks[&id].node
    }
}

fn places(nodes: &[u32]) -> Vec<(NodeId, std::path::PathBuf)> {
    let place = |(index, node): (usize, &u32)| (NodeId(*node), format!("/bricks/{}", index).into());
    nodes.iter().enumerate().map(place).collect()
}

/// The name of a shard on its brick.
pub fn shard(id: BlockId, index: usize) -> BlockId {
    BlockId { session: SessionId(id.session.0 | (index as u64 + 1) << 56), ..id }
}

pub fn id(seq: u64) -> BlockId {
    BlockId { session: SessionId(3), seq }
}

/// All copies of a session's blocks, page by page; `before` is called before each page.
pub fn all_copies(blocks: &ReplicatedBlocks, mut before: impl FnMut(BlockId)) -> Vec<(BlockId, BlockGroup)> {
    let (mut all, mut next) = (Vec::new(), Some(id(0)));
    while let Some(from) = next {
        before(from);
        let page = blocks.copies(from).unwrap();
        assert!(page.next.is_none_or(|next| next > from), "{from:?} leads to {:?}", page.next);
        let ids = || page.blocks.iter().map(|(id, _)| *id);
        assert!(ids().all(|id| id >= from && page.next.is_none_or(|next| id < next)), "{page:?}");
        all.extend(page.blocks);
        next = page.next;
    }
    assert!(all.is_sorted_by(|(one, _), (next, _)| one < next), "each once, in order");
    all
}

/// Content that differs between blocks and between offsets.
pub fn content(seq: u64, len: usize) -> Bytes {
    (0..len).map(|at| (seq as usize * 31 + at * 7) as u8).collect()
}

pub fn group(bricks: &[u16]) -> BlockGroup {
    BlockGroup::new(bricks.iter().map(|brick| BrickId(*brick))).unwrap()
}

/// Waits for a condition that other threads bring about.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
        std::thread::sleep(Duration::from_millis(2));
    }
}
