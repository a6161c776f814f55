//! Healing, spreading blocks, and taking bricks away.

use super::super::calls::{Heal, NodeReply, NodeRequest};
use super::super::context::ServerContext;
use super::super::execute::retry;
use super::names;
use super::show::bricks;
use crate::admin::*;
use crate::limits::{COUNT_PATIENCE, EXECUTE_PAUSE, LEADER_PATIENCE, MAP_NEWS_PATIENCE, NODE_REPLY_WAIT_MAX};
use shoal_cluster::{BrickState, Command, Shards};
use shoal_meta::{LossClass, Losses, RebalanceStatus, SchemeUse};
use shoal_types::{BrickId, GroupId, NodeId};
use std::time::Instant;

impl ServerContext {
    /// Gets the progress of healing from a volume's leader; with `full`, makes it examine all blocks.
    fn heal_status(&self, volume: GroupId, full: bool) -> Result<(NodeId, Heal), String> {
        let ask = if full { NodeRequest::HealFull { volume } } else { NodeRequest::Heal { volume } };
        match self.request_from_leader(volume, &ask, NODE_REPLY_WAIT_MAX)? {
            (node, NodeReply::Heal(heal)) => Ok((node, heal)),
            (node, other) => Err(format!("{node}: unexpected answer: {other:?}")),
        }
    }

    /// [`heal_status`](Self::heal_status), repeated while no replica leads, as during an election.
    fn heal_status_patiently(&self, volume: GroupId, full: bool) -> Result<(NodeId, Heal), String> {
        retry(LEADER_PATIENCE, || self.heal_status(volume, full))
    }

    /// Blocks that lack copies, if that is known.
    pub(super) fn degraded(&self, volume: GroupId) -> Option<u64> {
        let (_, heal) = self.heal_status(volume, false).ok()?;
        (!heal.busy || heal.degraded > 0).then_some(heal.degraded)
    }

    pub(super) fn heal_report(&self, name: &str, full: bool) -> Result<HealReport, String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        let (leader, heal) = self.heal_status_patiently(volume, full)?;
        Ok(HealReport {
            name: it.name.clone(),
            leader: map.nodes.get(&leader).map_or_else(|| leader.to_string(), |node| node.name.clone()),
            degraded: heal.degraded,
            scanning: heal.busy,
            examined: heal.status.done_blocks,
            left: heal.status.total_blocks.saturating_sub(heal.status.done_blocks),
            copied_blocks: heal.status.all_moved_blocks,
            copied_bytes: heal.status.all_moved_bytes,
            waiting: heal.status.waiting_blocks,
            failures: heal.status.failed_blocks,
            last_error: heal.status.last_error,
            bricks: bricks(&map, &self.gather(false), volume),
            losses: None,
        })
    }

    /// The progress of healing, with what the blocks of the volume survive.
    pub(super) fn heal_info(&self, name: &str) -> Result<HealReport, String> {
        let report = self.heal_report(name, false)?;
        let (volume, _) = names::volume(&self.view.map(), name)?;
        let losses = match self.request_from_leader(volume, &NodeRequest::Losses { volume }, COUNT_PATIENCE) {
            Ok((_, NodeReply::Losses(losses))) => Some(losses_report(losses)),
            // The leader's node runs an earlier version, or has just lost the leadership.
            other => {
                tracing::debug!(volume = name, ?other, "what the blocks survive is not known");
                None
            }
        };
        Ok(HealReport { losses, ..report })
    }

    /// Requests a rebalance, and waits for a bounded time until the leader has the request: `status` and
    /// `stop` find it begun.
    fn begin_rebalance(&self, volume: GroupId) -> Result<(), String> {
        let before = self.heal_status_patiently(volume, false)?.1.status.rebalances;
        self.decide(&Command::Rebalance { volume })?;
        let due = Instant::now() + MAP_NEWS_PATIENCE;
        let begun = |heal: &Heal| heal.rebalancing || heal.status.rebalances != before;
        while !self.heal_status(volume, false).is_ok_and(|(_, heal)| begun(&heal)) && Instant::now() < due {
            std::thread::sleep(EXECUTE_PAUSE);
        }
        Ok(())
    }

    pub(super) fn rebalance(&self, name: &str, step: RebalanceStep) -> Result<RebalanceReport, String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        match step {
            RebalanceStep::Start => self.begin_rebalance(volume)?,
            RebalanceStep::Status => {}
            RebalanceStep::Stop => {
                if !self.heal_status_patiently(volume, false)?.1.rebalancing {
                    return Err(format!("no rebalance of volume {name} is under way"));
                }
                self.decide(&Command::StopRebalance { volume }).map(drop)?;
            }
        }
        let (_, heal) = self.heal_status_patiently(volume, false)?;
        let state = match (step, it.rebalance) {
            (RebalanceStep::Start, _) => RebalanceState::InProgress,
            (RebalanceStep::Stop, _) => RebalanceState::Stopped,
            (_, 0) => RebalanceState::NotStarted,
            _ if it.is_rebalance_stopped() => RebalanceState::Stopped,
            _ if heal.rebalancing => RebalanceState::InProgress,
            _ => RebalanceState::Completed,
        };
        let ask = NodeRequest::Rebalance { volume };
        let status = match self.request_from_leader(volume, &ask, NODE_REPLY_WAIT_MAX) {
            Ok((_, NodeReply::Rebalance(status))) => status,
            // The leader's node runs an earlier version, which counts by task of the healer.
            _ => RebalanceStatus {
                scanned_blocks: heal.status.done_blocks,
                moved_blocks: heal.status.moved_blocks,
                moved_bytes: heal.status.moved_bytes,
                failed_blocks: heal.status.failed_blocks,
            },
        };
        Ok(RebalanceReport {
            name: it.name.clone(),
            state,
            examined: status.scanned_blocks,
            moved: status.moved_blocks,
            copied_bytes: status.moved_bytes,
            failures: status.failed_blocks,
        })
    }

    pub(super) fn conversion(&self, name: &str) -> Result<ConversionReport, String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        let schemes =
            match self.request_from_leader(volume, &NodeRequest::Schemes { volume }, COUNT_PATIENCE)? {
                (_, NodeReply::Schemes(schemes)) => schemes,
                (node, other) => return Err(format!("{node} answered something else: {other:?}")),
            };
        let report = |scheme: SchemeUse| SchemeReport {
            shards: (scheme.data > 0).then(|| (scheme.data, scheme.all.saturating_sub(scheme.data))),
            copies: if scheme.data > 0 { 0 } else { scheme.all },
            blocks: scheme.blocks,
            bytes: scheme.bytes,
            left: scheme.unwanted_blocks,
        };
        Ok(ConversionReport {
            name: it.name.clone(),
            schemes: schemes.into_iter().map(report).collect(),
            directories: self.directory_schemes(volume),
        })
    }

    /// Refuses a scheme of shards while blocks are in another one. A brick that repairs a damaged shard takes
    /// it to be of the volume's scheme.
    pub(super) fn check_no_other_scheme(&self, name: &str, wanted: Option<Shards>) -> Result<(), String> {
        let Some(wanted) = wanted else { return Ok(()) };
        let wanted = (wanted.data, wanted.parity);
        let other = |(data, parity): (u8, u8)| (data, parity) != wanted;
        match self.conversion(name)?.schemes.iter().find(|it| it.shards.is_some_and(other)) {
            None => Ok(()),
            Some(scheme) => Err(format!(
                "volume {name} has {} blocks in another scheme of shards: convert it to copies first, and wait until \
                 `shoal volume convert {name} status` shows that this is completed",
                scheme.blocks
            )),
        }
    }

    pub(super) fn remove_bricks(
        &self,
        name: &str,
        called: &[BrickName],
        step: RemoveStep,
    ) -> Result<AdminAnswer, String> {
        let map = self.view.map();
        let (volume, _) = names::volume(&map, name)?;
        let bricks = names::bricks(&map, volume, called)?;
        let command = match step {
            RemoveStep::Start => Command::Drain { volume, bricks },
            RemoveStep::Stop => Command::Undrain { volume, bricks },
            RemoveStep::Force => Command::Lose { volume, bricks },
            RemoveStep::Status => {
                let report = |(id, brick): (&BrickId, &BrickName)| RemovalReport {
                    brick: brick.clone(),
                    state: self.removal(volume, *id),
                    blocks_left: self.blocks_left(volume, *id),
                };
                return Ok(AdminAnswer::Removal { bricks: bricks.iter().zip(called).map(report).collect() });
            }
            RemoveStep::Check | RemoveStep::Commit => {
                for (id, brick) in bricks.iter().zip(called) {
                    match self.removal(volume, *id) {
                        RemovalState::Completed => {}
                        RemovalState::NotStarted => {
                            return Err(format!(
                                "{brick} is in use; `remove-brick ... start` has to come first"
                            ));
                        }
                        RemovalState::InProgress => {
                            return Err(match self.is_cleared(*id) {
                                Ok(_) => format!(
                                    "there are still blocks on {brick}, or mounts may still commit some; \
                                     `remove-brick ... status` shows when it can be removed"
                                ),
                                Err(why) => format!(
                                    "{brick} does not say whether there are still blocks on it ({why}): start its node, or give \
                                     up what is on it with `remove-brick ... force`"
                                ),
                            });
                        }
                    }
                }
                if step == RemoveStep::Check {
                    return Ok(AdminAnswer::Done);
                }
                Command::Lose { volume, bricks }
            }
        };
        self.decide(&command).map(|_| AdminAnswer::Done)
    }

    pub(super) fn removal(&self, volume: GroupId, brick: BrickId) -> RemovalState {
        match self.view.map().bricks.get(&brick).map(|brick| brick.state) {
            Some(BrickState::Active) => RemovalState::NotStarted,
            Some(BrickState::Draining) if !self.is_free(volume, brick) => RemovalState::InProgress,
            _ => RemovalState::Completed,
        }
    }
}

fn losses_report(losses: Losses) -> LossesReport {
    let report = |class: LossClass| LossClassReport {
        hot: class.hot,
        shards: (class.data > 0).then(|| (class.data, class.all.saturating_sub(class.data))),
        copies: if class.data > 0 { 0 } else { class.all },
        survives: class.survives,
        whole: class.whole,
        blocks: class.blocks,
        bytes: class.bytes,
    };
    LossesReport {
        classes: losses.classes.into_iter().map(report).collect(),
        unreadable: losses.unreadable.iter().map(ToString::to_string).collect(),
    }
}
