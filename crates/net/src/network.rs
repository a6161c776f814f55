//! This process's side of the network: credentials, links to peers, and listeners.

use crate::credentials::{Credentials, CredentialsError, Role};
use crate::limits::{CORES_PER_IO_THREAD, IO_THREADS_MAX};
use crate::link::Link;
use crate::listener::{Handler, Listener};
use crate::membership::Membership;
use crate::outcome::Traffic;
use crate::tls;
use parking_lot::Mutex;
use shoal_types::Incarnation;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio_rustls::rustls::ClientConfig;

/// What a link is for: bulk data must not hold up small messages, so they have connections of their own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lane {
    /// Metadata, administration.
    Requests,
    /// Messages between replicas.
    Replicas,
    /// Blocks.
    Blocks,
}

/// Credentials, links and the I/O threads of one process.
pub struct Network {
    /// Taken when dropped: a runtime must not end on one of its own threads.
    runtime: Option<Runtime>,
    credentials: Option<Credentials>,
    config: Arc<ClientConfig>,
    cluster: u128,
    membership: Arc<Membership>,
    links: Mutex<HashMap<(String, Lane), Arc<Link>>>,
}

impl Network {
    /// For a member of a cluster.
    pub fn new(cluster: u128, credentials: Credentials) -> Result<Arc<Network>, CredentialsError> {
        let config = tls::client(&credentials)?;
        Network::with(cluster, Some(credentials), config, Membership::new(None))
    }

    /// For a node's server, of which this process is one run.
    pub fn server(
        cluster: u128,
        credentials: Credentials,
        run: Incarnation,
    ) -> Result<Arc<Network>, CredentialsError> {
        let config = tls::client(&credentials)?;
        let own = match credentials.role() {
            Role::Node(node) => Some((*node, run)),
            Role::Client(_) => None,
        };
        Network::with(cluster, Some(credentials), config, Membership::new(own))
    }

    /// For a machine that wants to join the cluster whose authority has this fingerprint.
    pub fn unauthenticated(authority: &str) -> Result<Arc<Network>, CredentialsError> {
        Network::with(0, None, tls::unauthenticated(authority)?, Membership::new(None))
    }

    fn with(
        cluster: u128,
        credentials: Option<Credentials>,
        config: Arc<ClientConfig>,
        membership: Arc<Membership>,
    ) -> Result<Arc<Network>, CredentialsError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads((cores / CORES_PER_IO_THREAD).clamp(1, IO_THREADS_MAX))
            .thread_name("shoal-net")
            .enable_all()
            .build()
            .map_err(|cause| CredentialsError::Io { path: "network threads".into(), cause })?;
        Ok(Arc::new(Network {
            runtime: Some(runtime),
            credentials,
            config,
            cluster,
            membership,
            links: Mutex::default(),
        }))
    }

    /// This process's role; `None` without a certificate.
    pub fn role(&self) -> Option<&Role> {
        self.credentials.as_ref().map(Credentials::role)
    }

    /// Which runs of nodes' servers may connect.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// The link to an address (`HOST:PORT`), which connects when it is used.
    pub fn link(&self, address: &str, lane: Lane) -> Arc<Link> {
        let mut links = self.links.lock();
        let start = || {
            Link::start(self.runtime(), address, self.config.clone(), self.cluster, self.membership.clone())
        };
        links.entry((address.to_owned(), lane)).or_insert_with(start).clone()
    }

    /// Bytes sent and received, and requests made, over all links.
    pub fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for link in self.links.lock().values() {
            let one = link.traffic();
            sum.sent_bytes += one.sent_bytes;
            sum.received_bytes += one.received_bytes;
            sum.requests += one.requests;
        }
        sum
    }

    /// Listens at an address and hands requests to a handler.
    pub fn listen(&self, address: SocketAddr, handler: Arc<dyn Handler>) -> io::Result<Listener> {
        let credentials = self.credentials.as_ref().ok_or(io::ErrorKind::PermissionDenied)?;
        let config = tls::server(credentials).map_err(io::Error::other)?;
        Listener::start(self.runtime(), address, config, self.cluster, self.membership.clone(), handler)
    }

    fn runtime(&self) -> &tokio::runtime::Handle {
        self.runtime.as_ref().expect("the runtime ends with the network").handle()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
