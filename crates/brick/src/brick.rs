//! The brick as a whole. Each operation is in a file of its own.

use crate::disk::refused;
use crate::error::BrickError;
use crate::format;
use crate::get::BlockReader;
use crate::layout::{Layout, Run};
use crate::limits::{RESERVE_BYTES_MAX, RESERVE_SHARE};
use crate::puts::Puts;
use crate::reads::ReadCounts;
use bytes::Bytes;
use nix::fcntl::Flock;
use nix::sys::statvfs::statvfs;
use parking_lot::{Mutex, RwLock};
use shoal_types::{BlockId, SessionId, Statfs};
use shoal_wire::{BlockError, BlockPage, BlockService, Moment};
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An open brick.
pub struct Brick {
    pub(crate) blocks: BlockReader,
    /// Blocks that are being put, or removed as older than a moment.
    pub(crate) under_way: Mutex<HashSet<BlockId>>,
    pub(crate) puts: Mutex<Puts>,
    reads: ReadCounts,
    /// It stores no new blocks.
    pub(crate) sealed: AtomicBool,
    /// Directories that exist and are durable. Making a file in one happens under the read lock, removing an
    /// empty directory under the write lock, so that no file loses the directory it is being made in.
    pub(crate) runs: RwLock<HashSet<Run>>,
    id: u128,
    _lock: Flock<File>,
}

impl Brick {
    /// Makes an empty brick in a new or empty directory.
    pub fn format(dir: &Path) -> Result<(), BrickError> {
        format::format(dir)
    }

    /// Opens a brick. No other process can until it is dropped.
    pub fn open(dir: &Path) -> Result<Arc<Brick>, BrickError> {
        let layout = Layout::new(dir);
        let (lock, id) = format::recognise(&layout)?;
        let blocks = BlockReader::new(layout)?;
        tracing::debug!(disk = ?blocks.disk, brick = %dir.display(), "opened");
        Ok(Arc::new(Brick {
            blocks,
            under_way: Mutex::default(),
            puts: Mutex::new(Puts::new(format::random_id(dir)?)),
            reads: ReadCounts::default(),
            sealed: AtomicBool::new(false),
            runs: RwLock::default(),
            id,
            _lock: lock,
        }))
    }

    /// The brick's identity, the same for all its life.
    pub fn id(&self) -> u128 {
        self.id
    }

    /// Reads all of a block from the disk and checks every byte of its file; answers the length of its
    /// content.
    pub fn verify(&self, id: BlockId) -> Result<u32, BlockError> {
        self.blocks.verify(id)
    }

    /// Total and available bytes of the disk, and how many of them blocks must leave.
    pub(crate) fn room(&self) -> Result<(u64, u64, u64), BlockError> {
        let path = &self.blocks.layout.blocks;
        let room = statvfs(path).map_err(|errno| refused(path)(errno.into()))?;
        let total = room.blocks() * room.fragment_size();
        let available = room.blocks_available() * room.fragment_size();
        Ok((total, available, (total / RESERVE_SHARE).min(RESERVE_BYTES_MAX)))
    }
}

impl BlockService for Brick {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        self.put_block(id, parts)
    }

    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        let content = self.blocks.get(id, offset, len)?;
        self.reads.add(id, 1);
        Ok(content)
    }

    /// Those that were there are durably gone when this returns. A failure to remove one does not keep the
    /// others.
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        self.delete_blocks(ids)
    }

    fn moment(&self) -> Result<Moment, BlockError> {
        Ok(self.puts.lock().now())
    }

    fn delete_older(&self, ids: &[BlockId], than: Moment) -> Result<Vec<BlockId>, BlockError> {
        self.delete_older_blocks(ids, than)
    }

    /// The length in the header; the content is not read.
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        self.blocks.length(id)
    }

    /// What a torn put left behind is listed, too.
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        self.list_from(from)
    }

    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.list_sessions()
    }

    fn statfs(&self) -> Result<Statfs, BlockError> {
        let (total_bytes, available, reserve) = self.room()?;
        Ok(Statfs { total_bytes, free_bytes: available.saturating_sub(reserve), ..Statfs::default() })
    }

    fn check(&self, id: BlockId) -> Result<u32, BlockError> {
        self.verify(id)
    }

    fn take_reads(&self) -> Result<Vec<(BlockId, u32)>, BlockError> {
        Ok(self.reads.take())
    }

    fn note_reads(&self, reads: Vec<(BlockId, u32)>) {
        reads.into_iter().for_each(|(id, count)| self.reads.add(id, count));
    }
}
