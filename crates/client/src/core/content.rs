//! Reading and writing content: where bytes go (inline or into a block), and where they are.

use super::cache::{Body, Content, Node};
use super::{Core, Need, Outcome, seek};
use crate::limits::{
    BARE_READS_MAX, DIR_FETCH_ENTRIES_MAX, EXTENTS_ALIGN_BYTES, EXTENTS_PAGE, EXTENTS_PAGE_EVICTED,
    OP_ROOM_BYTES, READ_WHOLE_BYTES_MAX,
};
use crate::values::{Fallocate, Seek, SeekResult};
use bytes::Bytes;
use shoal_namespace::{Fault, Op, Tree, ops::flags};
use shoal_types::{
    BlockGroup, BlockInfo, BlockRef, Errno, Extent, FileKind, InodeId, Timestamp,
    limits::{BLOCK_BYTES_MAX, FILE_BYTES_MAX},
};

/// A run of bytes to read, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// In memory.
    Bytes(Bytes),
    /// Zeros.
    Zeros(u64),
    /// On a brick.
    Block(BlockRef),
}

impl Core {
    /// Fails unless the inode flags let a program write to a file that it has opened, perhaps to append.
    pub(crate) fn may_open_for_writing(&mut self, ino: InodeId, appends: bool) -> Outcome<()> {
        self.alive()?;
        Ok(flags::may_open_for_writing(&self.cache.need(ino)?.inode, appends)?)
    }

    /// Fails with a need unless the client may change the file, or because its inode flags forbid it: an
    /// append-only file is open for appending alone. Rights come first. If the inode is fetched without them,
    /// another client that writes is recalled twice, for a reader and for a writer.
    pub(crate) fn may_write(&mut self, ino: InodeId) -> Outcome<()> {
        self.may_change(ino)?;
        self.may_open_for_writing(ino, false)
    }

    fn content(&mut self, ino: InodeId) -> Outcome<&mut Content> {
        match &mut self.cache.need(ino)?.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Errno::EISDIR.into()),
            Body::Other => Err(Errno::EINVAL.into()),
        }
    }

    /// Fails with a need unless the extents in a range, and those that adjoin it, are cached.
    fn know(&mut self, ino: InodeId, start: u64, end: u64) -> Outcome<()> {
        match self.content(ino)?.known.first_gap(start.saturating_sub(1), end.saturating_add(1)) {
            Some(gap) => Err(Fault::Tree(Need::Extents(ino, gap))),
            None => Ok(()),
        }
    }

    /// The pieces that hold the bytes of a range, up to the end of the file.
    pub(crate) fn read(&mut self, ino: InodeId, offset: u64, len: u64) -> Outcome<Vec<Piece>> {
        self.alive()?;
        self.content(ino)?;
        let size = self.cache.need(ino)?.inode.size;
        let end = offset.saturating_add(len).min(size);
        let mut pieces = Vec::new();
        let mut at = offset;
        if at >= end {
            return Ok(pieces);
        }
        if let Some(gap) = self.content(ino)?.known.first_gap(offset, end) {
            return Err(Fault::Tree(self.lacks_content(ino, gap)));
        }
        let parent = self.cache.need(ino)?.inode.parent;
        self.walks.read(parent);
        let content = self.content(ino)?;
        let found: Vec<(u64, Extent)> =
            content.overlapping(offset, end).map(|(start, extent)| (start, extent.clone())).collect();
        for (start, extent) in found {
            if start > at {
                pieces.push(Piece::Zeros(start - at));
                at = start;
            }
            let stop = end.min(start + extent.len());
            match extent.slice(at - start, stop - at) {
                Extent::Inline(bytes) => pieces.push(Piece::Bytes(bytes)),
                Extent::Zero { len } => pieces.push(Piece::Zeros(len)),
                Extent::Block(block) => {
                    let mut parts = Vec::new();
                    if self.blocks.read(block.id, block.offset, block.len, &mut parts) {
                        pieces.extend(parts.into_iter().map(Piece::Bytes));
                    } else {
                        self.walks.read_block(block.id);
                        pieces.push(Piece::Block(block));
                    }
                }
            }
            at = stop;
        }
        if at < end {
            pieces.push(Piece::Zeros(end - at));
        }
        self.content(ino)?.is_read |= end == size;
        Ok(pieces)
    }

    /// Whether a file is so short that any read fetches all of it.
    pub(crate) fn is_short(&self, ino: InodeId) -> bool {
        self.cache.peek(ino).is_some_and(|node| node.inode.size <= READ_WHOLE_BYTES_MAX)
    }

    /// The need for content that is not cached: extents of the file, or the contents of many files of the
    /// directory if a program reads them one after the other.
    fn lacks_content(&mut self, ino: InodeId, gap: u64) -> Need {
        if let Some(node) = self.cache.peek(ino)
            && node.inode.size <= self.inline_bytes
            && let dir = node.inode.parent
            && let Some(Node { body: Body::Directory(names), inode, stale: false, .. }) = self.cache.node(dir)
            && names.is_complete()
            && names.contents_after.is_some()
            && inode.entries <= DIR_FETCH_ENTRIES_MAX
        {
            names.single_fetches += 1;
            if names.single_fetches > BARE_READS_MAX {
                return Need::Directory { dir, contents: true };
            }
        }
        // Aligned down, since the file may be read backward.
        let before = gap - gap % EXTENTS_ALIGN_BYTES;
        let known = self.content(ino).ok().map(|content| &content.known);
        Need::Extents(ino, known.and_then(|known| known.first_gap(before, gap)).unwrap_or(gap))
    }

    /// How many extents of a file to request at once.
    pub(crate) fn extents_page(&self, ino: InodeId) -> usize {
        match self.cache.peek(ino) {
            Some(Node { body: Body::File(content), .. }) if content.evicted_to > 0 => EXTENTS_PAGE_EVICTED,
            _ => EXTENTS_PAGE,
        }
    }

    /// The blocks that hold a range of a file, each with the offset in the file at which it begins, as far as
    /// they are known and stored. At most `count` of them.
    pub(crate) fn blocks_between(
        &mut self,
        ino: InodeId,
        start: u64,
        end: u64,
        count: usize,
    ) -> Vec<(u64, BlockRef)> {
        let Ok(content) = self.content(ino) else { return Vec::new() };
        let known: Vec<(u64, BlockRef)> = content
            .overlapping(start, end)
            .filter_map(
                |(at, extent)| if let Extent::Block(block) = extent { Some((at, *block)) } else { None },
            )
            .take(count)
            .collect();
        known.into_iter().filter(|(_, block)| self.blocks.is_stored(block.id)).collect()
    }

    /// Gives the kernel the permit to write to a file, if the client has the exclusive right to it. `waits`:
    /// if the right is being recalled, the caller waits.
    pub(crate) fn acquire_write_permit(&mut self, ino: InodeId, waits: bool, now: Timestamp) -> Outcome<()> {
        self.alive()?;
        if self.is_closed_to_writers(ino) {
            if waits {
                self.writers.note_waiter(ino);
            }
            return Err(Fault::Tree(Need::RecallDone(ino)));
        }
        self.may_change(ino)?;
        self.writers.may_write(ino, now);
        Ok(())
    }

    /// Whether the right to change a file is about to be released.
    pub(crate) fn is_closed_to_writers(&self, ino: InodeId) -> bool {
        self.writers.is_closed(ino, self.cache.cover(ino))
    }

    /// Writes. Small files stay inline, and a sequential writer fills blocks, of what it overwrites too. Any
    /// other small write into a large file is inline; the server merges it with its neighbours later.
    pub(crate) fn write(
        &mut self,
        ino: InodeId,
        offset: u64,
        data: &Bytes,
        clear_setid: bool,
        now: Timestamp,
    ) -> Outcome<()> {
        let len = data.len() as u64;
        if len == 0 {
            return Ok(());
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::EFBIG)?;
        self.admit(len + OP_ROOM_BYTES)?;
        self.report_to_write(ino)?;
        self.may_change(ino)?;
        self.content(ino)?;
        let inode = &self.cache.need(ino)?.inode;
        // Before any bytes are put into a block.
        flags::may_change_content(inode, offset)?;
        let (size, is_append_only) = (inode.size, inode.flags.is_append_only());
        // A small file may move into a block as a whole. All extents that the steps below need must be cached
        // first, so that no step returns a need after another has changed something.
        let from = if size <= self.inline_bytes { 0 } else { offset };
        self.know(ino, from, end)?;
        let put = |content, declare, offset, len| Op::Write {
            ino,
            offset,
            len,
            content: Some(content),
            size_min: offset + len,
            time: now,
            clear_setid,
            declare,
        };
        if let Some((id, next)) = self.content(ino)?.stream
            && next == offset
            && let Some(filled) = self.blocks.open_len(id)
        {
            // A sequential writer: as much as fits is appended to its open block.
            let fits = len.min(block_room(offset - u64::from(filled), filled));
            if fits > 0 {
                let part = data.slice(..fits as usize);
                let content = Extent::Block(BlockRef { id, offset: filled, len: fits as u32 });
                self.blocks.append(id, part);
                let room = fits + OP_ROOM_BYTES;
                let done = self.execute(put(content, None, offset, fits), &[ino], &[], room);
                debug_assert!(done.is_ok(), "continuing a block cannot fail: {done:?}");
                done?;
                self.go_on(ino, id, offset + fits, filled + fits as u32);
                return match data.slice(fits as usize..) {
                    rest if rest.is_empty() => Ok(()),
                    rest => self.write_rest(ino, offset + fits, &rest, clear_setid, now),
                };
            }
        }
        if size.max(end) <= self.inline_bytes {
            return self.execute(
                put(Extent::Inline(data.clone()), None, offset, len),
                &[ino],
                &[],
                len + OP_ROOM_BYTES,
            );
        }
        // Of an append-only file nothing before the end may be written.
        if size <= self.inline_bytes && offset <= size && size > 0 && !is_append_only {
            // The file outgrows its inline bytes: they move into the block.
            let head = self.inline_head(ino, offset)?;
            if let Some(mut head) = head {
                head.push(data.clone());
                return self.write_block(ino, 0, head, clear_setid, now);
            }
        }
        if len >= self.inline_bytes || offset >= size || self.is_sequential(ino, offset)? {
            // A block that is short when its batch is sealed becomes inline bytes.
            return self.write_block(ino, offset, vec![data.clone()], clear_setid, now);
        }
        self.execute(put(Extent::Inline(data.clone()), None, offset, len), &[ino], &[], len + OP_ROOM_BYTES)?;
        self.content(ino)?.run.record(offset, len);
        Ok(())
    }

    /// Whether a small write continues a sequential writer.
    fn is_sequential(&mut self, ino: InodeId, offset: u64) -> Outcome<bool> {
        let run_bytes_min = self.inline_bytes;
        let Content { stream, run, .. } = self.content(ino)?;
        Ok(stream.is_some_and(|(_, next)| next == offset) || run.len_before(offset) >= run_bytes_min)
    }

    /// Writes at the end of the file. Returns that offset.
    pub(crate) fn append(
        &mut self,
        ino: InodeId,
        data: &Bytes,
        clear_setid: bool,
        now: Timestamp,
    ) -> Outcome<u64> {
        self.alive()?;
        self.report_to_write(ino)?;
        self.may_change(ino)?;
        let end = self.cache.need(ino)?.inode.size;
        self.write(ino, end, data, clear_setid, now)?;
        Ok(end)
    }

    /// Writes back pages that a program has changed through a mapping. Bytes beyond the end of the file are
    /// left out, because mappings do not extend it. With `over` it writes only if the file still consists of
    /// these pieces; returns whether it did.
    pub(crate) fn write_back(
        &mut self,
        ino: InodeId,
        offset: u64,
        data: &Bytes,
        over: Option<&[Piece]>,
        now: Timestamp,
    ) -> Outcome<bool> {
        self.alive()?;
        self.may_change(ino)?;
        let size = self.cache.need(ino)?.inode.size;
        let data = data.slice(..size.saturating_sub(offset).min(data.len() as u64) as usize);
        if let Some(over) = over
            && self.read(ino, offset, data.len() as u64)? != over
        {
            return Ok(false);
        }
        self.write(ino, offset, &data, false, now)?;
        Ok(true)
    }

    /// The bytes before `offset` of a small file, if all of them are in memory.
    fn inline_head(&mut self, ino: InodeId, offset: u64) -> Outcome<Option<Vec<Bytes>>> {
        let pieces = self.read(ino, 0, offset)?;
        Ok(pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Bytes(bytes) => Some(bytes),
                Piece::Zeros(len) => Some(vec![0; len as usize].into()),
                Piece::Block(_) => None,
            })
            .collect())
    }

    /// Begins a block at `offset` with these parts; what does not fit goes into further blocks.
    fn write_block(
        &mut self,
        ino: InodeId,
        offset: u64,
        parts: Vec<Bytes>,
        clear_setid: bool,
        now: Timestamp,
    ) -> Outcome<()> {
        let room = block_room(offset, 0);
        let mut fitting = Vec::new();
        let mut rest = Vec::new();
        let mut filled = 0u64;
        for part in parts {
            let fits = (part.len() as u64).min(room - filled) as usize;
            if fits > 0 {
                fitting.push(part.slice(..fits));
                filled += fits as u64;
            }
            if fits < part.len() {
                rest.push(part.slice(fits..));
            }
        }
        let id = self.blocks.begin(ino);
        for part in fitting {
            self.blocks.append(id, part);
        }
        let op = Op::Write {
            ino,
            offset,
            len: filled,
            content: Some(Extent::Block(BlockRef { id, offset: 0, len: filled as u32 })),
            size_min: offset + filled,
            time: now,
            clear_setid,
            declare: Some((id, BlockInfo { len: filled as u32, group: BlockGroup::default() })),
        };
        if let Err(fault) = self.execute(op, &[ino], &[], filled.min(self.room)) {
            self.blocks.abandon(id);
            return Err(fault);
        }
        self.go_on(ino, id, offset + filled, filled as u32);
        let mut at = offset + filled;
        for part in rest {
            self.write_rest(ino, at, &part, clear_setid, now)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes the part behind a block's end. It was admitted with the first part, and all extents that it
    /// needs are cached.
    fn write_rest(
        &mut self,
        ino: InodeId,
        offset: u64,
        data: &Bytes,
        clear_setid: bool,
        now: Timestamp,
    ) -> Outcome<()> {
        self.write_block(ino, offset, vec![data.clone()], clear_setid, now)
    }

    /// Remembers where a sequential writer will continue, and closes a block that is full.
    fn go_on(&mut self, ino: InodeId, id: shoal_types::BlockId, next: u64, filled: u32) {
        if block_room(next - u64::from(filled), filled) == 0 {
            self.blocks.close(id);
        }
        if let Ok(content) = self.content(ino) {
            content.stream = Some((id, next));
        }
    }

    /// fallocate(2).
    pub(crate) fn fallocate(
        &mut self,
        ino: InodeId,
        offset: u64,
        len: u64,
        what: Fallocate,
        now: Timestamp,
    ) -> Outcome<()> {
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::EFBIG)?;
        match self.content(ino) {
            Err(Fault::Errno(Errno::EINVAL)) => return Err(Errno::ENODEV.into()),
            other => other.map(drop)?,
        }
        let (punch, fill) = match what {
            Fallocate::Allocate { keep_size } => (false, Some(keep_size)),
            Fallocate::PunchHole => (true, None),
            Fallocate::ZeroRange { keep_size } => (true, Some(keep_size)),
        };
        let room = if fill.is_some() { len + OP_ROOM_BYTES } else { 0 };
        self.admit(room)?;
        self.report_to_write(ino)?;
        self.may_change(ino)?;
        let inode = &self.cache.need(ino)?.inode;
        if punch { flags::may_punch(inode) } else { flags::may_reserve(inode) }?;
        // Both steps below need the same extents: if these are cached, the second cannot fail.
        self.know(ino, offset, end)?;
        let op = |content, size_min| Op::Write {
            ino,
            offset,
            len,
            content,
            size_min,
            time: now,
            clear_setid: false,
            declare: None,
        };
        if punch {
            self.share_blocks(ino, offset, end)?;
            self.execute(op(None, 0), &[ino], &[], 0)?;
        }
        if let Some(keep_size) = fill {
            let size_min = if keep_size { 0 } else { end };
            self.execute(op(Some(Extent::Zero { len }), size_min), &[ino], &[], room)?;
        }
        Ok(())
    }

    /// Blocks named in a range must be stored as blocks, even if they are small enough to be inlined.
    fn share_blocks(&mut self, ino: InodeId, start: u64, end: u64) -> Outcome<()> {
        for (_, extent) in self.cache.extents(ino, start, end)? {
            if let Extent::Block(block) = extent {
                self.blocks.share(block.id);
            }
        }
        Ok(())
    }

    /// copy_file_range(2) by sharing blocks. Returns the number of copied bytes.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn clone_range(
        &mut self,
        src: InodeId,
        src_offset: u64,
        dst: InodeId,
        dst_offset: u64,
        len: u64,
        now: Timestamp,
    ) -> Outcome<u64> {
        self.content(src)?;
        self.content(dst)?;
        let size = self.cache.need(src)?.inode.size;
        let len = len.min(size.saturating_sub(src_offset));
        if len == 0 {
            return Ok(0);
        }
        dst_offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::EFBIG)?;
        // Inline bytes are copied; blocks are shared and cost a record.
        let room = self
            .cache
            .extents(src, src_offset, src_offset + len)?
            .iter()
            .map(|(_, extent)| {
                OP_ROOM_BYTES + if let Extent::Inline(b) = extent { b.len() as u64 } else { 0 }
            })
            .sum::<u64>()
            + OP_ROOM_BYTES;
        self.admit(room)?;
        self.report_to_write(dst)?;
        self.share_blocks(src, src_offset, src_offset + len)?;
        let op = Op::CloneRange { src, src_offset, dst, dst_offset, len, time: now, clear_setid: false };
        let subjects: &[InodeId] = if src == dst { &[src] } else { &[dst, src] };
        self.execute(op, subjects, &[], room)?;
        Ok(len)
    }

    /// lseek(2) for data and holes. Allocated zeros count as a hole, as unwritten extents do elsewhere.
    pub(crate) fn seek(&mut self, ino: InodeId, offset: u64, what: Seek) -> Outcome<SeekResult> {
        self.alive()?;
        let inode = &self.cache.need(ino)?.inode;
        let size = inode.size;
        if inode.kind != FileKind::Regular {
            return Err(Errno::EINVAL.into());
        }
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        let extents = self.cache.extents(ino, seek::unit_start(offset), size)?;
        let data = extents.iter().filter(|(_, extent)| !matches!(extent, Extent::Zero { .. }));
        Ok(seek::seek(data.map(|(start, extent)| *start..start + extent.len()), offset, size, what))
    }
}

/// How many more bytes belong into a block that begins at `start` in its file and holds `filled`. Blocks end
/// at the next multiple of the block size, so that they tile a file wherever it was begun.
fn block_room(start: u64, filled: u32) -> u64 {
    let block = u64::from(BLOCK_BYTES_MAX);
    block - start % block - u64::from(filled)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{core, make_file};
    use super::*;
    use crate::limits::BATCH_BLOCK_BYTES_MAX;
    use shoal_types::Name;

    #[test]
    fn batch_that_ends_within_a_write_leaves_no_hole_for_the_rest() {
        let (mut core, name) = (core(), Name::try_from("file").expect("a name"));
        core.room = u64::MAX / 2;
        let ino = make_file(&mut core, InodeId::ROOT, &name);
        let (data, now) = (Bytes::from(vec![7; 1 << 20]), Timestamp::default());
        let mut at = 0;
        while at <= BATCH_BLOCK_BYTES_MAX {
            let len = if at == 0 { 1000 } else { data.len() };
            core.write(ino, at, &data.slice(..len), false, now).expect("nothing is needed");
            at += len as u64;
        }
        let sealed = core.journal.take_sealed().expect("its blocks are as many as a batch may have");
        let size = |op: &Op| if let Op::Write { size_min, .. } = op { Some(*size_min) } else { None };
        assert_eq!(sealed.ops.iter().filter_map(size).max(), Some(BATCH_BLOCK_BYTES_MAX));
    }

    #[test]
    fn blocks_end_at_multiples_of_the_block_size() {
        let block = u64::from(BLOCK_BYTES_MAX);
        assert_eq!(block_room(0, 0), block);
        assert_eq!(block_room(0, BLOCK_BYTES_MAX), 0);
        assert_eq!(block_room(10, 0), block - 10);
        assert_eq!(block_room(3 * block - 1, 0), 1);
    }
}
