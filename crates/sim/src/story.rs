//! One world from its beginning to its end: what programs do, what goes wrong meanwhile, and whether all of it was right.
//!
//! **Rounds.** Workers on all clients make calls at the same time, and wait for each other now and then: so the history falls into short segments,
//! which can be checked. Faults happen at any time, in rounds and between them.
//!
//! **Findings.** What programs saw cannot be explained by one local file system ([`crate::judge`]); replicas differ; a call does not return when
//! all is well again; the state does not fit together, or blocks are left over or missing ([`crate::after`]); a server or client complains, fails or panics.

use crate::after;
use crate::bounds;
use crate::cluster::{Cluster, FIRST_CLIENT, NODES, SPARE};
use crate::disk::Disks;
use crate::faults::{self, Spans};
use crate::journal::{self, Told, say};
use crate::judge::{Evidence, Judgement};
use crate::plan::Plan;
use crate::programs::Programs;
use crate::scheduler::{End, Machine, OBSERVER, Scheduler};
use shoal_runtime::simulator::Simulator;
use shoal_runtime::time::Duration;
use shoal_types::SessionId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A world that has not come to its end by then never will.
const WORLD_MAX: Duration = Duration::from_secs(1200);
/// When all is well again, every call returns within this.
const CALLS_END_WITHIN: Duration = Duration::from_secs(60);
/// When all is well again, replicas are alike within this.
const REPLICAS_ALIKE_WITHIN: Duration = Duration::from_secs(60);
/// A group that begins has a leader within this.
const LEADER_WITHIN: Duration = Duration::from_secs(20);
/// While programs are at work it is looked every 20 ms whether they are done, and one of so many times also whether replicas are what they should be.
const COMPARED_ONE_OF: u64 = 20;
/// The fastest and slowest clocks run apart by this, in millionths.
const DRIFT_PPM_MAX: i64 = 20_000;

/// How a world went.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Over all that has happened: the same for the same plan.
    pub digest: u64,
    /// What was wrong.
    pub findings: Vec<String>,
    /// The last lines of the story.
    pub lines: Vec<String>,
    /// Virtual time that has passed.
    pub lasted: Duration,
    /// Calls of programs.
    pub calls: usize,
    /// Calls that had returned and were lost with their session.
    pub calls_lost: usize,
    /// Sessions that came to an end before their mounts did, and those whose machine died.
    pub sessions_lost: (usize, usize),
    /// States that replicas have fetched from others.
    pub snapshots: u64,
    /// Times that the members of the group have changed, on any replica.
    pub changes: u64,
    /// Times that somebody came to lead.
    pub leads: u64,
    /// Blocks on all bricks in the end.
    pub blocks: usize,
    /// Turns that the scheduler gave.
    pub turns: u64,
    /// Messages sent, and lost.
    pub messages: (u64, u64),
    /// The history was too hard to check.
    pub unchecked: bool,
}

/// What has been found so far.
#[derive(Default)]
pub struct Book {
    findings: RefCell<Vec<String>>,
    blocks: RefCell<usize>,
    /// Digests of the state at entries of the log.
    states: RefCell<BTreeMap<u64, u128>>,
    spans: Spans,
}

impl Book {
    /// Something is wrong.
    pub fn find(&self, what: String) {
        say(&format!("FOUND {what}"));
        self.findings.borrow_mut().push(what);
    }
}

/// Lives through a world.
pub fn live(plan: &Plan, print: bool, level: tracing::Level) -> Report {
    let world = Scheduler::new(plan.seed);
    world.plant(plan.planted.clone());
    let disks = Disks::default();
    let dir =
        tempfile::Builder::new().prefix("shoal-sim-").tempdir_in(files()).expect("room for a world's files");
    let _entered = shoal_runtime::simulator::enter(world.clone());
    disks.install(&world);
    let listening = journal::listen(&world, print, level.max(tracing::Level::INFO));
    let cluster = Cluster::new(&world, &disks, dir.path(), plan.settings);
    let programs = Programs::new(&cluster, plan.seed, plan.clients, plan.workers);
    let book = Rc::new(Book::default());
    let (main, told, does, stage) = (cluster.clone(), book.clone(), programs.clone(), plan.clone());
    let life = move || act(&main, &does, &told, &stage);
    let task = world.start(OBSERVER, Duration::ZERO, "world", Box::new(life));
    match world.run(task, WORLD_MAX) {
        End::Done => {}
        End::Panicked => world.panics().into_iter().for_each(|panic| book.find(panic)),
        End::Stuck(tasks) => book.find(format!("everybody waits for ever: {}", tasks.join(", "))),
        End::TooLong => book.find("the world does not come to its end".into()),
    }
    for task in world.spinning() {
        book.find(format!("{task} does not rest"));
    }
    let mut report = Report {
        digest: world.digest(),
        lasted: Duration::from_nanos(world.time_ns()),
        turns: world.turns(),
        messages: cluster.network.counts(),
        blocks: *book.blocks.borrow(),
        ..Report::default()
    };
    world.set_calm(true);
    let panics = world.panics().len();
    world.end();
    for panic in world.panics().into_iter().skip(panics) {
        book.find(format!("while it was taken apart: {panic}"));
    }
    let evidence = |told: &Told| Evidence {
        calls: programs.calls.take(),
        lives: programs.lives.take(),
        ends: ends(&told.ended, programs.deaths.take()),
        given_up: told.given_up.iter().map(|(session, at)| (SessionId(*session), *at)).collect(),
        spans: book.spans.take(),
    };
    let told = journal::take();
    let evidence = evidence(&told);
    drop((programs, cluster, listening));
    Disks::uninstall();
    let mut findings = book.findings.take();
    findings.extend(told.errors.iter().filter(|error| !is_expected(plan, error)).cloned());
    (report.snapshots, report.changes, report.leads) = (told.snapshots, told.changes, told.leads);
    report.calls = evidence.calls.len();
    let deaths = evidence.ends.values().filter(|end| !end.1).count();
    report.sessions_lost = (evidence.ends.len() - deaths, deaths);
    match evidence.judge(plan) {
        Judgement::Fine(lost) => report.calls_lost = lost,
        Judgement::Unchecked => report.unchecked = true,
        Judgement::Wrong(why) => findings.push(why),
    }
    (report.findings, report.lines) = (findings, told.lines);
    report
}

/// The ends of sessions: by the servers, after which the mount goes on, or with their machine.
fn ends(ended: &BTreeMap<u64, u64>, deaths: BTreeMap<SessionId, u64>) -> BTreeMap<SessionId, (u64, bool)> {
    let ended = ended.iter().map(|(session, at)| (SessionId(*session), (*at, true)));
    let mut ends: BTreeMap<_, _> = deaths.into_iter().map(|(session, at)| (session, (at, false))).collect();
    for (session, end) in ended {
        ends.entry(session).or_insert(end);
    }
    ends
}

/// Where the files of stores are: in memory, if there is room for files.
fn files() -> &'static std::path::Path {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory } else { std::path::Path::new("/tmp") }
}

/// What is said of what was done to it.
fn is_expected(plan: &Plan, error: &str) -> bool {
    let complaints = ["a copy is damaged", "a copy is not as it should be", "the metadata server stops"];
    error.contains(journal::ENDED)
        || plan.has_complaints() && complaints.iter().any(|words| error.contains(words))
}

/// The life of a world, told from outside.
fn act(cluster: &Rc<Cluster>, programs: &Rc<Programs>, book: &Rc<Book>, plan: &Plan) {
    let world = &cluster.world;
    for node in 1..=NODES {
        set_clock(world, node);
        cluster.start(node, true);
    }
    set_clock(world, SPARE);
    if !cluster.wait_until(LEADER_WITHIN, || cluster.leader().is_some()) {
        return book.find("nobody leads a group that has just begun".into());
    }
    for mount in 0..plan.clients {
        set_clock(world, FIRST_CLIENT + mount);
        if let Err(error) = programs.mount(mount) {
            return book.find(format!("client {mount} cannot mount: {error}"));
        }
    }
    world.set_calm(false);
    let (nemesis, victims, faults) = (cluster.clone(), programs.clone(), plan.faults.clone());
    let spans = book.spans.clone();
    let play = move || faults::play(&nemesis, &victims, &faults, &spans);
    let faults = world.start(OBSERVER, Duration::ZERO, "faults", Box::new(play));
    let mut round = 0;
    // As long as something goes wrong, somebody is at work.
    while round < plan.rounds || !world.is_finished(faults) {
        if !work(cluster, programs, book, (round, faults)) {
            return;
        }
        bounds::look(cluster, programs, book, plan.clients);
        if !plan.has_damage() {
            bounds::look_at_copies(cluster, book);
        }
        round += 1;
    }
    world.set_calm(true);
    for mount in 0..plan.clients {
        let Some(task) = programs.look(mount) else { continue };
        if !cluster.wait_until(CALLS_END_WITHIN, || world.is_finished(task)) {
            return book.find(format!("client {mount} cannot look at everything, though all is well"));
        }
    }
    programs.unmount();
    say("unmounted");
    bounds::look_back(cluster, programs, book);
    compare(cluster, book);
    *book.blocks.borrow_mut() = after::look(cluster, book, plan);
    for trouble in cluster.troubles() {
        book.find(trouble);
    }
    for node in cluster.nodes() {
        if let Some(server) = cluster.servers.remove(node) {
            cluster.on(node, "shutdown", move || server.shutdown());
        }
    }
}

fn set_clock(world: &Scheduler, machine: Machine) {
    let drift = world.below(2 * DRIFT_PPM_MAX as u64) as i64 - DRIFT_PPM_MAX;
    world.set_clock(machine, Duration::from_millis(world.below(100_000_000)), drift / 2);
}

/// A round: all workers make some calls. Answers whether they came to an end.
fn work(cluster: &Rc<Cluster>, programs: &Rc<Programs>, book: &Book, (round, faults): (u32, u64)) -> bool {
    let tasks = programs.work();
    let is_done = |tasks: &[u64]| tasks.iter().all(|task| cluster.world.is_finished(*task));
    // As long as something is wrong, they may wait.
    let mut fits = true;
    cluster.wait_until(WORLD_MAX, || {
        let is_over = is_done(&tasks) || is_done(&[faults]);
        // About once a second while they are at work.
        if cluster.world.below(COMPARED_ONE_OF) == 0 {
            fits = compare_now(cluster, book).is_some();
        }
        is_over || !fits
    });
    if !fits {
        return false;
    }
    if !cluster.wait_until(CALLS_END_WITHIN, || is_done(&tasks)) {
        let open = programs.open_calls().join(", ");
        book.find(format!("in round {round} these do not return: {open}"));
        return false;
    }
    true
}

/// All replicas come to the same state.
fn compare(cluster: &Rc<Cluster>, book: &Book) {
    let mut differ = false;
    let alike = cluster.wait_until(REPLICAS_ALIKE_WITHIN, || {
        cluster.reopen_where_needed();
        let digests = compare_now(cluster, book);
        let first = digests.as_ref().and_then(|digests| Some(digests.first()?.1));
        differ = digests.is_none();
        let is_alike = |digests: Vec<(Machine, u64, u128)>| {
            digests.len() == NODES as usize && digests.iter().all(|one| Some(one.1) == first)
        };
        digests.is_none_or(is_alike)
    });
    if !alike && !differ {
        book.find("the replicas do not come to the same entry of the log".into());
    }
}

/// Where the replicas are; `None` if one of them is not what it should be.
fn compare_now(cluster: &Rc<Cluster>, book: &Book) -> Option<Vec<(Machine, u64, u128)>> {
    let servers = cluster.nodes().into_iter().filter_map(|node| Some((node, cluster.servers.get(node)?)));
    let claims: BTreeMap<_, _> = servers.map(|(node, server)| (node, server.replica().applied())).collect();
    let digests = cluster.digests();
    for (node, index, digest) in &digests {
        cluster.world.note(*index ^ *digest as u64);
        let known = *book.states.borrow_mut().entry(*index).or_insert(*digest);
        let wrong = match claims.get(node) {
            _ if known != *digest => {
                format!("node {node} has another state than others at entry {index} of the log")
            }
            Some(claim) if claim > index => {
                format!("node {node} says that it has applied entry {claim} of the log, and has {index}")
            }
            _ => continue,
        };
        book.find(wrong);
        return None;
    }
    Some(digests)
}
