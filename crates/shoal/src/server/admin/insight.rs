//! Mounts, work on blocks, scrubbing and locks of volumes.

use super::super::calls::{Disk, NodeReply, NodeRequest, Session};
use super::super::context::ServerContext;
use super::super::execute::retry;
use super::names;
use super::show::{bricks, chosen, seconds, state};
use crate::admin::{
    BrickDetail, BrickScrub, ClearKind, ClearedLock, ClearedReport, RebalanceState, RebalanceStep,
    RemovalState, ScrubStep, ScrubbingReport, SessionReport, SessionsReport, TaskKind, TaskReport, TaskState,
    TasksReport, VolumeDetail,
};
use crate::limits::{COUNT_PATIENCE, LEADER_PATIENCE, NODE_REPLY_WAIT_MAX};
use shoal_cluster::options::{SCRUB_PAUSED, SCRUB_STATE};
use shoal_cluster::{BrickState, Command, Outcome, Volume};
use shoal_meta::ClearLocks;
use shoal_types::{BrickId, GroupId, NodeId};
use shoal_wire::{LockKind, LockRange, LockSpace};
use std::collections::BTreeMap;

impl ServerContext {
    /// Asks the leader of a volume, while one is being elected, too.
    pub(super) fn request_from_leader_patiently(
        &self,
        volume: GroupId,
        ask: &NodeRequest,
    ) -> Result<NodeReply, String> {
        retry(LEADER_PATIENCE, || self.request_from_leader(volume, ask, NODE_REPLY_WAIT_MAX))
            .map(|(_, answer)| answer)
    }

    pub(super) fn session_reports(&self, name: Option<&str>) -> Result<Vec<SessionsReport>, String> {
        let map = self.view.map();
        let report = |(id, volume): (GroupId, &Volume)| {
            let is_started = volume.state == shoal_cluster::VolumeState::Started;
            let answer = if is_started {
                self.request_from_leader_patiently(id, &NodeRequest::Sessions { volume: id })
            } else {
                Err(format!("volume {} is not started: nothing has it mounted", volume.name))
            };
            let (sessions, trouble) = match answer {
                Ok(NodeReply::Sessions(sessions)) => (sessions, None),
                Ok(other) => (Vec::new(), Some(format!("unexpected answer: {other:?}"))),
                Err(why) => (Vec::new(), Some(why)),
            };
            let sessions = sessions.into_iter().map(|session| session_report(&map, session)).collect();
            SessionsReport { name: volume.name.clone(), sessions, trouble }
        };
        Ok(chosen(&map, name)?.into_iter().map(report).collect())
    }

    pub(super) fn task_reports(&self, name: Option<&str>) -> Result<Vec<TasksReport>, String> {
        let map = self.view.map();
        let report = |(id, volume): (GroupId, &Volume)| {
            let (tasks, trouble) = match self.tasks(id, volume) {
                Ok(tasks) => (tasks, None),
                Err(why) => (Vec::new(), Some(why)),
            };
            TasksReport { name: volume.name.clone(), tasks, trouble }
        };
        Ok(chosen(&map, name)?.into_iter().map(report).collect())
    }

    fn tasks(&self, id: GroupId, volume: &Volume) -> Result<Vec<TaskReport>, String> {
        let mut tasks = Vec::new();
        let heal = self.heal_report(&volume.name, false)?;
        let rebalance = self.rebalance(&volume.name, RebalanceStep::Status)?;
        let is_spreading = rebalance.state == RebalanceState::InProgress;
        if heal.degraded > 0 || (heal.scanning && !is_spreading) {
            tasks.push(TaskReport {
                task: TaskKind::Heal,
                brick: None,
                state: TaskState::InProgress,
                done: Some(heal.examined),
                left: Some(heal.degraded.max(heal.left)),
                copied_bytes: Some(heal.copied_bytes),
            });
        }
        let state = match rebalance.state {
            RebalanceState::NotStarted => None,
            RebalanceState::InProgress => Some(TaskState::InProgress),
            RebalanceState::Completed => Some(TaskState::Completed),
            RebalanceState::Stopped => Some(TaskState::Stopped),
        };
        tasks.extend(state.map(|state| TaskReport {
            task: TaskKind::Rebalance,
            brick: None,
            state,
            done: Some(rebalance.moved),
            left: None,
            copied_bytes: Some(rebalance.copied_bytes),
        }));
        let map = self.view.map();
        for (brick, place) in map.bricks_of(id).filter(|(_, brick)| brick.state == BrickState::Draining) {
            let left = self.blocks_left(id, brick);
            tasks.push(TaskReport {
                task: if place.replaced { TaskKind::ReplaceBrick } else { TaskKind::RemoveBrick },
                brick: Some(names::called(&map, place)),
                state: match self.removal(id, brick) {
                    RemovalState::Completed => TaskState::Completed,
                    RemovalState::NotStarted | RemovalState::InProgress => TaskState::InProgress,
                },
                done: None,
                left,
                copied_bytes: None,
            });
        }
        Ok(tasks)
    }

    /// Asks the nodes that have bricks of a volume, at once. What does not answer is left out.
    fn disks(&self, volume: GroupId, ask: &NodeRequest) -> BTreeMap<BrickId, Disk> {
        let map = self.view.map();
        let mut nodes: Vec<NodeId> = map.bricks_of(volume).map(|(_, brick)| brick.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let answers = self.request_from_nodes(&nodes, ask, NODE_REPLY_WAIT_MAX);
        let disks = |(node, answer): (NodeId, NodeReply)| match answer {
            NodeReply::Disks(disks) => disks,
            other => {
                tracing::debug!(%node, ?other, "asking about the disks of bricks");
                Vec::new()
            }
        };
        answers.into_iter().flat_map(disks).map(|disk| (disk.id, disk)).collect()
    }

    pub(super) fn details(&self, name: Option<&str>) -> Result<Vec<VolumeDetail>, String> {
        chosen(&self.view.map(), name)?;
        let reports = self.gather(false);
        let map = self.view.map();
        let detail = |(id, volume): (GroupId, &Volume)| {
            let disks = self.disks(id, &NodeRequest::Disks { volume: id });
            let used = match self.request_from_leader(id, &NodeRequest::Used { volume: id }, COUNT_PATIENCE) {
                Ok((_, NodeReply::Used(used))) => Some(used),
                _ => None,
            };
            let brick = |status: crate::admin::BrickStatus| {
                let id = BrickId(status.id);
                let disk = disks.get(&id);
                let on = used.as_ref().map(|used| used.get(&id).copied().unwrap_or_default());
                let (file_system, device) = disk.and_then(|disk| disk.mount.clone()).unzip();
                let (inodes, free_inodes) = disk.and_then(|disk| disk.inodes).unzip();
                BrickDetail {
                    status,
                    file_system,
                    device,
                    inodes,
                    free_inodes,
                    blocks: on.map(|on| on.blocks),
                    block_bytes: on.map(|on| on.bytes),
                }
            };
            VolumeDetail {
                name: volume.name.clone(),
                state: state(volume),
                bricks: bricks(&map, &reports, id).into_iter().map(brick).collect(),
            }
        };
        Ok(chosen(&map, name)?.into_iter().map(detail).collect())
    }

    pub(super) fn scrub(&self, name: &str, step: ScrubStep) -> Result<ScrubbingReport, String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        let value = match step {
            ScrubStep::Pause => Some(Some(SCRUB_PAUSED.to_owned())),
            ScrubStep::Resume => Some(None),
            ScrubStep::Status | ScrubStep::Start => None,
        };
        if let Some(value) = value {
            self.decide(&Command::SetOption { volume, key: SCRUB_STATE.into(), value })?;
        }
        let ask = match step {
            ScrubStep::Start => NodeRequest::ScrubNow { volume },
            _ => NodeRequest::Disks { volume },
        };
        let disks = self.disks(volume, &ask);
        let map = self.view.map();
        let brick = |(id, brick): (BrickId, &shoal_cluster::Brick)| {
            let disk = disks.get(&id);
            let scrub = disk.and_then(|disk| disk.scrub.clone());
            let trouble = match (disk, &scrub) {
                (None, _) => Some("its node does not answer"),
                (_, None) => Some("it is not served"),
                _ => None,
            };
            let scrub = scrub.unwrap_or_default();
            BrickScrub {
                brick: names::called(&map, brick),
                trouble: trouble.map(str::to_owned),
                reading: scrub.reading,
                rounds: scrub.rounds,
                finished: scrub.finished.map(seconds),
                blocks: scrub.blocks,
                damaged: scrub.damaged,
                repaired: scrub.repaired,
                last_error: scrub.last_error,
            }
        };
        Ok(ScrubbingReport {
            name: it.name.clone(),
            paused: map.option(volume, SCRUB_STATE).as_deref() == Some(SCRUB_PAUSED),
            bricks: map.bricks_of(volume).map(brick).collect(),
        })
    }

    pub(super) fn clear(
        &self,
        name: &str,
        path: String,
        kind: ClearKind,
        range: Option<(u64, u64)>,
    ) -> Result<ClearedReport, String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        let range = match range {
            Some((start, end)) => LockRange::new(start, end).map_err(|error| error.to_string())?,
            None => LockRange::ALL,
        };
        let what =
            ClearLocks { blocked: kind != ClearKind::Granted, granted: kind != ClearKind::Blocked, range };
        let ask = NodeRequest::ClearLocks { volume, path: path.clone(), what };
        let cleared = match self.request_from_leader_patiently(volume, &ask)? {
            NodeReply::Cleared(cleared) => cleared,
            NodeReply::Done(Outcome::Refused(why)) => return Err(why),
            other => return Err(format!("unexpected answer: {other:?}")),
        };
        let lock = |granted: bool| {
            move |one: shoal_meta::ClearedLock| ClearedLock {
                granted,
                family: match one.lock.space {
                    LockSpace::Posix => "fcntl".into(),
                    LockSpace::Flock => "flock".into(),
                    LockSpace::Mapping => "mapping".into(),
                },
                exclusive: one.lock.kind == LockKind::Write,
                start: one.lock.range.start(),
                end: Some(one.lock.range.end()).filter(|end| *end != LockRange::EOF),
                pid: one.lock.pid,
                client: one.client,
            }
        };
        let granted = cleared.granted.into_iter().map(lock(true));
        Ok(ClearedReport {
            name: it.name.clone(),
            path,
            granted_count: cleared.granted_count,
            blocked_count: cleared.blocked_count,
            locks: granted.chain(cleared.blocked.into_iter().map(lock(false))).collect(),
        })
    }
}

pub(super) fn session_report(map: &shoal_cluster::ClusterMap, session: Session) -> SessionReport {
    let Session { info, from } = session;
    let (host, mountpoint, pid) = named(&info.client);
    let (address, credentials) = from.unzip();
    SessionReport {
        session: info.session.to_string(),
        host,
        mountpoint,
        pid,
        address: address.map(|address| address.to_string()),
        credentials: credentials.map(|credentials| with_node_name(map, credentials)),
        since: seconds(info.opened),
        silent_s: info.silent_ms / 1000,
        watched: info.watched,
        exclusive: info.exclusive,
        locks: info.locks,
        locks_waiting: info.locks_waiting,
        granted_bytes: info.granted_bytes,
    }
}

/// Administrators know nodes by their names.
fn with_node_name(map: &shoal_cluster::ClusterMap, credentials: String) -> String {
    let named = map.nodes.iter().find(|(id, _)| credentials == id.to_string());
    named.map_or(credentials, |(_, node)| format!("node {}", node.name))
}

/// Machine, mount point and process of a client, from what it calls itself: `HOST:MOUNTPOINT (process PID)`.
fn named(client: &str) -> (String, Option<String>, Option<u32>) {
    let Some((host, rest)) = client.split_once(':') else { return (client.to_owned(), None, None) };
    match rest.rsplit_once(" (process ") {
        Some((point, pid)) => {
            (host.to_owned(), Some(point.to_owned()), pid.trim_end_matches(')').parse().ok())
        }
        None => (host.to_owned(), Some(rest.to_owned()), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_taken_apart_into_machine_mount_point_and_process() {
        let text = |text: &str| text.to_owned();
        assert_eq!(named("web1:/mnt/web (process 17)"), (text("web1"), Some(text("/mnt/web")), Some(17)));
        let odd = named("web1:/a (process b) (process 4)");
        assert_eq!(odd, (text("web1"), Some(text("/a (process b)")), Some(4)));
        assert_eq!(named("test"), (text("test"), None, None));
    }
}
