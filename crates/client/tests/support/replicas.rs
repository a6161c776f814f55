//! Several replicas of a metadata group, which share their state and have one leader at a time. With a seed,
//! they misbehave: they lose requests, carry them out and lose the reply, keep replies back until another
//! replica leads, or say nothing.

#![allow(dead_code)]

use crate::support::Group;
use parking_lot::{Condvar, Mutex};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use shoal_client::Replicas;
use shoal_namespace::{Command, Outcome};
use shoal_types::{BatchSeq, BlockId, BlockInfo, NodeId, SessionId, Statfs};
use shoal_wire::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

thread_local! {
    /// This thread calls back.
    static CALLS_BACK: Cell<bool> = const { Cell::new(false) };
}

/// The replicas of a metadata group in memory.
pub struct Cluster {
    pub group: Arc<Group>,
    shared: Arc<Shared>,
    replicas: Vec<Arc<Replica>>,
    pub refreshed: AtomicUsize,
}

struct Shared {
    group: Arc<Group>,
    state: Mutex<State>,
    /// The leader has changed.
    moved: Condvar,
}

struct State {
    leader: Option<usize>,
    moves: u64,
    dice: StdRng,
    /// Whether faults happen.
    faults: bool,
    opened: HashMap<u128, OpenReply>,
    /// Batches that changed something, in order.
    applied: Vec<BatchSeq>,
}

pub struct Replica {
    index: usize,
    shared: Arc<Shared>,
    inbox: Mutex<Sender<(Commit, CommitDone)>>,
    /// Accepts batches without an answer, while it leads.
    pub mute: Arc<AtomicBool>,
}

impl Cluster {
    /// Three replicas, of which the first leads.
    pub fn new(seed: u64) -> Arc<Cluster> {
        let group = Group::new(4096);
        let state = State {
            leader: Some(0),
            moves: 0,
            dice: StdRng::seed_from_u64(seed),
            faults: false,
            opened: HashMap::new(),
            applied: Vec::new(),
        };
        let shared =
            Arc::new(Shared { group: group.clone(), state: Mutex::new(state), moved: Condvar::new() });
        let replica = |index| {
            let (inbox, commits) = channel();
            let (mute, of) = (Arc::new(AtomicBool::new(false)), shared.clone());
            let muted = mute.clone();
            std::thread::spawn(move || of.serve(index, &muted, commits));
            Arc::new(Replica { index, shared: shared.clone(), inbox: Mutex::new(inbox), mute })
        };
        let replicas = (0..3).map(replica).collect();
        Arc::new(Cluster { group, shared, replicas, refreshed: AtomicUsize::new(0) })
    }

    pub fn lead(&self, leader: Option<usize>) {
        let mut state = self.shared.state.lock();
        state.leader = leader;
        state.moves += 1;
        self.shared.moved.notify_all();
    }

    /// Changes the leader without waking the threads that wait for a change.
    pub fn lead_quietly(&self, leader: usize) {
        self.shared.state.lock().leader = Some(leader);
    }

    pub fn set_faults(&self, faults: bool) {
        self.shared.state.lock().faults = faults;
    }

    pub fn replica(&self, index: usize) -> &Replica {
        &self.replicas[index]
    }

    pub fn applied(&self) -> Vec<BatchSeq> {
        self.shared.state.lock().applied.clone()
    }

    /// Until this is dropped, another replica leads all the time, or none, with faults.
    pub fn unrest(self: &Arc<Self>) -> Unrest {
        self.set_faults(true);
        let (cluster, over) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let ends = over.clone();
        let mover = std::thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                let (leader, pause) = {
                    let dice = &mut cluster.shared.state.lock().dice;
                    (dice.random_range(0..9usize), dice.random_range(1..40))
                };
                cluster.lead((leader < 8).then_some(leader % 3));
                std::thread::sleep(Duration::from_millis(pause));
            }
            cluster.set_faults(false);
            cluster.lead(Some(1));
        });
        Unrest { over, mover: Some(mover) }
    }
}

/// Ends the unrest when dropped.
pub struct Unrest {
    over: Arc<AtomicBool>,
    mover: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Unrest {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.mover.take().expect("once").join().expect("the mover does not panic");
    }
}

impl Replicas for Cluster {
    fn all(&self) -> Vec<(NodeId, Arc<dyn MetaService>)> {
        self.replicas.iter().map(|one| (NodeId(one.index as u32), one.clone() as _)).collect()
    }
    fn refresh(&self) {
        self.refreshed.fetch_add(1, Ordering::SeqCst);
    }
}

enum Fault {
    /// The request is lost.
    Lost,
    /// It is carried out, and the reply is lost.
    AnswerLost,
    /// It is carried out, and the reply comes after the next change of leaders.
    AnswerLate,
    /// There is no reply until the leader changes.
    Silence,
}

impl Shared {
    /// Whether a replica leads, and what goes wrong.
    fn leads(&self, index: usize) -> Result<Option<Fault>, MetaError> {
        let mut state = self.state.lock();
        if state.leader != Some(index) {
            let leader = state.leader.map(|leader| NodeId(leader as u32));
            return Err(MetaError::NotLeader { leader });
        }
        if !state.faults {
            return Ok(None);
        }
        Ok(match state.dice.random_range(0..40) {
            0 => Some(Fault::Lost),
            1 => Some(Fault::AnswerLost),
            2 => Some(Fault::AnswerLate),
            3 => Some(Fault::Silence),
            _ => None,
        })
    }

    /// Carries out a request that waits for its reply.
    fn run<T>(&self, index: usize, run: impl FnOnce() -> Result<T, MetaError>) -> Result<T, MetaError> {
        let lost = || Err(MetaError::Unavailable("lost by the test".into()));
        match self.leads(index)? {
            None => run(),
            Some(Fault::Lost | Fault::Silence) => lost(),
            Some(Fault::AnswerLost | Fault::AnswerLate) => {
                run()?;
                lost()
            }
        }
    }

    fn wait_for_move(&self) {
        let mut state = self.state.lock();
        let moves = state.moves;
        while state.moves == moves {
            self.moved.wait(&mut state);
        }
    }

    fn serve(self: Arc<Self>, index: usize, mute: &AtomicBool, commits: Receiver<(Commit, CommitDone)>) {
        CALLS_BACK.set(true);
        let mut late: Vec<(CommitDone, Result<CommitReply, MetaError>)> = Vec::new();
        for (commit, done) in commits {
            if mute.load(Ordering::SeqCst) {
                self.wait_for_move();
            }
            match self.leads(index) {
                Err(error) => {
                    late.drain(..).for_each(|(done, outcome)| done(outcome));
                    done(Err(error));
                }
                Ok(None) => done(self.commit(commit)),
                Ok(Some(Fault::Lost)) => done(Err(MetaError::Unavailable("lost".into()))),
                Ok(Some(Fault::AnswerLost)) => {
                    let _ = self.commit(commit);
                    done(Err(MetaError::Unavailable("the answer is lost".into())));
                }
                Ok(Some(Fault::AnswerLate)) => late.push((done, self.commit(commit))),
                Ok(Some(Fault::Silence)) => {
                    self.wait_for_move();
                    done(Err(MetaError::Unavailable("silence".into())));
                }
            }
        }
    }

    fn commit(&self, commit: Commit) -> Result<CommitReply, MetaError> {
        let (session, seq) = (commit.session, commit.seq);
        let mut state = self.state.lock();
        match self.group.apply(Command::batch(session, seq, commit.ops)) {
            Outcome::Applied { seq: last } => {
                if last == seq && state.applied.last() < Some(&seq) {
                    state.applied.push(seq);
                }
                Ok(CommitReply { seq: last })
            }
            Outcome::OutOfOrder { expected } => Err(MetaError::OutOfOrder { expected }),
            Outcome::Fenced { session } => Err(MetaError::Fenced(session)),
            other => panic!("{seq:?}: {other:?}"),
        }
    }
}

impl MetaService for Replica {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        self.shared.run(self.index, || {
            if let Some(reply) = self.shared.state.lock().opened.get(&request.instance) {
                return Ok(reply.clone());
            }
            let reply = self.shared.group.open_session(request.clone())?;
            self.shared.state.lock().opened.insert(request.instance, reply.clone());
            Ok(reply)
        })
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.shared.run(self.index, || self.shared.group.close_session(session))
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        self.shared.run(self.index, || self.shared.group.grant(grant))
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        assert!(!CALLS_BACK.get(), "submitted from within a callback");
        self.inbox.lock().send((commit, done)).unwrap_or_else(|_| panic!("a replica's thread lives"));
    }
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        done(self.shared.run(self.index, || wait_for(|done| self.shared.group.read(request.clone(), done))));
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        done(
            self.shared.run(self.index, || wait_for(|done| self.shared.group.acquire(acquire.clone(), done))),
        );
    }
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        done(self.shared.run(self.index, || wait_for(|done| self.shared.group.recalls(poll.clone(), done))));
    }
    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        done(self.shared.run(self.index, || wait_for(|done| self.shared.group.lock(request.clone(), done))));
    }
    fn reclaim(&self, _: Reclaim) -> Result<(), MetaError> {
        self.shared.run(self.index, || Ok(()))
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.shared.run(self.index, || self.shared.group.blocks(session, ids))
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.shared.run(self.index, || self.shared.group.statfs(session))
    }
}
