//! Activity of bricks and mounts: profiles, and the busiest files and directories.

use super::super::calls::{NodeReply, NodeRequest, Session};
use super::super::context::ServerContext;
use super::insight::session_report;
use super::names;
use crate::admin::{
    BrickProfile, EventsReport, MountName, MountProfile, MountTop, ProfileReport, ProfileStep, SeenEvent,
    TopFile, TopReport,
};
use crate::limits::{NODE_REPLY_WAIT_MAX, ROUND_LOOK_EVERY, ROUND_PATIENCE, TOP_PATHS_MAX};
use crate::profile::{Profiled, Round, RoundReply, Top, TopOf, Wanted};
use shoal_cluster::{BrickState, VolumeState};
use shoal_types::{BrickId, GroupId, InodeId, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The outcome of a round.
struct Gathered {
    bricks: BTreeMap<BrickId, Profiled>,
    mounts: Vec<(MountName, RoundReply)>,
    /// Mounts that have not answered.
    silent: Vec<MountName>,
    /// Why it is not known which mounts there are.
    trouble: Option<String>,
}

impl ServerContext {
    pub(super) fn profile(&self, name: &str, step: ProfileStep) -> Result<ProfileReport, String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        let gathered = self.gather_round(volume, Wanted::Profile { marks: step == ProfileStep::Mark });
        let Gathered { mut bricks, mounts, silent, trouble } = gathered;
        let brick = |(id, brick): (BrickId, &shoal_cluster::Brick)| {
            let profiled = bricks.remove(&id);
            let trouble =
                profiled.is_none().then(|| "its node does not answer, or does not serve it".to_owned());
            BrickProfile { brick: names::called(&map, brick), profiled, trouble }
        };
        let bricks = map.bricks_of(volume).filter(|(_, brick)| brick.state != BrickState::Gone).map(brick);
        let bricks = bricks.collect();
        let mounts = mounts.into_iter().filter_map(|(mount, reply)| match reply {
            RoundReply::Profile(profiled) => Some(MountProfile { mount, profiled: *profiled }),
            RoundReply::Top(_) | RoundReply::Cleared => None,
        });
        Ok(ProfileReport { name: it.name.clone(), bricks, mounts: mounts.collect(), silent, trouble })
    }

    pub(super) fn top(&self, name: &str, of: TopOf) -> Result<TopReport, String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        let TopOf { operation, by_bytes, .. } = of.clone();
        let Gathered { mounts, silent, trouble, .. } = self.gather_round(volume, Wanted::Top(of));
        let tops: Vec<(MountName, Top)> = mounts
            .into_iter()
            .filter_map(|(mount, reply)| match reply {
                RoundReply::Top(top) => Some((mount, top)),
                RoundReply::Profile(_) | RoundReply::Cleared => None,
            })
            .collect();
        let paths = self.paths(volume, &tops);
        let mount = |(mount, top): (MountName, Top)| {
            let file = |one: crate::profile::TopInode| TopFile {
                path: paths.get(&InodeId(one.inode)).cloned(),
                inode: one.inode,
                count: one.count,
                over_max: one.over_max,
                bytes: one.bytes,
            };
            let files = top.inodes.into_iter().map(file).collect();
            MountTop { mount, duration_s: top.duration_s, files }
        };
        let mounts = tops.into_iter().map(mount).collect();
        Ok(TopReport { name: it.name.clone(), operation, by_bytes, mounts, silent, trouble })
    }

    /// The events of all nodes, beyond those that are known already.
    pub(super) fn events_of_all(&self, seen: Vec<SeenEvent>) -> EventsReport {
        let mut answers = self.request_from_all(&NodeRequest::Events { seen }, NODE_REPLY_WAIT_MAX);
        let (mut events, mut silent) = (Vec::new(), Vec::new());
        for (node, it) in &self.view.map().nodes {
            match answers.remove(node) {
                Some(NodeReply::Events(its)) => events.extend(its),
                _ => silent.push(it.name.clone()),
            }
        }
        events.sort_by_key(|event| event.at_ms);
        EventsReport { events, silent }
    }

    pub(super) fn clear_top(&self, name: &str) -> Result<TopReport, String> {
        let (volume, name) = {
            let map = self.view.map();
            let (volume, it) = names::volume(&map, name)?;
            (volume, it.name.clone())
        };
        let Gathered { mounts, silent, trouble, .. } = self.gather_round(volume, Wanted::ClearTop);
        let cleared = |(mount, _)| MountTop { mount, duration_s: 0, files: Vec::new() };
        let mounts = mounts.into_iter().map(cleared).collect();
        Ok(TopReport { name, operation: String::new(), by_bytes: false, mounts, silent, trouble })
    }

    /// Asks all bricks and mounts of a volume, and waits until all mounts have answered, or for a moment.
    fn gather_round(&self, volume: GroupId, what: Wanted) -> Gathered {
        let round = Round::new(what);
        let due = Instant::now() + ROUND_PATIENCE;
        let answers = self
            .request_from_all(&NodeRequest::BeginRound { volume, round: round.clone() }, NODE_REPLY_WAIT_MAX);
        let mut bricks = BTreeMap::new();
        for (node, answer) in answers {
            match answer {
                NodeReply::Profiles(profiles) => bricks.extend(profiles),
                other => tracing::debug!(%node, ?other, "unexpected answer"),
            }
        }
        let (sessions, trouble) = match self.sessions_of(volume) {
            Ok(sessions) => (sessions, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let mut replies = BTreeMap::new();
        let is_known = |replies: &BTreeMap<SessionId, RoundReply>, session: &Session| {
            replies.contains_key(&session.info.session)
        };
        while !sessions.iter().all(|session| is_known(&replies, session)) {
            self.take_in(volume, round.id, &mut replies);
            if Instant::now() > due {
                break;
            }
            std::thread::sleep(ROUND_LOOK_EVERY);
        }
        let (mut mounts, mut silent) = (Vec::new(), Vec::new());
        let map = self.view.map();
        for session in sessions {
            let answer = replies.remove(&session.info.session);
            let report = session_report(&map, session);
            let mount = MountName { host: report.host, mountpoint: report.mountpoint, pid: report.pid };
            match answer {
                Some(answer) => mounts.push((mount, answer)),
                None => silent.push(mount),
            }
        }
        Gathered { bricks, mounts, silent, trouble }
    }

    /// The mounts of a volume; none if it is not started.
    fn sessions_of(&self, volume: GroupId) -> Result<Vec<Session>, String> {
        let map = self.view.map();
        if map.volumes.get(&volume).is_none_or(|it| it.state != VolumeState::Started) {
            return Ok(Vec::new());
        }
        match self.request_from_leader_patiently(volume, &NodeRequest::Sessions { volume })? {
            NodeReply::Sessions(sessions) => Ok(sessions),
            other => Err(format!("unexpected answer: {other:?}")),
        }
    }

    /// Adds the answers that mounts have given to any node so far.
    fn take_in(&self, volume: GroupId, round: u64, all: &mut BTreeMap<SessionId, RoundReply>) {
        let first = self
            .request_from_all(&NodeRequest::RoundReplies { volume, round, after: None }, NODE_REPLY_WAIT_MAX);
        for (node, mut answer) in first {
            while let NodeReply::RoundReplies { mounts, complete } = answer {
                let after = mounts.last().map(|(session, _)| *session);
                all.extend(mounts);
                if complete || after.is_none() {
                    break;
                }
                let next = self.request_from_nodes(
                    &[node],
                    &NodeRequest::RoundReplies { volume, round, after },
                    NODE_REPLY_WAIT_MAX,
                );
                match next.into_values().next() {
                    Some(next) => answer = next,
                    None => break,
                }
            }
        }
    }

    /// The paths of listed inodes, as far as the volume's leader finds them.
    fn paths(&self, volume: GroupId, tops: &[(MountName, Top)]) -> BTreeMap<InodeId, String> {
        let inodes = tops.iter().flat_map(|(_, top)| top.inodes.iter().map(|one| InodeId(one.inode)));
        let inodes: BTreeSet<InodeId> = inodes.collect();
        let inodes: Vec<InodeId> = inodes.into_iter().take(TOP_PATHS_MAX).collect();
        self.paths_of(volume, inodes)
    }
}
