//! A cluster that is not there, for tests of the pages.

use crate::admin::*;
use crate::profile::{OpReport, Profile, Profiled, Sizes};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const GIB: u64 = 1 << 30;

/// So many calls, each of which took at least 2^n nanoseconds.
fn calls(name: &str, count: u64, log2: usize, slow: u64) -> OpReport {
    let mut latency_log2 = vec![0; log2 + 1];
    latency_log2[log2] = count;
    let total_ns = count * (2000 << (log2 - 10));
    let report = OpReport { name: name.into(), slow, total_ns, latency_log2, ..OpReport::default() };
    report.since(&OpReport::default())
}

/// What one mount and one brick have counted after so many seconds and thousands of requests.
pub fn profile(name: &str, lived_s: u64, requests: u64) -> ProfileReport {
    let profiled = |operations, metadata| {
        let sizes = Sizes { bytes: requests * 4096, size_log2: Vec::new() };
        let cumulative = Profile {
            duration_s: lived_s,
            duration_ms: lived_s * 1000,
            reads: sizes.clone(),
            writes: sizes,
            operations,
            metadata,
        };
        Profiled { cumulative, ..Profiled::default() }
    };
    let mount = MountName { host: "web1".into(), mountpoint: Some("/mnt/web".into()), pid: Some(7) };
    let kernel = vec![calls("read", requests, 10, requests / 10)];
    let metadata = vec![calls("commit", requests / 10, 20, 0)];
    let brick = "node1:/srv/b".parse().expect("a brick");
    let calls = vec![calls("get", requests / 5, 18, 0)];
    ProfileReport {
        name: name.into(),
        bricks: vec![BrickProfile { brick, profiled: Some(profiled(calls, Vec::new())), trouble: None }],
        mounts: vec![MountProfile { mount, profiled: profiled(kernel, metadata) }],
        silent: Vec::new(),
        trouble: None,
    }
}

fn volume_name(n: usize) -> String {
    format!("volume-{n:03}")
}

fn replica(n: usize, leads: bool) -> ReplicaStatus {
    ReplicaStatus {
        replica: n as u64,
        node: format!("node{n}"),
        online: true,
        role: if leads { "leader" } else { "follower" }.into(),
        term: Some(3),
        applied: Some(123_456),
        lag: Some(0),
        digest: None,
    }
}

/// A healthy cluster.
pub fn cluster(nodes: usize, volumes: usize) -> ClusterReport {
    let node = |n: usize| PeerReport {
        node: n as u32,
        name: format!("node{n}"),
        address: format!("10.0.0.{n}:7470"),
        connected: true,
        local: n == 1,
        version: Some("0.1.0".into()),
        pid: Some(100),
        uptime_s: Some(3600),
        epoch: Some(9),
    };
    let volume = |n: usize| VolumeHealth {
        name: volume_name(n),
        state: VolumeState::Started,
        bricks_online: 3,
        bricks: 3,
        replicas_online: 3,
        replicas: 3,
        has_leader: true,
        degraded: Some(0),
        full_bricks: Vec::new(),
    };
    ClusterReport {
        cluster: "0123456789abcdef".repeat(2),
        epoch: 9,
        node: "node1".into(),
        nodes: (1..=nodes).map(node).collect(),
        map: (1..=nodes.min(3)).map(|n| replica(n, n == 1)).collect(),
        volumes: (0..volumes).map(volume).collect(),
        attention: Vec::new(),
        deleting: Vec::new(),
    }
}

pub fn status(n: usize) -> VolumeStatus {
    let brick = |node: usize| BrickStatus {
        id: node as u16,
        brick: format!("node{node}:/srv/{}", volume_name(n)).parse().expect("a brick"),
        online: true,
        trouble: None,
        draining: false,
        port: 7470,
        pid: Some(100),
        total_bytes: Some(1000 * GIB),
        free_bytes: Some((1000 - n as u64 % 990) * GIB),
    };
    VolumeStatus {
        name: volume_name(n),
        state: VolumeState::Started,
        bricks: (1..=3).map(brick).collect(),
        replicas: (1..=3).map(|node| replica(node, node == n % 3 + 1)).collect(),
    }
}

pub fn volume(n: usize) -> VolumeReport {
    VolumeReport {
        name: volume_name(n),
        id: format!("{n:032x}"),
        state: VolumeState::Started,
        replica: 3,
        shards: None,
        created: 1_700_000_000,
        bricks: Vec::new(),
        metadata: Vec::new(),
        arbiters: Vec::new(),
        data_nodes_may_be_down: 1,
        metadata_nodes_may_be_down: 1,
        options: BTreeMap::from([("auth.allow".to_owned(), "10.*".to_owned())]),
    }
}

pub fn sessions(n: usize, clients: usize) -> SessionsReport {
    let session = |client: usize| SessionReport {
        session: format!("{client:016x}"),
        host: format!("web{client}"),
        mountpoint: Some("/mnt/shoal/a/rather/long/mount/point".into()),
        pid: Some(4711),
        address: Some(format!("10.1.{}.{}:43210", client / 250, client % 250)),
        credentials: Some(format!("client web{client}")),
        since: 1_700_000_000,
        silent_s: 1,
        watched: 12_345,
        exclusive: 234,
        locks: 3,
        locks_waiting: 0,
        granted_bytes: 1 << 20,
    };
    SessionsReport { name: volume_name(n), sessions: (0..clients).map(session).collect(), trouble: None }
}

/// A server of such a cluster.
pub struct Synthetic {
    nodes: usize,
    volumes: usize,
    clients: usize,
    takes: Duration,
    asked: AtomicU64,
}

impl Synthetic {
    /// With so many clients of each volume.
    pub fn new(nodes: usize, volumes: usize, clients: usize) -> Synthetic {
        Synthetic { nodes, volumes, clients, takes: Duration::ZERO, asked: AtomicU64::new(0) }
    }

    /// It takes this long for each answer.
    pub fn slow(self, takes: Duration) -> Synthetic {
        Synthetic { takes, ..self }
    }

    /// How often it was asked.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Admin for Synthetic {
    fn execute(
        &self,
        request: AdminRequest,
        say: &mut dyn FnMut(AdminAnswer) -> io::Result<()>,
    ) -> Result<(), String> {
        let times = self.asked.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.takes);
        let all = 0..self.volumes;
        let answer = match request {
            AdminRequest::ClusterStatus => AdminAnswer::Cluster(cluster(self.nodes, self.volumes)),
            AdminRequest::VolumeStatus { .. } => AdminAnswer::Statuses { volumes: all.map(status).collect() },
            AdminRequest::Volumes { .. } => AdminAnswer::Volumes { volumes: all.map(volume).collect() },
            AdminRequest::Sessions { .. } => {
                AdminAnswer::Sessions { volumes: all.map(|n| sessions(n, self.clients)).collect() }
            }
            AdminRequest::Tasks { .. } => AdminAnswer::Tasks { volumes: Vec::new() },
            AdminRequest::Clients => AdminAnswer::Clients { clients: Vec::new() },
            AdminRequest::Events { .. } => {
                AdminAnswer::Events(EventsReport { events: Vec::new(), silent: Vec::new() })
            }
            AdminRequest::Profile { name, .. } => {
                AdminAnswer::Profile(profile(&name, times + 1, 1000 * times))
            }
            other => return Err(format!("a page asked {other:?}")),
        };
        say(answer).map_err(|error| error.to_string())
    }
}
