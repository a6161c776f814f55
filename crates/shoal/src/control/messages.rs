//! What is asked and answered on the control socket. `shoal stats --json` shows these as they are.

use crate::admin::AdminRequest;
use serde::{Deserialize, Serialize};
use shoal_fuse::OpStats;
use std::path::PathBuf;

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Request {
    /// Who the node is and how it does: one [`Status`].
    Status,
    /// What it has counted: one [`Statistics`].
    Stats,
    /// Make everything done on its mount so far durable: one [`Synced`] when it is.
    Sync,
    /// The mount is about to be taken away by force: end every wait, and try only for a moment to save what
    /// was not written back. One [`Synced`].
    Abandon,
    /// Verify all blocks: [`ScrubReport`]s until it is done. Ends early when the asker hangs up.
    Scrub {
        /// Read no faster than this.
        bytes_per_second: Option<u64>,
    },
    /// Administration of the cluster: [`AdminAnswer`](crate::admin::AdminAnswer)s.
    Admin {
        /// What is asked for.
        request: AdminRequest,
    },
}

/// Everything is durable that can be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Synced {
    /// There is nothing to write back any more, because the servers do not serve this mount: why, and what
    /// was lost by it.
    #[serde(default)]
    pub refused: Option<String>,
}

/// A running node, in a few words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// For how long it has been running, in seconds.
    pub uptime_s: u64,
    /// Name of the volume.
    pub volume: String,
    /// Identity of the volume.
    pub id: String,
    /// The data directory; of a cluster's mount, where its log is.
    pub data: PathBuf,
    /// `HOST:/VOLUME`, if it is a cluster's mount.
    #[serde(default)]
    pub source: Option<String>,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// The options with which it was mounted, separated by commas.
    #[serde(default)]
    pub options: String,
    /// The volume itself is read-only (`volume set NAME read-only on`): no mount of it may be written to.
    #[serde(default)]
    pub read_only_volume: bool,
    /// The mounted client's session.
    pub session: u64,
    /// Size of the volume in bytes.
    pub total_bytes: u64,
    /// Room left in it.
    pub free_bytes: u64,
    /// Files of any kind in it.
    pub inodes: u64,
    /// Why the servers do not serve this mount at present.
    #[serde(default)]
    pub refused: Option<String>,
}

/// Calls of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpReport {
    /// Which kind.
    pub name: String,
    /// How many.
    pub count: u64,
    /// How many of them failed.
    pub errors: u64,
    /// How many could not be answered from memory.
    pub slow: u64,
    /// Mean duration, in nanoseconds.
    pub mean_ns: u64,
    /// Duration that half of them did not exceed, to a power of two.
    pub p50_ns: u64,
    /// Duration that 99 of 100 did not exceed, to a power of two.
    pub p99_ns: u64,
    /// Upper bound of the longest, to a power of two.
    pub max_ns: u64,
    /// All durations together.
    pub total_ns: u64,
    /// How many took 2^n up to 2^(n+1) nanoseconds, by n.
    pub latency_log2: Vec<u64>,
}

impl OpReport {
    /// Completes what follows from the histogram and the total.
    fn summed_up(mut self) -> OpReport {
        while self.latency_log2.last() == Some(&0) {
            self.latency_log2.pop();
        }
        self.count = self.latency_log2.iter().sum();
        self.mean_ns = self.total_ns.checked_div(self.count).unwrap_or(0);
        [self.p50_ns, self.p99_ns, self.max_ns] = [0.5, 0.99, 1.0].map(|part| {
            let want = ((self.count as f64 * part).ceil() as u64).max(1);
            let mut seen = 0;
            let bucket = self.latency_log2.iter().position(|count| {
                seen += count;
                seen >= want
            });
            bucket.map_or(0, |bucket| 2 << bucket.min(62))
        });
        self
    }

    /// What was added since an earlier report.
    pub fn since(&self, before: &OpReport) -> OpReport {
        let earlier = before.latency_log2.iter().copied().chain(std::iter::repeat(0));
        let latency_log2 =
            self.latency_log2.iter().zip(earlier).map(|(now, then)| now.saturating_sub(then)).collect();
        let less = OpReport {
            name: self.name.clone(),
            errors: self.errors.saturating_sub(before.errors),
            slow: self.slow.saturating_sub(before.slow),
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            latency_log2,
            ..OpReport::default()
        };
        less.summed_up()
    }
}

impl From<&OpStats> for OpReport {
    fn from(stats: &OpStats) -> OpReport {
        let report = OpReport {
            name: stats.name.to_owned(),
            errors: stats.errors,
            slow: stats.slow,
            total_ns: stats.total_ns,
            latency_log2: stats.latency.to_vec(),
            ..OpReport::default()
        };
        report.summed_up()
    }
}

/// A named number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Number {
    /// What is counted.
    pub name: String,
    /// How much.
    pub value: u64,
}

/// What a process has counted since it started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// Version of the program.
    #[serde(default)]
    pub version: String,
    /// Name of the mounted volume.
    #[serde(default)]
    pub volume: String,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Whether the servers do not serve the mount at present.
    #[serde(default)]
    pub refused: bool,
    /// For how long it has been running, in seconds.
    pub uptime_s: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Requests of the kernel, all together.
    pub kernel_requests: u64,
    /// Requests of the kernel that wait for a disk at this moment.
    pub kernel_waiting: u64,
    /// Bytes that READ requests returned.
    #[serde(default)]
    pub kernel_read_bytes: u64,
    /// Bytes that WRITE requests carried.
    #[serde(default)]
    pub kernel_written_bytes: u64,
    /// Requests of the kernel by kind.
    pub kernel: Vec<OpReport>,
    /// The client's counters: cache hits, journal depth, ...
    pub client: Vec<Number>,
    /// Calls of the metadata service by kind.
    pub meta: Vec<OpReport>,
    /// The metadata server's counters.
    pub server: Vec<Number>,
    /// Calls of the brick by kind.
    pub brick: Vec<OpReport>,
    /// What runs on a node of a cluster.
    #[serde(default)]
    pub node: Option<NodeStatistics>,
}

/// What a node of a cluster has counted since its server started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatistics {
    /// Its name.
    pub name: String,
    /// The cluster's identity.
    pub cluster: String,
    /// Epoch of the cluster map that it knows.
    pub epoch: u64,
    /// Whether it has stopped serving, because it was detached or another process has its identity.
    #[serde(default)]
    pub fenced: bool,
    /// What it sent to other nodes.
    #[serde(default)]
    pub figures: Vec<Number>,
    /// Its replicas of metadata.
    pub replicas: Vec<ReplicaStatistics>,
    /// Its bricks.
    pub bricks: Vec<BrickStatistics>,
}

/// A replica of a volume's metadata.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReplicaStatistics {
    /// Its volume; empty for the group of the cluster map.
    pub volume: String,
    /// Its number in its group.
    pub id: u64,
    /// Whether it runs.
    pub runs: bool,
    /// Whether it leads, and so serves.
    pub leads: bool,
    /// Its counters, and those of the metadata server around it.
    pub figures: Vec<Number>,
    /// The steps of its proposals.
    #[serde(default)]
    pub steps: Vec<OpReport>,
    /// Requests that clients made of it.
    #[serde(default)]
    pub requests: Vec<OpReport>,
    /// What the volume lacks, if it leads.
    pub heal: Option<HealStatistics>,
}

/// What a volume lacks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HealStatistics {
    /// Blocks that lack copies or lie on the wrong bricks, as far as known.
    pub degraded_blocks: u64,
    /// Blocks of which no good copy could be read.
    pub failed_blocks: u64,
    /// Blocks copied since the server began.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
}

/// A brick of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BrickStatistics {
    /// Its volume.
    pub volume: String,
    /// Its directory.
    pub path: PathBuf,
    /// Whether it is served.
    pub serves: bool,
    /// Size of its disk in bytes.
    pub total_bytes: u64,
    /// Free bytes on its disk.
    pub free_bytes: u64,
    /// Calls by kind.
    pub calls: Vec<OpReport>,
    /// Bytes of blocks written.
    #[serde(default)]
    pub written_bytes: u64,
    /// Bytes of blocks read.
    #[serde(default)]
    pub read_bytes: u64,
    /// Blocks that were read to check them.
    pub scrubbed_blocks: u64,
    /// Blocks that were damaged or could not be read.
    pub damaged_blocks: u64,
    /// Damaged blocks that were replaced.
    pub repaired_blocks: u64,
}

/// How a scrub proceeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scrub", rename_all = "lowercase")]
pub enum ScrubReport {
    /// So far.
    Progress {
        /// Blocks read.
        blocks: u64,
        /// Bytes read.
        bytes: u64,
    },
    /// A block that cannot be read as it was put.
    Damaged {
        /// Which one, and what is wrong with it.
        what: String,
    },
    /// All blocks were read.
    Done {
        /// Blocks read.
        blocks: u64,
        /// Bytes read.
        bytes: u64,
        /// Blocks that are damaged.
        damaged: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_sums_up_its_histogram_and_subtracts_an_earlier_one() {
        let report = |latency_log2, total_ns| {
            OpReport { name: "read".into(), total_ns, latency_log2, ..OpReport::default() }.summed_up()
        };
        let before = report(vec![0, 0, 10], 50);
        let now = report(vec![0, 0, 10, 0, 0, 99, 1, 0, 0], 4050);
        assert_eq!((now.count, now.mean_ns, now.p50_ns, now.p99_ns, now.max_ns), (110, 36, 64, 64, 128));
        let between = now.since(&before);
        assert_eq!((between.count, between.mean_ns, between.p50_ns, between.max_ns), (100, 40, 64, 128));
        assert_eq!(between.latency_log2.len(), 7);
        assert_eq!(now.since(&now), OpReport { name: "read".into(), ..OpReport::default() });
    }
}
