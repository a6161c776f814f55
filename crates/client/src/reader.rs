//! Reads blocks, and ahead of sequential readers.
//!
//! For a random read just the requested bytes are fetched. Where a file is read in sequence
//! ([`crate::sequence`]), its blocks are fetched in *chunks* of up to [`FETCH_BYTES_MAX`], several at a time.
//! So throughput does not depend on the size of the single reads.
//!
//! What is read ahead waits in the block cache, whose size the process's budget bounds. All files that are
//! read in sequence at the moment share it evenly. Where a file's part is less than a chunk, just the
//! requested bytes are fetched.

use crate::context::Context;
use crate::core::Piece;
use crate::limits::{
    AHEAD_CACHE_REST, BLOCK_AGE_MAX, FETCH_BYTES_MAX, READ_AHEAD_EXTENTS_MAX, READ_AHEAD_THREADS,
};
use crate::locate::{Persistence, read_block};
use crate::sequence::{ReadAhead, Sequences, Stride};
use crate::streams::Streams;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use shoal_runtime::budget::{Budget, Share, Use};
use shoal_runtime::channel::{Receiver, Sender};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::Instant;
use shoal_types::{BlockId, BlockRef, InodeId};
use shoal_wire::BlockError;
use std::collections::VecDeque;
use std::sync::Arc;

/// A cached chunk of a block: the block, and where the chunk begins.
type Key = (BlockId, u32);

/// A chunk to be read ahead, and the chunks that are read around the same time.
pub(crate) struct Order {
    chunk: BlockRef,
    near: Arc<[BlockRef]>,
}

enum Slot {
    /// Ordered; the thread that needs it first fetches it.
    Ordered,
    Loading,
    Ready(Bytes),
}

struct Cached {
    slots: FxHashMap<Key, Slot>,
    /// Ready chunks, oldest first, with the time of their arrival.
    order: VecDeque<(Key, Instant)>,
    memory: Share,
}

/// What has been read where.
struct Read {
    files: FxHashMap<InodeId, Sequences>,
    streams: Streams,
}

/// Files whose sequences are recorded. Beyond it all records are discarded, which costs a few small reads.
const SEQUENCE_FILES_MAX: usize = 4096;
/// Length of the read-ahead queue in chunks. Beyond it no more are queued.
const AHEAD_QUEUE_MAX: usize = 64;

/// Reads blocks for a session: the block cache, and the sequences in which files are read.
pub(crate) struct BlockReader {
    context: Arc<Context>,
    /// Largest size of the block cache that the administrator has set, in bytes.
    bytes_max: usize,
    cached: Mutex<Cached>,
    loaded: Condvar,
    read: Mutex<Read>,
    ahead: Mutex<Option<Sender<Order>>>,
}

impl BlockReader {
    pub(crate) fn new(context: &Arc<Context>, bytes_max: usize) -> (BlockReader, Receiver<Order>) {
        let (ahead, requests) = shoal_runtime::channel::bounded(AHEAD_QUEUE_MAX);
        let reader = BlockReader {
            context: context.clone(),
            bytes_max,
            cached: Mutex::new(Cached {
                slots: FxHashMap::default(),
                order: VecDeque::new(),
                memory: context.shared.options.memory.share(Use::Blocks),
            }),
            loaded: Condvar::new(),
            read: Mutex::new(Read { files: FxHashMap::default(), streams: Streams::new(Instant::now()) }),
            ahead: Mutex::new(Some(ahead)),
        };
        (reader, requests)
    }

    pub(crate) fn stop(&self) {
        self.ahead.lock().take();
    }

    /// Records a read. `Some` if the file is being read in sequence there: what is to be fetched ahead.
    fn record(&self, ino: InodeId, offset: u64, len: u64) -> Option<ReadAhead> {
        if !self.context.shared.options.file_read_ahead {
            return None;
        }
        let (ahead, streams) = {
            let Read { files, streams } = &mut *self.read.lock();
            if files.len() >= SEQUENCE_FILES_MAX && !files.contains_key(&ino) {
                files.clear();
            }
            let ahead = files.entry(ino).or_default().record(offset, len)?;
            (ahead, streams.record(ino, Instant::now()))
        };
        let bytes = self.bytes_max();
        let part = Budget::part_of(bytes - bytes / AHEAD_CACHE_REST, streams) as u64;
        ahead.within(part, u64::from(FETCH_BYTES_MAX))
    }

    /// What the block cache may take at the moment, in bytes.
    fn bytes_max(&self) -> usize {
        self.bytes_max.min(self.context.shared.options.memory.allowed(Use::Blocks))
    }

    /// Evicts what the block cache may not have any more, because more urgent uses need it.
    pub(crate) fn shrink_to_budget(&self) {
        let budget = &self.context.shared.options.memory;
        // Shared by all sessions of the process, and so at least what this one has.
        if budget.used_for(Use::Blocks) > budget.allowed(Use::Blocks) {
            self.cached.lock().shrink_to(self.bytes_max());
        }
    }

    /// Evicts what has been in the cache for long.
    pub(crate) fn evict_old(&self) {
        let mut cached = self.cached.lock();
        while let Some((key, since)) = cached.order.front().copied()
            && since.elapsed() >= BLOCK_AGE_MAX
        {
            cached.order.pop_front();
            cached.forget(key);
        }
        cached.slots.shrink_to_fit();
    }

    /// Whether a chunk is cached, being loaded, or ordered.
    fn has(&self, chunk: BlockRef) -> bool {
        self.cached.lock().slots.contains_key(&(chunk.id, chunk.offset))
    }

    /// Part of a chunk, if it is cached.
    pub(crate) fn peek(&self, chunk: BlockRef, piece: BlockRef) -> Option<Bytes> {
        match self.cached.lock().slots.get(&(chunk.id, chunk.offset)) {
            Some(Slot::Ready(bytes)) => cut(bytes, chunk, piece),
            _ => None,
        }
    }

    /// A read-ahead thread takes an order. Returns false if another thread has taken it.
    fn takes(&self, chunk: BlockRef) -> bool {
        match self.cached.lock().slots.get_mut(&(chunk.id, chunk.offset)) {
            Some(slot @ Slot::Ordered) => {
                *slot = Slot::Loading;
                true
            }
            _ => false,
        }
    }

    fn fill(&self, key: Key, outcome: Option<&Bytes>) {
        let mut cached = self.cached.lock();
        match outcome {
            Some(bytes) => {
                cached.slots.insert(key, Slot::Ready(bytes.clone()));
                cached.order.push_back((key, Instant::now()));
                cached.memory.grow(bytes.len());
                cached.shrink_to(self.bytes_max());
            }
            None => {
                cached.slots.remove(&key);
            }
        }
        drop(cached);
        self.loaded.notify_all();
    }
}

impl Cached {
    /// Evicts a chunk that is ready. Returns whether it was.
    fn forget(&mut self, key: Key) -> bool {
        let Some(Slot::Ready(bytes)) = self.slots.get(&key) else { return false };
        self.memory.shrink(bytes.len());
        self.slots.remove(&key);
        true
    }

    /// Evicts the oldest chunks until the others have at most so many bytes.
    fn shrink_to(&mut self, bytes_max: usize) {
        while self.memory.bytes() > bytes_max
            && let Some((oldest, _)) = self.order.pop_front()
        {
            self.forget(oldest);
        }
    }
}

/// The piece that lies in a chunk.
fn cut(bytes: &Bytes, chunk: BlockRef, piece: BlockRef) -> Option<Bytes> {
    let from = piece.offset.checked_sub(chunk.offset)? as usize;
    let to = from.checked_add(piece.len as usize)?;
    (to <= bytes.len()).then(|| bytes.slice(from..to))
}

/// The chunks of an extent: their borders are multiples of [`FETCH_BYTES_MAX`] in the block.
fn chunks_of(extent: BlockRef) -> impl Iterator<Item = BlockRef> {
    let (start, end) = (extent.offset, extent.offset + extent.len);
    let borders = (start / FETCH_BYTES_MAX..end.div_ceil(FETCH_BYTES_MAX)).map(|n| n * FETCH_BYTES_MAX);
    borders.map(move |border| {
        let offset = border.max(start);
        BlockRef { id: extent.id, offset, len: border.saturating_add(FETCH_BYTES_MAX).min(end) - offset }
    })
}

/// The part of an extent, given with its offset in the file, that lies in a range of the file.
fn clip((at, block): (u64, BlockRef), start: u64, end: u64) -> Option<BlockRef> {
    let skip = start.saturating_sub(at);
    let len = u64::from(block.len).min(end.saturating_sub(at)).checked_sub(skip).filter(|len| *len > 0)?;
    // Both are less than the block's length.
    Some(BlockRef { id: block.id, offset: block.offset + skip as u32, len: len as u32 })
}

fn overlap(one: &BlockRef, other: &BlockRef) -> bool {
    one.id == other.id && one.offset < other.offset + other.len && other.offset < one.offset + one.len
}

/// Splits a piece at the borders of chunks, each part with the chunk that it lies in.
pub(crate) fn split(piece: BlockRef, chunks: &[BlockRef]) -> Vec<(BlockRef, Option<BlockRef>)> {
    let mut parts = Vec::new();
    let (mut at, end) = (piece.offset, piece.offset + piece.len);
    while at < end {
        let its = chunks.iter().filter(|chunk| chunk.id == piece.id && chunk.offset + chunk.len > at);
        let next = its.min_by_key(|chunk| chunk.offset).copied();
        let (until, chunk) = match next {
            Some(chunk) if chunk.offset <= at => (end.min(chunk.offset + chunk.len), Some(chunk)),
            Some(chunk) => (end.min(chunk.offset), None),
            None => (end, None),
        };
        parts.push((BlockRef { id: piece.id, offset: at, len: until - at }, chunk));
        at = until;
    }
    parts
}

impl BlockReader {
    /// Starts the threads that read ahead.
    pub(crate) fn start(
        self: &Arc<BlockReader>,
        requests: &Receiver<Order>,
    ) -> impl Iterator<Item = JoinHandle<()>> {
        (0..READ_AHEAD_THREADS).map(move |n| {
            let (reader, requests) = (Arc::clone(self), requests.clone());
            let run = move || {
                for Order { chunk, near } in requests {
                    if reader.takes(chunk) {
                        // The call that needs the bytes will meet the same error and report it.
                        let _ = reader.fetch_chunk(chunk, &near, Persistence::GiveUp);
                    }
                }
            };
            let thread = Builder::new().name(format!("shoal-ahead-{n}"));
            thread.spawn(run).expect("the system has room for a thread")
        })
    }

    /// The chunks in which pieces of a read are cached or are to be fetched; the other pieces are fetched as
    /// they are. If the file is being read in sequence there, the next chunks are queued for read-ahead.
    pub(crate) fn chunks_for(&self, ino: InodeId, offset: u64, len: u64, pieces: &[Piece]) -> Vec<BlockRef> {
        if in_memory(pieces) {
            return Vec::new();
        }
        let ahead = self.record(ino, offset, len);
        let (before, behind) = match ahead {
            None => (0, 0),
            Some(ReadAhead::Forward(bytes)) => (0, bytes),
            Some(ReadAhead::Backward(bytes)) => (bytes, 0),
            Some(ReadAhead::Strided(stride)) => return self.strided(ino, stride),
        };
        let (start, end) = (offset.saturating_sub(before), offset.saturating_add(len).saturating_add(behind));
        let (extents, is_short) = {
            let core = &mut self.context.state.lock().core;
            (core.blocks_between(ino, start, end, READ_AHEAD_EXTENTS_MAX), core.is_short(ino))
        };
        let chunks: Vec<BlockRef> = extents.into_iter().flat_map(|(_, block)| chunks_of(block)).collect();
        let is_read = |chunk: &BlockRef| pieces.iter().any(|piece| is_in(piece, chunk));
        let first = chunks.iter().position(is_read).unwrap_or(chunks.len());
        let last = chunks.iter().rposition(is_read).map_or(first, |last| last + 1);
        let mut read = chunks[first..last].to_vec();
        match ahead {
            None if is_short => {}
            None => read.retain(|chunk| self.has(*chunk)),
            Some(_) => {
                let next: Vec<BlockRef> = match before {
                    0 => chunks[last..].to_vec(),
                    _ => chunks[..first].iter().rev().copied().collect(),
                };
                // The chunks of this read come first.
                self.order(&read, u64::MAX);
                self.order(&next, before + behind);
            }
        }
        read
    }

    /// The chunks of the record that a strided reader reads; those of the next records are queued.
    fn strided(&self, ino: InodeId, stride: Stride) -> Vec<BlockRef> {
        let record = |n: u64| {
            let start = stride.start.saturating_add(n.saturating_mul(stride.step));
            (start, start.saturating_add(stride.len))
        };
        let end = record(stride.ahead).1;
        let extents = {
            let core = &mut self.context.state.lock().core;
            core.blocks_between(ino, stride.start, end, READ_AHEAD_EXTENTS_MAX)
        };
        let chunks = |n: u64| -> Vec<BlockRef> {
            let (start, end) = record(n);
            extents.iter().filter_map(|extent| clip(*extent, start, end)).flat_map(chunks_of).collect()
        };
        let read = chunks(0);
        let next: Vec<BlockRef> = (1..=stride.ahead).flat_map(chunks).collect();
        self.order(&read, u64::MAX);
        self.order(&next, u64::MAX);
        read
    }

    /// The bytes of a piece, from memory or from a brick: with the chunk that it lies in, if that is to be
    /// fetched. `near` are chunks that are wanted around the same time.
    pub(crate) fn read_piece(
        &self,
        piece: BlockRef,
        chunk: Option<BlockRef>,
        near: &[BlockRef],
    ) -> Result<Bytes, BlockError> {
        let Some(chunk) = chunk else { return read_block(&self.context, piece, near, Persistence::Wait) };
        let bytes = self.load(chunk, near, Persistence::Wait)?;
        cut(&bytes, chunk, piece).ok_or(BlockError::Invalid { id: piece.id, what: "short read".into() })
    }

    /// Queues extents for read-ahead, up to `bytes_max` bytes.
    pub(crate) fn read_ahead(&self, extents: &[BlockRef], bytes_max: u64) {
        let chunks: Vec<BlockRef> = extents.iter().copied().flat_map(chunks_of).collect();
        self.order(&chunks, bytes_max);
    }

    /// Queues chunks for read-ahead, up to `bytes_max` bytes.
    fn order(&self, chunks: &[BlockRef], bytes_max: u64) {
        let ahead = self.ahead.lock();
        let Some(ahead) = &*ahead else { return };
        let near: Arc<[BlockRef]> = chunks.into();
        let mut bytes = 0u64;
        for chunk in chunks {
            bytes += u64::from(chunk.len);
            if bytes > bytes_max {
                return;
            }
            let key = (chunk.id, chunk.offset);
            let mut cached = self.cached.lock();
            if cached.slots.contains_key(&key) {
                continue;
            }
            // Backpressure: a full queue means that the bricks are busy.
            if ahead.try_send(Order { chunk: *chunk, near: near.clone() }).is_err() {
                return;
            }
            cached.slots.insert(key, Slot::Ordered);
        }
    }

    /// A whole chunk: from memory, from another thread that is loading it, or from the brick.
    fn load(
        &self,
        chunk: BlockRef,
        near: &[BlockRef],
        persistence: Persistence,
    ) -> Result<Bytes, BlockError> {
        let key = (chunk.id, chunk.offset);
        let mut cached = self.cached.lock();
        loop {
            match cached.slots.get(&key) {
                Some(Slot::Ready(bytes)) if bytes.len() >= chunk.len as usize => {
                    self.context.counters.block_hits.add(1);
                    return Ok(bytes.clone());
                }
                Some(Slot::Loading) => self.loaded.wait(&mut cached),
                _ => break,
            }
        }
        // A shorter one may be cached, from a time when the extent was shorter.
        if cached.forget(key) {
            cached.order.retain(|(other, _)| *other != key);
        }
        cached.slots.insert(key, Slot::Loading);
        drop(cached);
        self.fetch_chunk(chunk, near, persistence)
    }

    /// Fetches a chunk whose slot this thread has taken.
    fn fetch_chunk(
        &self,
        chunk: BlockRef,
        near: &[BlockRef],
        persistence: Persistence,
    ) -> Result<Bytes, BlockError> {
        let fetched = read_block(&self.context, chunk, near, persistence);
        self.fill((chunk.id, chunk.offset), fetched.as_ref().ok());
        fetched
    }
}

/// Whether a piece is a part of a block that overlaps a chunk.
fn is_in(piece: &Piece, chunk: &BlockRef) -> bool {
    matches!(piece, Piece::Block(block) if overlap(block, chunk))
}

/// Whether no piece is on a brick.
fn in_memory(pieces: &[Piece]) -> bool {
    !pieces.iter().any(|piece| matches!(piece, Piece::Block(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::SessionId;

    const MIB: u32 = 1 << 20;

    fn part(offset: u32, len: u32) -> BlockRef {
        BlockRef { id: BlockId { session: SessionId(1), seq: 2 }, offset, len }
    }

    #[test]
    fn chunks_of_an_extent_have_the_same_borders_wherever_it_begins() {
        let chunks = |offset, len| chunks_of(part(offset, len)).collect::<Vec<_>>();
        assert_eq!(chunks(0, 2 * MIB), [part(0, MIB), part(MIB, MIB)]);
        assert_eq!(chunks(5, 7), [part(5, 7)]);
        assert_eq!(chunks(MIB - 5, MIB + 6), [part(MIB - 5, 5), part(MIB, MIB), part(2 * MIB, 1)]);
        assert_eq!(chunks(0, 4 * MIB).len(), 4);
    }

    #[test]
    fn extent_is_clipped_to_a_range_of_the_file() {
        let extent = (10 * u64::from(MIB), part(MIB, MIB));
        let clipped = |start: u64, end: u64| clip(extent, start, end);
        let mib = u64::from(MIB);
        assert_eq!(clipped(0, 10 * mib), None);
        assert_eq!(clipped(11 * mib, 12 * mib), None);
        assert_eq!(clipped(0, 10 * mib + 1), Some(part(MIB, 1)));
        assert_eq!(clipped(11 * mib - 3, 12 * mib), Some(part(2 * MIB - 3, 3)));
        assert_eq!(clipped(0, u64::MAX), Some(extent.1));
        assert_eq!(clipped(10 * mib + 5, 10 * mib + 9), Some(part(MIB + 5, 4)));
    }

    #[test]
    fn piece_is_split_at_the_borders_of_chunks() {
        let [one, two] = [part(0, MIB), part(MIB, MIB)];
        assert_eq!(split(part(3, 4), &[]), [(part(3, 4), None)]);
        assert_eq!(split(part(3, 4), &[two, one]), [(part(3, 4), Some(one))]);
        let both = [(part(MIB - 1, 1), Some(one)), (part(MIB, 9), Some(two))];
        assert_eq!(split(part(MIB - 1, 10), &[two, one]), both);
        let around = [(part(MIB - 1, 1), None), (part(MIB, MIB), Some(two)), (part(2 * MIB, 5), None)];
        assert_eq!(split(part(MIB - 1, MIB + 6), &[two]), around);
        let other = BlockRef { id: BlockId { session: SessionId(9), seq: 2 }, ..one };
        assert_eq!(split(part(0, 5), &[other]), [(part(0, 5), None)]);
    }
}
