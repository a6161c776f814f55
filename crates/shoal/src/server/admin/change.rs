//! Requests that change something.

use super::super::calls::{NodeReply, NodeRequest};
use super::super::context::ServerContext;
use super::super::execute::retry;
use super::super::setup::new_token;
use super::names;
use crate::admin::{AdminRequest, BrickName, CredentialsReport, Token, TokenReport};
use crate::limits::{COUNT_PATIENCE, LEADER_PATIENCE, NODE_REPLY_WAIT_MAX};
use shoal_cluster::options::OP_VERSION;
use shoal_cluster::{Command, Outcome, Shards, Tolerance};
use shoal_net::{Authority, Role};
use shoal_types::{BlockScheme, GroupId, NodeId, Timestamp};
use shoal_wire::OPS_VERSION;
use std::path::PathBuf;

impl ServerContext {
    /// Carries out what is answered with nothing but success.
    pub(super) fn change(&self, request: AdminRequest, note: &mut dyn FnMut(String)) -> Result<(), String> {
        use AdminRequest as R;
        let map = self.view.map();
        let id = |name: &str| names::volume(&map, name).map(|(id, _)| id);
        let command = match request {
            R::Detach { host, force } => self.detachment(names::node(&map, &host)?, force)?,
            R::CreateVolume { name, replica, bricks, arbiters, shards, force } => {
                let arbiters: Result<Vec<_>, _> =
                    arbiters.iter().map(|host| names::node(&map, host)).collect();
                let (arbiters, bricks) = (arbiters?, self.checked_places(&bricks, force, note)?);
                let (id, time) = (GroupId(rand::random::<u128>().max(1)), Timestamp::now());
                match shards {
                    Some(shards) => {
                        let shards = shards.into();
                        Command::CreateDispersed { name, id, shards, bricks, force, time }
                    }
                    None if arbiters.is_empty() => {
                        Command::CreateVolume { name, id, replica, bricks, force, time }
                    }
                    None => Command::CreateArbitrated { name, id, bricks, arbiters, force, time },
                }
            }
            R::StartVolume { name } => Command::SetState { volume: id(&name)?, started: true },
            R::StopVolume { name } => Command::SetState { volume: id(&name)?, started: false },
            R::RenameVolume { name, to } => Command::RenameVolume { volume: id(&name)?, name: to },
            R::DeleteVolume { name } => Command::DeleteVolume { volume: id(&name)? },
            R::SetOption { name, key, value } => {
                Command::SetOption { volume: id(&name)?, key, value: Some(value) }
            }
            R::ResetOptions { name, key } => return self.reset(&name, key),
            R::AddBricks { name, bricks, force } => {
                let volume = id(&name)?;
                Command::AddBricks { volume, bricks: self.checked_places(&bricks, force, note)? }
            }
            R::ReplaceBrick { name, old, new, force } => {
                self.replacement(&name, &old, (&new, force), note)?
            }
            R::AttachTier { name, replica, shards, bricks, force } => {
                self.attachment(&name, (replica, shards), (&bricks, force), note)?
            }
            R::Convert { name, replica, shards, force } => {
                let shards = shards.map(Shards::from);
                self.check_no_other_scheme(&name, shards)?;
                let command = Command::Convert { volume: id(&name)?, replica, shards, force };
                self.allow_copies(id(&name)?, BlockScheme::new(replica, shards), &command)?;
                command
            }
            R::RevokeClient { name } => Command::RevokeClient { name },
            other => return Err(format!("a server of this version does not know {other:?}")),
        };
        if let Command::SetOption { key, value: Some(value), .. } = &command
            && key == OP_VERSION
        {
            self.check_ops_version(value)?;
        }
        let outcome = self.decide(&command)?;
        if let Outcome::Volume(volume) = outcome {
            let (key, value) = (OP_VERSION.to_owned(), OPS_VERSION.to_string());
            match self.check_ops_version(&value) {
                Ok(()) => self.decide(&Command::SetOption { volume, key, value: Some(value) }).map(drop)?,
                Err(why) => note(format!("{OP_VERSION} is 1: {why}")),
            }
        }
        if let Outcome::Volume(id) = outcome
            && let Some(survives) = Tolerance::of(&self.view.map(), id)
        {
            note(format!("without a standstill, {survives}"));
        }
        Ok(())
    }

    /// Fails unless every node's program knows this version of operations.
    fn check_ops_version(&self, value: &str) -> Result<(), String> {
        let wanted = value.parse::<u8>().unwrap_or(u8::MAX);
        let answers = self.request_from_all(&NodeRequest::OpVersion, NODE_REPLY_WAIT_MAX);
        let map = self.view.map();
        let knows = |node: &NodeId| match answers.get(node) {
            Some(NodeReply::OpVersion(known)) => *known >= wanted,
            _ => wanted <= 1,
        };
        let others: Vec<&str> =
            map.nodes.iter().filter(|(node, _)| !knows(node)).map(|(_, node)| node.name.as_str()).collect();
        match others.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{} did not say that its program knows {OP_VERSION} {value}: upgrade all nodes, then \
                 `shoal volume set NAME {OP_VERSION} {value}`",
                others.join(", ")
            )),
        }
    }

    fn reset(&self, name: &str, key: Option<String>) -> Result<(), String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        // It follows from the versions of the programs: a reset of all options leaves it alone.
        let all = || it.options.keys().filter(|key| *key != OP_VERSION).cloned().collect();
        let keys = key.map_or_else(all, |key| vec![key]);
        for key in keys {
            self.decide(&Command::SetOption { volume, key, value: None })?;
        }
        Ok(())
    }

    /// Places for new bricks, after their nodes were asked whether bricks can be made there.
    pub(super) fn checked_places(
        &self,
        bricks: &[BrickName],
        force: bool,
        note: &mut dyn FnMut(String),
    ) -> Result<Vec<(NodeId, PathBuf)>, String> {
        let map = self.view.map();
        let places = names::places(&map, bricks)?;
        let check = |node: NodeId, path: &PathBuf| {
            let ask = NodeRequest::CheckBrick { path: path.clone(), force };
            if node == self.node {
                return Ok(self.answer(&ask));
            }
            // A node that has just joined may not have been there when it was last tried to reach it.
            retry(NODE_REPLY_WAIT_MAX, || self.view.request(node, &ask, NODE_REPLY_WAIT_MAX))
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> =
                places.iter().map(|(node, path)| scope.spawn(move || check(*node, path))).collect();
            asked.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("it went wrong".into()))).collect()
        });
        let mut refusals = Vec::new();
        for (brick, answer) in bricks.iter().zip(answers) {
            match answer {
                Ok(NodeReply::Done(_)) => {}
                Ok(NodeReply::Noted(what)) => note(format!("{}: {what}", brick.host)),
                Ok(NodeReply::Failed(why)) => refusals.push(format!("{}: {why}", brick.host)),
                Ok(other) => refusals.push(format!("{}: unexpected answer: {other:?}", brick.host)),
                Err(why) => {
                    note(format!(
                        "{brick} could not be looked at ({why}); it is made when its node is there"
                    ));
                }
            }
        }
        if refusals.is_empty() { Ok(places) } else { Err(refusals.join("\n")) }
    }

    fn replacement(
        &self,
        name: &str,
        old: &BrickName,
        (new, force): (&BrickName, bool),
        note: &mut dyn FnMut(String),
    ) -> Result<Command, String> {
        let map = self.view.map();
        let (volume, _) = names::volume(&map, name)?;
        let (id, brick) = names::brick(&map, volume, old)?;
        let is_served = || {
            let reports = self.gather(false);
            let mut bricks = reports.get(&brick.node).into_iter().flat_map(|report| &report.bricks);
            let serves = bricks.any(|brick| brick.id == id && brick.offline.is_none());
            serves.then_some(()).ok_or_else(String::new)
        };
        // Its server may just be starting, or its answer may be late. Meanwhile the volume's leader notices,
        // too, that a brick does not answer.
        let online = retry(LEADER_PATIENCE, is_served).is_ok();
        if !online && !force {
            self.check_readable(name, volume, old)?;
        }
        let places = self.checked_places(std::slice::from_ref(new), force, note)?;
        let place = places.into_iter().next().ok_or("name the new brick, as HOST:/PATH")?;
        note(match online {
            true => format!(
                "what is on {old} is moved first; `shoal volume heal {name} info` shows how far that is"
            ),
            false => {
                format!("{old} is not served: it counts as gone, and its blocks are copied from elsewhere")
            }
        });
        Ok(Command::ReplaceBrick { volume, old: id, new: place, gone: !online })
    }

    /// Fails if there are blocks that cannot be read without the bricks that are away now. One of them,
    /// `old`, would be given up.
    fn check_readable(&self, name: &str, volume: GroupId, old: &BrickName) -> Result<(), String> {
        let count = || self.request_from_leader(volume, &NodeRequest::Losses { volume }, COUNT_PATIENCE);
        let losses = match retry(LEADER_PATIENCE, count)? {
            (_, NodeReply::Losses(losses)) => losses,
            (node, other) => return Err(format!("{node}: unexpected answer: {other:?}")),
        };
        let unreadable = losses.classes.iter().filter(|class| class.survives.is_none());
        match unreadable.map(|class| class.blocks).sum() {
            0 => Ok(()),
            blocks => Err(format!(
                "{old} is not served, and {blocks} blocks of volume {name} cannot be read from other bricks: bring it back \
                 first. `force` gives up what is on no other brick"
            )),
        }
    }

    /// Lets machines join.
    pub(super) fn issue_token(&self, hours: u32) -> Result<TokenReport, String> {
        let (secret, expires, command) = new_token(hours);
        self.decide(&command)?;
        let map = self.view.map();
        let fingerprint = self.authority()?.fingerprint().map_err(|error| error.to_string())?;
        // This node first: it is there.
        let mut nodes: Vec<_> = map.nodes.iter().collect();
        nodes.sort_by_key(|(id, _)| **id != self.node);
        let addresses =
            nodes.into_iter().map(|(_, node)| node.address.clone()).take(Token::ADDRESSES_MAX).collect();
        let token = Token { addresses, secret, fingerprint };
        Ok(TokenReport { token: token.to_string(), expires: expires.secs.unsigned_abs() })
    }

    /// Makes credentials for a client. The key is nowhere but in the answer.
    pub(super) fn issue_client(&self, name: &str) -> Result<CredentialsReport, String> {
        let command = Command::IssueClient { name: name.to_owned(), time: Timestamp::now() };
        match self.decide(&command)? {
            Outcome::Done => {}
            other => return Err(format!("unexpected outcome of issuing credentials: {other:?}")),
        }
        let issued = self.authority()?.issue(&Role::Client(name.to_owned()));
        let [authority, certificate, key] = issued.map_err(|error| error.to_string())?.to_pem();
        Ok(CredentialsReport { name: name.to_owned(), authority, certificate, key })
    }

    pub(in crate::server) fn authority(&self) -> Result<Authority, String> {
        let map = self.view.map();
        Authority::from_pem(self.cluster, &map.secrets.authority).map_err(|error| error.to_string())
    }
}
