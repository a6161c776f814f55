//! The cluster, its nodes and clients.

use super::table::Table;
use super::{known, state, yes};
use crate::admin::{ClientReport, ClusterReport, PeerReport, ReplicaStatus, TokenReport};
use crate::show;
use std::fmt::Write;

/// `cluster status`.
pub fn cluster(report: &ClusterReport) -> String {
    let mut text = format!("Cluster ID: {}\nCluster map: change {}, ", report.cluster, report.epoch);
    let _ = match report.map.iter().find(|replica| replica.role == "leader") {
        Some(leader) => writeln!(text, "led by {}, kept by {}", leader.node, keepers(&report.map)),
        None => writeln!(text, "without a leader, kept by {}", keepers(&report.map)),
    };
    let mut nodes = Table::new(&["Node", "Address", "State", "Version", ">Pid", ">Up for", ">Map"]);
    for node in &report.nodes {
        let name = if node.local { format!("{} (this)", node.name) } else { node.name.clone() };
        let up = known(node.uptime_s.map(show::seconds));
        nodes.row(&[
            &name,
            &node.address,
            &connection(node),
            &known(node.version.as_ref()),
            &known(node.pid),
            &up,
            &known(node.epoch),
        ]);
    }
    let _ = write!(text, "\n{}", nodes.render(false));
    if !report.deleting.is_empty() {
        text.push_str("\nBeing deleted, in the background:\n");
    }
    for one in &report.deleting {
        let trouble = one.trouble.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let _ = writeln!(text, "  {} ({} blocks so far{trouble})", one.brick, one.deleted_blocks);
    }
    if report.volumes.is_empty() {
        text.push_str("\nNo volumes: `shoal volume create` makes one.\n");
        return text + &attention(report);
    }
    let mut volumes = Table::new(&["Volume", "State", "Bricks", "Metadata", "Leader", ">To heal"]);
    for volume in &report.volumes {
        volumes.row(&[
            &volume.name,
            &state(volume.state),
            &format!("{} of {}", volume.bricks_online, volume.bricks),
            &format!("{} of {}", volume.replicas_online, volume.replicas),
            &yes(volume.has_leader),
            &known(volume.degraded),
        ]);
    }
    let _ = write!(text, "\n{}", volumes.render(false));
    text + &attention(report)
}

/// Why the exit code is 1.
fn attention(report: &ClusterReport) -> String {
    let lines: Vec<String> = report.attention.iter().map(|line| format!("  {line}\n")).collect();
    if lines.is_empty() { String::new() } else { format!("\nNeeds attention:\n{}", lines.concat()) }
}

fn keepers(replicas: &[ReplicaStatus]) -> String {
    replicas.iter().map(|replica| replica.node.as_str()).collect::<Vec<_>>().join(", ")
}

fn connection(peer: &PeerReport) -> &'static str {
    if peer.connected { "Connected" } else { "Disconnected" }
}

/// `peer status`: all nodes but the one that was asked.
pub fn peers(peers: &[PeerReport]) -> String {
    let others: Vec<&PeerReport> = peers.iter().filter(|peer| !peer.local).collect();
    let mut text = format!("Number of Peers: {}\n", others.len());
    for peer in others {
        let _ = write!(
            text,
            "\nHostname: {}\nAddress: {}\nNode: {}\nState: Peer in Cluster ({})\n",
            peer.name,
            peer.address,
            peer.node,
            connection(peer)
        );
    }
    text
}

/// `pool list`: all nodes.
pub fn pool(peers: &[PeerReport]) -> String {
    let mut table = Table::new(&["Node", "Hostname", "Address", "State"]);
    for peer in peers {
        let name = if peer.local { "localhost" } else { peer.name.as_str() };
        table.row(&[&peer.node, &name, &peer.address, &connection(peer)]);
    }
    table.render(false)
}

/// `client list`.
pub fn clients(clients: &[ClientReport]) -> String {
    if clients.is_empty() {
        return "No client has credentials: `shoal client issue NAME` makes some.\n".into();
    }
    let mut table = Table::new(&["Client", "Credentials", "Issued"]);
    for client in clients {
        let valid = if client.revoked { "revoked" } else { "valid" };
        table.row(&[&client.name, &valid, &known(client.issued.map(show::date))]);
    }
    table.render(false)
}

/// What to do with a token.
pub fn how_to_join(token: &TokenReport) -> String {
    format!(
        "On each further machine (as root, until {}):\n  shoal peer join {}\n",
        show::date(token.expires),
        token.token
    )
}

/// What to do with a token for the web page.
pub fn how_to_enter(token: &TokenReport) -> String {
    format!(
        "Opens the web page of every node until {}. Give it where the page asks for a token:\n  {}\n",
        show::date(token.expires),
        token.token
    )
}
