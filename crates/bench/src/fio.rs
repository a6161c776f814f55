//! Runs fio, the field's tool for measuring reads and writes of files.

use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A job of fio: how files are read or written, each by one thread.
pub struct Job {
    /// Its files: as many threads run at a time.
    pub files: Vec<PathBuf>,
    /// fio's `rw`: `read`, `randread`, `read:768k` (skips that much after each record), `write`.
    pub pattern: String,
    /// Length of a record in bytes.
    pub record: u64,
    /// Length of each file in bytes.
    pub size: u64,
    /// Bytes that each thread reads or writes.
    pub bytes: u64,
}

impl Job {
    /// Of one file, which is read or written as a whole.
    pub fn whole(file: &Path, pattern: &str, record: u64, size: u64) -> Job {
        Job { files: vec![file.to_owned()], pattern: pattern.to_owned(), record, size, bytes: size }
    }

    /// Runs it, and answers how many seconds its slowest thread took. Records are random bytes; what was
    /// written is on disk at the end.
    pub fn run(&self) -> anyhow::Result<f64> {
        let mut fio = Command::new("fio");
        fio.args(["--output-format=json", "--ioengine=psync", "--end_fsync=1", "--thread", "--randrepeat=1"]);
        // Like a program that gives the kernel no advice.
        fio.arg("--fadvise_hint=0");
        fio.arg(format!("--rw={}", self.pattern))
            .arg(format!("--bs={}", self.record))
            .arg(format!("--size={}", self.size))
            .arg(format!("--io_size={}", self.bytes));
        for (number, file) in self.files.iter().enumerate() {
            fio.arg(format!("--name=job{number}")).arg(format!("--filename={}", file.display()));
        }
        let out = fio.output().context("fio")?;
        ensure!(out.status.success(), "fio failed: {}", String::from_utf8_lossy(&out.stderr).trim());
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).context("fio's report")?;
        let jobs = report["jobs"].as_array().context("fio reports no jobs")?;
        let way = if self.pattern.contains("write") { "write" } else { "read" };
        let mut slowest = 0;
        for job in jobs {
            ensure!(job["error"] == 0, "fio: error {}", job["error"]);
            let done = job[way]["io_bytes"].as_u64().unwrap_or_default();
            ensure!(done >= self.bytes, "fio: {done} of {} bytes", self.bytes);
            slowest = slowest.max(job[way]["runtime"].as_u64().context("fio tells no runtime")?);
        }
        Ok(slowest as f64 / 1000.0)
    }
}
