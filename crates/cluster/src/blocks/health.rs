//! Which bricks answer, and how much room they have, as far as it was noticed.

use crate::limits::{ROOM_AGE_MAX, SUSPECT_FOR};
use shoal_runtime::sync::Mutex;
use shoal_runtime::time::Instant;
use shoal_types::{BrickId, Statfs};
use std::collections::BTreeMap;

#[derive(Default)]
struct State {
    /// It failed or was slow; from this moment on it may be asked whether it is there again.
    suspected: Option<Instant>,
    /// It has been asked for its room, and has not answered yet.
    asked: bool,
    room: Option<(Statfs, Instant)>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Health(Mutex<BTreeMap<BrickId, State>>);

/// What is thought of a brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    /// It may be used; otherwise it is passed over.
    pub(super) good: bool,
    /// Whoever hears this asks it for its room, which also shows whether it is there, and tells the answer.
    pub(super) ask: bool,
}

impl Health {
    pub(super) fn verdict(&self, brick: BrickId) -> Verdict {
        let mut bricks = self.0.lock();
        let state = bricks.entry(brick).or_default();
        let due = match state.suspected {
            None => state.room.is_none_or(|(_, at)| at.elapsed() > ROOM_AGE_MAX),
            Some(until) => Instant::now() >= until,
        };
        let ask = due && !state.asked;
        state.asked |= ask;
        Verdict { good: state.suspected.is_none(), ask }
    }

    /// It failed, or left somebody waiting.
    pub(super) fn failed(&self, brick: BrickId) {
        let mut bricks = self.0.lock();
        bricks.entry(brick).or_default().suspected = Some(Instant::now() + SUSPECT_FOR);
    }

    /// It has said how much room it has, or failed to. Answers whether it is back after a failure.
    pub(super) fn answered(&self, brick: BrickId, room: Option<Statfs>) -> bool {
        let now = Instant::now();
        let mut bricks = self.0.lock();
        let state = bricks.entry(brick).or_default();
        state.asked = false;
        match room {
            Some(room) => {
                state.room = Some((room, now));
                state.suspected.take().is_some()
            }
            None => {
                state.suspected = Some(now + SUSPECT_FOR);
                false
            }
        }
    }

    /// The question could not be asked.
    pub(super) fn unasked(&self, brick: BrickId) {
        self.0.lock().entry(brick).or_default().asked = false;
    }

    /// What it last said.
    pub(super) fn room(&self, brick: BrickId) -> Option<(Statfs, Instant)> {
        self.0.lock().get(&brick)?.room
    }
}
