//! Inputs and results of the commands that set a machine up: beginning or joining a cluster, serving,
//! mounting.

use super::{Token, TokenReport};
use crate::options::Options;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Begin a cluster with this machine: makes a server's data directory. The server itself is started
/// afterwards.
#[derive(Clone, Debug)]
pub struct Init {
    /// The data directory, absolute; must not hold anything yet.
    pub data: PathBuf,
    /// The node's name.
    pub name: String,
    /// Where the other machines reach this one, `HOST:PORT`.
    pub address: String,
    /// Where to listen, `ADDRESS:PORT`.
    pub listen: String,
}

/// The result of [`Init`].
#[derive(Clone, Debug)]
pub struct Begun {
    /// The cluster's identity, 32 hexadecimal digits.
    pub cluster: String,
    /// The token with which other machines can join.
    pub token: TokenReport,
}

/// Join a cluster with this machine: makes a server's data directory. The server itself is started
/// afterwards.
#[derive(Clone, Debug)]
pub struct Join {
    /// The data directory, absolute; must not hold anything yet.
    pub data: PathBuf,
    /// The join token.
    pub token: Token,
    /// The node's name.
    pub name: String,
    /// Where the other machines reach this one, `HOST:PORT`.
    pub address: String,
    /// Where to listen, `ADDRESS:PORT`.
    pub listen: String,
}

/// The result of [`Join`].
#[derive(Clone, Debug)]
pub struct Joined {
    /// The cluster's identity, 32 hexadecimal digits.
    pub cluster: String,
    /// The node's number.
    pub node: u32,
    /// Names of the nodes that were in the cluster before.
    pub others: Vec<String>,
}

/// Serve.
#[derive(Clone, Debug)]
pub struct ServeSpec {
    /// The data directory, absolute.
    pub data: PathBuf,
    /// Address to listen on from now on, `ADDRESS:PORT`.
    pub listen: Option<String>,
    /// The budget of the process for all buffers and caches, in bytes; by default what the block cache and
    /// the usual rest take.
    pub memory_bytes: Option<usize>,
    /// Size of the block cache that all metadata stores share, in bytes; by default a share of memory.
    pub cache_bytes: Option<usize>,
    /// The data directory was moved here, and no other copy of it exists.
    pub moved: bool,
    /// Where the web page is.
    pub web: WebListen,
}

/// Where a server shows its web page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WebListen {
    /// Nowhere.
    Off,
    /// On loopback, if the usual port is free.
    Default,
    /// There. Beyond loopback it is private.
    At(SocketAddr),
}

/// Mount a volume of a cluster.
#[derive(Clone, Debug)]
pub struct MountSpec {
    /// Nodes to contact, `HOST:PORT`; any of them will do.
    pub servers: Vec<String>,
    /// The volume's name.
    pub volume: String,
    /// The directory of it that is mounted, if it is not the root.
    pub subdirectory: Option<String>,
    /// The mount point, absolute.
    pub mountpoint: PathBuf,
    /// What the mount table shows as its source: `HOST,HOST:/VOLUME`, as it was given.
    pub source: String,
    /// Directory with `ca.pem`, `cert.pem` and `key.pem`.
    pub credentials: PathBuf,
    /// Mount options.
    pub options: Options,
    /// The directory of the mount's control socket and log, already made and locked. It has the role that a
    /// data directory has for `shoal up`.
    pub run: PathBuf,
}
