//! Whether a node can be detached without a standstill.
//!
//! **Why.** A detached node stops serving as soon as it hears of it, and its votes with it. A metadata group
//! removes a member by a majority of the members that it has until then. Without that majority it can neither
//! commit nor ever change its members.

use super::super::calls::{ReplicaReport, Report};
use super::super::context::ServerContext;
use super::super::execute::retry;
use crate::limits::LEADER_PATIENCE;
use shoal_cluster::{ClusterMap, Command};
use shoal_types::{GroupId, NodeId};
use std::collections::BTreeMap;

impl ServerContext {
    /// The command that detaches a node.
    pub(super) fn detachment(&self, node: NodeId, force: bool) -> Result<Command, String> {
        let command = Command::Detach { node, force };
        self.try_out(&command)?;
        if !force {
            retry(LEADER_PATIENCE, || check_majorities(&self.view.map(), &self.gather(false), node))?;
        }
        Ok(command)
    }
}

/// Fails if a node has a replica of a group whose other voters that run are no majority.
fn check_majorities(
    map: &ClusterMap,
    reports: &BTreeMap<NodeId, Report>,
    node: NodeId,
) -> Result<(), String> {
    let name = map.nodes.get(&node).map_or("?", |node| node.name.as_str());
    let volumes = map.volumes.iter().map(|(id, volume)| (*id, format!("volume {}", volume.name)));
    for (group, what) in volumes.chain([(GroupId::CLUSTER, "the cluster map".to_owned())]) {
        let of_group = |(node, report): (&NodeId, &Report)| -> Vec<(NodeId, ReplicaReport)> {
            let replicas = report.replicas.iter().filter(|replica| replica.group == group && replica.runs);
            replicas.map(|replica| (*node, replica.clone())).collect()
        };
        let running: Vec<(NodeId, ReplicaReport)> = reports.iter().flat_map(of_group).collect();
        let is_named = map.replicas(group).iter().any(|place| place.node == node);
        if !is_named && !running.iter().any(|(at, _)| *at == node) {
            continue;
        }
        let Some((_, leader)) = running.iter().find(|(_, replica)| replica.leads) else {
            return Err(format!("{what} has no leader at the moment; try again, or say `force`"));
        };
        // Of a node that does not answer it is not known whether it votes.
        let votes = |(at, one): &&(NodeId, ReplicaReport)| *at != node && leader.members.contains(&one.id);
        let (all, left) = (leader.members.len(), running.iter().filter(votes).count());
        if left * 2 <= all {
            return Err(format!(
                "without '{name}', only {left} of the {all} replicas of {what} run: it could not be changed any more, \
                 and not be repaired. Start the other nodes first (`shoal peer status`), or detach those that are gone"
            ));
        }
    }
    Ok(())
}
