//! How long a healer searches: which of millions of blocks must be healed, and which of them first.
//!
//! **Model.** The records of blocks in 8 + 4 shards are written to a store, as a replica has them. Each block
//! has a shard on one of two bricks of each node, in no order, so that hardly two blocks are on the same
//! bricks alike. The search is the healer's own, over the cluster map and placement of a server. Nothing is
//! copied: what is measured is the search alone, on one core.

use crate::limits::{
    HEALING_BATCH_BLOCKS, HEALING_BLOCKS, HEALING_BRICKS_PER_NODE, HEALING_NODES, HEALING_SCHEME,
};
use crate::measure::Bench;
use anyhow::{Context, ensure};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use shoal_cluster::map::NextIds;
use shoal_cluster::{
    Brick, BrickState, Bricks, ClusterMap, Node, ReplicatedBlocks, Shards, Volume, VolumeState,
};
use shoal_namespace::kv::{KvStore, WriteBatch};
use shoal_namespace::{keys, records};
use shoal_store::{RocksOptions, RocksStore};
use shoal_suites::machine::resident_bytes;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BrickId, GroupId, NodeId, SessionId, Timestamp};
use shoal_wire::BlockService;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

const VOLUME: GroupId = GroupId(1);
/// Columns of a shard of a block of 4 MiB.
const COLUMNS: u16 = 8192;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("healing-").tempdir_in(&bench.dir)?;
    let blocks = bench.files.unwrap_or(HEALING_BLOCKS);
    let store = RocksStore::open(dir.path(), &RocksOptions { create: true, ..RocksOptions::default() })?;
    write(&store, blocks)?;
    let (of_one_node, of_another) = (1, 1 + HEALING_BRICKS_PER_NODE);
    for (what, gone) in [
        ("all bricks are there", vec![]),
        ("a brick is gone", vec![of_one_node]),
        ("bricks of two nodes are gone", vec![of_one_node, of_another]),
    ] {
        let bricks = ReplicatedBlocks::new(VOLUME, Arc::new(MapBricks(Arc::new(map(&gone)))));
        let before = resident_bytes("self")?;
        let (begun, mut first, mut found, mut most) = (Instant::now(), None, 0, before);
        shoal_meta::healing_order(&store, &*bricks, |page| {
            if first.is_none() {
                first = Some(begun.elapsed());
                most = most.max(resident_bytes("self").unwrap_or(0));
            }
            found += page.len();
        })?;
        let took = begun.elapsed();
        most = most.max(resident_bytes("self")?);
        ensure!((found > 0) != gone.is_empty(), "{found} blocks are to be healed when {what}");
        let fact = format!(
            "{blocks} blocks, {what}: the first to heal is known after {:.1} s, all {found} in their order after {:.1} s; \
             {} MiB more memory",
            first.unwrap_or(took).as_secs_f64(),
            took.as_secs_f64(),
            most.saturating_sub(before) >> 20
        );
        eprintln!("{fact}");
        bench.facts.push(fact);
    }
    Ok(())
}

fn write(store: &RocksStore, blocks: usize) -> anyhow::Result<()> {
    let (data, parity) = HEALING_SCHEME;
    let empty = BlockGroup::of_shards(data.into(), parity.into(), COLUMNS).context("no such scheme")?;
    let mut rng = StdRng::seed_from_u64(1);
    let mut record = || {
        let brick = |node: u16| {
            BrickId(1 + node * HEALING_BRICKS_PER_NODE + rng.random_range(0..HEALING_BRICKS_PER_NODE))
        };
        let mut bricks: Vec<BrickId> = (0..HEALING_NODES).map(brick).collect();
        bricks.shuffle(&mut rng);
        let places = bricks.into_iter().enumerate();
        let group =
            places.fold(empty, |group, (index, brick)| group.with_shard(index, brick).unwrap_or(group));
        let info = BlockInfo { len: 4 << 20, group };
        Some(records::encode(&records::BlockRecord { refs: 1, info }))
    };
    for from in (0..blocks).step_by(HEALING_BATCH_BLOCKS) {
        let ids = from..blocks.min(from + HEALING_BATCH_BLOCKS);
        let key = |seq: usize| keys::block(BlockId { session: SessionId(1), seq: seq as u64 });
        store.write(&WriteBatch { changes: ids.map(|seq| (key(seq), record())).collect() })?;
    }
    store.flush()?;
    Ok(())
}

/// The map of a cluster of which some bricks are gone.
fn map(gone: &[u16]) -> ClusterMap {
    let bricks = HEALING_NODES * HEALING_BRICKS_PER_NODE;
    let mut map = ClusterMap { epoch: 1, cluster: 1, ..ClusterMap::default() };
    for number in 0..bricks {
        let node = NodeId(u32::from(number / HEALING_BRICKS_PER_NODE) + 1);
        let (name, address) = (node.to_string(), format!("{node}:7470"));
        map.nodes.insert(node, Node { name, address, joined: Timestamp::default() });
        let id = number + 1;
        let state = if gone.contains(&id) { BrickState::Gone } else { BrickState::Active };
        let path = format!("/brick-{id}").into();
        map.bricks.insert(BrickId(id), Brick { node, path, volume: VOLUME, state, replaced: false });
    }
    map.next = NextIds { brick: bricks + 1, ..NextIds::default() };
    let (data, parity) = HEALING_SCHEME;
    map.schemes.insert(VOLUME, Shards { data, parity });
    let volume = Volume {
        name: "v".into(),
        replica: parity + 1,
        state: VolumeState::Started,
        replicas: Vec::new(),
        bricks: map.bricks.keys().copied().collect(),
        options: BTreeMap::new(),
        created: Timestamp::default(),
        rebalance: 0,
    };
    map.volumes.insert(VOLUME, volume);
    map
}

/// Bricks that are known from the map alone.
struct MapBricks(Arc<ClusterMap>);

impl Bricks for MapBricks {
    fn brick(&self, _: BrickId) -> Option<Arc<dyn BlockService>> {
        None
    }
    fn map(&self) -> Arc<ClusterMap> {
        self.0.clone()
    }
    fn here(&self) -> Option<NodeId> {
        None
    }
}
