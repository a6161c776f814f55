//! Reading shards, and restoring those that cannot be read.
//!
//! Each wanted shard is asked of its own brick, all of them in parallel. What is missing, damaged or slow is
//! restored from the same columns of any `k` others; what was read already counts among those.

use super::Inner;
use super::call::Calls;
use super::fetch::Reading;
use super::names;
use crate::limits::{CODERS_KEPT_MAX, FETCH_HEDGE, FETCH_WAIT_MAX};
use bytes::{Bytes, BytesMut};
use shoal_coding::{Coder, CodingError, Layout, Piece, Scheme, Shard};
use shoal_runtime::time::Instant;
use shoal_types::{BlockGroup, BlockId, BrickId, SHARD_COLUMN_BYTES};
use shoal_wire::BlockError;
use std::ops::Range;
use std::sync::Arc;

/// A range of a shard, in whole columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    pub(super) index: usize,
    pub(super) columns: Range<u32>,
}

/// A group of shards as the code sees it.
pub(super) fn scheme_of(group: &BlockGroup) -> Result<Scheme, BlockError> {
    let parity = group.all_shards().saturating_sub(group.data_shards());
    Scheme::new(group.data_shards(), parity).ok_or_else(|| BlockError::Io {
        what: format!("a block in {group:?}"),
        cause: "this version does not know the scheme".into(),
    })
}

// What a record says in columns is what the code takes for columns.
const _: () = assert!(SHARD_COLUMN_BYTES == shoal_coding::limits::COLUMN_BYTES);

fn not_coded(id: BlockId, error: CodingError) -> BlockError {
    BlockError::Io { what: format!("block {id}"), cause: error.to_string() }
}

impl Inner {
    /// Uses a coder that keeps its memory for the next block.
    pub(super) fn with_coder<T>(
        &self,
        id: BlockId,
        work: impl FnOnce(&mut Coder) -> Result<T, CodingError>,
    ) -> Result<T, BlockError> {
        let mut coder = self.coders.lock().pop().unwrap_or_default();
        let outcome = work(&mut coder);
        let mut kept = self.coders.lock();
        if kept.len() < CODERS_KEPT_MAX {
            kept.push(coder);
        }
        outcome.map_err(|error| not_coded(id, error))
    }

    pub(super) fn fetch_shards(
        self: &Arc<Inner>,
        id: BlockId,
        group: BlockGroup,
        offset: u32,
        len: u32,
    ) -> Result<(Bytes, Reading), BlockError> {
        let scheme = scheme_of(&group)?;
        // The group knows no more of the block's length; callers ask for nothing behind its end.
        let layout = Layout { scheme, len: group.shard_bytes() * scheme.data() as u32 };
        if offset.checked_add(len).is_none_or(|end| end > layout.len) {
            return Err(BlockError::Invalid { id, what: format!("{offset}+{len} is behind its end") });
        }
        let pieces: Vec<_> = layout.pieces(offset, len).collect();
        let wanted = |piece: &Piece| Wanted { index: piece.index, columns: layout.columns(&piece.range) };
        let (shards, reading) =
            self.read_shards(id, group, &pieces.iter().map(wanted).collect::<Vec<_>>())?;
        let bytes = |(piece, shard): (&Piece, &Shard)| {
            let range = piece.range.start - shard.offset..piece.range.end - shard.offset;
            shard.bytes.slice(range.start as usize..range.end as usize)
        };
        let mut parts = pieces.iter().zip(&shards).map(bytes);
        if pieces.len() <= 1 {
            return Ok((parts.next().unwrap_or_default(), reading));
        }
        let mut content = BytesMut::with_capacity(len as usize);
        parts.for_each(|part| content.extend_from_slice(&part));
        Ok((content.freeze(), reading))
    }

    /// Ranges of different shards of a block, in the order in which they are wanted, and what was observed of
    /// the bricks.
    pub(super) fn read_shards(
        self: &Arc<Inner>,
        id: BlockId,
        group: BlockGroup,
        wanted: &[Wanted],
    ) -> Result<(Vec<Shard>, Reading), BlockError> {
        let scheme = scheme_of(&group)?;
        let mut gather =
            Gather { inner: self, id, group, scheme, reading: Reading::default(), read: Vec::new() };
        gather.directly(wanted);
        let is_read = |it: &Wanted| gather.part(it.index, &it.columns).is_some();
        let lost: Vec<&Wanted> = wanted.iter().filter(|it| !is_read(it)).collect();
        let start = lost.iter().map(|it| it.columns.start).min().unwrap_or(0);
        let end = lost.iter().map(|it| it.columns.end).max().unwrap_or(0);
        let indexes: Vec<usize> = lost.iter().map(|it| it.index).collect();
        let restored = match indexes.is_empty() {
            true => Vec::new(),
            false => gather.restore(&indexes, start..end)?,
        };
        gather.read.extend(restored);
        let part = |it: &Wanted| gather.part(it.index, &it.columns);
        let shards: Option<Vec<Shard>> = wanted.iter().map(part).collect();
        let shards = shards.ok_or(BlockError::Missing(id))?;
        Ok((shards, gather.reading))
    }
}

/// Shards of one block that are being read.
struct Gather<'a> {
    inner: &'a Arc<Inner>,
    id: BlockId,
    group: BlockGroup,
    scheme: Scheme,
    reading: Reading,
    read: Vec<Shard>,
}

impl Gather<'_> {
    /// A range of a shard, if it was read.
    fn part(&self, index: usize, columns: &Range<u32>) -> Option<Shard> {
        let own = self.read.iter().filter(|shard| shard.index == index);
        own.filter_map(|shard| shard.part(self.scheme, columns.clone())).next()
    }

    fn start(&self, calls: &mut Calls<Bytes>, index: usize, brick: BrickId, columns: &Range<u32>) {
        let (name, offset, len) =
            (names::of_shard(self.id, index), columns.start, columns.end - columns.start);
        calls.start_get(self.inner, brick, name, offset, len);
    }

    /// Takes in an answer. Bricks verify what they answer, so it is an intact shard.
    fn answered(&mut self, brick: BrickId, columns: &Range<u32>, answer: Result<Bytes, BlockError>) {
        let len = (columns.end - columns.start) as usize;
        match (answer, self.group.shard_on(brick)) {
            (Ok(content), Some(index)) if content.len() == len => {
                self.read.push(Shard::new(self.scheme, index, columns.start, content));
            }
            (answer, _) => self.reading.note(self.id, brick, answer),
        }
    }

    /// Asks the wanted shards' own bricks, as far as they are up.
    fn directly(&mut self, wanted: &[Wanted]) {
        let mut calls = Calls::new();
        for it in wanted {
            let brick = self.group.shard(it.index).filter(|brick| self.inner.is_good(*brick));
            if let Some(brick) = brick {
                self.start(&mut calls, it.index, brick, &it.columns);
            }
        }
        while let Some((brick, answer)) = calls.next(Instant::now() + FETCH_HEDGE) {
            let own = |it: &&Wanted| self.group.shard(it.index) == Some(brick);
            let columns = wanted.iter().find(own).map_or(0..0, |it| it.columns.clone());
            self.answered(brick, &columns, answer);
        }
        if !calls.pending.is_empty() {
            self.reading.is_late.clone_from(&calls.pending);
        }
    }

    /// Restores shards over a range from that range of any `k` others.
    fn restore(&mut self, lost: &[usize], columns: Range<u32>) -> Result<Vec<Shard>, BlockError> {
        let give_up = Instant::now() + FETCH_WAIT_MAX;
        let known = |it: &Self| -> Vec<Shard> {
            (0..it.scheme.shards()).filter_map(|index| it.part(index, &columns)).collect()
        };
        let mut left = self.others(&columns);
        let mut calls = Calls::new();
        let (mut late, mut have) = (0, known(self).len());
        loop {
            while have + calls.pending.len() < self.scheme.data() + late
                && let Some((index, brick)) = left.pop()
            {
                self.start(&mut calls, index, brick, &columns);
            }
            if have >= self.scheme.data() || calls.pending.is_empty() {
                break;
            }
            match calls.next((Instant::now() + FETCH_HEDGE).min(give_up)) {
                Some((brick, answer)) => {
                    self.answered(brick, &columns, answer);
                    have = known(self).len();
                    late = late.min(calls.pending.len());
                }
                None if Instant::now() >= give_up => break,
                None => late = calls.pending.len(),
            }
        }
        let have = known(self);
        if have.len() < self.scheme.data() {
            calls.pending.iter().for_each(|brick| self.inner.health.failed(*brick));
            return Err(self.reading.verdict(self.id, !calls.pending.is_empty()));
        }
        // Later reads should not wait for those either.
        let late = self.reading.is_late.iter().filter(|brick| {
            self.group.shard_on(**brick).is_some_and(|index| have.iter().all(|shard| shard.index != index))
        });
        late.for_each(|brick| self.inner.health.failed(*brick));
        self.inner.with_coder(self.id, |coder| coder.restore(self.scheme, lost, &have))
    }

    /// Shards that were not read and may still be there, the best to ask last.
    fn others(&self, columns: &Range<u32>) -> Vec<(usize, BrickId)> {
        let map = self.inner.bricks.map();
        let is_bad = |brick: &BrickId| {
            self.reading.absent.contains(brick)
                || self.reading.damaged.contains(brick)
                || crate::placement::is_gone(&map, *brick)
        };
        let may_ask =
            |(index, brick): &(usize, BrickId)| !is_bad(brick) && self.part(*index, columns).is_none();
        let mut others: Vec<(usize, BrickId)> = self.group.shards().filter(may_ask).collect();
        let here = self.inner.bricks.here();
        let is_local = |brick: BrickId| here.is_some() && map.bricks.get(&brick).map(|it| it.node) == here;
        others.sort_by_cached_key(|(index, brick)| {
            let is_late = self.reading.is_late.contains(brick);
            (self.inner.is_good(*brick) && !is_late, is_local(*brick), std::cmp::Reverse(*index))
        });
        others
    }
}
