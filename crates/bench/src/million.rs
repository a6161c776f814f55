//! What one million files cost in memory.

use crate::limits::{MILLION_FILE_BYTES, MILLION_FILES, MILLION_FILES_PER_DIR};
use crate::measure::Bench;
use crate::side::{Side, Which, bash};
use anyhow::Context;
use std::fs;
use std::time::Instant;

/// Measures it. Server and client are one process here.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let side = bench.side(Which::Shoal)?;
    let mut note = |what: &str, started: Instant| -> anyhow::Result<()> {
        let fact = format!(
            "{what}: {} MiB resident (one process is client and server), {:.0} s",
            resident_mib(&side)?,
            started.elapsed().as_secs_f64()
        );
        eprintln!("{fact}");
        bench.facts.push(fact);
        Ok(())
    };
    note("memory of an empty volume", Instant::now())?;
    let started = Instant::now();
    let content = vec![b'm'; MILLION_FILE_BYTES];
    for number in 0..MILLION_FILES {
        let dir = side.path().join(format!("dir-{}", number / MILLION_FILES_PER_DIR));
        if number % MILLION_FILES_PER_DIR == 0 {
            fs::create_dir(&dir)?;
        }
        fs::write(dir.join(format!("file-{number}")), &content)?;
    }
    side.sync()?;
    note("after creating one million files of 80 bytes", started)?;
    side.make_cold()?;
    note("after a restart", Instant::now())?;
    let started = Instant::now();
    bash(&side.path(), "test $(find . -type f -size +0 | wc -l) = 1000000")?;
    note("after find has looked at all of them", started)?;
    let started = Instant::now();
    bash(&side.path(), "tar cf - . | cat >/dev/null")?;
    note("after tar has read all of them", started)
}

fn resident_mib(side: &Side) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", side.server()?))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).context("no VmRSS")?.parse()?;
    Ok(kib >> 10)
}
