//! The checks when a world has come to rest: is the volume's state consistent, and what is on the bricks?

use crate::admin;
use crate::bounds;
use crate::cluster::{Cluster, SWEEP_EVERY, leading_tiers};
use crate::findings::Findings;
use crate::layout::VOLUME;
use crate::plan::Plan;
use shoal_cluster::BrickState;
use shoal_cluster::blocks::names;
use shoal_namespace::check::{self, Finding, Visitor};
use shoal_namespace::kv::KvStore;
use shoal_namespace::query;
use shoal_runtime::time::Duration;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BlockScheme, GroupId, Tier, nearest_policy};
use shoal_wire::VolumeBlocks;
use std::collections::BTreeMap;
use std::rc::Rc;

/// When all faults are over, unreferenced blocks are deleted within this: what was swept is swept once more.
const COLLECTED_WITHIN: Duration = Duration::from_secs(120);
/// Where bricks had faults, it takes until everything has been swept.
const SWEPT_WITHIN: Duration = SWEEP_EVERY.saturating_add(COLLECTED_WITHIN);
/// When all faults are over, all blocks have all their copies or shards within this: what could not be healed
/// is tried again after half a minute.
const HEALED_WITHIN: Duration = Duration::from_secs(120);
/// ... and none on a brick that is drained.
const DRAINED_WITHIN: Duration = Duration::from_secs(120);
/// When the last mount has gone, the hot tier is empty within this.
const COOLED_WITHIN: Duration = Duration::from_secs(120);
/// ... and all in the scheme that the volume and its directories were given last.
const CONVERTED_WITHIN: Duration = Duration::from_secs(120);
/// When nothing else is to be done, all blocks are where placement would put them within this.
const BALANCED_WITHIN: Duration = Duration::from_secs(120);
/// Unreferenced blocks that a finding names.
const NAMED_MAX: usize = 5;

/// The volume's state, as the check visits it.
#[derive(Default)]
struct State {
    findings: Vec<String>,
    blocks: BTreeMap<BlockId, BlockInfo>,
}

impl Visitor for State {
    fn finding(&mut self, finding: Finding) {
        self.findings.push(finding.to_string());
    }
    fn block(&mut self, id: BlockId, info: BlockInfo) {
        self.blocks.insert(id, info);
    }
}

/// Runs all checks, and returns how many blocks are on bricks.
pub fn run(cluster: &Rc<Cluster>, findings: &Findings, plan: &Plan) -> usize {
    if !plan.sets_clocks() {
        look_at_tiers(cluster, findings);
    }
    look_at_healing(cluster, findings);
    look_at_draining(cluster, findings);
    look_at_conversion(cluster, findings);
    if plan.rebalances() {
        look_at_balance(cluster, findings);
    }
    let mut left = None;
    let patience = if plan.has_troubled_bricks() { SWEPT_WITHIN } else { COLLECTED_WITHIN };
    cluster.wait_until(patience, || {
        left = left_over(cluster);
        left.as_ref().is_some_and(Vec::is_empty)
    });
    match left {
        None => findings.add("there is no leader at the end".into()),
        Some(left) if !left.is_empty() => {
            let named = &left[..left.len().min(NAMED_MAX)];
            findings.add(format!("{} copies of unreferenced blocks are left: {named:?}", left.len()));
        }
        Some(_) => {}
    }
    let Some(leader) = cluster.leader() else { return 0 };
    let Some(state) = state(cluster) else { return 0 };
    for finding in &state.findings {
        findings.add(format!("the state of the volume is inconsistent: {finding}"));
    }
    bounds::look_at_blocks(cluster, findings, plan.has_damage());
    let blocks = cluster.bricks.seen_from(leader);
    let Some(store) = cluster.servers.get(leader).map(|server| server.replica().store().clone()) else {
        return 0;
    };
    let count = state.blocks.len();
    let read = move || {
        let fails = |id: BlockId, info: BlockInfo| {
            let error = blocks.fetch(id, info.group, 0, info.len).err()?;
            Some(format!("block {id} in {:?} cannot be read at the end: {error}", info.group))
        };
        let read = |(id, info): (BlockId, BlockInfo)| {
            let failure = fails(id, info)?;
            // Since the state was read, it may have been moved, or merged into another by the compactor.
            match query::block(&*store, id).ok()?.filter(|block| block.refs > 0)?.info {
                now if now == info => Some(failure),
                now => fails(id, now),
            }
        };
        state.blocks.into_iter().filter_map(read).collect::<Vec<String>>()
    };
    cluster.on(leader, "read", read).into_iter().flatten().for_each(|lost| findings.add(lost));
    count
}

/// Checks that the hot tier has been emptied, where nothing is used any more.
fn look_at_tiers(cluster: &Rc<Cluster>, findings: &Findings) {
    if cluster.layout().any_hot().is_none() {
        return;
    }
    let mut last = None;
    let is_empty = cluster.wait_until(COOLED_WITHIN, || {
        last = leading_tiers(cluster);
        last.as_ref().is_some_and(|state| state.hot_blocks == 0)
    });
    if !is_empty {
        findings.add(format!("blocks that are not used stay on the hot tier: {last:?}"));
    }
}

/// Checks that all blocks have all their copies or shards.
fn look_at_healing(cluster: &Rc<Cluster>, findings: &Findings) {
    let short = || cluster.leading_server().and_then(|server| server.degraded(NAMED_MAX).ok());
    expect_none(cluster, findings, (HEALED_WITHIN, "blocks stay on too few bricks"), short);
}

/// Waits until there are none of some blocks. `blocks` answers `None` without a leader.
fn expect_none<T: std::fmt::Debug>(
    cluster: &Rc<Cluster>,
    findings: &Findings,
    (within, what): (Duration, &str),
    blocks: impl Fn() -> Option<Vec<T>>,
) {
    let mut left = None;
    let are_none = cluster.wait_until(within, || {
        left = blocks();
        left.as_ref().is_some_and(Vec::is_empty)
    });
    if !are_none {
        findings.add(format!("{what}: {left:?}"));
    }
}

/// Checks that no block is recorded on a brick that is drained or was removed.
fn look_at_draining(cluster: &Rc<Cluster>, findings: &Findings) {
    let bricks = |state| cluster.bricks.in_state(state);
    let draining = [bricks(BrickState::Draining), bricks(BrickState::Gone)].concat();
    if draining.is_empty() {
        return;
    }
    let mut last = None;
    let is_empty = cluster.wait_until(DRAINED_WITHIN, || {
        last = cluster.leading_server().and_then(|server| server.brick_use().ok());
        last.as_ref().is_some_and(|known| draining.iter().all(|brick| !known.contains_key(brick)))
    });
    if !is_empty {
        findings.add(format!("bricks {draining:?} are not drained: {last:?}"));
    }
}

/// Checks that all blocks are in copies or in shards, as the volume, or the nearest directory that has a
/// scheme, stores new ones.
fn look_at_conversion(cluster: &Rc<Cluster>, findings: &Findings) {
    if cluster.layout().scheme.is_none() {
        return;
    }
    // What was moved to another directory is found by the next survey.
    admin::survey(cluster);
    let limit = (CONVERTED_WITHIN, "the conversion does not end");
    expect_none(cluster, findings, limit, || in_another_scheme(cluster));
}

/// Some blocks of the cold tier that are in no scheme of their files. `None` without a leader.
fn in_another_scheme(cluster: &Rc<Cluster>) -> Option<Vec<(BlockId, BlockGroup)>> {
    let map = cluster.bricks.newest_map();
    let store = cluster.leading_server()?.replica().store().clone();
    let of_volume = map.scheme_in(GroupId(VOLUME), Tier::Cold)?;
    let schemes = map.policies(GroupId(VOLUME)).schemes;
    let mut wanted = BTreeMap::<BlockId, Vec<BlockScheme>>::new();
    for (ino, id) in query::references(&*store, None, usize::MAX).ok()?.blocks {
        let above = |at| query::record(&*store, at).map(|inode| inode.map(|inode| inode.parent));
        let scheme = nearest_policy(&schemes, ino, above).ok()?.map_or(of_volume, |(_, scheme)| scheme);
        wanted.entry(id).or_default().push(scheme);
    }
    let is_in = |info: &BlockInfo, scheme: &BlockScheme| {
        let shards = scheme.shards().filter(|_| u64::from(info.len) >= cluster.layout().sharded_bytes_min);
        info.group.scheme(cluster.layout().replica) == BlockScheme::new(scheme.copies(), shards)
    };
    let is_wanted = |id: &BlockId, info: &BlockInfo| {
        let of_files = wanted.get(id).map_or(&[][..], Vec::as_slice);
        info.group.tier() == Tier::Hot || of_files.iter().any(|scheme| is_in(info, scheme))
    };
    let blocks = used_blocks(cluster)?.into_iter().filter(|(id, info)| !is_wanted(id, info));
    Some(blocks.map(|(id, info)| (id, info.group)).take(NAMED_MAX).collect())
}

/// The blocks in use, by the leader.
fn used_blocks(cluster: &Rc<Cluster>) -> Option<Vec<(BlockId, BlockInfo)>> {
    let server = cluster.leading_server()?;
    let blocks = query::blocks(&server.replica().store().snapshot(), None, usize::MAX).ok()?;
    Some(blocks.into_iter().filter(|(_, block)| block.refs > 0).map(|(id, block)| (id, block.info)).collect())
}

/// Rebalances once more, and checks that all blocks are where placement would put them.
fn look_at_balance(cluster: &Rc<Cluster>, findings: &Findings) {
    admin::rebalance(cluster);
    let limit = (BALANCED_WITHIN, "blocks are not where placement would put them");
    expect_none(cluster, findings, limit, || out_of_place(cluster));
}

/// Some blocks that are not where placement would put them. `None` without a leader.
fn out_of_place(cluster: &Rc<Cluster>) -> Option<Vec<(BlockId, BlockGroup)>> {
    let leader = cluster.leader()?;
    let (blocks, bricks) = (used_blocks(cluster)?, cluster.bricks.seen_from(leader));
    let look = move || {
        let places = blocks.into_iter().map(|(id, info)| (id, info.group));
        places.filter(|(id, group)| !bricks.is_balanced(*id, *group)).take(NAMED_MAX).collect()
    };
    cluster.on(leader, "balance", look)
}

fn state(cluster: &Rc<Cluster>) -> Option<State> {
    let server = cluster.leading_server()?;
    let mut state = State::default();
    let store = server.replica().store();
    check::check(&store.snapshot(), &mut state).ok()?;
    Some(state)
}

/// Copies on bricks that the namespace does not name there. `None` without a leader.
pub fn left_over(cluster: &Rc<Cluster>) -> Option<Vec<(u16, BlockId)>> {
    let server = cluster.leading_server()?;
    let store = server.replica().store().clone();
    let mut left = Vec::new();
    let removed = cluster.bricks.in_state(BrickState::Gone);
    for (brick, holds) in cluster.bricks.all().filter(|(brick, _)| !removed.contains(brick)) {
        for name in holds.holds().ok()? {
            let id = names::parse(name).0;
            let known = query::block(&*store, id).ok()?;
            let is_named = known.filter(|block| block.refs > 0).is_some_and(|block| {
                let group = block.info.group;
                group.contains(brick) && names::on_brick(id, &group, brick) == name
            });
            if !is_named {
                left.push((brick.0, name));
            }
        }
    }
    Some(left)
}
