//! The faults of a world, with their times: drawn from the seed before it begins ([`crate::plan`]), so that
//! some of them can be left out.

use crate::admin;
use crate::cluster::{Cluster, FIRST_CLIENT, SPARE};
use crate::disk::DiskFault;
use crate::network::Conditions;
use crate::programs::Programs;
use crate::scheduler::{Machine, OBSERVER};
use crate::trace::say;
use shoal_meta::Role;
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;

/// Stands for the node that leads when a fault begins.
pub const LEADER: Machine = 100;
/// Stands for the first node that does not lead.
pub const FOLLOWER: Machine = 101;
/// One in this many blocks of a brick is damaged or lost.
const ROT_ONE_OF: u32 = 2;
/// When the leader is cut off, another is elected within this.
const ELECTED_WITHIN: Duration = Duration::from_secs(5);
/// How long a newly elected leader is cut off.
const UNHEARD_FOR: Duration = Duration::from_millis(700);

/// A kind of fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// A node dies, and starts again.
    Crash(Machine),
    /// All nodes die at once: a power failure.
    Blackout,
    /// A node and all other nodes cannot reach each other.
    Isolate(Machine),
    /// No message passes from the first to the second.
    OneWay(Machine, Machine),
    /// A client and a node cannot reach each other.
    CutClient(Machine, Machine),
    /// A client and all nodes cannot reach each other.
    CutOff(Machine),
    /// Messages between replicas are lost and repeated, connections break, messages are slow.
    Storm {
        /// One message in this many is lost.
        loses_one_of: u32,
        /// One message in this many breaks its connection.
        breaks_one_of: u32,
        /// Longest delay, in microseconds.
        delay_us_max: u64,
    },
    /// Messages from the first to the second take up to this many microseconds.
    SlowWay(Machine, Machine, u64),
    /// A machine is stopped, while its clocks go on.
    Stop(Machine),
    /// A machine is overloaded: its threads are scheduled late.
    Busy(Machine),
    /// The leader is cut off until another is elected. At that moment the follower that voted for the new
    /// leader dies. When it is back, it reaches the old leader and not the new one.
    VoterDies,
    /// A client's machine dies, and mounts again.
    KillClient(Machine),
    /// The leadership is transferred.
    Transfer,
    /// A node flushes its store and cuts its log.
    Flush(Machine),
    /// Another machine replaces a node, for good.
    Replace(Machine),
    /// A machine's wall clock is set, to this many seconds after its start.
    SetClock(Machine, u64),
    /// The disk of a node's log fails to flush, is full, or is slow. If it fails, the node is started again
    /// at the end.
    Disk(Machine, DiskFault),
    /// A brick cannot be reached.
    BrickAway(u16),
    /// A brick is full.
    BrickFull(u16),
    /// A brick is slow.
    BrickSlow(u16),
    /// A client learns of no new cluster map, and reaches everything else.
    OldMap(Machine),
    /// Blocks on a brick are damaged and lost.
    Rot(u16),
    /// A brick is drained, for good, unless its tier would have too few others.
    Drain(u16),
    /// A hot tier is attached, unless there is one.
    Attach,
    /// The hot tier is being emptied, if there is one.
    Detach,
    /// What is being drained or detached is removed as soon as it is empty.
    Commit,
    /// What is in copies is to be in shards, or the reverse.
    Convert,
    /// A directory or a file gets a scheme of its own, or has none any more.
    SetScheme,
    /// A brick is added, if there is another.
    AddBrick,
    /// Blocks are moved to where placement would put them today.
    Rebalance,
}

/// A fault with its times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// It begins this long after the beginning of the fault before, in milliseconds.
    pub after_ms: u64,
    /// For how long, in milliseconds.
    pub for_ms: u64,
    /// The next fault does not wait for the end of this one.
    pub overlaps: bool,
    /// The kind.
    pub kind: FaultKind,
}

/// When there were faults, from and to.
pub type Spans = Rc<RefCell<Vec<(u64, u64)>>>;

/// Makes the faults happen. At the end all of them are over.
pub fn play(cluster: &Rc<Cluster>, programs: &Rc<Programs>, faults: &[Fault], spans: &Spans) {
    let mut under_way = Vec::new();
    for fault in faults {
        sleep(Duration::from_millis(fault.after_ms));
        cluster.reopen_where_needed();
        let kind = resolved(cluster, &fault.kind);
        let begun = cluster.world.time_ns();
        say(&format!("FAULT {kind:?} for {} ms", fault.for_ms));
        let long = Duration::from_millis(fault.for_ms);
        begin(cluster, programs, &kind, long);
        let (of, by, list) = (cluster.clone(), programs.clone(), spans.clone());
        let finish = move || {
            sleep(long);
            end(&of, &by, &kind);
            say(&format!("FAULT over: {kind:?}"));
            list.borrow_mut().push((begun, of.world.time_ns()));
        };
        let task = cluster.world.start(OBSERVER, Duration::ZERO, "fault", Box::new(finish));
        match fault.overlaps {
            true => under_way.push(task),
            false => cluster.wait_for_task(task),
        }
    }
    under_way.into_iter().for_each(|task| cluster.wait_for_task(task));
    cluster.network.set(|conditions| *conditions = Conditions::fair());
}

/// The machines that a fault is about at this moment.
fn resolved(cluster: &Rc<Cluster>, kind: &FaultKind) -> FaultKind {
    let nodes = cluster.nodes();
    let leader = cluster.leader().unwrap_or(nodes[0]);
    let who = |machine: Machine| match machine {
        LEADER => leader,
        FOLLOWER => nodes.iter().copied().find(|node| *node != leader).unwrap_or(leader),
        // The node may have been replaced.
        node if node < FIRST_CLIENT && !nodes.contains(&node) => SPARE,
        other => other,
    };
    match kind.clone() {
        FaultKind::Crash(node) => FaultKind::Crash(who(node)),
        FaultKind::Isolate(node) => FaultKind::Isolate(who(node)),
        FaultKind::OneWay(from, to) => FaultKind::OneWay(who(from), who(to)),
        FaultKind::CutClient(client, node) => FaultKind::CutClient(client, who(node)),
        FaultKind::SlowWay(from, to, micros) => FaultKind::SlowWay(who(from), to, micros),
        FaultKind::Stop(machine) => FaultKind::Stop(who(machine)),
        FaultKind::Busy(machine) => FaultKind::Busy(who(machine)),
        FaultKind::Flush(node) => FaultKind::Flush(who(node)),
        FaultKind::Replace(node) => FaultKind::Replace(who(node)),
        FaultKind::SetClock(machine, seconds) => FaultKind::SetClock(who(machine), seconds),
        FaultKind::Disk(node, fault) => FaultKind::Disk(who(node), fault),
        other => other,
    }
}

/// The pairs of machines between which no message passes.
fn cuts(cluster: &Rc<Cluster>, kind: &FaultKind) -> Vec<(Machine, Machine)> {
    let both = |one: Machine, other: Machine| [(one, other), (other, one)];
    match kind {
        FaultKind::Isolate(node) => {
            let others = cluster.nodes().into_iter().chain([SPARE]).filter(|other| other != node);
            others.flat_map(|other| both(*node, other)).collect()
        }
        FaultKind::OneWay(from, to) => vec![(*from, *to)],
        FaultKind::CutClient(client, node) => both(*client, *node).to_vec(),
        FaultKind::CutOff(client) => {
            cluster.nodes().into_iter().chain([SPARE]).flat_map(|node| both(*client, node)).collect()
        }
        _ => Vec::new(),
    }
}

fn begin(cluster: &Rc<Cluster>, programs: &Rc<Programs>, kind: &FaultKind, long: Duration) {
    let cut = cuts(cluster, kind);
    cluster.network.set(|conditions| conditions.cut.extend(cut));
    match kind {
        FaultKind::Crash(node) => cluster.crash(*node),
        FaultKind::Blackout => cluster.nodes().into_iter().for_each(|node| cluster.crash(node)),
        FaultKind::Storm { loses_one_of, breaks_one_of, delay_us_max } => cluster.network.set(|conditions| {
            conditions.loses_one_of = *loses_one_of;
            conditions.repeats_one_of = *loses_one_of;
            conditions.breaks_one_of = *breaks_one_of;
            conditions.delay_us_max = *delay_us_max;
        }),
        FaultKind::SlowWay(from, to, micros) => {
            cluster.network.set(|conditions| _ = conditions.slow.insert((*from, *to), *micros));
        }
        FaultKind::Stop(machine) => {
            cluster.world.stop(*machine, long);
            cluster.network.stopped(*machine, long);
        }
        FaultKind::Busy(machine) => cluster.world.keep_busy(*machine, long),
        FaultKind::VoterDies => let_voter_die(cluster, long),
        FaultKind::KillClient(client) => programs.kill(*client),
        FaultKind::Transfer => {
            for server in cluster.nodes().into_iter().filter_map(|node| cluster.servers.get(node)) {
                server.replica().transfer_leadership();
            }
        }
        FaultKind::Flush(node) => {
            if let Some(server) = cluster.servers.get(*node) {
                cluster.world.start(*node, Duration::ZERO, "flush", Box::new(move || _ = server.flush()));
            }
        }
        FaultKind::Replace(node) if !cluster.nodes().contains(&SPARE) => cluster.replace(*node, SPARE),
        FaultKind::SetClock(machine, seconds) => {
            cluster.world.set_wall_clock(*machine, Duration::from_secs(*seconds));
        }
        FaultKind::Disk(node, fault) => cluster.disks.set_fault(&cluster.home(*node), *fault),
        FaultKind::BrickAway(brick) => cluster.bricks.set_away(*brick, true),
        FaultKind::BrickFull(brick) => cluster.bricks.set_full(*brick, true),
        FaultKind::BrickSlow(brick) => cluster.bricks.set_slow(*brick, true),
        FaultKind::OldMap(client) => cluster.bricks.set_without_news(*client, true),
        FaultKind::Rot(brick) => {
            let damaged = cluster.bricks.rot(&cluster.world, *brick, ROT_ONE_OF);
            say(&format!("{damaged} blocks of brick {brick} are damaged or lost"));
        }
        FaultKind::Drain(brick) => admin::drain(cluster, *brick),
        FaultKind::Attach => admin::attach(cluster),
        FaultKind::Detach => admin::detach(cluster),
        FaultKind::Convert => admin::convert(cluster),
        FaultKind::SetScheme => admin::set_scheme(cluster),
        FaultKind::AddBrick => admin::add_brick(cluster),
        FaultKind::Rebalance => admin::rebalance(cluster),
        _ => {}
    }
}

fn end(cluster: &Rc<Cluster>, programs: &Rc<Programs>, kind: &FaultKind) {
    let cut = cuts(cluster, kind);
    cluster.network.set(|conditions| conditions.cut.retain(|pair| !cut.contains(pair)));
    match kind {
        FaultKind::Crash(node) => cluster.start_again(*node),
        FaultKind::Blackout => cluster.nodes().into_iter().for_each(|node| cluster.start_again(node)),
        FaultKind::Storm { .. } => cluster.network.set(|conditions| {
            let (cut, slow) = (std::mem::take(&mut conditions.cut), std::mem::take(&mut conditions.slow));
            *conditions = Conditions { cut, slow, ..Conditions::fair() };
        }),
        FaultKind::SlowWay(from, to, _) => {
            cluster.network.set(|conditions| _ = conditions.slow.remove(&(*from, *to)))
        }
        FaultKind::KillClient(client) => programs.restart_client(*client),
        FaultKind::Disk(node, fault) => {
            cluster.disks.set_fault(&cluster.home(*node), DiskFault::None);
            if *fault != DiskFault::Slow {
                cluster.crash(*node);
                cluster.start_again(*node);
            }
        }
        FaultKind::BrickAway(brick) => cluster.bricks.set_away(*brick, false),
        FaultKind::BrickFull(brick) => cluster.bricks.set_full(*brick, false),
        FaultKind::BrickSlow(brick) => cluster.bricks.set_slow(*brick, false),
        FaultKind::OldMap(client) => cluster.bricks.set_without_news(*client, false),
        FaultKind::Commit => admin::commit(cluster),
        _ => {}
    }
}

fn let_voter_die(cluster: &Rc<Cluster>, dead: Duration) {
    let Some(old) = cluster.leader() else { return };
    let cut = |node: Machine| cuts(cluster, &FaultKind::Isolate(node));
    cluster.network.set(|conditions| conditions.cut.extend(cut(old)));
    let leads = |node: &Machine| {
        let server = cluster.servers.get(*node).filter(|_| *node != old);
        server.is_some_and(|server| server.replica().status().role == Role::Leader)
    };
    let elected = || cluster.nodes().into_iter().find(leads);
    cluster.wait_until(ELECTED_WITHIN, || elected().is_some());
    let new = elected();
    cluster.network.set(|conditions| {
        conditions.cut.retain(|pair| !cut(old).contains(pair));
        conditions.cut.extend(new.into_iter().flat_map(cut));
    });
    let Some(new) = new else { return };
    if let Some(voter) = cluster.nodes().into_iter().find(|node| ![old, new].contains(node)) {
        cluster.crash(voter);
        sleep(dead);
        cluster.start_again(voter);
    }
    sleep(UNHEARD_FOR);
    cluster.network.set(|conditions| conditions.cut.retain(|pair| !cut(new).contains(pair)));
}
