//! What the figures were measured on.

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
