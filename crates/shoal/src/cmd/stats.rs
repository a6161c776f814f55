//! `shoal stats`.

use crate::control::{self, Number, Request, Statistics};
use crate::profile::{OpReport, since_all};
use crate::{find, show};
use anyhow::bail;
use clap::Args;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Shows what a mounted volume has done: requests of the kernel, caches, journal, disk.
///
/// Latencies are in powers of two: "p99 16.4 us" means that 99 of 100 took less than that and more than half
/// of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal stats                        counts since each volume was mounted
  shoal stats /mnt/shoal --watch 1   what happens in every second
  shoal stats /mnt/shoal --json      one JSON object, for programs")]
pub struct Stats {
    /// A mount, or anything on it, or a data directory; all mounts if left out
    path: Option<PathBuf>,
    /// One JSON object per node and line
    #[arg(long)]
    json: bool,
    /// Repeat every so many seconds and show what was done in between
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(f64))]
    watch: Option<f64>,
}

impl Stats {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let nodes = find::nodes(self.path.as_deref())?;
        if nodes.is_empty() {
            bail!("no Shoal volume is mounted here; `shoal up` serves and mounts one");
        }
        let pause = match self.watch {
            None => None,
            Some(seconds) if (0.01..=86_400.0).contains(&seconds) => Some(Duration::from_secs_f64(seconds)),
            Some(_) => bail!("--watch wants seconds, 0.01 to 86400"),
        };
        let mut before: HashMap<PathBuf, Statistics> = HashMap::new();
        loop {
            for data in &nodes {
                let now: Statistics = control::request(data, &Request::Stats)?;
                let shown = match before.get(data) {
                    Some(before) => since(before, &now),
                    None => now.clone(),
                };
                if self.json {
                    println!("{}", serde_json::to_string(&shown)?);
                } else {
                    show(&shown, before.contains_key(data));
                }
                before.insert(data.clone(), now);
            }
            match pause {
                Some(pause) => std::thread::sleep(pause),
                None => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

fn show(stats: &Statistics, interval: bool) {
    let span = if interval { "in between" } else { "since the start" };
    println!(
        "{}: up {}, {} resident; {} kernel requests {span}, {} waiting, {} read, {} written",
        stats.mountpoint.display(),
        show::seconds(stats.uptime_s),
        show::bytes(stats.resident_bytes),
        stats.kernel_requests,
        stats.kernel_waiting,
        show::bytes(stats.kernel_read_bytes),
        show::bytes(stats.kernel_written_bytes)
    );
    table("kernel requests", &stats.kernel, true);
    table("metadata calls", &stats.meta, false);
    table("brick calls", &stats.brick, false);
    numbers("client", &stats.client);
    if let Some(ratio) = read_amplification(&stats.client) {
        println!("    {:36} {ratio:>14.2}", "bytes fetched per byte read");
    }
    numbers("metadata server", &stats.server);
}

fn table(title: &str, ops: &[OpReport], slow: bool) {
    if ops.is_empty() {
        return;
    }
    let last = if slow { "waited" } else { "" };
    println!(
        "\n  {title:18} {:>10} {:>8} {:>9} {:>9} {:>9} {:>9} {last:>8}",
        "count", "errors", "mean", "p50", "p99", "max"
    );
    for op in ops {
        let [mean, p50, p99, max] = [op.mean_ns, op.p50_ns, op.p99_ns, op.max_ns].map(show::nanos);
        let slow = if slow { op.slow.to_string() } else { String::new() };
        println!(
            "  {:18} {:>10} {:>8} {mean:>9} {p50:>9} {p99:>9} {max:>9} {slow:>8}",
            op.name, op.count, op.errors
        );
    }
}

fn numbers(title: &str, numbers: &[Number]) {
    if numbers.is_empty() {
        return;
    }
    println!("\n  {title}");
    for Number { name, value } in numbers {
        let shown = if name.contains("bytes") { show::bytes(*value) } else { value.to_string() };
        println!("    {name:36} {shown:>14}");
    }
}

/// Bytes of blocks that were fetched from bricks, divided by those that reads returned. `None` if there were
/// no reads of blocks. Below 1, the rest came from memory.
fn read_amplification(client: &[Number]) -> Option<f64> {
    let value = |name| client.iter().find(|number| number.name == name).map(|number| number.value as f64);
    let (fetched, returned) = (value("blocks_get_bytes_total")?, value("blocks_read_bytes_total")?);
    (returned > 0.0).then(|| fetched / returned)
}

/// The difference between two samples.
fn since(before: &Statistics, now: &Statistics) -> Statistics {
    // Names of counters end in `_total`; the others are gauges.
    let numbers = |before: &[Number], now: &[Number]| -> Vec<Number> {
        let earlier: HashMap<&str, u64> =
            before.iter().map(|number| (number.name.as_str(), number.value)).collect();
        let less = now.iter().map(|number| {
            let before = if number.name.ends_with("_total") {
                earlier.get(number.name.as_str()).copied()
            } else {
                None
            };
            Number { name: number.name.clone(), value: number.value.saturating_sub(before.unwrap_or(0)) }
        });
        less.collect()
    };
    Statistics {
        kernel_requests: now.kernel_requests.saturating_sub(before.kernel_requests),
        kernel_read_bytes: now.kernel_read_bytes.saturating_sub(before.kernel_read_bytes),
        kernel_written_bytes: now.kernel_written_bytes.saturating_sub(before.kernel_written_bytes),
        kernel: since_all(&before.kernel, &now.kernel),
        meta: since_all(&before.meta, &now.meta),
        brick: since_all(&before.brick, &now.brick),
        client: numbers(&before.client, &now.client),
        server: numbers(&before.server, &now.server),
        ..now.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_amplification_is_known_once_something_was_read() {
        let client = |fetched, returned| {
            [("blocks_get_bytes_total", fetched), ("blocks_read_bytes_total", returned)]
                .map(|(name, value)| Number { name: name.to_owned(), value })
        };
        assert_eq!(read_amplification(&client(130, 100)), Some(1.3));
        assert_eq!(read_amplification(&client(4096, 0)), None, "only fetched ahead");
        assert_eq!(read_amplification(&[]), None);
    }
}
