//! Serving and mounting a data directory until told to stop: `shoal up` and `shoal mount` in the foreground,
//! or their background process, `shoal serve`.

use crate::control::Control;
use crate::data_dir::DataDir;
use crate::job::{Job, Running};
use crate::mounts::{self, Health};
use crate::node::Node;
use crate::options::Options;
use anyhow::{Context, bail};
use clap::Args;
use nix::mount::{MntFlags, umount2};
use shoal_fuse::Mounted;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// A served and mounted data directory, with its control socket.
pub struct Serving {
    // Dropped first: its thread holds a reference to the node, which should end with the last one.
    _control: Control,
    /// The node.
    pub node: Arc<Node>,
}

impl Running for Serving {
    fn mounted(&self) -> Option<&Mounted> {
        Some(self.node.mounted())
    }

    fn dump(&self) -> (String, PathBuf) {
        (self.node.dump(), self.node.data().path().to_owned())
    }

    fn stop(&self) -> anyhow::Result<()> {
        self.node.stop()
    }
}

impl Job for Serve {
    type Taken = DataDir;
    type Running = Serving;
    const LOG_LEVEL: &'static str = "warn";

    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["serve".into(), "--data".into(), self.data.clone().into()];
        arguments.extend(["--mount".into(), self.mount.clone().into()]);
        if let Some(volume) = &self.create {
            arguments.extend(["--create".into(), volume.into()]);
        }
        arguments.extend([format!("--options={}", self.options.words()).into()]);
        arguments
    }

    fn log_dir(&self) -> &Path {
        &self.data
    }

    fn options(&self) -> Option<&Options> {
        Some(&self.options)
    }

    fn take(&self) -> anyhow::Result<(DataDir, PathBuf)> {
        let data = match &self.create {
            Some(volume) => DataDir::open_or_create(&self.data, volume)?,
            None => DataDir::open(&self.data)?,
        };
        let path = data.path().to_owned();
        Ok((data, path))
    }

    fn start(&self, data: DataDir) -> anyhow::Result<Serving> {
        clear_dead_mount(&self.mount)?;
        let node = Node::start(data, &self.mount, &self.options)?;
        let control = node.control()?;
        Ok(Serving { node, _control: control })
    }
}

/// Removes the mount that a killed process left behind. Every call on it fails with `ENOTCONN`, so it is of
/// no use.
pub fn clear_dead_mount(point: &Path) -> anyhow::Result<()> {
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
