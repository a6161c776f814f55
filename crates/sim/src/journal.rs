//! What the code under test says while it runs: the story of a world, and its complaints.

use crate::scheduler::Scheduler;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Once;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines kept for the story of a failure.
const LINES_MAX: usize = 4_000;

struct State {
    world: Rc<Scheduler>,
    lines: VecDeque<String>,
    errors: Vec<String>,
    print: bool,
}

thread_local! {
    static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
}

/// Listens on this thread until the guard is dropped.
pub fn listen(world: &Rc<Scheduler>, print: bool, level: Level) -> tracing::subscriber::DefaultGuard {
    hear_panics();
    STATE.set(Some(State { world: world.clone(), lines: VecDeque::new(), errors: Vec::new(), print }));
    tracing::subscriber::set_default(Journal { level })
}

/// Panics on threads that listen are lines of the story, and not printed.
fn hear_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match STATE.with_borrow(Option::is_some) {
            true => say(&format!("PANIC {panic}")),
            false => usual(panic),
        }));
    });
}

/// Adds a line of the world's own.
pub fn say(what: &str) {
    STATE.with_borrow_mut(|state| {
        if let Some(state) = state {
            state.add(what);
        }
    });
}

/// Ends listening: the last lines, and what was said at the level of errors.
pub fn take() -> (Vec<String>, Vec<String>) {
    match STATE.take() {
        Some(state) => (state.lines.into(), state.errors),
        None => Default::default(),
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
        self.lines.push_back(line);
        if self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
    }
}

struct Journal {
    level: Level,
}

#[derive(Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}

impl Subscriber for Journal {
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
            if *event.metadata().level() == Level::ERROR {
                state.errors.push(said);
            }
        });
    }
}
