//! A machine that knows a token becomes a node: it gets a number, credentials and the map.

use super::calls::{JoinAnswer, JoinAsk, pack, unpack};
use super::core::Core;
use bytes::Bytes;
use shoal_cluster::{Command, Outcome};
use shoal_net::{Authority, Peer, Role};
use shoal_types::Timestamp;

impl Core {
    /// Answers a machine that wants to join.
    pub(super) fn join(&self, peer: &Peer, body: &Bytes) -> Result<Bytes, String> {
        let ask: JoinAsk = unpack(body).map_err(|error| error.to_string())?;
        let JoinAsk { secret, name, address } = ask;
        tracing::info!(peer = %peer.address, name, address, "a machine asks to join");
        let command = Command::Join { secret, name: name.clone(), address, time: Timestamp::now() };
        let outcome = self.decide(&command).inspect_err(|why| {
            tracing::warn!(peer = %peer.address, name, why, "a machine may not join");
        })?;
        let Outcome::Joined(node) = outcome else { return Err("joining came to nothing".into()) };
        let map = self.directory.map();
        let issued = Authority::from_pem(self.cluster, &map.secrets.authority)
            .and_then(|authority| authority.issue(&Role::Node(node)))
            .map_err(|error| error.to_string())?;
        let answer =
            JoinAnswer { node, cluster: self.cluster, credentials: issued.to_pem(), map: map.encode() };
        tracing::info!(%node, name, "a node has joined");
        Ok(pack(&answer))
    }
}
