//! One hammering process. A second thread watches how long its calls take: a call that hangs cannot report
//! itself.

use crate::clock::now_ns;
use crate::pool;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    longest_ms: u64,
    #[arg(long)]
    names: u32,
    /// Where to work
    dir: PathBuf,
}

/// Kinds of calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[allow(missing_docs)] // they are the system calls
pub enum Call {
    Create,
    Write,
    Mkdir,
    Link,
    Rename,
    Unlink,
    Rmdir,
    Lstat,
    List,
}

impl Call {
    /// Whether concurrent calls can be the reason for this error.
    pub(super) fn may_fail_with(self, errno: i32) -> bool {
        let errors: &[i32] = match self {
            Self::Create | Self::Mkdir => &[libc::EEXIST],
            Self::Link => &[libc::ENOENT, libc::EEXIST, libc::EPERM],
            Self::Rename => &[libc::ENOENT, libc::ENOTDIR, libc::EISDIR, libc::EEXIST, libc::ENOTEMPTY],
            Self::Unlink => &[libc::ENOENT, libc::EISDIR],
            Self::Rmdir => &[libc::ENOENT, libc::ENOTDIR],
            Self::Lstat => &[libc::ENOENT],
            Self::Write | Self::List => &[],
        };
        errors.contains(&errno)
    }
}

/// A task of a worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Hammer for a while.
    Work {
        /// How long, in milliseconds.
        ms: u64,
    },
    /// List the directory.
    Survey,
}

/// What a name leads to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    ino: u64,
    mode: u32,
    size: u64,
    links: u64,
}

/// The calls of one kind that a worker has made.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Done {
    /// How many.
    pub calls: u64,
    /// The longest of them.
    pub longest_ns: u64,
    /// How often each errno came.
    pub errors: BTreeMap<i32, u64>,
}

/// A message of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Message {
    /// This call takes longer than so many milliseconds, and may still be in progress.
    Slow { call: Call, ms: u64 },
    /// It has hammered.
    Worked(Vec<(Call, Done)>),
    /// The entries, the directory itself among them; or why they cannot be listed.
    Surveyed(Result<BTreeMap<String, Entry>, String>),
}

/// The call in progress, and when it began.
type Current = Arc<Mutex<Option<(Call, u64)>>>;

struct Hammering {
    dir: PathBuf,
    rng: SmallRng,
    names: u32,
    current: Current,
    done: BTreeMap<Call, Done>,
}

/// The hidden subcommand.
pub(super) fn work(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { seed, longest_ms, names, dir } = arguments;
    let current = Current::default();
    let watched = current.clone();
    std::thread::spawn(move || watch(&watched, longest_ms));
    let rng = SmallRng::seed_from_u64(seed);
    let mut hammering = Hammering { dir, rng, names, current, done: BTreeMap::new() };
    while let Some(task) = pool::receive()? {
        match task {
            Task::Work { ms } => {
                let until = now_ns() + ms * 1_000_000;
                while now_ns() < until {
                    hammering.one();
                }
                pool::say(&Message::Worked(std::mem::take(&mut hammering.done).into_iter().collect()))?;
            }
            Task::Survey => {
                let list = survey(&hammering.dir).map_err(|error| error.to_string());
                pool::say(&Message::Surveyed(list))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reports each call that takes too long, once, while it is in progress.
fn watch(current: &Current, longest_ms: u64) {
    let mut told = None;
    loop {
        std::thread::sleep(Duration::from_millis((longest_ms / 4).clamp(1, 100)));
        let now = *current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((call, began)) = now
            && now_ns().saturating_sub(began) > longest_ms * 1_000_000
            && told != now
        {
            told = now;
            if pool::say(&Message::Slow { call, ms: longest_ms }).is_err() {
                return;
            }
        }
    }
}

impl Hammering {
    fn name(&mut self) -> PathBuf {
        self.dir.join(format!("name-{}", self.rng.random_range(0..self.names)))
    }

    fn one(&mut self) {
        let (name, other) = (self.name(), self.name());
        match self.rng.random_range(0..100) {
            0..25 => {
                let file =
                    self.time(Call::Create, || OpenOptions::new().write(true).create_new(true).open(&name));
                if let Some(file) = file {
                    self.time(Call::Write, || file.write_all_at(name.as_os_str().as_encoded_bytes(), 0));
                }
            }
            25..40 => {
                self.time(Call::Rename, || fs::rename(&name, &other));
            }
            40..50 => {
                self.time(Call::Link, || fs::hard_link(&name, &other));
            }
            50..70 => {
                self.time(Call::Unlink, || fs::remove_file(&name));
            }
            70..78 => {
                self.time(Call::Mkdir, || fs::create_dir(&name));
            }
            78..88 => {
                self.time(Call::Rmdir, || fs::remove_dir(&name));
            }
            88..97 => {
                self.time(Call::Lstat, || fs::symlink_metadata(&name));
            }
            _ => {
                let dir = self.dir.clone();
                let count = || fs::read_dir(dir)?.try_fold(0, |count, entry| entry.map(|_| count + 1));
                self.time::<usize>(Call::List, count);
            }
        }
    }

    /// Makes and counts a call, and returns its result if it succeeded.
    fn time<T>(&mut self, call: Call, make: impl FnOnce() -> io::Result<T>) -> Option<T> {
        let began = now_ns();
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some((call, began));
        let made = make();
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let took = now_ns() - began;
        let done = self.done.entry(call).or_default();
        done.calls += 1;
        done.longest_ns = done.longest_ns.max(took);
        match made {
            Ok(value) => Some(value),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                *done.errors.entry(errno).or_default() += 1;
                None
            }
        }
    }
}

fn survey(dir: &Path) -> io::Result<BTreeMap<String, Entry>> {
    let mut list = BTreeMap::new();
    let mut add = |name: String, of: fs::Metadata| {
        // The size of a directory is not compared.
        let size = if of.is_dir() { 0 } else { of.len() };
        list.insert(name, Entry { ino: of.ino(), mode: of.mode(), size, links: of.nlink() });
    };
    add(".".to_owned(), fs::symlink_metadata(dir)?);
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        add(entry.file_name().to_string_lossy().into_owned(), fs::symlink_metadata(entry.path())?);
    }
    Ok(list)
}
