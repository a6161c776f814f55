//! Merges many small extents of a file into blocks. The content stays the same, so nobody has to be told.

use crate::limits::*;
use crate::serve::Shared;
use bytes::Bytes;
use shoal_namespace::command::extents_digest;
use shoal_namespace::{Command, Fault, Outcome, query};
use shoal_types::{BlockGroupId, BlockId, BlockInfo, Extent, InodeId, SessionId, limits::BLOCK_BYTES_MAX};
use shoal_wire::MetaError;
use std::sync::atomic::Ordering;

/// Extents with their offsets in a file.
type Extents = Vec<(u64, Extent)>;

/// Looks through the list of files worth compacting.
pub(crate) fn round(shared: &Shared) -> Result<(), MetaError> {
    let mut after = None;
    loop {
        let files = query::compaction_candidates(&shared.store, after, BACKGROUND_PAGE)
            .map_err(|error| MetaError::Failed(error.to_string()))?;
        let Some(last) = files.last() else { return Ok(()) };
        after = Some(*last);
        for ino in files {
            if shared.background.stopping() {
                return Ok(());
            }
            compact(shared, ino)?;
        }
    }
}

fn compact(shared: &Shared, ino: InodeId) -> Result<(), MetaError> {
    let mut numbers = 0..0;
    let mut start = 0;
    loop {
        let page = match query::extents(&shared.store, ino, start, u64::MAX, COMPACT_EXTENTS_PAGE) {
            Ok(page) => page,
            // It died meanwhile.
            Err(Fault::Errno(_)) => return Ok(()),
            Err(Fault::Tree(error)) => return Err(MetaError::Failed(error.to_string())),
        };
        let more = page.more;
        let end = page.extents.last().map(|(offset, extent)| offset + extent.len());
        for run in runs(page.extents) {
            if shared.background.stopping() {
                return Ok(());
            }
            if numbers.is_empty() {
                numbers = reserve(shared)?;
            }
            let Some(seq) = numbers.next() else { return Ok(()) };
            if !merge(shared, ino, &run, BlockId { session: SessionId::SERVER, seq })? {
                return Ok(());
            }
        }
        match end {
            Some(end) if more => start = end,
            _ => break,
        }
    }
    shared.propose(&Command::RestFromCompaction { ino }).map(drop)
}

fn reserve(shared: &Shared) -> Result<std::ops::Range<u64>, MetaError> {
    match shared.propose(&Command::GrantBlocks { count: COMPACT_BLOCKS_GRANT })? {
        Outcome::Blocks { first, count } => Ok(first..first + count),
        _ => Ok(0..0),
    }
}

/// Runs of at least two adjacent extents with bytes, none crossing a multiple of the block size, so that they tile the file
/// like blocks that were written in one go.
fn runs(extents: Extents) -> Vec<Extents> {
    let block = u64::from(BLOCK_BYTES_MAX);
    let mut runs: Vec<Extents> = Vec::new();
    let mut next = None;
    for (offset, extent) in extents {
        let end = offset + extent.len();
        let stored = !matches!(extent, Extent::Zero { .. });
        let whole = offset / block == (end - 1) / block;
        let continues = next == Some(offset) && offset % block != 0;
        next = (stored && whole).then_some(end);
        if next.is_none() {
            continue;
        }
        match runs.last_mut() {
            Some(run) if continues => run.push((offset, extent)),
            _ => runs.push(vec![(offset, extent)]),
        }
    }
    runs.retain(|run| run.len() > 1);
    runs
}

/// Puts one block in the place of a run. Answers whether to go on with this file.
fn merge(shared: &Shared, ino: InodeId, run: &Extents, id: BlockId) -> Result<bool, MetaError> {
    let mut parts: Vec<Bytes> = Vec::with_capacity(run.len());
    for (_, extent) in run {
        match extent {
            Extent::Inline(bytes) => parts.push(bytes.clone()),
            Extent::Block(block) => match shared.bricks.get(block.id, block.offset, block.len) {
                Ok(bytes) => parts.push(bytes),
                Err(error) => {
                    tracing::warn!(%ino, %error, "a file is not compacted");
                    return Ok(false);
                }
            },
            Extent::Zero { .. } => return Ok(false),
        }
    }
    let len: usize = parts.iter().map(Bytes::len).sum();
    if let Err(error) = shared.bricks.put(id, &parts) {
        tracing::warn!(%ino, %error, "a file is not compacted");
        return Ok(false);
    }
    let info = BlockInfo { len: len as u32, group: BlockGroupId::default() };
    let offset = run.first().map_or(0, |(offset, _)| *offset);
    let command = Command::Compact { ino, offset, digest: extents_digest(run), block: id, info };
    let done = matches!(shared.propose(&command)?, Outcome::Compacted { done: true });
    if done {
        shared.background.compacted.fetch_add(1, Ordering::Relaxed);
    }
    Ok(done)
}
