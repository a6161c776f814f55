//! A small process beside each one that serves a mount: when that dies without unmounting, it lets go whoever waits for it
//! (`shoal_fuse::release` says why nobody else does).
//!
//! It is told by a signal for which the process that serves asks at the start, and which comes when the *thread* that started it has
//! ended, even if others of that process cannot end. So it has to be started by the main thread.

use anyhow::Context;
use clap::Args;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use shoal_fuse::Mounted;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

/// Says that the process that serves has died.
const DEATH: Signal = Signal::SIGUSR1;

/// A guard at work. Dropped, it ends: to be kept until the mount has ended.
pub struct Guard(Child);

impl Guard {
    /// Starts one for a mount of this process. To be called on the main thread.
    pub fn start(mounted: &Mounted) -> anyhow::Result<Guard> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("shoal-guard").arg("guard-mount").arg("--device").arg(mounted.device());
        command.arg("--mount").arg(mounted.mountpoint());
        // A group of its own: Ctrl-C is not meant for it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/").process_group(0);
        let block = || {
            let mut set = SigSet::empty();
            set.add(DEATH);
            set.thread_block()?;
            Ok(set_pdeathsig(DEATH)?)
        };
        // SAFETY: sigprocmask(2) and prctl(2) are async-signal-safe. What they set stays across execve(2).
        unsafe { command.pre_exec(block) };
        Ok(Guard(command.spawn().context("starting the process that guards the mount")?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the guard is told.
#[derive(Debug, Args)]
pub struct GuardMount {
    /// Device number of the mount
    #[arg(long)]
    device: String,
    /// Where it is
    #[arg(long)]
    mount: PathBuf,
}

impl GuardMount {
    /// Waits for the death of the process that serves.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut set = SigSet::empty();
        // A service manager tells all processes to end; the one that serves does so when it has unmounted.
        for signal in [DEATH, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        while set.wait()? != DEATH {}
        if shoal_fuse::release(&self.mount, &self.device)? {
            eprintln!(
                "shoal: the process that served {} has died; whoever waited for it was let go",
                self.mount.display()
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
