//! Reading and verifying blocks.

use crate::aligned::{Buffer, Pool};
use crate::disk::{Disk, refused};
use crate::error::BrickError;
use crate::format;
use crate::header::{Header, padded};
use crate::header_cache::HeaderCache;
use crate::layout::Layout;
use crate::limits::{ALIGN_BYTES, CHUNK_BYTES, FRONT_BYTES_MAX, HEADER_BYTES};
use bytes::Bytes;
use shoal_types::BlockId;
use shoal_wire::BlockError;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Reads the blocks of a brick. More than one process may.
pub struct BlockReader {
    pub(crate) layout: Layout,
    pub(crate) disk: Disk,
    pub(crate) buffers: Pool,
    pub(crate) headers: HeaderCache,
    /// Device and inode of the brick's marker.
    marker: (u64, u64),
}

impl BlockReader {
    /// Of the brick in this directory, which another process may have open. `id` is the identity that it is
    /// expected to have.
    pub fn open(dir: &Path, id: u128) -> Result<BlockReader, BrickError> {
        let layout = Layout::new(dir);
        // The marker is looked at before its content is, so that a change in between is noticed later.
        let reader = BlockReader::new(layout)?;
        match format::identity(&reader.layout)? {
            found if found == id => Ok(reader),
            _ => Err(BrickError::NotABrick(dir.to_owned())),
        }
    }

    pub(crate) fn new(layout: Layout) -> Result<BlockReader, BrickError> {
        let marker = place(&layout.marker()).map_err(BrickError::io(&layout.root))?;
        let buffers = Pool::of_process().clone();
        let probed = Disk::probe(&layout, &mut buffers.lend(ALIGN_BYTES));
        let disk = probed.map_err(BrickError::io(&layout.root))?;
        Ok(BlockReader { layout, disk, buffers, headers: HeaderCache::default(), marker })
    }

    /// Whether the brick is still in its directory, and the same one. Nothing keeps its disk from being
    /// unmounted, or another brick from being put there, by another process.
    pub fn is_there(&self) -> bool {
        place(&self.layout.marker()).is_ok_and(|found| found == self.marker)
    }

    /// Fails if the brick is not in its directory any more. What is not found then is not missing: its disk
    /// may be mounted again.
    pub(crate) fn check_there(&self) -> Result<(), BlockError> {
        if self.is_there() {
            return Ok(());
        }
        let cause = "the brick is not there any more: was its disk unmounted?".to_owned();
        Err(BlockError::Io { what: self.layout.root.display().to_string(), cause })
    }

    /// Reads `len` bytes of a block from `offset` on, checked against its checksums.
    pub fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        let path = self.layout.block(id);
        let file = self.open_block(id, &path)?;
        let end = offset.saturating_add(len);
        let (header, front) = match self.headers.get(id) {
            Some(header) => (header, None),
            // Content near the header comes with it, in one request to the disk.
            None if end <= FRONT_BYTES_MAX => {
                let (header, front) = self.read_front(id, &file, &path, end)?;
                (header, Some(front))
            }
            None => (self.read_header(id, &file, &path)?, None),
        };
        if end > header.len {
            let what = format!("{len} bytes from {offset} on are not within its {}", header.len);
            return Err(BlockError::Invalid { id, what });
        }
        if len == 0 {
            return Ok(Bytes::new());
        }
        let chunks = offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES);
        let first = (chunks.start * CHUNK_BYTES) as usize;
        // Where the first chunk begins in the buffer.
        let (buffer, at) = match front {
            Some(front) => (front, HEADER_BYTES + first),
            None => (self.read_chunks(id, &header, &file, &path, chunks.clone())?, 0),
        };
        verify(id, &header, buffer.get(at..).unwrap_or_default(), chunks)?;
        let wanted = at + (offset as usize - first)..at + (end as usize - first);
        // A small part of a large buffer would keep all of it alive for as long as the caller caches the
        // part.
        if wanted.len() * 2 < buffer.len() {
            Ok(buffer.get(wanted).map(Bytes::copy_from_slice).unwrap_or_default())
        } else {
            Ok(Bytes::from_owner(buffer).slice(wanted))
        }
    }

    /// Reads all of a block from the disk and checks every byte of its file; answers the length of its
    /// content.
    pub fn verify(&self, id: BlockId) -> Result<u32, BlockError> {
        let path = self.layout.block(id);
        let file = self.open_block(id, &path)?;
        let header = self.read_header(id, &file, &path)?;
        let chunks = 0..header.sums.len() as u32;
        let content = self.read_chunks(id, &header, &file, &path, chunks.clone())?;
        verify(id, &header, &content, chunks)?;
        self.disk.forget(&file);
        Ok(header.len)
    }

    /// Length of a block's content, from its header on the disk alone.
    pub(crate) fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        let path = self.layout.block(id);
        let file = self.open_block(id, &path)?;
        Ok(self.read_header(id, &file, &path)?.len)
    }

    fn open_block(&self, id: BlockId, path: &Path) -> Result<File, BlockError> {
        self.disk.open(path).map_err(|error| {
            let is_foreign = || std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file());
            if error.kind() == ErrorKind::NotFound {
                self.check_there().err().unwrap_or(BlockError::Missing(id))
            } else if is_foreign() {
                BlockError::Corrupt { id, what: format!("{} is not a file", path.display()) }
            } else {
                refused(path)(error)
            }
        })
    }

    fn read_header(&self, id: BlockId, file: &File, path: &Path) -> Result<Arc<Header>, BlockError> {
        Ok(self.read_front(id, file, path, 0)?.0)
    }

    /// Reads the header, and the chunks up to byte `end` of the content behind it, in one request.
    fn read_front(
        &self,
        id: BlockId,
        file: &File,
        path: &Path,
        end: u32,
    ) -> Result<(Arc<Header>, Buffer), BlockError> {
        let corrupt = |what| BlockError::Corrupt { id, what };
        let found = file.metadata().map_err(refused(path))?;
        if !found.is_file() {
            return Err(corrupt(format!("{} is not a file", path.display())));
        }
        let wanted = HEADER_BYTES + (end.div_ceil(CHUNK_BYTES) * CHUNK_BYTES) as usize;
        let there = usize::try_from(found.len()).unwrap_or(usize::MAX).next_multiple_of(ALIGN_BYTES);
        let mut front = self.buffers.lend(wanted.min(there).max(HEADER_BYTES));
        let got = self.disk.read(file, &mut front, 0).map_err(refused(path))?;
        let header = match front.first_chunk() {
            Some(bytes) if got >= HEADER_BYTES => Header::decode(id, bytes).map_err(corrupt)?,
            _ => return Err(corrupt(format!("the file has only {} bytes", found.len()))),
        };
        if found.len() != header.file_bytes() {
            let what = format!("the file has {} bytes instead of {}", found.len(), header.file_bytes());
            return Err(corrupt(what));
        }
        if got != front.len() {
            return Err(corrupt(format!("the file ends at byte {got} of {}", header.file_bytes())));
        }
        let header = Arc::new(header);
        self.headers.insert(id, header.clone());
        Ok((header, front))
    }

    /// Reads whole chunks, in one request. They are still to be verified.
    fn read_chunks(
        &self,
        id: BlockId,
        header: &Header,
        file: &File,
        path: &Path,
        chunks: Range<u32>,
    ) -> Result<Buffer, BlockError> {
        let start = (chunks.start * CHUNK_BYTES) as usize;
        let end = padded(header.len).min((chunks.end * CHUNK_BYTES) as usize);
        let mut content = self.buffers.lend(end - start);
        let at = (HEADER_BYTES + start) as u64;
        let got = self.disk.read(file, &mut content, at).map_err(refused(path))?;
        if got != content.len() {
            let what = format!("the file ends at byte {} of {}", at + got as u64, header.file_bytes());
            return Err(BlockError::Corrupt { id, what });
        }
        Ok(content)
    }
}

/// Checks chunks of a block against its checksums; `content` begins with the first of them.
fn verify(id: BlockId, header: &Header, content: &[u8], chunks: Range<u32>) -> Result<(), BlockError> {
    for (chunk, index) in content.chunks(CHUNK_BYTES as usize).zip(chunks) {
        let stored = header.sums.get(index as usize);
        if stored != Some(&crc32c::crc32c(chunk)) {
            let at = index * CHUNK_BYTES;
            let what = format!("the checksum of bytes {at} to {} does not match", at + CHUNK_BYTES - 1);
            return Err(BlockError::Corrupt { id, what });
        }
    }
    Ok(())
}

/// Device and inode of a file.
fn place(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}
