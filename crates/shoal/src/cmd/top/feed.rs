//! Asks for what `shoal top` shows, in threads of its own: with a node down, an answer takes some seconds,
//! and keys must not wait for it.
//!
//! **Bounds.** News wait in a bounded queue; each thread has one question open. Threads end when the news
//! have no receiver any more.

use super::files::Kind;
use super::state::{News, What};
use crate::admin::{AdminAnswer, AdminRequest, ClusterReport, ProfileReport, ProfileStep, TopReport};
use crate::clock::since_1970;
use crate::cmd::local::{Local, expect_answer};
use crate::cmd::request::unexpected_answer;
use crate::control::{self, Request, Statistics};
use crate::limits::{TOP_CLUSTER_EVERY, TOP_FILES_MAX, TOP_NEWS_MAX};
use crate::profile::TopOf;
use crate::rates::{Counted, Counters, plain};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Who is asked.
pub enum Source {
    /// The server of this machine, about a volume of its cluster.
    Cluster(Local),
    /// The processes of mounts of this machine, by their directories.
    Mounts(Vec<PathBuf>),
}

/// What is asked about, and how often that has changed.
#[derive(Default)]
struct Target {
    volume: Option<String>,
    turn: u64,
}

#[derive(Default)]
struct Shared {
    target: Mutex<Target>,
    changed: Condvar,
}

/// The threads, and where their news come out.
pub struct Feed {
    shared: Arc<Shared>,
    pub news: Receiver<News>,
}

/// What a thread works with.
struct Poller {
    shared: Arc<Shared>,
    news: SyncSender<News>,
    began: Instant,
    interval: Duration,
}

/// There is no receiver any more.
struct Gone;

impl Feed {
    /// Begins to ask.
    pub fn start(source: Source, volume: Option<String>, interval: Duration) -> std::io::Result<Feed> {
        let shared = Arc::new(Shared::default());
        shared.target.lock().volume = volume;
        let (send, news) = sync_channel(TOP_NEWS_MAX);
        let began = Instant::now();
        let poller = || Poller { shared: shared.clone(), news: send.clone(), began, interval };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        match source {
            Source::Cluster(local) => {
                let (one, other) = (poller(), poller());
                let same = local.clone();
                thread("top-profile").spawn(move || one.poll_profiles(&local))?;
                thread("top-files").spawn(move || other.poll_files(&same))?;
            }
            Source::Mounts(homes) => {
                let one = poller();
                thread("top-mounts").spawn(move || one.poll_mounts(homes))?;
            }
        }
        Ok(Feed { shared, news })
    }

    /// Asks about this volume from now on.
    pub fn watch(&self, volume: String) {
        let mut target = self.shared.target.lock();
        target.volume = Some(volume);
        target.turn += 1;
        self.shared.changed.notify_all();
    }
}

impl Poller {
    fn publish(&self, volume: Option<&String>, what: What) -> Result<(), Gone> {
        let at_unix_s = since_1970().as_secs();
        let at_ms = self.began.elapsed().as_millis() as u64;
        self.news.send(News { volume: volume.cloned(), at_ms, at_unix_s, what }).map_err(|_| Gone)
    }

    fn target(&self) -> (Option<String>, u64) {
        let target = self.shared.target.lock();
        (target.volume.clone(), target.turn)
    }

    /// Waits until a question that began then is due again, or another volume is chosen.
    fn rest(&self, began: Instant, turn: u64) {
        let mut target = self.shared.target.lock();
        let due = began + self.interval;
        while target.turn == turn && Instant::now() < due {
            self.shared.changed.wait_until(&mut target, due);
        }
    }

    fn poll_profiles(&self, local: &Local) {
        loop {
            let (began, (volume, turn)) = (Instant::now(), self.target());
            if let Some(name) = &volume {
                let report = profile(local, name).map(Box::new).map_err(in_words);
                if self.publish(Some(name), What::Profile(report)).is_err() {
                    return;
                }
            }
            self.rest(began, turn);
        }
    }

    /// Also asks for the state of the nodes, in between.
    fn poll_files(&self, local: &Local) {
        let mut cluster_asked: Option<Instant> = None;
        loop {
            let (began, (volume, turn)) = (Instant::now(), self.target());
            if cluster_asked.is_none_or(|asked| asked.elapsed() >= TOP_CLUSTER_EVERY) {
                cluster_asked = Some(began);
                let report = cluster(local).map(Box::new).map_err(in_words);
                if self.publish(None, What::Cluster(report)).is_err() {
                    return;
                }
            }
            for kind in Kind::ALL {
                let Some(name) = &volume else { break };
                if self.target().1 != turn {
                    break;
                }
                let report = top(local, name, kind).map_err(in_words);
                if self.publish(Some(name), What::Top(kind, report)).is_err() {
                    return;
                }
            }
            self.rest(began, turn);
        }
    }

    fn poll_mounts(&self, homes: Vec<PathBuf>) {
        let mut clocks = BTreeMap::new();
        loop {
            let began = Instant::now();
            let answers: Result<Vec<(Counters, Option<Counters>)>, String> = match homes.len() {
                // The one mount that there is has ended: that is said instead of an empty table.
                1 => self.query_mount(&homes[0], &mut clocks).map(|one| vec![one]),
                _ => Ok(homes
                    .iter()
                    .map(|home| {
                        self.query_mount(home, &mut clocks).unwrap_or_else(|why| {
                            let name = home.display().to_string();
                            (Counters { key: name.clone(), name: plain(&name), counted: Err(why) }, None)
                        })
                    })
                    .collect()),
            };
            let told = answers.map(|all| {
                let (mounts, bricks): (Vec<Counters>, Vec<Option<Counters>>) = all.into_iter().unzip();
                (mounts, bricks.into_iter().flatten().collect())
            });
            if self.publish(None, What::Mounts(told)).is_err() {
                return;
            }
            self.rest(began, 0);
        }
    }

    /// What a mount of this machine has counted, and the brick inside its process, if there is one.
    fn query_mount(
        &self,
        home: &Path,
        clocks: &mut BTreeMap<PathBuf, Clock>,
    ) -> Result<(Counters, Option<Counters>), String> {
        let statistics: Statistics =
            control::request(home, &Request::Stats).map_err(|error| in_words(error.into()))?;
        let clock = clocks.entry(home.to_owned()).or_insert_with(|| Clock::new(statistics.uptime_s));
        let lived_ms = clock.lived_ms(statistics.uptime_s);
        let number = |name: &str| {
            let found = statistics.client.iter().find(|number| number.name == name);
            found.map_or(0, |number| number.value)
        };
        let brick = Counted {
            lived_ms,
            read_bytes: number("blocks_get_bytes_total"),
            written_bytes: number("blocks_put_bytes_total"),
            operations: statistics.brick.clone(),
            metadata: Vec::new(),
        };
        let name = plain(&home.display().to_string());
        let brick =
            (!statistics.brick.is_empty()).then(|| Counters { key: name.clone(), name, counted: Ok(brick) });
        let mount = Counted {
            lived_ms,
            read_bytes: statistics.kernel_read_bytes,
            written_bytes: statistics.kernel_written_bytes,
            operations: statistics.kernel,
            metadata: statistics.meta,
        };
        let name = statistics.mountpoint.display().to_string();
        Ok((Counters { name: plain(&name), key: name, counted: Ok(mount) }, brick))
    }
}

/// For how long a process has run, more precisely than it tells.
struct Clock {
    first: Instant,
    first_s: u64,
    last_s: u64,
}

impl Clock {
    fn new(uptime_s: u64) -> Clock {
        Clock { first: Instant::now(), first_s: uptime_s, last_s: uptime_s }
    }

    fn lived_ms(&mut self, uptime_s: u64) -> u64 {
        if uptime_s < self.last_s {
            // Another process.
            *self = Clock::new(uptime_s);
        }
        self.last_s = uptime_s;
        self.first_s * 1000 + self.first.elapsed().as_millis() as u64
    }
}

fn in_words(error: anyhow::Error) -> String {
    crate::show::runnable(&format!("{error:#}")).into_owned()
}

fn profile(local: &Local, name: &str) -> anyhow::Result<ProfileReport> {
    let request = AdminRequest::Profile { name: name.to_owned(), step: ProfileStep::Peek };
    Ok(expect_answer!(local.request_quietly(request)?, AdminAnswer::Profile(report) => report))
}

fn top(local: &Local, name: &str, kind: Kind) -> anyhow::Result<TopReport> {
    let of = TopOf { operation: kind.name().to_owned(), by_bytes: false, count_max: TOP_FILES_MAX };
    let request = AdminRequest::Top { name: name.to_owned(), of };
    Ok(expect_answer!(local.request_quietly(request)?, AdminAnswer::Top(report) => report))
}

fn cluster(local: &Local) -> anyhow::Result<ClusterReport> {
    match local.request_quietly(AdminRequest::ClusterStatus)? {
        AdminAnswer::Cluster(report) => Ok(report),
        other => Err(unexpected_answer(&other)),
    }
}
