//! The network: between replicas it loses, delays, reorders and repeats messages; between clients and servers
//! it breaks connections.
//!
//! **Messages** between replicas take a random time each, may be lost, and may come twice.
//!
//! **Connections** carry requests and answers. After a message was lost on a connection, no later one
//! arrives: it is silent until both ends notice and every request on it fails. Batches are carried out in the
//! order in which they were sent.

use crate::scheduler::{Machine, Scheduler};
use parking_lot::Mutex;
use shoal_wire::MetaError;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

/// The present state of the network.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// No message passes from the first to the second.
    pub cut: BTreeSet<(Machine, Machine)>,
    /// One message between replicas in this many is lost; 0: none.
    pub loses_one_of: u32,
    /// One of the delivered messages in this many comes twice; 0: none.
    pub repeats_one_of: u32,
    /// One message on connections in this many breaks its connection; 0: none.
    pub breaks_one_of: u32,
    /// The longest time that a message takes, in microseconds.
    pub delay_us_max: u64,
    /// Longest delays from the first to the second, where they differ.
    pub slow: BTreeMap<(Machine, Machine), u64>,
}

/// Silence after which a connection is dead, as in `shoal_net`, in milliseconds.
const SILENCE_MS_MAX: u64 = 2_200;
/// The shortest time that a message takes, in microseconds.
const DELAY_US_MIN: u64 = 20;
/// The longest delay without faults, in microseconds.
pub const DELAY_US_CALM: u64 = 500;

type Job = Box<dyn FnOnce()>;
type Fail = Box<dyn FnOnce(MetaError)>;

#[derive(Default)]
struct Connection {
    /// The number of the connection between the two.
    number: u64,
    /// A message was lost on it: it is silent.
    silent: bool,
    /// Requests without an answer, by number: what to call when the connection breaks.
    pending: BTreeMap<u64, Fail>,
    /// Jobs that are carried out in order, and whether a task does that.
    lane: VecDeque<Job>,
    busy: bool,
}

impl Connection {
    /// Begins the next connection, and returns what was in flight on this one.
    fn renew(&mut self) -> (BTreeMap<u64, Fail>, VecDeque<Job>) {
        self.number += 1;
        (self.silent, self.busy) = (false, false);
        (std::mem::take(&mut self.pending), std::mem::take(&mut self.lane))
    }
}

#[derive(Default)]
struct State {
    conditions: Conditions,
    connections: BTreeMap<(Machine, Machine), Connection>,
    requests: u64,
    dead: BTreeSet<Machine>,
    lost: u64,
    sent: u64,
}

/// The network of a world.
pub struct Network {
    world: Rc<Scheduler>,
    me: Weak<Network>,
    state: Mutex<State>,
}

/// Everything in a world is on one thread; the traits of the code under test ask for more.
pub struct OneThread<T>(pub T);
// SAFETY: a world is made, run and dropped on one thread, and nothing of it leaves that thread.
unsafe impl<T> Send for OneThread<T> {}
// SAFETY: a world is made, run and dropped on one thread, and nothing of it leaves that thread.
unsafe impl<T> Sync for OneThread<T> {}

impl<T> OneThread<T> {
    /// The value. A method, so that closures capture all of it.
    pub fn take(self) -> T {
        self.0
    }
}

impl Network {
    /// A network without faults.
    pub fn new(world: &Rc<Scheduler>) -> Rc<Network> {
        let state = State { conditions: Conditions::fair(), ..State::default() };
        Rc::new_cyclic(|me| Network { world: world.clone(), me: me.clone(), state: Mutex::new(state) })
    }

    /// Changes the state of the network.
    pub fn set(&self, change: impl FnOnce(&mut Conditions)) {
        change(&mut self.state.lock().conditions);
    }

    /// Messages sent and lost.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.sent, state.lost)
    }

    fn delay(&self, conditions: &Conditions, way: (Machine, Machine)) -> Duration {
        let longest = conditions.slow.get(&way).copied().unwrap_or(conditions.delay_us_max);
        let micros = self.world.between(DELAY_US_MIN, longest.max(DELAY_US_MIN));
        // A few take much longer than most.
        Duration::from_micros(if self.world.once_in(4) { micros } else { micros / 8 + DELAY_US_MIN })
    }

    /// Sends a message between replicas.
    pub fn send(&self, from: Machine, to: Machine, name: &str, deliver: impl Fn() + Clone + 'static) {
        let conditions = {
            let mut state = self.state.lock();
            state.sent += 1;
            state.conditions.clone()
        };
        if conditions.cut.contains(&(from, to)) || self.world.once_in(conditions.loses_one_of) {
            self.state.lock().lost += 1;
            return;
        }
        let copies = 1 + u32::from(self.world.once_in(conditions.repeats_one_of));
        for _ in 0..copies {
            self.world.start(to, self.delay(&conditions, (from, to)), name, Box::new(deliver.clone()));
        }
    }

    /// Sends a request. `serve` is run at the other end, and `fail` at this end if the connection breaks
    /// before [`answer`](Self::answer).
    pub fn request(
        self: &Rc<Self>,
        (from, to): (Machine, Machine),
        ordered: bool,
        name: &str,
        serve: impl FnOnce(u64) + 'static,
        fail: Fail,
    ) {
        let (number, conditions, dead) = {
            let mut state = self.state.lock();
            if state.dead.contains(&from) {
                // A dying task sends nothing.
                return;
            }
            state.requests += 1;
            state.sent += 1;
            let number = state.requests;
            state.connections.entry((from, to)).or_default().pending.insert(number, fail);
            (number, state.conditions.clone(), state.dead.contains(&to))
        };
        if dead {
            // Refused at once, or never answered.
            let quick = self.world.below(2) == 0;
            self.break_later((from, to), if quick { 2 } else { SILENCE_MS_MAX });
            return;
        }
        let Some(connection) = self.passes((from, to), (from, to), &conditions) else { return };
        let (network, pair) = (self.clone(), (from, to));
        let serve: Job = Box::new(move || serve(number));
        if ordered {
            self.state.lock().connections.entry(pair).or_default().lane.push_back(serve);
            let deliver = move || network.go_on(pair, connection);
            self.world.start(to, self.delay(&conditions, (from, to)), name, Box::new(deliver));
        } else {
            let deliver = move || {
                if network.is(pair, connection) {
                    serve();
                }
            };
            self.world.start(to, self.delay(&conditions, (from, to)), name, Box::new(deliver));
        }
    }

    fn is(&self, pair: (Machine, Machine), connection: u64) -> bool {
        self.state.lock().connections.get(&pair).is_some_and(|now| now.number == connection)
    }

    /// Runs the jobs of a lane, unless another task does so already; then that one runs the new jobs, too.
    fn go_on(&self, pair: (Machine, Machine), connection: u64) {
        loop {
            let job = {
                let mut state = self.state.lock();
                let Some(now) = state.connections.get_mut(&pair) else { return };
                if now.number != connection || now.busy {
                    return;
                }
                let Some(job) = now.lane.pop_front() else { return };
                now.busy = true;
                job
            };
            job();
            match self.state.lock().connections.get_mut(&pair) {
                Some(now) if now.number == connection => now.busy = false,
                _ => return,
            }
        }
    }

    /// Answers a request: `deliver` is run at its sender, if the connection still stands.
    pub fn answer(self: &Rc<Self>, pair: (Machine, Machine), number: u64, name: &str, deliver: Job) {
        let conditions = {
            let mut state = self.state.lock();
            state.sent += 1;
            state.conditions.clone()
        };
        let Some(connection) = self.passes(pair, (pair.1, pair.0), &conditions) else { return };
        let network = self.clone();
        let arrive = move || {
            let known = {
                let mut state = network.state.lock();
                let now = state.connections.entry(pair).or_default();
                if now.number == connection { now.pending.remove(&number) } else { None }
            };
            if known.is_some() {
                deliver();
            }
        };
        self.world.start(pair.0, self.delay(&conditions, (pair.1, pair.0)), name, Box::new(arrive));
    }

    /// Whether a message arrives on the connection of `pair`, and on which.
    fn passes(
        &self,
        pair: (Machine, Machine),
        way: (Machine, Machine),
        conditions: &Conditions,
    ) -> Option<u64> {
        let lost = conditions.cut.contains(&way) || self.world.once_in(conditions.breaks_one_of);
        let mut state = self.state.lock();
        let connection = state.connections.entry(pair).or_default();
        if connection.silent {
            return None;
        }
        if !lost {
            return Some(connection.number);
        }
        connection.silent = true;
        state.lost += 1;
        drop(state);
        self.break_later(pair, SILENCE_MS_MAX);
        None
    }

    fn break_later(&self, pair: (Machine, Machine), longest_ms: u64) {
        let after = Duration::from_millis(self.world.between(1, longest_ms));
        let number = {
            let mut state = self.state.lock();
            let connection = state.connections.entry(pair).or_default();
            connection.silent = true;
            connection.number
        };
        let me = self.me.clone();
        let end = move || {
            if let Some(network) = me.upgrade().filter(|network| network.is(pair, number)) {
                network.sever(pair);
            }
        };
        self.world.start(crate::scheduler::OBSERVER, after, "net-break", Box::new(end));
    }

    /// Breaks a connection, and tells its client.
    fn sever(&self, pair: (Machine, Machine)) {
        let (pending, lane) = self.state.lock().connections.entry(pair).or_default().renew();
        drop(lane);
        // In order, by one task, as the reader of a connection does it.
        let tell = move || {
            for (_, fail) in pending {
                fail(MetaError::Unavailable("the connection is lost".into()));
            }
        };
        self.world.start(pair.0, Duration::ZERO, "net-fail", Box::new(tell));
    }

    /// A machine has died: its connections are silent, and new ones are refused.
    pub fn died(&self, machine: Machine) {
        let pairs: Vec<_> = {
            let mut state = self.state.lock();
            state.dead.insert(machine);
            let own = state.connections.iter_mut().filter(|(pair, _)| pair.0 == machine);
            let forgotten: Vec<_> = own.map(|(_, connection)| connection.renew()).collect();
            let pairs = state.connections.keys().filter(|pair| pair.1 == machine).copied().collect();
            drop(state);
            self.world.as_dying(|| drop(forgotten));
            pairs
        };
        for pair in pairs {
            let quick = self.world.below(2) == 0;
            self.break_later(pair, if quick { 5 } else { SILENCE_MS_MAX });
        }
    }

    /// A machine is stopped while its connections stand: a peer that waits long enough takes it for dead.
    pub fn stopped(&self, machine: Machine, long: Duration) {
        let silence = Duration::from_millis(SILENCE_MS_MAX);
        if long <= silence {
            return;
        }
        let me = self.me.clone();
        let end = move || {
            let Some(network) = me.upgrade() else { return };
            let state = network.state.lock();
            let of_it = state.connections.keys().filter(|pair| pair.0 == machine || pair.1 == machine);
            let pairs: Vec<_> = of_it.copied().collect();
            drop(state);
            pairs.into_iter().for_each(|pair| network.sever(pair));
        };
        self.world.start(crate::scheduler::OBSERVER, silence, "net-silence", Box::new(end));
    }

    /// The machine is back.
    pub fn returned(&self, machine: Machine) {
        self.state.lock().dead.remove(&machine);
    }
}

impl Conditions {
    /// A local network.
    pub fn fair() -> Conditions {
        Conditions { delay_us_max: DELAY_US_CALM, ..Conditions::default() }
    }
}

/// A value that the first caller takes.
pub type Once<T> = Arc<Mutex<Option<T>>>;

/// A value to be taken once.
pub fn once<T>(value: T) -> Once<T> {
    Arc::new(Mutex::new(Some(value)))
}
