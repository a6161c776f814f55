//! Turns a machine into a node: it begins a cluster, or joins one.
//!
//! Either creates a data directory and nothing else; the server is started afterwards. The last step makes it
//! a server's directory, so that an interrupted attempt can be repeated.

use super::calls::{JoinReply, JoinRequest, pack, unpack};
use super::machine::{self, MapMachine};
use super::node_dir::{Identity, NodeDir, prepare};
use super::peers::NoPeers;
use crate::admin::{Begun, Init, Join, Joined, Token, TokenReport};
use crate::limits::{INIT_PATIENCE, JOIN_PATIENCE, TOKEN_HOURS_DEFAULT};
use anyhow::{Context, bail};
use shoal_cluster::{ClusterMap, Command, Outcome, apply};
use shoal_meta::{Replica, ReplicaOptions};
use shoal_net::{Authority, Credentials, Lane, Network, Role, Service};
use shoal_runtime::durable;
use shoal_types::{GroupId, ReplicaId, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Seconds of an hour.
const HOUR_S: i64 = 3600;

/// A new token: its secret, its expiry, and the command that records it in the map.
pub fn new_token(hours: u32) -> (u128, Timestamp, Command) {
    let (secret, time) = (rand::random(), Timestamp::now());
    let expires = Timestamp { secs: time.secs + i64::from(hours) * HOUR_S, nanos: 0 };
    (secret, expires, Command::IssueToken { secret, expires, time })
}

/// Begins a cluster with this machine.
pub fn init(init: &Init) -> anyhow::Result<Begun> {
    let path = prepare(&init.data)?;
    let cluster: u128 = rand::random::<u128>().max(1);
    let authority = Authority::create(cluster)?;
    let begin = Command::Init {
        cluster,
        name: init.name.clone(),
        address: init.address.clone(),
        authority: authority.to_pem(),
        time: Timestamp::now(),
    };
    // Applied to an empty map first, which yields the id of the first replica of the map's group.
    let (planned, outcome) = apply(&ClusterMap::default(), &begin);
    let node = match outcome {
        Outcome::Joined(node) => node,
        Outcome::Refused(why) => bail!(why),
        other => bail!("unexpected outcome of the creation of a cluster: {other:?}"),
    };
    let replica = planned.replicas.first().context("a cluster of one node keeps its map on that node")?.id;
    let (secret, expires, token) = new_token(TOKEN_HOURS_DEFAULT);
    let home = path.join("cluster").join(replica.0.to_string());
    let map = found(&home, replica, &[begin, token])?;
    authority.issue(&Role::Node(node))?.save(&path.join("tls"))?;
    let identity = Identity::new(cluster, node, &init.name, &init.address, &init.listen);
    NodeDir::create(&path, identity, &map.encode())?.begin_replica(replica)?;
    let token =
        Token { addresses: vec![init.address.clone()], secret, fingerprint: authority.fingerprint()? };
    Ok(Begun {
        cluster: format!("{cluster:032x}"),
        token: TokenReport { token: token.to_string(), expires: expires.secs.unsigned_abs() },
    })
}

/// Creates the first replica of the cluster map and commits the first commands with it.
fn found(home: &Path, id: ReplicaId, commands: &[Command]) -> anyhow::Result<ClusterMap> {
    durable::create_dir_all(home).with_context(|| home.display().to_string())?;
    let options = ReplicaOptions { group: GroupId::CLUSTER, id, founders: Some(vec![id]), log_bytes: None };
    let machine = Arc::new(MapMachine::new(|_| {}));
    let replica = Replica::open(home, options, Arc::new(NoPeers), machine)
        .with_context(|| home.display().to_string())?;
    let begun = Instant::now();
    while !replica.leads() {
        if begun.elapsed() > INIT_PATIENCE {
            bail!("the cluster's first replica does not start; {} may be very slow", home.display());
        }
        // It answers NotLeader, without delay, until it has elected itself.
        if replica.ensure_leading().is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    for command in commands {
        if let Outcome::Refused(why) = replica.propose(command.encode())? {
            bail!(why);
        }
    }
    let map = machine::read(&**replica.store()).map_err(anyhow::Error::msg)?;
    replica.shutdown();
    Ok(map)
}

/// Joins a cluster with this machine.
pub fn join(join: &Join) -> anyhow::Result<Joined> {
    let path = prepare(&join.data)?;
    let network = Network::unauthenticated(&join.token.fingerprint)?;
    let ask =
        JoinRequest { secret: join.token.secret, name: join.name.clone(), address: join.address.clone() };
    let answer = ask_to_join(&network, &join.token.addresses, &ask)?;
    let map = ClusterMap::decode(&answer.map).context("the cluster map")?;
    let [authority, certificate, key] = &answer.credentials;
    Credentials::from_pem(authority, certificate, key)?.save(&path.join("tls"))?;
    let identity = Identity::new(answer.cluster, answer.node, &join.name, &join.address, &join.listen);
    NodeDir::create(&path, identity, &map.encode())?;
    let others = map.nodes.iter().filter(|(id, _)| **id != answer.node);
    Ok(Joined {
        cluster: format!("{:032x}", answer.cluster),
        node: answer.node.0,
        others: others.map(|(_, node)| node.name.clone()).collect(),
    })
}

/// Asks one node of the cluster after the other. Only an unreachable one is skipped: every other node would
/// give the same answer.
fn ask_to_join(network: &Network, addresses: &[String], ask: &JoinRequest) -> anyhow::Result<JoinReply> {
    let mut reasons = Vec::new();
    for address in addresses {
        let link = network.link(address, Lane::Requests);
        match link.call(Service::Join, false, vec![pack(ask)], JOIN_PATIENCE) {
            Ok(body) => return Ok(unpack(&body)?),
            Err(shoal_net::NetError::Refused { why, .. }) => bail!(why),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    bail!("no node of the cluster answers: {}; is `shoal server` running there?", reasons.join("; "))
}
