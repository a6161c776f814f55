//! Nodes: join and leave.

use super::{Applied, Outcome, check_name};
use crate::map::{BrickState, ClusterMap, Node, ReplicaPlace, Token};
use shoal_types::{Incarnation, NodeId, Timestamp};

/// Tokens that may be valid at once.
const TOKENS_MAX: usize = 64;

pub(super) fn init(
    map: &mut ClusterMap,
    cluster: u128,
    (name, address): (&str, &str),
    authority: &str,
    time: Timestamp,
) -> Applied {
    if map.cluster != 0 {
        return Err("the cluster has begun already".into());
    }
    map.cluster = cluster;
    map.secrets.authority = authority.to_owned();
    add(map, name, address, time).map(Outcome::Joined)
}

pub(super) fn issue_token(
    map: &mut ClusterMap,
    secret: u128,
    expires: Timestamp,
    time: Timestamp,
) -> Applied {
    map.secrets.tokens.retain(|token| token.expires > time && token.secret != secret);
    if map.secrets.tokens.len() >= TOKENS_MAX {
        return Err(format!("{TOKENS_MAX} tokens are valid at once already; use one of them"));
    }
    map.secrets.tokens.push(Token { secret, expires });
    Ok(Outcome::Done)
}

pub(super) fn join(
    map: &mut ClusterMap,
    secret: u128,
    (name, address): (&str, &str),
    time: Timestamp,
) -> Applied {
    if !map.secrets.tokens.iter().any(|token| token.secret == secret && token.expires > time) {
        return Err("the token is wrong or has expired; `shoal cluster token` on a node of the cluster prints a new one".into());
    }
    let same = map.nodes.iter().find(|(_, node)| node.address == address).map(|(id, _)| *id);
    if let Some(old) = same {
        // A joining node has no state: the node of this address has lost its disk.
        lose(map, old);
    }
    add(map, name, address, time).map(Outcome::Joined)
}

fn add(map: &mut ClusterMap, name: &str, address: &str, time: Timestamp) -> Result<NodeId, String> {
    check_name(name, "a node")?;
    if map.nodes.values().any(|node| node.name == name) {
        return Err(format!("there is a node '{name}' already; give this one another name with --name"));
    }
    check_address(map, address)?;
    let id = NodeId(map.next.node);
    map.next.node += 1;
    map.nodes.insert(id, Node { name: name.to_owned(), address: address.to_owned(), joined: time });
    Ok(id)
}

fn check_address(map: &ClusterMap, address: &str) -> Result<(), String> {
    let valid = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && host.len() <= 255 && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !valid {
        return Err(format!("'{address}' is no address; use HOST:PORT"));
    }
    if let Some(node) = map.nodes.values().find(|node| node.address == address) {
        return Err(format!("{address} is the address of '{}'", node.name));
    }
    Ok(())
}

pub(super) fn relocate(map: &mut ClusterMap, node: NodeId, address: &str) -> Applied {
    if map.nodes.get(&node).is_some_and(|node| node.address == address) {
        return Ok(Outcome::Done);
    }
    check_address(map, address)?;
    let node = map.nodes.get_mut(&node).ok_or("there is no such node")?;
    node.address = address.to_owned();
    Ok(Outcome::Done)
}

pub(super) fn started(map: &mut ClusterMap, node: NodeId, run: Incarnation) -> Applied {
    let name = &map.nodes.get(&node).ok_or("the node is not in the cluster any more")?.name;
    let known = map.runs.get(&node).copied().unwrap_or_default();
    if run != known && run.starts <= known.starts {
        return Err(format!(
            "a later run of the server of '{name}' is known (start {}, this one is {}): its data directory is an old copy",
            known.starts, run.starts
        ));
    }
    map.runs.insert(node, run);
    Ok(Outcome::Done)
}

pub(super) fn detach(map: &mut ClusterMap, node: NodeId, force: bool) -> Applied {
    let name = map.nodes.get(&node).ok_or("there is no such node")?.name.clone();
    if map.nodes.len() == 1 {
        return Err(format!("'{name}' is the cluster's last node"));
    }
    let brick = map.bricks.iter().find(|(_, brick)| brick.node == node && brick.state != BrickState::Gone);
    if let Some((id, _)) = brick
        && !force
    {
        return Err(format!(
            "'{name}' has bricks ({}): move them away with `shoal volume replace-brick` or `remove-brick`, or, if the node is \
             gone for good, say `force`",
            map.brick_name(*id)
        ));
    }
    let is_only =
        |places: &[ReplicaPlace]| !places.is_empty() && places.iter().all(|place| place.node == node);
    let only = map.volumes.values().find(|volume| is_only(&volume.replicas) && !force);
    if let Some(what) = only
        .map(|volume| format!("the metadata of volume {}", volume.name))
        .or_else(|| is_only(&map.replicas).then(|| "the cluster map".to_owned()))
    {
        return Err(format!(
            "'{name}' keeps the only copy of {what}, which would be lost: let another node join first, so that there are three"
        ));
    }
    lose(map, node);
    Ok(Outcome::Done)
}

/// A node is lost with all it had.
fn lose(map: &mut ClusterMap, node: NodeId) {
    for brick in map.bricks.values_mut().filter(|brick| brick.node == node) {
        brick.state = BrickState::Gone;
    }
    map.nodes.remove(&node);
    map.runs.remove(&node);
    for nodes in map.arbiters.values_mut() {
        nodes.remove(&node);
    }
    // Its replicas are replaced by `arrange`.
}
