//! One world from beginning to end: what programs do, which faults happen meanwhile, and whether all of it
//! was right.
//!
//! **Rounds.** Workers on all clients make calls at the same time, and wait for each other now and then. So
//! the history falls into short segments, which can be checked. Faults happen at any time, in rounds and
//! between them.
//!
//! **Findings** are:
//! - a history that no single local file system can explain ([`crate::judge`]);
//! - replicas that differ;
//! - a call that does not return when all faults are over;
//! - an inconsistent state, or blocks that are left over or missing ([`crate::final_checks`]);
//! - a server or client that logs an error, fails or panics.

use crate::bounds;
use crate::cluster::{Cluster, FIRST_CLIENT, NODES, SPARE};
use crate::disk::Disks;
use crate::faults;
use crate::final_checks;
use crate::findings::Findings;
use crate::judge::{Evidence, Judgement};
use crate::plan::Plan;
use crate::programs::Programs;
use crate::scheduler::{End, Machine, OBSERVER, Scheduler};
use crate::trace::{self, Recorded, say};
use shoal_cluster::BrickState;
use shoal_runtime::simulator::Simulator;
use shoal_runtime::time::Duration;
use shoal_types::SessionId;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A world that has not ended by then never will.
const WORLD_MAX: Duration = Duration::from_secs(1200);
/// When all faults are over, every call returns within this.
const CALLS_END_WITHIN: Duration = Duration::from_secs(60);
/// When all faults are over, replicas are equal within this.
const REPLICAS_ALIKE_WITHIN: Duration = Duration::from_secs(60);
/// A new group has a leader within this.
const LEADER_WITHIN: Duration = Duration::from_secs(20);
/// A round polls every 20 ms whether it is over. One poll in this many also compares the replicas.
const COMPARED_ONE_OF: u64 = 20;
/// Largest difference between the rates of two clocks, in parts per million.
const DRIFT_PPM_MAX: i64 = 20_000;

/// What a run of a world has shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// A hash of all that has happened: equal for equal plans.
    pub digest: u64,
    /// What was wrong.
    pub findings: Vec<String>,
    /// The last lines of the trace.
    pub lines: Vec<String>,
    /// Virtual time that has passed.
    pub lasted: Duration,
    /// Calls of programs.
    pub calls: usize,
    /// Calls that had returned and were lost with their session.
    pub calls_lost: usize,
    /// Sessions that ended before their mounts did, and those whose machine died.
    pub sessions_lost: (usize, usize),
    /// How often a replica has fetched its state from another.
    pub snapshots: u64,
    /// How often the group's members have changed, counted on every replica.
    pub changes: u64,
    /// How often a replica became leader.
    pub leads: u64,
    /// Blocks on all bricks at the end.
    pub blocks: usize,
    /// Blocks that were seen in shards.
    pub sharded: usize,
    /// Moves to the cold tier, and to the hot one, that were seen.
    pub moved: (usize, usize),
    /// Changes between copies and shards that were seen.
    pub converted: usize,
    /// Bricks that were added, and those that were removed.
    pub changed_bricks: (usize, usize),
    /// Turns that the scheduler gave.
    pub turns: u64,
    /// Messages sent, and lost.
    pub messages: (u64, u64),
    /// The history was too hard to check.
    pub unchecked: bool,
}

/// Runs a world.
pub fn run(plan: &Plan, print: bool, level: tracing::Level) -> Report {
    let world = Scheduler::new(plan.seed);
    world.plant(plan.planted.clone());
    let disks = Disks::default();
    let dir =
        tempfile::Builder::new().prefix("shoal-sim-").tempdir_in(files()).expect("room for a world's files");
    let _entered = shoal_runtime::simulator::enter(world.clone());
    disks.install(&world);
    let listening = trace::start(&world, print, level.max(tracing::Level::INFO));
    let cluster = Cluster::new(&world, &disks, dir.path(), plan.settings);
    let programs = Programs::new(&cluster, plan.seed, plan.clients, plan.workers);
    let findings = Rc::new(Findings::default());
    let (main, told, does, stage) = (cluster.clone(), findings.clone(), programs.clone(), plan.clone());
    let life = move || run_plan(&main, &does, &told, &stage);
    let task = world.start(OBSERVER, Duration::ZERO, "world", Box::new(life));
    match world.run(task, WORLD_MAX) {
        End::Done => {}
        End::Panicked => world.panics().into_iter().for_each(|panic| findings.add(panic)),
        End::Stuck(tasks) => findings.add(format!("deadlock, all tasks wait: {}", tasks.join(", "))),
        End::TooLong => findings.add("the world has not ended in time".into()),
    }
    for task in world.spinning() {
        findings.add(format!("{task} polls without waiting"));
    }
    let map = cluster.bricks.newest_map();
    let mut report = Report {
        digest: world.digest(),
        lasted: Duration::from_nanos(world.time_ns()),
        turns: world.turns(),
        messages: cluster.network.counts(),
        blocks: findings.blocks.get(),
        sharded: findings.places.borrow().sharded(),
        converted: findings.places.borrow().converted,
        changed_bricks: (
            map.bricks.len() - usize::from(cluster.layout().bricks()),
            cluster.bricks.in_state(BrickState::Gone).len(),
        ),
        moved: (findings.places.borrow().demoted, findings.places.borrow().promoted),
        ..Report::default()
    };
    world.set_calm(true);
    let panics = world.panics().len();
    world.end();
    for panic in world.panics().into_iter().skip(panics) {
        findings.add(format!("panic while the world was unwound: {panic}"));
    }
    let evidence = |told: &Recorded| Evidence {
        calls: programs.calls.take(),
        lives: programs.lives.take(),
        ends: ends(&told.ended, programs.deaths.take()),
        given_up: told.given_up.iter().map(|(session, at)| (SessionId(*session), *at)).collect(),
        spans: findings.spans.take(),
    };
    let told = trace::take();
    let evidence = evidence(&told);
    drop((programs, cluster, listening));
    Disks::uninstall();
    let mut wrong = findings.list.take();
    wrong.extend(told.errors.iter().filter(|error| !is_expected(plan, error)).cloned());
    (report.snapshots, report.changes, report.leads) = (told.snapshots, told.changes, told.leads);
    report.calls = evidence.calls.len();
    let deaths = evidence.ends.values().filter(|end| !end.1).count();
    report.sessions_lost = (evidence.ends.len() - deaths, deaths);
    match evidence.judge(plan) {
        Judgement::Fine(lost) => report.calls_lost = lost,
        Judgement::Unchecked => report.unchecked = true,
        Judgement::Wrong(why) => wrong.push(why),
    }
    (report.findings, report.lines) = (wrong, told.lines);
    report
}

/// The ends of sessions: ended by the servers, after which the mount goes on, or with their machine.
fn ends(ended: &BTreeMap<u64, u64>, deaths: BTreeMap<SessionId, u64>) -> BTreeMap<SessionId, (u64, bool)> {
    let ended = ended.iter().map(|(session, at)| (SessionId(*session), (*at, true)));
    let mut ends: BTreeMap<_, _> = deaths.into_iter().map(|(session, at)| (session, (at, false))).collect();
    for (session, end) in ended {
        ends.entry(session).or_insert(end);
    }
    ends
}

/// Where the stores' files are: in memory if the machine has a file system for that.
fn files() -> &'static std::path::Path {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory } else { std::path::Path::new("/tmp") }
}

/// Whether an error is the expected consequence of a fault.
fn is_expected(plan: &Plan, error: &str) -> bool {
    let complaints = ["a copy is damaged", "a copy is not as it should be", "the metadata server stops"];
    error.contains(trace::ENDED)
        || plan.has_complaints() && complaints.iter().any(|words| error.contains(words))
}

/// Runs the plan of a world.
fn run_plan(cluster: &Rc<Cluster>, programs: &Rc<Programs>, findings: &Rc<Findings>, plan: &Plan) {
    let world = &cluster.world;
    for node in 1..=NODES {
        set_clock(cluster, node);
        cluster.start(node, true);
    }
    set_clock(cluster, SPARE);
    if !cluster.wait_until(LEADER_WITHIN, || cluster.leader().is_some()) {
        return findings.add("a new group elects no leader".into());
    }
    for mount in 0..plan.clients {
        set_clock(cluster, FIRST_CLIENT + mount);
        if let Err(error) = programs.mount(mount) {
            return findings.add(format!("client {mount} cannot mount: {error}"));
        }
    }
    world.set_calm(false);
    let (nemesis, victims, faults) = (cluster.clone(), programs.clone(), plan.faults.clone());
    let spans = findings.spans.clone();
    let play = move || faults::play(&nemesis, &victims, &faults, &spans);
    let faults = world.start(OBSERVER, Duration::ZERO, "faults", Box::new(play));
    let mut round = 0;
    // As long as faults happen, the workers work.
    while round < plan.rounds || !world.is_finished(faults) {
        if !work(cluster, programs, findings, (round, faults, plan.has_damage())) {
            return;
        }
        bounds::look(cluster, programs, findings, plan.clients);
        bounds::look_at_blocks(cluster, findings, plan.has_damage());
        round += 1;
    }
    world.set_calm(true);
    for mount in 0..plan.clients {
        let Some(task) = programs.look(mount) else { continue };
        if !cluster.wait_until(CALLS_END_WITHIN, || world.is_finished(task)) {
            return findings
                .add(format!("client {mount} cannot read everything, though there are no faults"));
        }
    }
    programs.unmount();
    say("unmounted");
    bounds::look_back(cluster, programs, findings);
    compare(cluster, findings);
    findings.blocks.set(final_checks::run(cluster, findings, plan));
    for trouble in cluster.troubles() {
        findings.add(trouble);
    }
    for node in cluster.nodes() {
        if let Some(server) = cluster.servers.remove(node) {
            cluster.on(node, "shutdown", move || server.shutdown());
        }
    }
}

fn set_clock(cluster: &Cluster, machine: Machine) {
    let world = &cluster.world;
    let drift = world.below(2 * DRIFT_PPM_MAX as u64) as i64 - DRIFT_PPM_MAX;
    // Monotonic clocks differ by a hundred times as much.
    let offset = Duration::from_millis(world.below(100 * cluster.layout().clock_ms_max()));
    world.set_clock(machine, offset, drift / 2);
}

/// A round: all workers make some calls. Returns whether they came to an end.
fn work(
    cluster: &Rc<Cluster>,
    programs: &Rc<Programs>,
    findings: &Findings,
    (round, faults, has_damage): (u32, u64, bool),
) -> bool {
    let tasks = programs.work();
    let is_done = |tasks: &[u64]| tasks.iter().all(|task| cluster.world.is_finished(*task));
    // As long as there is a fault, calls may wait.
    let mut fits = true;
    cluster.wait_until(WORLD_MAX, || {
        let is_over = is_done(&tasks) || is_done(&[faults]);
        // About once a second.
        if cluster.world.below(COMPARED_ONE_OF) == 0 {
            fits = compare_now(cluster, findings).is_some();
            bounds::look_at_blocks(cluster, findings, has_damage);
        }
        is_over || !fits
    });
    if !fits {
        return false;
    }
    if !cluster.wait_until(CALLS_END_WITHIN, || is_done(&tasks)) {
        let open = programs.open_calls().join(", ");
        findings.add(format!("round {round}: calls that do not return: {open}"));
        return false;
    }
    true
}

/// Waits until all replicas have the same state.
fn compare(cluster: &Rc<Cluster>, findings: &Findings) {
    let mut differ = false;
    let alike = cluster.wait_until(REPLICAS_ALIKE_WITHIN, || {
        cluster.reopen_where_needed();
        let digests = compare_now(cluster, findings);
        let first = digests.as_ref().and_then(|digests| Some(digests.first()?.1));
        differ = digests.is_none();
        let is_alike = |digests: Vec<(Machine, u64, u128)>| {
            digests.len() == NODES as usize && digests.iter().all(|one| Some(one.1) == first)
        };
        digests.is_none_or(is_alike)
    });
    if !alike && !differ {
        findings.add("the replicas do not reach the same index of the log".into());
    }
}

/// The replicas' positions and digests; `None` if one of them is wrong.
fn compare_now(cluster: &Rc<Cluster>, findings: &Findings) -> Option<Vec<(Machine, u64, u128)>> {
    let servers = cluster.nodes().into_iter().filter_map(|node| Some((node, cluster.servers.get(node)?)));
    let claims: BTreeMap<_, _> = servers.map(|(node, server)| (node, server.replica().applied())).collect();
    let digests = cluster.digests();
    for (node, index, digest) in &digests {
        cluster.world.note(*index ^ *digest as u64);
        let known = *findings.states.borrow_mut().entry(*index).or_insert(*digest);
        let wrong = match claims.get(node) {
            _ if known != *digest => {
                format!("node {node} differs from the other replicas at index {index} of the log")
            }
            Some(claim) if claim > index => {
                format!("node {node} claims to have applied index {claim}, and has applied {index}")
            }
            _ => continue,
        };
        findings.add(wrong);
        return None;
    }
    Some(digests)
}
