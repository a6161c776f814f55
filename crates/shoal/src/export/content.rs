//! The content of a file, from its extents into a local file.

use crate::limits::EXTENTS_PAGE;
use crate::walk::words;
use shoal_namespace::kv::KvRead;
use shoal_namespace::query::{self, FileRecord};
use shoal_types::Extent;
use shoal_wire::BlockService;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub struct Contents<'a, S: ?Sized> {
    store: &'a S,
    blocks: &'a dyn BlockService,
}

impl<'a, S: KvRead + ?Sized> Contents<'a, S> {
    pub fn new(store: &'a S, blocks: &'a dyn BlockService) -> Contents<'a, S> {
        Contents { store, blocks }
    }

    /// Fills an empty file. What cannot be read stays a hole and is told; an error is the local file's.
    pub fn write(&self, record: &FileRecord, file: &File) -> io::Result<(u64, Vec<String>)> {
        let size = record.inode.size;
        file.set_len(size)?;
        let (mut written, mut problems) = (0, Vec::new());
        if let Some(extents) = &record.extents {
            for (offset, extent) in extents {
                written += self.write_extent(file, size, *offset, extent, &mut problems)?;
            }
            return Ok((written, problems));
        }
        let mut start = 0;
        while start < size {
            let page = match query::extents(self.store, record.ino, start, size, EXTENTS_PAGE) {
                Ok(page) => page,
                Err(fault) => {
                    problems.push(format!("bytes from {start} on cannot be read: {}", words(fault)));
                    break;
                }
            };
            for (offset, extent) in &page.extents {
                written += self.write_extent(file, size, *offset, extent, &mut problems)?;
            }
            match page.extents.last() {
                Some((offset, extent)) if page.more => start = (offset + extent.len()).max(start + 1),
                _ => break,
            }
        }
        Ok((written, problems))
    }

    fn write_extent(
        &self,
        file: &File,
        size: u64,
        offset: u64,
        extent: &Extent,
        problems: &mut Vec<String>,
    ) -> io::Result<u64> {
        // Room reserved behind the end is no content.
        let len = extent.len().min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(0);
        }
        let bytes = match extent {
            Extent::Zero { .. } => return Ok(0),
            Extent::Inline(bytes) => bytes.slice(..len as usize),
            Extent::Block(block) => match self.blocks.get(block.id, block.offset, len as u32) {
                Ok(bytes) => bytes,
                Err(error) => {
                    problems.push(format!("bytes {offset} to {} cannot be read: {error}", offset + len - 1));
                    return Ok(0);
                }
            },
        };
        file.write_all_at(&bytes, offset)?;
        Ok(len)
    }
}
