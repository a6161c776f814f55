//! A metadata server that can be made to keep silent.

use crate::world::Group;
use parking_lot::{Condvar, Mutex};
use shoal_types::{BlockId, BlockInfo, Cookie, InodeId, Name, SessionId, Statfs};
use shoal_wire::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Gate {
    group: Arc<Group>,
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn new(group: Arc<Group>) -> Arc<Gate> {
        Arc::new(Gate { group, shut: Mutex::new(false), opened: Condvar::new() })
    }

    /// From now on every read waits.
    pub fn shut(&self) {
        *self.shut.lock() = true;
    }

    pub fn open(&self) {
        *self.shut.lock() = false;
        self.opened.notify_all();
    }

    fn pass(&self) -> &Group {
        let mut shut = self.shut.lock();
        // Not for ever: a test that goes wrong should fail, not hang.
        let patience = Instant::now() + Duration::from_secs(10);
        while *shut && !self.opened.wait_until(&mut shut, patience).timed_out() {}
        &self.group
    }
}

impl MetaService for Gate {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        self.group.open_session(request)
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.group.close_session(session)
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        self.group.grant(grant)
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        self.group.submit(commit, done);
    }
    fn lookup(&self, session: SessionId, dir: InodeId, name: &Name) -> Result<LookupReply, MetaError> {
        self.pass().lookup(session, dir, name)
    }
    fn list(
        &self,
        session: SessionId,
        dir: InodeId,
        after: Cookie,
        prefetch: Prefetch,
        bytes_max: usize,
    ) -> Result<ListReply, MetaError> {
        self.pass().list(session, dir, after, prefetch, bytes_max)
    }
    fn inode(&self, session: SessionId, ino: InodeId) -> Result<FileRecord, MetaError> {
        self.pass().inode(session, ino)
    }
    fn extents(
        &self,
        session: SessionId,
        ino: InodeId,
        start: u64,
        end: u64,
        count_max: usize,
    ) -> Result<ExtentsReply, MetaError> {
        self.pass().extents(session, ino, start, end, count_max)
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.group.blocks(session, ids)
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.pass().statfs(session)
    }
}
