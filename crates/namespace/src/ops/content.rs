//! How a file's content map changes: one range gives way to something else.
//!
//! **References.** Every extent that names a block is one reference to it. Cutting an extent in two adds one,
//! taking an extent away drops one, shortening it changes none.
//!
//! **Joining.** New inline bytes join the inline extents that they touch or overlap, up to
//! [`INLINE_JOIN_BYTES_MAX`]; a new block extent joins one that continues it, both in the file and in the
//! block.

use crate::{Fault, Tree, limits::INLINE_JOIN_BYTES_MAX};
use shoal_types::{BlockId, BlockRef, Errno, Extent, FileKind, Inode, InodeId};

/// Extents with their offsets in the file, in order.
pub(super) type Extents = Vec<(u64, Extent)>;

/// A change of a content map, ready to be written.
#[derive(Default)]
pub(super) struct Patch {
    remove: Vec<u64>,
    put: Extents,
    add_refs: Vec<BlockId>,
    drop_refs: Vec<BlockId>,
    /// Bytes in extents that go or change, and in those that take their places.
    freed: u64,
    taken: u64,
}

impl Patch {
    /// Brings the count of allocated bytes up to date.
    pub(super) fn account(&self, inode: &mut Inode) {
        inode.allocated = inode.allocated.saturating_add(self.taken).saturating_sub(self.freed);
    }

    /// Makes the change. References are added before others are dropped, so that no block that stays in use
    /// is without one for a moment.
    pub(super) fn write<T: Tree>(self, tree: &mut T, ino: InodeId) {
        for id in self.add_refs {
            tree.add_block_ref(id);
        }
        for offset in self.remove {
            tree.remove_extent(ino, offset);
        }
        for (offset, extent) in self.put {
            tree.put_extent(ino, offset, extent);
        }
        for id in self.drop_refs {
            tree.drop_block_ref(id);
        }
    }

    fn put(&mut self, offset: u64, extent: Extent) {
        self.taken += extent.len();
        self.put.push((offset, extent));
    }

    fn put_new(&mut self, offset: u64, extent: Extent) {
        if let Extent::Block(block) = &extent {
            self.add_refs.push(block.id);
        }
        self.put(offset, extent);
    }
}

/// A file that has content. `EISDIR` for a directory, `EINVAL` for the rest.
pub(super) fn file<T: Tree>(tree: &mut T, ino: InodeId) -> Result<Inode, Fault<T::Error>> {
    let inode = super::names::inode(tree, ino)?;
    match inode.kind {
        FileKind::Regular => Ok(inode),
        FileKind::Directory => Err(Errno::EISDIR.into()),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// The extents that overlap or touch a range that is about to be replaced: see
/// [`Tree::extents_to_replace`]. A file with nothing allocated has none, and is not asked for them.
pub(super) fn around<T: Tree>(
    tree: &mut T,
    ino: InodeId,
    inode: &Inode,
    start: u64,
    end: u64,
) -> Result<Extents, Fault<T::Error>> {
    if inode.allocated == 0 {
        return Ok(Vec::new());
    }
    tree.extents_to_replace(ino, start, end)
}

/// `[start, end)` is to hold `pieces`, which lie in it in order, and nothing else. `old` is what lies
/// [`around`] it.
pub(super) fn replace(old: Extents, start: u64, end: u64, mut pieces: Extents) -> Patch {
    let mut joined = (start, end);
    if let Some((offset, piece)) = pieces.first_mut().filter(|(offset, _)| *offset == start)
        && let Some((at, extent)) = join_left(&old, start, piece)
    {
        (joined.0, *offset, *piece) = (at, at, extent);
    }
    if let Some((_, piece)) = pieces.last_mut().filter(|(offset, piece)| offset + piece.len() == end)
        && let Some(extent) = join_right(&old, end, piece)
    {
        joined.1 = end + (extent.len() - piece.len());
        *piece = extent;
    }
    let put_at = pieces.first().map(|(offset, _)| *offset);
    let mut patch = Patch::default();
    for (offset, extent) in old {
        cut(&mut patch, (offset, extent), (start, end), joined, put_at);
    }
    for (offset, extent) in pieces {
        patch.put_new(offset, extent);
    }
    patch
}

/// Takes `range` out of an old extent, and the parts beside it as far as the new extent (`joined`) has taken
/// them in.
fn cut(
    patch: &mut Patch,
    (offset, extent): (u64, Extent),
    range: (u64, u64),
    joined: (u64, u64),
    put_at: Option<u64>,
) {
    let end = offset + extent.len();
    if end <= joined.0 || offset >= joined.1 {
        return;
    }
    // A join takes in the whole of what lies on its side or nothing of it.
    let head = if joined.0 < range.0 { 0 } else { range.0.saturating_sub(offset) };
    let tail = if joined.1 > range.1 { 0 } else { end.saturating_sub(range.1) };
    if head > 0 {
        patch.put(offset, extent.slice(0, head));
    } else if put_at != Some(offset) {
        patch.remove.push(offset);
    }
    if tail > 0 {
        patch.put(range.1, extent.slice(extent.len() - tail, tail));
    }
    patch.freed += extent.len();
    if let Extent::Block(block) = extent {
        match (head > 0, tail > 0) {
            (true, true) => patch.add_refs.push(block.id),
            (false, false) => patch.drop_refs.push(block.id),
            _ => {}
        }
    }
}

/// Fills the gaps of `[start, end)` with reserved room. What is there stays.
pub(super) fn reserve(old: &Extents, start: u64, end: u64) -> Patch {
    let mut patch = Patch::default();
    let mut at = start;
    // Room reserved in steps stays one extent.
    let mut before: Option<(u64, u64)> = None;
    let fill = |patch: &mut Patch, before: Option<(u64, u64)>, at: u64, end: u64| match before {
        Some((offset, zeros)) if offset + zeros == at => {
            patch.freed += zeros;
            patch.put(offset, Extent::Zero { len: end - offset });
        }
        _ => patch.put(at, Extent::Zero { len: end - at }),
    };
    for (offset, extent) in old {
        if *offset >= end {
            break;
        }
        if *offset > at {
            fill(&mut patch, before, at, *offset);
        }
        at = at.max(offset + extent.len());
        before = match extent {
            Extent::Zero { len } => Some((*offset, *len)),
            _ => None,
        };
    }
    if at < end {
        fill(&mut patch, before, at, end);
    }
    patch
}

/// The first new extent together with the one it continues, and where that begins.
fn join_left(old: &Extents, start: u64, new: &Extent) -> Option<(u64, Extent)> {
    let (offset, left) = old.iter().find(|(offset, left)| *offset < start && offset + left.len() >= start)?;
    let head = start - offset;
    match (left, new) {
        (Extent::Inline(left), Extent::Inline(new)) if head + new.len() as u64 <= INLINE_JOIN_BYTES_MAX => {
            Some((*offset, Extent::Inline([left.get(..head as usize)?, new].concat().into())))
        }
        (Extent::Block(left), Extent::Block(new))
            if left.id == new.id && left.offset.checked_add(head as u32) == Some(new.offset) =>
        {
            let len = head as u32 + new.len;
            Some((*offset, Extent::Block(BlockRef { id: new.id, offset: left.offset, len })))
        }
        _ => None,
    }
}

/// The last new extent together with the one that continues it.
fn join_right(old: &Extents, end: u64, new: &Extent) -> Option<Extent> {
    let (offset, right) = old.iter().find(|(offset, right)| *offset <= end && offset + right.len() > end)?;
    let skipped = end - offset;
    let tail = right.len() - skipped;
    match (new, right) {
        (Extent::Inline(new), Extent::Inline(right)) if new.len() as u64 + tail <= INLINE_JOIN_BYTES_MAX => {
            Some(Extent::Inline([&new[..], right.get(skipped as usize..)?].concat().into()))
        }
        (Extent::Block(new), Extent::Block(right))
            if new.id == right.id
                && new.offset.checked_add(new.len) == right.offset.checked_add(skipped as u32) =>
        {
            Some(Extent::Block(BlockRef { id: new.id, offset: new.offset, len: new.len + tail as u32 }))
        }
        _ => None,
    }
}
