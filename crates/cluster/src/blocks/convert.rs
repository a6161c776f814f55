//! Stores a block a second time: on the other tier, or in another scheme.
//!
//! **Promises.** The second group is complete, and each of its bricks has read back from its disk what it
//! stored, before the caller hears of it. Until the caller has recorded that group, and discards what is in
//! excess then, the first group stays untouched. So a block never has less redundancy than its group says,
//! wherever the work is cut off.

use super::call::Calls;
use super::store::Target;
use super::{Inner, names, unknown_volume};
use crate::limits::{STORE_WAIT_MAX, SURVEY_WAIT_MAX};
use crate::map::ClusterMap;
use shoal_runtime::planted::mistake;
use shoal_runtime::time::Instant;
use shoal_types::{BlockGroup, BlockId, BlockInfo, BlockScheme, BrickId, Tier};
use shoal_wire::BlockError;
use std::sync::Arc;

impl Inner {
    /// The scheme of blocks on a tier. `scheme`: that of their files, which decides on the cold tier.
    pub(super) fn scheme_on(
        &self,
        map: &ClusterMap,
        tier: Tier,
        scheme: Option<BlockScheme>,
    ) -> Result<BlockScheme, BlockError> {
        let of_file = scheme.filter(|_| tier == Tier::Cold);
        of_file.or_else(|| map.scheme_in(self.volume, tier)).ok_or_else(unknown_volume)
    }

    /// Whether a block is in as many copies or shards as a new block of its length would be on its tier.
    pub(super) fn has_wanted_scheme(
        &self,
        map: &ClusterMap,
        info: BlockInfo,
        scheme: Option<BlockScheme>,
    ) -> bool {
        if mistake("leave blocks in their old scheme") {
            return true;
        }
        let Ok(scheme) = self.scheme_on(map, info.group.tier(), scheme) else { return true };
        let wanted = match self.shards_for(scheme, u64::from(info.len)) {
            Some(_) => scheme,
            None => BlockScheme::Copies(scheme.copies()),
        };
        info.group.scheme(map.original_copies(self.volume)) == wanted
    }

    /// Stores a whole block on a tier as a new block would be stored there.
    pub(super) fn store_anew(
        self: &Arc<Inner>,
        map: &ClusterMap,
        id: BlockId,
        info: BlockInfo,
        (tier, scheme): (Tier, Option<BlockScheme>),
    ) -> Result<BlockGroup, BlockError> {
        let scheme = self.scheme_on(map, tier, scheme)?;
        let content = self.fetch(id, info.group, 0, info.len)?;
        if mistake("delete a block before it is in its new place") {
            self.discard(&[(id, info.group)])?;
        }
        let whole = !mistake("accept a part of a new group");
        let target = Target { tier, scheme, whole, wait_max: STORE_WAIT_MAX };
        let stored = self.store_on(map, target, id, &[content])?;
        let stored = match map.tiers.get(&self.volume) {
            Some(hot) if tier == Tier::Hot => stored.on_hot_tier(hot.replica),
            _ => stored,
        };
        if whole {
            self.prove((id, info.len), &stored, map.original_copies(self.volume))?;
        }
        Ok(stored)
    }

    /// Checks that each brick of a group has all of what it should have: it reads that from its disk and
    /// checks every byte.
    fn prove(
        self: &Arc<Inner>,
        (id, len): (BlockId, u32),
        group: &BlockGroup,
        original_copies: u8,
    ) -> Result<(), BlockError> {
        let wanted = if group.is_sharded() { group.shard_bytes() } else { len };
        let mut calls = Calls::new();
        for brick in group.bricks() {
            let name = names::on_brick(id, group, brick);
            calls.start(self, brick, move |it| it.check(name));
        }
        let not_kept = |brick: BrickId, cause: String| BlockError::Io {
            what: format!("what {brick} was sent of block {id}"),
            cause,
        };
        let (mut proven, until) = (0, Instant::now() + SURVEY_WAIT_MAX);
        while let Some((brick, answer)) = calls.next(until) {
            match answer {
                Ok(found) if found == wanted => proven += 1,
                // The first group is untouched: only this attempt has failed, and no content is lost.
                Ok(found) => return Err(not_kept(brick, format!("has {found} bytes instead of {wanted}"))),
                Err(error) => return Err(not_kept(brick, error.to_string())),
            }
        }
        if proven == group.len() && !group.is_short(original_copies) {
            return Ok(());
        }
        Err(BlockError::Unreachable(format!("{proven} of {} bricks have shown block {id}", group.len())))
    }
}
