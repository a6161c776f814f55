//! What a volume has done lately, for the charts. Pure: profiles in, points out.
//!
//! **Bounds.** At most [`WEB_POINTS_MAX`] points of the last [`WEB_WINDOW`] are kept. After a longer pause it
//! begins anew, since one point would stand for all that time.

use crate::admin::ProfileReport;
use crate::limits::{WEB_POINTS_MAX, WEB_WINDOW};
use crate::profile::OpReport;
use crate::rates::{Rates, Sample, Tracker};
use std::collections::VecDeque;

/// A stage that requests pass: how many per second, and how long they take there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hop {
    pub per_s: f64,
    /// 0: there were none.
    pub mean_ns: u64,
    /// To a power of two.
    pub p99_ns: u64,
}

/// What all mounts and bricks did between two answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Bytes per second.
    pub read_bytes: f64,
    pub written_bytes: f64,
    /// Requests of the mounts' kernels.
    pub mounts: Hop,
    /// Calls of the mounts to the metadata server.
    pub metadata: Hop,
    /// Calls to bricks.
    pub bricks: Hop,
    /// The part of the kernels' requests that were answered from memory; `None`: there were none.
    pub from_memory: Option<f64>,
}

/// What a volume has done lately.
#[derive(Clone, Debug, Default)]
pub struct History {
    tracker: Tracker,
    /// The latest comes last. `None`: there was no answer.
    pub points: VecDeque<(u64, Option<Point>)>,
    /// What came last.
    pub last: Sample,
    told_ms: Option<u64>,
}

impl History {
    /// Takes the next answer in.
    pub fn record(&mut self, report: &ProfileReport, now_ms: u64) {
        let window_ms = WEB_WINDOW.as_millis() as u64;
        if self.told_ms.is_some_and(|told_ms| now_ms.saturating_sub(told_ms) > window_ms) {
            *self = History::default();
        }
        self.told_ms = Some(now_ms);
        self.last = self.tracker.profile(report, now_ms);
        if self.last.compared {
            let bricks = Rates::total(self.last.bricks.iter().filter_map(|row| row.rates.as_ref()));
            let point = self.last.total.as_ref().map(|total| Point::of(total, &bricks));
            self.push(point, now_ms);
        }
    }

    /// There was no answer.
    pub fn missed(&mut self, now_ms: u64) {
        self.push(None, now_ms);
    }

    fn push(&mut self, point: Option<Point>, now_ms: u64) {
        let oldest_ms = now_ms.saturating_sub(WEB_WINDOW.as_millis() as u64);
        while self.points.len() >= WEB_POINTS_MAX || self.points.front().is_some_and(|it| it.0 < oldest_ms) {
            self.points.pop_front();
        }
        self.points.push_back((now_ms, point));
    }

    /// The latest point, if the last answer gave one.
    pub fn now(&self) -> Option<Point> {
        self.points.back().and_then(|(_, point)| *point)
    }
}

impl Point {
    fn of(mounts: &Rates, bricks: &Rates) -> Point {
        let hop = |per_s: f64, calls: &OpReport| Hop { per_s, mean_ns: calls.mean_ns, p99_ns: calls.p99_ns };
        let OpReport { count, slow, .. } = mounts.latency;
        Point {
            read_bytes: mounts.read_bytes,
            written_bytes: mounts.written_bytes,
            mounts: hop(mounts.operations, &mounts.latency),
            metadata: hop(mounts.metadata_calls, &mounts.metadata),
            bricks: hop(bricks.operations, &bricks.latency),
            from_memory: (count > 0).then(|| count.saturating_sub(slow) as f64 / count as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::fixture;

    #[test]
    fn point_has_the_hops_and_what_memory_answered_between_two_profiles() {
        let mut history = History::default();
        history.record(&fixture::profile("web", 10, 0), 0);
        assert!(history.now().is_none() && history.points.is_empty());
        history.record(&fixture::profile("web", 12, 1000), 2000);
        let now = history.now().expect("a point");
        assert_eq!((now.mounts.per_s, now.metadata.per_s, now.bricks.per_s), (500.0, 50.0, 100.0));
        assert_eq!((now.mounts.mean_ns, now.from_memory), (2000, Some(0.9)));
        assert!(now.metadata.mean_ns > now.mounts.mean_ns && now.bricks.p99_ns > 0);
        history.missed(4000);
        assert_eq!((history.now(), history.points.len()), (None, 2));
    }

    #[test]
    fn history_is_bounded_and_begins_anew_after_a_pause() {
        let mut history = History::default();
        for step in 0..2 * WEB_POINTS_MAX as u64 {
            history.record(&fixture::profile("web", 10 + step, 10 * step), step * 100);
        }
        assert_eq!(history.points.len(), WEB_POINTS_MAX);
        let window_ms = WEB_WINDOW.as_millis() as u64;
        let last_ms = history.points.back().expect("points").0;
        history.missed(last_ms + window_ms / 2);
        history.missed(last_ms + window_ms + 1);
        assert_eq!(history.points.len(), 2, "older ones have gone");
        history.record(&fixture::profile("web", 99_999, 0), last_ms + 3 * window_ms);
        assert!(history.points.is_empty());
    }
}
