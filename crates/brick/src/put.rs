//! Storing a block.

use crate::aligned::Buffer;
use crate::brick::Brick;
use crate::disk::refused;
use crate::header::{Header, chunk_count, padded};
use crate::layout::Run;
use crate::limits::{CHUNK_BYTES, DIRECTORIES_KNOWN_MAX, HEADER_BYTES};
use bytes::Bytes;
use shoal_runtime::budget::{Use, of_process};
use shoal_runtime::durable::sync_dir;
use shoal_types::BlockId;
use shoal_types::limits::BLOCK_BYTES_MAX;
use shoal_wire::BlockError;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

impl Brick {
    pub(crate) fn put_block(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        let len = match parts.iter().map(Bytes::len).sum::<usize>() {
            len @ 1.. if len <= BLOCK_BYTES_MAX as usize => len as u32,
            len => {
                let what = format!("a block has 1 to {BLOCK_BYTES_MAX} bytes, not {len}");
                return Err(BlockError::Invalid { id, what });
            }
        };
        let _lock = BlockLock::acquire(self, id)?;
        self.check_seal(id)?;
        // Also if the block exists already: from now on this put relies on it.
        self.puts.lock().note(id);
        let (_, available, reserve) = self.room()?;
        if available < reserve {
            return Err(BlockError::Full);
        }
        let _memory = of_process().count(Use::Transfers, HEADER_BYTES + padded(len));
        let (image, header) = self.image(id, len, parts);
        let (path, directory) = (self.blocks.layout.block(id), self.blocks.layout.run(Run::of(id)));
        let file = self.create(id, &path)?;
        let stored = file
            .write_all_at(&image, 0)
            .and_then(|()| self.blocks.disk.sync_new(&file, &directory))
            .map_err(refused(&path));
        if stored.is_err() {
            discard(&path);
            return stored;
        }
        self.blocks.headers.insert(id, Arc::new(header));
        Ok(())
    }

    /// The block's file as it will be, copied once; checksums are made while the bytes are in the processor's
    /// cache.
    fn image(&self, id: BlockId, len: u32, parts: &[Bytes]) -> (Buffer, Header) {
        let mut image = self.blocks.buffers.lend(HEADER_BYTES + padded(len));
        let mut sums = Vec::with_capacity(chunk_count(len) as usize);
        let mut parts = parts.iter().map(|part| &part[..]);
        let mut part: &[u8] = &[];
        for chunk in image[HEADER_BYTES..].chunks_mut(CHUNK_BYTES as usize) {
            let mut filled = 0;
            while filled < chunk.len() {
                if part.is_empty() {
                    match parts.next() {
                        Some(next) => part = next,
                        None => break,
                    }
                }
                let (now, later) = part.split_at(part.len().min(chunk.len() - filled));
                chunk[filled..filled + now.len()].copy_from_slice(now);
                filled += now.len();
                part = later;
            }
            chunk[filled..].fill(0);
            sums.push(crc32c::crc32c(chunk));
        }
        let header = Header { len, sums: sums.into() };
        if let Some(head) = image.first_chunk_mut() {
            header.encode(id, head);
        }
        (image, header)
    }

    /// Makes the block's file, in the place of a torn one if need be.
    fn create(&self, id: BlockId, path: &Path) -> Result<File, BlockError> {
        let mut runs = self.runs.read();
        let run = Run::of(id);
        if !runs.contains(&run) {
            drop(runs);
            self.make_directories(run)?;
            // Another thread may remove the directory again before we look: only if it is empty and has seen
            // a deletion in that instant, so trying again ends.
            runs = self.runs.read();
        }
        for attempt in 0.. {
            match self.blocks.disk.create_new(path) {
                Ok(file) => return Ok(file),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => self.clear_leftover(id, path)?,
                Err(error) if error.kind() == ErrorKind::NotFound && attempt < 3 => {
                    drop(runs);
                    self.make_directories(run)?;
                    runs = self.runs.read();
                }
                Err(error) => return Err(refused(path)(error)),
            }
        }
        unreachable!("the loop above ends by returning")
    }

    /// Makes the directories of a run durable: once per run and process, for one that stands there may have
    /// been made by a process that died before it could sync.
    fn make_directories(&self, run: Run) -> Result<(), BlockError> {
        let (session, directory) = (self.blocks.layout.session(run.session), self.blocks.layout.run(run));
        let mut runs = self.runs.write();
        for (path, parent) in [(&session, &self.blocks.layout.blocks), (&directory, &session)] {
            match std::fs::create_dir(path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(path)(error)),
                _ => sync_dir(parent).map_err(refused(parent))?,
            }
        }
        if runs.len() >= DIRECTORIES_KNOWN_MAX {
            runs.clear();
        }
        runs.insert(run);
        Ok(())
    }

    /// A file stands where the block should go. Intact, it is the block: its name is taken. Otherwise a crash
    /// cut a put off there, and that put was never acknowledged.
    fn clear_leftover(&self, id: BlockId, path: &Path) -> Result<(), BlockError> {
        match self.blocks.verify(id) {
            Ok(_) => {
                // A caller that is told "exists" takes the block for durable; the process that wrote it may
                // not have synced it.
                let file = File::open(path).map_err(refused(path))?;
                self.blocks
                    .disk
                    .sync_new(&file, &self.blocks.layout.run(Run::of(id)))
                    .map_err(refused(path))?;
                Err(BlockError::Exists(id))
            }
            Err(BlockError::Corrupt { what, .. }) => {
                tracing::info!(block = %id, what, "replacing the remains of an interrupted put");
                std::fs::remove_file(path).map_err(refused(path))
            }
            Err(BlockError::Missing(_)) => Ok(()),
            Err(other) => Err(other),
        }
    }
}

/// Removes what a failed put wrote. If even that fails, it stays as a torn file, which is safe.
fn discard(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "cannot remove a partly written block");
    }
}

/// Excludes other puts and conditional removals of the same block.
pub(crate) struct BlockLock<'a> {
    brick: &'a Brick,
    id: BlockId,
}

impl BlockLock<'_> {
    pub(crate) fn acquire(brick: &Brick, id: BlockId) -> Result<BlockLock<'_>, BlockError> {
        if brick.under_way.lock().insert(id) {
            Ok(BlockLock { brick, id })
        } else {
            // Probably an earlier try of the same caller, which may still succeed.
            Err(BlockError::Unreachable(format!("block {id} is being put or removed by another call")))
        }
    }
}

impl Drop for BlockLock<'_> {
    fn drop(&mut self) {
        self.brick.under_way.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::SessionId;

    #[test]
    fn a_put_is_refused_with_retry_while_an_earlier_put_of_the_block_hangs() {
        let dir = tempfile::tempdir().expect("tempdir");
        Brick::format(dir.path()).expect("a brick");
        let brick = Brick::open(dir.path()).expect("a brick");
        let (id, content) = (BlockId { session: SessionId(1), seq: 1 }, [Bytes::from_static(b"x")]);
        let hangs = BlockLock::acquire(&brick, id).expect("no other put is in progress");
        assert!(matches!(brick.put_block(id, &content), Err(BlockError::Unreachable(_))));
        // Nor is it removed under the put.
        assert_eq!(brick.delete_older_blocks(&[id], brick.puts.lock().now()), Ok(vec![id]));
        drop(hangs);
        brick.put_block(id, &content).expect("it came to nothing");
    }
}
