//! A metadata server that can be made to withhold replies, to omit inodes, or to lose leadership.

use crate::world::Group;
use parking_lot::{Condvar, Mutex};
use shoal_client::Replicas;
use shoal_types::{BlockId, BlockInfo, Name, NodeId, SessionId, Statfs};
use shoal_wire::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest wait of a held request.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Gate {
    group: Arc<Group>,
    shut: Mutex<Shut>,
    opened: Condvar,
    waiting: AtomicUsize,
    grant_max: AtomicU64,
    /// Listings come without the inode of this name.
    bare: Mutex<Option<Name>>,
    deposed: AtomicBool,
}

/// The kinds of requests that are held.
#[derive(Clone, Copy, Default)]
struct Shut {
    reads: bool,
    inodes: bool,
    grants: bool,
}

impl Gate {
    pub fn new(group: Arc<Group>) -> Arc<Gate> {
        Arc::new(Gate {
            group,
            shut: Mutex::default(),
            opened: Condvar::new(),
            waiting: AtomicUsize::new(0),
            grant_max: AtomicU64::new(u64::MAX),
            bare: Mutex::default(),
            deposed: AtomicBool::new(false),
        })
    }

    /// From now on every read waits.
    pub fn shut(&self) {
        self.shut.lock().reads = true;
    }

    /// From now on listings come without the inode of this name, and requests for inodes wait.
    pub fn list_bare(&self, name: &str) {
        *self.bare.lock() = Some(Name::try_from(name).expect("a name"));
        self.shut.lock().inodes = true;
    }

    /// From now on no rights or room are granted: without room every change waits.
    pub fn shut_grants(&self) {
        self.shut.lock().grants = true;
    }

    /// From now on at most this many bytes are granted at once.
    pub fn grant_at_most(&self, bytes: u64) {
        self.grant_max.store(bytes, Ordering::SeqCst);
    }

    /// The number of held requests.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub fn open(&self) {
        *self.shut.lock() = Shut::default();
        self.opened.notify_all();
    }

    /// From now on this server does not lead, and no other one does.
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
        self.wait_while(|shut| shut.reads);
        self.leads()
    }

    fn wait_while(&self, is_shut: impl Fn(&Shut) -> bool) {
        let mut shut = self.shut.lock();
        if !is_shut(&shut) {
            return;
        }
        // The wait is bounded: a test that goes wrong should fail, not hang.
        let patience = Instant::now() + PATIENCE;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while is_shut(&shut) && !self.opened.wait_until(&mut shut, patience).timed_out() {}
        self.waiting.fetch_sub(1, Ordering::SeqCst);
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
    fn grant(&self, mut grant: Grant) -> Result<GrantReply, MetaError> {
        grant.space.want_bytes = grant.space.want_bytes.min(self.grant_max.load(Ordering::SeqCst));
        self.wait_while(|shut| shut.grants);
        self.leads()?.grant(grant)
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        match self.leads() {
            Ok(group) => group.submit(commit, done),
            Err(error) => done(Err(error)),
        }
    }
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        if matches!(request.query, Query::Inode(_) | Query::Lookup { .. }) {
            self.wait_while(|shut| shut.inodes);
        }
        let bare = self.bare.lock().clone();
        let done: Done<ReadReply> = Box::new(move |reply| {
            done(reply.map(|mut reply| {
                if let Found::List(page) = &mut reply.found {
                    let entries = page.entries.iter_mut();
                    let its = entries.filter(|entry| bare.as_ref() == Some(&entry.name));
                    its.for_each(|entry| entry.record = None);
                }
                reply
            }));
        });
        match self.pass() {
            Ok(group) => group.read(request, done),
            Err(error) => done(Err(error)),
        }
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        match self.pass() {
            Ok(group) => group.acquire(acquire, done),
            Err(error) => done(Err(error)),
        }
    }
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        match self.leads() {
            Ok(group) => group.recalls(poll, done),
            Err(error) => done(Err(error)),
        }
    }
    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        match self.leads() {
            Ok(group) => group.lock(request, done),
            Err(error) => done(Err(error)),
        }
    }
    fn reclaim(&self, declaration: Reclaim) -> Result<(), MetaError> {
        self.leads()?.reclaim(declaration)
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.leads()?.blocks(session, ids)
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.pass()?.statfs(session)
    }
}
