//! The one binary of Shoal: the server of a cluster's node, the client that mounts volumes, and the commands around them.
//!
//! **Model.** A *data directory* holds all that a node keeps. `shoal up` opens it, serves it and mounts it in one process; the
//! other commands find that process through the mount table (a mount's source is its data directory) and talk to it over a
//! socket in the data directory, or open the directory themselves when nobody else has it.
//!
//! In a cluster, `shoal server` serves a node's data directory and answers [administration](admin) on the socket there; a mount is a
//! process of its own, with its socket in a directory named after the mount point. Called as `mount.shoal` or `umount.fuse.shoal`
//! it is what mount(8) and umount(8) look for.
//!
//! **Promises.** One process per data directory. However it is told to stop, the process unmounts first, then makes everything
//! durable, then ends; if it cannot, its exit code says so. Errors say what happened and what to do next.
//! Exit codes: 0 all is well, 1 it is not, 2 the command could not be carried out.

mod address;
mod admin;
mod background;
mod check;
mod cluster_source;
mod cmd;
mod control;
mod daemon;
mod data_dir;
mod export;
mod find;
#[cfg(test)]
mod fixture;
mod flush;
mod guard;
mod limits;
mod logging;
mod measure;
mod mounts;
mod node;
mod notify;
mod options;
mod origin;
mod server;
mod show;
mod signals;
mod standing;
mod subdirectory;
mod volume;
mod walk;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = cmd::helper::run_if_called(std::env::args_os()) {
        return code;
    }
    let command = cmd::Cli::parse();
    match command.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("shoal: {}", show::runnable(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}
