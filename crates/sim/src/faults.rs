//! What goes wrong in a world, and when: drawn from the seed before it begins, so that parts of it can be left out.

use crate::cluster::{Cluster, FIRST_CLIENT, NODES, nodes};
use crate::journal::say;
use crate::network::{DELAY_US_FAIR, Weather};
use crate::scheduler::Machine;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use std::rc::Rc;

/// The longest that something stays wrong, in milliseconds: no session may be ended for it.
const LONG_MS_MAX: u64 = 5_000;
/// The longest time between two faults, in milliseconds.
const REST_MS_MAX: u64 = 2_500;

/// Something that goes wrong for a while.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A node dies, and starts again.
    Crash(Machine),
    /// All nodes die at once: the room has no power.
    Blackout,
    /// A node and all others do not hear of each other.
    Isolate(Machine),
    /// Nothing passes from the first to the second.
    OneWay(Machine, Machine),
    /// A client and a node do not hear of each other.
    CutClient(Machine, Machine),
    /// Messages between replicas get lost and repeated, connections break, everything takes long.
    Storm {
        /// One of so many.
        loses_one_of: u32,
        /// One of so many.
        breaks_one_of: u32,
        /// In microseconds.
        delay_us_max: u64,
    },
    /// Nothing goes on on a machine, while its clocks do.
    Stop(Machine),
    /// The lead is handed over.
    Transfer,
    /// A node flushes its store and cuts its log.
    Flush(Machine),
    /// The brick is out of reach.
    BrickAway,
}

/// A fault with its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// After the one before, in milliseconds.
    pub after_ms: u64,
    /// For how long, in milliseconds.
    pub for_ms: u64,
    /// What.
    pub what: What,
}

/// Draws the faults of a world with so many clients.
pub fn draw(seed: u64, count: usize, clients: u32) -> Vec<Fault> {
    let mut rng = SmallRng::seed_from_u64(seed ^ 0xfa17);
    // Each world has its own kinds of trouble.
    let kinds: Vec<u32> = (0..10).filter(|_| rng.random_bool(0.5)).collect();
    let kinds = if kinds.is_empty() { vec![0, 2] } else { kinds };
    let mut draw = |_| {
        let node = rng.random_range(1..=NODES);
        let client = FIRST_CLIENT + rng.random_range(0..clients);
        let what = match kinds[rng.random_range(0..kinds.len())] {
            0 => What::Crash(node),
            1 if rng.random_bool(0.3) => What::Blackout,
            1 | 2 => What::Isolate(node),
            3 => What::OneWay(node, node % NODES + 1),
            4 => What::CutClient(client, node),
            5 => What::Storm {
                loses_one_of: rng.random_range(3..40),
                breaks_one_of: rng.random_range(20..400),
                delay_us_max: rng.random_range(DELAY_US_FAIR..60_000),
            },
            6 => What::Stop(if rng.random_bool(0.5) { node } else { client }),
            7 => What::Transfer,
            8 => What::Flush(node),
            _ => What::BrickAway,
        };
        let short = rng.random_bool(0.5);
        let for_ms = rng.random_range(1..if short { 400 } else { LONG_MS_MAX });
        Fault { after_ms: rng.random_range(0..REST_MS_MAX), for_ms, what }
    };
    (0..count).map(&mut draw).collect()
}

/// Lets faults happen, one after the other. In the end everything is as it should be.
pub fn play(cluster: &Rc<Cluster>, faults: &[Fault]) {
    for fault in faults {
        sleep(Duration::from_millis(fault.after_ms));
        cluster.reopen_where_needed();
        say(&format!("FAULT {:?} for {} ms", fault.what, fault.for_ms));
        begin(cluster, &fault.what, Duration::from_millis(fault.for_ms));
        sleep(Duration::from_millis(fault.for_ms));
        end(cluster, &fault.what);
        say("FAULT over");
    }
    cluster.network.set(|weather| *weather = Weather::fair());
}

fn begin(cluster: &Rc<Cluster>, what: &What, long: Duration) {
    let cut = |pairs: &[(Machine, Machine)]| cluster.network.set(|weather| weather.cut.extend(pairs));
    match what {
        What::Crash(node) => cluster.crash(*node),
        What::Blackout => nodes().into_iter().for_each(|node| cluster.crash(node)),
        What::Isolate(node) => {
            let others = nodes().into_iter().filter(|other| other != node);
            let both = others.flat_map(|other| [(*node, other), (other, *node)]);
            cut(&both.collect::<Vec<_>>());
        }
        What::OneWay(from, to) => cut(&[(*from, *to)]),
        What::CutClient(client, node) => cut(&[(*client, *node), (*node, *client)]),
        What::Storm { loses_one_of, breaks_one_of, delay_us_max } => cluster.network.set(|weather| {
            weather.loses_one_of = *loses_one_of;
            weather.repeats_one_of = *loses_one_of;
            weather.breaks_one_of = *breaks_one_of;
            weather.delay_us_max = *delay_us_max;
        }),
        What::Stop(machine) => cluster.world.stop(*machine, long),
        What::Transfer => {
            for server in nodes().into_iter().filter_map(|node| cluster.servers.get(node)) {
                server.replica().transfer_leadership();
            }
        }
        What::Flush(node) => {
            if let Some(server) = cluster.servers.get(*node) {
                cluster.world.start(*node, Duration::ZERO, "flush", Box::new(move || _ = server.flush()));
            }
        }
        What::BrickAway => cluster.brick.set_away(true),
    }
}

fn end(cluster: &Rc<Cluster>, what: &What) {
    match what {
        What::Crash(node) => cluster.start(*node, false),
        What::Blackout => nodes().into_iter().for_each(|node| cluster.start(node, false)),
        What::Stop(_) | What::Transfer | What::Flush(_) => {}
        What::BrickAway => cluster.brick.set_away(false),
        _ => cluster.network.set(|weather| *weather = Weather::fair()),
    }
}
