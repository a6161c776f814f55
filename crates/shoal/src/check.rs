//! Offline check of a volume: the namespace for consistency, then every block that it refers to on the local
//! bricks.
//!
//! In a cluster the local bricks are those of one node. Copies recorded on other bricks are counted, and are
//! checked on their own nodes.

use crate::limits::{EXTENTS_PAGE, VERIFY_THREADS};
use crate::walk::{self, Step};
use serde::Serialize;
use shoal_brick::Brick;
use shoal_cluster::blocks::names;
use shoal_namespace::check::{self, Finding, Phase, Visitor};
use shoal_namespace::kv::{KvRead, StoreError};
use shoal_namespace::query::{self, Prefetch};
use shoal_types::{BlockId, BlockInfo, BrickId, Extent, FileKind, InodeId};
use shoal_wire::{BlockError, BlockService};
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The result of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Nothing is wrong.
    pub clean: bool,
    /// Inodes.
    pub inodes: u64,
    /// Names.
    pub names: u64,
    /// Extents.
    pub extents: u64,
    /// Bytes that files take, preallocated ranges included.
    pub allocated_bytes: u64,
    /// Blocks that content refers to.
    pub blocks: u64,
    /// Bytes in them.
    pub block_bytes: u64,
    /// Whether whole blocks were read, and not only their headers.
    pub blocks_read: bool,
    /// Copies of blocks that the local bricks should hold.
    pub copies: u64,
    /// Copies recorded on other bricks.
    pub copies_elsewhere: u64,
    /// Blocks recorded as having fewer copies than the volume wants, or as lacking a shard.
    pub blocks_degraded: u64,
    /// Copies that are missing on their brick.
    pub blocks_missing: u64,
    /// Copies that are there, but damaged.
    pub blocks_damaged: u64,
    /// Copies that nothing refers to. They are harmless: the server collects them as garbage.
    pub blocks_unused: u64,
    /// Inconsistencies in the namespace.
    pub findings: u64,
}

/// Receives the progress of a check.
pub trait Listener: Send {
    /// A phase begins; `total` is its amount of work, if that is known.
    fn begin(&mut self, what: &'static str, total: Option<u64>);
    /// This much of the phase is done.
    fn progress(&mut self, done: u64);
    /// An inconsistency or a damaged block was found.
    fn finding(&mut self, what: String);
}

/// Why a check could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Brick(#[from] BlockError),
}

/// The local bricks.
pub struct Bricks {
    here: Vec<(Option<BrickId>, Arc<Brick>)>,
    /// Copies of a block when the volume was created.
    replica: u8,
}

impl Bricks {
    /// The one brick of a volume without a cluster.
    pub fn single(brick: Arc<Brick>) -> Bricks {
        Bricks { here: vec![(None, brick)], replica: 0 }
    }

    /// The local bricks of a volume that was created with `replica` copies.
    pub fn some(bricks: Vec<(BrickId, Arc<Brick>)>, replica: u8) -> Bricks {
        Bricks { here: bricks.into_iter().map(|(id, brick)| (Some(id), brick)).collect(), replica }
    }

    /// The local bricks that must hold a block.
    fn of(&self, info: BlockInfo) -> impl Iterator<Item = usize> + '_ {
        let holds = move |id: Option<BrickId>| id.map_or(info.group.is_empty(), |id| info.group.contains(id));
        self.here.iter().enumerate().filter(move |(_, (id, _))| holds(*id)).map(|(at, _)| at)
    }

    fn lacks(&self, info: BlockInfo) -> bool {
        info.group.is_short(self.replica)
    }

    /// A block on a brick at hand: its copy there, or its shard.
    fn copy(&self, at: usize, id: BlockId, info: BlockInfo) -> Option<Copy<'_>> {
        let (brick_id, brick) = self.here.get(at)?;
        let name = brick_id.map_or(id, |brick_id| names::on_brick(id, &info.group, brick_id));
        Some(Copy { brick, id: name, len: info.stored_bytes() })
    }
}

/// A copy or shard of a block on a local brick.
struct Copy<'a> {
    brick: &'a Brick,
    /// The name under which the brick stores it.
    id: BlockId,
    len: u32,
}

/// Checks everything; with `quick`, only the headers of blocks are read.
pub fn check<S: KvRead + ?Sized>(
    store: &S,
    bricks: &Bricks,
    quick: bool,
    listener: &mut dyn Listener,
) -> Result<Report, CheckError> {
    let mut namespace = Namespace { listener, phase: None, blocks: Vec::new() };
    let summary = check::check(store, &mut namespace)?;
    let blocks = namespace.blocks;
    let mut report = Report {
        inodes: summary.inodes,
        names: summary.names,
        extents: summary.extents,
        allocated_bytes: summary.allocated_bytes,
        findings: summary.findings,
        blocks: blocks.len() as u64,
        block_bytes: blocks.iter().map(|(_, info)| u64::from(info.len)).sum(),
        blocks_read: !quick,
        ..Report::default()
    };
    for (_, info) in &blocks {
        let copies = bricks.of(*info).count();
        report.copies += copies as u64;
        report.copies_elsewhere += info.group.len().max(1).saturating_sub(copies) as u64;
        report.blocks_degraded += u64::from(bricks.lacks(*info));
    }
    let mut copies = Vec::new();
    for (at, (_, brick)) in bricks.here.iter().enumerate() {
        let mine = || blocks.iter().filter(|(_, info)| bricks.of(*info).any(|one| one == at));
        let before = copies.len();
        copies.extend(mine().filter_map(|(id, info)| bricks.copy(at, *id, *info)));
        let mine = copies.iter().skip(before).map(|copy: &Copy<'_>| copy.id).collect();
        report.blocks_unused += unused(brick, &mine)?;
    }
    let bad = verify(&copies, quick, listener);
    let missing = bad.iter().filter(|(_, error)| matches!(error, BlockError::Missing(_))).count();
    report.blocks_missing = missing as u64;
    report.blocks_damaged = bad.len() as u64 - report.blocks_missing;
    if !bad.is_empty() {
        tell_files(store, &bad.into_iter().map(|(name, _)| names::parse(name).0).collect(), listener);
    }
    report.clean =
        report.findings + report.blocks_missing + report.blocks_damaged + report.blocks_degraded == 0;
    Ok(report)
}

/// Translates the progress of the namespace check.
struct Namespace<'a> {
    listener: &'a mut dyn Listener,
    phase: Option<Phase>,
    blocks: Vec<(BlockId, BlockInfo)>,
}

impl Visitor for Namespace<'_> {
    fn finding(&mut self, finding: Finding) {
        self.listener.finding(finding.to_string());
    }

    fn progress(&mut self, phase: Phase, records: u64) {
        if self.phase != Some(phase) {
            self.phase = Some(phase);
            let what = match phase {
                Phase::Files => "files",
                Phase::Names => "names",
                Phase::Blocks => "block records",
                Phase::Lists => "lists",
            };
            self.listener.begin(what, None);
        }
        self.listener.progress(records);
    }

    fn block(&mut self, id: BlockId, info: BlockInfo) {
        self.blocks.push((id, info));
    }
}

/// Counts the blocks on a brick that nothing refers to.
fn unused(brick: &Brick, used: &HashSet<BlockId>) -> Result<u64, BlockError> {
    let mut unused = 0;
    for session in brick.sessions()? {
        unused += brick.session_blocks(session)?.iter().filter(|id| !used.contains(id)).count() as u64;
    }
    Ok(unused)
}

/// Verifies each copy, several in parallel, and returns the bad ones.
fn verify(copies: &[Copy<'_>], quick: bool, listener: &mut dyn Listener) -> Vec<(BlockId, BlockError)> {
    listener.begin(if quick { "block headers" } else { "blocks" }, Some(copies.len() as u64));
    let next = AtomicUsize::new(0);
    let outcome = Mutex::new((Vec::new(), listener));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(Copy { brick, id, len }) = copies.get(at) else { return };
            let found = if quick { brick.length(*id) } else { brick.verify(*id) };
            let wrong = match found {
                Ok(found) if found == *len => None,
                Ok(found) => {
                    let what = format!("it has {found} bytes, the namespace says {len}");
                    Some(BlockError::Corrupt { id: *id, what })
                }
                Err(error) => Some(error),
            };
            // A panic in another thread leaves a list of findings valid.
            let mut outcome = outcome.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            outcome.1.progress(at as u64 + 1);
            if let Some(error) = wrong {
                outcome.1.finding(error.to_string());
                outcome.0.push((*id, error));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..VERIFY_THREADS.min(copies.len()) {
            scope.spawn(work);
        }
    });
    outcome.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).0
}

/// Reports the files that the bad blocks belong to. This walks the whole tree, so only if there are bad
/// blocks.
fn tell_files<S: KvRead + ?Sized>(store: &S, bad: &HashSet<BlockId>, listener: &mut dyn Listener) {
    listener.begin("files of bad blocks", None);
    let mut seen = 0;
    let visit = &mut |position: &walk::Position, step: Step<'_>| -> Result<(), Infallible> {
        let Step::File(name, record) = step else { return Ok(()) };
        if record.inode.kind == FileKind::Regular && record.inode.size > 0 {
            for (offset, len, id) in bad_ranges(store, record.ino, bad) {
                let path = position.path(Some(name));
                let to = offset + len - 1;
                listener.finding(format!("{}: bytes {offset} to {to} are in block {id}", path.display()));
            }
        }
        seen += 1;
        listener.progress(seen);
        Ok(())
    };
    let Ok(()) = walk::walk(store, Prefetch::Attributes, visit);
}

/// Offset and length of the parts of a file that are in bad blocks.
fn bad_ranges<S: KvRead + ?Sized>(
    store: &S,
    ino: InodeId,
    bad: &HashSet<BlockId>,
) -> Vec<(u64, u64, BlockId)> {
    let (mut found, mut start) = (Vec::new(), 0);
    // An extent map that cannot be read was reported by the check of the namespace.
    while let Ok(page) = query::extents(store, ino, start, u64::MAX, EXTENTS_PAGE) {
        for (offset, extent) in &page.extents {
            if let Extent::Block(block) = extent
                && bad.contains(&block.id)
            {
                found.push((*offset, u64::from(block.len), block.id));
            }
        }
        match page.extents.last() {
            Some((offset, extent)) if page.more => start = (offset + extent.len()).max(start + 1),
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests;
