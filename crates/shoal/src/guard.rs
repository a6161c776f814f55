//! A small process beside each one that serves a mount.
//!
//! **When that dies** without unmounting, it lets go whoever waits for it (`shoal_fuse::release` says why nobody else does). It is told by a signal for which the
//! process that serves asks at the start, and which comes when the *thread* that started it has ended, even if others of that process cannot end. So it has to be
//! started by the main thread.
//!
//! **When that is stopped** for longer than what it caches may be used, it has the kernel drop what programs would go on to be shown
//! (`shoal_fuse::StoppedKernel`).

use anyhow::Context;
use clap::Args;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use shoal_fuse::{Mounted, StoppedKernel};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Says that the process that serves has died.
const DEATH: Signal = Signal::SIGUSR1;
/// How often it is looked whether that process goes on.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A guard at work. Dropped, it ends: to be kept until the mount has ended.
pub struct Guard(Child);

impl Guard {
    /// Starts one for a mount of this process. To be called on the main thread.
    pub fn start(mounted: &Mounted) -> anyhow::Result<Guard> {
        let watch = mounted.watch().context("preparing the process that guards the mount")?;
        let files = watch.files();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("shoal-guard").arg("guard-mount").arg("--device").arg(mounted.device());
        command.arg("--mount").arg(mounted.mountpoint());
        command.args(files.iter().flat_map(|file| ["--file".to_owned(), file.to_string()]));
        // A group of its own: Ctrl-C is not meant for it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/").process_group(0);
        let block = move || {
            let mut set = SigSet::empty();
            set.add(DEATH);
            set.thread_block()?;
            for file in files {
                // SAFETY: it is open as long as `watch` is there, which the parent keeps until this process has begun.
                let file = unsafe { BorrowedFd::borrow_raw(file) };
                fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(set_pdeathsig(DEATH)?)
        };
        // SAFETY: sigprocmask(2), fcntl(2) and prctl(2) are async-signal-safe. What they set stays across execve(2).
        unsafe { command.pre_exec(block) };
        let child = command.spawn().context("starting the process that guards the mount")?;
        drop(watch);
        Ok(Guard(child))
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
    /// The way to the kernel, and what says until when its cache may be used: inherited
    #[arg(long = "file", num_args = 1)]
    files: Vec<RawFd>,
}

/// What comes next.
enum Next {
    /// The process that serves has died.
    Death,
    /// What the kernel caches may not be used any more.
    Late(Duration),
}

impl GuardMount {
    /// Waits for the death of the process that serves, or for its being stopped.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut set = SigSet::empty();
        // A service manager tells all processes to end; the one that serves does so when it has unmounted.
        for signal in [DEATH, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let files: [RawFd; 2] = self.files.as_slice().try_into().context("it is started by a mount")?;
        // SAFETY: whoever started this process has it inherit both, and nobody else here knows of them.
        let files = files.map(|file| unsafe { OwnedFd::from_raw_fd(file) });
        let kernel = Arc::new(StoppedKernel::new(files, &self.device));
        let mut last = None;
        while let Next::Late(until) = next(&kernel, &signals, last)? {
            last = Some(until);
            self.empty(&kernel);
        }
        if shoal_fuse::release(&self.mount, &self.device)? {
            eprintln!(
                "shoal: the process that served {} has died; whoever waited for it was let go",
                self.mount.display()
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    /// By a thread of its own: what is looked at may belong to somebody who waits for the mount.
    fn empty(&self, kernel: &Arc<StoppedKernel>) {
        let (kernel, mount) = (kernel.clone(), self.mount.clone());
        let empty = move || {
            let mount = mount.display();
            match kernel.empty() {
                Ok(left) => eprintln!(
                    "shoal: the process that serves {mount} does not run or hears of no server: programs wait for it ({left} files are being read)"
                ),
                Err(error) => eprintln!("shoal: the kernel may go on to show {mount} as it was: {error}"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("empty".into()).spawn(empty) {
            eprintln!("shoal: no thread to empty the kernel's cache of {}: {error}", self.mount.display());
        }
    }
}

/// Waits until there is something to do. `last`: that was over already.
fn next(kernel: &StoppedKernel, signals: &SignalFd, last: Option<Duration>) -> anyhow::Result<Next> {
    loop {
        let until = kernel.until().filter(|until| last != Some(*until));
        let left = until.map_or(LOOK_EVERY, |until| until.saturating_sub(shoal_runtime::time::since_boot()));
        if let Some(until) = until
            && left.is_zero()
        {
            return Ok(Next::Late(until));
        }
        // Rounded up, or it would wake up just before.
        let wait = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], wait) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Some(signal) = signals.read_signal()? {
            if signal.ssi_signo == DEATH as u32 {
                return Ok(Next::Death);
            }
        }
    }
}
