//! Programs on mounts: workers that make calls, mounts that die and come back, and the record of all calls.
//!
//! **Lives.** What a mount has not synced may be lost with its session, whether its machine dies or the
//! servers end the session. So each worker's number belongs to one session of its mount. In the next session
//! it is another worker, without open files.

use crate::cluster::{Cluster, FIRST_CLIENT};
use crate::focus::Calls;
use crate::kernel::Kernel;
use crate::scheduler::{Machine, Scheduler};
use crate::syscalls::Syscalls;
use crate::trace::say;
use shoal_client::Client;
use shoal_runtime::thread::sleep;
use shoal_runtime::time::Duration;
use shoal_types::SessionId;
use shoal_witness::history::Call;
use shoal_witness::limits::DEATH_ERRNOS;
use shoal_witness::ops::{Op, Outcome};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Longest time between two calls of a worker, in microseconds: usual, and in a focused world.
const THINK_US_MAX: [u64; 2] = [150_000, 20_000];
/// Fewest and most calls of a worker in a round: usual, and in a focused world.
const ROUND_CALLS: [(u64, u64); 2] = [(3, 14), (2, 6)];
/// One write in this many is synced at once.
const SYNCED_ONE_OF: u32 = 3;
/// A failed mount is retried after this.
const MOUNT_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A worker whose mount has lost its session pauses for this long.
const REST_AFTER_LOSS: Duration = Duration::from_millis(150);

/// A worker.
pub struct Worker {
    syscalls: Syscalls,
    calls: Calls,
    session: SessionId,
    /// Its number in the history.
    number: u32,
}

/// A mount: the client, and the kernel above it in the worlds that have one.
type Mount = (Arc<Client>, Option<Arc<Kernel>>);

/// The programs of a world.
pub struct Programs {
    cluster: Rc<Cluster>,
    seed: u64,
    clients: u32,
    /// By the number of the mount.
    mounts: RefCell<Vec<Option<Mount>>>,
    /// Idle workers; none where their mount has died.
    workers: RefCell<Vec<Option<Worker>>>,
    next_number: Cell<u32>,
    /// All calls, in the order in which they began.
    pub calls: RefCell<Vec<Call>>,
    /// Which mount and session a worker of the history had.
    pub lives: RefCell<BTreeMap<u32, (u32, SessionId)>>,
    /// When the sessions of dead machines have ended.
    pub deaths: RefCell<BTreeMap<SessionId, u64>>,
}

/// Whether a call was ended by the end of its session.
pub fn is_lost(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Failed { errno } => DEATH_ERRNOS.contains(errno) && *errno != libc::ESTALE,
        _ => false,
    }
}

impl Programs {
    /// Programs before the first mount.
    pub fn new(cluster: &Rc<Cluster>, seed: u64, clients: u32, workers: u32) -> Rc<Programs> {
        Rc::new(Programs {
            cluster: cluster.clone(),
            seed,
            clients,
            mounts: RefCell::new((0..clients).map(|_| None).collect()),
            workers: RefCell::new((0..clients * workers).map(|_| None).collect()),
            next_number: Cell::new(0),
            calls: RefCell::default(),
            lives: RefCell::default(),
            deaths: RefCell::default(),
        })
    }

    fn machine(mount: u32) -> Machine {
        FIRST_CLIENT + mount
    }

    fn syscalls(&self, (client, kernel): Mount, number: u32) -> Syscalls {
        Syscalls::new(client, kernel, number, self.cluster.layout().word_repeats)
    }

    fn mounted(&self, mount: u32) -> Option<Mount> {
        self.mounts.borrow()[mount as usize].clone()
    }

    /// The mount on a machine.
    pub fn client(&self, mount: u32) -> Option<Arc<Client>> {
        Some(self.mounted(mount)?.0)
    }

    /// Mounts, and makes workers.
    pub fn mount(&self, mount: u32) -> Result<(), String> {
        let mounted = self.cluster.mount(Self::machine(mount))?;
        self.mounts.borrow_mut()[mount as usize] = Some(mounted.clone());
        let count = self.workers.borrow().len() as u32;
        for at in (mount..count).step_by(self.clients as usize) {
            let session = mounted.0.session();
            let number = self.number(mount, session);
            let worker = Worker {
                syscalls: self.syscalls(mounted.clone(), number),
                calls: Calls::new(self.cluster.focus(), self.seed, number),
                session,
                number,
            };
            self.workers.borrow_mut()[at as usize] = Some(worker);
        }
        Ok(())
    }

    /// A number that no worker had before.
    fn number(&self, mount: u32, session: SessionId) -> u32 {
        let turn = self.next_number.get();
        self.next_number.set(turn + 1);
        let number = turn * self.clients + mount;
        self.lives.borrow_mut().insert(number, (mount, session));
        number
    }

    /// Kills the machine of a mount.
    pub fn kill(&self, machine: Machine) {
        let mount = machine - FIRST_CLIENT;
        let Some(mounted) = self.mounts.borrow_mut()[mount as usize].take() else { return };
        self.deaths.borrow_mut().insert(mounted.0.session(), self.cluster.world.stamp_ns());
        self.cluster.world.kill(machine);
        let count = self.workers.borrow().len();
        let own = (mount as usize..count).step_by(self.clients as usize);
        let own: Vec<Option<Worker>> = own.map(|at| self.workers.borrow_mut()[at].take()).collect();
        self.cluster.crash_client(machine, (mounted, own));
    }

    /// Starts the machine again, and mounts.
    pub fn restart_client(&self, machine: Machine) {
        let mount = machine - FIRST_CLIENT;
        if self.client(mount).is_some() {
            return;
        }
        while let Err(error) = self.mount(mount) {
            say(&format!("not mounted: {error}"));
            sleep(MOUNT_AGAIN_AFTER);
        }
    }

    /// A round: all workers make some calls. Returns the tasks.
    pub fn work(self: &Rc<Self>) -> Vec<u64> {
        let world = &self.cluster.world;
        let slow = world.below(2) == 0;
        let (least, most) = ROUND_CALLS[usize::from(self.cluster.focus().is_some())];
        let count = world.between(least, most);
        let start = |at: usize| {
            let me = self.clone();
            let machine = Self::machine(at as u32 % self.clients);
            let work = move || me.work_alone(at, slow, count);
            world.start(machine, Duration::ZERO, &format!("worker-{at}"), Box::new(work))
        };
        (0..self.workers.borrow().len()).map(start).collect()
    }

    fn work_alone(&self, at: usize, slow: bool, count: u64) {
        let taken = self.workers.borrow_mut()[at].take();
        let Some(mut worker) = taken else { return };
        let world = &self.cluster.world;
        let think_us_max = THINK_US_MAX[usize::from(self.cluster.focus().is_some())];
        worker.calls.round();
        for _ in 0..count {
            if slow {
                sleep(Duration::from_micros(world.below(think_us_max)));
            }
            let session = worker.syscalls.client().session();
            if session != worker.session {
                self.renew(&mut worker);
            }
            let op = worker.calls.choose(|slot| worker.syscalls.holds(slot));
            let outcome = self.call(worker.number, &mut worker.syscalls, op.clone());
            worker.calls.learn(&op, &outcome);
            if let (Op::Write { slot, .. }, Outcome::Done) = (&op, &outcome)
                && world.once_in(SYNCED_ONE_OF)
            {
                self.call(worker.number, &mut worker.syscalls, Op::Fsync { slot: *slot });
            }
            if is_lost(&outcome) {
                self.renew(&mut worker);
                sleep(REST_AFTER_LOSS);
            }
        }
        self.workers.borrow_mut()[at] = Some(worker);
    }

    /// The worker's mount has another session: the worker gets another number.
    fn renew(&self, worker: &mut Worker) {
        let client = worker.syscalls.client().clone();
        let mount = self.lives.borrow()[&worker.number].0;
        worker.session = client.session();
        worker.number = self.number(mount, worker.session);
        let Some(mounted) = self.mounted(mount) else { return };
        worker.syscalls = self.syscalls(mounted, worker.number);
        worker.calls.forget();
    }

    /// Makes a call and records it.
    fn call(&self, number: u32, syscalls: &mut Syscalls, op: Op) -> Outcome {
        let world: &Scheduler = &self.cluster.world;
        let start = world.stamp_ns();
        let at = {
            let mut calls = self.calls.borrow_mut();
            calls.push(Call { worker: number, tree: 0, start, end: None, op: op.clone(), outcome: None });
            calls.len() - 1
        };
        say(&format!("{op} ..."));
        let outcome = syscalls.perform(&op);
        say(&format!("{op}: {outcome}"));
        let end = world.stamp_ns();
        let call = &mut self.calls.borrow_mut()[at];
        (call.end, call.outcome) = (Some(end), Some(outcome.clone()));
        outcome
    }

    /// Starts a task that looks at everything on a mount.
    pub fn look(self: &Rc<Self>, mount: u32) -> Option<u64> {
        let (me, mounted) = (self.clone(), self.mounted(mount)?);
        let look = move || {
            let number = me.number(mount, mounted.0.session());
            let mut syscalls = me.syscalls(mounted, number);
            crate::syscalls::look_at_all(&mut |op| me.call(number, &mut syscalls, op));
        };
        Some(self.cluster.world.start(Self::machine(mount), Duration::ZERO, "look", Box::new(look)))
    }

    /// Unmounts everything.
    pub fn unmount(&self) {
        for mount in 0..self.clients {
            let Some((client, kernel)) = self.mounts.borrow_mut()[mount as usize].take() else { continue };
            let count = self.workers.borrow().len();
            let own = (mount as usize..count).step_by(self.clients as usize);
            let own: Vec<Option<Worker>> = own.map(|at| self.workers.borrow_mut()[at].take()).collect();
            self.cluster.on(Self::machine(mount), "unmount", move || {
                drop(own);
                if let Some(kernel) = kernel {
                    kernel.unmount();
                }
                let _ = client.close();
            });
        }
    }

    /// Calls that have not returned, on living mounts.
    pub fn open_calls(&self) -> Vec<String> {
        let (lives, deaths) = (self.lives.borrow(), self.deaths.borrow());
        let is_open = |call: &&Call| call.end.is_none() && !deaths.contains_key(&lives[&call.worker].1);
        let calls = self.calls.borrow();
        calls.iter().filter(is_open).map(|call| format!("{} of worker {}", call.op, call.worker)).collect()
    }
}
