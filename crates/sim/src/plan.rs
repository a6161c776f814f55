//! The plan of a world, drawn from its seed.
//!
//! **Mixed** worlds have faults of all kinds, one after the other, none so long that it ends a session.
//! **Focused** worlds repeat one combination that rarely occurs by chance: many defects need two events at
//! the same moment.
//!
//! Worlds that are **focused on the kernel's cache** have programs that work on one or two objects
//! ([`Focus`]), and no faults but a slow network.

use crate::cluster::{FIRST_CLIENT, NODES, Settings};
use crate::disk::DiskFault;
use crate::faults::{FOLLOWER, Fault, FaultKind, LEADER};
use crate::focus::Focus;
use crate::layout::{self, Layout};
use crate::network::DELAY_US_CALM;
use crate::scheduler::Machine;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Longest fault that must not end a session, in milliseconds.
const LONG_MS_MAX: u64 = 5_000;
/// The longest time between two faults, in milliseconds.
const REST_MS_MAX: u64 = 2_500;
/// A client that is silent for so long loses its session if another client waits for it, in milliseconds.
const SILENT_MS: std::ops::Range<u64> = 7_000..22_000;
/// Log after the last flush of a store, in bytes: in a third of all worlds followers fall behind it.
const LOG_BYTES: [u64; 3] = [4 << 10, 64 << 10, 8 << 20];
/// Content up to this size is inline, in bytes: in half of all worlds most content goes into blocks.
const INLINE_BYTES: [u32; 2] = [8, 64 << 10];
/// What a mount caches, in bytes: less than its working set in a quarter of all worlds, and in half of those
/// with shards or a hot tier.
const CACHE_BYTES: [usize; 4] = [2 << 10, 4 << 20, 4 << 20, 4 << 20];
/// The number of combinations for focused worlds.
const KINDS: u32 = 16;
/// Combinations that are drawn more often, since even they rarely show a defect: a client that comes back
/// with changes that it has not sent, and a leader that serves without being able to commit.
const KINDS_OFTEN: [u32; 2] = [4, KINDS - 1];
/// The share of focused worlds that take one of these.
const OFTEN: f64 = 0.2;
/// The share of worlds with shards or tiers in which it is mostly bricks that fail.
const BRICKS_FAIL: f64 = 0.4;
/// The longest fault of a brick in them, in milliseconds.
const BRICK_FAULT_MS_MAX: u64 = 6_000;
/// How long a client learns of no new map, in milliseconds: longer than a drain takes.
const OLD_MAP_MS: std::ops::Range<u64> = 10_000..40_000;
/// How long a client commits nothing while a brick is removed, in milliseconds.
const COMMITS_LATE_MS: std::ops::Range<u64> = 4_000..12_000;
/// The share of removals of bricks beside which a client has an old map, or commits late.
const LATE_SHARE: f64 = 0.6;
/// Most actions of an administrator.
const ACTIONS_MAX: u32 = 5;
/// Workers in addition on a mount with a model kernel: hazards take several programs there.
const KERNEL_WORKERS: u32 = 1;
/// The share of worlds whose programs run on model kernels.
const KERNELS: f64 = 0.5;
/// The share of worlds that are focused on the kernel's cache.
const FOCUSED_ON_KERNEL: f64 = 0.25;
/// Clients in these, ...
const FOCUSED_CLIENTS: u32 = 2;
/// ... and rounds of calls: short ones, since all calls conflict, and few at a time can be checked.
const FOCUSED_ROUNDS: std::ops::Range<u32> = 20..50;
/// The longest delays of a slow network in these, in microseconds.
const SLOW_US: std::ops::Range<u64> = 1_000..8_000;
/// Seconds that a wall clock may be off.
const CLOCK_SECONDS_MAX: u64 = 100_000_000;

/// The plan of a world. Everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The faults.
    pub faults: Vec<Fault>,
    /// A planted defect.
    pub planted: Option<String>,
    /// Number of clients.
    pub clients: u32,
    /// Workers on each.
    pub workers: u32,
    /// Rounds of calls.
    pub rounds: u32,
    /// The settings of the volume.
    pub settings: Settings,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Plan {
        let mut rng = SmallRng::seed_from_u64(seed);
        let clients = rng.random_range(2..=3);
        let mut focuses = SmallRng::seed_from_u64(seed ^ 0xf0c5);
        let focus = focuses.random_bool(FOCUSED_ON_KERNEL).then(|| Focus::draw(&mut focuses));
        let clients = if focus.is_some() { FOCUSED_CLIENTS } else { clients };
        let log_bytes = LOG_BYTES[rng.random_range(0..LOG_BYTES.len())];
        let inline_bytes = INLINE_BYTES[rng.random_range(0..INLINE_BYTES.len())];
        let layout = Layout::of(seed, rng.random_range(2..=3));
        let mut caches = SmallRng::seed_from_u64(seed ^ 0xcac4e);
        // Bricks see, and count, the reads that no cache answers.
        let cache_kinds = if layout.is_special() { 2 } else { CACHE_BYTES.len() };
        let settings = Settings {
            log_bytes,
            inline_bytes: if layout.is_special() { layout::INLINE_BYTES } else { inline_bytes },
            cache_bytes: CACHE_BYTES[caches.random_range(0..cache_kinds)],
            layout,
            has_kernel: focus.is_some() || SmallRng::seed_from_u64(seed ^ 0x6e31).random_bool(KERNELS),
            focus,
        };
        let bricks = layout.bricks();
        let mut draw = Draw { rng: SmallRng::seed_from_u64(seed ^ 0xfa17), clients, bricks };
        let is_mixed = rng.random_bool(0.4);
        let mut faults = match () {
            () if layout.is_special() && draw.rng.random_bool(BRICKS_FAIL) => draw.of_bricks(),
            () if is_mixed => draw.mixed(),
            () => draw.focused(),
        };
        if layout.scheme.is_some() {
            draw.administrate(&mut faults);
        }
        if layout.later_hot.is_some() {
            draw.attach(&mut faults);
        }
        if settings.has_kernel {
            // Programs find what is cached while the mount process cannot invalidate it. Tests of real mounts
            // have the process that guards against that.
            faults.retain(|fault| match fault.kind {
                FaultKind::Stop(machine) | FaultKind::Busy(machine) => machine < FIRST_CLIENT,
                _ => true,
            });
        }
        let (mut workers, mut rounds) = (rng.random_range(1..=2), rng.random_range(4..12));
        if settings.has_kernel {
            workers += KERNEL_WORKERS;
        }
        if focus.is_some() {
            faults = draw.slow_network();
            rounds = rng.random_range(FOCUSED_ROUNDS);
        }
        Plan { seed, faults, planted: None, clients, workers, rounds, settings }
    }

    /// Whether a brick may be left with copies that the namespace has forgotten.
    pub fn has_troubled_bricks(&self) -> bool {
        let is_one = |kind: &FaultKind| {
            matches!(kind, FaultKind::BrickAway(_) | FaultKind::BrickSlow(_) | FaultKind::Rot(_))
        };
        // What does not fit on a hot tier leaves copies there, too, and a conversion that is begun again.
        self.settings.layout.any_hot().is_some()
            || self.settings.layout.scheme.is_some()
            || self.faults.iter().any(|fault| is_one(&fault.kind))
    }

    /// Whether wall clocks are set while the world lives.
    pub fn sets_clocks(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::SetClock(..)))
    }

    /// Whether blocks are moved to where placement would put them.
    pub fn rebalances(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind == FaultKind::Rebalance)
    }

    /// Whether stored copies are damaged or lost.
    pub fn has_damage(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Rot(_)))
    }

    /// Whether nodes or bricks log errors because of a fault.
    pub fn has_complaints(&self) -> bool {
        let fails =
            |kind: &FaultKind| matches!(kind, FaultKind::Disk(_, DiskFault::FailsToSync | DiskFault::Full));
        self.has_damage() || self.faults.iter().any(|fault| fails(&fault.kind))
    }
}

/// With 2+1 on four bricks, of which one is drained and one full, a write rightly fails with ENOSPC.
fn keep_room(faults: &mut Vec<Fault>) {
    if faults.iter().any(|fault| matches!(fault.kind, FaultKind::Drain(_))) {
        faults.retain(|fault| !matches!(fault.kind, FaultKind::BrickFull(_)));
    }
}

/// Draws the faults of a world.
struct Draw {
    rng: SmallRng,
    clients: u32,
    bricks: u16,
}

impl Draw {
    fn node(&mut self) -> Machine {
        self.rng.random_range(1..=NODES)
    }

    fn client(&mut self) -> Machine {
        FIRST_CLIENT + self.rng.random_range(0..self.clients)
    }

    fn brick(&mut self) -> u16 {
        self.rng.random_range(1..=self.bricks)
    }

    fn storm(&mut self, delay_us_max: u64) -> FaultKind {
        FaultKind::Storm {
            loses_one_of: self.rng.random_range(3..40),
            breaks_one_of: self.rng.random_range(20..400),
            delay_us_max: self.rng.random_range(DELAY_US_CALM..delay_us_max),
        }
    }

    /// Replies that take long, and none that are lost. In half of all such worlds there are none.
    fn slow_network(&mut self) -> Vec<Fault> {
        let count = if self.rng.random_bool(0.5) { 0 } else { self.rng.random_range(1..4) };
        let storm = |rng: &mut SmallRng| FaultKind::Storm {
            loses_one_of: 0,
            breaks_one_of: 0,
            delay_us_max: rng.random_range(SLOW_US),
        };
        let slow = |_| {
            let (kind, for_ms) = (storm(&mut self.rng), self.rng.random_range(1..LONG_MS_MAX));
            self.fault(for_ms, kind)
        };
        (0..count).map(slow).collect()
    }

    fn set_clock(&mut self) -> FaultKind {
        let machine = if self.rng.random_bool(0.5) { self.node() } else { self.client() };
        FaultKind::SetClock(machine, self.rng.random_range(0..CLOCK_SECONDS_MAX))
    }

    /// Faults of some kinds, one after the other.
    fn mixed(&mut self) -> Vec<Fault> {
        let count = if self.rng.random_bool(0.1) { 0 } else { self.rng.random_range(1..10) };
        // Each world has its own selection of faults.
        let kinds: Vec<u32> = (0..14).filter(|_| self.rng.random_bool(0.4)).collect();
        let kinds = if kinds.is_empty() { vec![0, 2] } else { kinds };
        let mut faults = Vec::new();
        for _ in 0..count {
            let (node, client) = (self.node(), self.client());
            let kind = match kinds[self.rng.random_range(0..kinds.len())] {
                0 => FaultKind::Crash(node),
                1 if self.rng.random_bool(0.3) => FaultKind::Blackout,
                1 | 2 => FaultKind::Isolate(node),
                3 => FaultKind::OneWay(node, node % NODES + 1),
                4 => FaultKind::CutClient(client, node),
                5 => self.storm(60_000),
                6 => FaultKind::Stop(if self.rng.random_bool(0.5) { node } else { client }),
                7 => FaultKind::Transfer,
                8 => FaultKind::Flush(node),
                9 => self.set_clock(),
                10 => FaultKind::Disk(node, DiskFault::Slow),
                11 => FaultKind::BrickSlow(self.brick()),
                12 => FaultKind::BrickFull(1),
                _ => FaultKind::BrickAway(self.brick()),
            };
            let short = self.rng.random_bool(0.5);
            let for_ms = self.rng.random_range(1..if short { 400 } else { LONG_MS_MAX });
            faults.push(self.fault(for_ms, kind));
        }
        faults
    }

    fn fault(&mut self, for_ms: u64, kind: FaultKind) -> Fault {
        Fault { after_ms: self.rng.random_range(0..REST_MS_MAX), for_ms, overlaps: false, kind }
    }

    /// Faults of bricks, with a change of leader now and then. In one of three such worlds copies on one
    /// brick are damaged, always the same: each scheme survives that.
    fn of_bricks(&mut self) -> Vec<Fault> {
        let damaged = self.rng.random_bool(0.33).then(|| self.brick());
        let mut faults = Vec::new();
        for _ in 0..self.rng.random_range(2..8) {
            let brick = self.brick();
            let kind = match self.rng.random_range(0..10) {
                0 | 1 => damaged.map_or(FaultKind::BrickSlow(brick), FaultKind::Rot),
                2 | 3 => FaultKind::BrickAway(brick),
                4 => FaultKind::BrickFull(brick),
                5 => FaultKind::BrickSlow(brick),
                6 => FaultKind::Crash(LEADER),
                7 => FaultKind::Drain(brick),
                8 => FaultKind::Detach,
                _ => FaultKind::Transfer,
            };
            let for_ms = self.rng.random_range(1..BRICK_FAULT_MS_MAX);
            let overlaps = matches!(kind, FaultKind::BrickSlow(_));
            faults.push(Fault { overlaps, ..self.fault(for_ms, kind) });
        }
        keep_room(&mut faults);
        faults
    }

    /// Adds what an administrator does meanwhile: mostly a conversion of the volume, a directory or a file,
    /// often another one before the first is complete.
    fn administrate(&mut self, faults: &mut Vec<Fault>) {
        for _ in 0..self.rng.random_range(1..=ACTIONS_MAX) {
            let brick = self.brick();
            let actions = match self.rng.random_range(0..10) {
                0..=2 => vec![FaultKind::Convert],
                3..=4 => vec![FaultKind::SetScheme],
                5 => vec![FaultKind::AddBrick, FaultKind::Rebalance],
                6 => vec![FaultKind::Rebalance],
                7 | 8 => vec![FaultKind::Drain(brick), FaultKind::Commit],
                _ => vec![FaultKind::Detach, FaultKind::Commit],
            };
            let mut at = self.rng.random_range(0..=faults.len());
            let removes = actions.contains(&FaultKind::Commit);
            if removes && self.rng.random_bool(LATE_SHARE) {
                let client = self.client();
                let (range, kind) = match self.rng.random_bool(0.5) {
                    true => (OLD_MAP_MS, FaultKind::OldMap(client)),
                    false => (COMMITS_LATE_MS, FaultKind::CutOff(client)),
                };
                let long = self.rng.random_range(range);
                faults.insert(at, Fault { overlaps: true, ..self.fault(long, kind) });
                at += 1;
            }
            for kind in actions {
                faults.insert(at, Fault { overlaps: true, ..self.fault(1, kind) });
                at = self.rng.random_range(at + 1..=faults.len());
            }
        }
        keep_room(faults);
    }

    /// Has a hot tier attached at some time, and in half of all worlds detached later.
    fn attach(&mut self, faults: &mut Vec<Fault>) {
        let actions = match self.rng.random_bool(0.5) {
            true => vec![FaultKind::Attach],
            false => vec![FaultKind::Attach, FaultKind::Detach, FaultKind::Commit],
        };
        let mut at = 0;
        for kind in actions {
            at = self.rng.random_range(at..=faults.len());
            faults.insert(at, Fault { overlaps: true, ..self.fault(1, kind) });
            at += 1;
        }
    }

    /// One combination, several times.
    fn focused(&mut self) -> Vec<Fault> {
        let kind = match self.rng.random_bool(OFTEN) {
            true => KINDS_OFTEN[self.rng.random_range(0..KINDS_OFTEN.len())],
            false => self.rng.random_range(0..KINDS),
        };
        let times = match kind {
            3..=6 | 11..=12 => self.rng.random_range(1..=2),
            10 => 1,
            _ => self.rng.random_range(2..=5),
        };
        (0..times).flat_map(|_| self.combination(kind)).collect()
    }

    fn combination(&mut self, kind: u32) -> Vec<Fault> {
        let (node, client) = (self.node(), self.client());
        let mut ms = |range: std::ops::Range<u64>| self.rng.random_range(range);
        // The second fault happens while the first lasts.
        let during = |first: (u64, FaultKind), after_ms: u64, second: (u64, FaultKind)| {
            vec![
                Fault { after_ms: 0, for_ms: first.0, overlaps: true, kind: first.1 },
                Fault { after_ms, for_ms: second.0, overlaps: false, kind: second.1 },
            ]
        };
        let faults = match kind {
            // The leader dies, and is back before or after another node leads.
            0 => {
                let for_ms = ms(1..3_000);
                vec![self.fault(for_ms, FaultKind::Crash(LEADER))]
            }
            // Two nodes die within one flush: what neither had flushed is lost.
            1 => during(
                (ms(1..600), FaultKind::Crash(LEADER)),
                ms(0..20),
                (ms(1..600), FaultKind::Crash(FOLLOWER)),
            ),
            // The leader changes while answers of the old leader are in flight for long.
            2 => {
                let way = FaultKind::SlowWay(LEADER, client, ms(500_000..2_000_000));
                during((ms(500..3_000), way), ms(5..400), (ms(1..1_500), FaultKind::Transfer))
            }
            // A client dies soon after a node or a brick has become slow.
            3 => {
                let (long, after, dead) = (ms(300..4_000), ms(0..2_000), ms(1..15_000));
                let first = match ms(0..4) {
                    0 => FaultKind::BrickSlow(self.brick()),
                    1 => FaultKind::Disk(LEADER, DiskFault::Slow),
                    2 => FaultKind::CutOff(client),
                    _ => FaultKind::Crash(LEADER),
                };
                during((long, first), after, (dead, FaultKind::KillClient(client)))
            }
            // A client is cut off until the other clients go on without it, while the leader changes.
            4 => during(
                (ms(SILENT_MS), FaultKind::CutOff(client)),
                ms(100..9_000),
                (ms(1..3_000), FaultKind::Crash(LEADER)),
            ),
            5 => vec![Fault {
                after_ms: ms(0..2_000),
                for_ms: ms(SILENT_MS),
                overlaps: false,
                kind: FaultKind::CutOff(client),
            }],
            // A client is stopped until the other clients go on without it.
            6 => vec![Fault {
                after_ms: ms(0..2_000),
                for_ms: ms(SILENT_MS),
                overlaps: false,
                kind: FaultKind::Stop(client),
            }],
            // A node is away until the other nodes have truncated their logs.
            7 => {
                let (away, after) = (ms(1_500..5_000), ms(100..1_200));
                let mut faults = during((away, FaultKind::Crash(node)), after, (1, FaultKind::Flush(LEADER)));
                faults.push(Fault {
                    after_ms: ms(100..1_500),
                    for_ms: 1,
                    overlaps: false,
                    kind: FaultKind::Flush(LEADER),
                });
                faults
            }
            // A disk fails, and the node with it.
            8 => {
                let fault = if ms(0..2) == 0 { DiskFault::FailsToSync } else { DiskFault::Full };
                let who = [LEADER, FOLLOWER, node][ms(0..3) as usize];
                let long = ms(1..3_000);
                vec![self.fault(long, FaultKind::Disk(who, fault))]
            }
            // Copies on one brick are damaged while another brick is away.
            9 => {
                during((ms(1..4_000), FaultKind::BrickAway(2)), ms(0..1_000), (ms(1..500), FaultKind::Rot(1)))
            }
            // A node is replaced, and dies or is cut off meanwhile.
            10 => {
                let second =
                    if ms(0..2) == 0 { FaultKind::Crash(LEADER) } else { FaultKind::Isolate(LEADER) };
                let (after, long) = (ms(0..1_500), ms(1..1_500));
                vec![
                    Fault { after_ms: after, for_ms: long, overlaps: true, kind: second },
                    Fault {
                        after_ms: ms(0..300),
                        for_ms: 1,
                        overlaps: false,
                        kind: FaultKind::Replace(node),
                    },
                ]
            }
            // A client dies while there is no leader, so that its changes are not committed.
            11 | 12 => {
                let first = if ms(0..2) == 0 { FaultKind::Blackout } else { FaultKind::Isolate(LEADER) };
                let (long, after, dead) = (ms(1_500..5_000), ms(100..1_500), ms(1..12_000));
                during((long, first), after, (dead, FaultKind::KillClient(client)))
            }
            // The leader changes while a client receives its answers late.
            13 => {
                let mut faults = during(
                    (ms(2_000..8_000), FaultKind::Busy(client)),
                    ms(50..1_000),
                    (1, FaultKind::Transfer),
                );
                for _ in 0..4 {
                    let again = Fault { after_ms: ms(100..1_200), ..faults[1].clone() };
                    faults.push(again);
                }
                faults
            }
            // The follower that voted for a new leader dies before it hears from it, and hears from the old
            // leader afterwards.
            14 => vec![self.fault(1, FaultKind::VoterDies)],
            // The leader is cut off from the other replicas, while clients still reach it and one of them
            // does not.
            _ if ms(0..3) == 0 => during(
                (ms(1_000..5_000), FaultKind::Isolate(LEADER)),
                ms(0..1_500),
                (ms(1..3_000), FaultKind::CutClient(client, LEADER)),
            ),
            // The leader is cut off from the other replicas while all clients reach it: what they give back
            // to it meanwhile is not committed.
            _ => {
                let long = ms(1_500..3_500);
                vec![self.fault(long, FaultKind::Isolate(LEADER))]
            }
        };
        let rest = self.rng.random_range(0..REST_MS_MAX);
        let mut faults = faults;
        faults[0].after_ms += rest;
        faults
    }
}
