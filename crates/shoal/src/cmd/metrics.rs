//! `shoal metrics`.

use crate::limits::{METRICS_LISTEN_EXAMPLE, SERVER_DATA_DEFAULT};
use crate::metrics::gather;
use crate::server::node_dir;
use anyhow::{Context, bail};
use clap::Args;
use shoal_metrics::Endpoint;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tells Prometheus the figures of this machine: of all its mounts, and of its server.
///
/// One process serves them for the whole machine. Without --listen they are printed once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal metrics                                  prints them
  shoal metrics --listen 127.0.0.1:9747          serves http://127.0.0.1:9747/metrics
  shoal metrics --listen 0.0.0.0:9747 --token-file /etc/shoal/metrics-token
                                                 for another machine's Prometheus")]
pub struct Metrics {
    /// Serve them by HTTP there
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Answer only who gives the token in this file, as in 'Authorization: Bearer TOKEN'; needed unless it
    /// listens on loopback
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
    /// Data directory of a server; /var/lib/shoal if left out, and if there is one
    #[arg(long, value_name = "DIR", env = "SHOAL_DATA")]
    data: Vec<PathBuf>,
}

impl Metrics {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let servers = servers(self.data)?;
        let Some(listen) = self.listen else {
            print!("{}", gather(&servers).render());
            return Ok(ExitCode::SUCCESS);
        };
        let address: SocketAddr = listen.parse().with_context(|| {
            format!("'{listen}' is no address to listen at; say ADDRESS:PORT, as in {METRICS_LISTEN_EXAMPLE}")
        })?;
        let token = self.token_file.as_deref().map(token).transpose()?;
        let endpoint = Endpoint::open(address, token, Box::new(move || gather(&servers).render()))?;
        println!("Metrics: http://{}/metrics", endpoint.address()?);
        endpoint.serve()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The data directories of servers, which must be there if they were named.
fn servers(named: Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    if named.is_empty() {
        let usual = PathBuf::from(SERVER_DATA_DEFAULT);
        return Ok(if node_dir::exists(&usual) { vec![usual] } else { Vec::new() });
    }
    // SHOAL_DATA may also name what `shoal up` serves and mounts, which is found as a mount.
    let (servers, others): (Vec<_>, Vec<_>) = named.into_iter().partition(|data| node_dir::exists(data));
    match others.iter().find(|data| !data.join("shoal.json").exists()) {
        Some(other) => bail!("{} is not the data directory of a server", other.display()),
        None => Ok(servers),
    }
}

/// The token in a file, without the end of its line.
fn token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("the token in {}", path.display()))?;
    Ok(text.trim_end().to_owned())
}
