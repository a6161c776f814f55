//! What `shoal top` knows, and what the keys do to it. Pure: news and keys in, a value to draw out.

use super::files::{FileRow, FileTracker, Kind};
use crate::admin::{ClusterReport, ProfileReport, TopReport, VolumeState};
use crate::limits::{TOP_HISTORY_MAX, TOP_NAMES_SHOWN_MAX, TOP_SILENCE_INTERVALS};
use crate::rates::{Counters, Rates, Row, Sample, Tracker, plain};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Something that was asked for has come, or has not.
pub struct News {
    /// The volume that it is about; `None`: the cluster, or mounts of this machine.
    pub volume: Option<String>,
    /// When it came, in milliseconds by a clock that only goes forward.
    pub at_ms: u64,
    /// When it came, in seconds since 1970.
    pub at_unix_s: u64,
    pub what: What,
}

/// See [`News`].
pub enum What {
    Cluster(Result<Box<ClusterReport>, String>),
    Profile(Result<Box<ProfileReport>, String>),
    Top(Kind, Result<TopReport, String>),
    /// Mounts of this machine, and the bricks inside their processes.
    Mounts(Result<(Vec<Counters>, Vec<Counters>), String>),
}

/// By what the tables are sorted. The most comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Operations,
    Read,
    Written,
    /// The mean latency. Of files it is not known; they stay sorted by operations.
    Latency,
}

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Quit,
    Help,
    Pause,
    Directories,
    Sort(Sort),
    /// The volume with this number, from 1.
    Volume(usize),
    NextVolume,
}

/// What the caller is to do after a key or after news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    Quit,
    /// Ask about this volume from now on.
    Watch(String),
}

/// One interval of all mounts together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    pub operations: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    pub mean_ns: u64,
    pub p99_ns: u64,
}

/// What is shown. `--json` prints it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Shown {
    /// The volume, or the mounts of this machine.
    pub volume: Option<String>,
    /// The identity of the cluster.
    pub cluster: Option<String>,
    /// The node that answers.
    pub node: Option<String>,
    /// When the last answer about the volume came, in seconds since 1970.
    pub at: Option<u64>,
    /// What is wrong, in words.
    pub notes: Vec<String>,
    #[serde(flatten)]
    pub sample: Sample,
    pub files: Vec<FileRow>,
    /// The latest at the end; `None`: there was no answer.
    #[serde(skip)]
    pub history: VecDeque<Option<Point>>,
    #[serde(skip)]
    pub nodes: usize,
    #[serde(skip)]
    pub volumes: Vec<String>,
}

/// Everything that `shoal top` knows.
#[derive(Default)]
pub struct State {
    live: Shown,
    paused: Option<Box<Shown>>,
    tracker: Tracker,
    files: FileTracker,
    away: Vec<String>,
    cluster_trouble: Option<String>,
    trouble: Option<String>,
    files_trouble: Option<String>,
    /// Whether files are told of at all.
    has_files: bool,
    pub interval_s: f64,
    pub sort: Sort,
    pub help: bool,
    pub directories: bool,
}

impl State {
    /// Nothing is known yet of this volume, or of any.
    pub fn of_cluster(volume: Option<String>, interval_s: f64) -> State {
        let live = Shown { volume, ..Shown::default() };
        State { live, interval_s, has_files: true, ..State::default() }
    }

    /// Nothing is known yet of these mounts.
    pub fn of_mounts(called: String, interval_s: f64) -> State {
        let live = Shown { volume: Some(called), ..Shown::default() };
        State { live, interval_s, ..State::default() }
    }

    /// What is to be drawn.
    pub fn shown(&self) -> &Shown {
        self.paused.as_deref().unwrap_or(&self.live)
    }

    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Whether files can be told of.
    pub fn has_files(&self) -> bool {
        self.has_files
    }

    /// Whether there are rates of everything, or it is known why not.
    pub fn is_complete(&self) -> bool {
        let files = !self.has_files || self.files.is_complete() || self.files_trouble.is_some();
        self.trouble.is_some() || (self.live.sample.compared && files)
    }

    /// Why nothing is known of the volume.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Takes news in.
    pub fn learn(&mut self, news: News) -> Action {
        let News { volume, at_ms, at_unix_s, what } = news;
        if volume.is_some() && volume != self.live.volume {
            // It was asked for before another volume was chosen.
            return Action::Nothing;
        }
        let mut action = Action::Nothing;
        match what {
            What::Cluster(Ok(report)) => action = self.learn_cluster(*report),
            What::Cluster(Err(why)) => {
                self.cluster_trouble = Some(plain(&why));
                if self.live.volume.is_none() {
                    self.trouble = self.cluster_trouble.clone();
                }
            }
            What::Profile(Ok(report)) => {
                let sample = self.tracker.profile(&report, at_ms);
                self.learn_sample(sample, at_unix_s);
            }
            What::Mounts(Ok((mounts, bricks))) => {
                let sample = self.tracker.sample(mounts, bricks, at_ms);
                self.learn_sample(sample, at_unix_s);
            }
            What::Profile(Err(why)) | What::Mounts(Err(why)) => self.lose_sample(plain(&why)),
            What::Top(kind, Ok(report)) => {
                self.files_trouble = report.trouble.as_deref().map(plain);
                self.files.record(kind, report, at_ms);
                self.live.files = self.files.rows();
            }
            What::Top(_, Err(why)) => {
                self.files_trouble = Some(plain(&why));
                self.live.files.clear();
            }
        }
        self.live.notes = self.notes();
        action
    }

    fn learn_cluster(&mut self, report: ClusterReport) -> Action {
        self.cluster_trouble = None;
        let away = report.nodes.iter().filter(|node| !node.connected);
        self.away = away.map(|node| plain(&node.name)).collect();
        self.live.nodes = report.nodes.len();
        self.live.cluster = Some(report.cluster);
        self.live.node = Some(plain(&report.node));
        self.live.volumes = report.volumes.iter().map(|volume| volume.name.clone()).collect();
        self.live.volumes.sort();
        if self.live.volume.is_some() {
            return Action::Nothing;
        }
        let runs = |name: &&String| {
            let is_it = |volume: &&crate::admin::VolumeHealth| volume.name == **name;
            report.volumes.iter().find(is_it).is_some_and(|it| it.state == VolumeState::Started)
        };
        let first = self.live.volumes.iter().find(runs).or(self.live.volumes.first()).cloned();
        self.trouble = first.is_none().then(|| "the cluster has no volume yet".into());
        first.map_or(Action::Nothing, |first| self.watch(first))
    }

    fn learn_sample(&mut self, sample: Sample, at_unix_s: u64) {
        self.trouble = None;
        if sample.compared {
            self.push(sample.total.as_ref().map(Point::from));
        }
        self.live.at = Some(at_unix_s);
        self.live.sample = sample;
    }

    /// Rows stay, so that it can be seen what there was; figures do not, since they are old.
    fn lose_sample(&mut self, why: String) {
        self.trouble = Some(why);
        self.push(None);
        let sample = &mut self.live.sample;
        sample.total = None;
        for row in sample.mounts.iter_mut().chain(&mut sample.bricks) {
            row.rates = None;
        }
    }

    fn push(&mut self, point: Option<Point>) {
        if self.live.history.len() == TOP_HISTORY_MAX {
            self.live.history.pop_front();
        }
        self.live.history.push_back(point);
    }

    fn notes(&self) -> Vec<String> {
        let several = |names: &[String], one: &str, many: &str, what: &str| {
            let kind = if names.len() == 1 { one } else { many };
            let shown = names.iter().take(TOP_NAMES_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
            let rest = names.len().saturating_sub(TOP_NAMES_SHOWN_MAX);
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            (!names.is_empty()).then(|| format!("{kind} {shown}{rest} {what}"))
        };
        let singular = |names: &[String]| if names.len() == 1 { "does not answer" } else { "do not answer" };
        let silent = &self.live.sample.silent;
        let mounts = self.live.sample.trouble.as_ref();
        // A cluster that is not reached is one note, however many questions that concerns.
        let cluster = self.cluster_trouble.as_ref().filter(|_| self.trouble.is_none());
        let files = self.files_trouble.as_ref().filter(|_| self.trouble.is_none() && mounts.is_none());
        [
            self.trouble.clone(),
            cluster.cloned(),
            several(&self.away, "node", "nodes", singular(&self.away)),
            several(silent, "mount", "mounts", singular(silent)),
            mounts.map(|why| format!("the mounts are not known: {why}")),
            files.map(|why| format!("the files are not known: {why}")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// What is wrong, also if that is that nothing has come for a while.
    pub fn notes_at(&self, now_unix_s: u64) -> Vec<String> {
        let mut notes = self.shown().notes.clone();
        let silent_s = self.shown().at.map_or(0, |at| now_unix_s.saturating_sub(at));
        let is_late = silent_s as f64 > TOP_SILENCE_INTERVALS * self.interval_s;
        // Otherwise it is known why.
        if is_late && self.trouble.is_none() && !self.is_paused() {
            notes.insert(0, format!("no answer for {}", crate::show::seconds(silent_s)));
        }
        notes
    }

    /// Does what a key is for.
    pub fn press(&mut self, key: Key) -> Action {
        match key {
            Key::Quit => return Action::Quit,
            Key::Help => self.help = !self.help,
            Key::Pause => {
                self.paused = match self.paused {
                    Some(_) => None,
                    None => Some(Box::new(self.live.clone())),
                }
            }
            Key::Directories => self.directories = !self.directories,
            Key::Sort(sort) => self.sort = sort,
            Key::Volume(number) => {
                let chosen = number.checked_sub(1).and_then(|at| self.live.volumes.get(at));
                return chosen.cloned().map_or(Action::Nothing, |chosen| self.watch(chosen));
            }
            Key::NextVolume => {
                let volumes = &self.live.volumes;
                let at = volumes.iter().position(|name| Some(name) == self.live.volume.as_ref());
                let next = at.map_or(0, |at| (at + 1) % volumes.len());
                return volumes.get(next).cloned().map_or(Action::Nothing, |next| self.watch(next));
            }
        }
        Action::Nothing
    }

    /// Begins anew with a volume.
    fn watch(&mut self, volume: String) -> Action {
        if self.live.volume.as_ref() == Some(&volume) {
            return Action::Nothing;
        }
        (self.tracker, self.files) = (Tracker::default(), FileTracker::default());
        (self.trouble, self.files_trouble, self.paused) = (None, None, None);
        let (cluster, node) = (self.live.cluster.take(), self.live.node.take());
        let (nodes, volumes) = (self.live.nodes, std::mem::take(&mut self.live.volumes));
        self.live = Shown { volume: Some(volume.clone()), cluster, node, nodes, volumes, ..Shown::default() };
        self.live.notes = self.notes();
        Action::Watch(volume)
    }
}

impl From<&Rates> for Point {
    fn from(rates: &Rates) -> Point {
        Point {
            operations: rates.operations,
            read_bytes: rates.read_bytes,
            written_bytes: rates.written_bytes,
            mean_ns: rates.mean_ns,
            p99_ns: rates.p99_ns,
        }
    }
}

/// Rows in the order in which they are shown.
pub fn sorted(rows: &[Row], sort: Sort) -> Vec<&Row> {
    let key = |row: &Row| {
        let of = |part: fn(&Rates) -> f64| row.rates.as_ref().map_or(-1.0, part);
        match sort {
            Sort::Operations => of(|rates| rates.operations),
            Sort::Read => of(|rates| rates.read_bytes),
            Sort::Written => of(|rates| rates.written_bytes),
            Sort::Latency => of(|rates| rates.mean_ns as f64),
        }
    };
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by(|one, other| key(other).total_cmp(&key(one)).then_with(|| one.name.cmp(&other.name)));
    rows
}

/// Files in the order in which they are shown, or their directories.
pub fn sorted_files(rows: &[FileRow], sort: Sort, directories: bool) -> Vec<FileRow> {
    let mut rows = if directories { in_directories(rows) } else { rows.to_vec() };
    let key = |row: &FileRow| match sort {
        Sort::Operations | Sort::Latency => row.operations,
        Sort::Read => row.read_bytes,
        Sort::Written => row.written_bytes,
    };
    rows.sort_by(|one, other| key(other).total_cmp(&key(one)).then_with(|| one.path.cmp(&other.path)));
    rows
}

/// The directories of files, with what happened to the files directly in them.
fn in_directories(rows: &[FileRow]) -> Vec<FileRow> {
    let mut all: BTreeMap<&str, FileRow> = BTreeMap::new();
    for file in rows {
        let path = match file.path.rsplit_once('/') {
            Some(("", _)) => "/",
            Some((directory, _)) => directory,
            None => "(removed, or not committed yet)",
        };
        let row = all.entry(path).or_insert_with(|| FileRow { path: path.into(), ..FileRow::default() });
        row.operations += file.operations;
        row.read_bytes += file.read_bytes;
        row.written_bytes += file.written_bytes;
        // Files of one directory may have different mounts in front; one of them is enough as a hint.
        if row.mount.is_empty() {
            row.mount.clone_from(&file.mount);
        }
        let differs = usize::from(row.mount != file.mount);
        row.other_mounts = row.other_mounts.max(file.other_mounts).max(differs);
    }
    all.into_values().collect()
}
