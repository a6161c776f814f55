//! Listings that continue between two names with one cookie.

use crate::limits::SPLIT_LISTINGS_MAX;
use shoal_runtime::sync::Mutex;
use shoal_types::InodeId;
use std::collections::HashMap;

/// Listings that were cut between names with one cookie, and how many of these names were shown.
#[derive(Default)]
pub(crate) struct Splits(Mutex<HashMap<(InodeId, u64), usize>>);

impl Splits {
    pub(crate) fn remember(&self, dir: InodeId, offset: u64, shown: usize) {
        let mut splits = self.0.lock();
        if splits.len() >= SPLIT_LISTINGS_MAX {
            splits.clear();
        }
        splits.insert((dir, offset), shown);
    }

    pub(crate) fn shown(&self, dir: InodeId, offset: u64) -> usize {
        self.0.lock().get(&(dir, offset)).copied().unwrap_or(0)
    }
}
