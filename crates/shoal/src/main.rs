//! The one binary of Shoal: a node that serves and mounts a volume, and the commands around it.
//!
//! **Model.** A *data directory* holds all that a node keeps. `shoal up` opens it, serves it and mounts it in one process; the
//! other commands find that process through the mount table (a mount's source is its data directory) and talk to it over a
//! socket in the data directory, or open the directory themselves when nobody else has it.
//!
//! **Promises.** One process per data directory. However it is told to stop, the process unmounts first, then makes everything
//! durable, then ends; if it cannot, its exit code says so. Errors say what happened and what to do next.
//! Exit codes: 0 all is well, 1 it is not, 2 the command could not be carried out.

#[allow(dead_code, unused_imports)] // until the commands that use it are here
mod admin;
mod background;
mod check;
mod cmd;
mod control;
mod daemon;
mod data_dir;
mod export;
mod find;
#[cfg(test)]
mod fixture;
mod limits;
mod logging;
mod measure;
mod mounts;
mod node;
mod notify;
mod options;
mod show;
mod signals;
mod volume;
mod walk;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = cmd::Cli::parse();
    match command.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("shoal: {error:#}");
            ExitCode::from(2)
        }
    }
}
