//! Which files were read and written most between two answers.
//!
//! **Model.** A mount tells the [`TOP_FILES_MAX`] files with the most requests of a kind since it was
//! mounted. The difference of two answers is what happened in between. A file that was not in the answer
//! before had no request by then, if that answer had room for more files. Otherwise it had at most as many as
//! the last file there, so its rate is a lower bound. A file that has not got among the first of its mount is
//! not seen.
//!
//! Pure: answers in, rates out.

use crate::admin::{MountTop, TopFile, TopReport};
use crate::limits::TOP_FILES_MAX;
use crate::rates::{mount_name, plain};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What happened to a file per second, by all mounts together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileRow {
    /// Its path from the root of the volume, or what is known instead.
    pub path: String,
    /// Reads and writes of the kernel per second.
    pub operations: f64,
    /// Bytes read per second.
    pub read_bytes: f64,
    /// Bytes written per second.
    pub written_bytes: f64,
    /// The mount with the most of these requests.
    pub mount: String,
    /// How many other mounts have some.
    pub other_mounts: usize,
}

/// Kinds of requests that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Read, Kind::Write];

    /// As in [`crate::profile::TopOf`].
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
        }
    }
}

/// A file at a mount, per second.
#[derive(Clone, Debug)]
struct Hot {
    inode: u64,
    path: Option<String>,
    mount: String,
    operations: f64,
    bytes: f64,
}

/// What was told of one kind of requests.
#[derive(Clone, Debug, Default)]
struct Asked {
    told_ms: Option<u64>,
    /// The last answer of each mount, and when it came.
    before: BTreeMap<String, (u64, MountTop)>,
    /// Since the answer before; `None` until there are two.
    hot: Option<Vec<Hot>>,
}

/// What was told of files by now.
#[derive(Clone, Debug, Default)]
pub struct FileTracker {
    reads: Asked,
    writes: Asked,
}

impl FileTracker {
    /// Takes an answer in.
    pub fn record(&mut self, kind: Kind, report: TopReport, now_ms: u64) {
        let asked = match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
        };
        asked.record(report, now_ms);
    }

    /// Whether files of each kind are known.
    pub fn is_complete(&self) -> bool {
        self.reads.hot.is_some() && self.writes.hot.is_some()
    }

    /// The files, in no order.
    pub fn rows(&self) -> Vec<FileRow> {
        let mut rows: BTreeMap<u64, (FileRow, BTreeMap<&str, f64>)> = BTreeMap::new();
        for (asked, reads) in [(&self.reads, true), (&self.writes, false)] {
            for hot in asked.hot.iter().flatten() {
                let (row, mounts) = rows.entry(hot.inode).or_default();
                let unnamed = || format!("(inode {}: removed, or not committed yet)", hot.inode);
                row.path = hot.path.as_deref().map_or_else(unnamed, plain);
                row.operations += hot.operations;
                *(if reads { &mut row.read_bytes } else { &mut row.written_bytes }) += hot.bytes;
                *mounts.entry(&hot.mount).or_default() += hot.operations;
            }
        }
        let finished = rows.into_values().map(|(row, mounts)| {
            let most = mounts.iter().max_by(|one, other| one.1.total_cmp(other.1));
            let mount = most.map_or_else(String::new, |(mount, _)| (*mount).to_owned());
            FileRow { mount, other_mounts: mounts.len().saturating_sub(1), ..row }
        });
        finished.collect()
    }
}

impl Asked {
    fn record(&mut self, report: TopReport, now_ms: u64) {
        let passed_ms = self.told_ms.map(|then| now_ms.saturating_sub(then));
        let mut earlier = std::mem::take(&mut self.before);
        let mut hot = Vec::new();
        for mount in report.mounts {
            let key = mount.mount.to_string();
            let young = passed_ms.is_some_and(|passed_ms| mount.duration_s * 1000 <= passed_ms);
            let none = MountTop { mount: mount.mount.clone(), duration_s: 0, files: Vec::new() };
            let began = now_ms.saturating_sub(mount.duration_s * 1000);
            if let Some((then_ms, before)) = earlier.remove(&key).or(young.then_some((began, none))) {
                let rate = |count: u64| count as f64 * 1e3 / now_ms.saturating_sub(then_ms).max(1) as f64;
                for file in &mount.files {
                    let (count, bytes) = since(&before, &mount, file);
                    let (inode, path, mount) = (file.inode, file.path.clone(), mount_name(&mount.mount));
                    if count > 0 {
                        hot.push(Hot { inode, path, mount, operations: rate(count), bytes: rate(bytes) });
                    }
                }
            }
            self.before.insert(key, (now_ms, mount));
        }
        // One that has not answered goes on from its last answer. The rest is not mounted any more.
        let silent: BTreeSet<String> = report.silent.iter().map(ToString::to_string).collect();
        earlier.retain(|mount, _| report.trouble.is_some() || silent.contains(mount));
        self.before.append(&mut earlier);
        self.hot = passed_ms.map(|_| hot);
        self.told_ms = Some(now_ms);
    }
}

/// Requests and bytes of a file since the answer before, or a lower bound of them.
fn since(before: &MountTop, now: &MountTop, file: &TopFile) -> (u64, u64) {
    // Counting began anew.
    let cleared = now.duration_s < before.duration_s;
    let earlier = before.files.iter().find(|earlier| earlier.inode == file.inode && !cleared);
    if let Some(earlier) = earlier
        && earlier.over_max == file.over_max
        && earlier.count <= file.count
        && earlier.bytes <= file.bytes
    {
        return (file.count - earlier.count, file.bytes - earlier.bytes);
    }
    let had_room = before.files.len() < TOP_FILES_MAX as usize;
    let most = before.files.last().filter(|_| !had_room && !cleared).map_or(0, |last| last.count);
    let known = file.count.saturating_sub(file.over_max);
    let count = known.saturating_sub(most);
    (count, (file.bytes as f64 * count as f64 / known.max(1) as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::MountName;

    fn report(mounts: &[(&str, u64, Vec<TopFile>)]) -> TopReport {
        let mount = |(host, duration_s, files): &(&str, u64, Vec<TopFile>)| {
            let mount = MountName { host: (*host).into(), mountpoint: Some("/m".into()), pid: Some(1) };
            MountTop { mount, duration_s: *duration_s, files: files.clone() }
        };
        TopReport {
            name: "web".into(),
            operation: "read".into(),
            by_bytes: false,
            mounts: mounts.iter().map(mount).collect(),
            silent: Vec::new(),
            trouble: None,
        }
    }

    fn file(inode: u64, count: u64, over_max: u64, bytes: u64) -> TopFile {
        TopFile { path: Some(format!("/f{inode}")), inode, count, over_max, bytes }
    }

    fn rows(tracker: &FileTracker) -> Vec<(String, f64, f64, f64)> {
        let rows = tracker.rows().into_iter();
        rows.map(|row| (row.path, row.operations, row.read_bytes, row.written_bytes)).collect()
    }

    #[test]
    fn file_is_shown_with_what_all_mounts_did_to_it_between_two_answers() {
        let mut tracker = FileTracker::default();
        let told = |tracker: &mut FileTracker, kind, now_ms, one, other| {
            tracker.record(kind, report(&[("one", 60, vec![one]), ("other", 60, vec![other])]), now_ms);
        };
        told(&mut tracker, Kind::Read, 0, file(1, 10, 0, 100), file(2, 5, 0, 0));
        told(&mut tracker, Kind::Write, 0, file(1, 1, 0, 10), file(1, 1, 0, 10));
        assert_eq!((rows(&tracker), tracker.is_complete()), (vec![], false));
        told(&mut tracker, Kind::Read, 2000, file(1, 30, 0, 500), file(2, 5, 0, 0));
        told(&mut tracker, Kind::Write, 2000, file(1, 1, 0, 10), file(1, 61, 0, 30));
        assert!(tracker.is_complete());
        assert_eq!(rows(&tracker), [("/f1".to_owned(), 40.0, 200.0, 10.0)]);
        let row = &tracker.rows()[0];
        assert_eq!((row.mount.as_str(), row.other_mounts), ("other:/m", 1));
    }

    #[test]
    fn file_that_was_not_in_the_answer_before_had_no_requests_or_at_most_those_of_the_last_one_there() {
        let mut tracker = FileTracker::default();
        let reads = |tracker: &mut FileTracker, now_ms, files| {
            tracker.record(Kind::Read, report(&[("one", 60, files)]), now_ms);
            rows(tracker).iter().map(|(path, count, ..)| format!("{path} {count}")).collect::<Vec<_>>()
        };
        reads(&mut tracker, 0, vec![]);
        assert_eq!(reads(&mut tracker, 1000, vec![file(1, 8, 0, 0)]), ["/f1 8"]);
        let full: Vec<TopFile> = (0..u64::from(TOP_FILES_MAX)).map(|n| file(n, 300 - n, 0, 0)).collect();
        reads(&mut tracker, 2000, full);
        // The last one had 201 requests. The table of the mount has dropped, and regained, the second file.
        let files = vec![file(1000, 205, 0, 0), file(1, 310, 100, 0)];
        assert_eq!(reads(&mut tracker, 3000, files), ["/f1 9", "/f1000 4"]);
    }

    #[test]
    fn counting_begins_anew_after_a_clear_and_goes_on_for_a_mount_that_did_not_answer() {
        let mut tracker = FileTracker::default();
        let mut told = |now_ms, duration_s, file| {
            tracker.record(Kind::Write, report(&[("one", duration_s, vec![file])]), now_ms);
            rows(&tracker).first().map(|row| row.1)
        };
        told(0, 60, file(1, 100, 0, 0));
        assert_eq!(told(2000, 1, file(1, 4, 0, 0)), Some(2.0));
        let silent = MountName { host: "one".into(), mountpoint: Some("/m".into()), pid: Some(1) };
        tracker.record(Kind::Write, TopReport { silent: vec![silent], ..report(&[]) }, 4000);
        assert_eq!(rows(&tracker), []);
        tracker.record(Kind::Write, report(&[("one", 5, vec![file(1, 8, 0, 0)])]), 6000);
        assert_eq!(rows(&tracker)[0].1, 1.0, "over the time since its last answer");
        let young = report(&[("one", 7, vec![file(1, 8, 0, 0)]), ("new", 1, vec![file(3, 6, 0, 0)])]);
        tracker.record(Kind::Write, young, 8000);
        assert_eq!(rows(&tracker), [("/f3".to_owned(), 6.0, 0.0, 0.0)]);
    }
}
