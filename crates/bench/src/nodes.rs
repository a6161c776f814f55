//! Three servers on this machine, each with a brick, and a volume of three copies: what `--nodes 3` measures.
//!
//! All three share one disk and the machine's cores with the client. All data is written three times, so the
//! figures are those of a third of the disk.

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use shoal_suites::programs::quietly;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// First of the ports on the loopback address.
const PORT: u16 = 27470;
/// What a server counts of the blocks of each brick.
const BRICK_BYTES: [&str; 2] = ["shoal_brick_read_bytes_total", "shoal_brick_written_bytes_total"];
/// Longest time that a server takes to stop.
const STOP_SECONDS_MAX: u64 = 60;

fn address(node: usize) -> String {
    format!("127.0.0.1:{}", PORT + node as u16)
}

fn data(top: &Path, node: usize) -> PathBuf {
    top.join(format!("n{node}"))
}

/// A command to one node's server.
pub fn shoal(program: &Path, top: &Path, node: usize) -> Command {
    let mut command = Command::new(program);
    command.env("SHOAL_DATA", data(top, node));
    command
}

/// Starts the servers, after creating them if need be.
pub fn start(program: &Path, top: &Path, nodes: usize) -> anyhow::Result<()> {
    if !data(top, 1).exists() {
        return begin(program, top, nodes);
    }
    for node in 1..=nodes {
        quietly(shoal(program, top, node).args(["server", "--background"]))?;
    }
    Ok(())
}

/// Mounts the volume, with mount options.
pub fn mount(program: &Path, top: &Path, nodes: usize, mount: &Path, options: &str) -> anyhow::Result<()> {
    mount_volume(program, top, (nodes, "bench"), mount, options)
}

/// Mounts a volume of so many servers.
pub fn mount_volume(
    program: &Path,
    top: &Path,
    (nodes, volume): (usize, &str),
    mount: &Path,
    options: &str,
) -> anyhow::Result<()> {
    let servers: Vec<String> = (1..=nodes).map(address).collect();
    let mut command = shoal(program, top, 1);
    command.arg("mount").arg("--credentials").arg(data(top, 1).join("tls"));
    quietly(command.args(["-o", options]).arg(format!("{}:/{volume}", servers.join(","))).arg(mount))
}

/// Creates and starts the servers, without a volume.
pub fn found(program: &Path, top: &Path, nodes: usize) -> anyhow::Result<()> {
    let mut token = String::new();
    for node in 1..=nodes {
        let mut command = shoal(program, top, node);
        match node {
            1 => command.args(["cluster", "init"]),
            _ => command.args(["peer", "join", &token]),
        };
        let (address, name) = (address(node), format!("n{node}"));
        let out = command.args(["--listen", &address, "--address", &address, "--name", &name]).output()?;
        let said = String::from_utf8_lossy(&out.stdout);
        if !out.status.success() {
            bail!("{command:?} ended with {}:\n{}", out.status, String::from_utf8_lossy(&out.stderr));
        }
        if let Some(word) = said.split_whitespace().find(|word| word.starts_with("shoal1/")) {
            token = word.to_owned();
        }
    }
    Ok(())
}

/// Creates and starts a volume with bricks at these places. All servers are on one machine, so what survives
/// the death of one does not matter.
pub fn create_volume(
    program: &Path,
    top: &Path,
    (name, scheme): (&str, &str),
    bricks: &[String],
) -> anyhow::Result<()> {
    let mut create = shoal(program, top, 1);
    create.args(["volume", "create", name]).args(scheme.split(' ')).args(bricks);
    quietly(create.arg("force"))?;
    quietly(shoal(program, top, 1).args(["volume", "start", name]))
}

fn begin(program: &Path, top: &Path, nodes: usize) -> anyhow::Result<()> {
    found(program, top, nodes)?;
    let brick = |node: usize| format!("n{node}:{}", top.join(format!("brick{node}")).display());
    let bricks: Vec<String> = (1..=nodes).map(brick).collect();
    create_volume(program, top, ("bench", &format!("replica {nodes}")), &bricks)
}

/// Process ids of the servers that run.
pub fn running(top: &Path, nodes: usize) -> Vec<i32> {
    let of = |node| {
        let lock = data(top, node).join("lock");
        let pid = fs::read_to_string(&lock).ok()?.trim().parse::<i32>().ok()?;
        let name = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        name.contains(&*data(top, node).to_string_lossy()).then_some(pid)
    };
    (1..=nodes).filter_map(of).collect()
}

/// Stops the servers that run, and waits until they have ended.
pub fn stop(top: &Path, nodes: usize) -> anyhow::Result<()> {
    let mut ending: Vec<PathBuf> = Vec::new();
    for pid in running(top, nodes) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGTERM)?;
        ending.push(PathBuf::from(format!("/proc/{pid}")));
    }
    let until = Instant::now() + Duration::from_secs(STOP_SECONDS_MAX);
    while ending.iter().any(|process| process.exists()) {
        if Instant::now() >= until {
            bail!("the servers in {} do not stop", top.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn stats(program: &Path, mount: &Path) -> anyhow::Result<Value> {
    let out = Command::new(program).arg("stats").arg(mount).arg("--json").output()?;
    let stats: Value = serde_json::from_slice(&out.stdout).context("shoal stats --json")?;
    Ok(stats.get(0).cloned().unwrap_or(stats))
}

/// Bytes of blocks that each brick of some servers has read, and written, since it was opened, by its path.
pub fn brick_bytes(program: &Path, top: &Path, nodes: usize) -> anyhow::Result<BTreeMap<String, [u64; 2]>> {
    let mut bytes = BTreeMap::<String, [u64; 2]>::new();
    for node in 1..=nodes {
        let out = shoal(program, top, node).arg("metrics").output()?;
        let metrics = String::from_utf8(out.stdout).context("shoal metrics")?;
        for (index, name) in BRICK_BYTES.iter().enumerate() {
            for line in metrics.lines().filter(|line| line.starts_with(&format!("{name}{{"))) {
                let (labels, value) = line.rsplit_once(' ').context("a metric without a value")?;
                let path = labels.split("brick=\"").nth(1).and_then(|rest| rest.split('"').next());
                let path = path.with_context(|| format!("no brick in {line}"))?;
                bytes.entry(path.to_owned()).or_default()[index] = value.parse().context(line.to_owned())?;
            }
        }
    }
    ensure!(!bytes.is_empty(), "shoal metrics shows no bricks");
    Ok(bytes)
}

/// How many recalls a mount was sent since it was mounted.
pub fn recalls(program: &Path, mount: &Path) -> anyhow::Result<u64> {
    let stats = stats(program, mount)?;
    let numbers = stats["client"].as_array().context("shoal stats --json has no client")?;
    let recalls = numbers.iter().find(|one| one["name"] == "client_recalls_total");
    recalls.and_then(|one| one["value"].as_u64()).context("client_recalls_total is not counted")
}

/// Latencies of the kernel's requests to a mount so far, as a histogram: the count of those that took 2^n up
/// to 2^(n+1) nanoseconds, by n. Those of fsync(2) are separate: they wait for the disk.
#[derive(Clone, Default)]
pub struct Latencies {
    calls: Vec<u64>,
    fsyncs: Vec<u64>,
}

impl Latencies {
    /// Adds the counts of another mount.
    fn add(&mut self, op: &Value) {
        let is_fsync = op["name"].as_str().is_some_and(|name| name.starts_with("fsync"));
        let sums = if is_fsync { &mut self.fsyncs } else { &mut self.calls };
        let counts = op["latency_log2"].as_array().into_iter().flatten();
        for (bucket, count) in counts.filter_map(Value::as_u64).enumerate() {
            if sums.len() <= bucket {
                sums.resize(bucket + 1, 0);
            }
            sums[bucket] += count;
        }
    }

    /// Upper bounds of the longest request and of the longest fsync since an earlier moment, in seconds.
    pub fn longest_since(&self, before: &Latencies) -> [f64; 2] {
        [(&self.calls, &before.calls), (&self.fsyncs, &before.fsyncs)].map(|(now, before)| {
            let is_new = |bucket: &usize| now[*bucket] > before.get(*bucket).copied().unwrap_or(0);
            let longest = (0..now.len()).rev().find(is_new);
            longest.map_or(0.0, |bucket| 2f64.powi(bucket as i32 + 1) / 1e9)
        })
    }
}

/// The latencies of some mounts, added.
pub fn latencies(program: &Path, mounts: impl Iterator<Item = PathBuf>) -> anyhow::Result<Latencies> {
    let mut all = Latencies::default();
    for mount in mounts {
        let stats = stats(program, &mount)?;
        stats["kernel"]
            .as_array()
            .context("shoal stats --json has no kernel")?
            .iter()
            .for_each(|op| all.add(op));
    }
    Ok(all)
}

/// Counters of a mount: `meta` calls and bytes on the wire.
pub fn counted(program: &Path, mount: &Path) -> anyhow::Result<Counted> {
    let stats = stats(program, mount)?;
    let sum = |list: &str, field: &str| -> u64 {
        stats[list].as_array().into_iter().flatten().filter_map(|one| one[field].as_u64()).sum()
    };
    let number = |name: &str| -> Option<u64> {
        let lists = ["client", "server", "network"].into_iter();
        let all = lists.flat_map(|list| stats[list].as_array().into_iter().flatten());
        all.clone().find(|one| one["name"] == name).and_then(|one| one["value"].as_u64())
    };
    Ok(Counted {
        requests: number("net_requests_total")
            .unwrap_or_else(|| sum("meta", "count") + sum("brick", "count")),
        sent_bytes: number("net_sent_bytes_total").unwrap_or(0),
    })
}

/// Counters of a mount, see [`counted`].
#[derive(Clone, Copy, Default)]
pub struct Counted {
    /// Requests that were answered.
    pub requests: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}
