//! The services of other machines, across the [network](crate::network).

use crate::network::{Network, Once, OneThread, once};
use crate::scheduler::Machine;
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_client::Replicas;
use shoal_meta::{Peers, Server};
use shoal_runtime::channel;
use shoal_types::{BlockId, BlockInfo, NodeId, ReplicaId, SessionId, Statfs};
use shoal_wire::{
    Acquire, AcquireReply, Commit, CommitDone, Done, Grant, GrantReply, LockReply, LockRequest, MetaError,
    MetaService, OpenReply, Poll, ReadReply, ReadRequest, Recalls, Reclaim, SessionRequest,
};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a call waits for its answer, as in `shoal_net`.
const CALL_WAIT_MAX: Duration = Duration::from_secs(10);

/// The servers that run, by machine, and the machines that should have one.
#[derive(Clone, Default)]
pub struct Servers(Arc<Mutex<BTreeMap<Machine, Arc<Server>>>>, Arc<Mutex<Vec<Machine>>>);

impl Servers {
    /// The machines that have a replica of the volume's metadata.
    pub fn members(&self) -> Vec<Machine> {
        self.1.lock().clone()
    }

    /// Sets the machines that have a replica.
    pub fn set_members(&self, members: Vec<Machine>) {
        *self.1.lock() = members;
    }

    /// The server on a machine.
    pub fn get(&self, machine: Machine) -> Option<Arc<Server>> {
        self.0.lock().get(&machine).cloned()
    }

    /// The server on a machine has started.
    pub fn put(&self, machine: Machine, server: Arc<Server>) {
        self.0.lock().insert(machine, server);
    }

    /// The server on a machine has stopped.
    pub fn remove(&self, machine: Machine) -> Option<Arc<Server>> {
        self.0.lock().remove(&machine)
    }
}

/// One machine's end of a connection to another's server.
#[derive(Clone)]
struct Line {
    network: Rc<Network>,
    servers: Servers,
    pair: (Machine, Machine),
}

fn tell<A>(done: &Once<Done<A>>, answer: Result<A, MetaError>) {
    let taken = done.lock().take();
    if let Some(done) = taken {
        done(answer);
    }
}

impl Line {
    fn call<A: 'static>(
        &self,
        ordered: bool,
        name: &'static str,
        serve: impl FnOnce(&Arc<Server>, Done<A>) + 'static,
        done: Done<A>,
    ) {
        let done = once(done);
        let (failing, line) = (done.clone(), self.clone());
        let fail = Box::new(move |error| tell(&failing, Err(error)));
        let serve = move |number: u64| {
            let (network, pair) = (line.network.clone(), line.pair);
            let way_back = OneThread((network, done));
            let answer: Done<A> = Box::new(move |answer| {
                let (network, done) = way_back.take();
                network.answer(pair, number, name, Box::new(move || tell(&done, answer)));
            });
            match line.servers.get(line.pair.1) {
                Some(server) => serve(&server, answer),
                None => answer(Err(MetaError::Unavailable("no server runs there".into()))),
            }
        };
        self.network.request(self.pair, ordered, name, serve, fail);
    }

    /// Calls, and waits for the answer.
    fn wait_for<A: Send + 'static>(
        &self,
        name: &'static str,
        serve: impl FnOnce(&Server) -> Result<A, MetaError> + 'static,
    ) -> Result<A, MetaError> {
        let (tell, told) = channel::bounded(1);
        let done: Done<A> = Box::new(move |answer| _ = tell.send(answer));
        self.call(false, name, move |server, done| done(serve(server)), done);
        told.recv_timeout(CALL_WAIT_MAX).unwrap_or_else(|_| Err(MetaError::Unavailable("no answer".into())))
    }
}

/// A metadata server on another machine, of a volume whose inline limit is the given number of bytes.
pub struct Remote(OneThread<Line>, u32);

impl MetaService for Remote {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        let opened = self.0.0.wait_for("open-session", move |server| server.open_session(request))?;
        Ok(OpenReply { inline_bytes: self.1, ..opened })
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.0.0.wait_for("close-session", move |server| server.close_session(session))
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        self.0.0.wait_for("grant", move |server| server.grant(grant))
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        self.0.0.call(true, "submit", move |server, done| server.submit(commit, done), done);
    }
    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        self.0.0.call(false, "read", move |server, done| server.read(request, done), done);
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        self.0.0.call(false, "acquire", move |server, done| server.acquire(acquire, done), done);
    }
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        self.0.0.call(false, "recalls", move |server, done| server.recalls(poll, done), done);
    }
    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        self.0.0.call(false, "lock", move |server, done| server.lock(request, done), done);
    }
    fn reclaim(&self, reclaim: Reclaim) -> Result<(), MetaError> {
        self.0.0.wait_for("reclaim", move |server| server.reclaim(reclaim))
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        let ids = ids.to_vec();
        self.0.0.wait_for("blocks", move |server| server.blocks(session, &ids))
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.0.0.wait_for("statfs", move |server| server.statfs(session))
    }
}

/// The replicas of the world's volume, as one machine sees them.
pub struct Group {
    me: Machine,
    line: OneThread<(Rc<Network>, Servers)>,
    inline_bytes: u32,
}

impl Group {
    /// For a client on this machine.
    pub fn seen_from(me: Machine, network: &Rc<Network>, servers: &Servers, inline_bytes: u32) -> Group {
        Group { me, line: OneThread((network.clone(), servers.clone())), inline_bytes }
    }
}

impl Replicas for Group {
    fn all(&self) -> Vec<(NodeId, Arc<dyn MetaService>)> {
        let (network, servers) = &self.line.0;
        let stub = |node: Machine| {
            let line = Line { network: network.clone(), servers: servers.clone(), pair: (self.me, node) };
            (NodeId(node), Arc::new(Remote(OneThread(line), self.inline_bytes)) as Arc<dyn MetaService>)
        };
        servers.members().into_iter().map(stub).collect()
    }
    fn refresh(&self) {}
}

/// The other replicas, as one of them sees them. Replica `n` is on machine `n`.
pub struct NetworkPeers {
    me: Machine,
    line: OneThread<(Rc<Network>, Servers)>,
}

impl NetworkPeers {
    /// For the replica on this machine.
    pub fn seen_from(me: Machine, network: &Rc<Network>, servers: &Servers) -> NetworkPeers {
        NetworkPeers { me, line: OneThread((network.clone(), servers.clone())) }
    }
}

impl Peers for NetworkPeers {
    fn send(&self, to: ReplicaId, message: Bytes) {
        let (network, servers) = (&self.line.0.0, self.line.0.1.clone());
        let (from, to) = (self.me, to.0 as Machine);
        network.send(from, to, "raft", move || {
            if let Some(server) = servers.get(to) {
                server.replica().receive(ReplicaId(u64::from(from)), &message);
            }
        });
    }

    fn request(&self, to: ReplicaId, request: Bytes) -> Result<Bytes, String> {
        let (network, servers) = self.line.0.clone();
        let line = Line { network, servers, pair: (self.me, to.0 as Machine) };
        let answer = line.wait_for("state", move |server| {
            server.replica().answer(&request).map_err(MetaError::Unavailable)
        });
        answer.map_err(|error| error.to_string())
    }

    fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        Some(NodeId(replica.0 as u32))
    }

    fn others(&self) -> Vec<ReplicaId> {
        let members = self.line.0.1.members();
        members.into_iter().filter(|node| *node != self.me).map(|node| ReplicaId(u64::from(node))).collect()
    }
}
