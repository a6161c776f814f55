//! PostgreSQL: transactions of pgbench, each of which ends with a flush of the database's log, reads of its
//! tables, and the time until the database answers after it was killed.

use crate::limits::{DATABASE_CLIENTS, DATABASE_SCALE, DATABASE_SECONDS};
use crate::measure::Bench;
use shoal_suites::postgres::Postgres;
use std::fs;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let sides = bench.sides()?;
    let local = tempfile::tempdir()?;
    let load = ["-n", "-c", DATABASE_CLIENTS, "-j", "2", "-T", DATABASE_SECONDS];
    bench.alternate(&sides, |bench, side, _| {
        let data = side.path().join("database");
        let server = Postgres::at(&data, local.path())?;
        server.create()?;
        server.start()?;
        bench.time(side, &format!("pgbench: fill tables of scale {DATABASE_SCALE}"), None, || {
            server.pgbench(&["-i", "-q", "-s", DATABASE_SCALE])
        })?;
        let kept = |what: &str| format!("pgbench: 1,000 {what}, {DATABASE_CLIENTS} clients");
        let written = server.pgbench(&load)?;
        bench.keep(side, &kept("transactions"), None, 1000.0 / written.per_second);
        server.kill();
        bench.time(side, "PostgreSQL: answers after kill -9", None, || server.start())?;
        server.check()?;
        let read = server.pgbench(&[&load[..], &["-S"]].concat())?;
        bench.keep(side, &kept("reads"), None, 1000.0 / read.per_second);
        server.stop()?;
        fs::remove_dir_all(&data)?;
        side.sync()
    })
}
