//! Inodes with their extended attributes and extents, which lie together.

use super::{Check, Finding, Node, Phase};
use crate::keys::{self, Key};
use crate::kv::{KvRead, StoreError};
use crate::records::{self, InodeRecord, Life};
use shoal_types::limits::{BLOCK_BYTES_MAX, FILE_BYTES_MAX, SYMLINK_BYTES_MAX};
use shoal_types::{Extent, FileKind, InodeFlags, InodeId, mode};

/// The inode that is being read.
struct Current {
    ino: InodeId,
    /// `None`: parts of an inode that is not there.
    record: Option<InodeRecord>,
    xattrs: u64,
    extents: u64,
    allocated: u64,
    /// Where the last extent ends.
    end: u64,
}

impl<S: KvRead + ?Sized> Check<'_, S> {
    pub(super) fn files(&mut self) -> Result<(), StoreError> {
        let mut current: Option<Current> = None;
        self.scan(Phase::Files, &keys::all_files(), |check, key, value| {
            let (Key::Inode(ino) | Key::Xattr(ino, _) | Key::Extent(ino, _)) = key else { return };
            if current.as_ref().is_none_or(|current| current.ino != ino) {
                if let Some(done) = current.take() {
                    check.file_done(done);
                }
                current = Some(Current { ino, record: None, xattrs: 0, extents: 0, allocated: 0, end: 0 });
            }
            if let Some(current) = &mut current {
                check.file_part(current, &key, value);
            }
        })?;
        if let Some(done) = current {
            self.file_done(done);
        }
        self.summary.inodes = self.nodes.len() as u64;
        Ok(())
    }

    fn file_part(&mut self, current: &mut Current, key: &Key, value: &[u8]) {
        match key {
            Key::Inode(ino) => {
                current.record = self.decode(key, value);
                if let Some(record) = &current.record {
                    self.inode(*ino, record);
                }
            }
            Key::Xattr(..) => {
                current.xattrs += 1;
                if let Err(error) = records::decode_xattr(value) {
                    self.damaged(&key.encode(), error);
                }
            }
            Key::Extent(_, end) => match records::decode_extent(*end, value) {
                Ok((offset, extent)) => self.extent(current, offset, &extent),
                Err(error) => self.damaged(&key.encode(), error),
            },
            _ => {}
        }
    }

    fn inode(&mut self, ino: InodeId, record: &InodeRecord) {
        let inode = &record.inode;
        if record.wants_compaction() {
            self.to_compact.insert(ino);
        }
        if record.is_dead() {
            self.to_reap.insert(ino);
            return;
        }
        self.used_bytes = self.used_bytes.wrapping_add(inode.allocated);
        self.held.extend(record.holders().iter().map(|session| (*session, ino)));
        if inode.flags != InodeFlags::default() {
            self.flagged.get_or_insert(ino);
        }
        let mut wrong = |what: &str| self.found(Finding::Inode { ino, what: what.to_string() });
        if inode.perm & !mode::ALL != 0 {
            wrong("it has mode bits that are no permissions");
        }
        if inode.flags.intersects(InodeFlags::LINKABLE) && inode.nlink > 0 {
            wrong("it has a name, and is recorded as one that has had none");
        }
        if inode.flags.0 & !(InodeFlags::ALL.0 | InodeFlags::LINKABLE.0) != 0 {
            wrong("it has flags that this program does not know");
        }
        if let Life::Held(sessions) = &record.life
            && (sessions.is_empty() || !sessions.is_sorted_by(|one, next| one < next))
        {
            wrong("the sessions that hold it are none, or out of order");
        }
        let takes_flags = matches!(inode.kind, FileKind::Regular | FileKind::Directory);
        if inode.flags != InodeFlags::default() && !takes_flags {
            wrong("it has flags, but is neither a file with content nor a directory");
        }
        match inode.kind {
            FileKind::Regular if inode.size > FILE_BYTES_MAX => wrong("its size is larger than any file"),
            FileKind::Symlink
                if inode.target.is_empty()
                    || inode.target.len() > SYMLINK_BYTES_MAX
                    || inode.size != inode.target.len() as u64 =>
            {
                wrong("its target is not as long as it says, or no target at all");
            }
            FileKind::Regular | FileKind::Symlink => {}
            _ if inode.size != 0 => wrong("it has a size, but no content"),
            _ => {}
        }
        self.nodes.push(Node {
            ino,
            kind: inode.kind,
            multi_link: inode.multi_link,
            nlink: inode.nlink,
            parent: inode.parent,
            entries: inode.entries,
            names_found: 0,
            subdirs_found: 0,
            links_found: 0,
        });
    }

    fn extent(&mut self, current: &mut Current, offset: u64, extent: &Extent) {
        let ino = current.ino;
        let end = offset + extent.len();
        let mut wrong = |what| self.found(Finding::Extent { ino, offset, what });
        if offset < current.end {
            wrong("it overlaps the one before");
        }
        if end > FILE_BYTES_MAX {
            wrong("it reaches beyond the largest file");
        }
        let living = current.record.as_ref().filter(|record| !record.is_dead());
        if let Some(record) = living {
            if record.inode.kind != FileKind::Regular {
                wrong("only files have content");
            }
            if !matches!(extent, Extent::Zero { .. }) && end > record.inode.size {
                wrong("it has bytes behind the end of the file");
            }
        }
        if let Extent::Block(block) = extent {
            let end = block.offset.saturating_add(block.len);
            if end > BLOCK_BYTES_MAX {
                wrong("it refers to more than a block can hold");
            }
            let found = self.blocks.entry(block.id).or_default();
            found.refs += 1;
            found.end = found.end.max(end);
        }
        current.end = current.end.max(end);
        current.extents += 1;
        current.allocated = current.allocated.saturating_add(extent.len());
        self.summary.extents += 1;
    }

    fn file_done(&mut self, done: Current) {
        let ino = done.ino;
        let Some(record) = &done.record else {
            if done.xattrs > 0 {
                self.found(Finding::NoOwner { ino, what: "an extended attribute" });
            }
            if done.extents > 0 {
                self.found(Finding::NoOwner { ino, what: "an extent" });
            }
            return;
        };
        let xattrs = if record.is_dead() { 0 } else { u64::from(record.inode.xattrs) };
        if xattrs != done.xattrs {
            self.found(Finding::XattrCount { ino, counted: xattrs, found: done.xattrs });
        }
        if record.extents != done.extents {
            self.found(Finding::ExtentCount { ino, counted: record.extents, found: done.extents });
        }
        if !record.is_dead() {
            self.summary.allocated_bytes = self.summary.allocated_bytes.saturating_add(done.allocated);
            if record.inode.allocated != done.allocated {
                self.found(Finding::Allocated {
                    ino,
                    counted: record.inode.allocated,
                    found: done.allocated,
                });
            }
        }
    }
}
