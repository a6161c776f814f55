//! A connection to a server that can be cut.

#![allow(dead_code)]

use parking_lot::Mutex;
use shoal_client::Replicas;
use shoal_meta::Server;
use shoal_types::{BlockId, BlockInfo, NodeId, SessionId, Statfs};
use shoal_wire::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// The connection to a server, which can be cut: then neither requests nor replies get through.
pub struct Cut {
    server: Arc<Server>,
    cut: AtomicBool,
    /// Batches are discarded; all other requests get through.
    swallows: AtomicBool,
    /// All requests are denied for this reason.
    denial: Mutex<Option<Denial>>,
    /// Epoch of the map that the client knows.
    epoch: AtomicU64,
}

/// The only replica.
pub struct Only(pub Arc<Cut>);

impl Replicas for Only {
    fn all(&self) -> Vec<(NodeId, Arc<dyn MetaService>)> {
        vec![(NodeId(1), Arc::new(Connection(self.0.clone())))]
    }
    fn refresh(&self) {}
    fn epoch(&self) -> u64 {
        self.0.epoch.load(SeqCst)
    }
}

impl Cut {
    pub fn new(server: Arc<Server>) -> Arc<Cut> {
        let (cut, swallows) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Cut { server, cut, swallows, denial: Mutex::default(), epoch: AtomicU64::new(0) })
    }

    /// Sets whether batches are discarded.
    pub fn swallow(&self, swallows: bool) {
        self.swallows.store(swallows, SeqCst);
    }

    pub fn set(&self, cut: bool) {
        self.cut.store(cut, SeqCst);
    }

    /// The server denies all requests of the client, or serves it again.
    pub fn deny(&self, reason: Option<Reason>, epoch: u64) {
        let denial = |reason| Denial { reason, epoch, detail: format!("{reason:?}") };
        *self.denial.lock() = reason.map(denial);
    }

    /// The client knows this epoch.
    pub fn knows(&self, epoch: u64) {
        self.epoch.store(epoch, SeqCst);
    }

    fn reach(&self) -> Result<&Server, MetaError> {
        if let Some(denial) = self.denial.lock().clone() {
            return Err(MetaError::Denied(denial));
        }
        match self.cut.load(SeqCst) {
            true => Err(MetaError::Unavailable("cut off".into())),
            false => Ok(&self.server),
        }
    }

    fn back<T>(&self, answer: Result<T, MetaError>) -> Result<T, MetaError> {
        self.reach().and(answer)
    }

    /// Carries a reply, unless the connection has been cut in the meantime.
    fn carry<T: 'static>(self: &Arc<Cut>, done: Done<T>) -> Done<T> {
        let cut = self.clone();
        Box::new(move |answer| done(cut.back(answer)))
    }
}

/// The connection to the server.
struct Connection(Arc<Cut>);

impl MetaService for Connection {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        self.0.back(self.0.reach()?.open_session(request))
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.0.back(self.0.reach()?.close_session(session))
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        self.0.back(self.0.reach()?.grant(grant))
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        match self.0.reach() {
            Ok(_) if self.0.swallows.load(SeqCst) => {}
            Ok(server) => server.submit(commit, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        match self.0.reach() {
            Ok(server) => server.read(request, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        match self.0.reach() {
            Ok(server) => server.acquire(acquire, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        match self.0.reach() {
            Ok(server) => server.recalls(poll, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        match self.0.reach() {
            Ok(server) => server.lock(request, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn reclaim(&self, reclaim: Reclaim) -> Result<(), MetaError> {
        self.0.back(self.0.reach()?.reclaim(reclaim))
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.0.back(self.0.reach()?.blocks(session, ids))
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.0.back(self.0.reach()?.statfs(session))
    }
}
