//! What bricks, mounts and files did between two answers, from what they had counted by then.
//!
//! **Model.** A brick or mount tells what it has counted since its process began, and for how long. Two
//! consecutive answers give a rate over the time that has passed *there*, so it does not matter when an
//! answer arrives. Counters that went down, or a shorter life, mean a new process. What it has counted then
//! is all that is known of the time in between. One that is seen for the first time has no rate yet, unless
//! it is younger than the answer before.
//!
//! `shoal top` and the web page show them. Pure: answers in, rates out.

use crate::admin::{MountName, ProfileReport};
use crate::profile::{OpReport, Profile, since_all};
use serde::Serialize;
use std::collections::BTreeMap;

/// A request that waits for a lock of another program: its time says nothing about the volume.
const WAITS_FOR_PROGRAMS: &str = "setlkw";

/// What a brick or mount has counted since its process began.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// For how long it has counted, in milliseconds.
    pub lived_ms: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Calls to the brick, or requests of the mount's kernel, by kind.
    pub operations: Vec<OpReport>,
    /// Of a mount: its calls to the metadata server, by kind.
    pub metadata: Vec<OpReport>,
}

/// What a brick, a mount, or all of them did per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Requests or calls per second.
    pub operations: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// Latencies of those that do not wait for a lock of another program.
    #[serde(skip)]
    pub latency: OpReport,
    /// Their mean latency, in nanoseconds.
    pub mean_ns: u64,
    /// The latency that 99 of 100 did not exceed, to a power of two, in nanoseconds.
    pub p99_ns: u64,
    /// The kind that took the most time, and its part of all time in percent.
    pub busiest: Option<(String, u64)>,
    /// Calls to the metadata server per second.
    #[serde(skip)]
    pub metadata_calls: f64,
    /// Latencies of these calls.
    #[serde(skip)]
    pub metadata: OpReport,
}

/// A brick or a mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    /// `None`: not known yet, or not any more.
    pub rates: Option<Rates>,
    /// Why they are not known.
    pub trouble: Option<String>,
}

/// What all bricks and mounts of a volume did between two answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    pub mounts: Vec<Row>,
    pub bricks: Vec<Row>,
    /// Mounts that have not answered.
    pub silent: Vec<String>,
    /// All mounts together, as far as they have answered; `None`: none of them has, or there is one answer.
    pub total: Option<Rates>,
    /// Whether there was an answer before.
    #[serde(skip)]
    pub compared: bool,
    /// Why it is not known which mounts there are.
    pub trouble: Option<String>,
}

impl From<&Profile> for Counted {
    fn from(profile: &Profile) -> Counted {
        Counted {
            lived_ms: profile.duration_ms,
            read_bytes: profile.reads.bytes,
            written_bytes: profile.writes.bytes,
            operations: profile.operations.clone(),
            metadata: profile.metadata.clone(),
        }
    }
}

impl Counted {
    fn began_anew_since(&self, before: &Counted) -> bool {
        let fell = |op: &OpReport| {
            let now = self.operations.iter().find(|now| now.name == op.name);
            now.is_none_or(|now| now.count < op.count)
        };
        self.lived_ms < before.lived_ms
            || self.read_bytes < before.read_bytes
            || self.written_bytes < before.written_bytes
            || before.operations.iter().any(fell)
    }

    /// What was counted after `before`, per second. `None` if no time has passed.
    fn since(&self, before: &Counted) -> Option<Rates> {
        if self.began_anew_since(before) {
            return self.since(&Counted::default());
        }
        let passed_ms = self.lived_ms - before.lived_ms;
        let seconds = (passed_ms > 0).then_some(passed_ms as f64 / 1e3)?;
        let operations = since_all(&before.operations, &self.operations);
        let count: u64 = operations.iter().map(|op| op.count).sum();
        let metadata = sum(since_all(&before.metadata, &self.metadata).iter());
        let waiting: Vec<&OpReport> = operations.iter().filter(|op| op.name != WAITS_FOR_PROGRAMS).collect();
        let all_ns: u64 = waiting.iter().map(|op| op.total_ns).sum();
        let busiest = waiting.iter().max_by_key(|op| op.total_ns).filter(|op| op.total_ns > 0);
        let rates = Rates {
            operations: count as f64 / seconds,
            read_bytes: (self.read_bytes - before.read_bytes) as f64 / seconds,
            written_bytes: (self.written_bytes - before.written_bytes) as f64 / seconds,
            latency: sum(waiting.iter().copied()),
            metadata_calls: metadata.count as f64 / seconds,
            metadata,
            busiest: busiest.map(|op| (op.name.clone(), percent(op.total_ns, all_ns))),
            ..Rates::default()
        };
        Some(rates.completed())
    }
}

impl Rates {
    fn completed(self) -> Rates {
        Rates { mean_ns: self.latency.mean_ns, p99_ns: self.latency.p99_ns, ..self }
    }

    /// All of them together. The kind that took the most time is left out.
    pub fn total<'a>(all: impl Iterator<Item = &'a Rates> + Clone) -> Rates {
        let add = |part: fn(&Rates) -> f64| all.clone().map(part).sum();
        let rates = Rates {
            operations: add(|one| one.operations),
            read_bytes: add(|one| one.read_bytes),
            written_bytes: add(|one| one.written_bytes),
            latency: sum(all.clone().map(|one| &one.latency)),
            metadata_calls: add(|one| one.metadata_calls),
            metadata: sum(all.clone().map(|one| &one.metadata)),
            ..Rates::default()
        };
        rates.completed()
    }
}

fn percent(part: u64, all: u64) -> u64 {
    (part as f64 * 100.0 / all.max(1) as f64).round() as u64
}

/// Operations of several kinds, or of several mounts, as one.
fn sum<'a>(all: impl Iterator<Item = &'a OpReport>) -> OpReport {
    let mut sum = OpReport::default();
    for op in all {
        sum.total_ns += op.total_ns;
        sum.slow += op.slow;
        sum.latency_log2.resize(sum.latency_log2.len().max(op.latency_log2.len()), 0);
        sum.latency_log2.iter_mut().zip(&op.latency_log2).for_each(|(all, one)| *all += one);
    }
    // The count, the mean and the percentiles follow from the histogram.
    sum.since(&OpReport::default())
}

/// What bricks and mounts had counted by the last answer.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    bricks: BTreeMap<String, Counted>,
    mounts: BTreeMap<String, Counted>,
    /// When the last answer came, in milliseconds by the caller's clock.
    answered_ms: Option<u64>,
}

/// A brick or mount in an answer: the name that tells it from others, the name to show, and what it counted
/// or why that is not known.
pub struct Counters {
    pub key: String,
    pub name: String,
    pub counted: Result<Counted, String>,
}

impl Counters {
    fn mount(mount: &MountName, counted: Result<Counted, String>) -> Counters {
        Counters { key: mount.to_string(), name: mount_name(mount), counted }
    }
}

/// `HOST:MOUNTPOINT`.
pub fn mount_name(mount: &MountName) -> String {
    plain(&MountName { pid: None, ..mount.clone() }.to_string())
}

/// Without characters that control a terminal.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl Tracker {
    /// The difference between a profile and the one before.
    pub fn profile(&mut self, report: &ProfileReport, now_ms: u64) -> Sample {
        let bricks = report.bricks.iter().map(|one| {
            let counted = one.profiled.as_ref().map(|profiled| Counted::from(&profiled.cumulative));
            let why = || plain(one.trouble.as_deref().unwrap_or("not known"));
            let name = one.brick.to_string();
            Counters { name: plain(&name), key: name, counted: counted.ok_or_else(why) }
        });
        let answered = report
            .mounts
            .iter()
            .map(|one| Counters::mount(&one.mount, Ok(Counted::from(&one.profiled.cumulative))));
        let silent = report.silent.iter().map(|mount| Counters::mount(mount, Err("has not answered".into())));
        let earlier = self.mounts.clone();
        let mut sample = self.sample(answered.chain(silent).collect(), bricks.collect(), now_ms);
        if report.trouble.is_some() {
            (self.mounts, sample.total) = (earlier, None);
        }
        let silent = report.silent.iter().map(mount_name).collect();
        Sample { silent, trouble: report.trouble.as_deref().map(plain), ..sample }
    }

    /// The difference between what is told now and what was told before.
    pub fn sample(&mut self, mounts: Vec<Counters>, bricks: Vec<Counters>, now_ms: u64) -> Sample {
        let elapsed_ms = self.answered_ms.replace(now_ms).map(|then| now_ms.saturating_sub(then));
        let mounts = advance(&mut self.mounts, mounts, elapsed_ms);
        let bricks = advance(&mut self.bricks, bricks, elapsed_ms);
        let known = mounts.iter().filter_map(|row| row.rates.as_ref());
        let compared = elapsed_ms.is_some();
        // Without mounts nothing is done, which is known.
        let is_known = compared && (mounts.is_empty() || known.clone().next().is_some());
        let total = is_known.then(|| Rates::total(known));
        Sample { mounts, bricks, total, compared, ..Sample::default() }
    }
}

/// Those that are not told of any more are forgotten; those that are told of and have not answered are kept.
fn advance(before: &mut BTreeMap<String, Counted>, told: Vec<Counters>, elapsed_ms: Option<u64>) -> Vec<Row> {
    let mut kept = BTreeMap::new();
    let row = |Counters { key, name, counted }: Counters| {
        let earlier = before.get(&key);
        let (rates, trouble, counted) = match counted {
            Ok(now) => {
                let rates = match (earlier, elapsed_ms) {
                    (Some(earlier), _) => now.since(earlier),
                    (None, Some(elapsed_ms)) if now.lived_ms <= elapsed_ms => now.since(&Counted::default()),
                    (None, _) => None,
                };
                (rates, None, Some(now))
            }
            Err(why) => (None, Some(why), earlier.cloned()),
        };
        if let Some(counted) = counted {
            kept.insert(key, counted);
        }
        Row { name, rates, trouble }
    };
    let rows = told.into_iter().map(row).collect();
    *before = kept;
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{BrickProfile, MountProfile};
    use crate::profile::{Profiled, Sizes};

    /// Of `count` operations, each took 2^9 ns or somewhat longer.
    fn op(name: &str, count: u64) -> OpReport {
        let mut latency_log2 = vec![0; 10];
        latency_log2[9] = count;
        let report =
            OpReport { name: name.into(), latency_log2, total_ns: 600 * count, ..OpReport::default() };
        report.since(&OpReport::default())
    }

    fn counted(lived_ms: u64, bytes: u64, operations: Vec<OpReport>) -> Counted {
        Counted { lived_ms, read_bytes: bytes, written_bytes: 2 * bytes, operations, ..Counted::default() }
    }

    fn told(name: &str, counted: Counted) -> Vec<Counters> {
        vec![Counters { key: name.into(), name: name.into(), counted: Ok(counted) }]
    }

    #[test]
    fn rate_is_the_difference_of_two_answers_over_the_time_that_passed_at_the_mount() {
        let mut tracker = Tracker::default();
        let first = tracker.sample(told("m", counted(60_000, 500, vec![op("read", 100)])), vec![], 0);
        assert_eq!((first.mounts[0].rates.clone(), first.total), (None, None));
        // The answer came after 3 seconds, and was made 2 seconds after the one before.
        let now = counted(62_000, 4500, vec![op("read", 140), op("write", 20)]);
        let second = tracker.sample(told("m", now), vec![], 3000);
        let rates = second.mounts[0].rates.clone().expect("rates");
        assert_eq!((rates.operations, rates.read_bytes, rates.written_bytes), (30.0, 2000.0, 4000.0));
        assert_eq!((rates.mean_ns, rates.p99_ns), (600, 1024));
        assert_eq!(rates.busiest, Some(("read".into(), 67)));
        let total = second.total.expect("a total");
        assert_eq!((total.operations, total.mean_ns, total.busiest), (30.0, 600, None));
    }

    #[test]
    fn restarted_brick_counts_from_zero_and_over_its_own_life() {
        let mut tracker = Tracker::default();
        let mut step =
            |counted, now_ms| tracker.sample(vec![], told("b", counted), now_ms).bricks[0].rates.clone();
        assert_eq!(step(counted(900_000, 1 << 30, vec![op("get", 5000)]), 0), None);
        let rates = step(counted(1000, 3000, vec![op("get", 30)]), 2000).expect("rates");
        assert_eq!((rates.operations, rates.read_bytes), (30.0, 3000.0));
        // It restarts again, and lives longer than at the last answer: the counters tell.
        let rates = step(counted(1500, 300, vec![op("put", 3)]), 4000).expect("rates");
        assert_eq!((rates.operations, rates.read_bytes), (2.0, 200.0));
    }

    #[test]
    fn mount_that_began_in_between_has_a_rate_and_an_older_one_has_none_yet() {
        let mut tracker = Tracker::default();
        tracker.sample(vec![], vec![], 0);
        let young = tracker.sample(told("young", counted(1000, 10, vec![])), vec![], 2000);
        assert_eq!(young.mounts[0].rates.as_ref().map(|rates| rates.read_bytes), Some(10.0));
        let old = tracker.sample(told("old", counted(9000, 10, vec![])), vec![], 4000);
        assert_eq!(old.mounts[0].rates, None);
        let same = tracker.sample(told("old", counted(9000, 10, vec![])), vec![], 6000);
        assert_eq!(same.mounts[0].rates, None, "no time has passed there");
    }

    #[test]
    fn waiting_for_a_lock_of_a_program_is_an_operation_and_no_latency() {
        let mut wait = op("setlkw", 4);
        wait.total_ns = 40_000_000_000;
        let rates = counted(2000, 0, vec![wait, op("read", 2)]).since(&Counted::default()).expect("rates");
        assert_eq!((rates.operations, rates.mean_ns), (3.0, 600));
        assert_eq!(rates.busiest, Some(("read".into(), 100)));
    }

    #[test]
    fn silent_mount_and_brick_are_listed_and_go_on_from_their_last_answer() {
        let mount =
            |point: &str| MountName { host: "web1".into(), mountpoint: Some(point.to_owned()), pid: Some(7) };
        let profiled = |duration_ms, bytes| {
            let reads = Sizes { bytes, size_log2: Vec::new() };
            let cumulative = Profile { duration_ms, reads, ..Profile::default() };
            Profiled { cumulative, ..Profiled::default() }
        };
        let report = |counted: Option<(u64, u64)>| {
            let profiled = counted.map(|(ms, bytes)| profiled(ms, bytes));
            let mounts =
                profiled.clone().map(|profiled| MountProfile { mount: mount("/a\u{1b}[2J"), profiled });
            let silent = if profiled.is_some() { Vec::new() } else { vec![mount("/a\u{1b}[2J")] };
            let (brick, trouble) = ("n1:/b".parse().expect("a brick"), None);
            let (name, mounts) = ("web".to_owned(), mounts.into_iter().collect());
            let bricks = vec![BrickProfile { brick, profiled, trouble }];
            ProfileReport { name, bricks, mounts, silent, trouble: None }
        };
        let mut tracker = Tracker::default();
        tracker.profile(&report(Some((10_000, 100))), 0);
        let missing = tracker.profile(&report(None), 2000);
        assert_eq!((missing.silent, missing.mounts.len()), (vec!["web1:/a?[2J".to_owned()], 1));
        assert_eq!(missing.mounts[0].trouble.as_deref(), Some("has not answered"));
        assert_eq!(missing.bricks[0].trouble.as_deref(), Some("not known"));
        assert!(missing.total.is_none() && missing.compared);
        let back = tracker.profile(&report(Some((14_000, 900))), 4000);
        let read = |rows: &[Row]| rows[0].rates.as_ref().map(|rates| rates.read_bytes);
        assert_eq!((read(&back.mounts), read(&back.bricks)), (Some(200.0), Some(200.0)));
    }
}
