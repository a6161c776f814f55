//! What an administrator waits for: the nodes that do not answer, said while a request or a mount waits for
//! them.
//!
//! **Model.** The reason of a wait that lasts longer than [`NOTE_AFTER`] is looked for once. All nodes that
//! keep metadata are asked for a sign of life, at the same time, for at most [`NOTE_PATIENCE`]. There is no
//! note if all of them answer: then the wait is for work, or for an election.

use super::calls::{NodeRequest, request_over};
use super::cluster_view::ClusterView;
use crate::background;
use crate::limits::{NOTE_AFTER, NOTE_PATIENCE};
use shoal_cluster::{ClusterMap, ReplicaPlace};
use shoal_net::{Lane, NetError};
use shoal_types::NodeId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};

/// Why a request waits, if nodes do not answer.
pub(super) fn waited_for(view: &ClusterView, seeds: &[String]) -> Option<String> {
    let map = view.map();
    let keepers: BTreeSet<NodeId> = map
        .volumes
        .values()
        .flat_map(|volume| &volume.replicas)
        .chain(&map.replicas)
        .map(|place| place.node)
        .collect();
    let others = keepers.iter().filter(|node| Some(**node) != view.own_node());
    let known: Vec<(String, String)> = others
        .filter_map(|node| map.nodes.get(node))
        .map(|node| (node.name.clone(), node.address.clone()))
        .collect();
    let places = match known.is_empty() && map.epoch == 0 {
        // Before the first map only the addresses are known.
        true => seeds.iter().map(|seed| (seed.clone(), seed.clone())).collect(),
        false => known,
    };
    let silent = silent(view, &places);
    match map.epoch {
        0 if silent.len() == places.len() && !silent.is_empty() => {
            Some(format!("waiting for one of the servers: {} (Ctrl-C to stop)", do_not_answer(&silent)))
        }
        0 => None,
        _ => reason(&map, &silent),
    }
}

/// The names of those places that do not answer, which are asked at once.
fn silent(view: &ClusterView, places: &[(String, String)]) -> Vec<String> {
    let is_silent = |address: &str| {
        let link = view.network().link(address, Lane::Requests);
        match request_over(&link, &NodeRequest::Map { epoch: u64::MAX }, NOTE_PATIENCE) {
            Ok(_) | Err(NetError::Denied { .. } | NetError::Refused { .. }) => false,
            Err(_) => true,
        }
    };
    std::thread::scope(|scope| {
        let asked: Vec<_> =
            places.iter().map(|(name, address)| (name, scope.spawn(move || is_silent(address)))).collect();
        let silent = asked.into_iter().filter_map(|(name, one)| one.join().ok()?.then(|| name.clone()));
        silent.collect()
    })
}

/// The reason by a map whose keepers of these names do not answer.
fn reason(map: &ClusterMap, silent: &[String]) -> Option<String> {
    if silent.is_empty() {
        return None;
    }
    let is_silent = |node: &NodeId| map.nodes.get(node).is_some_and(|node| silent.contains(&node.name));
    let has_lost_majority = |replicas: &[ReplicaPlace]| {
        let there = replicas.iter().filter(|place| !is_silent(&place.node)).count();
        there < replicas.len() / 2 + 1
    };
    let mut groups = map.volumes.values().map(|volume| &volume.replicas).chain([&map.replicas]);
    let what = match groups.any(|replicas| has_lost_majority(replicas)) {
        true => "waiting for a majority of the servers",
        false => "waiting",
    };
    Some(format!("{what}: {} (Ctrl-C to stop)", do_not_answer(silent)))
}

fn do_not_answer(silent: &[String]) -> String {
    match silent {
        [one] => format!("{one} does not answer"),
        [many @ .., last] => format!("{} and {last} do not answer", many.join(", ")),
        [] => String::new(),
    }
}

/// While it exists, the process that mounts a volume is about to say what it waits for.
pub(super) struct MountWait {
    /// Dropped to end the wait.
    _ends: mpsc::Sender<()>,
}

impl MountWait {
    /// Begins a wait for the servers at these addresses, and then for the nodes of the map.
    pub(super) fn begin(view: &Arc<ClusterView>, seeds: &[String]) -> std::io::Result<MountWait> {
        let (ends, ended) = mpsc::channel::<()>();
        let (view, seeds) = (view.clone(), seeds.to_owned());
        std::thread::Builder::new().name("shoal-wait".into()).spawn(move || {
            if ended.recv_timeout(NOTE_AFTER) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let why = waited_for(&view, &seeds);
            if let Some(why) = why.filter(|_| ended.try_recv() == Err(TryRecvError::Empty)) {
                background::note(&why);
            }
        })?;
        Ok(MountWait { _ends: ends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_cluster::Node;
    use shoal_types::ReplicaId;

    #[test]
    fn reason_names_the_silent_nodes_and_says_whether_a_majority_is_missing() {
        let mut map = ClusterMap::default();
        for n in 1..=3 {
            let (id, node) = (ReplicaId(n.into()), NodeId(n));
            let (name, address) = (format!("n{n}"), format!("10.0.0.{n}:7470"));
            map.nodes.insert(node, Node { name, address, joined: Default::default() });
            map.replicas.push(ReplicaPlace { id, node, founder: true });
        }
        let reason = |silent: &[&str]| {
            let silent: Vec<String> = silent.iter().map(|name| (*name).to_owned()).collect();
            reason(&map, &silent)
        };
        assert_eq!(reason(&[]), None);
        assert_eq!(reason(&["n2"]).as_deref(), Some("waiting: n2 does not answer (Ctrl-C to stop)"));
        assert_eq!(
            reason(&["n2", "n3"]).as_deref(),
            Some("waiting for a majority of the servers: n2 and n3 do not answer (Ctrl-C to stop)")
        );
    }
}
