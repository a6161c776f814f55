//! `shoal peer` and `shoal pool`.

use super::local::{Confirmation, Local, Mode, Output, expect_answer};
use super::server::JoinCommand;
use crate::admin::{AdminAnswer, AdminRequest, PeerReport, render};
use crate::cluster_source::with_port;
use crate::limits::{PORT_DEFAULT, TOKEN_HOURS_DEFAULT};
use crate::show;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;

/// Adds nodes to the cluster, shows them and takes them away.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shoal peer probe node2                whether node2 is a peer; if not, the command to run on it
  shoal peer join TOKEN                 on the machine that is to join
  shoal peer status
  shoal peer detach node2               once it has no bricks any more
  shoal peer detach node2 force         it is gone for good, with all it had")]
pub struct Peer {
    #[command(flatten)]
    local: Local,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Invites a machine. Exit code 1: it has not joined yet, and the command to run there is printed
    Probe {
        /// Its host name or address
        host: String,
        #[command(flatten)]
        output: Output,
    },
    Join(JoinCommand),
    /// Shows the other nodes of the cluster
    Status {
        #[command(flatten)]
        output: Output,
    },
    /// Takes a node out of the cluster
    Detach {
        /// Its name or address
        host: String,
        /// Even if it has bricks: what is on them is lost to the cluster and copied from elsewhere
        #[arg(value_parser = ["force"])]
        force: Option<String>,
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

impl Peer {
    pub fn run(self, mode: Mode) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Probe { host, output } => {
                let peers = expect_answer!(self.local.request(AdminRequest::Peers)?, AdminAnswer::Peers { peers } => peers);
                let addresses = addresses(&host);
                if let Some(peer) = peers.iter().find(|peer| is_at(peer, &host, &addresses)) {
                    let which = if peer.local { "the local host" } else { "in the cluster already" };
                    println!("peer probe: success: {host} is {which}");
                    return Ok(ExitCode::SUCCESS);
                }
                check_host(&host)?;
                let request = AdminRequest::IssueToken { hours: TOKEN_HOURS_DEFAULT };
                let token = expect_answer!(self.local.request(request)?, AdminAnswer::Token(token) => token);
                output.print(&token, |token| {
                    format!(
                        "peer probe: {host} has not joined yet: a machine joins by a command that is run on it. Run this on {host} \
                         (as root, until {}):\n  shoal peer join {}\nOnce it has joined, `shoal peer probe {host}` succeeds, and \
                         `shoal peer status` shows it.\n",
                        show::date(token.expires),
                        token.token
                    )
                })?;
                return Ok(ExitCode::from(1));
            }
            Command::Join(join) => return join.run(&self.local.data()?),
            Command::Status { output } => {
                let peers = expect_answer!(self.local.request(AdminRequest::Peers)?, AdminAnswer::Peers { peers } => peers);
                output.print(&peers, |peers| render::peers(peers))?;
            }
            Command::Detach { host, force, confirmation } => {
                let force = force.is_some();
                if force {
                    let what = format!("What is on the bricks of {host} will be lost to the cluster.");
                    confirmation.require(mode, &what)?;
                }
                self.local.act(AdminRequest::Detach { host, force })?;
                println!("peer detach: success");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether a machine that is to join can be found from here: the nodes reach it by its name later.
fn check_host(host: &str) -> anyhow::Result<()> {
    let Some(address) = with_port(host, PORT_DEFAULT) else {
        bail!("peer probe: '{host}' is no host name or address");
    };
    let found = address.to_socket_addrs().with_context(|| {
        format!(
            "peer probe: this machine knows no host '{host}': enter it in DNS or /etc/hosts of all nodes, or say its address"
        )
    })?;
    match found.len() {
        0 => bail!("peer probe: host '{host}' has no address"),
        _ => Ok(()),
    }
}

/// The addresses of a host, with a port.
fn addresses(host: &str) -> Vec<SocketAddr> {
    let address = with_port(host, PORT_DEFAULT).and_then(|address| address.to_socket_addrs().ok());
    address.into_iter().flatten().collect()
}

/// Whether a node has this name, or one of these addresses.
fn is_at(peer: &PeerReport, host: &str, addresses: &[SocketAddr]) -> bool {
    let bare = peer.address.rsplit_once(':').map_or(peer.address.as_str(), |(bare, _)| bare);
    let has_address = || self::addresses(&peer.address).iter().any(|address| addresses.contains(address));
    peer.name == host || peer.address == host || bare == host || has_address()
}

/// Shows the nodes of the cluster.
#[derive(Debug, Args)]
#[command(after_help = "Example: shoal pool list")]
pub struct Pool {
    #[command(flatten)]
    local: Local,
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    /// Lists all nodes, this one included
    List {
        #[command(flatten)]
        output: Output,
    },
}

impl Pool {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let PoolCommand::List { output } = self.command;
        let peers =
            expect_answer!(self.local.request(AdminRequest::Peers)?, AdminAnswer::Peers { peers } => peers);
        output.print(&peers, |peers| render::pool(peers))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_cannot_be_found_is_an_error_and_gets_no_token() {
        check_host("127.0.0.1").unwrap();
        check_host("127.0.0.1:7471").unwrap();
        for (bad, why) in [("nosuchhost.invalid", "knows no host"), ("a b", "no host name")] {
            let error = check_host(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
