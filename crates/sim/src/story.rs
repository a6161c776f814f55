//! One world from its beginning to its end: what programs do, what goes wrong meanwhile, and whether all of it was right.
//!
//! **Rounds.** Workers on all clients make calls at the same time, and wait for each other now and then: so the history falls into short segments,
//! which can be checked. Faults happen at any time, in rounds and between them.
//!
//! **Findings.** What programs saw cannot be explained by one local file system; replicas differ; a call does not return when
//! all is well again; a server or client complains, fails or panics.

use crate::cluster::{Cluster, FIRST_CLIENT, NODES};
use crate::disk::Disks;
use crate::faults::{self, Fault};
use crate::hands::Hands;
use crate::journal::{self, say};
use crate::scheduler::{End, Machine, OBSERVER, Scheduler};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shoal_client::Client;
use shoal_runtime::simulator::Simulator;
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use shoal_witness::check::{self, Verdict};
use shoal_witness::history::{Call, Header, VERSION};
use shoal_witness::limits::DEATH_ERRNOS;
use shoal_witness::ops::{Kind, Op, Outcome, Path};
use shoal_witness::run::choose::Chooser;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// A world that has not come to its end by then never will.
const WORLD_MAX: Duration = Duration::from_secs(1200);
/// When all is well again, every call returns within this.
const CALLS_END_WITHIN: Duration = Duration::from_secs(60);
/// When all is well again, replicas are alike within this.
const REPLICAS_ALIKE_WITHIN: Duration = Duration::from_secs(60);
/// A group that begins has a leader within this.
const LEADER_WITHIN: Duration = Duration::from_secs(20);
/// Log behind the last flush of a store, in bytes, in worlds where followers are to fall behind it.
const SMALL_LOG_BYTES: u64 = 64 << 10;
/// ... and in others.
const LARGE_LOG_BYTES: u64 = 8 << 20;
/// Longest time between two calls of a worker, in microseconds.
const THINK_US_MAX: u64 = 150_000;
/// The fastest and slowest clocks run apart by this, in millionths.
const DRIFT_PPM_MAX: i64 = 20_000;

/// What a world is made of. Everything else follows from the seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// A mistake that is planted.
    pub planted: Option<String>,
    /// How many clients.
    pub clients: u32,
    /// Workers on each.
    pub workers: u32,
    /// Rounds of calls.
    pub rounds: u32,
    /// See there.
    pub log_bytes: u64,
}

impl Plan {
    /// As the seed says.
    pub fn of(seed: u64) -> Plan {
        let mut rng = SmallRng::seed_from_u64(seed);
        let clients = rng.random_range(2..=3);
        let count = if rng.random_bool(0.1) { 0 } else { rng.random_range(1..10) };
        Plan {
            seed,
            faults: faults::draw(seed, count, clients),
            planted: None,
            clients,
            workers: rng.random_range(1..=2),
            rounds: rng.random_range(4..12),
            log_bytes: if rng.random_bool(0.3) { SMALL_LOG_BYTES } else { LARGE_LOG_BYTES },
        }
    }
}

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
    /// Sessions that came to an end before their mounts did.
    pub sessions_lost: usize,
    /// Turns that the scheduler gave.
    pub turns: u64,
    /// Messages sent, and lost.
    pub messages: (u64, u64),
    /// The history was too hard to check, or sessions were lost and it was not checked.
    pub unchecked: bool,
}

/// What each worker works with, while it is not at work.
type Workers = Rc<RefCell<Vec<Option<(Hands, Chooser)>>>>;

/// What the tasks of a world share.
struct Book {
    calls: RefCell<Vec<Call>>,
    findings: RefCell<Vec<String>>,
}

impl Book {
    fn find(&self, what: String) {
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
    let listening = journal::listen(&world, print, level);
    let cluster = Cluster::new(&world, &disks, dir.path(), plan.log_bytes);
    let book = Rc::new(Book { calls: RefCell::default(), findings: RefCell::default() });
    let (main, told, stage) = (cluster.clone(), book.clone(), plan.clone());
    let task = world.start(OBSERVER, Duration::ZERO, "world", Box::new(move || act(&main, &told, &stage)));
    match world.run(task, WORLD_MAX) {
        End::Done => {}
        End::Panicked => world.panics().into_iter().for_each(|panic| book.find(panic)),
        End::Stuck(tasks) => book.find(format!("everybody waits for ever: {}", tasks.join(", "))),
        End::TooLong => book.find("the world does not come to its end".into()),
    }
    let mut report = Report {
        digest: world.digest(),
        lasted: Duration::from_nanos(world.time_ns()),
        calls: book.calls.borrow().len(),
        turns: world.turns(),
        messages: cluster.network.counts(),
        ..Report::default()
    };
    world.set_calm(true);
    let panics = world.panics().len();
    world.end();
    for panic in world.panics().into_iter().skip(panics) {
        book.find(format!("while it was taken apart: {panic}"));
    }
    drop(cluster);
    let (lines, errors) = journal::take();
    drop(listening);
    Disks::uninstall();
    let calls = book.calls.take();
    let mut findings = book.findings.take();
    findings.extend(errors.into_iter().filter(|error| !is_expected(error)));
    judge(plan, calls, &mut report, &mut findings);
    (report.findings, report.lines) = (findings, lines);
    report
}

/// Where the files of stores are: in memory, if there is room for files.
fn files() -> &'static std::path::Path {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { memory } else { std::path::Path::new("/tmp") }
}

/// What mounts say when their session has been ended.
fn is_expected(error: &str) -> bool {
    error.contains("the servers ended this mount's session")
}

/// The life of a world, told from outside.
fn act(cluster: &Rc<Cluster>, book: &Rc<Book>, plan: &Plan) {
    let world = &cluster.world;
    for node in 1..=NODES {
        set_clock(world, node);
        cluster.start(node, true);
    }
    if !cluster.wait_until(LEADER_WITHIN, || cluster.leader().is_some()) {
        return book.find("nobody leads a group that has just begun".into());
    }
    let mut mounts: Vec<(Machine, Arc<Client>)> = Vec::new();
    for machine in FIRST_CLIENT..FIRST_CLIENT + plan.clients {
        set_clock(world, machine);
        match cluster.mount(machine) {
            Ok(client) => mounts.push((machine, client)),
            Err(error) => return book.find(format!("client {machine} cannot mount: {error}")),
        }
    }
    world.set_calm(false);
    let (nemesis, faults) = (cluster.clone(), plan.faults.clone());
    let faults =
        world.start(OBSERVER, Duration::ZERO, "faults", Box::new(move || faults::play(&nemesis, &faults)));
    let mut choosers: Vec<Option<(Hands, Chooser)>> = Vec::new();
    for number in 0..plan.workers * plan.clients {
        let client = mounts[number as usize % mounts.len()].1.clone();
        choosers.push(Some((Hands::new(client), Chooser::new(plan.seed, number))));
    }
    let choosers = Rc::new(RefCell::new(choosers));
    for round in 0..plan.rounds {
        if !work(cluster, book, plan, &mounts, &choosers, (round, faults)) {
            return;
        }
    }
    cluster.wait_for_task(faults);
    world.set_calm(true);
    look_at_all(cluster, book, &mounts);
    let machines: Vec<Machine> = mounts.iter().map(|(machine, _)| *machine).collect();
    for (machine, client) in mounts {
        let hands = choosers.clone();
        cluster.on(machine, "unmount", move || {
            let mine =
                |one: &Option<(Hands, Chooser)>| one.as_ref().is_some_and(|(hands, _)| hands.is_of(&client));
            let own: Vec<_> =
                hands.borrow_mut().iter_mut().filter(|one| mine(one)).map(Option::take).collect();
            drop(own);
            let _ = client.close();
        });
    }
    say(&format!("unmounted {machines:?}"));
    compare(cluster, book);
    for trouble in cluster.troubles() {
        book.find(trouble);
    }
    for node in 1..=NODES {
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
fn work(
    cluster: &Rc<Cluster>,
    book: &Rc<Book>,
    plan: &Plan,
    mounts: &[(Machine, Arc<Client>)],
    choosers: &Workers,
    (round, faults): (u32, u64),
) -> bool {
    let world = &cluster.world;
    let slow = world.below(2) == 0;
    let count = world.between(3, 14);
    let mut tasks = Vec::new();
    for number in 0..plan.workers * plan.clients {
        let machine = mounts[number as usize % mounts.len()].0;
        let (book, scheduler, choosers) = (book.clone(), world.clone(), choosers.clone());
        let worker = move || {
            let taken = choosers.borrow_mut()[number as usize].take();
            let Some((mut hands, mut chooser)) = taken else { return };
            chooser.round();
            for _ in 0..count {
                if slow {
                    sleep(Duration::from_micros(scheduler.below(THINK_US_MAX)));
                }
                let op = chooser.choose(|slot| hands.holds(slot));
                let outcome = call(&scheduler, &book, number, &mut hands, op.clone());
                chooser.learn(&op, &outcome);
            }
            choosers.borrow_mut()[number as usize] = Some((hands, chooser));
        };
        tasks.push(world.start(machine, Duration::ZERO, &format!("worker-{number}"), Box::new(worker)));
    }
    let is_done = |tasks: &[u64]| tasks.iter().all(|task| world.is_finished(*task));
    // As long as something is wrong, they may wait.
    cluster.wait_until(WORLD_MAX, || is_done(&tasks) || is_done(&[faults]));
    if !cluster.wait_until(CALLS_END_WITHIN, || is_done(&tasks)) {
        let calls = book.calls.borrow();
        let open: Vec<String> = calls
            .iter()
            .filter(|call| call.end.is_none())
            .map(|call| format!("{} of worker {}", call.op, call.worker))
            .collect();
        drop(calls);
        book.find(format!("in round {round} these do not return: {}", open.join(", ")));
        return false;
    }
    true
}

/// Makes a call and writes it down.
fn call(world: &Scheduler, book: &Book, worker: u32, hands: &mut Hands, op: Op) -> Outcome {
    let start = world.stamp_ns();
    let at = {
        let mut calls = book.calls.borrow_mut();
        calls.push(Call { worker, tree: 0, start, end: None, op: op.clone(), outcome: None });
        calls.len() - 1
    };
    say(&format!("{op} ..."));
    let outcome = hands.perform(&op);
    say(&format!("{op}: {outcome}"));
    let end = world.stamp_ns();
    let call = &mut book.calls.borrow_mut()[at];
    (call.end, call.outcome) = (Some(end), Some(outcome.clone()));
    outcome
}

/// Every client looks at everything: one after the other, so that all of them must see the same.
fn look_at_all(cluster: &Rc<Cluster>, book: &Rc<Book>, mounts: &[(Machine, Arc<Client>)]) {
    for (number, (machine, client)) in mounts.iter().enumerate() {
        let (told, world, client) = (book.clone(), cluster.world.clone(), client.clone());
        let task = cluster.world.start(
            *machine,
            Duration::ZERO,
            "look",
            Box::new(move || {
                let mut hands = Hands::new(client);
                let mut dirs = vec![Path::default()];
                while let Some(dir) = dirs.pop() {
                    let listing = Op::List { path: dir.clone() };
                    let worker = 100 + number as u32;
                    let Outcome::Names { listed } = call(&world, &told, worker, &mut hands, listing) else {
                        continue;
                    };
                    for entry in listed {
                        let Some(name) = entry.name.bytes().next() else { continue };
                        let path = Path::new(&[dir.names(), &[name]].concat());
                        call(&world, &told, worker, &mut hands, Op::Lstat { path: path.clone() });
                        match entry.kind {
                            Some(Kind::Dir) => dirs.push(path),
                            Some(Kind::File) => {
                                let open = Op::Open {
                                    path,
                                    create: false,
                                    exclusive: false,
                                    append: false,
                                    slot: 0,
                                };
                                call(&world, &told, worker, &mut hands, open);
                                call(&world, &told, worker, &mut hands, Op::Read { slot: 0 });
                            }
                            _ => {}
                        }
                    }
                }
            }),
        );
        if !cluster.wait_until(CALLS_END_WITHIN, || cluster.world.is_finished(task)) {
            return book.find(format!("client {machine} cannot look at everything, though all is well"));
        }
    }
}

/// All replicas come to the same state.
fn compare(cluster: &Rc<Cluster>, book: &Rc<Book>) {
    let mut seen: BTreeMap<u64, u128> = BTreeMap::new();
    let mut wrong = None;
    let alike = cluster.wait_until(REPLICAS_ALIKE_WITHIN, || {
        cluster.reopen_where_needed();
        let digests = cluster.digests();
        for (node, index, digest) in &digests {
            cluster.world.note(*index ^ *digest as u64);
            if *seen.entry(*index).or_insert(*digest) != *digest {
                wrong =
                    Some(format!("node {node} has another state than others at entry {index} of the log"));
            }
        }
        let first = digests.first().map(|one| one.1);
        wrong.is_some() || digests.len() == NODES as usize && digests.iter().all(|one| Some(one.1) == first)
    });
    match wrong {
        Some(wrong) => book.find(wrong),
        None if !alike => book.find("the replicas do not come to the same entry of the log".into()),
        None => {}
    }
}

/// Whether there is an order of all calls that one local file system could have carried out.
fn judge(plan: &Plan, mut calls: Vec<Call>, report: &mut Report, findings: &mut Vec<String>) {
    let died = |call: &Call| match &call.outcome {
        Some(Outcome::Failed { errno }) => DEATH_ERRNOS.contains(errno) && *errno != libc::ESTALE,
        _ => false,
    };
    let mut lost: Vec<u32> =
        calls.iter().filter(|call| died(call)).map(|call| call.worker % plan.clients).collect();
    lost.sort_unstable();
    lost.dedup();
    report.sessions_lost = lost.len();
    if !lost.is_empty() {
        report.unchecked = true;
        return;
    }
    calls.sort_by_key(|call| call.start);
    match check::check(&calls) {
        Verdict::Explained(_) => {}
        Verdict::TooHard(_) => report.unchecked = true,
        Verdict::Refused(refusal) => {
            let dirs = (0..plan.clients).map(|client| format!("client {client}")).collect();
            let header = Header {
                shoal_witness_history: VERSION,
                seed: plan.seed,
                dirs,
                workers: plan.workers,
                may_die: vec![],
            };
            findings.push(format!("no local file system does this:\n{}", refusal.show(&calls, &header)));
        }
    }
}
