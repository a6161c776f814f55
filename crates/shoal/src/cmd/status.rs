//! `shoal status`.

use crate::control::{self, ControlError, Request, Status as NodeStatus};
use crate::data_dir::{self, Manifest};
use crate::mounts::Health;
use crate::{find, mounts, show};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows the mounts of this machine, the processes that serve them, and how full they are. Exit code 1:
/// something that should run does not.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  shoal status\n  shoal status /mnt/shoal\n  shoal status --data /srv/shoal --json"
)]
pub struct Status {
    /// A mount, or anything on it; all mounts if left out
    path: Option<PathBuf>,
    /// A data directory, running or not
    #[arg(long, value_name = "DIR", conflicts_with = "path")]
    data: Option<PathBuf>,
    /// One JSON object per node, for programs
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let nodes = find::nodes(self.data.as_deref().or(self.path.as_deref()))?;
        if nodes.is_empty() && !self.json {
            println!("No Shoal volume is mounted here. `{} up` serves and mounts one.", show::program());
        }
        let mut code = ExitCode::SUCCESS;
        for (n, data) in nodes.iter().enumerate() {
            if n > 0 && !self.json {
                println!();
            }
            match control::request::<NodeStatus>(data, &Request::Status) {
                Ok(status) => {
                    if status.refused.is_some() || status.is_waiting {
                        code = ExitCode::from(1);
                    }
                    self.show_running(&status)?;
                }
                Err(error) => {
                    self.show_stopped(data, &error)?;
                    code = ExitCode::from(1);
                }
            }
        }
        Ok(code)
    }

    fn show_running(&self, status: &NodeStatus) -> anyhow::Result<()> {
        if self.json {
            println!("{}", serde_json::to_string(status)?);
            return Ok(());
        }
        let used = status.total_bytes.saturating_sub(status.free_bytes);
        println!("{} on {}", status.volume, status.mountpoint.display());
        match &status.source {
            Some(source) => println!("  cluster   {source}; log in {}", status.data.display()),
            None => println!("  data      {}", status.data.display()),
        }
        println!(
            "  process   {}, up {}, shoal {}",
            status.pid,
            show::seconds(status.uptime_s),
            status.version
        );
        if let Some(why) = &status.refused {
            println!("  refused   {why}");
            println!("  identity  {}", status.id);
            return Ok(());
        }
        println!("  session   {}", status.session);
        match status.is_waiting {
            true => println!(
                "  waits     for the servers, which do not answer: `shoal cluster status` on one of them shows what is missing"
            ),
            false => println!(
                "  room      {} of {} used, {} free; {} files",
                show::bytes(used),
                show::bytes(status.total_bytes),
                show::bytes(status.free_bytes),
                status.inodes
            ),
        }
        println!("  identity  {}", status.id);
        Ok(())
    }

    fn show_stopped(&self, data: &Path, error: &ControlError) -> anyhow::Result<()> {
        let manifest = data_dir::read_manifest(data);
        let dead: Vec<_> = mounts::shoals()?.into_iter().filter(|mount| mount.home() == data).collect();
        if self.json {
            let volume = manifest.as_ref().ok().map(|manifest| &manifest.volume);
            println!("{}", serde_json::json!({ "data": data, "volume": volume, "error": error.to_string() }));
            return Ok(());
        }
        match manifest {
            Ok(Manifest { volume, id, .. }) => {
                println!("{volume}, not running\n  data      {}\n  identity  {id}", data.display())
            }
            // A mount of a cluster has no data directory, only one for its socket.
            Err(_) if !dead.is_empty() => {}
            Err(error) => println!("{error}"),
        }
        for mount in dead {
            let point = mount.point.display();
            match mount.health() {
                Health::Dead => {
                    let program = show::program();
                    println!("  left      a dead mount on {point}: `{program} umount {point}` removes it")
                }
                Health::Hung => {
                    println!("  hangs     {point} does not answer: see the log in {}", data.display())
                }
                Health::Alive => println!("  mounted   on {point}"),
            }
        }
        println!("  {error}");
        Ok(())
    }
}
