//! The machine of the measurements.

use anyhow::Context;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A line about processor, memory, kernel, disk and file system.
pub fn describe(dir: &Path) -> anyhow::Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let meminfo = field(&fs::read_to_string("/proc/meminfo")?, "MemTotal");
    let memory_gib =
        meminfo.split(' ').next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / (1 << 20) as f64;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let df = Command::new("df").arg("--output=source,fstype").arg(dir).output()?;
    let disk = String::from_utf8_lossy(&df.stdout)
        .lines()
        .nth(1)
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(", ");
    let processor = field(&cpuinfo, "model name");
    Ok(format!("{cores} x {processor}, {memory_gib:.0} GiB of memory, Linux {}; disk: {disk}", kernel.trim()))
}

/// Memory that a process has in use, in bytes; `process` is a number or `self`.
pub fn resident_bytes(process: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).context("no VmRSS")?.parse()?;
    Ok(kib << 10)
}

/// Bytes on disk of everything below a directory.
pub fn dir_bytes(dir: &Path) -> anyhow::Result<u64> {
    let out = Command::new("du").arg("-s").arg("--block-size=1").arg(dir).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    Ok(text.split_whitespace().next().context("du tells no size")?.parse()?)
}

/// Type and source of a directory's file system.
pub fn filesystem(dir: &Path) -> anyhow::Result<String> {
    let out = Command::new("df").arg("--output=fstype,source").arg(dir).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let words: Vec<&str> = text.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    Ok(match words.split_first() {
        Some((kind, source)) => format!("{kind} ({})", source.join(" ")),
        None => "unknown".to_owned(),
    })
}
