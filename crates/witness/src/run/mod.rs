//! `run`: many processes call into all directories at once, and everything is recorded and checked.
//!
//! Workers go in rounds and pause together, so that the history falls into short segments. Some rounds are
//! fast, some slow, with time for caches to fill. Every now and then all workers move on to a fresh tree. The
//! leading process never touches the directories itself. It survives workers that are killed from outside or
//! hang: their unfinished calls are open-ended in the history.

pub mod choose;
pub mod perform;
pub mod prepare;
pub mod worker;

use crate::check::{self, Verdict};
use crate::history::{self, Call, Cuts, Header, History, Tolerance};
use crate::limits;
use crate::pool::{self, Pool, TROUBLE, WRONG, WorkerEvent};
use anyhow::ensure;
use prepare::Prepared;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use worker::{Message, Round};

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Directories that show the same files; one may be given twice
    #[arg(required = true, num_args = 1..)]
    pub dirs: Vec<PathBuf>,
    /// How long to work, in seconds
    #[arg(long, default_value_t = 10)]
    pub seconds: u64,
    /// Worker processes for each directory
    #[arg(long, default_value_t = 2)]
    pub workers: u32,
    /// Seed of the choices; drawn if missing
    #[arg(long)]
    pub seed: Option<u64>,
    /// Write the history to this file
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Tolerate a known weakness
    #[arg(long, value_enum)]
    pub tolerate: Vec<Tolerance>,
    /// This directory's mount (the first is 0) may die during the run
    #[arg(long, value_name = "N")]
    pub may_die: Vec<u32>,
    /// This directory's mount may be cut off during the run, once: it reports EIO, has lost the last of what
    /// it had not synced, and goes on
    #[arg(long, value_name = "N")]
    pub may_lapse: Vec<u32>,
    /// To test the checker
    #[arg(long, hide = true, default_value_t = 0)]
    pub lie_every: u32,
    /// After the end, in seconds, a worker that has not finished hangs
    #[arg(long, hide = true, default_value_t = limits::HANG_GRACE.as_secs())]
    pub hang_grace: u64,
}

/// One worker, as the leader sees it.
#[derive(Debug, Default)]
struct Led {
    /// The call that it has begun, by its place in the history.
    begun: Option<usize>,
    /// In a round.
    busy: bool,
    /// The tree of that round.
    tree: u32,
    /// The round went on without it.
    late: bool,
    /// It will send no more messages.
    gone: bool,
}

/// The workers of a run and what they did.
#[derive(Debug)]
struct Leader {
    pool: Pool<Message>,
    led: Vec<Led>,
    calls: Vec<Call>,
}

impl Leader {
    /// Whether the round has to wait: for busy workers that were not late before, or for any worker if all
    /// were.
    fn waits(&self) -> bool {
        let mut present = self.led.iter().filter(|led| !led.gone).peekable();
        let any = present.peek().is_some();
        present.clone().any(|led| led.busy && !led.late) || (any && present.all(|led| led.busy))
    }

    /// Receives messages until no worker is busy, except those that were late before.
    fn listen(&mut self, until: Instant) {
        while self.waits() {
            let Some((worker, news)) = self.pool.next_event(until) else { return };
            let led = &mut self.led[worker];
            match news {
                WorkerEvent::Gone => led.gone = true,
                WorkerEvent::Message(Message::Paused) => (led.busy, led.late) = (false, false),
                WorkerEvent::Message(Message::Begin { start, op }) => {
                    led.begun = Some(self.calls.len());
                    let (worker, tree) = (worker as u32, led.tree);
                    self.calls.push(Call { worker, tree, start, end: None, op, outcome: None });
                }
                WorkerEvent::Message(Message::Return { start, end, outcome }) => {
                    if let Some(call) = led.begun.take().and_then(|at| self.calls.get_mut(at)) {
                        (call.start, call.end, call.outcome) = (start, Some(end), Some(outcome));
                    }
                }
            }
        }
    }

    fn round(&mut self, round: Round) {
        for (worker, led) in self.led.iter_mut().enumerate() {
            if !led.busy && !led.gone {
                led.busy = true;
                led.tree = round.tree;
                self.pool.send(worker, &round);
            }
        }
        self.listen(Instant::now() + limits::ROUND_WAIT);
        for led in &mut self.led {
            led.late = led.busy;
        }
    }

    /// Ends all workers. Returns which ones hang, and in which call.
    fn end(&mut self, grace: Duration) -> Vec<String> {
        self.pool.close_inputs();
        for led in &mut self.led {
            led.late = false;
        }
        self.listen(Instant::now() + grace);
        let mut hung = Vec::new();
        for (worker, led) in self.led.iter().enumerate() {
            if !led.busy || led.gone {
                continue;
            }
            let call = led.begun.map_or("no call".to_owned(), |at| self.calls[at].op.to_string());
            let pid = self.pool.pid(worker);
            let left = if self.pool.kill(worker) { "killed" } else { "cannot even be killed" };
            hung.push(format!("worker {worker} (process {pid}, {left}) hangs in: {call}"));
        }
        hung
    }
}

/// The command `run`.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { dirs, seconds, workers, .. } = arguments;
    ensure!(*workers > 0, "--workers wants at least 1");
    let mortal = arguments.may_die.iter().map(|number| ("--may-die", number));
    for (option, number) in mortal.chain(arguments.may_lapse.iter().map(|number| ("--may-lapse", number))) {
        let last = dirs.len() - 1;
        ensure!((*number as usize) <= last, "{option} {number}: the last directory is {last}");
    }
    let both = arguments.may_die.iter().find(|number| arguments.may_lapse.contains(number));
    ensure!(both.is_none(), "a mount that may die is not expected to go on: say --may-die or --may-lapse");
    let seed = arguments.seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    let name = prepare::fresh_name();
    println!("seed {seed}, {} directories, {workers} workers in each, {seconds} s, in {name}", dirs.len());
    let trees = (seconds * 1000 / limits::TREE_MS) as u32 + 1;
    let late = prepare::make(&name, dirs, trees)? == Prepared::Late;
    let (history, hung) = record(arguments, seed, &name)?;
    if let Some(file) = &arguments.history {
        history.save(file)?;
    }
    for hung in &hung {
        println!("HUNG: {hung}");
    }
    let code = judge(&history, &arguments.tolerate);
    if hung.is_empty()
        && let Err(error) = prepare::remove(&name, dirs)
    {
        eprintln!("{name} is left behind: {error:#}");
    }
    if late {
        println!("LATE: a new directory was not seen everywhere at once");
    }
    Ok(ExitCode::from(if late || !hung.is_empty() { WRONG } else { code }))
}

/// Lets the workers work. Also returns which ones hang.
fn record(arguments: &Arguments, seed: u64, name: &str) -> anyhow::Result<(History, Vec<String>)> {
    let dirs = &arguments.dirs;
    let header = Header {
        shoal_witness_history: history::VERSION,
        seed,
        dirs: dirs.iter().map(|dir| dir.display().to_string()).collect(),
        workers: arguments.workers,
        may_die: arguments.may_die.clone(),
        may_lapse: arguments.may_lapse.clone(),
    };
    let mut leader = Leader { pool: Pool::default(), led: Vec::new(), calls: Vec::new() };
    for number in 0..arguments.workers * dirs.len() as u32 {
        let mount = header.mount_of(number);
        let mut command = pool::this_program(&[
            "worker".to_owned(),
            format!("--number={number}"),
            format!("--seed={seed}"),
            format!("--lie-every={}", arguments.lie_every),
        ])?;
        if arguments.may_die.contains(&mount) {
            command.arg("--mortal");
        }
        command.arg("--").arg(dirs[mount as usize].join(name));
        leader.pool.start(command)?;
        leader.led.push(Led::default());
    }
    let mut rng = SmallRng::seed_from_u64(seed);
    let (began, length) = (Instant::now(), Duration::from_secs(arguments.seconds));
    while began.elapsed() < length && leader.led.iter().any(|led| !led.gone) {
        let tree = (began.elapsed().as_millis() as u64 / limits::TREE_MS) as u32;
        let calls = rng.random_range(limits::ROUND_CALLS);
        leader.round(Round { tree, calls, slow: rng.random_bool(0.5) });
    }
    let hung = leader.end(Duration::from_secs(arguments.hang_grace));
    let mut calls = std::mem::take(&mut leader.calls);
    calls.sort_by_key(|call| call.start);
    Ok((History { header, calls }, hung))
}

/// Checks, prints, and returns the exit code.
fn judge(history: &History, tolerated: &[Tolerance]) -> u8 {
    let began = Instant::now();
    let cuts = history.cuts();
    let attempt = |cuts: &Cuts| {
        let calls = history.prepared(tolerated, cuts);
        let verdict = check::check(&calls);
        (calls, verdict)
    };
    let whole = attempt(&cuts[0]);
    let is_explained = |(_, verdict): &(Vec<Call>, Verdict)| matches!(verdict, Verdict::Explained(_));
    // If no cut explains the history, the report is about all calls that have returned.
    let (lost, (calls, verdict)) = if is_explained(&whole) {
        (0, whole)
    } else {
        let in_time = |_: &(usize, &Cuts)| began.elapsed() < limits::CUTS_TIME_MAX;
        let earlier = cuts.iter().enumerate().skip(1).take_while(in_time);
        let earlier = earlier.map(|(lost, cuts)| (lost, attempt(cuts)));
        earlier.into_iter().find(|(_, one)| is_explained(one)).unwrap_or((0, whole))
    };
    if lost > 0 {
        println!(
            "a mount that died or was cut off has lost the last {lost} calls that had returned, or some of them"
        );
    }
    let open = calls.iter().filter(|call| call.end.is_none()).count();
    let left_out = history.calls.len() - calls.len();
    let took = began.elapsed().as_secs_f64();
    println!(
        "seed {}: {} calls, {open} without an end, {left_out} left out as tolerated",
        history.header.seed,
        calls.len()
    );
    match verdict {
        Verdict::Explained(stats) => {
            let check::Stats { segments, longest, configs_max, .. } = stats;
            println!(
                "{segments} segments, the longest of {longest} calls, at most {configs_max} possible states between two"
            );
            println!("explained (checked in {took:.1} s)");
            0
        }
        Verdict::Refused(refusal) => {
            print!("{}", refusal.show(&calls, &history.header));
            println!("refused (checked in {took:.1} s)");
            WRONG
        }
        Verdict::TooHard(call) => {
            println!("too hard at call {call}: more than {} orders (after {took:.1} s)", limits::CONFIGS_MAX);
            TROUBLE
        }
    }
}

/// The command `check`.
pub fn check_file(file: &Path, tolerated: &[Tolerance]) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::from(judge(&History::load(file)?, tolerated)))
}
