//! The one binary of Shoal: the server of a cluster's node, the client that mounts volumes, and the
//! administration commands.
//!
//! **Model.** A *data directory* holds all that a node keeps. `shoal up` opens it, serves it and mounts it in
//! one process. The other commands find that process through the mount table, in which a mount's source is
//! its data directory. They talk to it over a socket in the data directory, or open the directory themselves
//! if it is not in use.
//!
//! In a cluster, `shoal server` serves a node's data directory and answers [administration](admin) on the
//! socket there. A mount is a process of its own, with its socket in a directory named after the mount point.
//! Under the names `mount.shoal` and `umount.fuse.shoal` the program is a helper of mount(8) and umount(8).
//!
//! **Promises.** One process per data directory. On every way to stop, the process unmounts first, then makes
//! everything durable, then exits; if it cannot, its exit code says so. Errors say what happened and what to
//! do next. Exit codes: 0 success, 1 a check failed, 2 the command could not be carried out.

mod address;
mod admin;
mod background;
mod check;
mod clock;
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
mod import;
mod job;
mod limits;
mod logging;
mod measure;
mod memory;
mod metrics;
mod mount_report;
mod mounts;
mod node;
mod notify;
mod options;
mod origin;
mod pieces;
mod place;
mod profile;
mod rates;
mod run_dir;
mod server;
mod show;
mod signals;
mod similar;
mod subdirectory;
mod volume;
mod walk;
mod web;

use clap::Parser as _;
use std::process::ExitCode;

/// The name of the process in /proc/PID/comm, by which `pgrep shoal` and `top` find it.
const PROCESS_NAME: &std::ffi::CStr = c"shoal";

/// Names the process. One that was started through `/proc/self/exe` would be called `exe`.
fn name_process() {
    // Only the name is wrong if this fails.
    let _ = nix::sys::prctl::set_name(PROCESS_NAME);
}

fn main() -> ExitCode {
    name_process();
    if let Some(code) = cmd::helper::run_if_called(std::env::args_os()) {
        return code;
    }
    let command = cmd::Cli::try_parse().unwrap_or_else(|error| cmd::end_with(&error));
    match command.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("shoal: {}", show::runnable(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_called_shoal_in_proc() {
        // The name belongs to a thread; that of the main thread is the name of the process.
        name_process();
        let comm = std::fs::read_to_string("/proc/thread-self/comm").expect("a name");
        assert_eq!(comm.trim_end(), "shoal");
    }
}
