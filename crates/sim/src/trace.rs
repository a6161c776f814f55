//! What the code under test logs while it runs: the trace of a world, its errors, and some counts.

use crate::scheduler::Scheduler;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Once;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines kept for the trace of a failure.
const LINES_MAX: usize = 4_000;
/// What a mount logs when its session has been ended.
pub const ENDED: &str = "the servers ended this mount's session";

/// What a server logs when it ends the session of a silent client.
const GIVEN_UP: &str = "ending a session whose client is silent";
/// What a mount logs when a new leader has accepted its session. So a former leader that gave the session up
/// did not end it.
const RECLAIMED: &str = "reclaimed from a new metadata leader";

/// What was logged in a world.
#[derive(Default)]
pub struct Recorded {
    /// The last lines.
    pub lines: Vec<String>,
    /// Lines at the level of errors.
    pub errors: Vec<String>,
    /// When mounts lost a session, by its number.
    pub ended: BTreeMap<u64, u64>,
    /// When servers gave up a silent session that no later leader has accepted.
    pub given_up: BTreeMap<u64, u64>,
    /// How often a replica has fetched its state from another.
    pub snapshots: u64,
    /// How often the group's members have changed, on any replica.
    pub changes: u64,
    /// How often a replica became leader.
    pub leads: u64,
}

struct State {
    world: Rc<Scheduler>,
    last: VecDeque<String>,
    told: Recorded,
    print: bool,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Records on this thread until the guard is dropped.
pub fn start(world: &Rc<Scheduler>, print: bool, level: Level) -> tracing::subscriber::DefaultGuard {
    install_panic_hook();
    let (last, told) = (VecDeque::new(), Recorded::default());
    STATE.set(Some(State { world: world.clone(), last, told, print }));
    tracing::subscriber::set_default(Recorder { level })
}

/// Panics on threads that record become lines of the trace, and are not printed.
fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match STATE.with_borrow(Option::is_some) {
            true => say(&format!("PANIC {panic}")),
            false => usual(panic),
        }));
    });
}

/// Adds a line of the simulator's own.
pub fn say(what: &str) {
    STATE.with_borrow_mut(|state| {
        if let Some(state) = state {
            state.add(what);
        }
    });
}

/// Ends the recording, and returns it.
pub fn take() -> Recorded {
    match STATE.take() {
        Some(state) => Recorded { lines: state.last.into(), ..state.told },
        None => Recorded::default(),
    }
}

impl State {
    fn add(&mut self, what: &str) {
        let (machine, task) = self.world.label();
        let micros = self.world.time_ns() / 1_000;
        let line =
            format!("{:>4}.{:06} {machine:>2} {task:<16} {what}", micros / 1_000_000, micros % 1_000_000);
        if self.print {
            println!("{line}");
        }
        self.last.push_back(line);
        if self.last.len() > LINES_MAX {
            self.last.pop_front();
        }
    }
}

impl State {
    /// Counts the messages that are counted.
    fn note(&mut self, said: &str, session: Option<u64>) {
        let told = &mut self.told;
        if said.starts_with("leads ") {
            told.leads += 1;
        } else if said.starts_with("fetched the state") {
            told.snapshots += 1;
        } else if said.starts_with("the members of the group have changed") {
            told.changes += 1;
        } else if let Some(session) = session {
            let now = self.world.time_ns();
            if said.contains(ENDED) {
                told.ended.entry(session).or_insert(now);
            } else if said.starts_with(GIVEN_UP) {
                told.given_up.entry(session).or_insert(now);
            } else if said.starts_with(RECLAIMED) {
                told.given_up.remove(&session);
            }
        }
    }
}

struct Recorder {
    level: Level,
}

#[derive(Default)]
struct Words(String, Option<u64>);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "session" {
            self.1 = format!("{value:?}").parse().ok();
        }
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let said = words.0.trim_end().to_owned();
        STATE.with_borrow_mut(|state| {
            let Some(state) = state else { return };
            if state.world.is_taken_apart() {
                return;
            }
            state.add(&said);
            state.note(&said, words.1);
            if *event.metadata().level() == Level::ERROR {
                state.told.errors.push(said);
            }
        });
    }
}
