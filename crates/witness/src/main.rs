//! `shoal-witness`: shows whether several mounts of one volume behave like one local file system. See the library.

use clap::{Parser, Subcommand};
use shoal_witness::history::Tolerance;
use shoal_witness::run;
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows whether several mounts of one volume behave like one local file system.
///
/// Ends with 0 if all is well, 1 if something is wrong with the mounts, 2 if it could not find out.
#[derive(Debug, Parser)]
#[command(name = "shoal-witness", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Random calls through all directories at once, then: is there an order that explains every result?
    Run(run::Arguments),
    /// Checks a recorded history again
    Check {
        /// What `run --history` wrote
        file: PathBuf,
        /// Forgive a known weakness
        #[arg(long, value_enum)]
        tolerate: Vec<Tolerance>,
    },
    /// One worker process
    #[command(hide = true)]
    Worker(run::worker::Arguments),
    /// Makes or removes the tree that a run works in
    #[command(hide = true)]
    Prepare(run::prepare::Arguments),
}

fn main() -> ExitCode {
    let ended = match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Check { file, tolerate } => run::check_file(&file, &tolerate),
        Command::Worker(arguments) => run::worker::work(arguments),
        Command::Prepare(arguments) => run::prepare::prepare(&arguments),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            eprintln!("shoal-witness: {error:#}");
            ExitCode::from(run::TROUBLE)
        }
    }
}
