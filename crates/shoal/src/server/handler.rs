//! Dispatches the requests of other machines to services, after checking that the sender may make them.

use super::access::not_started;
use super::calls::{NodeReply, NodeRequest, pack, unpack};
use super::context::ServerContext;
use super::events::now_ms;
use super::peers::addressed;
use crate::admin::EventKind;
use bytes::Bytes;
use shoal_cluster::Outcome;
use shoal_net::remote::{serve_brick, serve_meta, serve_meta_noting};
use shoal_net::{Handler, Peer, Replier, Role, Service};
use shoal_types::{BlockId, BlockInfo, BrickId, GroupId, SessionId, Statfs};
use shoal_wire::*;
use std::net::SocketAddr;

impl Handler for ServerContext {
    fn handle(&self, peer: &Peer, service: Service, body: Bytes, reply: Replier) {
        if let Err(why) = self.serves() {
            return match service {
                Service::Meta(_) => serve_meta(&NotHere, "", &body, reply),
                _ => reply.refuse(&why),
            };
        }
        let served = match service {
            Service::Meta(group) => return self.meta(peer, group, &body, reply),
            Service::Brick(brick) => return self.brick(peer, brick, &body, reply),
            Service::Replica(group) => return self.replica(peer, group, &body, reply),
            Service::Cluster => self.cluster(peer, &body),
            Service::Join => self.join(peer, &body).map_err(Refusal::Failed),
        };
        match served {
            Ok(answer) => reply.answer(vec![answer]),
            Err(Refusal::Failed(why)) => reply.refuse(&why),
            Err(Refusal::Denied(denial)) => reply.deny(&denial),
        }
    }

    fn refused(&self, address: SocketAddr, why: &str) {
        let text = format!("a connection from {address} was refused: {why}");
        self.events.note(EventKind::Refused, None, &text);
    }
}

/// Why a request is not served.
enum Refusal {
    /// It cannot be carried out here and now, or is malformed.
    Failed(String),
    /// The cluster map forbids it.
    Denied(Denial),
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Refusal {
        Refusal::Denied(denial)
    }
}

impl ServerContext {
    fn meta(&self, peer: &Peer, group: GroupId, body: &Bytes, reply: Replier) {
        let admitted = self.access.volume(peer, group);
        // A mount on a node shows the node's certificate, and only mounts send metadata requests.
        if let Some(denial) = admitted.err().or_else(|| not_started(&self.view.map(), group)) {
            return reply.deny(&denial);
        }
        let certificate = peer.role.as_ref().map_or_else(String::new, Role::to_string);
        match self.view.local_meta(group) {
            Some(meta) => {
                let polled = |session| self.session_addresses.note(group, session, peer);
                serve_meta_noting(&*meta, &certificate, body, reply, &polled);
            }
            // Sent as a metadata reply, so that the client can tell a volume that is not here from a node
            // that is down.
            None => serve_meta(&NotHere, &certificate, body, reply),
        }
    }

    fn brick(&self, peer: &Peer, id: BrickId, body: &Bytes, reply: Replier) {
        let map = self.view.map();
        let Some(brick) = map.bricks.get(&id) else { return reply.refuse("there is no such brick here") };
        let admitted = self.access.volume(peer, brick.volume);
        // Nodes heal a stopped volume, too.
        let is_node = matches!(peer.role, Some(Role::Node(_)));
        let stopped = not_started(&map, brick.volume).filter(|_| !is_node);
        if let Some(denial) = admitted.err().or(stopped) {
            return reply.deny(&denial);
        }
        match self.view.local_brick(id) {
            Some(brick) => serve_brick(&*brick, body, reply),
            None => reply.refuse("the brick is not served at the moment"),
        }
    }

    /// A message between replicas or, if a reply is expected, a request.
    fn replica(&self, peer: &Peer, group: GroupId, body: &Bytes, reply: Replier) {
        if let Err(denial) = self.access.node(peer) {
            return reply.deny(&denial);
        }
        if peer.run.is_none() {
            return reply.refuse("only a node's server may speak for a replica");
        }
        let Some((from, to, message)) = addressed(body) else {
            return reply.refuse("the message is cut off");
        };
        let Some(replica) = self.groups.find(group, to) else {
            return reply.refuse(&format!("{to} does not run here"));
        };
        if let Some(Role::Node(node)) = &peer.role {
            self.view.record_sender(group, from, *node);
        }
        if !reply.is_wanted() {
            return replica.receive(from, &message);
        }
        match replica.answer(&message) {
            Ok(answer) => reply.answer(vec![answer]),
            Err(why) => reply.refuse(&why),
        }
    }

    fn cluster(&self, peer: &Peer, body: &Bytes) -> Result<Bytes, Refusal> {
        self.access.member(peer)?;
        let ask: NodeRequest = unpack(body).map_err(|error| Refusal::Failed(error.to_string()))?;
        if let NodeRequest::Map { epoch } = ask {
            let map = self.view.map();
            let newer = (map.epoch > epoch).then(|| match peer.role {
                Some(Role::Node(_)) => map.encode(),
                _ => map.view().encode(),
            });
            return Ok(pack(&NodeReply::Map(newer)));
        }
        if let NodeRequest::Round { volume, .. }
        | NodeRequest::SubmitRoundReply { volume, .. }
        | NodeRequest::Lost { volume, .. } = &ask
        {
            self.access.volume(peer, *volume)?;
            return Ok(pack(&self.answer_mount(ask, body.len())));
        }
        if let NodeRequest::BrickIdentity { brick } = ask {
            return self.brick_identity(peer, brick).map(|answer| pack(&answer));
        }
        self.access.node(peer)?;
        Ok(pack(&self.answer(&ask)))
    }

    /// For a mount on this machine, which may read the brick's files if it may read its blocks.
    fn brick_identity(&self, peer: &Peer, id: BrickId) -> Result<NodeReply, Refusal> {
        let refused = || Refusal::Failed("the brick is not served here".into());
        let volume = self.view.map().bricks.get(&id).map(|brick| brick.volume).ok_or_else(refused)?;
        self.access.volume(peer, volume)?;
        self.bricks.identity(id).map(NodeReply::BrickIdentity).ok_or_else(refused)
    }

    /// Answers a request of another node, or of this one.
    pub(super) fn answer(&self, ask: &NodeRequest) -> NodeReply {
        match ask {
            NodeRequest::Map { epoch } => {
                let map = self.view.map();
                NodeReply::Map((map.epoch > *epoch).then(|| map.encode()))
            }
            NodeRequest::Execute(command) => self.execute_here(command),
            NodeRequest::Report { digest } => NodeReply::Report(self.report(*digest)),
            NodeRequest::OpVersion => NodeReply::OpVersion(OPS_VERSION),
            NodeRequest::CheckBrick { path, force } => match self.bricks.check_new_place(path, *force) {
                Ok(None) => NodeReply::Done(Outcome::Done),
                Ok(Some(note)) => NodeReply::Noted(note),
                Err(why) => NodeReply::Failed(why),
            },
            NodeRequest::Heal { volume } => self.heal(*volume, false),
            NodeRequest::HealFull { volume } => self.heal(*volume, true),
            NodeRequest::BlocksOn { volume, brick } => self.blocks_on(*volume, *brick),
            NodeRequest::Members { group } => match self.groups.led_members(*group) {
                Some(members) => NodeReply::Members(members),
                None => NodeReply::NotLeader(self.groups.leader_node(*group)),
            },
            NodeRequest::Sessions { volume } => self.sessions(*volume),
            NodeRequest::ClearLocks { volume, path, what } => self.clear_locks(*volume, path, *what),
            NodeRequest::Used { volume } => self.used(*volume),
            NodeRequest::Disks { volume } => NodeReply::Disks(self.bricks.disks(&self.view.map(), *volume)),
            NodeRequest::ScrubNow { volume } => {
                let map = self.view.map();
                self.bricks.scrub_now(&map, *volume);
                NodeReply::Disks(self.bricks.disks(&map, *volume))
            }
            NodeRequest::BeginRound { volume, round } => self.begin_round(*volume, round),
            NodeRequest::RoundReplies { volume, round, after } => {
                self.rounds.replies(*volume, *round, *after)
            }
            NodeRequest::Paths { volume, inodes } => {
                self.led(*volume, |group| group.server().paths(inodes).map(NodeReply::Paths))
            }
            NodeRequest::Tiers { volume } => {
                self.led(*volume, |group| group.server().tier_state().map(NodeReply::Tiers))
            }
            NodeRequest::TierPlan { volume } => {
                self.led(*volume, |group| group.server().tier_plan().map(NodeReply::TierPlan))
            }
            NodeRequest::Schemes { volume } => {
                self.led(*volume, |group| group.server().schemes().map(NodeReply::Schemes))
            }
            NodeRequest::Losses { volume } => {
                self.led(*volume, |group| group.server().losses().map(NodeReply::Losses))
            }
            NodeRequest::Rebalance { volume } => {
                self.led(*volume, |group| Ok(NodeReply::Rebalance(group.server().rebalance_status())))
            }
            NodeRequest::Pin { volume, ino } => {
                self.led(*volume, |group| group.server().pin_of(*ino).map(NodeReply::Pin))
            }
            NodeRequest::SchemeOf { volume, ino } => {
                self.led(*volume, |group| group.server().scheme_of(*ino).map(NodeReply::SchemeOf))
            }
            NodeRequest::IsCleared { brick } => match self.bricks.is_cleared(*brick) {
                Ok(is_cleared) => NodeReply::IsCleared(is_cleared),
                Err(why) => NodeReply::Failed(why),
            },
            NodeRequest::Sweep { volume } => self.led(*volume, |group| {
                group.server().sweep();
                Ok(NodeReply::Done(Outcome::Done))
            }),
            NodeRequest::Copy { volume, request } => {
                NodeReply::Copied(self.blocks_to_copy(*volume).serve_copy(request))
            }
            NodeRequest::Events { seen } => NodeReply::Events(self.events.after(seen)),
            NodeRequest::Clock => NodeReply::Clock { now_ms: now_ms() },
            NodeRequest::Round { .. }
            | NodeRequest::SubmitRoundReply { .. }
            | NodeRequest::Lost { .. }
            | NodeRequest::BrickIdentity { .. } => {
                NodeReply::Failed("only mounts may send this request".into())
            }
        }
    }
}

/// The metadata service of a volume of which this node keeps no replica.
struct NotHere;

impl NotHere {
    fn error<T>(&self) -> Result<T, MetaError> {
        Err(MetaError::NotLeader { leader: None })
    }
}

impl MetaService for NotHere {
    fn open_session(&self, _: SessionRequest) -> Result<OpenReply, MetaError> {
        self.error()
    }
    fn close_session(&self, _: SessionId) -> Result<(), MetaError> {
        self.error()
    }
    fn grant(&self, _: Grant) -> Result<GrantReply, MetaError> {
        self.error()
    }
    fn submit(&self, _: Commit, done: CommitDone) {
        done(self.error());
    }
    fn read(&self, _: shoal_wire::ReadRequest, done: Done<ReadReply>) {
        done(self.error());
    }
    fn acquire(&self, _: Acquire, done: Done<AcquireReply>) {
        done(self.error());
    }
    fn recalls(&self, _: Poll, done: Done<Recalls>) {
        done(self.error());
    }
    fn lock(&self, _: shoal_wire::LockRequest, done: Done<shoal_wire::LockReply>) {
        done(self.error());
    }
    fn reclaim(&self, _: Reclaim) -> Result<(), MetaError> {
        self.error()
    }
    fn blocks(&self, _: SessionId, _: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.error()
    }
    fn statfs(&self, _: SessionId) -> Result<Statfs, MetaError> {
        self.error()
    }
}
