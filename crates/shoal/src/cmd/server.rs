//! `shoal server`, `shoal cluster init` and `shoal peer join`: a machine becomes a node and serves.

use super::local::command;
use crate::admin::{self, Begun, Init, Join, Joined, ServeSpec, Token, WebListen};
use crate::cluster_source::with_port;
use crate::job::{Job, Running};
use crate::limits::{
    MEMORY_LIMIT_MIN, PORT_DEFAULT, SERVER_DATA_DEFAULT, WEB_LISTEN_DEFAULT, WEB_PORT_DEFAULT,
};
use crate::server::Server;
use crate::server::node_dir::{self, NodeDir};
use crate::{address, background, daemon};
use anyhow::Context;
use clap::Args;
use shoal_fuse::Mounted;
use shoal_store::limits::BLOCK_CACHE_BYTES_MIN;
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
  shoal server --background             returns once it serves; its log is DATA/shoal.log
  shoal server --web 10.0.0.1           shows its web page to other machines, which need a token")]
pub struct ServerCommand {
    /// Data directory
    #[arg(long, value_name = "DIR", env = "SHOAL_DATA", default_value = SERVER_DATA_DEFAULT)]
    data: PathBuf,
    /// Listen there from now on; as it was said at `cluster init` or `peer join` if left out
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_listen)]
    listen: Option<String>,
    /// Budget of the process for all buffers and caches, in MiB or as a share of memory, as in 10%; what
    /// --cache takes and 512 MiB if left out
    #[arg(long, value_name = "MIB|N%", value_parser = parse_memory, env = "SHOAL_MEMORY")]
    memory: Option<usize>,
    /// Of that, what the block cache of all metadata stores may take, in MiB or as a share of memory. If left
    /// out: half of --memory if that is given, else 1/32 of the machine's memory, at most 1 GiB
    #[arg(long, value_name = "MIB|N%", value_parser = parse_cache, env = "SHOAL_CACHE")]
    cache: Option<usize>,
    /// The web page is there, or `off`. Beyond loopback it takes TLS, and a token (`shoal cluster token
    /// --web`) or a client certificate; 127.0.0.1:7471 if left out
    #[arg(long, value_name = "ADDR[:PORT]|off", value_parser = parse_web, env = "SHOAL_WEB")]
    web: Option<WebListen>,
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
            memory: None,
            cache: None,
            web: None,
            moved: false,
            foreground: false,
            background: true,
            detached: false,
        }
    }

    pub fn run(self) -> anyhow::Result<ExitCode> {
        let data = std::path::absolute(&self.data)?;
        let (listen, moved) = (self.listen, self.moved);
        let (memory_bytes, cache_bytes) = (self.memory, self.cache);
        let web = self.web.unwrap_or(WebListen::Default);
        let job = ServerJob(ServeSpec { data: data.clone(), listen, memory_bytes, cache_bytes, moved, web });
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

    fn dump(&self) -> (String, PathBuf) {
        (self.0.dump(), self.0.data().to_owned())
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
        match self.0.web {
            WebListen::Off => arguments.extend(["--web".into(), "off".into()]),
            WebListen::At(address) => arguments.extend(["--web".into(), address.to_string().into()]),
            WebListen::Default => {}
        }
        if let Some(bytes) = self.0.memory_bytes {
            arguments.extend(["--memory".into(), (bytes >> 20).to_string().into()]);
        }
        if let Some(bytes) = self.0.cache_bytes {
            arguments.extend(["--cache".into(), (bytes >> 20).to_string().into()]);
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
        let by_hand = command(data, "server --background");
        if self.no_start {
            match is_systemds(data) {
                true => println!("Start it:  systemctl enable --now shoal-server   (or: {by_hand})"),
                false => println!("Start it:  {by_hand}"),
            }
            return Ok(());
        }
        ServerCommand::of(data).run()?;
        match is_systemds(data) {
            true => {
                println!("After a reboot:  systemctl enable shoal-server starts it   (by hand: {by_hand})")
            }
            false => println!("After a reboot:  {by_hand}"),
        }
        Ok(())
    }
}

/// Whether systemd would start the server of a data directory: its unit is installed and is for this one.
fn is_systemds(data: &Path) -> bool {
    let units = [
        "/etc/systemd/system",
        "/usr/local/lib/systemd/system",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
    ];
    let has_unit = |dir: &&str| Path::new(dir).join("shoal-server.service").exists();
    data == Path::new(SERVER_DATA_DEFAULT)
        && Path::new("/run/systemd/system").is_dir()
        && units.iter().any(has_unit)
}

/// Begins a cluster with this machine as its first node, and starts its server
#[derive(Debug, Clone, Args)]
pub struct InitCommand {
    #[command(flatten)]
    node: NewNode,
}

impl InitCommand {
    pub fn run(self, data: &Path) -> anyhow::Result<ExitCode> {
        node_dir::refuse_member(data)?;
        let (name, address) = (self.node.name()?, self.node.address(None)?);
        let init = Init { data: data.to_owned(), name, address, listen: self.node.listen.clone() };
        let Begun { cluster, token } = crate::server::init(&init)?;
        println!("cluster init: success: cluster {cluster} begins with {} ({})", init.name, init.address);
        self.node.start(data)?;
        print!("\n{}", admin::render::how_to_join(&token));
        let create = "volume create NAME replica 3 HOST:/BRICK HOST:/BRICK HOST:/BRICK";
        println!("Then:\n  {}", command(data, create));
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
        node_dir::refuse_member(data)?;
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

/// Where the web page is.
fn parse_web(text: &str) -> Result<WebListen, String> {
    if text == "off" {
        return Ok(WebListen::Off);
    }
    let address = with_port(text, WEB_PORT_DEFAULT).and_then(|text| text.parse().ok());
    address
        .map(WebListen::At)
        .ok_or_else(|| format!("say ADDRESS, ADDRESS:PORT or off, as in {WEB_LISTEN_DEFAULT}"))
}

/// Bytes of the process's budget.
fn parse_memory(text: &str) -> Result<usize, String> {
    parse_share(text, MEMORY_LIMIT_MIN)
}

/// Bytes of the block cache.
fn parse_cache(text: &str) -> Result<usize, String> {
    parse_share(text, BLOCK_CACHE_BYTES_MIN)
}

/// Bytes of memory, `least` of them at least.
fn parse_share(text: &str, least: usize) -> Result<usize, String> {
    let memory = shoal_runtime::memory::total_bytes();
    let number = |text: &str| text.parse::<usize>().ok();
    let bytes = match text.strip_suffix('%') {
        Some(share) => number(share).filter(|share| *share <= 100).map(|share| memory / 100 * share),
        None => number(text).and_then(|mib| mib.checked_mul(1 << 20)),
    };
    match bytes {
        Some(bytes) if (least..=memory).contains(&bytes) => Ok(bytes),
        _ => Err(format!(
            "say MiB or a share of memory, as in 512 or 5%; at least {} MiB, at most the machine's memory",
            least >> 20
        )),
    }
}

fn parse_address(text: &str) -> Result<String, String> {
    with_port(text, PORT_DEFAULT).ok_or_else(|| "say HOST or HOST:PORT, as in node1:7470".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_is_given_in_mib_or_as_a_share_of_memory() {
        let memory = shoal_runtime::memory::total_bytes();
        assert_eq!(parse_cache("64"), Ok(64 << 20));
        assert_eq!(parse_cache("10%"), Ok(memory / 100 * 10));
        assert_eq!((parse_memory("64"), parse_memory("63").is_err()), (Ok(64 << 20), true));
        for wrong in ["", "%", "1", "0%", "101%", "64M", "-1", "99999999999999999999", "17592186044416"] {
            assert!(parse_cache(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn web_page_is_at_an_address_or_nowhere() {
        let at = |text: &str| Ok(WebListen::At(text.parse().unwrap()));
        assert_eq!(parse_web("10.0.0.1"), at("10.0.0.1:7471"));
        assert_eq!((parse_web("[::]:80"), parse_web("off")), (at("[::]:80"), Ok(WebListen::Off)));
        for wrong in ["", "on", "node1", "10.0.0.1:x"] {
            assert!(parse_web(wrong).is_err_and(|why| why.contains("off")), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_completed_and_nonsense_is_refused() {
        assert_eq!(parse_listen("0.0.0.0").as_deref(), Ok("0.0.0.0:7470"));
        assert_eq!(parse_listen("::").as_deref(), Ok("[::]:7470"));
        assert_eq!(parse_listen("10.0.0.1:99").as_deref(), Ok("10.0.0.1:99"));
        assert_eq!(parse_address("node1").as_deref(), Ok("node1:7470"));
        assert!(parse_listen("node1").is_err() && parse_listen("").is_err() && parse_address("a b").is_err());
    }
}
