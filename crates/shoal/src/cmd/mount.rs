//! `shoal mount`.

use super::Serve;
use super::cluster_mount::ServeMount;
use super::remount::remount;
use crate::cluster_source;
use crate::job::Job;
use crate::limits::CREDENTIALS_DEFAULT;
use crate::options::{HELP, Options};
use crate::{background, daemon};
use anyhow::bail;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Mounts a volume of a cluster, or that of a data directory of this machine. Returns once it is mounted; the
/// process that serves it continues in the background.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  shoal mount node1,node2,node3:/web /mnt/web
  shoal mount node1:/web/sites/a /mnt/a               a directory of the volume
  shoal mount node1:/web /mnt/web -o ro --credentials ./laptop
  shoal mount -o remount,ro node1:/web /mnt/web       changes a mount that is there
  shoal mount /srv/shoal /mnt/shoal -o ro,nodev,cache=1024

In fstab (or `mount -t shoal node1:/web /mnt/web`):
  node1,node2,node3:/web  /mnt/web  shoal  _netdev  0 0

{HELP}"))]
pub struct Mount {
    /// HOST[:PORT][,HOST...]:/VOLUME[/DIR], or a data directory as made by `shoal up`
    #[arg(value_name = "HOST:/VOLUME|DIR")]
    source: PathBuf,
    /// Where to mount it: an existing directory
    mountpoint: PathBuf,
    /// Mount options, separated by commas
    #[arg(short, long, value_name = "OPTIONS", default_value = "", hide_default_value = true)]
    options: Options,
    /// Directory of the client's credentials, if not in the usual place
    #[arg(long, value_name = "DIR", long_help = format!(
        "Directory of the client's credentials; otherwise those in {CREDENTIALS_DEFAULT}, or of this machine's server"))]
    credentials: Option<PathBuf>,
    /// Stay in the foreground until Ctrl-C or until it is unmounted
    #[arg(short, long)]
    foreground: bool,
}

impl Mount {
    /// A mount requested by mount(8).
    pub fn of(source: PathBuf, mountpoint: PathBuf, options: Options) -> Mount {
        Mount { source, mountpoint, options, credentials: None, foreground: false }
    }

    pub fn run(self) -> anyhow::Result<ExitCode> {
        for note in self.options.notes() {
            eprintln!("shoal: {note}");
        }
        if self.options.remount {
            return remount(&self.mountpoint, &self.options);
        }
        match self.source.to_str().filter(|text| cluster_source::looks_like_one(text)) {
            Some(text) => {
                let source = text.parse().map_err(anyhow::Error::msg)?;
                let job =
                    ServeMount::new(source, &self.mountpoint, self.credentials.as_deref(), self.options)?;
                mount(&job, self.foreground)
            }
            None => {
                if !self.source.exists() {
                    bail!(
                        "{0} is neither a volume of a cluster (HOST:/VOLUME, as in {1}) nor a data directory of this machine",
                        self.source.display(),
                        example(&self.source)
                    );
                }
                if self.credentials.is_some() || self.options.credentials.is_some() {
                    bail!(
                        "{} is a directory of this machine, which takes no credentials; a volume of a cluster is HOST:/VOLUME",
                        self.source.display()
                    );
                }
                let data = std::path::absolute(&self.source)?;
                let mount_point = std::path::absolute(&self.mountpoint)?;
                let serve = Serve { data, mount: mount_point, create: None, options: self.options };
                mount(&serve, self.foreground)
            }
        }
    }
}

/// A correct example to show after a source that names no volume.
fn example(source: &Path) -> String {
    match source.to_str().and_then(|text| text.split_once('/')) {
        Some((host, volume))
            if host.chars().all(char::is_alphanumeric) && !host.is_empty() && !volume.is_empty() =>
        {
            format!("{host}:/{volume}")
        }
        None => format!("{}:/web", source.display()),
        Some(_) => "node1:/web".to_owned(),
    }
}

fn mount<J: Job>(job: &J, foreground: bool) -> anyhow::Result<ExitCode> {
    if foreground {
        return daemon::run_in_foreground(job, |_| {});
    }
    background::start(job)?;
    Ok(ExitCode::SUCCESS)
}
