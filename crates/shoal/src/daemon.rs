//! Long-running processes: the server of a data directory or of a cluster's node, and the mount of a
//! cluster's volume.
//!
//! **Models.** A [`Job`] is the work of such a process. Started, it is [`Running`]: it ends when a signal
//! asks for it or, if it has a mount, when that is unmounted from outside.
//!
//! **Promises.** On every way to the end, the mount is removed first, then everything is made durable. A
//! background process reports to its parent whether it started. Under systemd (`NOTIFY_SOCKET`) the manager
//! is told, too.

use crate::guard::Guard;
use crate::job::{Job, Running};
use crate::limits::DUMP_FILE;
use crate::mounts;
use crate::options::Options;
use crate::signals::{DUMP, Signals};
use crate::{background, logging, notify, show};
use anyhow::{Context, bail};
use shoal_fuse::{MountError, Mounted};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Weak, mpsc};

/// The reason to proceed from serving to stopping.
enum Event {
    Signal,
    Unmounted(Result<(), MountError>),
}

/// Does a job in this process. `ready` is called once it serves.
pub fn run_in_foreground<J: Job>(job: &J, ready: impl FnOnce(&J::Running)) -> anyhow::Result<ExitCode> {
    let signals = Signals::take()?;
    let level = job.options().and_then(|options| options.log_level);
    let log_file = job.options().and_then(|options| options.log_file.as_deref());
    let taken = match log_file {
        None => {
            logging::to_stderr(level.unwrap_or(J::LOG_LEVEL));
            job.take()?.0
        }
        Some(_) => {
            let (taken, log_dir) = job.take()?;
            begin_log(&log_dir, level, log_file)?;
            taken
        }
    };
    logging::abort_on_panic();
    let running = job.start(taken)?;
    let guard = start_guard(&running);
    ready(&running);
    notify::ready();
    wait_for_end(running, guard, signals)
}

/// Does a job in this process, which runs detached in the background.
pub fn run_in_background<J: Job>(job: &J) -> anyhow::Result<ExitCode> {
    let signals = Signals::take()?;
    background::has_parent();
    let started = job.take().and_then(|(taken, log_dir)| {
        let options = job.options();
        let level = options.and_then(|options| options.log_level);
        let log = begin_log(&log_dir, level, options.and_then(|options| options.log_file.as_deref()))?;
        let file = std::fs::File::options().append(true).open(&log);
        file.and_then(|file| Ok(nix::unistd::dup2_stderr(file)?))
            .with_context(|| log.display().to_string())?;
        logging::abort_on_panic();
        for note in options.map(Options::notes).unwrap_or_default() {
            tracing::info!("{note}");
        }
        // A daemon must not keep the directory busy that it was started in.
        std::env::set_current_dir("/").context("/")?;
        job.start(taken)
    });
    match started {
        Ok(running) => {
            let guard = start_guard(&running);
            background::report(&Ok(()))?;
            match running.mounted() {
                Some(mounted) => tracing::info!(mountpoint = %mounted.mountpoint().display(), "mounted"),
                None => tracing::info!("serving"),
            }
            let outcome = wait_for_end(running, guard, signals);
            match &outcome {
                Ok(_) => tracing::info!("stopped"),
                Err(error) => tracing::error!("{error:#}"),
            }
            outcome
        }
        // The parent prints the error; standard error may still be its terminal.
        Err(error) => background::report(&Err(error)).map(|()| ExitCode::from(2)),
    }
}

/// Opens the log file and returns its path.
fn begin_log(log_dir: &Path, level: Option<&str>, elsewhere: Option<&Path>) -> anyhow::Result<PathBuf> {
    let log =
        logging::place(log_dir, elsewhere).with_context(|| logging::path(log_dir).display().to_string())?;
    logging::to_file(&log, level.unwrap_or("info")).with_context(|| match elsewhere {
        Some(file) => {
            format!("log-file={}: the file cannot be opened; is its directory there?", file.display())
        }
        None => log.display().to_string(),
    })?;
    Ok(log)
}

/// Starts the guard of the mount, if there is one. To be called on the main thread, before the mount is
/// announced.
fn start_guard<R: Running>(running: &R) -> Option<Guard> {
    let warn = |error: &anyhow::Error| {
        tracing::warn!(
            "{error:#}: should this process be killed, programs may wait for it until 'umount -f'"
        );
    };
    running.mounted().and_then(|mounted| Guard::start(mounted).inspect_err(warn).ok())
}

/// Serves until the volume is unmounted, by a signal or from outside, or until a signal if there is no mount.
/// Then makes everything durable. The guard ends with it.
fn wait_for_end<R: Running>(running: R, _guard: Option<Guard>, signals: Signals) -> anyhow::Result<ExitCode> {
    let running = Arc::new(running);
    let (tell, events) = mpsc::channel();
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    if running.mounted().is_some() {
        let (watched, told) = (running.clone(), tell.clone());
        thread("watch-mount").spawn(move || {
            let outcome = watched.mounted().map_or(Ok(()), Mounted::wait);
            // This thread must not hold a reference any more when the end is announced.
            drop(watched);
            told.send(Event::Unmounted(outcome))
        })?;
    }
    let dumped = Arc::downgrade(&running);
    thread("watch-signals").spawn(move || {
        while let Ok(signal) = signals.wait() {
            if signal == DUMP {
                dump(&dumped);
            } else if tell.send(Event::Signal).is_err() {
                return;
            }
        }
    })?;
    let mut asked = false;
    let mount = loop {
        match (events.recv().context("waiting")?, running.mounted()) {
            (Event::Unmounted(outcome), _) => break outcome,
            (Event::Signal, None) => break Ok(()),
            (Event::Signal, Some(mounted)) if is_only_in_programs(mounted) => {
                tracing::warn!("ending a mount that programs still use after its removal");
                if let Err(error) = mounted.abort() {
                    // The kernel ends it when this process has ended.
                    tracing::info!("{error}");
                }
                break Ok(());
            }
            (Event::Signal, Some(mounted)) => {
                if let Err(error) = end_mount(mounted, asked) {
                    eprintln!("shoal: {}", show::runnable(&format!("{error:#}")));
                }
            }
        }
        asked = true;
    };
    notify::stopping();
    let stopped = running.stop();
    mount.context("the kernel ended the mount")?;
    stopped.map(|()| ExitCode::SUCCESS)
}

/// Writes the state into a file. This runs on a thread of its own: it may have to wait for a lock that is
/// never released, and the process must still hear other signals.
fn dump<R: Running>(running: &Weak<R>) {
    let running = running.clone();
    let write = move || {
        let Some(running) = running.upgrade() else { return };
        let (text, dir) = running.dump();
        // It must not be the last reference when the process ends.
        drop(running);
        let file = dir.join(DUMP_FILE);
        match write_private(&file, &text) {
            Ok(()) => tracing::info!(file = %file.display(), "the state was written there"),
            Err(error) => tracing::warn!(file = %file.display(), %error, "the state could not be written"),
        }
    };
    if let Err(error) = std::thread::Builder::new().name("shoal-dump".into()).spawn(write) {
        tracing::warn!(%error, "no thread to write the state");
    }
}

/// Writes a file that only its owner may read, in one step.
fn write_private(file: &Path, text: &str) -> std::io::Result<()> {
    let new = file.with_extension("new");
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(&new)?.write_all(text.as_bytes())?;
    std::fs::rename(&new, file)
}

/// Whether a mount was removed from its mount point, and lives on in programs.
fn is_only_in_programs(mounted: &Mounted) -> bool {
    !mounted.has_ended() && mounts::is_detached(mounted.device()).unwrap_or(false)
}

/// Unmounts. A second request insists: it removes the mount even if it is in use.
fn end_mount(mounted: &Mounted, insist: bool) -> anyhow::Result<()> {
    let is_busy = |error: &MountError| matches!(error, MountError::Busy { .. });
    match mounts::retry_while_busy(is_busy, || mounted.unmount()) {
        Err(MountError::Busy { path }) if insist => {
            eprintln!("shoal: {} is still in use: taking it away", path.display());
            Ok(mounted.abort()?)
        }
        Err(MountError::Busy { path }) => match mounts::at(&path)? {
            Some(mount) => {
                bail!("{}\n(asking again, as with another Ctrl-C, ends it all the same)", mount.why_busy())
            }
            None => Ok(()),
        },
        other => Ok(other?),
    }
}
