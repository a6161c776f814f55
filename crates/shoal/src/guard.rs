//! The guard: a small process beside each one that serves a mount.
//!
//! **When the serving process dies** without unmounting, the guard aborts the mount, which ends the calls
//! that wait for it (`shoal_fuse::release` says why the kernel does not). The death is announced by the
//! parent-death signal of prctl(2). The kernel sends that when the *thread* that started the guard has ended,
//! even if other threads of the process cannot end. So the guard has to be started by the main thread.
//!
//! **When the serving process is stopped** for longer than its lease allows to use its caches, the guard
//! invalidates the kernel's cache of the mount, so that programs are not shown stale data
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

/// The signal that the serving process has died.
const DEATH: Signal = Signal::SIGUSR1;
/// Interval between two looks at the lease of the serving process.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A running guard. Dropping it ends it, so it is kept until the mount has ended.
pub struct Guard(Child);

impl Guard {
    /// Starts a guard for a mount of this process. To be called on the main thread.
    pub fn start(mounted: &Mounted) -> anyhow::Result<Guard> {
        let watch = mounted.watch().context("preparing the process that guards the mount")?;
        let files = watch.files();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("shoal-guard").arg("guard-mount").arg("--device").arg(mounted.device());
        command.arg("--mount").arg(mounted.mountpoint());
        command.args(files.iter().flat_map(|file| ["--file".to_owned(), file.to_string()]));
        // A process group of its own: Ctrl-C is not meant for it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/").process_group(0);
        let block = move || {
            let mut set = SigSet::empty();
            set.add(DEATH);
            set.thread_block()?;
            for file in files {
                // SAFETY: `watch` keeps the descriptor open, and the parent keeps `watch` until this process
                // has begun.
                let file = unsafe { BorrowedFd::borrow_raw(file) };
                fcntl(file, FcntlArg::F_SETFD(FdFlag::empty()))?;
            }
            Ok(set_pdeathsig(DEATH)?)
        };
        // SAFETY: sigprocmask(2), fcntl(2) and prctl(2) are async-signal-safe. What they set survives
        // execve(2).
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

/// Arguments of the guard's process.
#[derive(Debug, Args)]
pub struct GuardMount {
    /// Device number of the mount
    #[arg(long)]
    device: String,
    /// Mount point
    #[arg(long)]
    mount: PathBuf,
    /// Two inherited files: the connection to the kernel, and the expiry of the lease on its cache
    #[arg(long = "file", num_args = 1)]
    files: Vec<RawFd>,
}

/// What the guard has to do next.
enum Next {
    /// The serving process has died.
    Death,
    /// The lease on what the kernel caches has expired, at this time since boot.
    Late(Duration),
}

impl GuardMount {
    /// Waits for the serving process to die or to be stopped.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut set = SigSet::empty();
        // A service manager signals all processes of a unit; the guard ends when the serving process has
        // unmounted.
        for signal in [DEATH, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            set.add(signal);
        }
        set.thread_block()?;
        let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let files: [RawFd; 2] = self.files.as_slice().try_into().context("it is started by a mount")?;
        // SAFETY: the parent process passes both descriptors to this one, and no other code here uses them.
        let files = files.map(|file| unsafe { OwnedFd::from_raw_fd(file) });
        let kernel = Arc::new(StoppedKernel::new(files, &self.device));
        let mut last = None;
        while let Next::Late(until) = next(&kernel, &signals, last)? {
            last = Some(until);
            self.invalidate(&kernel);
        }
        if shoal_fuse::release(&self.mount, &self.device)? {
            eprintln!(
                "shoal: the process that served {} has died; the calls that waited for it were ended",
                self.mount.display()
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    /// On a thread of its own, since looking at the files of programs may block on the mount.
    fn invalidate(&self, kernel: &Arc<StoppedKernel>) {
        let (kernel, mount) = (kernel.clone(), self.mount.clone());
        let invalidate = move || {
            let mount = mount.display();
            match kernel.empty() {
                Ok(left) => eprintln!(
                    "shoal: the process that serves {mount} does not run or hears of no server: programs wait for it ({left} files are being read)"
                ),
                Err(error) => eprintln!("shoal: the kernel may go on to show {mount} as it was: {error}"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("invalidate".into()).spawn(invalidate) {
            eprintln!(
                "shoal: no thread to invalidate the kernel's cache of {}: {error}",
                self.mount.display()
            );
        }
    }
}

/// Waits until there is something to do. `last` is the expiry that was handled already.
fn next(kernel: &StoppedKernel, signals: &SignalFd, last: Option<Duration>) -> anyhow::Result<Next> {
    loop {
        let until = kernel.until().filter(|until| last != Some(*until));
        let left = until.map_or(LOOK_EVERY, |until| until.saturating_sub(shoal_runtime::time::since_boot()));
        if let Some(until) = until
            && left.is_zero()
        {
            return Ok(Next::Late(until));
        }
        // Rounded up, so that it does not wake up just before the expiry.
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
