//! The compactor: merges runs of many small extents into blocks.
//!
//! The namespace lists candidates: files with many extents that are small on average. A candidate waits for
//! some time, as a writer that is still active would undo the work. Then each run of adjacent extents that
//! fits a block is read and stored as one block. The block replaces them, if they are still the same. Readers
//! see the same bytes before and after. A reader with the old extents finds their blocks missing, and looks
//! the extents up again.

use super::StepError;
use super::policies::Finder;
use crate::limits::*;
use crate::shared::Shared;
use bytes::Bytes;
use shoal_namespace::command::extents_digest;
use shoal_namespace::kv::KvStore;
use shoal_namespace::{Command, Fault, Outcome, query};
use shoal_runtime::time::{Duration, Instant};
use shoal_types::limits::BLOCK_BYTES_MAX;
use shoal_types::{BlockId, BlockInfo, Errno, Extent, InodeId, SessionId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How often the list of candidates is read at most.
const LOOK_EVERY: Duration = Duration::from_millis(500);

type Run = Vec<(u64, Extent)>;

/// The state of the compactor.
pub(crate) struct Compactor {
    after: Duration,
    /// When each candidate is due.
    ripe: BTreeMap<InodeId, Instant>,
    look_at: Option<Instant>,
    /// Block numbers reserved and not used.
    ids: Range<u64>,
}

impl Compactor {
    /// A compactor that compacts a candidate once it is `after` old.
    pub(crate) fn new(after: Duration) -> Compactor {
        // There may be candidates from before the last start.
        Compactor { after, ripe: BTreeMap::new(), look_at: Some(Instant::now()), ids: 0..0 }
    }

    /// There may be new candidates.
    pub(crate) fn look(&mut self) {
        let at = Instant::now() + LOOK_EVERY.min(self.after);
        self.look_at.get_or_insert(at);
    }

    /// When the next step is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.ripe.values().copied().chain(self.look_at).min()
    }

    /// Compacts one file, if one is due.
    pub(crate) fn step(&mut self, shared: &Shared) -> Result<(), StepError> {
        let now = Instant::now();
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.read_candidates(shared, now)?;
        }
        let due = self.ripe.iter().find(|(_, at)| **at <= now).map(|(ino, _)| *ino);
        if let Some(ino) = due {
            self.ripe.remove(&ino);
            self.compact(shared, ino)?;
        }
        Ok(())
    }

    fn read_candidates(&mut self, shared: &Shared, now: Instant) -> Result<(), StepError> {
        let state = shared.store.snapshot();
        let mut after = None;
        while self.ripe.len() < COMPACT_REMEMBERED_MAX {
            let page = query::compaction_candidates(&state, after, COMPACT_PAGE)?;
            for ino in &page {
                self.ripe.entry(*ino).or_insert(now + self.after);
            }
            match page.last() {
                Some(last) => after = Some(*last),
                None => return Ok(()),
            }
        }
        // There are more than can be remembered: look again when these are done.
        self.look_at = Some(now + self.after * 2);
        Ok(())
    }

    fn compact(&mut self, shared: &Shared, ino: InodeId) -> Result<(), StepError> {
        let size = match query::inode(&shared.store.snapshot(), ino) {
            Ok(file) => file.inode.size,
            Err(Fault::Errno(_)) => return Ok(()),
            Err(fault) => return Err(fault.into()),
        };
        let mut run = Run::new();
        let mut from = 0;
        loop {
            let page = match query::extents(&shared.store.snapshot(), ino, from, size, COMPACT_EXTENTS_PAGE) {
                Ok(page) => page,
                Err(Fault::Errno(Errno::ENOENT)) => return Ok(()),
                Err(fault) => return Err(fault.into()),
            };
            for (offset, extent) in page.extents {
                from = offset + extent.len();
                if from > size || !joins(&run, offset, &extent) {
                    self.merge(shared, ino, std::mem::take(&mut run))?;
                }
                if from <= size {
                    run.push((offset, extent));
                }
                if shared.background.stopped() {
                    return Ok(());
                }
            }
            if !page.more {
                break;
            }
        }
        self.merge(shared, ino, run)?;
        if shared.background.stopped() {
            // The run is still to be merged.
            return Ok(());
        }
        let before = InodeId(ino.0.saturating_sub(1));
        if query::compaction_candidates(&shared.store, Some(before), 1)? == [ino] {
            shared.propose(&Command::RestFromCompaction { ino })?;
        }
        Ok(())
    }

    /// Stores a run as one block, if that is worth it, and replaces the run by it.
    fn merge(&mut self, shared: &Shared, ino: InodeId, run: Run) -> Result<(), StepError> {
        let Some((offset, _)) = run.first().cloned() else { return Ok(()) };
        let has_bytes = run.iter().any(|(_, extent)| !matches!(extent, Extent::Zero { .. }));
        let len = run.iter().map(|(_, extent)| extent.len()).sum::<u64>() as u32;
        let scarce = shared.grantable()? < 2 * u64::from(BLOCK_BYTES_MAX);
        if run.len() < COMPACT_RUN_EXTENTS_MIN || !has_bytes || scarce {
            return Ok(());
        }
        let started = Instant::now();
        let parts = match read(shared, &run) {
            Ok(parts) => parts,
            // Overwritten and collected since it was looked up, or damaged: a reader of the file gets that
            // error.
            Err(error) => {
                tracing::debug!(%ino, %error, "cannot read extents that are to be compacted");
                return Ok(());
            }
        };
        let block = self.next_id(shared)?;
        let policy = Finder::default().policy(&shared.bricks.policies(), &shared.store, ino)?;
        let group = shared.bricks.store_with_policy(block, &parts, policy)?;
        if shared.background.stopped() {
            // Leadership was lost meanwhile: the next leader, perhaps this replica, may have deleted the
            // block as garbage.
            return Ok(());
        }
        let info = BlockInfo { len, group };
        let digest = extents_digest(&run);
        let outcome = shared.propose(&Command::Compact { ino, offset, digest, block, info })?;
        if matches!(outcome, Outcome::Compacted { done: true }) {
            shared.background.done.compactions.fetch_add(1, Ordering::Relaxed);
            shared.background.done.compacted_bytes.fetch_add(u64::from(len), Ordering::Relaxed);
        }
        shared.background.rest(started.elapsed() * COMPACT_REST_FACTOR);
        Ok(())
    }

    fn next_id(&mut self, shared: &Shared) -> Result<BlockId, StepError> {
        if self.ids.is_empty()
            && let Outcome::Blocks { first, count } =
                shared.propose(&Command::GrantBlocks { count: COMPACT_BLOCK_IDS })?
        {
            self.ids = first..first + count;
        }
        match self.ids.next() {
            Some(seq) => Ok(BlockId { session: SessionId::SERVER, seq }),
            None => Err(Errno::ENOSPC.into()),
        }
    }
}

impl From<Errno> for StepError {
    fn from(errno: Errno) -> StepError {
        StepError::Server(shoal_wire::MetaError::Errno(errno))
    }
}

/// Whether an extent continues a run that still fits a block.
fn joins(run: &Run, offset: u64, extent: &Extent) -> bool {
    match (run.first(), run.last()) {
        (Some((start, _)), Some((at, last))) => {
            at + last.len() == offset && offset + extent.len() - start <= u64::from(BLOCK_BYTES_MAX)
        }
        // The first of a run fits if it fits alone.
        _ => extent.len() <= u64::from(BLOCK_BYTES_MAX),
    }
}

fn read(shared: &Shared, run: &Run) -> Result<Vec<Bytes>, shoal_wire::BlockError> {
    run.iter()
        .map(|(_, extent)| match extent {
            Extent::Inline(bytes) => Ok(bytes.clone()),
            Extent::Block(block) => {
                let group = shared.group_of(block.id)?;
                shared.bricks.fetch(block.id, group, block.offset, block.len)
            }
            Extent::Zero { len } => Ok(Bytes::from(vec![0; *len as usize])),
        })
        .collect()
}
