//! Random failures of a minority and of the network: no acknowledged batch is lost, and none is applied
//! twice.

use crate::cluster::{Client, Cluster};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use shoal_types::ReplicaId;
use std::time::{Duration, Instant};

/// How long each seed causes failures.
const TROUBLE: Duration = Duration::from_secs(12);
/// Files that are written when the failures are over.
const FILES_AFTER: u64 = 20;

fn seeds() -> Vec<u64> {
    match std::env::var("SHOAL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..2).map(|_| rand::random()).collect(),
    }
}

fn make_trouble(cluster: &mut Cluster, random: &mut StdRng, all: &[u64]) {
    let one = all[random.random_range(0..all.len())];
    match random.random_range(0..10) {
        0 | 1 if cluster.up.len() == all.len() => cluster.crash(one),
        2 => {
            // Half of the time the leader.
            let victim = cluster.leader().filter(|_| random.random_bool(0.5)).unwrap_or(one);
            cluster.fabric.isolate(&[victim], all);
        }
        3 => {
            // Only one direction.
            let other = all[random.random_range(0..all.len())];
            cluster.fabric.set(|weather| weather.cut.extend([(one, other)]));
        }
        4 => cluster.fabric.set(|weather| weather.loses_one_of = 5),
        5 => cluster.fabric.set(|weather| weather.delay_ms_max = 60),
        6 => cluster.up.values().for_each(|server| server.replica().transfer_leadership()),
        7 => cluster.up.values().for_each(|server| drop(server.flush())),
        _ => {
            cluster.fabric.heal();
            let down: Vec<u64> = all.iter().copied().filter(|id| !cluster.up.contains_key(id)).collect();
            down.into_iter().for_each(|id| cluster.start(id));
        }
    }
}

/// Causes failures for a while, during which a client writes.
fn survive(cluster: &mut Cluster, client: &mut Client, seed: u64, all: &[u64], members_change: bool) {
    let random = &mut StdRng::seed_from_u64(seed);
    client.fill = 3000;
    let end = Instant::now() + TROUBLE;
    let mut next = Instant::now();
    let mut wanted = all.to_vec();
    while Instant::now() < end {
        if Instant::now() >= next {
            make_trouble(cluster, random, all);
            if members_change && random.random_bool(0.3) {
                let left_out = [random.random_range(0..all.len()), random.random_range(0..all.len())];
                let stays = |(place, id): (usize, &u64)| (!left_out.contains(&place)).then_some(*id);
                wanted = all.iter().enumerate().filter_map(stays).collect();
            }
            next = Instant::now() + Duration::from_millis(random.random_range(50..1200));
        }
        cluster.tend();
        if members_change {
            let ids: Vec<ReplicaId> = wanted.iter().map(|id| ReplicaId(*id)).collect();
            cluster.up.values().for_each(|server| server.replica().set_wanted_members(&ids));
        }
        // A fast machine would write more files than the session has inode numbers for.
        let batches = random.random_range(1..20).min(client.files_left().saturating_sub(FILES_AFTER));
        let done = client.try_write(cluster, batches).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        if done == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    cluster.fabric.heal();
    let down: Vec<u64> = all.iter().copied().filter(|id| !cluster.up.contains_key(id)).collect();
    down.into_iter().for_each(|id| cluster.start(id));
    if members_change {
        cluster.set_wanted_members(all);
    }
    client.write(cluster, FILES_AFTER);
    println!("{} files", client.acknowledged);
    client.assert_all_there(cluster);
    cluster.assert_alike();
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_applied_twice_whatever_happens() {
    for seed in seeds() {
        println!("SHOAL_TEST_SEED={seed}");
        let mut cluster = Cluster::with_log(3, 1 << 20);
        let mut client = Client::new(&mut cluster);
        survive(&mut cluster, &mut client, seed, &[1, 2, 3], false);
    }
}

#[test]
fn nothing_acknowledged_is_lost_while_members_come_and_go() {
    for seed in seeds().into_iter().take(1) {
        println!("SHOAL_TEST_SEED={seed}");
        let mut cluster = Cluster::with_log(3, 1 << 20);
        let mut client = Client::new(&mut cluster);
        client.fill = 3000;
        client.write(&mut cluster, 10);
        cluster.join(4);
        cluster.join(5);
        cluster.set_wanted_members(&[1, 2, 3, 4, 5]);
        survive(&mut cluster, &mut client, seed, &[1, 2, 3, 4, 5], true);
    }
}
