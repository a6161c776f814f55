//! Dispatches the requests of other machines to services, after checking that the sender may make them.

use super::access::not_started;
use super::calls::{Answer, Ask, pack, unpack};
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
                let polled = |session| self.heard.note(group, session, peer);
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
            self.view.heard_from(group, from, *node);
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
        let ask: Ask = unpack(body).map_err(|error| Refusal::Failed(error.to_string()))?;
        if let Ask::Map { epoch } = ask {
            let map = self.view.map();
            let newer = (map.epoch > epoch).then(|| match peer.role {
                Some(Role::Node(_)) => map.encode(),
                _ => map.view().encode(),
            });
            return Ok(pack(&Answer::Map(newer)));
        }
        if let Ask::Round { volume, .. } | Ask::Tell { volume, .. } | Ask::Lost { volume, .. } = &ask {
            self.access.volume(peer, *volume)?;
            return Ok(pack(&self.answer_mount(ask, body.len())));
        }
        if let Ask::BrickIdentity { brick } = ask {
            return self.brick_identity(peer, brick).map(|answer| pack(&answer));
        }
        self.access.node(peer)?;
        Ok(pack(&self.answer(&ask)))
    }

    /// For a mount on this machine, which may read the brick's files if it may read its blocks.
    fn brick_identity(&self, peer: &Peer, id: BrickId) -> Result<Answer, Refusal> {
        let refused = || Refusal::Failed("the brick is not served here".into());
        let volume = self.view.map().bricks.get(&id).map(|brick| brick.volume).ok_or_else(refused)?;
        self.access.volume(peer, volume)?;
        self.bricks.identity(id).map(Answer::BrickIdentity).ok_or_else(refused)
    }

    /// Answers a request of another node, or of this one.
    pub(super) fn answer(&self, ask: &Ask) -> Answer {
        match ask {
            Ask::Map { epoch } => {
                let map = self.view.map();
                Answer::Map((map.epoch > *epoch).then(|| map.encode()))
            }
            Ask::Execute(command) => self.execute_here(command),
            Ask::Report { digest } => Answer::Report(self.report(*digest)),
            Ask::OpVersion => Answer::OpVersion(OPS_VERSION),
            Ask::CheckBrick { path, force } => match self.bricks.check_new_place(path, *force) {
                Ok(None) => Answer::Done(Outcome::Done),
                Ok(Some(note)) => Answer::Noted(note),
                Err(why) => Answer::Failed(why),
            },
            Ask::Heal { volume } => self.heal(*volume, false),
            Ask::HealFull { volume } => self.heal(*volume, true),
            Ask::BlocksOn { volume, brick } => self.blocks_on(*volume, *brick),
            Ask::Members { group } => match self.groups.led_members(*group) {
                Some(members) => Answer::Members(members),
                None => Answer::NotLeader(self.groups.leader_node(*group)),
            },
            Ask::Sessions { volume } => self.sessions(*volume),
            Ask::ClearLocks { volume, path, what } => self.clear_locks(*volume, path, *what),
            Ask::Used { volume } => self.used(*volume),
            Ask::Disks { volume } => Answer::Disks(self.bricks.disks(&self.view.map(), *volume)),
            Ask::ScrubNow { volume } => {
                let map = self.view.map();
                self.bricks.scrub_now(&map, *volume);
                Answer::Disks(self.bricks.disks(&map, *volume))
            }
            Ask::BeginRound { volume, round } => self.begin_round(*volume, round),
            Ask::Told { volume, round, after } => self.rounds.told(*volume, *round, *after),
            Ask::Paths { volume, inodes } => {
                self.led(*volume, |group| group.server().paths(inodes).map(Answer::Paths))
            }
            Ask::Tiers { volume } => {
                self.led(*volume, |group| group.server().tier_state().map(Answer::Tiers))
            }
            Ask::TierPlan { volume } => {
                self.led(*volume, |group| group.server().tier_plan().map(Answer::TierPlan))
            }
            Ask::Schemes { volume } => {
                self.led(*volume, |group| group.server().schemes().map(Answer::Schemes))
            }
            Ask::Losses { volume } => self.led(*volume, |group| group.server().losses().map(Answer::Losses)),
            Ask::Pin { volume, ino } => {
                self.led(*volume, |group| group.server().pin_of(*ino).map(Answer::Pin))
            }
            Ask::SchemeOf { volume, ino } => {
                self.led(*volume, |group| group.server().scheme_of(*ino).map(Answer::SchemeOf))
            }
            Ask::Events { seen } => Answer::Events(self.events.after(seen)),
            Ask::Clock => Answer::Clock { now_ms: now_ms() },
            Ask::Round { .. } | Ask::Tell { .. } | Ask::Lost { .. } | Ask::BrickIdentity { .. } => {
                Answer::Failed("only mounts may send this request".into())
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
    fn ask(&self, _: shoal_wire::Ask, done: Done<AskReply>) {
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
