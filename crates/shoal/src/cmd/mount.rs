//! `shoal mount`.

use super::Serve;
use crate::options::{HELP, Options};
use crate::{background, daemon};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Mounts the volume of a data directory. Returns once it is mounted; the process that serves it goes on in the background.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  shoal mount /srv/shoal /mnt/shoal
  shoal mount /srv/shoal /mnt/shoal -o ro,nodev,cache=1024

{HELP}"))]
pub struct Mount {
    /// The data directory, as made by `shoal up`
    data: PathBuf,
    /// Where to mount it: an existing directory
    mountpoint: PathBuf,
    /// Mount options, separated by commas
    #[arg(short, long, value_name = "OPTIONS", default_value = "", hide_default_value = true)]
    options: Options,
    /// Stay in the foreground until Ctrl-C or until it is unmounted
    #[arg(short, long)]
    foreground: bool,
}

impl Mount {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let data = std::path::absolute(&self.data)?;
        let mount = std::path::absolute(&self.mountpoint)?;
        let serve = Serve { data, mount, create: None, options: self.options };
        if self.foreground {
            daemon::run_in_foreground(&serve, |_| {})
        } else {
            background::start(&serve)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
