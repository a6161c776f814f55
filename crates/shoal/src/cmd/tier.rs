//! `shoal tier`.

use super::local::{Local, Output, the_answer};
use crate::admin::{AdminAnswer, AdminRequest, PinStep, render};
use crate::cluster_source::ClusterSource;
use crate::find;
use crate::flush::make_durable;
use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use shoal_types::InodeId;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Says which files belong on the hot tier of a volume.
///
/// `shoal volume tier NAME` attaches the hot tier and shows what moves.
#[derive(Debug, Args)]
pub struct Tier {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pins a directory or a file to a tier, or shows its pin
    ///
    /// The pin holds for all that is below a directory, unless a nearer one says otherwise, wherever the
    /// directory is moved.
    #[command(after_help = "Example: shoal tier pin /mnt/web/db hot; shoal tier pin /mnt/web/db")]
    Pin(Pin),
}

#[derive(Debug, Args)]
struct Pin {
    /// A directory or a file on a mounted volume
    path: PathBuf,
    /// hot: kept on the hot tier; cold: kept off it; auto: no pin of its own. Left out: show the pin
    to: Option<To>,
    #[command(flatten)]
    local: Local,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum To {
    Hot,
    Cold,
    Auto,
}

impl Tier {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Pin(pin) => pin.run(),
        }
    }
}

impl Pin {
    fn run(self) -> anyhow::Result<ExitCode> {
        let (name, inode) = locate(&self.path)?;
        let step = match self.to {
            None => PinStep::Show,
            Some(To::Hot) => PinStep::Hot,
            Some(To::Cold) => PinStep::Cold,
            Some(To::Auto) => PinStep::Auto,
        };
        let answer = self.local.ask(AdminRequest::Pin { name, inode, step }).context(
            "pins are part of the cluster map, so this machine has to run a server of the cluster (or --data is missing)",
        )?;
        let report = the_answer!(answer, AdminAnswer::Pin(report) => report);
        self.output.print(&report, render::pin)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The volume that a path is on, and its inode, which the servers know then.
fn locate(path: &Path) -> anyhow::Result<(String, u64)> {
    let mount = find::mount_of(path)?;
    let source = mount.source.to_string_lossy();
    let Ok(source) = source.parse::<ClusterSource>() else {
        bail!(
            "{} is on {}, which is not a volume of a cluster: it has one brick and no tiers",
            path.display(),
            mount.source.display()
        );
    };
    let found = std::fs::symlink_metadata(path).with_context(|| path.display().to_string())?;
    if !found.is_dir() && !found.is_file() {
        bail!("{} is neither a directory nor a file, so it has no content to pin", path.display());
    }
    if found.ino() == InodeId::ROOT.0 && source.subdirectory.is_some() {
        bail!(
            "{} is the root of a mount of a subdirectory: pin it through a mount of the volume",
            path.display()
        );
    }
    // It may have been created a moment ago.
    make_durable(&mount)?;
    Ok((source.volume, found.ino()))
}
