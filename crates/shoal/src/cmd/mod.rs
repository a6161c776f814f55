//! The subcommands, one module each.

mod export;
mod fsck;
mod mount;
mod scrub;
mod serve;
mod stats;
mod status;
mod sync;
mod umount;
mod up;

pub use serve::Serve;
pub use umount::busy;

use crate::daemon;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Try it:
  shoal up                               serve run/data and mount it on run/mnt, until Ctrl-C
  shoal up --data /srv/shoal --mount /mnt/shoal --background
  cp -r /usr/include /mnt/shoal/ && shoal sync /mnt/shoal
  shoal status                           what is mounted, by which process, how full
  shoal stats /mnt/shoal --watch 1       what it is doing
  shoal umount /mnt/shoal                write everything back and stop

Look after it (while it is not mounted):
  shoal fsck --data /srv/shoal           check everything
  shoal export --data /srv/shoal /backup write the volume out as plain files

SHOAL_LOG=debug makes it talk more; in the background it talks to DATA/shoal.log.";

/// Shoal, a clustered POSIX file system: here, everything of it for one machine.
#[derive(Debug, Parser)]
#[command(name = "shoal", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Up),
    Mount(mount::Mount),
    Umount(umount::Umount),
    Sync(sync::Sync),
    Status(status::Status),
    Stats(stats::Stats),
    Fsck(fsck::Fsck),
    Scrub(scrub::Scrub),
    Export(export::Export),
    #[command(hide = true)]
    Serve(Serve),
}

impl Cli {
    /// Carries the command out; answers the exit code.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Up(up) => up.run(),
            Command::Mount(mount) => mount.run(),
            Command::Serve(serve) => daemon::run_in_background(&serve),
            command => {
                end_with_the_pipe();
                match command {
                    Command::Umount(umount) => umount.run(),
                    Command::Sync(sync) => sync.run(),
                    Command::Status(status) => status.run(),
                    Command::Stats(stats) => stats.run(),
                    Command::Fsck(fsck) => fsck.run(),
                    Command::Scrub(scrub) => scrub.run(),
                    Command::Export(export) => export.run(),
                    Command::Up(_) | Command::Mount(_) | Command::Serve(_) => unreachable!("handled above"),
                }
            }
        }
    }
}

/// `shoal stats | head` ends quietly, as other programs do. Not for what serves a mount: a closed terminal must not end that.
fn end_with_the_pipe() {
    use nix::sys::signal::{SigHandler, Signal, signal};
    // SAFETY: the default action runs no code of ours.
    if let Err(errno) = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) } {
        tracing::debug!(%errno, "SIGPIPE");
    }
}
