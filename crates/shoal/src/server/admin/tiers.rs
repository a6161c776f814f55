//! The hot tier of a volume.

use super::super::calls::{NodeReply, NodeRequest};
use super::super::context::ServerContext;
use super::super::opening::tier_settings;
use super::names;
use crate::admin::{
    AdminAnswer, BrickName, PinReport, PinStep, PinnedPath, PlannedMove, TierPlanReport, TierReport, TierStep,
};
use crate::limits::TOP_PATHS_MAX;
use crate::show;
use shoal_cluster::{Command, HotTier, Shards};
use shoal_meta::{Move, Reason, TierState};
use shoal_types::limits::REMOVAL_WAIT;
use shoal_types::{GroupId, InodeId, InodePolicies, Tier};
use std::collections::{BTreeMap, BTreeSet};

impl ServerContext {
    /// The command that attaches a hot tier.
    pub(super) fn attachment(
        &self,
        name: &str,
        (replica, shards): (u8, Option<(u8, u8)>),
        (bricks, force): (&[BrickName], bool),
        note: &mut dyn FnMut(String),
    ) -> Result<Command, String> {
        let map = self.view.map();
        let (volume, _) = names::volume(&map, name)?;
        let bricks = self.checked_places(bricks, force, note)?;
        let shards = shards.map(Shards::from);
        Ok(Command::AttachTier { volume, replica, shards, bricks, force })
    }

    pub(super) fn tier(&self, name: &str, step: TierStep) -> Result<AdminAnswer, String> {
        let map = self.view.map();
        let (volume, _) = names::volume(&map, name)?;
        let tier = map.tiers.get(&volume).ok_or_else(|| {
            format!(
                "volume {name} has no hot tier: `shoal volume tier {name} attach replica 2 HOST:/BRICK...`"
            )
        })?;
        let command = match step {
            TierStep::Status => return Ok(AdminAnswer::Tiers(self.tier_report(volume, tier)?)),
            TierStep::Plan => return Ok(AdminAnswer::TierPlan(self.tier_plan(name, volume)?)),
            TierStep::DetachStart => Command::DetachTier { volume, start: true },
            TierStep::DetachStop => Command::DetachTier { volume, start: false },
            TierStep::DetachCommit => {
                let state = self.tier_state(volume)?;
                if !tier.detaching {
                    return Err("the hot tier is in use; `detach start` has to come first".into());
                }
                if !state.can_be_removed() {
                    return Err(format!(
                        "the hot tier has {} blocks, and has been empty for {} s; it can be removed when it was empty for \
                         {} s: `detach status` shows that",
                        state.hot_blocks,
                        state.empty_s,
                        REMOVAL_WAIT.as_secs()
                    ));
                }
                if let Some(brick) = tier.bricks.iter().find(|brick| !self.is_free(volume, **brick)) {
                    return Err(format!(
                        "there are still blocks on {} of the hot tier, or mounts may still commit some, or it does not \
                         answer: `detach status` shows when the tier can be removed",
                        map.brick_name(*brick)
                    ));
                }
                Command::RemoveTier { volume }
            }
        };
        self.decide(&command).map(|_| AdminAnswer::Done)
    }

    /// Sets or removes a pin, and reports the one that decides then.
    pub(super) fn pin(&self, name: &str, ino: InodeId, step: PinStep) -> Result<PinReport, String> {
        let map = self.view.map();
        let (volume, it) = names::volume(&map, name)?;
        let state = match self.request_from_leader_patiently(volume, &NodeRequest::Pin { volume, ino })? {
            NodeReply::Pin(state) => state,
            other => return Err(format!("unexpected answer: {other:?}")),
        };
        if !state.exists {
            return Err("the volume does not have this directory or file".into());
        }
        let wanted = match step {
            PinStep::Show => None,
            PinStep::Hot => Some(Some(Tier::Hot)),
            PinStep::Cold => Some(Some(Tier::Cold)),
            PinStep::Auto => Some(None),
        };
        if let Some(tier) = wanted {
            self.decide(&Command::Pin { volume, ino, tier, removed: state.removed })?;
        }
        // The leader may not know of the change yet. A pin of its own needs no leader.
        let nearest = match wanted {
            Some(Some(tier)) => Some((ino, tier)),
            Some(None) => None,
            None => state.nearest,
        };
        Ok(PinReport {
            volume: it.name.clone(),
            pinned: nearest.map(|(_, tier)| pinned_to(tier).to_owned()),
            inherited_from: self.inherited_from(volume, ino, nearest),
            has_hot_tier: map.tiers.contains_key(&volume),
        })
    }

    /// The path of the inode whose policy decides for `ino`, if that is another one.
    pub(super) fn inherited_from<T>(
        &self,
        volume: GroupId,
        ino: InodeId,
        nearest: Option<(InodeId, T)>,
    ) -> Option<String> {
        let from = nearest.map(|(from, _)| from).filter(|from| *from != ino);
        from.map(|from| self.path_of(volume, from))
    }

    /// Reports policies with the paths of their inodes, as far as these are found.
    pub(super) fn with_paths<T: Copy, R>(
        &self,
        volume: GroupId,
        policies: &InodePolicies<T>,
        report: impl Fn(Option<String>, InodeId, T) -> R,
    ) -> Vec<R> {
        let mut paths = self.paths_of(volume, policies.keys().copied().collect());
        policies.iter().map(|(ino, policy)| report(paths.remove(ino), *ino, *policy)).collect()
    }

    /// The path of an inode, or its number.
    pub(super) fn path_of(&self, volume: GroupId, ino: InodeId) -> String {
        self.paths_of(volume, vec![ino]).remove(&ino).unwrap_or_else(|| format!("(inode {})", ino.0))
    }

    /// The pins of a volume with their paths.
    fn pins(&self, volume: GroupId) -> Vec<PinnedPath> {
        let pinned =
            |path, ino: InodeId, tier| PinnedPath { path, inode: ino.0, pinned: pinned_to(tier).to_owned() };
        self.with_paths(volume, &self.view.map().policies(volume).pins, pinned)
    }

    fn tier_state(&self, volume: GroupId) -> Result<TierState, String> {
        match self.request_from_leader_patiently(volume, &NodeRequest::Tiers { volume })? {
            NodeReply::Tiers(state) => Ok(state),
            other => Err(format!("unexpected answer: {other:?}")),
        }
    }

    fn tier_report(&self, volume: GroupId, tier: &HotTier) -> Result<TierReport, String> {
        let state = self.tier_state(volume)?;
        let map = self.view.map();
        let settings = tier_settings(&map, volume);
        let status = &state.status;
        Ok(TierReport {
            name: map.volumes.get(&volume).map(|volume| volume.name.clone()).unwrap_or_default(),
            replica: tier.replica,
            shards: tier.shards.map(|shards| (shards.data, shards.parity)),
            bricks: map.bricks_in(volume, Tier::Hot).map(|(_, brick)| names::called(&map, brick)).collect(),
            detaching: tier.detaching,
            can_be_removed: tier.detaching
                && state.can_be_removed()
                && tier.bricks.iter().all(|brick| self.is_free(volume, *brick)),
            paused: settings.as_ref().is_some_and(|settings| settings.paused),
            hot_blocks: state.hot_blocks,
            room_bytes: state.room.map(|room| (room.total_bytes, room.free_bytes)),
            high_watermark_percent: settings.as_ref().map_or(0, |settings| settings.high_percent as u8),
            demoted_blocks: status.demoted_blocks,
            demoted_bytes: status.demoted_bytes,
            promoted_blocks: status.promoted_blocks,
            promoted_bytes: status.promoted_bytes,
            failures: status.failed,
            last_error: status.last_error.clone(),
            pins: self.pins(volume),
        })
    }

    fn tier_plan(&self, name: &str, volume: GroupId) -> Result<TierPlanReport, String> {
        let moves = match self.request_from_leader_patiently(volume, &NodeRequest::TierPlan { volume })? {
            NodeReply::TierPlan(moves) => moves,
            other => return Err(format!("unexpected answer: {other:?}")),
        };
        let owners: BTreeSet<InodeId> = moves.iter().filter_map(|one| one.owner).collect();
        let paths = self.paths_of(volume, owners.into_iter().take(TOP_PATHS_MAX).collect());
        let planned = |one: Move| PlannedMove {
            block: one.id.to_string(),
            path: one.owner.and_then(|owner| paths.get(&owner).cloned()),
            bytes: one.bytes,
            to_hot: one.to == Tier::Hot,
            reason: words(one.reason, one.to),
        };
        Ok(TierPlanReport { name: name.to_owned(), moves: moves.into_iter().map(planned).collect() })
    }

    /// The paths of inodes, as far as the volume's leader finds them.
    pub(super) fn paths_of(&self, volume: GroupId, inodes: Vec<InodeId>) -> BTreeMap<InodeId, String> {
        if inodes.is_empty() {
            return BTreeMap::new();
        }
        match self
            .request_from_leader_patiently(volume, &NodeRequest::Paths { volume, inodes: inodes.clone() })
        {
            Ok(NodeReply::Paths(paths)) => {
                inodes.into_iter().zip(paths).filter_map(|(ino, path)| Some((ino, path?))).collect()
            }
            other => {
                tracing::debug!(?other, "asking for paths");
                BTreeMap::new()
            }
        }
    }
}

fn pinned_to(tier: Tier) -> &'static str {
    if tier == Tier::Hot { "hot" } else { "cold" }
}

fn words(reason: Reason, to: Tier) -> String {
    match reason {
        Reason::Detach => "the hot tier is being detached".into(),
        Reason::Unused(seconds) => format!("not used for {}", show::seconds(seconds)),
        Reason::Full(percent) => format!("the hot tier is {percent}% full"),
        Reason::Read(reads) => format!("read {reads} times"),
        Reason::Pinned => format!("pinned {}", pinned_to(to)),
    }
}
