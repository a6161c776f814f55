//! The blocks of a volume on the bricks of a cluster.
//!
//! **Model.** A block is on a set of bricks, its group, which is recorded in the volume's namespace. It never
//! changes, so a brick either has it right or does not have it, and any copy will do. In a volume with a
//! scheme of shards, a block that is long enough is on its bricks in shards, one on each, and any `k` of them
//! will do.
//!
//! **Assumes** that the map may be old, that any brick may fail, or answer late or not at all, and that the
//! caller may die at any moment. A copy that the namespace does not know does no harm: the metadata group's
//! sweep finds it.
//!
//! **Promises.**
//! - *Store*: all copies are written in parallel. The write counts when the answered group has the block
//!   durably: as many bricks as the volume wants copies, if that many answer, and at least a majority of that
//!   number. A failed brick is replaced at once, if there is another, and a slow one after
//!   [`STORE_HEDGE`](crate::limits::STORE_HEDGE).
//! - *Fetch*: a copy on this node comes first. If a brick fails, or takes longer than
//!   [`FETCH_HEDGE`](crate::limits::FETCH_HEDGE), another is asked. A damaged copy is read from another brick
//!   and then repaired.
//! - A brick that failed is skipped until it has answered a probe.
//! - If the volume has a hot tier, a new block is stored there, or on the cold tier if the hot one cannot
//!   take it whole.
//!
//! **Refuses** to count a write that is on too few bricks: [`BlockError::Unreachable`], and the caller
//! retries later.

mod call;
mod content;
mod convert;
mod delegate;
mod discard;
mod fetch;
mod gather;
mod heal;
mod health;
mod lane;
pub mod names;
mod repair;
mod room;
mod shards;
mod store;
mod tier;

use crate::limits::{DELEGATED_COPIES_MAX, REPAIRS_MAX, ROOM_LOW_BYTES, SHARDED_BYTES_MIN, SUSPECT_FOR};
use crate::map::{BrickState, ClusterMap};
use crate::placement::{self, Candidate, Rules};
use bytes::Bytes;
pub use delegate::{CopyRequest, CopyTask};
use health::Health;
use lane::Lane;
use shoal_coding::Coder;
use shoal_runtime::channel::{RecvTimeoutError, Sender, unbounded};
use shoal_runtime::semaphore::Semaphore;
use shoal_runtime::sync::Mutex;
use shoal_types::{
    BlockGroup, BlockId, BlockInfo, BlockScheme, BrickId, GroupId, NodeId, Policies, Policy, SessionId,
    Statfs, Tier,
};
use shoal_wire::{BlockError, BlockPage, BlockService, Moments, VolumeBlocks};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
pub use tier::kept_free;

/// How bricks are reached, and the cluster map.
pub trait Bricks: Send + Sync + 'static {
    /// A brick, local or remote; `None` if it is not known how to reach it.
    fn brick(&self, id: BrickId) -> Option<Arc<dyn BlockService>>;
    /// The newest known map. Called often: it should cost no more than a lock.
    fn map(&self) -> Arc<ClusterMap>;
    /// The node that this process runs on, if it is one of the cluster's.
    fn here(&self) -> Option<NodeId>;
    /// A block shorter than this, in bytes, is stored as copies in a volume of shards, too.
    fn sharded_bytes_min(&self) -> u64 {
        SHARDED_BYTES_MIN
    }
    /// Has another node copy a block of a volume. The reply is the block's group then; `None`: that node did
    /// not do it, or has not replied in time.
    fn request_copy(&self, node: NodeId, volume: GroupId, request: &CopyRequest) -> Option<BlockGroup> {
        let _ = (node, volume, request);
        None
    }
}

type Callback = Box<dyn Fn() + Send + Sync>;

/// The blocks of one volume.
pub struct ReplicatedBlocks {
    inner: Arc<Inner>,
    /// Dropping it stops the thread that watches the bricks.
    watch: Mutex<Option<Sender<()>>>,
}

struct Inner {
    volume: GroupId,
    bricks: Arc<dyn Bricks>,
    health: Health,
    lanes: Mutex<BTreeMap<BrickId, Arc<Lane>>>,
    repairs: Semaphore,
    /// Copies that the leader has delegated to this node.
    delegated: Semaphore,
    /// Bricks had shards when they were last asked for their sessions. They may have some although the map
    /// says copies: the volume was converted.
    has_found_shards: AtomicBool,
    coders: Mutex<Vec<Coder>>,
    on_return: Mutex<Option<Callback>>,
}

impl ReplicatedBlocks {
    /// The blocks of a volume.
    pub fn new(volume: GroupId, bricks: Arc<dyn Bricks>) -> Arc<ReplicatedBlocks> {
        let inner = Inner {
            volume,
            bricks,
            health: Health::default(),
            lanes: Mutex::default(),
            repairs: Semaphore::new(REPAIRS_MAX),
            delegated: Semaphore::new(DELEGATED_COPIES_MAX),
            has_found_shards: AtomicBool::new(false),
            coders: Mutex::default(),
            on_return: Mutex::default(),
        };
        Arc::new(ReplicatedBlocks { inner: Arc::new(inner), watch: Mutex::default() })
    }

    /// Replaces a copy on a brick by a good one from any other brick, or a shard by what other shards give.
    /// It is given by the name under which the brick stores it.
    pub fn repair_copy(&self, id: BlockId, brick: BrickId) -> Result<(), BlockError> {
        self.inner.repair_now(id, BlockGroup::default(), brick)
    }

    /// Sets a callback for bricks that answer again: there may be blocks to heal and to delete. From then on
    /// failed bricks are probed even if no request needs them.
    pub fn when_a_brick_returns(&self, callback: impl Fn() + Send + Sync + 'static) {
        *self.inner.on_return.lock() = Some(Box::new(callback));
        let (end, ended) = unbounded();
        *self.watch.lock() = Some(end);
        let watched = Arc::downgrade(&self.inner);
        let watch = move || {
            while ended.recv_timeout(SUSPECT_FOR) == Err(RecvTimeoutError::Timeout) {
                let Some(inner) = watched.upgrade() else { return };
                for (brick, _) in inner.bricks.map().bricks_of(inner.volume) {
                    inner.is_good(brick);
                }
            }
        };
        if let Err(error) = shoal_runtime::thread::Builder::new().name("watch-bricks".into()).spawn(watch) {
            tracing::warn!(%error, "no thread to watch bricks: they are asked when they are needed");
        }
    }
}

impl Drop for ReplicatedBlocks {
    fn drop(&mut self) {
        for lane in self.inner.lanes.lock().values() {
            lane.threads.close();
        }
        self.inner.on_return.lock().take();
    }
}

fn unknown_volume() -> BlockError {
    BlockError::Unreachable("the cluster map knows nothing of this volume".into())
}

impl Inner {
    fn returned(&self) {
        if let Some(callback) = &*self.on_return.lock() {
            callback();
        }
    }

    fn rules(&self, map: &ClusterMap, group: &BlockGroup) -> Result<Rules, BlockError> {
        Rules::of_group(map, self.volume, group).ok_or_else(unknown_volume)
    }

    /// The bricks of a tier that may take a block, as placement ranks them, whether they answer or not.
    fn candidates(&self, map: &ClusterMap, tier: Tier, id: BlockId) -> Vec<Candidate> {
        let known: Vec<_> = map
            .bricks_in(self.volume, tier)
            .filter(|(_, brick)| brick.state == BrickState::Active)
            .map(|(brick, it)| (brick, it.node, self.health.room(brick).map(|(room, _)| room.total_bytes)))
            .collect();
        // A brick of unknown size counts as one of average size.
        let sizes: Vec<u64> = known.iter().filter_map(|(_, _, size)| *size).collect();
        let usual = sizes.iter().sum::<u64>() / (sizes.len() as u64).max(1);
        let candidate = |(brick, node, size): (_, _, Option<u64>)| Candidate {
            brick,
            node,
            weight: size.unwrap_or(usual),
        };
        let mut candidates: Vec<Candidate> = known.into_iter().map(candidate).collect();
        placement::rank(id, &mut candidates);
        candidates
    }

    /// The candidates, the best first: those that answer and have space, then those that answer, then those
    /// that do not. The number is how many answer.
    fn ranked(self: &Arc<Inner>, map: &ClusterMap, tier: Tier, id: BlockId) -> (Vec<Candidate>, usize) {
        let (mut ranked, doubtful): (Vec<_>, Vec<_>) =
            self.candidates(map, tier, id).into_iter().partition(|candidate| self.is_good(candidate.brick));
        ranked.sort_by_key(|candidate| self.is_low(candidate.brick));
        let good = ranked.len();
        ranked.extend(doubtful);
        (ranked, good)
    }

    /// Whether a brick should get no more blocks if possible.
    fn is_low(&self, brick: BrickId) -> bool {
        self.health.room(brick).is_some_and(|(room, _)| room.free_bytes < ROOM_LOW_BYTES)
    }

    /// An empty group is on a brick that is not known: it counts as one copy.
    fn losses_survived(self: &Arc<Inner>, group: BlockGroup) -> Option<usize> {
        if group.is_empty() {
            return Some(0);
        }
        let map = self.bricks.map();
        let answers = |brick: &BrickId| !placement::is_gone(&map, *brick) && self.is_good(*brick);
        group.bricks().filter(answers).count().checked_sub(group.data_shards().max(1))
    }

    /// Bricks that may have a block of this group, the best to read from first. With an empty group these are
    /// all bricks.
    fn holders(self: &Arc<Inner>, map: &ClusterMap, id: BlockId, group: BlockGroup) -> Vec<BrickId> {
        let mut holders: Vec<BrickId> = if group.is_empty() {
            map.bricks_of(self.volume).map(|(brick, _)| brick).collect()
        } else {
            group.bricks().filter(|brick| !placement::is_gone(map, *brick)).collect()
        };
        let here = self.bricks.here();
        let local = |brick: &BrickId| here.is_some() && map.bricks.get(brick).map(|it| it.node) == here;
        // Different blocks of the same bricks start with different bricks.
        let turn = id.seq as usize % holders.len().max(1);
        holders.rotate_left(turn);
        holders.sort_by_cached_key(|brick| (!self.is_good(*brick), !local(brick)));
        holders
    }
}

impl VolumeBlocks for ReplicatedBlocks {
    fn store(&self, id: BlockId, parts: &[Bytes]) -> Result<BlockGroup, BlockError> {
        self.inner.store(id, parts, Policy::default())
    }
    fn store_with_policy(
        &self,
        id: BlockId,
        parts: &[Bytes],
        policy: Policy,
    ) -> Result<BlockGroup, BlockError> {
        self.inner.store(id, parts, policy)
    }
    fn policies(&self) -> Policies {
        self.inner.bricks.map().policies(self.inner.volume)
    }
    fn ops_version(&self) -> u8 {
        self.inner.bricks.map().ops_version(self.inner.volume)
    }
    fn fetch(&self, id: BlockId, group: BlockGroup, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        self.inner.fetch(id, group, offset, len)
    }
    fn discard(&self, blocks: &[(BlockId, BlockGroup)]) -> Result<Vec<BlockId>, BlockError> {
        self.inner.discard(blocks)
    }
    fn moments(&self) -> Result<Moments, BlockError> {
        self.inner.moments()
    }
    fn discard_older(
        &self,
        blocks: &[(BlockId, BlockGroup)],
        than: &Moments,
    ) -> Result<Vec<BlockId>, BlockError> {
        self.inner.discard_older(blocks, than)
    }
    fn copies(&self, from: BlockId) -> Result<BlockPage<(BlockId, BlockGroup)>, BlockError> {
        self.inner.copies(from)
    }
    fn stored_sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.inner.stored_sessions()
    }
    fn room(&self) -> Result<Statfs, BlockError> {
        self.inner.room()
    }
    fn is_whole(&self, group: BlockGroup) -> bool {
        placement::is_whole(&self.inner.bricks.map(), self.inner.volume, group)
    }
    fn copying_nodes(&self) -> usize {
        self.inner.copying_nodes()
    }
    fn lacks_copies(&self, group: BlockGroup) -> bool {
        placement::lacks_copies(&self.inner.bricks.map(), self.inner.volume, group)
    }

    fn losses_survived(&self, group: BlockGroup) -> Option<usize> {
        self.inner.losses_survived(group)
    }
    fn heal(&self, id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        self.inner.copy_or_delegate(id, info, CopyTask::Heal)
    }
    fn verify(&self, id: BlockId, group: BlockGroup) -> BlockGroup {
        self.inner.verify(id, group)
    }
    fn has_wanted_scheme(&self, info: BlockInfo, scheme: Option<BlockScheme>) -> bool {
        self.inner.has_wanted_scheme(&self.inner.bricks.map(), info, scheme)
    }
    fn convert(
        &self,
        id: BlockId,
        info: BlockInfo,
        scheme: Option<BlockScheme>,
    ) -> Result<BlockGroup, BlockError> {
        self.inner.copy_or_delegate(id, info, CopyTask::Convert(scheme))
    }
    fn is_balanced(&self, id: BlockId, group: BlockGroup) -> bool {
        self.inner.is_balanced(id, group)
    }
    fn rebalance(&self, id: BlockId, info: BlockInfo) -> Result<BlockGroup, BlockError> {
        self.inner.copy_or_delegate(id, info, CopyTask::Rebalance)
    }
    fn move_to(
        &self,
        id: BlockId,
        info: BlockInfo,
        tier: Tier,
        scheme: Option<BlockScheme>,
    ) -> Result<BlockGroup, BlockError> {
        self.inner.copy_or_delegate(id, info, CopyTask::Move(tier, scheme))
    }
    fn room_in(&self, tier: Tier) -> Result<Statfs, BlockError> {
        self.inner.room_in(tier)
    }
    fn reads(&self) -> Result<BTreeMap<BlockId, u32>, BlockError> {
        self.inner.reads()
    }
}
