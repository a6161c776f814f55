//! `hammer`: all mounts work in one directory at once, as fast as they can.
//!
//! Single calls are not recorded. It fails in three cases:
//! - a call takes too long;
//! - a call fails with an error that concurrent calls cannot explain (`EIO`, `ENOTCONN`, `ESTALE`, ...);
//! - at the end, without calls in progress, the mounts do not list the same names with the same attributes.

pub mod lateness;
pub mod worker;

use crate::limits;
use crate::ops::errno_name;
use crate::pool::{self, Pool, WRONG, WorkerEvent};
use crate::run::prepare;
use anyhow::{Context, ensure};
use lateness::LatenessSampler;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use worker::{Call, Entry, Message, Task};

/// Arguments of `hammer`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Directories that show the same files; one may be given twice
    #[arg(required = true, num_args = 1..)]
    dirs: Vec<PathBuf>,
    /// How long to work, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Worker processes for each directory
    #[arg(long, default_value_t = 2)]
    workers: u32,
    /// Seed of the choices; drawn if missing
    #[arg(long)]
    seed: Option<u64>,
    /// A call that takes longer than this many milliseconds is a failure
    #[arg(long, default_value_t = 1000)]
    longest_ms: u64,
    /// Names that the workers use
    #[arg(long, default_value_t = limits::HAMMER_NAMES)]
    names: u32,
}

/// What all workers together did with one kind of call.
#[derive(Debug, Default)]
struct Sum {
    calls: u64,
    longest_ns: u64,
    /// How often each errno came.
    errors: BTreeMap<i32, u64>,
}

/// The workers and their messages.
#[derive(Debug)]
struct Hammer {
    pool: Pool<Message>,
    sums: BTreeMap<Call, Sum>,
    /// The last slow call of each worker.
    slow: BTreeMap<usize, String>,
    /// What is wrong, in words.
    wrong: Vec<String>,
}

/// The command.
pub fn hammer(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { dirs, seconds, workers, longest_ms, names, .. } = arguments;
    ensure!(*workers > 0 && *names > 0, "--workers and --names want at least 1");
    let seed = arguments.seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    let name = prepare::fresh_name();
    println!("seed {seed}, {} directories, {workers} workers in each, {seconds} s, in {name}", dirs.len());
    prepare::make(&name, dirs, 0)?;
    let mut hammer =
        Hammer { pool: Pool::default(), sums: BTreeMap::new(), slow: BTreeMap::new(), wrong: Vec::new() };
    for number in 0..workers * dirs.len() as u32 {
        let mut command = pool::this_program(&[
            "hammer-worker".to_owned(),
            format!("--seed={}", seed.wrapping_mul(1 << 20) + u64::from(number)),
            format!("--longest-ms={longest_ms}"),
            format!("--names={names}"),
        ])?;
        command.arg("--").arg(dirs[number as usize % dirs.len()].join(&name));
        hammer.pool.start(command)?;
    }
    let all: BTreeSet<usize> = (0..hammer.pool.len()).collect();
    let sampler = LatenessSampler::start();
    let hung = hammer.do_all(&all, &Task::Work { ms: seconds * 1000 }, Duration::from_secs(*seconds))?.1;
    let lateness = sampler.stop();
    hammer.print(*seconds);
    println!("the machine: {lateness}");
    // Slow calls that ended before they were reported, and errors that concurrent calls do not explain.
    for (call, sum) in &hammer.sums {
        if sum.longest_ns > longest_ms * 1_000_000 {
            hammer.wrong.push(format!("a {call:?} took {} ms", sum.longest_ns / 1_000_000));
        }
        for (errno, count) in sum.errors.iter().filter(|(errno, _)| !call.may_fail_with(**errno)) {
            hammer.wrong.push(format!("{call:?} returned {} {count} times", errno_name(*errno)));
        }
    }
    // One worker of each directory lists it.
    let lookers: BTreeSet<usize> = (0..dirs.len())
        .filter_map(|dir| (dir..all.len()).step_by(dirs.len()).find(|one| !hung.contains(one)))
        .collect();
    let (lists, _) = hammer.do_all(&lookers, &Task::Survey, Duration::ZERO)?;
    hammer.compare(dirs, &lists);
    for wrong in hammer.wrong.iter().take(limits::WRONG_SHOWN) {
        println!("WRONG: {wrong}");
    }
    if hammer.wrong.len() > limits::WRONG_SHOWN {
        println!("WRONG: and {} more", hammer.wrong.len() - limits::WRONG_SHOWN);
    }
    let code = if hammer.wrong.is_empty() { 0 } else { WRONG };
    drop(hammer);
    if hung.is_empty()
        && let Err(error) = prepare::remove(&name, dirs)
    {
        eprintln!("{name} is left behind: {error:#}");
    }
    println!("{}", if code == 0 { "all mounts agree" } else { "something is wrong" });
    Ok(ExitCode::from(code))
}

/// Names and what they lead to, by worker.
type Lists = BTreeMap<usize, BTreeMap<String, Entry>>;

impl Hammer {
    /// Gives these workers a task and waits for all of them. Returns what they list, and which ones hang.
    fn do_all(
        &mut self,
        workers: &BTreeSet<usize>,
        task: &Task,
        length: Duration,
    ) -> anyhow::Result<(Lists, BTreeSet<usize>)> {
        for worker in workers {
            self.pool.send(*worker, task);
        }
        let (mut busy, mut lists) = (workers.clone(), Lists::new());
        let until = Instant::now() + length + limits::HANG_GRACE;
        while !busy.is_empty() {
            let Some((worker, news)) = self.pool.next_event(until) else { break };
            match news {
                WorkerEvent::Gone if busy.remove(&worker) => self.wrong.push(format!("worker {worker} died")),
                WorkerEvent::Gone => (),
                WorkerEvent::Message(Message::Slow { call, ms }) => {
                    self.slow.insert(worker, format!("{call:?}"));
                    self.wrong.push(format!("worker {worker}: {call:?} takes more than {ms} ms"));
                }
                WorkerEvent::Message(Message::Worked(all)) => {
                    busy.remove(&worker);
                    for (call, done) in all {
                        let sum = self.sums.entry(call).or_default();
                        sum.calls += done.calls;
                        sum.longest_ns = sum.longest_ns.max(done.longest_ns);
                        for (errno, count) in done.errors {
                            *sum.errors.entry(errno).or_default() += count;
                        }
                    }
                }
                WorkerEvent::Message(Message::Surveyed(list)) => {
                    busy.remove(&worker);
                    match list {
                        Ok(list) => drop(lists.insert(worker, list)),
                        Err(error) => self.wrong.push(format!("worker {worker} cannot list: {error}")),
                    }
                }
            }
        }
        for worker in &busy {
            let call = self.slow.get(worker).map_or("an unknown call", String::as_str);
            let pid = self.pool.pid(*worker);
            self.wrong.push(format!("HUNG: worker {worker} (process {pid}) hangs in {call}"));
            self.pool.kill(*worker);
        }
        Ok((lists, busy))
    }

    fn print(&self, seconds: u64) {
        let calls: u64 = self.sums.values().map(|sum| sum.calls).sum();
        println!("{calls} calls, {:.0} per second", calls as f64 / seconds.max(1) as f64);
        for (call, Sum { calls, longest_ns, errors }) in &self.sums {
            let errors: Vec<String> =
                errors.iter().map(|(errno, count)| format!("{} {count}", errno_name(*errno))).collect();
            println!(
                "    {:<7} {calls:>8} calls, longest {:>8.1} ms  {}",
                format!("{call:?}").to_lowercase(),
                *longest_ns as f64 / 1e6,
                errors.join(", ")
            );
        }
    }

    fn compare(&mut self, dirs: &[PathBuf], lists: &Lists) {
        let mut lists = lists.iter();
        let Some((first, left)) = lists.next() else { return };
        println!("{} names are left", left.len() - usize::from(left.contains_key(".")));
        for (other, right) in lists {
            let [one, two] = [first, other].map(|worker| dirs[worker % dirs.len()].display());
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names.into_iter().filter(|name| left.get(*name) != right.get(*name)) {
                let show =
                    |entry: Option<&Entry>| entry.map_or("nothing".to_owned(), |entry| format!("{entry:?}"));
                self.wrong.push(format!(
                    "{name} differs in the end: {one} has {}, {two} has {}",
                    show(left.get(name)),
                    show(right.get(name))
                ));
            }
        }
    }
}

/// The hidden subcommand of a worker.
pub fn work(arguments: worker::Arguments) -> anyhow::Result<ExitCode> {
    worker::work(arguments).context("a hammering worker")
}
