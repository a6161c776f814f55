//! `stream`: clients write and read a long file each, in sequence, at random and in strides.

use crate::interrupt;
use crate::limits::STRIDE_RECORDS;
use crate::turn::Turn;
use anyhow::{Context, ensure};
use rand::seq::SliceRandom;
use rand::{RngCore, SeedableRng};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The order of the records that one client reads or writes.
type Order = Vec<u64>;

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    for &record in &turn.plan.record_bytes {
        one(turn, record)?;
    }
    Ok(())
}

fn path(turn: &Turn, client: usize) -> PathBuf {
    turn.top(client).join(format!("stream-{client}"))
}

fn one(turn: &mut Turn, record: u64) -> anyhow::Result<()> {
    let clients = turn.plan.threads;
    let records = turn.plan.stream_bytes / clients as u64 / record;
    ensure!(records > 0, "--stream-size leaves no record of {record} bytes to each of {clients} clients");
    let seed = turn.seed;
    let random = |client: usize| {
        let mut order: Order = (0..records).collect();
        order.shuffle(&mut rand::rngs::StdRng::seed_from_u64(seed << 32 | client as u64));
        order
    };
    let strided = |_| (0..records).step_by(STRIDE_RECORDS as usize).collect::<Order>();
    let sequential = |_| (0..records).collect::<Order>();
    let named = |what: &str| format!("{what}, {clients} clients, records of {}", size(record));
    turn.time(&named("write, fsync"), clients, |turn| write(turn, record, &sequential))?;
    type Orders<'a> = &'a (dyn Fn(usize) -> Order + Sync);
    let orders: [(&str, Orders); 3] =
        [("sequential", &sequential), ("random", &random), ("strided", &strided)];
    for (name, order) in orders {
        if turn.make_cold()? {
            turn.time(&named(&format!("{name} read, cold")), clients, |turn| read(turn, record, order))?;
        }
    }
    // Every record, so that what follows is warm, although cold reads may have been left out or in strides.
    read(turn, record, &sequential)?;
    turn.time(&named("sequential read, warm"), clients, |turn| read(turn, record, &sequential))?;
    turn.time(&named("random read, warm"), clients, |turn| read(turn, record, &random))?;
    turn.time(&named("random rewrite, fsync"), clients, |turn| write(turn, record, &random))?;
    turn.parallel(clients, |client| Ok(fs::remove_file(path(turn, client))?))?;
    turn.sync()
}

fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

fn write(turn: &Turn, record: u64, order: &(dyn Fn(usize) -> Order + Sync)) -> anyhow::Result<()> {
    // Random bytes: no side may win by compressing.
    let mut data = vec![0; record as usize];
    rand::rngs::StdRng::seed_from_u64(turn.seed).fill_bytes(&mut data);
    turn.parallel(turn.plan.threads, |client| {
        let path = path(turn, client);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        for number in order(client) {
            interrupt::check()?;
            file.write_all_at(&data, number * record).with_context(|| path.display().to_string())?;
        }
        file.sync_all().with_context(|| path.display().to_string())
    })
}

fn read(turn: &Turn, record: u64, order: &(dyn Fn(usize) -> Order + Sync)) -> anyhow::Result<()> {
    turn.parallel(turn.plan.threads, |client| {
        let path = path(turn, client);
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        let mut buffer = vec![0; record as usize];
        for number in order(client) {
            interrupt::check()?;
            file.read_exact_at(&mut buffer, number * record).with_context(|| path.display().to_string())?;
        }
        Ok(())
    })
}
