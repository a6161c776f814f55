//! `shoal server`, `shoal cluster init` and `shoal peer join`: a machine becomes a node and serves.

use crate::admin::{self, Begun, Init, Join, Joined, ServeSpec, Token};
use crate::cluster_source::with_port;
use crate::daemon::{Job, Running};
use crate::limits::{PORT_DEFAULT, SERVER_DATA_DEFAULT};
use crate::server::Server;
use crate::server::dir::NodeDir;
use crate::{address, background, daemon};
use anyhow::Context;
use clap::Args;
use shoal_fuse::Mounted;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Runs this machine's server: its bricks, its replicas of metadata, its part in the cluster.
///
/// `shoal cluster init` or `shoal peer join` come first. Runs until SIGTERM or Ctrl-C.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  shoal server                          in the foreground, as under systemd
  shoal server --background             returns once it serves; its log is DATA/shoal.log")]
pub struct ServerCommand {
    /// Data directory
    #[arg(long, value_name = "DIR", env = "SHOAL_DATA", default_value = SERVER_DATA_DEFAULT)]
    data: PathBuf,
    /// Listen there from now on; as it was said at `cluster init` or `peer join` if left out
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_listen)]
    listen: Option<String>,
    /// The data directory was moved here by copying it, and the original will not run again: say so once
    #[arg(long)]
    moved: bool,
    /// Stay in the foreground; that is so anyway
    #[arg(long, conflicts_with = "background")]
    foreground: bool,
    /// Return once it serves and go on in the background
    #[arg(long)]
    background: bool,
    /// This is the process in the background
    #[arg(long, hide = true)]
    detached: bool,
}

impl ServerCommand {
    /// A server in the background.
    fn of(data: &Path) -> ServerCommand {
        ServerCommand {
            data: data.to_owned(),
            listen: None,
            moved: false,
            foreground: false,
            background: true,
            detached: false,
        }
    }

    pub fn run(self) -> anyhow::Result<ExitCode> {
        let data = std::path::absolute(&self.data)?;
        let job = ServerJob(ServeSpec { data: data.clone(), listen: self.listen, moved: self.moved });
        if self.detached {
            return daemon::run_in_background(&job);
        }
        if self.background {
            background::start(&job)?;
            println!(
                "The server runs in the background; its log is {}.",
                crate::logging::path(&data).display()
            );
            return Ok(ExitCode::SUCCESS);
        }
        daemon::run_in_foreground(&job, |_| {})
    }
}

/// A server to run.
struct ServerJob(ServeSpec);

/// A server that runs.
struct Serving(Arc<Server>);

impl Running for Serving {
    fn mounted(&self) -> Option<&Mounted> {
        None
    }

    fn stop(&self) -> anyhow::Result<()> {
        self.0.stop()
    }
}

impl Job for ServerJob {
    type Taken = NodeDir;
    type Running = Serving;
    const LOG_LEVEL: &'static str = "info";

    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            vec!["server".into(), "--detached".into(), "--data".into(), self.0.data.clone().into()];
        if let Some(listen) = &self.0.listen {
            arguments.extend(["--listen".into(), listen.into()]);
        }
        if self.0.moved {
            arguments.push("--moved".into());
        }
        arguments
    }

    fn log_dir(&self) -> &Path {
        &self.0.data
    }

    fn take(&self) -> anyhow::Result<(NodeDir, PathBuf)> {
        let dir = NodeDir::open(&self.0.data)?;
        let path = dir.path().to_owned();
        Ok((dir, path))
    }

    fn start(&self, dir: NodeDir) -> anyhow::Result<Serving> {
        Ok(Serving(Server::start(dir, &self.0)?))
    }
}

/// Who a new node is.
#[derive(Debug, Clone, Args)]
pub struct NewNode {
    /// Listen there
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_listen, default_value = "0.0.0.0")]
    listen: String,
    /// Where the other machines reach this one; found out if left out
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_address)]
    address: Option<String>,
    /// The node's name, as in NAME:/BRICK; the host's name if left out
    #[arg(long)]
    name: Option<String>,
    /// Leave the server to be started by systemd or by hand
    #[arg(long)]
    no_start: bool,
}

impl NewNode {
    fn name(&self) -> anyhow::Result<String> {
        match &self.name {
            Some(name) => Ok(name.clone()),
            None => {
                let host = nix::unistd::gethostname().context("host name")?.to_string_lossy().into_owned();
                // Without its domain, as people say it.
                Ok(host.split('.').next().unwrap_or_default().to_owned())
            }
        }
    }

    /// Where others reach this machine, seen from the way to `toward`.
    fn address(&self, toward: Option<&str>) -> anyhow::Result<String> {
        match &self.address {
            Some(address) => Ok(address.clone()),
            None => address::reachable(&self.listen, toward),
        }
    }

    fn start(&self, data: &Path) -> anyhow::Result<()> {
        let shown = data.display();
        if self.no_start {
            println!(
                "Start it:  systemctl enable --now shoal-server   (or: shoal server --data {shown} --background)"
            );
            return Ok(());
        }
        ServerCommand::of(data).run()?;
        println!(
            "After a reboot:  systemctl enable shoal-server starts it   (by hand: shoal server --background)"
        );
        Ok(())
    }
}

/// Begins a cluster with this machine as its first node, and starts its server
#[derive(Debug, Clone, Args)]
pub struct InitCommand {
    #[command(flatten)]
    node: NewNode,
}

impl InitCommand {
    pub fn run(self, data: &Path) -> anyhow::Result<ExitCode> {
        let (name, address) = (self.node.name()?, self.node.address(None)?);
        let init = Init { data: data.to_owned(), name, address, listen: self.node.listen.clone() };
        let Begun { cluster, token } = crate::server::init(&init)?;
        println!("cluster init: success: cluster {cluster} begins with {} ({})", init.name, init.address);
        self.node.start(data)?;
        print!("\n{}", admin::render::how_to_join(&token));
        println!("Then:\n  shoal volume create NAME replica 3 HOST:/BRICK HOST:/BRICK HOST:/BRICK");
        Ok(ExitCode::SUCCESS)
    }
}

/// Joins a cluster with this machine, and starts its server
#[derive(Debug, Clone, Args)]
pub struct JoinCommand {
    /// As printed by `cluster init`, `cluster token` or `peer probe` on a node of the cluster
    token: Token,
    #[command(flatten)]
    node: NewNode,
}

impl JoinCommand {
    pub fn run(self, data: &Path) -> anyhow::Result<ExitCode> {
        let name = self.node.name()?;
        let address = self.node.address(self.token.addresses.first().map(String::as_str))?;
        let join = Join {
            data: data.to_owned(),
            token: self.token,
            name,
            address,
            listen: self.node.listen.clone(),
        };
        let Joined { cluster, node, others } = crate::server::join(&join)?;
        println!(
            "peer join: success: {} ({}) is node {node} of cluster {cluster}, with {}",
            join.name,
            join.address,
            others.join(", ")
        );
        self.node.start(data)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn parse_listen(text: &str) -> Result<String, String> {
    let listen = with_port(text, PORT_DEFAULT).and_then(|text| text.parse::<std::net::SocketAddr>().ok());
    listen
        .map(|address| address.to_string())
        .ok_or_else(|| "say ADDRESS or ADDRESS:PORT, as in 0.0.0.0:7470".into())
}

fn parse_address(text: &str) -> Result<String, String> {
    with_port(text, PORT_DEFAULT).ok_or_else(|| "say HOST or HOST:PORT, as in node1:7470".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed_and_nonsense_is_refused() {
        assert_eq!(parse_listen("0.0.0.0").as_deref(), Ok("0.0.0.0:7470"));
        assert_eq!(parse_listen("::").as_deref(), Ok("[::]:7470"));
        assert_eq!(parse_listen("10.0.0.1:99").as_deref(), Ok("10.0.0.1:99"));
        assert_eq!(parse_address("node1").as_deref(), Ok("node1:7470"));
        assert!(parse_listen("node1").is_err() && parse_listen("").is_err() && parse_address("a b").is_err());
    }
}
