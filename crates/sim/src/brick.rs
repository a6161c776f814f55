//! The bricks: the production code on files in memory, each on a machine of its own that may be slow, away or
//! full, or damage what it holds.
//!
//! **Model.** [`shoal_brick`] stores and checks; [`shoal_cluster`] places copies, reads from any of them and
//! repairs. Every machine that uses bricks has its own view of which ones answer. Block files lose nothing in
//! a crash: what `put` promises is tested beside that code.

use crate::layout::{FIRST_CLIENT, Layout, brick_dir};
use crate::network::OneThread;
use crate::scheduler::{Machine, Scheduler};
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_brick::Brick;
use shoal_cluster::draining::takes_blocks;
use shoal_cluster::{BrickState, Bricks, ClusterMap, Command, CopyRequest, Outcome, ReplicatedBlocks, apply};
use shoal_meta::TierSettings;
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use shoal_types::{BlockGroup, BlockId, BrickId, GroupId, NodeId, SessionId, Statfs, Tier};
use shoal_wire::{BlockError, BlockPage, BlockService, Moment};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Capacity of a brick of the cold tier, never exhausted.
const ROOM_BYTES: u64 = 1 << 40;
/// Longest time of a request, in microseconds ...
const REQUEST_US_MAX: u64 = 2_000;
/// ... except for one request in this many ...
const SLOW_ONE_OF: u32 = 30;
/// ... which takes up to this long ...
const SLOW_US_MAX: u64 = 300_000;
/// ... and a slow brick takes up to this for each request.
const VERY_SLOW_US_MAX: u64 = 4_000_000;
/// One of so many replies to a delegated copy is lost.
const COPY_REPLY_LOST_ONE_OF: u32 = 8;
/// Longest time for which a client uses an old map, in nanoseconds.
const OLD_MAP_NS_MAX: u64 = 5_000_000_000;
/// Blocks in one page of a listing. The worlds store so few that a larger page would never be full.
const LIST_BLOCKS_MAX: usize = 1;
/// Bytes of a block's file that are inverted to damage it.
const ROTTEN_BYTES: usize = 4;

/// The faults of a brick.
#[derive(Clone, Copy, Default)]
struct BrickFaults {
    away: bool,
    full: bool,
    slow: bool,
    /// It was removed from the volume, so its node does not serve it any more.
    closed: bool,
}

/// One brick, as all machines reach it.
pub struct SimBrick {
    world: OneThread<Rc<Scheduler>>,
    brick: Arc<Brick>,
    dir: PathBuf,
    room_bytes: u64,
    faults: Mutex<BrickFaults>,
}

impl SimBrick {
    fn new(world: &Rc<Scheduler>, dir: &Path, room_bytes: u64) -> SimBrick {
        Brick::format(dir).expect("a brick can be made");
        SimBrick {
            room_bytes,
            world: OneThread(world.clone()),
            brick: Brick::open(dir).expect("a new brick can be opened"),
            dir: dir.to_owned(),
            faults: Mutex::default(),
        }
    }

    fn pass(&self) -> Result<(), BlockError> {
        let world = &self.world.0;
        let slow = self.faults.lock().slow;
        let most = if slow { VERY_SLOW_US_MAX } else { SLOW_US_MAX };
        let micros = world.below(if slow || world.once_in(SLOW_ONE_OF) { most } else { REQUEST_US_MAX });
        sleep(Duration::from_micros(micros));
        match *self.faults.lock() {
            BrickFaults { closed: true, .. } => Err(BlockError::Unreachable("the brick was removed".into())),
            BrickFaults { away: true, .. } => Err(BlockError::Unreachable("the brick is away".into())),
            _ => Ok(()),
        }
    }

    /// All blocks that it holds, in whatever state.
    pub fn holds(&self) -> Result<BTreeSet<BlockId>, BlockError> {
        let mut all = BTreeSet::new();
        for session in self.brick.sessions()? {
            all.extend(self.brick.session_blocks(session)?);
        }
        Ok(all)
    }

    /// Bytes that its blocks take. Those of a brick that is never exhausted are not counted.
    fn used_bytes(&self) -> Result<u64, BlockError> {
        if self.room_bytes >= ROOM_BYTES {
            return Ok(0);
        }
        // A damaged block may not tell its length.
        let bytes = |id| self.brick.length(id).map_or(0, u64::from);
        Ok(self.holds()?.into_iter().map(bytes).sum())
    }
}

impl BlockService for SimBrick {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        self.pass()?;
        let bytes = parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if self.faults.lock().full || self.used_bytes()? + bytes > self.room_bytes {
            return Err(BlockError::Full);
        }
        self.brick.put(id, parts)?;
        self.pass()
    }

    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        self.pass()?;
        self.brick.get(id, offset, len)
    }

    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        self.pass()?;
        self.brick.delete(ids)
    }

    fn moment(&self) -> Result<Moment, BlockError> {
        self.pass()?;
        let moment = self.brick.moment()?;
        self.pass()?;
        Ok(moment)
    }

    fn delete_older(&self, ids: &[BlockId], than: Moment) -> Result<Vec<BlockId>, BlockError> {
        self.pass()?;
        self.brick.delete_older(ids, than)
    }

    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        self.pass()?;
        self.brick.length(id)
    }

    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        self.pass()?;
        let page = self.brick.list(from)?;
        match page.blocks.len() > LIST_BLOCKS_MAX {
            true => Ok(BlockPage::cut(page.blocks, LIST_BLOCKS_MAX)),
            false => Ok(page),
        }
    }

    /// Sorted: nothing in a world may depend on the order of a directory.
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.pass()?;
        let mut sessions = self.brick.sessions()?;
        sessions.sort_unstable();
        Ok(sessions)
    }

    fn statfs(&self) -> Result<Statfs, BlockError> {
        self.pass()?;
        let free_bytes = self.room_bytes.saturating_sub(self.used_bytes()?);
        Ok(Statfs { total_bytes: self.room_bytes, free_bytes, ..Statfs::default() })
    }

    fn check(&self, id: BlockId) -> Result<u32, BlockError> {
        self.pass()?;
        self.brick.check(id)
    }

    /// Sorted, like the sessions.
    fn take_reads(&self) -> Result<Vec<(BlockId, u32)>, BlockError> {
        self.pass()?;
        let mut reads = self.brick.take_reads()?;
        reads.sort_unstable();
        Ok(reads)
    }
}

/// A map, and since when machines know it, in nanoseconds of the world.
struct Published {
    map: Arc<ClusterMap>,
    to_servers_ns: u64,
    to_clients_ns: u64,
}

/// All bricks of a world.
pub struct BrickSet {
    world: OneThread<Rc<Scheduler>>,
    bricks: BTreeMap<BrickId, Arc<SimBrick>>,
    /// Clients that learn of no new map, and since when, in nanoseconds.
    without_news: Mutex<BTreeMap<Machine, u64>>,
    /// The newest last.
    maps: Mutex<Vec<Published>>,
    volume: GroupId,
    layout: Layout,
}

impl BrickSet {
    /// The bricks of a layout, with their files below a directory.
    pub fn new(world: &Rc<Scheduler>, volume: GroupId, layout: Layout, dir: &Path) -> BrickSet {
        let hot_bytes = layout.hot.map_or(ROOM_BYTES, |hot| hot.brick_bytes);
        let brick = |number| {
            let id = BrickId(number);
            let room_bytes = if layout.tier_of(id) == Tier::Hot { hot_bytes } else { ROOM_BYTES };
            (id, Arc::new(SimBrick::new(world, &brick_dir(dir, number), room_bytes)))
        };
        let bricks = (1..=layout.all_bricks()).map(brick).collect();
        let first = Published { map: Arc::new(layout.map(dir)), to_servers_ns: 0, to_clients_ns: 0 };
        let (world, maps) = (OneThread(world.clone()), Mutex::new(vec![first]));
        BrickSet { world, bricks, without_news: Mutex::default(), maps, volume, layout }
    }

    /// The newest map that machines with servers, or with clients, know at a time.
    fn map_at(&self, at_ns: u64, since: impl Fn(&Published) -> u64) -> Arc<ClusterMap> {
        let maps = self.maps.lock();
        let known = maps.iter().rev().find(|published| since(published) <= at_ns);
        known.map(|published| published.map.clone()).unwrap_or_default()
    }

    /// Changes the map. Servers know it at once, and clients some seconds later. Answers whether the command
    /// was accepted.
    pub fn change(&self, command: &Command) -> bool {
        let now = self.world.0.time_ns();
        let (map, outcome) = apply(&self.newest_map(), command);
        if matches!(outcome, Outcome::Refused(_)) {
            return false;
        }
        let to_clients_ns = now + self.world.0.below(OLD_MAP_NS_MAX);
        for (id, brick) in &self.bricks {
            brick.faults.lock().closed = map.bricks.get(id).is_some_and(|it| it.state == BrickState::Gone);
            brick.brick.seal(!takes_blocks(&map, *id));
        }
        self.maps.lock().push(Published { map: Arc::new(map), to_servers_ns: now, to_clients_ns });
        true
    }

    /// The newest map.
    pub fn newest_map(&self) -> Arc<ClusterMap> {
        self.map_at(self.world.0.time_ns(), |published| published.to_servers_ns)
    }

    /// The newest map that a client knows.
    fn map_of_client(&self, client: Machine) -> Arc<ClusterMap> {
        let now = self.world.0.time_ns();
        let at_ns = self.without_news.lock().get(&client).map_or(now, |since| now.min(*since));
        self.map_at(at_ns, |published| published.to_clients_ns)
    }

    /// Sets whether a client learns of new maps.
    pub fn set_without_news(&self, client: Machine, is_without: bool) {
        let mut clients = self.without_news.lock();
        match is_without {
            true => drop(clients.entry(client).or_insert_with(|| self.world.0.time_ns())),
            false => drop(clients.remove(&client)),
        }
    }

    /// The nodes and paths of the next bricks to add: so many, or as many as are left.
    pub fn next_places(&self, count: u16) -> Vec<(NodeId, PathBuf)> {
        let next = self.newest_map().next.brick;
        let place =
            |number| Some((NodeId(u32::from(number)), self.bricks.get(&BrickId(number))?.dir.clone()));
        (next..next + count).map_while(place).collect()
    }

    /// When blocks are moved between tiers, if there is a hot one.
    pub fn tier_settings(&self) -> Option<TierSettings> {
        let map = self.newest_map();
        let detaching = map.tiers.get(&self.volume)?.detaching;
        self.layout.any_hot().map(|hot| TierSettings { detaching, ..hot.settings })
    }

    /// Whether a brick says that it has no block, and can get none any more.
    pub fn is_cleared(&self, brick: BrickId) -> bool {
        self.bricks
            .get(&brick)
            .is_some_and(|brick| brick.pass().is_ok() && brick.brick.is_cleared() == Ok(true))
    }

    /// The bricks in a state.
    pub fn in_state(&self, state: BrickState) -> Vec<BrickId> {
        let map = self.newest_map();
        map.bricks.iter().filter(|(_, it)| it.state == state).map(|(id, _)| *id).collect()
    }

    /// The bricks as one machine sees them.
    pub fn seen_from(self: &Arc<BrickSet>, machine: Machine) -> Arc<ReplicatedBlocks> {
        ReplicatedBlocks::new(self.volume, Arc::new(View { bricks: self.clone(), machine }))
    }

    /// A brick by its number.
    pub fn brick(&self, number: u16) -> &Arc<SimBrick> {
        &self.bricks[&BrickId(number)]
    }

    /// Each brick with its number.
    pub fn all(&self) -> impl Iterator<Item = (BrickId, &Arc<SimBrick>)> {
        self.bricks.iter().map(|(id, brick)| (*id, brick))
    }

    /// Sets whether it answers.
    pub fn set_away(&self, number: u16, away: bool) {
        self.brick(number).faults.lock().away = away;
    }

    /// Sets whether it is full.
    pub fn set_full(&self, number: u16, full: bool) {
        self.brick(number).faults.lock().full = full;
    }

    /// Sets whether every request takes long.
    pub fn set_slow(&self, number: u16, slow: bool) {
        self.brick(number).faults.lock().slow = slow;
    }

    /// Damages or loses one in `one_of` of the blocks that a brick holds. Returns how many.
    pub fn rot(&self, world: &Scheduler, number: u16, one_of: u32) -> usize {
        let mut files = Vec::new();
        collect(&self.brick(number).dir.join("blocks"), &mut files);
        files.sort();
        files.retain(|_| world.once_in(one_of));
        for file in &files {
            let lost = world.below(3) == 0;
            let damaged = if lost { std::fs::remove_file(file) } else { turn(file, world) };
            damaged.expect("the files of a brick can be changed");
        }
        files.len()
    }
}

fn turn(file: &Path, world: &Scheduler) -> std::io::Result<()> {
    let mut bytes = std::fs::read(file)?;
    let at = world.below(bytes.len() as u64) as usize;
    bytes.iter_mut().skip(at).take(ROTTEN_BYTES).for_each(|byte| *byte = !*byte);
    std::fs::write(file, bytes)
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&entry.path(), files),
            Ok(_) => files.push(entry.path()),
            Err(_) => {}
        }
    }
}

struct View {
    bricks: Arc<BrickSet>,
    machine: Machine,
}

impl Bricks for View {
    fn brick(&self, id: BrickId) -> Option<Arc<dyn BlockService>> {
        self.bricks.bricks.get(&id).map(|brick| brick.clone() as Arc<dyn BlockService>)
    }
    fn map(&self) -> Arc<ClusterMap> {
        match self.machine >= FIRST_CLIENT {
            true => self.bricks.map_of_client(self.machine),
            false => self.bricks.newest_map(),
        }
    }
    fn here(&self) -> Option<NodeId> {
        (self.machine <= u32::from(self.bricks.layout.bricks())).then_some(NodeId(self.machine))
    }
    fn sharded_bytes_min(&self) -> u64 {
        self.bricks.layout.sharded_bytes_min
    }
    /// The other node copies with its own view of the bricks, and its reply may be lost.
    fn request_copy(&self, node: NodeId, _: GroupId, request: &CopyRequest) -> Option<BlockGroup> {
        self.bricks.bricks.get(&BrickId(u16::try_from(node.0).ok()?))?.pass().ok()?;
        let copied = self.bricks.seen_from(node.0).serve_copy(request).ok();
        copied.filter(|_| !self.bricks.world.0.once_in(COPY_REPLY_LOST_ONE_OF))
    }
}
