//! A network between replicas of one process: messages get lost, delayed or reordered, or are cut off.

use bytes::Bytes;
use rand::Rng;
use shoal_meta::{Peers, Server};
use shoal_types::{NodeId, ReplicaId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The current faults of the network.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// Messages do not pass from the first to the second.
    pub cut: BTreeSet<(u64, u64)>,
    /// One of so many messages gets lost; 0: none.
    pub loses_one_of: u32,
    /// The longest delay of a message, in milliseconds.
    pub delay_ms_max: u64,
    /// Requests are held until they are [let through](Fabric::let_one_through).
    pub holds_questions: bool,
}

struct Letter {
    from: u64,
    to: u64,
    message: Bytes,
}

#[derive(Default)]
struct State {
    weather: Weather,
    /// Due time, number, and the message's place in `letters`.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    letters: BTreeMap<u64, Letter>,
    sent: u64,
    servers: BTreeMap<u64, Weak<Server>>,
    /// The next request may pass.
    lets_through: bool,
    stop: bool,
}

/// The network.
#[derive(Default)]
pub struct Fabric {
    state: Mutex<State>,
    posted: Condvar,
}

/// One replica's end of it.
pub struct End {
    pub fabric: Arc<Fabric>,
    pub me: u64,
}

impl Fabric {
    /// A network without faults, and the thread that delivers.
    pub fn new() -> (Arc<Fabric>, JoinHandle<()>) {
        let fabric: Arc<Fabric> = Arc::default();
        let postman = fabric.clone();
        (fabric, std::thread::spawn(move || postman.deliver()))
    }

    pub fn set(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.state.lock().expect("lock").weather);
        self.posted.notify_all();
    }

    /// Cuts these off from all others.
    pub fn isolate(&self, some: &[u64], all: &[u64]) {
        self.set(|weather| {
            for one in some {
                for other in all.iter().filter(|other| !some.contains(other)) {
                    weather.cut.extend([(*one, *other), (*other, *one)]);
                }
            }
        });
    }

    pub fn heal(&self) {
        self.set(|weather| *weather = Weather::default());
    }

    /// Lets a request pass, and waits a while for one to do so.
    pub fn let_one_through(&self, longest: Duration) {
        let mut state = self.state.lock().expect("lock");
        state.lets_through = true;
        self.posted.notify_all();
        let held = |state: &mut State| state.lets_through;
        drop(self.posted.wait_timeout_while(state, longest, held).expect("lock"));
    }

    pub fn plug(&self, id: u64, server: &Arc<Server>) {
        self.state.lock().expect("lock").servers.insert(id, Arc::downgrade(server));
    }

    pub fn unplug(&self, id: u64) {
        self.state.lock().expect("lock").servers.remove(&id);
    }

    pub fn stop(&self) {
        self.state.lock().expect("lock").stop = true;
        self.posted.notify_all();
    }

    fn deliver(&self) {
        let mut state = self.state.lock().expect("lock");
        while !state.stop {
            let Some(Reverse((when, number))) = state.due.peek().copied() else {
                state = self.posted.wait(state).expect("lock");
                continue;
            };
            let now = Instant::now();
            if when > now {
                state = self.posted.wait_timeout(state, when - now).expect("lock").0;
                continue;
            }
            state.due.pop();
            let Some(letter) = state.letters.remove(&number) else { continue };
            if state.weather.cut.contains(&(letter.from, letter.to)) {
                continue;
            }
            let server = state.servers.get(&letter.to).and_then(Weak::upgrade);
            drop(state);
            if let Some(server) = server {
                server.replica().receive(ReplicaId(letter.from), &letter.message);
            }
            state = self.state.lock().expect("lock");
        }
    }
}

impl Peers for End {
    fn send(&self, to: ReplicaId, message: Bytes) {
        let mut state = self.fabric.state.lock().expect("lock");
        let (lost, delay) = (state.weather.loses_one_of, state.weather.delay_ms_max);
        let mut random = rand::rng();
        if lost > 0 && random.random_range(0..lost) == 0 {
            return;
        }
        let due = Instant::now() + Duration::from_millis(random.random_range(0..=delay));
        state.sent += 1;
        let number = state.sent;
        state.due.push(Reverse((due, number)));
        state.letters.insert(number, Letter { from: self.me, to: to.0, message });
        self.fabric.posted.notify_all();
    }

    fn request(&self, to: ReplicaId, request: Bytes) -> Result<Bytes, String> {
        let server = {
            let state = self.fabric.state.lock().expect("lock");
            let cut = &state.weather.cut;
            if cut.contains(&(self.me, to.0)) || cut.contains(&(to.0, self.me)) {
                return Err(format!("{to} is not reached"));
            }
            let held =
                |state: &mut State| state.weather.holds_questions && !state.lets_through && !state.stop;
            let mut state = self.fabric.posted.wait_while(state, held).expect("lock");
            state.lets_through = false;
            self.fabric.posted.notify_all();
            state.servers.get(&to.0).and_then(Weak::upgrade)
        };
        server.ok_or_else(|| format!("{to} is down"))?.replica().answer(&request)
    }

    fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        Some(NodeId(replica.0 as u32))
    }

    fn others(&self) -> Vec<ReplicaId> {
        let state = self.fabric.state.lock().expect("lock");
        state.servers.keys().filter(|id| **id != self.me).map(|id| ReplicaId(*id)).collect()
    }
}
