//! `shoal up`.

use super::Serve;
use crate::limits::{DATA_DEFAULT, MOUNT_DEFAULT, VOLUME_DEFAULT};
use crate::options::{HELP, Options};
use crate::{background, daemon, mounts, show};
use anyhow::Context;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Serves a volume and mounts it, all in one process; makes both directories if they are not there.
///
/// Runs until Ctrl-C or until the volume is unmounted, then writes everything back.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  shoal up                     data in run/data, mounted on run/mnt
  shoal up --data /srv/shoal --mount /mnt/shoal --background

{HELP}"))]
pub struct Up {
    /// Where everything is kept
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// Where to mount it
    #[arg(long, value_name = "DIR", default_value = MOUNT_DEFAULT)]
    mount: PathBuf,
    /// Name of the volume, if it is made now
    #[arg(long, value_name = "NAME", default_value = VOLUME_DEFAULT)]
    volume: String,
    /// Mount options, separated by commas
    #[arg(short, long, value_name = "OPTIONS", default_value = "", hide_default_value = true)]
    options: Options,
    /// Return once it is mounted and go on in the background
    #[arg(long)]
    background: bool,
}

impl Up {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let data = std::path::absolute(&self.data)?;
        let point = std::path::absolute(&self.mount)?;
        // Creating a directory at a dead mount fails; the serving process removes such a mount.
        if mounts::is_free(&point)? {
            std::fs::create_dir_all(&point).with_context(|| format!("mount point {}", point.display()))?;
        }
        if let Some(mount) = mounts::at(&point)?
            && mount.is_shoal()
            && mount.health() == mounts::Health::Alive
            && Some(&mount.source) == data.canonicalize().ok().as_ref()
        {
            println!("Shoal is up already.");
            welcome(&mount.point, &mount.source, true);
            return Ok(ExitCode::SUCCESS);
        }
        let serve = Serve { data, mount: point, create: Some(self.volume), options: self.options };
        if self.background {
            background::start(&serve)?;
            welcome(&serve.mount.canonicalize()?, &serve.data, true);
            return Ok(ExitCode::SUCCESS);
        }
        daemon::run_in_foreground(&serve, |serving| {
            welcome(serving.node.mounted().mountpoint(), serving.node.data().path(), false)
        })
    }
}

fn welcome(point: &Path, data: &Path, background: bool) {
    let (point, program) = (point.display(), show::program());
    println!("Shoal is mounted on {point} (data in {}).", data.display());
    println!("Try it:   cp -r /usr/include {point}/ && {program} stats {point}");
    match background {
        true => println!("Stop it:  {program} umount {point}"),
        false => println!("Stop it:  Ctrl-C, or {program} umount {point}"),
    }
}
