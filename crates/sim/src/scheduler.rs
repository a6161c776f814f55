//! The tasks of a world, the clocks of its machines, and the choice of the next task.
//!
//! **Model.** Every thread of the code under test is a coroutine, and all of them share one thread of the
//! system. A task runs until it waits, or until a random choice ends its turn at a lock. The next task is
//! drawn from all that are runnable. When none is, time jumps to the next deadline that a task waits for.
//! Each machine's clock runs at its own rate.
//!
//! **Promises.** Nothing but the seed decides: two runs draw the same numbers in the same order.
//! [`digest`](Scheduler::digest) covers all turns and their times.
//!
//! **Death.** The tasks of a machine that dies are unwound, each from where it stands, so nothing is left
//! behind. What they still do while unwinding affects their own machine only; waiting ends at once.

mod simulator;
mod state;

use self::state::{Inner, Task, Timer, key, mix};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shoal_runtime::simulator::{Event, Simulator, Wake};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

/// A machine of the world, by number.
pub type Machine = u32;
/// The machine that no fault touches, and that runs the simulator's own tasks.
pub const OBSERVER: Machine = 0;

/// Bytes of a task's stack; untouched pages take no memory.
const STACK_BYTES: usize = 1 << 20;
/// Stacks kept for reuse.
const STACKS_KEPT: usize = 256;
/// Longest time that a turn takes, in nanoseconds.
const TURN_NS_MAX: u64 = 4_000;
/// A task that is being unwound and waits this often will never end.
const DEATH_WAITS_MAX: u32 = 100_000;

type Run = Box<dyn FnOnce()>;
type Stacked = Coroutine<(), (), (), DefaultStack>;

/// The panic payload that unwinds a task.
struct Killed;

/// The scheduler of a world.
pub struct Scheduler {
    inner: RefCell<Inner>,
    stacks: RefCell<Vec<DefaultStack>>,
    me: std::rc::Weak<Scheduler>,
    /// The yielder of the running task.
    yielder: Cell<*const Yielder<(), ()>>,
}

/// How a run of the scheduler ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The main task has ended.
    Done,
    /// All tasks wait, and no event will ever come.
    Stuck(Vec<String>),
    /// The time is over.
    TooLong,
    /// A task has panicked.
    Panicked,
}

impl Scheduler {
    /// A world without tasks.
    pub fn new(seed: u64) -> Rc<Scheduler> {
        let inner = Inner {
            now: 1_000_000_000,
            rng: SmallRng::seed_from_u64(seed),
            numbers: 0,
            tasks: BTreeMap::new(),
            ready: Vec::new(),
            stalled: Vec::new(),
            doomed: Vec::new(),
            timers: BTreeSet::new(),
            waiting: BTreeMap::new(),
            current: 0,
            machines: BTreeMap::new(),
            digest: seed,
            turns: 0,
            spinning: BTreeSet::new(),
            panics: Vec::new(),
            calm: true,
            planted: None,
        };
        Rc::new_cyclic(|me| Scheduler {
            inner: RefCell::new(inner),
            stacks: RefCell::default(),
            me: me.clone(),
            yielder: Cell::new(std::ptr::null()),
        })
    }

    /// Sets a machine's clock: its offset, and by how many parts per million it runs fast.
    pub fn set_clock(&self, machine: Machine, offset: Duration, drift_ppm: i64) {
        let mut inner = self.inner.borrow_mut();
        let clock = inner.machines.entry(machine).or_default();
        (clock.offset_ns, clock.drift_ppm) = (offset.as_nanos() as u64, drift_ppm);
        clock.wall_offset_ns = offset.as_nanos() as u64 / 100;
    }

    /// Sets a machine's wall clock, forward or back.
    pub fn set_wall_clock(&self, machine: Machine, offset: Duration) {
        let mut inner = self.inner.borrow_mut();
        inner.machines.entry(machine).or_default().wall_offset_ns = offset.as_nanos() as u64;
    }

    /// Stops a machine for a while. Its clocks go on.
    pub fn stop(&self, machine: Machine, long: Duration) {
        let mut inner = self.inner.borrow_mut();
        let until = inner.now + long.as_nanos() as u64;
        inner.machines.entry(machine).or_default().stopped_until = until;
    }

    /// Overloads a machine for a while: its tasks are delayed often, and for long.
    pub fn keep_busy(&self, machine: Machine, long: Duration) {
        let mut inner = self.inner.borrow_mut();
        let until = inner.now + long.as_nanos() as u64;
        inner.machines.entry(machine).or_default().busy_until = until;
    }

    /// Whether tasks are delayed now and then.
    pub fn set_calm(&self, calm: bool) {
        self.inner.borrow_mut().calm = calm;
    }

    /// Plants a defect, by name.
    pub fn plant(&self, mistake: Option<String>) {
        self.inner.borrow_mut().planted = mistake;
    }

    /// Nanoseconds since the world began, by no machine's clock.
    pub fn time_ns(&self) -> u64 {
        self.inner.borrow().now
    }

    /// A hash of all that has happened.
    pub fn digest(&self) -> u64 {
        self.inner.borrow().digest
    }

    /// Tasks that took too many turns within a second, as if they polled without waiting.
    pub fn spinning(&self) -> Vec<String> {
        self.inner.borrow().spinning.iter().cloned().collect()
    }

    /// The number of turns.
    pub fn turns(&self) -> u64 {
        self.inner.borrow().turns
    }

    /// The panics of tasks.
    pub fn panics(&self) -> Vec<String> {
        self.inner.borrow().panics.clone()
    }

    /// The time as in [`time_ns`](Self::time_ns), but no two calls return the same.
    pub fn stamp_ns(&self) -> u64 {
        let mut inner = self.inner.borrow_mut();
        inner.now += 1;
        inner.now
    }

    /// Whether the running task is being unwound.
    pub fn is_taken_apart(&self) -> bool {
        let inner = self.inner.borrow();
        inner.tasks.get(&inner.current).is_none_or(|task| task.dying)
    }

    /// Adds a value to the digest.
    pub fn note(&self, value: u64) {
        let mut inner = self.inner.borrow_mut();
        inner.digest = mix(inner.digest, value);
    }

    /// A random number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.inner.borrow_mut().rng.random_range(0..end.max(1))
    }

    /// A random number between two.
    pub fn between(&self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// True once in so many times; never if 0.
    pub fn once_in(&self, times: u32) -> bool {
        times > 0 && self.inner.borrow_mut().rng.random_ratio(1, times)
    }

    /// Starts a task on a machine, after a while.
    pub fn start(&self, machine: Machine, after: Duration, name: &str, run: Run) -> u64 {
        let me = self.me.clone();
        let stack = self.stacks.borrow_mut().pop();
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("room for a stack"));
        let mut inner = self.inner.borrow_mut();
        inner.numbers += 1;
        let number = inner.numbers;
        let coroutine = Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            if let Some(scheduler) = me.upgrade() {
                scheduler.run_task(number, yielder, run);
            }
        });
        let killed = inner.tasks.get(&inner.current).is_some_and(|one| one.killed && one.machine == machine);
        let task = Task {
            name: name.to_owned(),
            machine,
            coroutine: Some(coroutine),
            yielder: std::ptr::null(),
            waits_on: None,
            timer: None,
            woken: Wake::Event,
            killed,
            dying: false,
            death_waits: 0,
            busy: (0, 0),
        };
        inner.tasks.insert(number, task);
        if killed {
            inner.doomed.push(number);
        } else if after.is_zero() {
            inner.ready.push(number);
        } else {
            let at = inner.now + after.as_nanos() as u64;
            inner.set_timer(number, at, Timer::GoOn);
        }
        number
    }

    fn run_task(&self, number: u64, yielder: &Yielder<(), ()>, run: Run) {
        self.yielder.set(yielder);
        let killed = {
            let mut inner = self.inner.borrow_mut();
            let Some(task) = inner.tasks.get_mut(&number) else { return };
            task.yielder = yielder;
            task.dying = task.killed;
            task.killed
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| match killed {
            true => drop(run),
            false => run(),
        }));
        let Err(panic) = outcome else { return };
        if panic.is::<Killed>() {
            return;
        }
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or(panic.downcast_ref::<&str>().copied()).unwrap_or("something");
        let mut inner = self.inner.borrow_mut();
        let name = inner.tasks.get(&number).map_or(String::new(), |task| task.name.clone());
        inner.panics.push(format!("task {name}: {words}"));
    }

    /// Unwinds all tasks of a machine, here and now. Returns when they have ended.
    pub fn kill(&self, machine: Machine) {
        {
            let mut inner = self.inner.borrow_mut();
            let ids: Vec<u64> = inner
                .tasks
                .iter()
                .filter(|(_, task)| task.machine == machine && !task.killed)
                .map(|(id, _)| *id)
                .collect();
            inner.ready.retain(|task| !ids.contains(task));
            inner.stalled.retain(|task| !ids.contains(task));
            for id in &ids {
                inner.detach(*id);
                if let Some(task) = inner.tasks.get_mut(id) {
                    task.killed = true;
                }
            }
            inner.doomed.extend(ids);
            if let Some(clock) = inner.machines.get_mut(&machine) {
                clock.stopped_until = 0;
            }
        }
        while self.inner.borrow().tasks.values().any(|task| task.killed) {
            self.stall();
        }
    }

    /// Runs something as a task that is being unwound: it waits for nothing.
    pub fn as_dying<T>(&self, run: impl FnOnce() -> T) -> T {
        self.set_dying(true);
        let done = run();
        self.set_dying(false);
        done
    }

    fn set_dying(&self, dying: bool) {
        let mut inner = self.inner.borrow_mut();
        let current = inner.current;
        if let Some(task) = inner.tasks.get_mut(&current) {
            (task.dying, task.killed) = (dying, dying);
        }
    }

    /// Runs until a task has ended, or until `until`.
    pub fn run(&self, main: u64, until: Duration) -> End {
        let until = until.as_nanos() as u64;
        loop {
            let task = {
                let mut inner = self.inner.borrow_mut();
                if !inner.panics.is_empty() {
                    return End::Panicked;
                }
                if !inner.tasks.contains_key(&main) {
                    return End::Done;
                }
                if inner.now > until {
                    return End::TooLong;
                }
                let Some(task) = inner.next() else { return End::Stuck(inner.names()) };
                task
            };
            self.turn(task);
        }
    }

    /// Unwinds all tasks.
    pub fn end(&self) {
        loop {
            let task = {
                let mut inner = self.inner.borrow_mut();
                let ids: Vec<u64> = inner.tasks.keys().copied().collect();
                for id in &ids {
                    inner.detach(*id);
                    if let Some(task) = inner.tasks.get_mut(id)
                        && !std::mem::replace(&mut task.killed, true)
                    {
                        // One task at a time: it may hold what another one waits for.
                        inner.doomed.push(*id);
                    }
                }
                match inner.doomed.iter().position(|id| ids.contains(id)) {
                    Some(at) => inner.doomed.remove(at),
                    None => match ids.first() {
                        Some(first) => *first,
                        None => return,
                    },
                }
            };
            self.turn(task);
        }
    }

    fn turn(&self, number: u64) {
        let coroutine = {
            let mut inner = self.inner.borrow_mut();
            let took = inner.rng.random_range(0..TURN_NS_MAX);
            inner.now += took;
            inner.count(number);
            let now = inner.now;
            inner.digest = mix(mix(inner.digest, number), now);
            inner.current = number;
            let Some(task) = inner.tasks.get_mut(&number) else { return };
            self.yielder.set(task.yielder);
            task.coroutine.take()
        };
        let Some(mut coroutine) = coroutine else { return };
        let outcome = coroutine.resume(());
        let mut inner = self.inner.borrow_mut();
        inner.current = 0;
        let inner = &mut *inner;
        if !inner.stalled.is_empty() && inner.stalled.last() != Some(&number) {
            // Tasks that met a held lock try again.
            inner.ready.append(&mut inner.stalled);
        }
        match outcome {
            CoroutineResult::Yield(()) => {
                if let Some(task) = inner.tasks.get_mut(&number) {
                    task.coroutine = Some(coroutine);
                }
            }
            CoroutineResult::Return(()) => {
                let mut stacks = self.stacks.borrow_mut();
                if stacks.len() < STACKS_KEPT {
                    stacks.push(coroutine.into_stack());
                }
                inner.detach(number);
                inner.tasks.remove(&number);
                for waiting in inner.waiting.get(&key(Event::End(number))).cloned().unwrap_or_default() {
                    inner.make_ready(waiting, Wake::Event);
                }
            }
        }
    }

    /// Ends the turn of the running task; the caller has made sure that it will run again.
    fn suspend(&self) {
        let yielder = self.yielder.get();
        // SAFETY: it belongs to the running task, was set by `turn` or `run_task`, and lives on that task's
        // own stack, below this frame.
        unsafe { (*yielder).suspend(()) };
        let mut inner = self.inner.borrow_mut();
        let current = inner.current;
        let Some(task) = inner.tasks.get_mut(&current) else { return };
        if task.killed && !task.dying {
            task.dying = true;
            drop(inner);
            resume_unwind(Box::new(Killed));
        }
    }

    /// Whether the running task must not wait any more.
    fn is_dying(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let current = inner.current;
        let Some(task) = inner.tasks.get_mut(&current) else { return true };
        if task.dying {
            task.death_waits += 1;
            if task.death_waits > DEATH_WAITS_MAX {
                eprintln!("task {} cannot be taken apart: it waits for ever", task.name);
                std::process::abort();
            }
        }
        task.dying
    }

    /// The running machine and task.
    pub fn label(&self) -> (Machine, String) {
        let inner = self.inner.borrow();
        match inner.tasks.get(&inner.current) {
            Some(task) => (task.machine, task.name.clone()),
            None => (OBSERVER, String::new()),
        }
    }
}
