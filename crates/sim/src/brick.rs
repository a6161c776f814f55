//! The bricks: the production code on files in memory, each on a machine of its own that may be slow, away or
//! full, or damage what it holds.
//!
//! **Model.** [`shoal_brick`] stores and checks; [`shoal_cluster`] places copies, reads from any of them and
//! repairs. Every machine that uses bricks has its own view of which ones answer. Block files lose nothing in
//! a crash: what `put` promises is tested beside that code.

use crate::network::OneThread;
use crate::scheduler::{Machine, Scheduler};
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_brick::Brick;
use shoal_cluster::map::NextIds;
use shoal_cluster::{Bricks, ClusterMap, ReplicatedBlocks};
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use shoal_types::{BlockId, BrickId, GroupId, NodeId, SessionId, Statfs, Timestamp};
use shoal_wire::{BlockError, BlockPage, BlockService, Moment};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Bricks of the volume: more than copies of a block, so that another brick can replace one.
pub const BRICKS: u16 = 4;
/// Capacity of a brick, never exhausted.
const ROOM_BYTES: u64 = 1 << 40;
/// Longest time of a request, in microseconds ...
const REQUEST_US_MAX: u64 = 2_000;
/// ... except for one request in this many ...
const SLOW_ONE_OF: u32 = 30;
/// ... which takes up to this long ...
const SLOW_US_MAX: u64 = 300_000;
/// ... and a slow brick takes up to this for each request.
const VERY_SLOW_US_MAX: u64 = 4_000_000;
/// Blocks in one page of a listing. The worlds store so few that a larger page would never be full.
const LIST_BLOCKS_MAX: usize = 1;
/// Bytes of a block's file that are inverted to damage it.
const ROTTEN_BYTES: usize = 4;

/// The faults of a brick.
#[derive(Clone, Copy, Default)]
struct Trouble {
    away: bool,
    full: bool,
    slow: bool,
}

/// One brick, as all machines reach it.
pub struct SimBrick {
    world: OneThread<Rc<Scheduler>>,
    brick: Arc<Brick>,
    dir: PathBuf,
    trouble: Mutex<Trouble>,
}

impl SimBrick {
    fn new(world: &Rc<Scheduler>, dir: &Path) -> SimBrick {
        Brick::format(dir).expect("a brick can be made");
        SimBrick {
            world: OneThread(world.clone()),
            brick: Brick::open(dir).expect("a new brick can be opened"),
            dir: dir.to_owned(),
            trouble: Mutex::default(),
        }
    }

    fn pass(&self) -> Result<(), BlockError> {
        let world = &self.world.0;
        let slow = self.trouble.lock().slow;
        let most = if slow { VERY_SLOW_US_MAX } else { SLOW_US_MAX };
        let micros = world.below(if slow || world.once_in(SLOW_ONE_OF) { most } else { REQUEST_US_MAX });
        sleep(Duration::from_micros(micros));
        match self.trouble.lock().away {
            true => Err(BlockError::Unreachable("the brick is away".into())),
            false => Ok(()),
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
}

impl BlockService for SimBrick {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        self.pass()?;
        if self.trouble.lock().full {
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
        Ok(Statfs { total_bytes: ROOM_BYTES, free_bytes: ROOM_BYTES, ..Statfs::default() })
    }
}

/// All bricks of a world.
pub struct BrickSet {
    bricks: BTreeMap<BrickId, Arc<SimBrick>>,
    map: Arc<ClusterMap>,
    volume: GroupId,
}

impl BrickSet {
    /// For a volume that wants `replica` copies, with the files below a directory.
    pub fn new(world: &Rc<Scheduler>, volume: GroupId, replica: u8, dir: &Path) -> BrickSet {
        let mut map = ClusterMap { epoch: 1, cluster: 1, ..ClusterMap::default() };
        let mut bricks = BTreeMap::new();
        for number in 1..=BRICKS {
            let (id, node) = (BrickId(number), NodeId(number.into()));
            let path = dir.join(format!("brick-{number}"));
            bricks.insert(id, Arc::new(SimBrick::new(world, &path)));
            let state = shoal_cluster::BrickState::Active;
            map.bricks.insert(id, shoal_cluster::Brick { node, path, volume, state, replaced: false });
        }
        map.next = NextIds { brick: BRICKS + 1, ..NextIds::default() };
        let volume_in_map = shoal_cluster::Volume {
            name: "world".into(),
            replica,
            state: shoal_cluster::VolumeState::Started,
            replicas: Vec::new(),
            bricks: bricks.keys().copied().collect(),
            options: BTreeMap::new(),
            created: Timestamp::default(),
            rebalance: 0,
        };
        map.volumes.insert(volume, volume_in_map);
        BrickSet { bricks, map: Arc::new(map), volume }
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
        self.brick(number).trouble.lock().away = away;
    }

    /// Sets whether it is full.
    pub fn set_full(&self, number: u16, full: bool) {
        self.brick(number).trouble.lock().full = full;
    }

    /// Sets whether every request takes long.
    pub fn set_slow(&self, number: u16, slow: bool) {
        self.brick(number).trouble.lock().slow = slow;
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
        self.bricks.map.clone()
    }
    fn here(&self) -> Option<NodeId> {
        (self.machine <= u32::from(BRICKS)).then_some(NodeId(self.machine))
    }
}
