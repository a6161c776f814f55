//! Changes of the cluster map: any node accepts one, and forwards it to the leader of the map's group.

use super::calls::{NodeReply, NodeRequest};
use super::context::ServerContext;
use crate::limits::{COUNT_PATIENCE, EXECUTE_PATIENCE, EXECUTE_PAUSE, NODE_REPLY_WAIT_MAX};
use shoal_cluster::{BrickState, Command, Outcome};
use shoal_net::Lane;
use shoal_types::{BrickId, GroupId, NodeId};
use shoal_wire::MetaError;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Appends the nodes that are not in the queue yet.
fn add(turn: &mut Vec<NodeId>, nodes: impl IntoIterator<Item = NodeId>) {
    for node in nodes {
        if !turn.contains(&node) {
            turn.push(node);
        }
    }
}

impl ServerContext {
    /// Carries out a change if this node leads the map's group.
    pub(super) fn execute_here(&self, command: &Command) -> NodeReply {
        let elsewhere = || NodeReply::NotLeader(self.groups.leader_node(GroupId::CLUSTER));
        let Some(group) = self.opener.map_group() else { return elsewhere() };
        match group.propose(command.encode()) {
            Ok(outcome) => NodeReply::Done(outcome),
            Err(MetaError::NotLeader { .. } | MetaError::Unavailable(_)) => elsewhere(),
            Err(error) => NodeReply::Failed(error.to_string()),
        }
    }

    /// Has a change carried out. When this returns, this node has the resulting map.
    pub(super) fn decide(&self, command: &Command) -> Result<Outcome, String> {
        let due = Instant::now() + EXECUTE_PATIENCE;
        let mut hint = Some(self.node);
        loop {
            let map = self.view.map();
            let mut turn: Vec<NodeId> = hint.take().into_iter().collect();
            add(&mut turn, map.replicas.iter().map(|place| place.node));
            let mut answered = BTreeSet::new();
            let mut at = 0;
            while let Some(node) = turn.get(at).copied() {
                at += 1;
                match self.execute_at(node, command) {
                    Ok(NodeReply::Done(Outcome::Refused(why))) => return Err(why),
                    Ok(NodeReply::Done(outcome)) => {
                        self.follow(node);
                        return Ok(outcome);
                    }
                    Ok(NodeReply::Failed(why)) => return Err(why),
                    Ok(NodeReply::NotLeader(leader)) => {
                        answered.insert(node);
                        add(&mut turn, leader);
                    }
                    Ok(other) => return Err(format!("{node}: unexpected answer: {other:?}")),
                    Err(why) => tracing::debug!(%node, why, "the node did not change the cluster map"),
                }
            }
            if Instant::now() > due || self.stop.load(Ordering::Acquire) {
                let all = map.replicas.len();
                let there = map.replicas.iter().filter(|place| answered.contains(&place.node)).count();
                return Err(format!(
                    "the cluster map cannot be changed now: {there} of the {all} nodes that keep it answer, {} are needed, and \
                     none of them leads. `shoal peer status` shows which nodes are away",
                    all / 2 + 1
                ));
            }
            std::thread::sleep(EXECUTE_PAUSE);
        }
    }

    fn execute_at(&self, node: NodeId, command: &Command) -> Result<NodeReply, String> {
        if node == self.node {
            return Ok(self.execute_here(command));
        }
        self.view.request(node, &NodeRequest::Execute(command.clone()), NODE_REPLY_WAIT_MAX)
    }

    /// Fetches the map from the node that has just changed it.
    fn follow(&self, node: NodeId) {
        if let Some(link) = self.view.link(node, Lane::Requests).filter(|_| node != self.node)
            && let Err(why) = self.view.catch_up(&link)
        {
            tracing::debug!(why, "fetching the changed cluster map failed");
        }
    }

    /// Fetches the map from the leader of its group, as far as that answers, because an administrator may
    /// move to another node faster than maps spread.
    pub(super) fn freshen(&self) {
        match self.groups.leader_node(GroupId::CLUSTER) {
            Some(leader) => self.follow(leader),
            None => {
                let keepers: Vec<NodeId> = self.view.map().replicas.iter().map(|place| place.node).collect();
                std::thread::scope(|scope| {
                    for node in keepers {
                        scope.spawn(move || self.follow(node));
                    }
                });
            }
        }
    }

    /// Sends a request to the leader of a volume's metadata group.
    pub(super) fn request_from_leader(
        &self,
        volume: GroupId,
        ask: &NodeRequest,
        patience: Duration,
    ) -> Result<(NodeId, NodeReply), String> {
        let map = self.view.map();
        let mut turn: Vec<NodeId> = self.groups.leader_node(volume).into_iter().collect();
        add(&mut turn, map.replicas(volume).iter().map(|place| place.node));
        let mut at = 0;
        let mut reasons = Vec::new();
        while let Some(node) = turn.get(at).copied() {
            at += 1;
            let answer =
                if node == self.node { Ok(self.answer(ask)) } else { self.view.request(node, ask, patience) };
            match answer {
                Ok(NodeReply::NotLeader(leader)) => add(&mut turn, leader),
                Ok(NodeReply::Failed(why)) | Err(why) => reasons.push(why),
                Ok(answer) => return Ok((node, answer)),
            }
        }
        let name = map.volumes.get(&volume).map_or("?", |volume| volume.name.as_str());
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        Err(format!(
            "no metadata server of volume {name} leads at the moment{reasons}; `shoal volume status {name}` shows which run"
        ))
    }

    /// Removes bricks that no block refers to any more. Only the leader of the map's group does that.
    pub(super) fn tidy_up(&self) {
        if !self.groups.of(GroupId::CLUSTER).is_some_and(|group| group.leads()) {
            return;
        }
        let map = self.view.map();
        for (id, brick) in &map.bricks {
            let leaves =
                brick.state == BrickState::Gone || brick.state == BrickState::Draining && brick.replaced;
            let is_free = || match brick.state {
                BrickState::Gone => self.view.is_quiet(*id) && self.blocks_left(brick.volume, *id) == Some(0),
                _ => self.is_free(brick.volume, *id),
            };
            if !leaves || !is_free() {
                continue;
            }
            let (volume, bricks) = (brick.volume, vec![*id]);
            let lost = match brick.state {
                BrickState::Gone => Ok(Outcome::Done),
                _ => self.decide(&Command::Lose { volume, bricks: bricks.clone() }),
            };
            match lost.and_then(|_| self.decide(&Command::Forget { volume, bricks })) {
                Ok(_) => {
                    tracing::info!(brick = %map.brick_name(*id), "an unused brick was removed from the cluster map")
                }
                Err(why) => tracing::debug!(brick = %id, why, "removing an unused brick from the map failed"),
            }
        }
    }

    /// Whether a drained brick can be removed: no block is on it, none can come, and no record names it. What
    /// the namespace does not know is deleted soon, unless a client may still commit it.
    pub(super) fn is_free(&self, volume: GroupId, brick: BrickId) -> bool {
        let is_cleared = self.is_cleared(brick);
        let is_named = self.blocks_left(volume, brick) != Some(0);
        if is_cleared == Ok(false)
            && !is_named
            && let Err(why) = self.request_from_leader(volume, &NodeRequest::Sweep { volume }, COUNT_PATIENCE)
        {
            tracing::debug!(why, "the leader was not asked to sweep the bricks");
        }
        is_cleared == Ok(true) && !is_named
    }

    /// Whether a brick has no block, and can get none any more. Fails if it does not answer.
    pub(super) fn is_cleared(&self, brick: BrickId) -> Result<bool, String> {
        let map = self.view.map();
        let node = map.bricks.get(&brick).map(|it| it.node).ok_or("it has left the cluster")?;
        let ask = NodeRequest::IsCleared { brick };
        let reply = match node == self.node {
            true => self.answer(&ask),
            false => self.view.request(node, &ask, NODE_REPLY_WAIT_MAX)?,
        };
        match reply {
            NodeReply::IsCleared(is_cleared) => Ok(is_cleared),
            NodeReply::Failed(why) => Err(why),
            other => Err(format!("{node}: unexpected answer: {other:?}")),
        }
    }

    /// Number of blocks on a brick, by the volume's leader; `None` if there is none.
    pub(super) fn blocks_left(&self, volume: GroupId, brick: BrickId) -> Option<u64> {
        match self.request_from_leader(volume, &NodeRequest::BlocksOn { volume, brick }, COUNT_PATIENCE) {
            Ok((_, NodeReply::Blocks(blocks))) => Some(blocks),
            _ => None,
        }
    }
}

/// Repeats a failing request for so long; the last failure counts.
pub(super) fn retry<T>(
    patience: Duration,
    mut request: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let due = Instant::now() + patience;
    loop {
        match request() {
            Err(_) if Instant::now() < due => std::thread::sleep(EXECUTE_PAUSE),
            outcome => return outcome,
        }
    }
}
