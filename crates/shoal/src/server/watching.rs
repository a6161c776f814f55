//! Detects events, for [`super::events`]: polls the state of the node, and compares it with the last one.
//!
//! **Model.** Each node watches its own replicas, bricks and healers. The leader of the cluster map's group
//! also polls the other nodes, and compares their clocks with its own. A new leader assumes at first that all
//! nodes are up.

use super::calls::{NodeReply, NodeRequest};
use super::context::ServerContext;
use super::events::now_ms;
use super::healing::to_move;
use super::statistics::volume_name;
use crate::admin::EventKind;
use crate::limits::{
    BRICK_FULL_PERCENT, BRICK_ROOM_PERCENT, CLOCK_OFF_MS, EVENTS_LOOK_EVERY, NODE_DOWN_AFTER, REPORT_PATIENCE,
};
use shoal_meta::{HealStatus, HealTask};
use shoal_types::{BrickId, GroupId, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

/// The state at the last poll.
#[derive(Default)]
struct Seen {
    leads: BTreeSet<GroupId>,
    bricks: BTreeMap<BrickId, BrickSeen>,
    heals: BTreeMap<GroupId, HealSeen>,
    nodes: BTreeMap<NodeId, NodeSeen>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct BrickSeen {
    online: bool,
    full: bool,
}

/// The activity of a healer.
#[derive(Clone, Copy, Default)]
struct HealSeen {
    active: bool,
    /// Blocks that had been copied when it began.
    moved_before: u64,
    moved: u64,
}

#[derive(Clone, Copy, Default)]
struct NodeSeen {
    /// The number of polls in a row without an answer.
    missed: u32,
    clock_off: bool,
}

impl ServerContext {
    /// Starts the thread that watches.
    pub(super) fn watch(self: &Arc<ServerContext>) -> std::io::Result<JoinHandle<()>> {
        let context = self.clone();
        std::thread::Builder::new().name("shoal-events".into()).spawn(move || {
            context.events.note(EventKind::ServerStarted, None, "the server has started");
            let (mut seen, mut pokes) = (Seen::default(), 0);
            let mut next = Instant::now() + EVENTS_LOOK_EVERY;
            while !context.stop.load(Ordering::Acquire) {
                pokes = context.view.wait(pokes, next.saturating_duration_since(Instant::now()));
                if Instant::now() < next {
                    continue;
                }
                if context.view.fence().is_some() {
                    return;
                }
                context.look(&mut seen);
                next = Instant::now() + EVENTS_LOOK_EVERY;
            }
        })
    }

    fn look(&self, seen: &mut Seen) {
        let map = self.view.map();
        let groups = map.volumes.keys().copied().chain([GroupId::CLUSTER]);
        let leads: BTreeSet<GroupId> = groups.filter(|group| self.groups.leads(*group)).collect();
        for group in leads.difference(&seen.leads) {
            let volume = Some(volume_name(&map, *group)).filter(|name| !name.is_empty());
            let what =
                volume.as_ref().map_or_else(|| "the cluster map".into(), |name| format!("volume {name}"));
            let text = format!("this node leads the metadata of {what} from now on");
            self.events.note(EventKind::LeaderChanged, volume.as_deref(), &text);
        }
        seen.leads = leads;
        self.look_at_volumes(seen);
        self.look_at_bricks(seen);
        match seen.leads.contains(&GroupId::CLUSTER) {
            true => self.look_at_nodes(seen),
            false => seen.nodes.clear(),
        }
    }

    fn look_at_volumes(&self, seen: &mut Seen) {
        let map = self.view.map();
        seen.heals.retain(|volume, _| seen.leads.contains(volume));
        for volume in seen.leads.iter().filter(|volume| **volume != GroupId::CLUSTER) {
            let Some(group) = self.opener.volume(*volume) else { continue };
            let name = volume_name(&map, *volume);
            for ended in group.server().take_ended() {
                self.events.note(EventKind::SessionEnded, Some(&name), &ended);
            }
            let heal = seen.heals.entry(*volume).or_default();
            for (kind, text) in heal.look(&group.server().heal_status()) {
                self.events.note(kind, Some(&name), &format!("volume {name}: {text}"));
            }
        }
    }

    fn look_at_bricks(&self, seen: &mut Seen) {
        let map = self.view.map();
        let mut bricks = BTreeMap::new();
        for report in self.bricks.reports() {
            let Some(brick) = map.bricks.get(&report.id) else { continue };
            let before = seen.bricks.get(&report.id).copied();
            let used_percent = match report.total_bytes {
                0 => 0,
                total => (total - report.free_bytes.min(total)) * 100 / total,
            };
            let now = BrickSeen {
                online: report.offline.is_none(),
                full: is_full(before.is_some_and(|before| before.full), report.total_bytes, used_percent),
            };
            let (volume, name) = (volume_name(&map, brick.volume), map.brick_name(report.id));
            let why = report.offline.unwrap_or_default();
            for (kind, text) in brick_events(before, now) {
                let detail = match kind {
                    EventKind::BrickOffline => format!(": {why}"),
                    EventKind::BrickFull | EventKind::BrickRoom => format!(": {used_percent}% are in use"),
                    _ => String::new(),
                };
                self.events.note(kind, Some(&volume), &format!("brick {name} {text}{detail}"));
            }
            // No event for a brick that is being opened.
            if now.online || before.is_some() {
                bricks.insert(report.id, now);
            }
        }
        seen.bricks = bricks;
    }

    fn look_at_nodes(&self, seen: &mut Seen) {
        let map = self.view.map();
        let others: Vec<NodeId> = map.nodes.keys().copied().filter(|node| *node != self.node).collect();
        seen.nodes.retain(|node, _| map.nodes.contains_key(node));
        let sent_ms = now_ms();
        let answers = self.request_from_nodes(&others, &NodeRequest::Clock, REPORT_PATIENCE);
        let got_ms = now_ms();
        // An older version refuses the request, but is up.
        let silent: Vec<NodeId> = others.iter().copied().filter(|node| !answers.contains_key(node)).collect();
        let up = match silent.is_empty() || self.stop.load(Ordering::Acquire) {
            true => BTreeMap::new(),
            false => self.request_from_nodes(&silent, &NodeRequest::Map { epoch: u64::MAX }, REPORT_PATIENCE),
        };
        for node in others {
            let clock = match answers.get(&node) {
                Some(NodeReply::Clock { now_ms }) => Some(*now_ms),
                _ => None,
            };
            let is_up = clock.is_some() || up.contains_key(&node);
            let name = map.nodes.get(&node).map_or_else(String::new, |node| node.name.clone());
            for (kind, text) in seen.nodes.entry(node).or_default().look(is_up, clock, (sent_ms, got_ms)) {
                self.events.note(kind, None, &format!("node {name} {text}"));
            }
        }
    }
}

/// Whether a brick counts as full, which has hysteresis.
fn is_full(was_full: bool, total_bytes: u64, used_percent: u64) -> bool {
    let limit = if was_full { BRICK_ROOM_PERCENT } else { BRICK_FULL_PERCENT };
    total_bytes > 0 && used_percent >= limit
}

fn brick_events(before: Option<BrickSeen>, now: BrickSeen) -> Vec<(EventKind, &'static str)> {
    let Some(before) = before else {
        return if now.full { vec![(EventKind::BrickFull, "is filling up")] } else { Vec::new() };
    };
    let mut events = Vec::new();
    match (before.online, now.online) {
        (true, false) => events.push((EventKind::BrickOffline, "is not served any more")),
        (false, true) => events.push((EventKind::BrickOnline, "is served again")),
        _ => {}
    }
    match (before.full, now.full) {
        (false, true) => events.push((EventKind::BrickFull, "is filling up")),
        (true, false) if now.online => events.push((EventKind::BrickRoom, "has room again")),
        _ => {}
    }
    events
}

impl HealSeen {
    fn look(&mut self, status: &HealStatus) -> Vec<(EventKind, String)> {
        let moved = status.all_moved_blocks.saturating_sub(self.moved);
        let left = to_move(status);
        let active = left > 0 || (status.task != HealTask::Idle && moved > 0);
        let mut events = Vec::new();
        if !self.active && (active || moved > 0) {
            let blocks = left.max(moved);
            events.push((
                EventKind::HealBegun,
                format!("{blocks} blocks lack copies or lie on the wrong bricks"),
            ));
            (self.active, self.moved_before) = (true, self.moved);
        }
        self.moved = status.all_moved_blocks;
        if self.active && !active {
            let copied = self.moved.saturating_sub(self.moved_before);
            events.push((
                EventKind::HealDone,
                format!("every block is where it should be; {copied} were copied"),
            ));
            self.active = false;
        }
        events
    }
}

impl NodeSeen {
    /// `clock`: what the node's clock showed between these two moments, all in milliseconds.
    fn look(&mut self, is_up: bool, clock: Option<u64>, (sent, got): (u64, u64)) -> Vec<(EventKind, String)> {
        let mut events = Vec::new();
        if !is_up {
            self.missed += 1;
            if self.missed == NODE_DOWN_AFTER {
                events.push((EventKind::NodeDown, "does not answer".into()));
            }
            return events;
        }
        if self.missed >= NODE_DOWN_AFTER {
            events.push((EventKind::NodeUp, "answers again".into()));
        }
        self.missed = 0;
        let Some(clock) = clock else { return events };
        let off_ms = sent.saturating_sub(clock).max(clock.saturating_sub(got));
        let is_off = off_ms > CLOCK_OFF_MS;
        if is_off && !self.clock_off {
            let direction = if clock < sent { "behind" } else { "ahead of" };
            events.push((
                EventKind::ClockOff,
                format!("has a clock that is {off_ms} ms {direction} this node's"),
            ));
        } else if !is_off && self.clock_off {
            events.push((EventKind::ClockRight, "has the right time again".into()));
        }
        self.clock_off = is_off;
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds<T>(events: Vec<(EventKind, T)>) -> Vec<EventKind> {
        events.into_iter().map(|(kind, _)| kind).collect()
    }

    #[test]
    fn node_is_down_after_several_unanswered_polls_and_its_clock_is_compared() {
        let mut node = NodeSeen::default();
        let at = (100_000, 100_010);
        assert!(node.look(true, Some(100_005), at).is_empty());
        let missed: Vec<EventKind> = (0..5).flat_map(|_| kinds(node.look(false, None, at))).collect();
        assert_eq!(missed, [EventKind::NodeDown]);
        assert_eq!(kinds(node.look(true, None, at)), [EventKind::NodeUp]);
        assert!(node.look(true, Some(at.0 - CLOCK_OFF_MS), at).is_empty(), "within the limit");
        let behind = node.look(true, Some(at.0 - CLOCK_OFF_MS - 5), at);
        assert!(behind[0].1.contains("5 ms behind"), "{behind:?}");
        assert!(node.look(true, Some(at.1 + 2 * CLOCK_OFF_MS), at).is_empty(), "told once");
        assert_eq!(kinds(node.look(true, Some(at.0), at)), [EventKind::ClockRight]);
    }

    #[test]
    fn brick_is_reported_full_once_until_it_has_clearly_more_room() {
        assert!(is_full(false, 100, BRICK_FULL_PERCENT) && !is_full(false, 100, BRICK_FULL_PERCENT - 1));
        assert!(is_full(true, 100, BRICK_ROOM_PERCENT) && !is_full(true, 100, BRICK_ROOM_PERCENT - 1));
        assert!(!is_full(false, 0, 100), "its size is not known");
        let seen = |online, full| BrickSeen { online, full };
        assert_eq!(kinds(brick_events(None, seen(true, false))), []);
        assert_eq!(kinds(brick_events(None, seen(true, true))), [EventKind::BrickFull]);
        assert_eq!(
            kinds(brick_events(Some(seen(true, false)), seen(false, false))),
            [EventKind::BrickOffline]
        );
        let back = brick_events(Some(seen(false, true)), seen(true, false));
        assert_eq!(kinds(back), [EventKind::BrickOnline, EventKind::BrickRoom]);
    }

    #[test]
    fn healing_that_ended_between_two_polls_is_reported_with_begin_and_end() {
        let mut heal = HealSeen::default();
        let status = |task, waiting_blocks, all_moved_blocks| HealStatus {
            task,
            waiting_blocks,
            all_moved_blocks,
            ..HealStatus::default()
        };
        assert!(heal.look(&status(HealTask::Survey, 0, 0)).is_empty(), "nothing is to be healed");
        assert_eq!(kinds(heal.look(&status(HealTask::Idle, 3, 0))), [EventKind::HealBegun]);
        assert!(heal.look(&status(HealTask::Copies, 1, 2)).is_empty());
        let done = heal.look(&status(HealTask::Idle, 0, 3));
        assert!(done.len() == 1 && done[0].1.contains("3 were copied"), "{done:?}");
        let fast = kinds(heal.look(&status(HealTask::Idle, 0, 9)));
        assert_eq!(fast, [EventKind::HealBegun, EventKind::HealDone]);
    }
}
