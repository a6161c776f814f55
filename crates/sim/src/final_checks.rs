//! The checks when a world has come to rest: is the volume's state consistent, and what is on the bricks?

use crate::bounds;
use crate::cluster::{Cluster, SWEEP_EVERY};
use crate::findings::Findings;
use crate::plan::Plan;
use shoal_cluster::blocks::names;
use shoal_meta::TierState;
use shoal_namespace::check::{self, Finding, Visitor};
use shoal_namespace::kv::KvStore;
use shoal_namespace::query;
use shoal_runtime::time::Duration;
use shoal_types::{BlockId, BlockInfo};
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
    let count = state.blocks.len();
    let read = move || {
        let read = |(id, info): (BlockId, BlockInfo)| {
            let content = blocks.fetch(id, info.group, 0, info.len);
            content.err().map(|error| format!("block {id} cannot be read at the end: {error}"))
        };
        state.blocks.into_iter().filter_map(read).collect::<Vec<String>>()
    };
    cluster.on(leader, "read", read).into_iter().flatten().for_each(|lost| findings.add(lost));
    count
}

/// Checks that the hot tier has been emptied, where nothing is used any more.
fn look_at_tiers(cluster: &Rc<Cluster>, findings: &Findings) {
    if cluster.layout().hot.is_none() {
        return;
    }
    let mut last = None;
    let is_empty = cluster.wait_until(COOLED_WITHIN, || {
        last = tiers(cluster);
        last.as_ref().is_some_and(|state| state.hot_blocks == 0)
    });
    if !is_empty {
        findings.add(format!("blocks that are not used stay on the hot tier: {last:?}"));
    }
}

fn tiers(cluster: &Rc<Cluster>) -> Option<TierState> {
    let leader = cluster.leader()?;
    let server = cluster.servers.get(leader)?;
    cluster.on(leader, "tiers", move || server.tier_state().ok()).flatten()
}

/// Checks that all blocks have all their copies or shards.
fn look_at_healing(cluster: &Rc<Cluster>, findings: &Findings) {
    let mut short = None;
    let is_healed = cluster.wait_until(HEALED_WITHIN, || {
        short = cluster.leading_server().and_then(|server| server.degraded(NAMED_MAX).ok());
        short.as_ref().is_some_and(Vec::is_empty)
    });
    if !is_healed {
        findings.add(format!("blocks stay on too few bricks: {short:?}"));
    }
}

/// Checks that no block is recorded on a brick that is drained.
fn look_at_draining(cluster: &Rc<Cluster>, findings: &Findings) {
    let draining = cluster.bricks.draining();
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
    for (brick, holds) in cluster.bricks.all() {
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
