//! The checks when a world has come to rest: is the volume's state consistent, and what is on the bricks?

use crate::cluster::{Cluster, SWEEP_EVERY};
use crate::findings::Findings;
use crate::plan::Plan;
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

fn state(cluster: &Rc<Cluster>) -> Option<State> {
    let server = cluster.servers.get(cluster.leader()?)?;
    let mut state = State::default();
    let store = server.replica().store();
    check::check(&store.snapshot(), &mut state).ok()?;
    Some(state)
}

/// Copies on bricks that the namespace does not name there. `None` without a leader.
pub fn left_over(cluster: &Rc<Cluster>) -> Option<Vec<(u16, BlockId)>> {
    let server = cluster.servers.get(cluster.leader()?)?;
    let store = server.replica().store().clone();
    let mut left = Vec::new();
    for (brick, holds) in cluster.bricks.all() {
        for id in holds.holds().ok()? {
            let known = query::block(&*store, id).ok()?;
            let is_named = known.is_some_and(|block| block.refs > 0 && block.info.group.contains(brick));
            if !is_named {
                left.push((brick.0, id));
            }
        }
    }
    Some(left)
}
