//! The figures of this machine's Shoal processes, as metrics for Prometheus.
//!
//! **Model.** Mounts and the server count for themselves and tell their counts on their control sockets. The
//! exporter, `shoal metrics`, asks all of them for each scrape. So a machine has one endpoint, however many
//! mounts there are, and a process that hangs is a sample `shoal_up 0` instead of a scrape that fails.

mod figures;

use crate::control::{self, BrickStatistics, NodeStatistics, Number, ReplicaStatistics, Request, Statistics};
use crate::find;
use crate::limits::SCRAPE_PATIENCE;
use crate::profile::OpReport;
use shoal_metrics::{Exposition, Kind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

/// A process to be asked.
struct Target {
    kind: &'static str,
    /// A mount point, or the data directory of a server.
    shown: String,
    answer: Receiver<Statistics>,
}

/// The metrics of all mounts of this machine, and of the servers with these data directories.
pub fn gather(servers: &[PathBuf]) -> Exposition {
    let mut exposition = Exposition::default();
    let mounts = find::mounted().unwrap_or_else(|error| {
        tracing::warn!("{error:#}");
        Vec::new()
    });
    let mounts = mounts.into_iter().map(|(home, point)| ("mount", home, point));
    let servers = servers.iter().map(|data| ("server", data.clone(), data.clone()));
    let targets: Vec<Target> =
        mounts.chain(servers).map(|(kind, home, shown)| ask(kind, home, &shown)).collect();
    let due = Instant::now() + SCRAPE_PATIENCE;
    for Target { kind, shown, answer } in targets {
        let statistics = answer.recv_timeout(due.saturating_duration_since(Instant::now())).ok();
        let labels = [("process", kind), ("target", shown.as_str())];
        let mut gauge =
            |name: &str, help: &str, value: f64| exposition.add(Kind::Gauge, name, help, &labels, value);
        gauge(
            "shoal_up",
            "Whether the process of a mount or of the server answers.",
            f64::from(u8::from(statistics.is_some())),
        );
        let Some(statistics) = statistics else { continue };
        gauge(
            "shoal_uptime_seconds",
            "For how long the process has been running.",
            statistics.uptime_s as f64,
        );
        gauge("shoal_resident_memory_bytes", "Memory of the process.", statistics.resident_bytes as f64);
        match &statistics.node {
            Some(node) => add_node(&mut exposition, node, &statistics.version),
            None => add_mount(&mut exposition, &shown, &statistics),
        }
    }
    exposition
}

/// Asks a process, on a thread of its own: a process that is stopped does not answer.
fn ask(kind: &'static str, home: PathBuf, shown: &Path) -> Target {
    let (tell, answer) = mpsc::channel();
    let asking = move || match control::request::<Statistics>(&home, &Request::Stats) {
        // The scrape may have gone on.
        Ok(statistics) => drop(tell.send(statistics)),
        Err(error) => tracing::debug!(home = %home.display(), %error, "it tells no figures"),
    };
    if let Err(error) = std::thread::Builder::new().name("shoal-scrape".into()).spawn(asking) {
        tracing::warn!(%error, "no thread to ask a process");
    }
    Target { kind, shown: shown.display().to_string(), answer }
}

fn add_mount(to: &mut Exposition, mountpoint: &str, statistics: &Statistics) {
    let Statistics { volume, version, refused, .. } = statistics;
    let labels = [("volume", volume.as_str()), ("mountpoint", mountpoint)];
    let info = [labels[0], labels[1], ("version", version.as_str())];
    to.add(Kind::Gauge, "shoal_mount_info", "A mount, and the version of its program.", &info, 1.0);
    to.add(
        Kind::Gauge,
        "shoal_mount_refused",
        "Whether the servers do not serve the mount: stopped, deleted, or not allowed.",
        &labels,
        f64::from(u8::from(*refused)),
    );
    to.add(
        Kind::Gauge,
        "shoal_fuse_requests_waiting",
        "Requests of the kernel that wait for a thread.",
        &labels,
        statistics.kernel_waiting as f64,
    );
    for (name, help, value) in [
        ("shoal_fuse_read_bytes_total", "Bytes that READ requests returned.", statistics.kernel_read_bytes),
        (
            "shoal_fuse_written_bytes_total",
            "Bytes that WRITE requests carried.",
            statistics.kernel_written_bytes,
        ),
    ] {
        to.add(Kind::Counter, name, help, &labels, value as f64);
    }
    let fuse = Calls {
        durations: ("shoal_fuse_request_duration_seconds", "Time to answer requests of the kernel."),
        errors: Some((
            "shoal_fuse_request_errors_total",
            "Requests of the kernel that were answered with an error.",
        )),
        label: "op",
    };
    fuse.add(to, &labels, &statistics.kernel);
    for OpReport { name, slow, .. } in &statistics.kernel {
        let labels = [labels[0], labels[1], ("op", name.as_str())];
        let help = "Requests of the kernel that could not be answered from memory.";
        to.add(Kind::Counter, "shoal_fuse_requests_waited_total", help, &labels, *slow as f64);
    }
    add_figures(to, "shoal_client_", &labels, &statistics.client);
    METADATA_CALLS.add(to, &labels, &statistics.meta);
    add_figures(to, "shoal_metadata_", &labels, &statistics.server);
    BRICK_CALLS.add(to, &labels, &statistics.brick);
}

fn add_node(to: &mut Exposition, node: &NodeStatistics, version: &str) {
    let NodeStatistics { name, cluster, .. } = node;
    let info = [("node", name.as_str()), ("cluster", cluster), ("version", version)];
    to.add(
        Kind::Gauge,
        "shoal_node_info",
        "A node of a cluster, and the version of its program.",
        &info,
        1.0,
    );
    let help = "Epoch of the cluster map that the node knows.";
    to.add(Kind::Gauge, "shoal_cluster_map_epoch", help, &[("node", name)], node.epoch as f64);
    let help = "Whether the node has stopped serving: it was detached, or another process has its identity.";
    let fenced = f64::from(u8::from(node.fenced));
    to.add(Kind::Gauge, "shoal_node_fenced", help, &[("node", name)], fenced);
    add_figures(to, "shoal_node_", &[("node", name)], &node.figures);
    node.replicas.iter().for_each(|replica| add_replica(to, name, replica));
    node.bricks.iter().for_each(|brick| add_brick(to, name, brick));
}

fn add_replica(to: &mut Exposition, node: &str, replica: &ReplicaStatistics) {
    let id = replica.id.to_string();
    let labels = [("node", node), ("volume", replica.volume.as_str()), ("replica", id.as_str())];
    let mut is = |name: &str, help: &str, so: bool| {
        to.add(Kind::Gauge, name, help, &labels, f64::from(u8::from(so)));
    };
    is("shoal_replica_up", "Whether a replica of a volume's metadata runs.", replica.runs);
    is(
        "shoal_replica_leads",
        "Whether a replica of a volume's metadata leads, and so serves.",
        replica.leads,
    );
    add_figures(to, "shoal_metadata_", &labels, &replica.figures);
    RAFT_STEPS.add(to, &labels, &replica.steps);
    METADATA_REQUESTS.add(to, &labels, &replica.requests);
    let Some(heal) = &replica.heal else { return };
    let labels = [("volume", replica.volume.as_str()), ("node", node)];
    for (kind, name, help, value) in [
        (
            Kind::Gauge,
            "shoal_heal_degraded_blocks",
            "Blocks that lack copies or shards, as far as the volume's leader has found.",
            heal.degraded_blocks,
        ),
        (
            Kind::Gauge,
            "shoal_heal_failed_blocks",
            "Blocks of which no good copy could be read.",
            heal.failed_blocks,
        ),
        (
            Kind::Counter,
            "shoal_heal_copied_blocks_total",
            "Blocks copied by healing, draining and rebalancing.",
            heal.moved_blocks,
        ),
        (
            Kind::Counter,
            "shoal_heal_copied_bytes_total",
            "Bytes copied by healing, draining and rebalancing.",
            heal.moved_bytes,
        ),
    ] {
        to.add(kind, name, help, &labels, value as f64);
    }
}

fn add_brick(to: &mut Exposition, node: &str, brick: &BrickStatistics) {
    let path = brick.path.display().to_string();
    let labels = [("node", node), ("volume", brick.volume.as_str()), ("brick", path.as_str())];
    for (kind, name, help, value) in [
        (Kind::Gauge, "shoal_brick_up", "Whether a brick is served.", u64::from(brick.serves)),
        (Kind::Gauge, "shoal_brick_size_bytes", "Size of the disk of a brick.", brick.total_bytes),
        (Kind::Gauge, "shoal_brick_free_bytes", "Free room on the disk of a brick.", brick.free_bytes),
        (Kind::Counter, "shoal_brick_written_bytes_total", "Bytes of blocks written.", brick.written_bytes),
        (Kind::Counter, "shoal_brick_read_bytes_total", "Bytes of blocks read.", brick.read_bytes),
        (
            Kind::Counter,
            "shoal_scrub_blocks_total",
            "Blocks that were read to check them.",
            brick.scrubbed_blocks,
        ),
        (
            Kind::Counter,
            "shoal_scrub_damaged_blocks_total",
            "Blocks that scrubbing found damaged or unreadable.",
            brick.damaged_blocks,
        ),
        (
            Kind::Counter,
            "shoal_scrub_repaired_blocks_total",
            "Damaged blocks that scrubbing replaced.",
            brick.repaired_blocks,
        ),
    ] {
        to.add(kind, name, help, &labels, value as f64);
    }
    BRICK_CALLS.add(to, &labels, &brick.calls);
}

/// Calls of one kind of service: names and helps of their metrics, and the label that tells the call.
struct Calls {
    durations: (&'static str, &'static str),
    errors: Option<(&'static str, &'static str)>,
    label: &'static str,
}

const METADATA_CALLS: Calls = Calls {
    durations: (
        "shoal_metadata_call_duration_seconds",
        "Time of a mount's calls to the metadata server, with the network and waiting for other clients.",
    ),
    errors: Some(("shoal_metadata_call_errors_total", "Calls to the metadata server that failed.")),
    label: "call",
};
/// The part of these calls that the server takes.
const METADATA_REQUESTS: Calls = Calls {
    durations: (
        "shoal_metadata_request_duration_seconds",
        "Time of clients' requests in the metadata server, with Raft and waiting for other clients.",
    ),
    errors: Some(("shoal_metadata_request_errors_total", "Requests that the metadata server refused.")),
    label: "call",
};
const RAFT_STEPS: Calls = Calls {
    durations: (
        "shoal_metadata_raft_duration_seconds",
        "Time of a proposal: queue (for the Raft thread), flush (of the log), apply (of an entry), and commit (all, with replication).",
    ),
    errors: None,
    label: "step",
};
const BRICK_CALLS: Calls = Calls {
    durations: ("shoal_brick_call_duration_seconds", "Time of calls to a brick."),
    errors: Some(("shoal_brick_call_errors_total", "Calls to a brick that failed.")),
    label: "call",
};

impl Calls {
    fn add(&self, to: &mut Exposition, labels: &[(&str, &str)], calls: &[OpReport]) {
        for call in calls {
            let labels: Vec<_> = labels.iter().copied().chain([(self.label, call.name.as_str())]).collect();
            let (name, help) = self.durations;
            to.add_durations(name, help, &labels, &call.latency_log2, call.total_ns);
            if let Some((name, help)) = self.errors {
                to.add(Kind::Counter, name, help, &labels, call.errors as f64);
            }
        }
    }
}

/// Adds named numbers. What ends in `_total` is a counter; microseconds and milliseconds become seconds.
fn add_figures(to: &mut Exposition, prefix: &str, labels: &[(&str, &str)], figures: &[Number]) {
    for Number { name, value } in figures {
        let help = figures::help(name);
        let kind = if name.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
        let (name, value) = match (name.strip_suffix("_microseconds_total"), name.strip_suffix("_ms_max")) {
            (Some(what), _) => (format!("{what}_seconds_total"), *value as f64 / 1e6),
            (_, Some(what)) => (format!("{what}_seconds_max"), *value as f64 / 1e3),
            _ => match name.strip_suffix("_ms") {
                Some(what) => (format!("{what}_seconds"), *value as f64 / 1e3),
                None => (name.clone(), *value as f64),
            },
        };
        let name = name.strip_prefix("client_").unwrap_or(&name);
        to.add(kind, &format!("{prefix}{name}"), help, labels, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::HealStatistics;

    fn report(name: &str) -> OpReport {
        let latency_log2 = vec![0, 0, 0, 5];
        OpReport { name: name.into(), errors: 1, slow: 2, latency_log2, ..OpReport::default() }
    }

    fn figure(name: &str, value: u64) -> Number {
        Number { name: name.into(), value }
    }

    #[test]
    fn figures_of_mounts_and_nodes_become_metrics_of_the_right_kind_and_unit() {
        let mut to = Exposition::default();
        let mount = Statistics {
            volume: "web".into(),
            kernel: vec![report("read")],
            client: vec![
                figure("client_hits_total", 7),
                figure("meta_stall_ms_max", 1500),
                figure("journal_age_ms", 250),
            ],
            kernel_written_bytes: 9,
            server: vec![figure("apply_microseconds_total", 2_500_000)],
            refused: true,
            ..Statistics::default()
        };
        add_mount(&mut to, "/mnt/web", &mount);
        let heal = Some(HealStatistics { degraded_blocks: 3, ..HealStatistics::default() });
        let replica = ReplicaStatistics {
            volume: "web".into(),
            id: 4,
            runs: true,
            heal,
            steps: vec![report("flush")],
            ..Default::default()
        };
        let brick =
            BrickStatistics { path: "/srv/web".into(), calls: vec![report("get")], ..Default::default() };
        let (replicas, bricks) = (vec![replica], vec![brick]);
        add_node(&mut to, &NodeStatistics { name: "n1".into(), replicas, bricks, ..Default::default() }, "1");
        let text = to.render();
        for line in [
            "shoal_mount_refused{volume=\"web\",mountpoint=\"/mnt/web\"} 1",
            "# TYPE shoal_client_hits_total counter",
            "shoal_client_hits_total{volume=\"web\",mountpoint=\"/mnt/web\"} 7",
            "# TYPE shoal_client_meta_stall_seconds_max gauge",
            "shoal_client_meta_stall_seconds_max{volume=\"web\",mountpoint=\"/mnt/web\"} 1.5",
            "shoal_client_journal_age_seconds{volume=\"web\",mountpoint=\"/mnt/web\"} 0.25",
            "shoal_fuse_written_bytes_total{volume=\"web\",mountpoint=\"/mnt/web\"} 9",
            "shoal_metadata_apply_seconds_total{volume=\"web\",mountpoint=\"/mnt/web\"} 2.5",
            "shoal_fuse_requests_waited_total{volume=\"web\",mountpoint=\"/mnt/web\",op=\"read\"} 2",
            "shoal_replica_up{node=\"n1\",volume=\"web\",replica=\"4\"} 1",
            "shoal_metadata_raft_duration_seconds_count{node=\"n1\",volume=\"web\",replica=\"4\",step=\"flush\"} 5",
            "shoal_node_fenced{node=\"n1\"} 0",
            "shoal_heal_degraded_blocks{volume=\"web\",node=\"n1\"} 3",
            "shoal_brick_up{node=\"n1\",volume=\"\",brick=\"/srv/web\"} 0",
            "shoal_brick_call_duration_seconds_count{node=\"n1\",volume=\"\",brick=\"/srv/web\",call=\"get\"} 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
