//! Which bricks answer, and their free space, as observed.

use crate::limits::{ROOM_AGE_MAX, SUSPECT_FOR};
use shoal_runtime::sync::Mutex;
use shoal_runtime::time::Instant;
use shoal_types::{BrickId, Statfs};
use std::collections::BTreeMap;

#[derive(Default)]
struct State {
    /// It failed or was slow; from this moment on it may be probed again.
    suspected: Option<Instant>,
    /// A probe for its free space is in flight.
    asked: bool,
    room: Option<(Statfs, Instant)>,
}

/// The observed state of the bricks.
#[derive(Default)]
pub(super) struct Health(Mutex<BTreeMap<BrickId, State>>);

/// How a brick is to be treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    /// It may be used; otherwise it is skipped.
    pub(super) good: bool,
    /// The caller has to probe it for its free space, and to report the result.
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

    /// A request failed, or took too long.
    pub(super) fn failed(&self, brick: BrickId) {
        let mut bricks = self.0.lock();
        bricks.entry(brick).or_default().suspected = Some(Instant::now() + SUSPECT_FOR);
    }

    /// The result of a probe. Answers whether the brick is back after a failure.
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

    /// The probe could not be sent.
    pub(super) fn unasked(&self, brick: BrickId) {
        self.0.lock().entry(brick).or_default().asked = false;
    }

    /// The free space that it last reported.
    pub(super) fn room(&self, brick: BrickId) -> Option<(Statfs, Instant)> {
        self.0.lock().get(&brick)?.room
    }
}
