//! `shoal-sim`: runs simulated worlds and reports their findings.

use clap::Parser;
use shoal_sim::mistakes::{self, MISTAKES};
use shoal_sim::plan::Plan;
use shoal_sim::shrink::shrink;
use shoal_sim::world::{Report, run};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Simulates whole clusters, each from a seed, and checks all that programs see
#[derive(Debug, Parser)]
struct Arguments {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Run for this many minutes, whatever --seeds says
    #[arg(long)]
    minutes: Option<u64>,
    /// Worlds at the same time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Print the trace
    #[arg(long)]
    trace: bool,
    /// Print the trace in all detail
    #[arg(long)]
    verbose: bool,
    /// Remove the faults that a failure does not need, then run it again
    #[arg(long)]
    shrink: bool,
    /// Print only worlds with findings
    #[arg(long)]
    quiet: bool,
    /// Plant each defect in turn, or that of --plant, and print which seed finds it (up to --seeds)
    #[arg(long)]
    mistakes: bool,
    /// Run only worlds that are focused on the kernel's cache
    #[arg(long)]
    focused: bool,
    /// Plant this defect
    #[arg(long, value_name = "MISTAKE")]
    plant: Option<String>,
}

#[derive(Default)]
struct Sum {
    worlds: u64,
    lasted: Duration,
    calls: u64,
    faults: u64,
    wrong: Vec<u64>,
    unchecked: u64,
    lost_messages: u64,
    lost_calls: u64,
    ended: u64,
    died: u64,
    snapshots: u64,
    changes: u64,
    leads: u64,
    blocks: u64,
    sharded: u64,
    moved: (u64, u64),
    converted: u64,
    changed_bricks: (u64, u64),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(unknown) = arguments.plant.as_ref().filter(|plant| !MISTAKES.contains(&plant.as_str())) {
        eprintln!("{unknown:?} is none of: {}", MISTAKES.join("; "));
        return ExitCode::from(2);
    }
    if arguments.mistakes {
        return plant_all(&arguments);
    }
    let begun = Instant::now();
    let next = AtomicU64::new(arguments.seed);
    let sum = Mutex::new(Sum::default());
    let more = |seed: u64| match arguments.minutes {
        Some(minutes) => begun.elapsed() < Duration::from_secs(minutes * 60),
        None => seed < arguments.seed + arguments.seeds,
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !more(seed) {
                        return;
                    }
                    one(&arguments, seed, &sum);
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap_or_default();
    println!(
        "{} worlds, {:.2} simulated hours in {:.0} s: {} calls, {} faults, {} messages lost; {} worlds too hard to check",
        sum.worlds,
        sum.lasted.as_secs_f64() / 3600.0,
        begun.elapsed().as_secs_f64(),
        sum.calls,
        sum.faults,
        sum.lost_messages,
        sum.unchecked,
    );
    println!(
        "{} leaders, {} clients died, {} sessions ended, {} calls lost with them; {} states fetched, {} changes of members, {} blocks at the end",
        sum.leads, sum.died, sum.ended, sum.lost_calls, sum.snapshots, sum.changes, sum.blocks,
    );
    println!(
        "{} blocks in shards; {} moves to the cold tier, {} to the hot one; {} blocks converted; {} bricks added, {} removed",
        sum.sharded, sum.moved.0, sum.moved.1, sum.converted, sum.changed_bricks.0, sum.changed_bricks.1
    );
    if sum.wrong.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("findings with seeds {:?}", sum.wrong);
    ExitCode::FAILURE
}

fn one(arguments: &Arguments, seed: u64, sum: &Mutex<Sum>) {
    let level = if arguments.verbose { tracing::Level::TRACE } else { tracing::Level::INFO };
    let mut plan = Plan { planted: arguments.plant.clone(), ..Plan::of(seed) };
    if arguments.focused && plan.settings.focus.is_none() {
        return;
    }
    let began = Instant::now();
    let mut report = run(&plan, arguments.trace && !arguments.shrink, level);
    if arguments.shrink && !report.findings.is_empty() {
        plan = shrink(&plan);
        println!("the smallest plan that fails: {plan:#?}");
        report = run(&plan, arguments.trace, level);
    }
    if !arguments.quiet || !report.findings.is_empty() {
        tell(seed, &report, began.elapsed());
    }
    let Ok(mut sum) = sum.lock() else { return };
    sum.worlds += 1;
    sum.lasted += report.lasted;
    sum.calls += report.calls as u64;
    sum.faults += plan.faults.len() as u64;
    sum.lost_messages += report.messages.1;
    sum.unchecked += u64::from(report.unchecked);
    sum.lost_calls += report.calls_lost as u64;
    sum.ended += report.sessions_lost.0 as u64;
    sum.died += report.sessions_lost.1 as u64;
    sum.snapshots += report.snapshots;
    sum.changes += report.changes;
    sum.leads += report.leads;
    sum.blocks += report.blocks as u64;
    sum.sharded += report.sharded as u64;
    sum.moved.0 += report.moved.0 as u64;
    sum.moved.1 += report.moved.1 as u64;
    sum.converted += report.converted as u64;
    sum.changed_bricks.0 += report.changed_bricks.0 as u64;
    sum.changed_bricks.1 += report.changed_bricks.1 as u64;
    if !report.findings.is_empty() {
        sum.wrong.push(seed);
    }
}

fn tell(seed: u64, report: &Report, took: Duration) {
    println!(
        "seed {seed}: digest {:016x}, {:.1} s in {:.2} s, {} calls, {} turns, {} findings{}",
        report.digest,
        report.lasted.as_secs_f64(),
        took.as_secs_f64(),
        report.calls,
        report.turns,
        report.findings.len(),
        if report.unchecked { ", unchecked" } else { "" },
    );
    for finding in &report.findings {
        println!("  {finding}");
    }
}

fn plant_all(arguments: &Arguments) -> ExitCode {
    let mut missed = 0;
    println!("{:<58} {:>8}  how", "mistake", "seeds");
    let is_wanted = |mistake: &&&str| arguments.plant.as_ref().is_none_or(|plant| plant == **mistake);
    for mistake in MISTAKES.iter().filter(is_wanted) {
        let seeds = arguments.seed..arguments.seed + arguments.seeds;
        let seeds = seeds.filter(|seed| !arguments.focused || Plan::of(*seed).settings.focus.is_some());
        match mistakes::find(mistake, seeds) {
            Some((seed, finding)) => {
                let first = finding.lines().next().unwrap_or_default();
                println!("{mistake:<58} {:>8}  {first:.100}", seed - arguments.seed + 1);
            }
            None => {
                println!("{mistake:<58} {:>8}", "MISSED");
                missed += 1;
            }
        }
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
