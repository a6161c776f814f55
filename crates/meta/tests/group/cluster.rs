//! A group of replicas with their disks, which can be crashed, started and inspected, and a client that
//! retries until it is answered.

use crate::fabric::{End, Fabric};
use crate::support::{MemBricks, VOLUME, assert_consistent, name, time};
use bytes::Bytes;
use shoal_meta::{Options, ReplicaOptions, Server, fetch_state};
use shoal_namespace::op::{NewInode, Op};
use shoal_types::{BatchSeq, FileKind, GroupId, InodeId, NodeId, ReplicaId, SessionId};
use shoal_wire::{Commit, MetaError, MetaService, PROTOCOL_VERSION, SessionRequest, encode_ops};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time for anything that should happen, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A group, its disks and its network.
pub struct Cluster {
    pub fabric: Arc<Fabric>,
    pub bricks: Arc<MemBricks>,
    pub up: BTreeMap<u64, Arc<Server>>,
    /// For replicas that are started from now on.
    pub compact_after: Option<Duration>,
    founders: Vec<u64>,
    log_bytes: u64,
    dir: tempfile::TempDir,
    postman: Option<JoinHandle<()>>,
}

impl Cluster {
    /// A group that begins with replicas 1 to `count`.
    pub fn new(count: u64) -> Cluster {
        Cluster::with_log(count, 8 << 20)
    }

    pub fn with_log(count: u64, log_bytes: u64) -> Cluster {
        let (fabric, postman) = Fabric::new();
        let mut cluster = Cluster {
            fabric,
            bricks: Arc::default(),
            up: BTreeMap::new(),
            compact_after: None,
            founders: (1..=count).collect(),
            log_bytes,
            dir: tempfile::tempdir().expect("tempdir"),
            postman: Some(postman),
        };
        for id in 1..=count {
            cluster.start(id);
        }
        cluster
    }

    pub fn dir(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("replica-{id}"))
    }

    pub fn peers(&self, id: u64) -> Arc<End> {
        Arc::new(End { fabric: self.fabric.clone(), me: id })
    }

    /// Starts a replica on its disk.
    pub fn start(&mut self, id: u64) {
        let dir = self.dir(id);
        std::fs::create_dir_all(&dir).expect("directory");
        let founders = self.founders.iter().map(|id| ReplicaId(*id)).collect();
        let replica = ReplicaOptions {
            group: GroupId(VOLUME),
            id: ReplicaId(id),
            founders: self.founders.contains(&id).then_some(founders),
            log_bytes: Some(self.log_bytes),
        };
        let options = Options {
            create: Some(VOLUME),
            session_dead_after: Some(Duration::from_secs(600)),
            compact_after: self.compact_after,
            ..Options::default()
        };
        let server = Server::open_replica(&dir, self.bricks.clone(), options, replica, self.peers(id))
            .unwrap_or_else(|error| panic!("replica {id}: {error}"));
        self.fabric.plug(id, &server);
        self.up.insert(id, server);
    }

    /// Creates a new replica from the state of the others.
    pub fn join(&mut self, id: u64) {
        let dir = self.dir(id);
        std::fs::create_dir_all(&dir).expect("directory");
        let peers = self.peers(id);
        eventually("the state is fetched", || fetch_state(&dir, &*peers, &|| false).is_ok());
        self.start(id);
    }

    /// Ends a replica as a crash does: nothing is flushed.
    pub fn crash(&mut self, id: u64) {
        self.fabric.unplug(id);
        if let Some(mut server) = self.up.remove(&id) {
            // The network's thread may be delivering a message.
            while Arc::get_mut(&mut server).is_none() {
                std::thread::yield_now();
            }
        }
    }

    /// Does the periodic work of a node: replicas that have fetched a state are opened again.
    pub fn tend(&mut self) {
        let behind = |(id, server): (&u64, &Arc<Server>)| server.replica().needs_reopening().then_some(*id);
        for id in self.up.iter().filter_map(behind).collect::<Vec<_>>() {
            self.crash(id);
            self.start(id);
        }
    }

    /// The replica that may answer for the group right now.
    pub fn leader(&self) -> Option<u64> {
        self.up.iter().find(|(_, server)| server.replica().leads()).map(|(id, _)| *id)
    }

    pub fn await_leader(&mut self) -> u64 {
        let due = Instant::now() + PATIENCE;
        loop {
            self.tend();
            if let Some(leader) = self.leader() {
                return leader;
            }
            assert!(Instant::now() < due, "there is no leader: {:#?}", self.statuses());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Transfers leadership until this replica has it.
    pub fn lead(&mut self, wanted: u64) {
        let due = Instant::now() + PATIENCE;
        while self.leader() != Some(wanted) {
            assert!(Instant::now() < due, "{wanted} does not lead: {:#?}", self.statuses());
            if let Some(leader) = self.leader() {
                self.up[&leader].replica().transfer_leadership();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn voters(&self) -> Option<Vec<u64>> {
        let status = self.up.get(&self.leader()?)?.replica().status();
        status.learners.is_empty().then(|| status.voters.iter().map(|id| id.0).collect())
    }

    /// Changes the members to these, and waits for that.
    pub fn set_wanted_members(&mut self, wanted: &[u64]) {
        let ids: Vec<ReplicaId> = wanted.iter().map(|id| ReplicaId(*id)).collect();
        let due = Instant::now() + PATIENCE;
        while self.voters().is_none_or(|voters| voters != wanted) {
            assert!(Instant::now() < due, "not {wanted:?}: {:#?}", self.statuses());
            self.tend();
            self.up.values().for_each(|server| server.replica().set_wanted_members(&ids));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn statuses(&self) -> Vec<String> {
        let show = |(id, server): (&u64, &Arc<Server>)| {
            let replica = server.replica();
            format!(
                "{id}: {:?}, applied {}, failure {:?}",
                replica.status(),
                replica.applied(),
                replica.failure()
            )
        };
        self.up.iter().map(show).collect()
    }

    /// Waits until all replicas have applied the same entries, and asserts that they hold the same bytes in a
    /// consistent state.
    pub fn assert_alike(&mut self) {
        let due = Instant::now() + PATIENCE;
        loop {
            self.tend();
            let digests: Vec<_> = self.up.values().map(|server| server.digest().expect("digest")).collect();
            if self.leader().is_some() && digests.windows(2).all(|pair| pair[0].0 == pair[1].0) {
                assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "replicas differ: {digests:?}");
                break;
            }
            assert!(Instant::now() < due, "not alike: {digests:?} {:#?}", self.statuses());
            std::thread::sleep(Duration::from_millis(20));
        }
        for server in self.up.values() {
            assert_consistent(server.replica().store());
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.fabric.stop();
        self.up.clear();
        if let Some(postman) = self.postman.take() {
            // It has panicked only if a replica did.
            let _ = postman.join();
        }
    }
}

pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let due = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < due, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A session that creates numbered files, one per batch, and retries each batch until it is committed.
pub struct Client {
    pub id: SessionId,
    pub acknowledged: u64,
    pub fill: usize,
    first_inode: u64,
    /// How many inode numbers are its own, from the first on.
    inodes: u64,
}

type Answer = Receiver<Result<(), MetaError>>;

/// Opens a session with the current leader.
pub fn open_session(cluster: &mut Cluster, client: &str, instance: u128) -> Result<Client, MetaError> {
    let due = Instant::now() + PATIENCE;
    loop {
        let leader = cluster.await_leader();
        let request =
            SessionRequest { protocol: PROTOCOL_VERSION, client: client.into(), instance, origin: None };
        match cluster.up[&leader].open_session(request) {
            Ok(opened) => {
                let (first_inode, inodes) = (opened.grant.first_inode, opened.grant.inodes);
                return Ok(Client { id: opened.session, acknowledged: 0, fill: 0, first_inode, inodes });
            }
            Err(MetaError::NotLeader { .. }) if Instant::now() < due => {}
            Err(error) => return Err(error),
        }
    }
}

pub fn file_name(number: u64) -> String {
    format!("{number:08}")
}

impl Client {
    pub fn new(cluster: &mut Cluster) -> Client {
        open_session(cluster, "host, process, mount point", 77).expect("session")
    }

    /// How many more files its inode numbers last for.
    pub fn files_left(&self) -> u64 {
        self.inodes - self.acknowledged
    }

    /// The batch that creates file `number`, from 1.
    pub fn batch(&self, number: u64) -> Commit {
        let new = NewInode {
            kind: FileKind::Regular,
            perm: 0o644,
            uid: 1,
            gid: 2,
            rdev: 0,
            target: Bytes::new(),
            time: time(7),
            generation: 1,
            xattrs: Vec::new(),
        };
        let ino = InodeId(self.first_inode + number - 1);
        let create = Op::Create { parent: InodeId::ROOT, name: name(&file_name(number)), ino, new };
        let content = number.to_le_bytes().repeat(1 + self.fill / 8);
        let write = crate::support::inline_op(ino, 0, &content);
        Commit {
            session: self.id,
            seq: BatchSeq(number),
            ops: encode_ops(&[create, write]).into(),
            born: Vec::new(),
            gone: Vec::new(),
        }
    }

    pub fn send(&self, server: &Server, number: u64) -> Answer {
        let (tell, answer) = channel();
        let done = move |reply: Result<_, MetaError>| drop(tell.send(reply.map(drop)));
        server.submit(self.batch(number), Box::new(done));
        answer
    }

    /// Sends the next batches, several at once, to the current leader. Answers how many were acknowledged; an
    /// error is one that no change of leadership explains.
    pub fn try_write(&mut self, cluster: &mut Cluster, count: u64) -> Result<u64, MetaError> {
        let Some(server) = cluster.leader().and_then(|leader| cluster.up.get(&leader)) else { return Ok(0) };
        let numbers = self.acknowledged + 1..=self.acknowledged + count;
        let answers: Vec<Answer> = numbers.map(|number| self.send(server, number)).collect();
        let before = self.acknowledged;
        for answer in answers {
            match await_answer(cluster, &answer) {
                Ok(()) => self.acknowledged += 1,
                // The rest is retried, whether or not it is committed now.
                Err(MetaError::NotLeader { .. } | MetaError::Unavailable(_)) => break,
                Err(MetaError::OutOfOrder { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.acknowledged - before)
    }

    /// Writes so many files, however long it takes.
    pub fn write(&mut self, cluster: &mut Cluster, count: u64) {
        let (end, due) = (self.acknowledged + count, Instant::now() + PATIENCE);
        while self.acknowledged < end {
            cluster.tend();
            let some = (end - self.acknowledged).min(16);
            let done = self.try_write(cluster, some).unwrap_or_else(|error| panic!("{error}"));
            assert!(Instant::now() < due, "no progress: {:#?}", cluster.statuses());
            if done == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Asserts that everything acknowledged is there, once, and nothing that was not sent.
    pub fn assert_all_there(&self, cluster: &mut Cluster) {
        let leader = cluster.await_leader();
        let server = &cluster.up[&leader];
        let root = server.inode(self.id, InodeId::ROOT).expect("root");
        assert!(root.inode.entries >= self.acknowledged, "{} of {}", root.inode.entries, self.acknowledged);
        for number in 1..=root.inode.entries {
            let found = server.lookup(self.id, InodeId::ROOT, &name(&file_name(number))).expect("lookup");
            let (_, file) = found.found.unwrap_or_else(|| panic!("file {number} is lost"));
            assert_eq!(file.inode.size as usize, 8 * (1 + self.fill / 8), "file {number}");
        }
    }
}

/// Waits for an answer, and meanwhile does the periodic work of a node: without it, a majority may lack a
/// member.
fn await_answer(cluster: &mut Cluster, answer: &Answer) -> Result<(), MetaError> {
    let due = Instant::now() + PATIENCE;
    loop {
        match answer.recv_timeout(Duration::from_millis(20)) {
            Ok(answer) => return answer,
            Err(_) => assert!(Instant::now() < due, "no answer: {:#?}", cluster.statuses()),
        }
        cluster.tend();
    }
}

/// The leader that an error names.
pub fn redirected(error: &MetaError) -> Option<NodeId> {
    match error {
        MetaError::NotLeader { leader } => *leader,
        _ => None,
    }
}
