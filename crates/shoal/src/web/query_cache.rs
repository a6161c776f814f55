//! The queries of the pages: when each is due, and its latest answer. Pure: a clock's time in.
//!
//! **Model.** A page *wants* the answers to some queries. A query that was wanted lately is asked again
//! and again, each in its own interval. One that is not wanted any more is not asked, so that a node works
//! for pages only while one is open. What was answered is kept for a page that is opened again.
//!
//! **Bounds.** Profiles are asked of [`WEB_VOLUMES_WATCHED_MAX`] volumes at a time. The one that was wanted
//! longest ago makes room. Events are bounded in number.

use super::history::History;
use crate::admin::{
    AdminAnswer, AdminRequest, ClientReport, ClusterReport, Event, ProfileStep, SeenEvent, SessionsReport,
    TasksReport, VolumeReport, VolumeStatus,
};
use crate::limits::{
    WEB_EVENTS_KEPT_MAX, WEB_REQUEST_PERIOD, WEB_SLOW_REQUEST_PERIOD, WEB_VOLUMES_WATCHED_MAX, WEB_WANTED_FOR,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StatusQuery {
    /// The health of the cluster.
    Cluster,
    /// Bricks and replicas of all volumes.
    Statuses,
    /// The configuration of all volumes.
    Volumes,
    /// Healing and rebalancing of all volumes.
    Tasks,
    /// Mounts of all volumes.
    Sessions,
    /// Clients with credentials.
    Clients,
    /// What has happened.
    Events,
    /// What the bricks and mounts of a volume have counted.
    Profile(String),
}

impl StatusQuery {
    fn every_ms(&self) -> u64 {
        let every = match self {
            StatusQuery::Cluster | StatusQuery::Statuses | StatusQuery::Events | StatusQuery::Profile(_) => {
                WEB_REQUEST_PERIOD
            }
            _ => WEB_SLOW_REQUEST_PERIOD,
        };
        every.as_millis() as u64
    }
}

/// What was answered last to each query. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LatestAnswers {
    pub cluster: Option<Arc<ClusterReport>>,
    pub statuses: Option<Arc<Vec<VolumeStatus>>>,
    pub volumes: Option<Arc<Vec<VolumeReport>>>,
    pub tasks: Option<Arc<Vec<TasksReport>>>,
    pub sessions: Option<Arc<Vec<SessionsReport>>>,
    pub clients: Option<Arc<Vec<ClientReport>>>,
    /// By time.
    pub events: Option<Arc<VecDeque<Event>>>,
    /// Nodes that have not told their events.
    pub silent: Vec<String>,
    pub histories: BTreeMap<String, Arc<History>>,
    /// The most blocks that lacked copies since a volume was last whole.
    pub heal_peaks: BTreeMap<String, u64>,
    /// Why a query has no new answer.
    pub troubles: BTreeMap<StatusQuery, String>,
    /// When each query was answered last, in milliseconds by the cache's clock.
    pub answered_ms: BTreeMap<StatusQuery, u64>,
}

/// A query that is or was wanted.
#[derive(Debug, Default)]
struct Entry {
    wanted_ms: u64,
    begun_ms: Option<u64>,
    is_open: bool,
}

/// All queries and their latest answers.
#[derive(Debug, Default)]
pub struct QueryCache {
    entries: BTreeMap<StatusQuery, Entry>,
    known: LatestAnswers,
}

impl QueryCache {
    /// A page wants an answer.
    pub fn want(&mut self, query: &StatusQuery, now_ms: u64) {
        if !self.entries.contains_key(query) && matches!(query, StatusQuery::Profile(_)) {
            self.make_room();
        }
        let entry = self.entries.entry(query.clone()).or_default();
        entry.wanted_ms = entry.wanted_ms.max(now_ms);
    }

    /// Forgets the volume that was wanted longest ago, if there are as many as may be.
    fn make_room(&mut self) {
        let profiles = self.entries.iter().filter(|(query, _)| matches!(query, StatusQuery::Profile(_)));
        if profiles.clone().count() < WEB_VOLUMES_WATCHED_MAX {
            return;
        }
        let oldest = profiles.min_by_key(|(_, entry)| entry.wanted_ms).map(|(query, _)| query.clone());
        if let Some(query) = oldest {
            self.forget(&query);
        }
    }

    fn forget(&mut self, query: &StatusQuery) {
        self.entries.remove(query);
        self.known.troubles.remove(query);
        self.known.answered_ms.remove(query);
        if let StatusQuery::Profile(name) = query {
            self.known.histories.remove(name);
        }
    }

    /// The query that is overdue most, which counts as open until it is answered.
    pub fn next(&mut self, now_ms: u64) -> Option<StatusQuery> {
        let (due_ms, query) = self.next_due(now_ms)?;
        let entry = self.entries.get_mut(&query).filter(|_| due_ms <= now_ms)?;
        (entry.begun_ms, entry.is_open) = (Some(now_ms), true);
        Some(query)
    }

    /// When which query is due next, of those that will still be wanted then.
    fn next_due(&self, now_ms: u64) -> Option<(u64, StatusQuery)> {
        let wanted_for_ms = WEB_WANTED_FOR.as_millis() as u64;
        let due = |(query, entry): (&StatusQuery, &Entry)| {
            let due_ms = entry.begun_ms.map_or(0, |begun_ms| begun_ms + query.every_ms());
            let is_wanted = due_ms.max(now_ms) <= entry.wanted_ms + wanted_for_ms;
            (is_wanted && !entry.is_open).then(|| (due_ms, query.clone()))
        };
        self.entries.iter().filter_map(due).min()
    }

    /// When there is something to ask, if nothing else is wanted before; `None`: never.
    pub fn due_ms(&self, now_ms: u64) -> Option<u64> {
        self.next_due(now_ms).map(|(due_ms, _)| due_ms)
    }

    /// The request that asks a query.
    pub fn request(&self, query: &StatusQuery) -> AdminRequest {
        match query {
            StatusQuery::Cluster => AdminRequest::ClusterStatus,
            StatusQuery::Statuses => AdminRequest::VolumeStatus { name: None, digest: false },
            StatusQuery::Volumes => AdminRequest::Volumes { name: None },
            StatusQuery::Tasks => AdminRequest::Tasks { name: None },
            StatusQuery::Sessions => AdminRequest::Sessions { name: None },
            StatusQuery::Clients => AdminRequest::Clients,
            StatusQuery::Events => AdminRequest::Events { seen: self.seen() },
            StatusQuery::Profile(name) => {
                AdminRequest::Profile { name: name.clone(), step: ProfileStep::Peek }
            }
        }
    }

    /// The last event of each node that is known.
    fn seen(&self) -> Vec<SeenEvent> {
        let mut seen = BTreeMap::new();
        for Event { node, run, number, .. } in self.known.events.iter().flat_map(|events| events.iter()) {
            let last = seen.entry(node.clone()).or_insert((*run, *number));
            *last = (*last).max((*run, *number));
        }
        seen.into_iter().map(|(node, (run, number))| SeenEvent { node, run, number }).collect()
    }

    /// A query that was open has been answered, or will not be.
    pub fn answered(&mut self, query: &StatusQuery, outcome: Result<AdminAnswer, String>, now_ms: u64) {
        // It may have been forgotten meanwhile.
        let Some(entry) = self.entries.get_mut(query) else { return };
        entry.is_open = false;
        let learned = outcome.and_then(|answer| self.learn(query, answer, now_ms));
        match learned {
            Ok(()) => {
                self.known.troubles.remove(query);
                self.known.answered_ms.insert(query.clone(), now_ms);
            }
            Err(why) => {
                if let StatusQuery::Profile(name) = query
                    && let Some(history) = self.known.histories.get_mut(name)
                {
                    Arc::make_mut(history).missed(now_ms);
                }
                self.known.troubles.insert(query.clone(), why);
            }
        }
    }

    fn learn(&mut self, query: &StatusQuery, answer: AdminAnswer, now_ms: u64) -> Result<(), String> {
        let known = &mut self.known;
        match (query, answer) {
            (StatusQuery::Cluster, AdminAnswer::Cluster(report)) => {
                note_peaks(&mut known.heal_peaks, &report);
                known.cluster = Some(Arc::new(report));
            }
            (StatusQuery::Statuses, AdminAnswer::Statuses { volumes }) => {
                known.statuses = Some(Arc::new(volumes));
            }
            (StatusQuery::Volumes, AdminAnswer::Volumes { volumes }) => {
                known.volumes = Some(Arc::new(volumes))
            }
            (StatusQuery::Tasks, AdminAnswer::Tasks { volumes }) => known.tasks = Some(Arc::new(volumes)),
            (StatusQuery::Sessions, AdminAnswer::Sessions { volumes }) => {
                known.sessions = Some(Arc::new(volumes));
            }
            (StatusQuery::Clients, AdminAnswer::Clients { clients }) => {
                known.clients = Some(Arc::new(clients))
            }
            (StatusQuery::Events, AdminAnswer::Events(report)) => {
                known.silent = report.silent;
                let kept = Arc::make_mut(known.events.get_or_insert_default());
                kept.extend(report.events);
                kept.make_contiguous().sort_by_key(|event| event.at_ms);
                let surplus = kept.len().saturating_sub(WEB_EVENTS_KEPT_MAX);
                kept.drain(..surplus);
            }
            (StatusQuery::Profile(name), AdminAnswer::Profile(report)) => {
                let history = known.histories.entry(name.clone()).or_default();
                Arc::make_mut(history).record(&report, now_ms);
            }
            (_, other) => {
                tracing::warn!(?query, ?other, "unexpected answer");
                return Err("unexpected answer of the server".into());
            }
        }
        Ok(())
    }

    /// What is known by now.
    pub fn known(&self) -> &LatestAnswers {
        &self.known
    }

    /// Whether a query has an answer, or it is known why not, that came at this time or later.
    pub fn is_settled(&self, query: &StatusQuery, since_ms: u64) -> bool {
        let answered = self.known.answered_ms.get(query).is_some_and(|at_ms| *at_ms >= since_ms);
        answered || self.known.troubles.contains_key(query)
    }
}

fn note_peaks(peaks: &mut BTreeMap<String, u64>, report: &ClusterReport) {
    peaks.retain(|name, _| report.volumes.iter().any(|volume| volume.name == *name));
    for volume in &report.volumes {
        match volume.degraded {
            Some(0) => drop(peaks.remove(&volume.name)),
            Some(lacking) => {
                let peak = peaks.entry(volume.name.clone()).or_default();
                *peak = (*peak).max(lacking);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{EventKind, EventsReport};
    use crate::web::fixture;

    const EVERY_MS: u64 = WEB_REQUEST_PERIOD.as_millis() as u64;
    const WANTED_FOR_MS: u64 = WEB_WANTED_FOR.as_millis() as u64;

    #[test]
    fn question_is_asked_in_its_interval_while_it_is_wanted_and_not_afterwards() {
        let mut cache = QueryCache::default();
        assert_eq!((cache.next(0), cache.due_ms(0)), (None, None), "no page is open");
        cache.want(&StatusQuery::Cluster, 1000);
        assert_eq!(cache.next(1000), Some(StatusQuery::Cluster));
        assert_eq!(cache.next(9000), None, "it is open already");
        cache.answered(&StatusQuery::Cluster, Ok(AdminAnswer::Cluster(fixture::cluster(3, 1))), 1200);
        assert!(
            cache.is_settled(&StatusQuery::Cluster, 1200) && !cache.is_settled(&StatusQuery::Cluster, 1201)
        );
        assert_eq!((cache.next(1200), cache.due_ms(1200)), (None, Some(1000 + EVERY_MS)));
        assert_eq!(cache.next(1000 + EVERY_MS), Some(StatusQuery::Cluster));
        cache.answered(&StatusQuery::Cluster, Err("no".into()), 2 * EVERY_MS);
        assert!(cache.known().cluster.is_some(), "what was known is kept");
        assert_eq!(cache.known().troubles[&StatusQuery::Cluster], "no");
        let late_ms = 1000 + WANTED_FOR_MS + 1;
        assert_eq!((cache.next(late_ms), cache.due_ms(late_ms)), (None, None), "the page was closed");
        cache.want(&StatusQuery::Events, late_ms);
        assert_eq!(cache.next(late_ms), Some(StatusQuery::Events), "a page that is closed delays no other");
    }

    #[test]
    fn few_volumes_are_profiled_at_a_time_and_the_one_wanted_longest_ago_makes_room() {
        let mut cache = QueryCache::default();
        let profile = |n: usize| StatusQuery::Profile(format!("v{n}"));
        for n in 0..=WEB_VOLUMES_WATCHED_MAX {
            cache.want(&profile(n), n as u64);
            assert_eq!(cache.next(n as u64), Some(profile(n)));
        }
        let report = fixture::profile("v", 1, 1);
        for n in 0..=WEB_VOLUMES_WATCHED_MAX {
            cache.answered(&profile(n), Ok(AdminAnswer::Profile(report.clone())), 100);
        }
        let kept: Vec<_> = cache.known().histories.keys().cloned().collect();
        assert_eq!((kept.len(), kept.contains(&"v0".to_owned())), (WEB_VOLUMES_WATCHED_MAX, false));
    }

    #[test]
    fn events_are_asked_for_once_and_kept_up_to_a_limit() {
        let mut cache = QueryCache::default();
        cache.want(&StatusQuery::Events, 0);
        assert_eq!(cache.request(&StatusQuery::Events), AdminRequest::Events { seen: Vec::new() });
        let event = |number: u64| Event {
            at_ms: number,
            node: "n1".into(),
            run: 5,
            number,
            kind: EventKind::NodeUp,
            volume: None,
            text: String::new(),
        };
        let surplus = 10;
        let events = (1..=WEB_EVENTS_KEPT_MAX as u64 + surplus).map(event).collect();
        let report = EventsReport { events, silent: vec!["n2".into()] };
        cache.answered(&StatusQuery::Events, Ok(AdminAnswer::Events(report)), 10);
        let kept = cache.known().events.clone().expect("events");
        assert_eq!((kept.len(), kept[0].number), (WEB_EVENTS_KEPT_MAX, surplus + 1));
        let last = WEB_EVENTS_KEPT_MAX as u64 + surplus;
        let seen = vec![SeenEvent { node: "n1".into(), run: 5, number: last }];
        assert_eq!(cache.request(&StatusQuery::Events), AdminRequest::Events { seen });
    }

    #[test]
    fn progress_of_healing_is_measured_from_the_most_that_was_lacking() {
        let mut cache = QueryCache::default();
        cache.want(&StatusQuery::Cluster, 0);
        let mut peak = |lacking| {
            let mut report = fixture::cluster(3, 1);
            report.volumes[0].degraded = lacking;
            cache.answered(&StatusQuery::Cluster, Ok(AdminAnswer::Cluster(report)), 0);
            cache.known().heal_peaks.values().next().copied()
        };
        let peaks = [Some(70), Some(100), Some(40), None, Some(0), Some(5)].map(&mut peak);
        assert_eq!(peaks, [Some(70), Some(100), Some(100), Some(100), None, Some(5)]);
    }
}
