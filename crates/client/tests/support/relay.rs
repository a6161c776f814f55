//! A real metadata server, and something between it and a client.

#![allow(dead_code)]

use crate::support::Bricks;
use parking_lot::Mutex;
use shoal_meta::Server;
use shoal_types::{BlockId, BlockInfo, InodeId, SessionId, Statfs};
use shoal_wire::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use tempfile::TempDir;

/// A server of a new volume, its bricks, and the directory that it lives in.
pub fn server() -> (TempDir, Arc<Bricks>, Arc<Server>) {
    server_with(shoal_meta::Options::default())
}

/// A server of a new volume with these options, its bricks, and the directory that it lives in.
pub fn server_with(options: shoal_meta::Options) -> (TempDir, Arc<Bricks>, Arc<Server>) {
    let dir = tempfile::tempdir().expect("a directory");
    let bricks = Arc::new(Bricks::default());
    let options = shoal_meta::Options { create: Some(7), ..options };
    let server = Server::open(dir.path(), bricks.clone(), options).expect("a server");
    (dir, bricks, server)
}

/// Hooks between client and server, which do nothing by default.
pub trait Transport: Send + Sync + 'static {
    /// The server that requests go to.
    fn server(&self) -> &Arc<Server>;
    /// Called for any reply that is not waited for.
    fn back<T: Send + 'static>(&self, done: Done<T>) -> Done<T> {
        done
    }
    /// What the server's clock is ahead by, in seconds.
    fn ahead_secs(&self) -> i64 {
        0
    }
    /// Called for a request.
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        self.server().read(request, self.back(done));
    }
}

/// The server behind a [`Transport`].
pub struct Relay<W>(pub W);

impl<W: Transport> MetaService for Relay<W> {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        let mut opened = self.0.server().open_session(request)?;
        opened.grant.now.secs += self.0.ahead_secs();
        Ok(opened)
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.0.server().close_session(session)
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        let mut granted = self.0.server().grant(grant)?;
        granted.now.secs += self.0.ahead_secs();
        Ok(granted)
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        self.0.server().submit(commit, self.0.back(done));
    }
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        self.0.read(request, done);
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        self.0.server().acquire(acquire, self.0.back(done));
    }
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        self.0.server().recalls(poll, self.0.back(done));
    }
    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        self.0.server().lock(request, self.0.back(done));
    }
    fn reclaim(&self, reclaim: Reclaim) -> Result<(), MetaError> {
        self.0.server().reclaim(reclaim)
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.0.server().blocks(session, ids)
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.0.server().statfs(session)
    }
}

/// A server that records its requests.
pub struct Listener {
    server: Arc<Server>,
    pub asked: Mutex<Vec<Query>>,
}

impl Transport for Listener {
    fn server(&self) -> &Arc<Server> {
        &self.server
    }

    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        self.asked.lock().push(request.query.clone());
        self.server.read(request, done);
    }
}

impl Listener {
    pub fn new(server: Arc<Server>) -> Listener {
        Listener { server, asked: Mutex::default() }
    }

    /// Directories that were prefetched.
    pub fn ahead(&self) -> BTreeSet<InodeId> {
        let asked = self.asked.lock();
        let dirs = asked.iter().filter_map(|query| match query {
            Query::Walk { dirs, .. } => Some(dirs.clone()),
            _ => None,
        });
        dirs.flatten().collect()
    }

    pub fn count(&self) -> usize {
        self.asked.lock().len()
    }
}
