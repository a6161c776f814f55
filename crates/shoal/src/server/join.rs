//! Admission of a machine that knows a token: it becomes a node, and gets a number, credentials and the map.

use super::calls::{JoinReply, JoinRequest, NodeRequest, pack, unpack};
use super::context::ServerContext;
use super::execute::retry;
use crate::limits::{LEADER_PATIENCE, NODE_REPLY_WAIT_MAX};
use bytes::Bytes;
use shoal_cluster::{Command, Outcome, apply};
use shoal_net::{Authority, Peer, Role};
use shoal_types::Timestamp;

/// Name and address of a machine together, in bytes: more than any that is allowed.
const NAME_AND_ADDRESS_BYTES_MAX: usize = 1024;

impl ServerContext {
    /// Answers a machine that wants to join. The sender is not authenticated, so nothing is proposed before
    /// its token is verified.
    pub(super) fn join(&self, peer: &Peer, body: &Bytes) -> Result<Bytes, String> {
        let ask: JoinRequest = unpack(body).map_err(|error| error.to_string())?;
        let JoinRequest { secret, name, address } = ask;
        if name.len() + address.len() > NAME_AND_ADDRESS_BYTES_MAX {
            return Err("the name or the address is too long".into());
        }
        tracing::info!(peer = %peer.address, name, address, "received a request to join");
        let place = address.clone();
        let command = Command::Join { secret, name: name.clone(), address, time: Timestamp::now() };
        let admitted = self.try_out(&command).and_then(|()| self.check_is_free(&place));
        let outcome = admitted.and_then(|()| self.decide(&command)).inspect_err(|why| {
            tracing::warn!(peer = %peer.address, name, why, "refused a request to join");
        })?;
        let Outcome::Joined(node) = outcome else { return Err("unexpected outcome of the join".into()) };
        let map = self.view.map();
        let issued = Authority::from_pem(self.cluster, &map.secrets.authority)
            .and_then(|authority| authority.issue(&Role::Node(node)))
            .map_err(|error| error.to_string())?;
        let answer =
            JoinReply { node, cluster: self.cluster, credentials: issued.to_pem(), map: map.encode() };
        tracing::info!(%node, name, "a node has joined");
        Ok(pack(&answer))
    }

    /// Fails if a node of this address runs. A machine that joins at the address of a node takes its place,
    /// and the node's bricks count as lost.
    fn check_is_free(&self, address: &str) -> Result<(), String> {
        let map = self.view.map();
        let Some((id, node)) = map.nodes.iter().find(|(_, node)| node.address == address) else {
            return Ok(());
        };
        // All versions answer this.
        let ask = NodeRequest::Map { epoch: u64::MAX };
        let answers = || self.view.request(*id, &ask, NODE_REPLY_WAIT_MAX);
        // A busy node may answer late.
        if *id != self.node && retry(LEADER_PATIENCE, answers).is_err() {
            return Ok(());
        }
        Err(format!(
            "{address} is the address of '{0}', which runs: use another address, or detach '{0}' first \
             (`shoal peer detach {0}`)",
            node.name
        ))
    }

    /// Whether a change would be accepted, as far as this node can know.
    pub(super) fn try_out(&self, command: &Command) -> Result<(), String> {
        let refused = || match apply(&self.view.map(), command).1 {
            Outcome::Refused(why) => Some(why),
            _ => None,
        };
        if refused().is_none() {
            return Ok(());
        }
        // The token may have been issued by another node just now.
        self.freshen();
        refused().map_or(Ok(()), Err)
    }
}
