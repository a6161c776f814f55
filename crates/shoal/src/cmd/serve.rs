//! Serving and mounting a data directory until told to stop. What `shoal up` and `shoal mount` do, in the foreground
//! or as `shoal serve` in the background.

use super::umount::busy;
use crate::data_dir::DataDir;
use crate::mounts::{self, Health};
use crate::node::Node;
use crate::options::Options;
use crate::signals::Signals;
use crate::{background, logging};
use anyhow::{Context, bail};
use clap::Args;
use nix::mount::{MntFlags, umount2};
use shoal_fuse::MountError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

/// What to serve and where.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// Data directory
    #[arg(long)]
    pub data: PathBuf,
    /// Where to mount it
    #[arg(long)]
    pub mount: PathBuf,
    /// Make the data directory if there is none, for a volume of this name
    #[arg(long)]
    pub create: Option<String>,
    /// Mount options
    #[arg(short, long, default_value = "")]
    pub options: Options,
}

/// Why a serving process goes on to its next step.
enum Event {
    Signal,
    Unmounted(Result<(), MountError>),
}

impl Serve {
    /// The arguments that make another process of this program do the same in the background.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["serve".into(), "--data".into(), self.data.clone().into()];
        arguments.extend(["--mount".into(), self.mount.clone().into()]);
        if let Some(volume) = &self.create {
            arguments.extend(["--create".into(), volume.into()]);
        }
        arguments.extend([format!("--options={}", self.options.words()).into()]);
        arguments
    }

    /// Serves in this process. `ready` is called once everything is mounted.
    pub fn run_in_foreground(&self, ready: impl FnOnce(&Node)) -> anyhow::Result<ExitCode> {
        let signals = Signals::take()?;
        logging::to_stderr();
        logging::abort_on_panic();
        let node = self.start(self.take_data()?)?;
        let _control = node.control()?;
        ready(&node);
        wait_for_end(&node, signals)
    }

    /// Serves in this process, which nobody watches.
    pub fn run_in_background(&self) -> anyhow::Result<ExitCode> {
        let signals = Signals::take()?;
        let started = self.take_data().and_then(|data| {
            let log = logging::path(data.path());
            logging::to_file(&log)
                .and_then(|()| {
                    let file = std::fs::File::options().append(true).open(&log)?;
                    Ok(nix::unistd::dup2_stderr(file)?)
                })
                .with_context(|| log.display().to_string())?;
            logging::abort_on_panic();
            // Nothing keeps the directory busy that it happened to be started in.
            std::env::set_current_dir("/").context("/")?;
            let node = self.start(data)?;
            let control = node.control()?;
            Ok((node, control))
        });
        match started {
            Ok((node, _control)) => {
                background::report(&Ok(()))?;
                tracing::info!(mountpoint = %node.mounted().mountpoint().display(), "mounted");
                let outcome = wait_for_end(&node, signals);
                match &outcome {
                    Ok(_) => tracing::info!("stopped"),
                    Err(error) => tracing::error!("{error:#}"),
                }
                outcome
            }
            // The one that waits says it; standard error may still be its terminal.
            Err(error) => background::report(&Err(error)).map(|()| ExitCode::from(2)),
        }
    }

    fn take_data(&self) -> anyhow::Result<DataDir> {
        Ok(match &self.create {
            Some(volume) => DataDir::open_or_create(&self.data, volume)?,
            None => DataDir::open(&self.data)?,
        })
    }

    fn start(&self, data: DataDir) -> anyhow::Result<Arc<Node>> {
        clear_dead_mount(&self.mount)?;
        Node::start(data, &self.mount, &self.options)
    }
}

/// A killed process leaves its mount behind, where nothing works any more. Nobody can want to keep it.
fn clear_dead_mount(point: &Path) -> anyhow::Result<()> {
    let shown = point.display();
    while let Some(mount) = mounts::at(point).with_context(|| format!("mount point {shown}"))? {
        if !mount.is_shoal() {
            return Ok(());
        }
        match mount.health() {
            Health::Dead => {
                tracing::info!(mountpoint = %shown, "removing a dead mount");
                umount2(&mount.point, MntFlags::MNT_DETACH).with_context(|| format!("unmounting {shown}"))?;
            }
            Health::Alive => bail!(
                "{} is mounted on {shown} already; `shoal umount {shown}` ends that",
                mount.source.display()
            ),
            Health::Hung => {
                bail!("{shown} is a mount that does not answer; `shoal umount --lazy {shown}` removes it")
            }
        }
    }
    Ok(())
}

/// Serves until the volume is unmounted, by a signal or from outside, then makes everything durable.
fn wait_for_end(node: &Arc<Node>, signals: Signals) -> anyhow::Result<ExitCode> {
    let (tell, events) = mpsc::channel();
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let (watched, told) = (node.clone(), tell.clone());
    thread("watch-mount").spawn(move || told.send(Event::Unmounted(watched.mounted().wait())))?;
    thread("watch-signals").spawn(
        move || {
            while signals.wait().is_ok() && tell.send(Event::Signal).is_ok() {}
        },
    )?;
    let mut asked = false;
    let mount = loop {
        match events.recv().context("waiting")? {
            Event::Unmounted(outcome) => break outcome,
            Event::Signal => match end_mount(node, asked) {
                Ok(()) => {}
                Err(error) => eprintln!("shoal: {error:#}"),
            },
        }
        asked = true;
    };
    let stopped = node.stop();
    mount.context("the kernel ended the mount")?;
    stopped.map(|()| ExitCode::SUCCESS)
}

/// Unmounts; whoever asks a second time wants it at any price.
fn end_mount(node: &Node, insist: bool) -> anyhow::Result<()> {
    let is_busy = |error: &MountError| matches!(error, MountError::Busy { .. });
    match mounts::insist(is_busy, || node.mounted().unmount()) {
        Err(MountError::Busy { path }) if insist => {
            eprintln!("shoal: {} is still in use: taking it away", path.display());
            Ok(node.mounted().abort()?)
        }
        Err(MountError::Busy { path }) => match mounts::at(&path)? {
            Some(mount) => {
                bail!("{}\n(asking again, as with another Ctrl-C, ends it all the same)", busy(&mount))
            }
            None => Ok(()),
        },
        other => Ok(other?),
    }
}
