//! Blocks, how many extents refer to them, how many copies they have, and the lists of garbage and of blocks
//! with too few copies.

use super::{Check, Finding, Phase};
use crate::heat::{self, HotRecord};
use crate::keys::{self, Key};
use crate::kv::{KvRead, StoreError};
use crate::records::BlockRecord;
use shoal_types::limits::BLOCK_BYTES_MAX;
use shoal_types::{BlockId, BlockInfo};
use std::collections::{BTreeMap, BTreeSet};

impl<S: KvRead + ?Sized> Check<'_, S> {
    pub(super) fn blocks(&mut self) -> Result<(), StoreError> {
        let mut found = std::mem::take(&mut self.blocks);
        // A record of the volume that cannot be read is found when that is looked at.
        let replica = crate::query::replica(self.store).unwrap_or(0);
        let mut garbage = BTreeMap::new();
        let mut degraded = BTreeSet::new();
        let mut hot = BTreeSet::new();
        self.scan(Phase::Blocks, &keys::all_blocks(), |check, key, value| {
            let Some(record) = check.decode::<BlockRecord>(&key, value) else { return };
            let Key::Block(id) = key else { return };
            let in_use = found.remove(&id).unwrap_or_default();
            if record.refs != in_use.refs {
                check.found(Finding::BlockRefs { id, counted: record.refs, found: in_use.refs });
            }
            if record.info.len == 0 || record.info.len > BLOCK_BYTES_MAX || in_use.end > record.info.len {
                check.found(Finding::BlockLength { id, len: record.info.len, end: in_use.end });
            }
            if replica > 0 && record.info.group.is_empty() {
                check.found(Finding::Degraded { id, what: "is on no brick" });
            }
            if record.is_degraded(replica) {
                degraded.insert(id);
            }
            if heat::is_indexed(&record) {
                hot.insert(id);
            }
            if record.refs == 0 {
                garbage.insert(id, record.info);
            }
            if in_use.refs > 0 {
                check.summary.blocks += 1;
                check.visitor.block(id, record.info);
            }
        })?;
        for id in found.into_keys() {
            self.found(Finding::NoBlock { id });
        }
        self.scan(Phase::Blocks, &keys::garbage_range(None), |check, key, value| {
            let Some(info) = check.decode::<BlockInfo>(&key, value) else { return };
            let Key::Garbage(id) = key else { return };
            match garbage.remove(&id) {
                None => check.found(Finding::Garbage { id, what: "it is in use, or nothing is known of it" }),
                Some(known) if known != info => {
                    check.found(Finding::Garbage { id, what: "with another length or place than its own" });
                }
                Some(_) => {}
            }
        })?;
        for id in garbage.into_keys() {
            self.found(Finding::NotGarbage { id });
        }
        self.scan(Phase::Blocks, &keys::degraded_range(None), |check, key, _| {
            let Key::Degraded(id) = key else { return };
            if !degraded.remove(&id) {
                let what = "is on the list of blocks with too few copies, but has enough or is not in use";
                check.found(Finding::Degraded { id, what });
            }
        })?;
        for id in degraded {
            let what = "has too few copies, but is not on the list of such blocks";
            self.found(Finding::Degraded { id, what });
        }
        self.heat(&hot)
    }

    /// The index of the hot tier has these blocks, each with both of its records.
    fn heat(&mut self, hot: &BTreeSet<BlockId>) -> Result<(), StoreError> {
        let mut since = BTreeMap::new();
        self.scan(Phase::Blocks, &keys::all_hot(), |check, key, value| {
            let Some(record) = check.decode::<HotRecord>(&key, value) else { return };
            let Key::Hot(id) = key else { return };
            since.insert(id, record.since);
            if !hot.contains(&id) {
                let what = "is in the index of the hot tier, but is not there or not in use";
                check.found(Finding::Heat { id, what });
            }
        })?;
        for id in hot.iter().filter(|id| !since.contains_key(id)) {
            self.found(Finding::Heat { id: *id, what: "is on the hot tier, but not in its index" });
        }
        self.scan(Phase::Blocks, &keys::heat_range(None), |check, key, _| {
            let Key::Heat(time, id) = key else { return };
            if since.remove(&id) != Some(time) {
                check.found(Finding::Heat { id, what: "is in the index of the hot tier at another time" });
            }
        })?;
        for id in since.into_keys() {
            self.found(Finding::Heat { id, what: "has no time in the index of the hot tier" });
        }
        Ok(())
    }
}
