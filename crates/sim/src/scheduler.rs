//! The tasks of a world, the clocks of its machines, and who goes on next.
//!
//! **Model.** Every thread of the code under test is a coroutine here, and all of them share one thread of the system. One runs until it waits,
//! or until chance takes its turn away at a lock. Who goes on is drawn from all that can. When nobody can, time jumps to the next moment that
//! somebody waits for. Each machine's clock runs at a pace of its own.
//!
//! **Promises.** Nothing but the seed decides: two runs draw the same numbers in the same order. [`digest`](Scheduler::digest) is over all turns
//! that were given, and when.
//!
//! **Death.** The tasks of a machine that dies are unwound, each from where it stands: so nothing is left behind. Whatever they still do on that way
//! concerns their own machine only; waiting ends at once.

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
/// The one that nothing happens to, and from which the others are looked after.
pub const OBSERVER: Machine = 0;

/// Bytes of a task's stack; what is not touched takes no memory.
const STACK_BYTES: usize = 1 << 20;
/// Stacks kept to be used again.
const STACKS_KEPT: usize = 256;
/// Longest time that a turn takes, in nanoseconds.
const TURN_NS_MAX: u64 = 4_000;
/// At so many locks a task loses its turn once.
const TURN_LOST_ONE_OF: u32 = 6;
/// At so many turns a task is held up once, as by a page that has to be read ...
const HELD_UP_ONE_OF: u32 = 3_000;
/// ... for this long at most, in nanoseconds.
const HELD_UP_NS_MAX: u64 = 30_000_000;
/// A task that is taken apart and waits this often will never come to its end.
const DEATH_WAITS_MAX: u32 = 100_000;
/// Parts per million.
const MILLION: i128 = 1_000_000;

type Run = Box<dyn FnOnce()>;
type Stacked = Coroutine<(), (), (), DefaultStack>;

/// What a task that is taken apart unwinds with.
struct Killed;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    /// A wait has lasted long enough.
    Due,
    /// It may go on, with whatever had woken it.
    GoOn,
}

struct Task {
    name: String,
    machine: Machine,
    coroutine: Option<Stacked>,
    yielder: *const Yielder<(), ()>,
    waits_on: Option<Event>,
    timer: Option<(u64, Timer)>,
    woken: Wake,
    /// Its machine has died.
    killed: bool,
    /// It is being unwound.
    dying: bool,
    death_waits: u32,
}

#[derive(Clone, Copy, Default)]
struct Clock {
    offset_ns: u64,
    drift_ppm: i64,
    wall_offset_ns: u64,
    stopped_until: u64,
}

struct Inner {
    now: u64,
    rng: SmallRng,
    numbers: u64,
    tasks: BTreeMap<u64, Task>,
    ready: Vec<u64>,
    /// Have met a held lock: they try again when somebody else has gone on.
    stalled: Vec<u64>,
    /// Are to be taken apart, before anybody else goes on.
    doomed: Vec<u64>,
    timers: BTreeSet<(u64, u64)>,
    waiting: BTreeMap<u64, Vec<u64>>,
    current: u64,
    machines: BTreeMap<Machine, Clock>,
    digest: u64,
    turns: u64,
    panics: Vec<String>,
    /// Calm: no task is held up.
    calm: bool,
    planted: Option<String>,
}

/// See the module.
pub struct Scheduler {
    inner: RefCell<Inner>,
    stacks: RefCell<Vec<DefaultStack>>,
    me: std::rc::Weak<Scheduler>,
    /// Of the running task.
    yielder: Cell<*const Yielder<(), ()>>,
}

/// How a run of the scheduler ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The main task has come to its end.
    Done,
    /// Everybody waits, and nothing will ever come.
    Stuck(Vec<String>),
    /// It has taken too long.
    TooLong,
    /// A task has panicked.
    Panicked,
}

fn mix(digest: u64, value: u64) -> u64 {
    (digest.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95)
}

/// One number for an event; which one does not matter, and it is compared only.
fn key(event: Event) -> u64 {
    let (kind, number) = match event {
        Event::Condition(at) => (0, at as u64),
        Event::Given(number) => (1, number),
        Event::Taken(number) => (2, number),
        Event::End(task) => (3, task),
    };
    number << 2 | kind
}

impl Inner {
    fn machine_of(&self, task: u64) -> Machine {
        self.tasks.get(&task).map_or(OBSERVER, |task| task.machine)
    }

    fn clock_of(&self, task: u64) -> Clock {
        self.machines.get(&self.machine_of(task)).copied().unwrap_or_default()
    }

    fn local(clock: Clock, now: u64) -> u64 {
        let paced = i128::from(now) * (MILLION + i128::from(clock.drift_ppm)) / MILLION;
        clock.offset_ns + paced as u64
    }

    /// When a machine's clock shows this.
    fn global(clock: Clock, local: u64) -> u64 {
        let paced = i128::from(local.saturating_sub(clock.offset_ns));
        let pace = MILLION + i128::from(clock.drift_ppm);
        u64::try_from((paced * MILLION + pace - 1) / pace).unwrap_or(u64::MAX)
    }

    fn set_timer(&mut self, task: u64, at: u64, what: Timer) {
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.timer = Some((at, what));
            self.timers.insert((at, task));
        }
    }

    /// Takes a task off everything that it waits for.
    fn detach(&mut self, task: u64) {
        let Some(entry) = self.tasks.get_mut(&task) else { return };
        if let Some((at, _)) = entry.timer.take() {
            self.timers.remove(&(at, task));
        }
        if let Some(event) = entry.waits_on.take()
            && let Some(waiting) = self.waiting.get_mut(&key(event))
        {
            waiting.retain(|one| *one != task);
            if waiting.is_empty() {
                self.waiting.remove(&key(event));
            }
        }
    }

    fn make_ready(&mut self, task: u64, woken: Wake) {
        self.detach(task);
        if let Some(entry) = self.tasks.get_mut(&task) {
            entry.woken = woken;
            self.ready.push(task);
        }
    }

    fn fire(&mut self) {
        while let Some((at, task)) = self.timers.first().copied()
            && at <= self.now
        {
            let what = self.tasks.get(&task).and_then(|entry| entry.timer).map(|timer| timer.1);
            match what {
                Some(Timer::Due) => self.make_ready(task, Wake::Time),
                Some(Timer::GoOn) => {
                    self.detach(task);
                    self.ready.push(task);
                }
                None => _ = self.timers.pop_first(),
            }
        }
    }

    /// Who goes on; `None` if nobody ever will.
    fn next(&mut self) -> Option<u64> {
        if !self.doomed.is_empty() {
            return Some(self.doomed.remove(0));
        }
        loop {
            self.fire();
            if self.ready.is_empty() {
                let (at, _) = *self.timers.first()?;
                self.now = self.now.max(at);
                self.ready.append(&mut self.stalled);
                continue;
            }
            let picked = self.rng.random_range(0..self.ready.len());
            let task = self.ready.swap_remove(picked);
            let clock = self.clock_of(task);
            if clock.stopped_until > self.now {
                self.set_timer(task, clock.stopped_until, Timer::GoOn);
                continue;
            }
            if !self.calm && self.machine_of(task) != OBSERVER && self.rng.random_ratio(1, HELD_UP_ONE_OF) {
                let at = self.now + self.rng.random_range(0..HELD_UP_NS_MAX);
                self.set_timer(task, at, Timer::GoOn);
                continue;
            }
            return Some(task);
        }
    }
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

    /// Sets a machine's clock: how far ahead it is, and by how many millionths it runs fast.
    pub fn set_clock(&self, machine: Machine, offset: Duration, drift_ppm: i64) {
        let mut inner = self.inner.borrow_mut();
        let clock = inner.machines.entry(machine).or_default();
        (clock.offset_ns, clock.drift_ppm) = (offset.as_nanos() as u64, drift_ppm);
        clock.wall_offset_ns = offset.as_nanos() as u64 / 100;
    }

    /// Stops a machine for a while: nothing on it goes on, and its clocks do.
    pub fn stop(&self, machine: Machine, long: Duration) {
        let mut inner = self.inner.borrow_mut();
        let until = inner.now + long.as_nanos() as u64;
        inner.machines.entry(machine).or_default().stopped_until = until;
    }

    /// Whether tasks are held up now and then.
    pub fn set_calm(&self, calm: bool) {
        self.inner.borrow_mut().calm = calm;
    }

    /// Plants a mistake, by name.
    pub fn plant(&self, mistake: Option<String>) {
        self.inner.borrow_mut().planted = mistake;
    }

    /// Nanoseconds since the world began, by no machine's clock.
    pub fn time_ns(&self) -> u64 {
        self.inner.borrow().now
    }

    /// Over all that has happened.
    pub fn digest(&self) -> u64 {
        self.inner.borrow().digest
    }

    /// How many turns were given.
    pub fn turns(&self) -> u64 {
        self.inner.borrow().turns
    }

    /// What tasks have panicked with.
    pub fn panics(&self) -> Vec<String> {
        self.inner.borrow().panics.clone()
    }

    /// The same, and no two moments are alike.
    pub fn stamp_ns(&self) -> u64 {
        let mut inner = self.inner.borrow_mut();
        inner.now += 1;
        inner.now
    }

    /// Whether the task that runs is being taken apart.
    pub fn is_taken_apart(&self) -> bool {
        let inner = self.inner.borrow();
        inner.tasks.get(&inner.current).is_none_or(|task| task.dying)
    }

    /// Something that the digest is to be over, too.
    pub fn note(&self, value: u64) {
        let mut inner = self.inner.borrow_mut();
        inner.digest = mix(inner.digest, value);
    }

    /// A number below `end`.
    pub fn below(&self, end: u64) -> u64 {
        self.inner.borrow_mut().rng.random_range(0..end.max(1))
    }

    /// A number between two.
    pub fn between(&self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// Once in so many times; never if 0.
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

    /// All tasks of a machine come to their end, here and now. The caller goes on when they have.
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

    /// Does something as a task that is being taken apart: it waits for nothing.
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

    /// Runs until a task has come to its end, or `until`.
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

    /// Takes everything apart.
    pub fn end(&self) {
        loop {
            let task = {
                let mut inner = self.inner.borrow_mut();
                let ids: Vec<u64> = inner.tasks.keys().copied().collect();
                for id in &ids {
                    inner.detach(*id);
                    if let Some(task) = inner.tasks.get_mut(id) {
                        task.killed = true;
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
            inner.turns += 1;
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
            // Those that met a held lock look again.
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

    /// Gives the turn away; whoever calls has seen to it that it comes back.
    fn suspend(&self) {
        let yielder = self.yielder.get();
        // SAFETY: it is that of the running task, set by `turn` or `run_task`, and lives on that task's own stack, below this frame.
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

    /// Whether the running task waits for nothing any more.
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
}

impl Inner {
    fn names(&self) -> Vec<String> {
        self.tasks.values().map(|task| format!("{}@{}", task.name, task.machine)).collect()
    }
}

impl Simulator for Scheduler {
    fn now(&self) -> Duration {
        let inner = self.inner.borrow();
        Duration::from_nanos(Inner::local(inner.clock_of(inner.current), inner.now))
    }

    fn wall(&self) -> Duration {
        let inner = self.inner.borrow();
        let clock = inner.clock_of(inner.current);
        Duration::from_secs(1_800_000_000) + Duration::from_nanos(inner.now + clock.wall_offset_ns)
    }

    fn random(&self) -> u64 {
        self.inner.borrow_mut().rng.random()
    }

    fn number(&self) -> u64 {
        let mut inner = self.inner.borrow_mut();
        inner.numbers += 1;
        inner.numbers
    }

    fn spawn(&self, name: &str, run: Run) -> u64 {
        let machine = {
            let inner = self.inner.borrow();
            inner.machine_of(inner.current)
        };
        self.start(machine, Duration::ZERO, name, run)
    }

    fn current(&self) -> u64 {
        self.inner.borrow().current
    }

    fn is_finished(&self, task: u64) -> bool {
        !self.inner.borrow().tasks.contains_key(&task)
    }

    fn step(&self) {
        let mut inner = self.inner.borrow_mut();
        let current = inner.current;
        let goes_on = inner.tasks.get(&current).is_none_or(|task| task.dying || task.killed);
        if goes_on || !inner.rng.random_ratio(1, TURN_LOST_ONE_OF) {
            return;
        }
        inner.ready.push(current);
        drop(inner);
        self.suspend();
    }

    fn stall(&self) {
        let mut inner = self.inner.borrow_mut();
        let current = inner.current;
        match inner.tasks.get(&current) {
            None => panic!("a lock is held, and nobody is left to give it back"),
            Some(task) if task.dying => inner.doomed.push(current),
            Some(_) => inner.stalled.push(current),
        }
        drop(inner);
        self.suspend();
    }

    fn wait(&self, on: Option<Event>, until: Option<Duration>) -> Wake {
        if self.is_dying() {
            return Wake::Death;
        }
        {
            let mut inner = self.inner.borrow_mut();
            let current = inner.current;
            let due = until.map(|until| Inner::global(inner.clock_of(current), until.as_nanos() as u64));
            if let Some(event) = on {
                inner.waiting.entry(key(event)).or_default().push(current);
            }
            if let Some(task) = inner.tasks.get_mut(&current) {
                task.waits_on = on;
            }
            if let Some(due) = due {
                inner.set_timer(current, due, Timer::Due);
            }
        }
        self.suspend();
        let inner = self.inner.borrow();
        inner.tasks.get(&inner.current).map_or(Wake::Death, |task| task.woken)
    }

    fn wake(&self, on: Event, all: bool) {
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        let Some(waiting) = inner.waiting.get(&key(on)).cloned() else { return };
        if all {
            for task in waiting {
                inner.make_ready(task, Wake::Event);
            }
        } else {
            let picked = inner.rng.random_range(0..waiting.len());
            inner.make_ready(waiting[picked], Wake::Event);
        }
    }

    fn planted(&self, mistake: &str) -> bool {
        self.inner.borrow().planted.as_deref() == Some(mistake)
    }
}

impl Scheduler {
    /// Who runs now: machine and task.
    pub fn label(&self) -> (Machine, String) {
        let inner = self.inner.borrow();
        match inner.tasks.get(&inner.current) {
            Some(task) => (task.machine, task.name.clone()),
            None => (OBSERVER, String::new()),
        }
    }
}
