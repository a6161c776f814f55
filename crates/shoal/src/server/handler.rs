//! Requests of other machines: who may make them, and who answers.

use super::calls::{Answer, Ask, pack, unpack};
use super::core::Core;
use super::peers::addressed;
use bytes::Bytes;
use shoal_cluster::{Outcome, VolumeState};
use shoal_net::remote::{serve_brick, serve_meta};
use shoal_net::{Handler, Peer, Replier, Role, Service};
use shoal_types::{BlockId, BlockInfo, BrickId, GroupId, SessionId, Statfs};
use shoal_wire::*;

impl Handler for Core {
    fn handle(&self, peer: &Peer, service: Service, body: Bytes, reply: Replier) {
        if let Err(why) = self.serves() {
            return match service {
                Service::Meta(_) => serve_meta(&Closed(MetaError::NotLeader { leader: None }), &body, reply),
                _ => reply.refuse(&why),
            };
        }
        let served = match service {
            Service::Meta(group) => return self.meta(peer, group, &body, reply),
            Service::Brick(brick) => return self.brick(peer, brick, &body, reply),
            Service::Replica(group) => return self.replica(peer, group, &body, reply),
            Service::Cluster => self.cluster(peer, &body),
            Service::Join => self.join(peer, &body),
        };
        match served {
            Ok(answer) => reply.answer(vec![answer]),
            Err(why) => reply.refuse(&why),
        }
    }
}

impl Core {
    fn meta(&self, peer: &Peer, group: GroupId, body: &Bytes, reply: Replier) {
        // As an answer of the service, so that whoever asked can tell a volume that is away from a node that is.
        if let Err(error) = self.meta_access(peer, group) {
            return serve_meta(&Closed(error), body, reply);
        }
        match self.directory.local_meta(group) {
            Some(meta) => serve_meta(&*meta, body, reply),
            None => serve_meta(&Closed(MetaError::NotLeader { leader: None }), body, reply),
        }
    }

    fn meta_access(&self, peer: &Peer, group: GroupId) -> Result<(), MetaError> {
        self.access.volume(peer, group).map_err(MetaError::Unavailable)?;
        match self.directory.map().volumes.get(&group).map(|volume| volume.state) {
            // This node may not have heard of it yet.
            None => Err(MetaError::NotLeader { leader: None }),
            Some(VolumeState::Started) => Ok(()),
            Some(_) => Err(MetaError::Unavailable("the volume is stopped".into())),
        }
    }

    fn brick(&self, peer: &Peer, id: BrickId, body: &Bytes, reply: Replier) {
        let map = self.directory.map();
        let Some(brick) = map.bricks.get(&id) else { return reply.refuse("there is no such brick here") };
        if let Err(why) = self.access.volume(peer, brick.volume) {
            return reply.refuse(&why);
        }
        let started =
            map.volumes.get(&brick.volume).is_some_and(|volume| volume.state == VolumeState::Started);
        if !started && !matches!(peer.role, Some(Role::Node(_))) {
            return reply.refuse("the volume is stopped");
        }
        match self.directory.local_brick(id) {
            Some(brick) => serve_brick(&*brick, body, reply),
            None => reply.refuse("the brick is not served at the moment"),
        }
    }

    /// A message between replicas, or, if an answer is wanted, a question.
    fn replica(&self, peer: &Peer, group: GroupId, body: &Bytes, reply: Replier) {
        if let Err(why) = self.access.node(peer) {
            return reply.refuse(&why);
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
            self.directory.heard_from(group, from, *node);
        }
        if !reply.is_wanted() {
            return replica.receive(from, &message);
        }
        match replica.answer(&message) {
            Ok(answer) => reply.answer(vec![answer]),
            Err(why) => reply.refuse(&why),
        }
    }

    fn cluster(&self, peer: &Peer, body: &Bytes) -> Result<Bytes, String> {
        self.access.member(peer)?;
        let ask: Ask = unpack(body).map_err(|error| error.to_string())?;
        if let Ask::Map { epoch } = ask {
            let map = self.directory.map();
            let newer = (map.epoch > epoch).then(|| match peer.role {
                Some(Role::Node(_)) => map.encode(),
                _ => map.view().encode(),
            });
            return Ok(pack(&Answer::Map(newer)));
        }
        self.access.node(peer)?;
        Ok(pack(&self.answer(&ask)))
    }

    /// Answers what another node, or this one, asks.
    pub(super) fn answer(&self, ask: &Ask) -> Answer {
        match ask {
            Ask::Map { epoch } => {
                let map = self.directory.map();
                Answer::Map((map.epoch > *epoch).then(|| map.encode()))
            }
            Ask::Execute(command) => self.execute_here(command),
            Ask::Report { digest } => Answer::Report(self.report(*digest)),
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
        }
    }
}

/// A metadata service that refuses everything for one reason.
struct Closed(MetaError);

impl MetaService for Closed {
    fn open_session(&self, _: SessionRequest) -> Result<OpenReply, MetaError> {
        Err(self.0.clone())
    }
    fn close_session(&self, _: SessionId) -> Result<(), MetaError> {
        Err(self.0.clone())
    }
    fn grant(&self, _: Grant) -> Result<GrantReply, MetaError> {
        Err(self.0.clone())
    }
    fn submit(&self, _: Commit, done: CommitDone) {
        done(Err(self.0.clone()));
    }
    fn ask(&self, _: shoal_wire::Ask, done: Done<AskReply>) {
        done(Err(self.0.clone()));
    }
    fn acquire(&self, _: Acquire, done: Done<AcquireReply>) {
        done(Err(self.0.clone()));
    }
    fn recalls(&self, _: Poll, done: Done<Recalls>) {
        done(Err(self.0.clone()));
    }
    fn lock(&self, _: shoal_wire::LockRequest, done: Done<shoal_wire::LockReply>) {
        done(Err(self.0.clone()));
    }
    fn declare(&self, _: Declaration) -> Result<(), MetaError> {
        Err(self.0.clone())
    }
    fn blocks(&self, _: SessionId, _: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        Err(self.0.clone())
    }
    fn statfs(&self, _: SessionId) -> Result<Statfs, MetaError> {
        Err(self.0.clone())
    }
}
