//! `visible` and `turns`: how long a change on one mount takes to be seen on another, and whether it is seen.
//!
//! A process of its own does the work, since calls on a mount may hang. The caller waits for a bounded time.

use crate::clock::now_ns;
use crate::limits;
use crate::pool::{self, Pool, TROUBLE, WRONG, WorkerEvent};
use crate::run::prepare;
use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Arguments of `visible`.
#[derive(Debug, Clone, clap::Args)]
pub struct VisibleArguments {
    /// Where to write
    a: PathBuf,
    /// Where to look
    b: PathBuf,
    /// How many changes of each kind
    #[arg(long, default_value_t = 200)]
    count: u32,
}

/// Arguments of `turns`.
#[derive(Debug, Clone, clap::Args)]
pub struct TurnsArguments {
    /// Directories that show the same files, in the order of their turns
    #[arg(required = true, num_args = 2..)]
    dirs: Vec<PathBuf>,
    /// How long, in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

/// Arguments of the hidden subcommand.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The directory in all of the directories
    #[arg(long)]
    name: String,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum What {
    Visible(VisibleArguments),
    Turns(TurnsArguments),
}

/// Durations in nanoseconds.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Times(Vec<u64>);

impl Times {
    fn add(&mut self, ns: u64) {
        self.0.push(ns);
    }

    /// The time that this share of all times does not exceed, in microseconds.
    fn percentile_us(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or_default() as f64 / 1e3
    }

    fn show(&self) -> String {
        let of = |percent| self.percentile_us(percent);
        format!("median {:.1} us, p99 {:.1} us, longest {:.1} us", of(50), of(99), of(100))
    }
}

/// A kind of change, and how it was seen.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
struct Seen {
    what: String,
    /// From the begin of the change to the return of the first look that saw it.
    visible: Times,
    /// The change itself.
    change: Times,
    /// A single look right after the change had returned.
    first_look: Times,
    /// Looks that began after the change had returned and did not see it.
    stale: u64,
    /// Changes that were not seen within [`limits::VISIBLE_WAIT`].
    never: u64,
}

/// A message of the measuring process.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Message {
    Visible(Vec<Seen>),
    Turns { turns: Times, missed: u64 },
    Failed(String),
}

/// Runs a process that works in a fresh directory, with a time limit. Problems of the mounts are returned in
/// words.
fn ask(what: &What, dirs: &[PathBuf], wait: Duration) -> anyhow::Result<Message> {
    let name = prepare::fresh_name();
    prepare::make(&name, dirs, 0)?;
    let mut command = pool::this_program(&["probe".to_owned(), format!("--name={name}")])?;
    match what {
        What::Visible(VisibleArguments { a, b, count }) => {
            command.arg("visible").arg(format!("--count={count}")).arg("--").args([a, b]);
        }
        What::Turns(TurnsArguments { dirs, seconds }) => {
            command.arg("turns").arg(format!("--seconds={seconds}")).arg("--").args(dirs);
        }
    }
    let mut pool: Pool<Message> = Pool::default();
    pool.start(command)?;
    let said = match pool.next_event(Instant::now() + wait) {
        Some((_, WorkerEvent::Message(message))) => message,
        Some((_, WorkerEvent::Gone)) => bail!("the process that worked died"),
        None => {
            pool.kill(0);
            return Ok(Message::Failed(format!("HUNG: nothing was heard for {} s", wait.as_secs())));
        }
    };
    if let Err(error) = prepare::remove(&name, dirs) {
        eprintln!("{name} is left behind: {error:#}");
    }
    Ok(said)
}

fn failed(how: &str) -> ExitCode {
    println!("WRONG: {how}");
    ExitCode::from(WRONG)
}

/// The command `visible`.
pub fn visible(arguments: &VisibleArguments) -> anyhow::Result<ExitCode> {
    ensure!(arguments.count > 0, "--count wants at least 1");
    let dirs = [arguments.a.clone(), arguments.b.clone()];
    let wait = limits::PROBE_WAIT + limits::VISIBLE_WAIT * limits::NEVER_MAX;
    let kinds = match ask(&What::Visible(arguments.clone()), &dirs, wait)? {
        Message::Visible(kinds) => kinds,
        Message::Failed(how) => return Ok(failed(&how)),
        Message::Turns { .. } => bail!("the process that worked gave another answer"),
    };
    let mut wrong = false;
    for Seen { what, visible, change, first_look, stale, never } in &kinds {
        println!("{what}:");
        println!("    begin of the change until seen: {}", visible.show());
        println!("    the change itself:              {}", change.show());
        println!("    the first look after it:        {}", first_look.show());
        println!(
            "    looks after the change had returned that did not see it: {stale}; changes never seen: {never}"
        );
        wrong |= *stale > 0 || *never > 0;
    }
    println!(
        "{}",
        if wrong {
            "STALE: completed changes were not seen at once"
        } else {
            "every completed change was seen at once"
        }
    );
    Ok(ExitCode::from(if wrong { WRONG } else { 0 }))
}

/// The command `turns`.
pub fn turns(arguments: &TurnsArguments) -> anyhow::Result<ExitCode> {
    let wait = Duration::from_secs(arguments.seconds) + limits::HANG_GRACE;
    let (turns, missed) = match ask(&What::Turns(arguments.clone()), &arguments.dirs, wait)? {
        Message::Turns { turns, missed } => (turns, missed),
        Message::Failed(how) => return Ok(failed(&how)),
        Message::Visible(_) => bail!("the process that worked gave another answer"),
    };
    let seconds = turns.0.iter().sum::<u64>() as f64 / 1e9;
    println!(
        "{} files made in turn: {:.0} per second; {}",
        turns.0.len(),
        turns.0.len() as f64 / seconds,
        turns.show()
    );
    println!("files of the turn before that were not there: {missed}");
    Ok(ExitCode::from(if missed > 0 { WRONG } else { 0 }))
}

/// The hidden subcommand.
pub fn probe(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let name = &arguments.name;
    let said = match &arguments.what {
        What::Visible(VisibleArguments { a, b, count }) => {
            look_at_both(&a.join(name), &b.join(name), *count).map(Message::Visible)
        }
        What::Turns(TurnsArguments { dirs, seconds }) => take_turns(dirs, name, *seconds),
    };
    let failed = said.is_err();
    pool::say(&said.unwrap_or_else(|error| Message::Failed(format!("{error:#}"))))?;
    Ok(ExitCode::from(if failed { TROUBLE } else { 0 }))
}

fn create(path: &Path) -> anyhow::Result<File> {
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    made.with_context(|| path.display().to_string())
}

fn look_at_both(a: &Path, b: &Path, count: u32) -> anyhow::Result<Vec<Seen>> {
    let byte_a = create(&a.join("byte"))?;
    byte_a.write_all_at(&[0], 0)?;
    let byte_b =
        OpenOptions::new().read(true).open(b.join("byte")).context("the other side does not see the file")?;
    // Neighbours differ, and the first differs from the zero that is there.
    let value = |number: u32| u64::from(number % 251 + 1);
    let overwritten = measure(
        "a byte overwritten, seen by pread",
        count,
        |number| byte_a.write_all_at(&[value(number) as u8], 0),
        || {
            let mut byte = [0];
            byte_b.read_exact_at(&mut byte, 0).map(|()| u64::from(byte[0]))
        },
        value,
    )?;
    let grown_a = create(&a.join("grown"))?;
    let path_b = b.join("grown");
    let grown = measure(
        "a file grown by a byte, seen by stat",
        count,
        |number| grown_a.write_all_at(&[1], u64::from(number)),
        || fs::symlink_metadata(&path_b).map(|metadata| metadata.len()),
        |number| u64::from(number) + 1,
    )?;
    Ok(vec![overwritten, grown])
}

/// Changes something `count` times. The other side polls all the time for half of the changes, and looks once
/// right after the change for the other half.
fn measure(
    what: &str,
    count: u32,
    change: impl Fn(u32) -> io::Result<()>,
    look: impl Fn() -> io::Result<u64> + Sync,
    value: impl Fn(u32) -> u64,
) -> anyhow::Result<Seen> {
    let mut seen = Seen { what: what.to_owned(), ..Seen::default() };
    for number in 0..count * 2 {
        let wanted = value(number);
        let (begin, end, looked);
        if number % 2 == 0 {
            let polling = AtomicBool::new(false);
            (begin, end, looked) = std::thread::scope(|scope| -> anyhow::Result<_> {
                let poller = scope.spawn(|| poll(&look, wanted, &polling));
                while !polling.load(Ordering::Relaxed) && !poller.is_finished() {
                    std::thread::yield_now();
                }
                // Not always at the same point of the other side's loop.
                std::thread::sleep(Duration::from_micros(u64::from(number * 37 % 1000)));
                let begin = now_ns();
                let changed = change(number);
                let end = now_ns();
                let looked = poller.join().ok().context("the thread that looks died")?;
                changed.context("the change failed")?;
                Ok((begin, end, looked.context("the look failed")?))
            })?;
        } else {
            begin = now_ns();
            change(number).context("the change failed")?;
            end = now_ns();
            let first = now_ns();
            let fresh = look().context("the look failed")? == wanted;
            seen.first_look.add(now_ns() - first);
            seen.stale += u64::from(!fresh);
            looked = poll(&look, wanted, &AtomicBool::new(false)).context("the look failed")?;
        }
        seen.change.add(end - begin);
        match looked.seen {
            // Only the polled changes tell how long it took.
            Some(at) if number % 2 == 0 => seen.visible.add(at.saturating_sub(begin)),
            Some(_) => (),
            None => seen.never += 1,
        }
        seen.stale += u64::from(looked.last_stale.is_some_and(|stale| number % 2 == 0 && stale > end));
        ensure!(seen.never < u64::from(limits::NEVER_MAX), "{what}: changes are not seen at all");
    }
    Ok(seen)
}

/// The result of polling.
#[derive(Default)]
struct Looked {
    /// When the last look that did not see the change began.
    last_stale: Option<u64>,
    /// When the first look that saw the change returned.
    seen: Option<u64>,
}

/// Looks until the change is seen.
fn poll(look: &impl Fn() -> io::Result<u64>, wanted: u64, polling: &AtomicBool) -> io::Result<Looked> {
    let mut looked = Looked::default();
    let until = Instant::now() + limits::VISIBLE_WAIT;
    while Instant::now() < until {
        let began = now_ns();
        let value = look();
        polling.store(true, Ordering::Relaxed);
        if value? == wanted {
            looked.seen = Some(now_ns());
            break;
        }
        looked.last_stale = Some(began);
    }
    Ok(looked)
}

fn take_turns(dirs: &[PathBuf], name: &str, seconds: u64) -> anyhow::Result<Message> {
    let began = Instant::now();
    let (mut turns, mut missed) = (Times::default(), 0);
    for number in 0u64.. {
        if began.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        let dir = dirs[number as usize % dirs.len()].join(name);
        let start = now_ns();
        create(&dir.join(number.to_string()))?;
        turns.add(now_ns() - start);
        if let Some(before) = number.checked_sub(1)
            && number % limits::TURNS_PER_LOOK == 0
        {
            missed += u64::from(fs::symlink_metadata(dir.join(before.to_string())).is_err());
        }
    }
    Ok(Message::Turns { turns, missed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times = Times((1..=200).rev().map(|us| us * 1000).collect());
        assert_eq!(times.percentile_us(50), 101.0);
        assert_eq!(times.percentile_us(99), 199.0);
        assert_eq!(times.percentile_us(100), 200.0);
        assert_eq!(Times::default().percentile_us(50), 0.0);
    }

    #[test]
    fn a_look_that_lags_is_counted() {
        use std::sync::atomic::AtomicU64;
        let (changed, looks) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut shown = 0;
        let shown_before = std::sync::Mutex::new(&mut shown);
        let look = || {
            looks.fetch_add(1, Ordering::Relaxed);
            let mut shown = shown_before.lock().expect("no panic");
            // Tells the value of the look before.
            Ok(std::mem::replace(&mut **shown, changed.load(Ordering::SeqCst)))
        };
        let change = |number: u32| {
            changed.store(u64::from(number) + 1, Ordering::SeqCst);
            Ok(())
        };
        let seen = measure("a lag", 5, change, look, |number| u64::from(number) + 1).expect("it is measured");
        assert!(seen.stale >= 5, "{seen:?}");
        assert_eq!(seen.never, 0);
    }
}
