//! What bricks and mounts do, in the lines that GlusterFS's `volume profile` and `volume top` have.

use super::table::Table;
use crate::admin::{MountName, MountTop, ProfileReport, TopFile, TopReport};
use crate::profile::{OpReport, Profile, Profiled};
use crate::show;
use std::fmt::Write;

/// Which parts of a profile are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Both.
    All,
    /// What was done since the process began.
    Cumulative,
    /// What was done in the present interval.
    Interval,
}

/// Columns of block sizes in a row.
const SIZES_IN_ROW: usize = 6;

/// `volume profile NAME info`.
pub fn profile(report: &ProfileReport, shown: Shown) -> String {
    let mut text = String::new();
    for one in &report.bricks {
        let title = format!("Brick: {}", one.brick);
        match &one.profiled {
            Some(profiled) => add(&mut text, &title, profiled, shown),
            None => {
                let why = one.trouble.as_deref().unwrap_or("unknown");
                let _ = writeln!(text, "{title}\n{}\n{why}\n", "-".repeat(title.len()));
            }
        }
    }
    for one in &report.mounts {
        add(&mut text, &format!("Mount: {}", one.mount), &one.profiled, shown);
    }
    add_missing(&mut text, &report.silent, report.trouble.as_deref());
    text
}

fn add(text: &mut String, title: &str, profiled: &Profiled, shown: Shown) {
    let _ = writeln!(text, "{title}\n{}", "-".repeat(title.len()));
    if shown != Shown::Interval {
        text.push_str("Cumulative Stats:\n");
        add_profile(text, &profiled.cumulative);
    }
    if shown != Shown::Cumulative {
        let _ = writeln!(text, "Interval {} Stats:", profiled.interval_number);
        add_profile(text, &profiled.interval);
    }
}

fn add_profile(text: &mut String, profile: &Profile) {
    add_sizes(text, profile);
    add_calls(text, &profile.operations, "Fop");
    add_calls(text, &profile.metadata, "Metadata call");
    let Profile { duration_s, reads, writes, .. } = profile;
    let _ = writeln!(
        text,
        "    Duration: {duration_s} seconds\n   Data Read: {} bytes\nData Written: {} bytes\n",
        reads.bytes, writes.bytes
    );
}

fn add_sizes(text: &mut String, profile: &Profile) {
    let count = |sizes: &[u64], bucket: usize| sizes.get(bucket).copied().unwrap_or(0);
    let (reads, writes) = (&profile.reads.size_log2, &profile.writes.size_log2);
    let occurred = |bucket: &usize| count(reads, *bucket) + count(writes, *bucket) > 0;
    let buckets: Vec<usize> = (0..reads.len().max(writes.len())).filter(occurred).collect();
    for row in buckets.chunks(SIZES_IN_ROW) {
        let mut line = |title: &str, cell: &dyn Fn(usize) -> String| {
            let cells: String = row.iter().map(|bucket| format!(" {:>12}", cell(*bucket))).collect();
            let _ = writeln!(text, "{title:>14}{cells}");
        };
        line("Block Size:", &|bucket| format!("{}b+", 1u64 << bucket));
        line("No. of Reads:", &|bucket| count(reads, bucket).to_string());
        line("No. of Writes:", &|bucket| count(writes, bucket).to_string());
        text.push('\n');
    }
}

fn add_calls(text: &mut String, calls: &[OpReport], title: &str) {
    if calls.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "{:>10} {:>15} {:>15} {:>15} {:>14} {title:>15}\n{:>10} {:>15} {:>15} {:>15} {:>14} {:>15}",
        "%-latency",
        "Avg-latency",
        "Min-Latency",
        "Max-Latency",
        "No. of calls",
        "---------",
        "-----------",
        "-----------",
        "-----------",
        "------------",
        "-".repeat(title.len()),
    );
    let all: u64 = calls.iter().map(|call| call.total_ns).sum();
    let mut calls: Vec<&OpReport> = calls.iter().collect();
    calls.sort_by_key(|call| call.total_ns);
    for call in calls {
        let part = call.total_ns as f64 * 100.0 / all.max(1) as f64;
        let [avg, min, max] = [call.mean_ns, call.min_ns(), call.max_ns].map(|ns| ns as f64 / 1e3);
        let _ = writeln!(
            text,
            "{part:>10.2} {avg:>12.2} us {min:>12.2} us {max:>12.2} us {:>14} {:>15}",
            call.count,
            call.name.to_uppercase()
        );
    }
    text.push('\n');
}

/// `volume top NAME ...`.
pub fn top(report: &TopReport) -> String {
    let mut text = String::new();
    for one in &report.mounts {
        let _ = writeln!(text, "Mount: {}, counted for {}", one.mount, show::seconds(one.duration_s));
        match report.by_bytes {
            true => add_throughput(&mut text, one),
            false => add_counts(&mut text, one),
        }
        text.push('\n');
    }
    if report.mounts.is_empty() && report.silent.is_empty() && report.trouble.is_none() {
        let _ = writeln!(text, "Volume {} is not mounted anywhere", report.name);
    }
    add_missing(&mut text, &report.silent, report.trouble.as_deref());
    text
}

fn add_counts(text: &mut String, mount: &MountTop) {
    let _ = writeln!(text, "{:<16}filename\n=======================", "Count");
    for file in &mount.files {
        let least = file.count - file.over_max.min(file.count);
        let count =
            if file.over_max == 0 { file.count.to_string() } else { format!("{least} to {}", file.count) };
        let _ = writeln!(text, "{count:<16}{}", name(file));
    }
}

fn add_throughput(text: &mut String, mount: &MountTop) {
    let mut table = Table::new(&[">MBps", ">Bytes", ">Requests", "Filename"]);
    for file in &mount.files {
        let rate = file.bytes as f64 / 1e6 / mount.duration_s.max(1) as f64;
        table.row(&[&format!("{rate:.2}"), &file.bytes, &file.count, &name(file)]);
    }
    text.push_str(&table.render(true));
}

fn name(file: &TopFile) -> String {
    file.path.clone().unwrap_or_else(|| format!("(inode {}: removed, or not committed yet)", file.inode))
}

/// Mounts of which nothing is known.
fn add_missing(text: &mut String, silent: &[MountName], trouble: Option<&str>) {
    if let Some(trouble) = trouble {
        let _ = writeln!(text, "The mounts are not known: {trouble}");
    }
    for mount in silent {
        let _ = writeln!(text, "Mount: {mount}\nIt has not answered: it hangs, or its program is older.\n");
    }
}
