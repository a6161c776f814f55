//! The events of a node: a bounded list in memory, of this run of its server.

use crate::admin::{Event, EventKind, SeenEvent};
use crate::clock::since_1970;
use crate::limits::{EVENT_TEXT_MAX, EVENTS_KEPT_MAX};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// The events of this run.
pub struct Events {
    node: String,
    run: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    last: u64,
    events: VecDeque<Event>,
}

/// Milliseconds since 1970, by this machine's clock.
pub fn now_ms() -> u64 {
    since_1970().as_millis() as u64
}

impl Events {
    /// No events yet, of a run of the server of this node.
    pub fn new(node: String) -> Events {
        Events { node, run: now_ms(), kept: Mutex::default() }
    }

    /// Appends an event.
    pub fn note(&self, kind: EventKind, volume: Option<&str>, text: &str) {
        let (node, run, at_ms) = (self.node.clone(), self.run, now_ms());
        let text: String = text.chars().take(EVENT_TEXT_MAX).collect();
        let mut kept = self.kept.lock();
        kept.last += 1;
        let (number, volume) = (kept.last, volume.map(str::to_owned));
        if kept.events.len() >= EVENTS_KEPT_MAX {
            kept.events.pop_front();
        }
        kept.events.push_back(Event { at_ms, node, run, number, kind, volume, text });
    }

    /// The events after those that are known already.
    pub fn after(&self, seen: &[SeenEvent]) -> Vec<Event> {
        let its = seen.iter().find(|seen| seen.node == self.node && seen.run == self.run);
        let last = its.map_or(0, |seen| seen.number);
        self.kept.lock().events.iter().filter(|event| event.number > last).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_events_are_discarded_first_and_known_ones_not_returned_again() {
        let events = Events::new("n1".into());
        for number in 1..=EVENTS_KEPT_MAX as u64 + 5 {
            events.note(EventKind::NodeDown, None, &number.to_string());
        }
        let all = events.after(&[]);
        assert_eq!((all.len(), all[0].number, all[0].text.as_str()), (EVENTS_KEPT_MAX, 6, "6"));
        let run = all[0].run;
        let seen = |node: &str, run, number| SeenEvent { node: node.into(), run, number };
        let last = all.last().map_or(0, |event| event.number);
        assert_eq!(events.after(&[seen("n2", run, last), seen("n1", run, last - 2)]).len(), 2);
        assert_eq!(events.after(&[seen("n1", run + 1, last)]).len(), EVENTS_KEPT_MAX, "another run");
        events.note(EventKind::Refused, Some("web"), &"x".repeat(10 * EVENT_TEXT_MAX));
        assert_eq!(events.after(&[seen("n1", run, last)])[0].text.len(), EVENT_TEXT_MAX);
    }
}
