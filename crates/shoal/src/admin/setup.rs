//! What a machine is told when it becomes a server, serves, or mounts: the parts of command lines that the server's code acts on.

use super::{Token, TokenReport};
use crate::options::Options;
use std::path::PathBuf;

/// Begin a cluster with this machine: makes a server's data directory. The server itself is started afterwards.
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

/// What came of [`Init`].
#[derive(Clone, Debug)]
pub struct Begun {
    /// The cluster's identity, 32 hexadecimal digits.
    pub cluster: String,
    /// With this other machines can join.
    pub token: TokenReport,
}

/// Join a cluster with this machine: makes a server's data directory. The server itself is started afterwards.
#[derive(Clone, Debug)]
pub struct Join {
    /// The data directory, absolute; must not hold anything yet.
    pub data: PathBuf,
    /// The right to do so.
    pub token: Token,
    /// The node's name.
    pub name: String,
    /// Where the other machines reach this one, `HOST:PORT`.
    pub address: String,
    /// Where to listen, `ADDRESS:PORT`.
    pub listen: String,
}

/// What came of [`Join`].
#[derive(Clone, Debug)]
pub struct Joined {
    /// The cluster's identity, 32 hexadecimal digits.
    pub cluster: String,
    /// The node's number.
    pub node: u32,
    /// Names of the nodes that were there already.
    pub others: Vec<String>,
}

/// Serve.
#[derive(Clone, Debug)]
pub struct ServeSpec {
    /// The data directory, absolute.
    pub data: PathBuf,
    /// Listen there from now on, `ADDRESS:PORT`.
    pub listen: Option<String>,
    /// Bytes of the block cache of all metadata stores; by default a share of memory.
    pub cache_bytes: Option<usize>,
    /// The data directory was moved here, and this is the only one of its node.
    pub moved: bool,
}

/// Mount a volume of a cluster.
#[derive(Clone, Debug)]
pub struct MountSpec {
    /// Nodes to ask, `HOST:PORT`; any of them will do.
    pub servers: Vec<String>,
    /// The volume's name.
    pub volume: String,
    /// The directory of it that is mounted, if it is not the root.
    pub subdirectory: Option<String>,
    /// Where, absolute.
    pub mountpoint: PathBuf,
    /// What the mount table shows as its source: `HOST,HOST:/VOLUME`, as it was given.
    pub source: String,
    /// Directory with `ca.pem`, `cert.pem` and `key.pem`.
    pub credentials: PathBuf,
    /// Mount options.
    pub options: Options,
    /// The directory of the mount's control socket and log, already made and locked: what
    /// a data directory is for `shoal up`.
    pub run: PathBuf,
}
