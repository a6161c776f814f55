//! `shoal sync`.

use crate::flush::flush;
use crate::{find, mounts};
use anyhow::{Context, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Waits until everything written to a volume so far is on disk.
///
/// sync(1) and syncfs(2) do not reach a FUSE file system; this does, and so does fsync(2) on any file or
/// directory of it.
#[derive(Debug, Args)]
#[command(after_help = "Example: tar xf linux.tar -C /mnt/shoal && shoal sync /mnt/shoal")]
pub struct Sync {
    /// The mount, or anything on it; every Shoal mount if left out
    paths: Vec<PathBuf>,
}

impl Sync {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mounts = if self.paths.is_empty() {
            mounts::shoals().context("mount table")?
        } else {
            self.paths.iter().map(|path| find::mount_of(path)).collect::<anyhow::Result<_>>()?
        };
        for mount in mounts {
            let refused = flush(&mount, None).with_context(|| {
                format!(
                    "not everything written to {} is on disk; `shoal status` and the log in {} may say why",
                    mount.point.display(),
                    mount.home().display()
                )
            })?;
            if let Some(why) = refused {
                bail!("{}: {why}", mount.point.display());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
