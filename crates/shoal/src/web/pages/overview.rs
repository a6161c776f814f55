//! The overview: how the cluster does, its nodes, its volumes, its fullest bricks, its last events.

use super::parts::*;
use super::{View, events, volumes};
use crate::admin::{BrickStatus, ClusterReport, PeerReport, VolumeState, VolumeStatus};
use crate::limits::{
    WEB_BRICKS_SHOWN_MAX, WEB_EVENTS_SHOWN_MAX, WEB_VOLUMES_SHOWN_MAX, WEB_WARNINGS_SHOWN_MAX,
};
use crate::show;
use crate::web::html::{Html, put};
use std::collections::BTreeMap;

pub fn overview(view: &View<'_>) -> Html {
    let mut page = Html::default();
    let Some(cluster) = &view.known.cluster else {
        put!(&mut page; "<p class=\"notice\">The nodes are being asked; this page shows what they answer in a moment.</p>");
        return page;
    };
    let statuses = view.known.statuses.as_ref().map_or(&[][..], |statuses| &statuses[..]);
    put!(&mut page; [health(cluster)], [tiles(view, cluster, statuses)]);
    let nodes = nodes(cluster, statuses);
    put!(&mut page; [section("Nodes", "", &nodes)]);
    let (rows, links) = volumes::table(view, &cluster.volumes, WEB_VOLUMES_SHOWN_MAX);
    let mut content = rows.or("There is no volume yet: shoal volume create makes one.");
    if cluster.volumes.len() > WEB_VOLUMES_SHOWN_MAX {
        put!(&mut content; [links]);
    }
    put!(&mut page; [section("Volumes", "", &content)], [bricks(statuses)]);
    let last = events::last(view, WEB_EVENTS_SHOWN_MAX);
    put!(&mut page; [section("Last events", "", &last)]);
    page
}

/// Whether all is well, or what is not.
fn health(cluster: &ClusterReport) -> Html {
    let mut page = Html::default();
    let found = &cluster.attention;
    if found.is_empty() {
        put!(&mut page; "<div class=\"health good\"><h1>All is well</h1><p>Every node answers, every brick is served, and no block lacks a copy.</p></div>");
        return page;
    }
    let class = if is_bad(cluster) { "bad" } else { "warn" };
    let title = match found.len() {
        1 => "One thing needs attention".to_owned(),
        some => format!("{some} things need attention"),
    };
    put!(&mut page; "<div class=\"health ", (class), "\"><h1>", (title), "</h1><ul>");
    for line in found.iter().take(WEB_WARNINGS_SHOWN_MAX) {
        put!(&mut page; "<li>", [with_code(line)], "</li>");
    }
    if let Some(more) = found.len().checked_sub(WEB_WARNINGS_SHOWN_MAX).filter(|more| *more > 0) {
        put!(&mut page; "<li>and ", (more), " more: <code>shoal cluster status</code> lists them</li>");
    }
    put!(&mut page; "</ul></div>");
    page
}

/// Whether a started volume does not serve.
fn is_bad(cluster: &ClusterReport) -> bool {
    let mut started = cluster.volumes.iter().filter(|volume| volume.state == VolumeState::Started);
    started.any(|volume| !volume.has_leader || volume.bricks_online == 0)
}

/// A sentence in which commands are in backticks.
pub fn with_code(text: &str) -> Html {
    let mut page = Html::default();
    for (at, part) in text.split('`').enumerate() {
        match at % 2 {
            0 => put!(&mut page; (part)),
            _ => put!(&mut page; "<code>", (part), "</code>"),
        }
    }
    page
}

fn tiles(view: &View<'_>, cluster: &ClusterReport, statuses: &[VolumeStatus]) -> Html {
    let severity = |some: usize, all: usize| if some == all { Severity::Good } else { Severity::Warning };
    let connected = cluster.nodes.iter().filter(|node| node.connected).count();
    let started = cluster.volumes.iter().filter(|volume| volume.state == VolumeState::Started).count();
    let bricks: Vec<&BrickStatus> = statuses.iter().flat_map(|status| &status.bricks).collect();
    let online = bricks.iter().filter(|brick| brick.online).count();
    let mut page = Html::default();
    let nodes = cluster.nodes.len();
    let answers = if connected == nodes { "all answer" } else { "the others do not answer" };
    let volumes = cluster.volumes.len();
    put!(&mut page; "<div class=\"tiles\">",
        [tile("Nodes", format_args!("{connected} of {nodes}"), answers, severity(connected, nodes))],
        [tile("Volumes", volumes, format_args!("{started} started"), Severity::Neutral)],
        [tile("Bricks", format_args!("{online} of {}", bricks.len()), "are served", severity(online, bricks.len()))]);
    let (total, free) = disks(&bricks);
    let note = format!("of {} on the bricks' disks", show::bytes(total));
    if total > 0 {
        put!(&mut page; [tile("Free", show::bytes(free), note, Severity::Neutral)]);
    }
    if let Some(sessions) = &view.known.sessions {
        let mounts: usize = sessions.iter().map(|volume| volume.sessions.len()).sum();
        put!(&mut page; [tile("Mounts", grouped(mounts as u64), "of all volumes", Severity::Neutral)]);
    }
    let lacking: u64 = cluster.volumes.iter().filter_map(|volume| volume.degraded).sum();
    let (note, severity) = match lacking {
        0 => ("no block lacks a copy", Severity::Good),
        _ => ("blocks lack copies", Severity::Warning),
    };
    if volumes > 0 {
        put!(&mut page; [tile("To heal", grouped(lacking), note, severity)]);
    }
    put!(&mut page; "</div>");
    page
}

/// Size and free room of the disks under some bricks. Bricks of one node whose disks have one size count as
/// one disk: no report tells disks apart, and to count a disk twice would promise room that is not there.
fn disks(bricks: &[&BrickStatus]) -> (u64, u64) {
    let mut disks: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for brick in bricks {
        if let (Some(total), Some(free)) = (brick.total_bytes, brick.free_bytes) {
            let least = disks.entry((brick.brick.host.as_str(), total)).or_insert(free);
            *least = (*least).min(free);
        }
    }
    disks.iter().fold((0, 0), |(all, left), ((_, total), free)| (all + total, left + free))
}

fn nodes(cluster: &ClusterReport, statuses: &[VolumeStatus]) -> Html {
    let mut table =
        Table::new(&["Node", "State", "Address", "Cluster map", ">Leads", ">Bricks", ">Up for", "Version"]);
    let mut leads: BTreeMap<&str, usize> = BTreeMap::new();
    let mut bricks: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for status in statuses {
        if let Some(node) = super::leader(status) {
            *leads.entry(node).or_default() += 1;
        }
        for brick in &status.bricks {
            let counted = bricks.entry(brick.brick.host.as_str()).or_default();
            *counted = (counted.0 + u64::from(brick.online), counted.1 + 1);
        }
    }
    for node in &cluster.nodes {
        let PeerReport { name, address, version, uptime_s, connected, .. } = node;
        let state = match connected {
            true => badge(Severity::Good, "connected"),
            false => badge(Severity::Bad, "does not answer"),
        };
        let role = cluster.map.iter().find(|replica| replica.node == *name);
        let role = match role {
            Some(replica) if replica.role == "leader" => badge(Severity::Neutral, "leader"),
            Some(replica) if replica.online => cell(&replica.role),
            Some(_) => badge(Severity::Warning, "replica is down"),
            None => cell(UNKNOWN),
        };
        let its_bricks = match bricks.get(name.as_str()) {
            Some((some, all)) if some < all => of(*some, *all),
            Some((_, all)) => cell(all),
            None => cell(0),
        };
        let led = leads.get(name.as_str()).copied().unwrap_or_default();
        let led = if led == 0 { cell(UNKNOWN) } else { cell(count(led, "volume")) };
        let version = known(version.as_ref());
        let up = known(uptime_s.map(show::seconds));
        let mut title = Html::default();
        put!(&mut title; "<b>", (name), "</b>");
        if node.local {
            put!(&mut title; " <small>this one</small>");
        }
        table.row(&[title, state, cell(address), role, led, its_bricks, up, version]);
    }
    table.or("There is no node.")
}

/// The bricks with the least free room, in proportion, and those that are not served.
fn bricks(statuses: &[VolumeStatus]) -> Html {
    let mut all: Vec<(&str, &BrickStatus)> = statuses
        .iter()
        .flat_map(|status| status.bricks.iter().map(|brick| (status.name.as_str(), brick)))
        .collect();
    let free = |brick: &BrickStatus| match (brick.free_bytes, brick.total_bytes) {
        (Some(free), Some(total)) => (free as f64 / total.max(1) as f64 * 1e6) as u64,
        _ => 0,
    };
    all.sort_by_key(|(_, brick)| (brick.online, free(brick)));
    let shown = all.len().min(WEB_BRICKS_SHOWN_MAX);
    let mut table = Table::new(&["Brick", "Volume", "State", "Room"]);
    for (volume, brick) in all.iter().take(shown) {
        let name = link("/volume/", volume, volume);
        table.row(&[
            cell(&brick.brick),
            name,
            volumes::brick_state(brick),
            room(brick.total_bytes, brick.free_bytes),
        ]);
    }
    let note = match all.len() {
        many if many > shown => format!("the {shown} with the least room, of {}", grouped(many as u64)),
        _ => String::new(),
    };
    section("Bricks", note, &table.or("There is no brick yet."))
}
