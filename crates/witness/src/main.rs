//! `shoal-witness`: do several mounts of one volume behave like one local file system? See the library.

use clap::{Parser, Subcommand};
use shoal_witness::history::Tolerance;
use shoal_witness::pool::TROUBLE;
use shoal_witness::{hammer, probe, run};
use std::path::PathBuf;
use std::process::ExitCode;

/// Checks whether several mounts of one volume behave like one local file system.
///
/// The exit code is 0 if they do, 1 if they do not, 2 if that could not be found out.
#[derive(Debug, Parser)]
#[command(name = "shoal-witness", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Random calls through all directories at once; then: is there an order that explains every result?
    Run(run::Arguments),
    /// Checks a recorded history again
    Check {
        /// The file that `run --history` wrote
        file: PathBuf,
        /// Tolerate a known weakness
        #[arg(long, value_enum)]
        tolerate: Vec<Tolerance>,
    },
    /// All directories at once work in one directory, as fast as they can; at the end they must agree
    Hammer(hammer::Arguments),
    /// How long until a change in A is seen in B, and whether each completed change is
    Visible(probe::VisibleArguments),
    /// Makes files in one directory through all directories in turn
    Turns(probe::TurnsArguments),
    /// One worker process
    #[command(hide = true)]
    Worker(run::worker::Arguments),
    /// One worker process that hammers
    #[command(hide = true)]
    HammerWorker(hammer::worker::Arguments),
    /// The process that measures
    #[command(hide = true)]
    Probe(probe::Arguments),
    /// Makes or removes the tree that a run works in
    #[command(hide = true)]
    Prepare(run::prepare::Arguments),
}

fn main() -> ExitCode {
    let ended = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Check { file, tolerate } => run::check_file(&file, &tolerate),
        Command::Hammer(arguments) => hammer::hammer(&arguments),
        Command::Visible(arguments) => probe::visible(&arguments),
        Command::Turns(arguments) => probe::turns(&arguments),
        Command::HammerWorker(arguments) => hammer::work(arguments),
        Command::Probe(arguments) => probe::probe(arguments),
        Command::Worker(arguments) => run::worker::work(arguments),
        Command::Prepare(arguments) => run::prepare::prepare(&arguments),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("shoal-witness: {error:#}");
            ExitCode::from(TROUBLE)
        }
    }
}
