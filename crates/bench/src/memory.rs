//! The memory that one million files take.

use crate::limits::{MEMORY_FILE_BYTES, MEMORY_FILES, MILLION_FILES_PER_DIR};
use crate::measure::Bench;
use crate::side::Which;
use shoal_suites::machine::resident_bytes;
use shoal_suites::programs::bash;
use std::fs;
use std::time::Instant;

/// Runs the benchmark. Server and client are one process here.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let side = bench.side(Which::Shoal)?;
    let mut note = |what: &str, started: Instant| -> anyhow::Result<()> {
        let fact = format!(
            "{what}: {} MiB resident (one process is client and server), {:.0} s",
            resident_bytes(&side.server()?.to_string())? >> 20,
            started.elapsed().as_secs_f64()
        );
        eprintln!("{fact}");
        bench.facts.push(fact);
        Ok(())
    };
    note("memory of an empty volume", Instant::now())?;
    let started = Instant::now();
    let content = vec![b'm'; MEMORY_FILE_BYTES];
    for number in 0..MEMORY_FILES {
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
