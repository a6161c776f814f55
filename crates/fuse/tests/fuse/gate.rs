//! A metadata server that can be made to keep silent, or to lead no more.

use crate::world::Group;
use parking_lot::{Condvar, Mutex};
use shoal_client::Replicas;
use shoal_types::{BlockId, BlockInfo, Cookie, InodeId, Name, NodeId, SessionId, Statfs};
use shoal_wire::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub struct Gate {
    group: Arc<Group>,
    shut: Mutex<bool>,
    opened: Condvar,
    deposed: AtomicBool,
}

impl Gate {
    pub fn new(group: Arc<Group>) -> Arc<Gate> {
        Arc::new(Gate {
            group,
            shut: Mutex::new(false),
            opened: Condvar::new(),
            deposed: AtomicBool::new(false),
        })
    }

    /// From now on every read waits.
    pub fn shut(&self) {
        *self.shut.lock() = true;
    }

    pub fn open(&self) {
        *self.shut.lock() = false;
        self.opened.notify_all();
    }

    /// From now on it does not lead, and nobody else does.
    pub fn depose(&self) {
        self.deposed.store(true, Ordering::SeqCst);
    }

    fn leads(&self) -> Result<&Group, MetaError> {
        match self.deposed.load(Ordering::SeqCst) {
            true => Err(MetaError::NotLeader { leader: None }),
            false => Ok(&self.group),
        }
    }

    fn pass(&self) -> Result<&Group, MetaError> {
        let mut shut = self.shut.lock();
        // Not for ever: a test that goes wrong should fail, not hang.
        let patience = Instant::now() + Duration::from_secs(10);
        while *shut && !self.opened.wait_until(&mut shut, patience).timed_out() {}
        self.leads()
    }
}

/// The only replica of its group.
pub struct Lone(pub Arc<Gate>);

impl Replicas for Lone {
    fn all(&self) -> Vec<(NodeId, Arc<dyn MetaService>)> {
        vec![(NodeId(1), self.0.clone())]
    }
    fn refresh(&self) {}
}

impl MetaService for Gate {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        self.leads()?.open_session(request)
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.leads()?.close_session(session)
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        self.leads()?.grant(grant)
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        match self.leads() {
            Ok(group) => group.submit(commit, done),
            Err(error) => done(Err(error)),
        }
    }
    fn lookup(&self, session: SessionId, dir: InodeId, name: &Name) -> Result<LookupReply, MetaError> {
        self.pass()?.lookup(session, dir, name)
    }
    fn list(
        &self,
        session: SessionId,
        dir: InodeId,
        after: Cookie,
        prefetch: Prefetch,
        bytes_max: usize,
    ) -> Result<ListReply, MetaError> {
        self.pass()?.list(session, dir, after, prefetch, bytes_max)
    }
    fn inode(&self, session: SessionId, ino: InodeId) -> Result<FileRecord, MetaError> {
        self.pass()?.inode(session, ino)
    }
    fn extents(
        &self,
        session: SessionId,
        ino: InodeId,
        start: u64,
        end: u64,
        count_max: usize,
    ) -> Result<ExtentsReply, MetaError> {
        self.pass()?.extents(session, ino, start, end, count_max)
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.leads()?.blocks(session, ids)
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.pass()?.statfs(session)
    }
}
