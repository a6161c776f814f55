//! Memory for direct I/O: page-aligned buffers, those of large blocks used again.

use crate::limits::{ALIGN_BYTES, BUFFERS_KEPT_MAX, HEADER_BYTES};
use parking_lot::Mutex;
use shoal_types::limits::BLOCK_BYTES_MAX;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Length of the buffers that are kept: a whole block file.
const LARGE_BYTES: usize = HEADER_BYTES + BLOCK_BYTES_MAX as usize;

/// Lends buffers. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<Memory>>>);

/// A buffer of a multiple of [`ALIGN_BYTES`], aligned likewise. Its bytes are initialised, to anything.
pub(crate) struct Buffer {
    memory: Option<Memory>,
    len: usize,
    home: Weak<Mutex<Vec<Memory>>>,
}

struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: `Memory` owns its allocation alone; nothing about it is tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: shared access to it only reads.
unsafe impl Sync for Memory {}

impl Memory {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN_BYTES).expect("buffers are at most one block file long")
    }

    fn new(len: usize) -> Memory {
        let layout = Memory::layout(len);
        // SAFETY: the layout's size is not 0 (see `Pool::lend`).
        let start = unsafe { alloc_zeroed(layout) };
        Memory { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), len }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), Memory::layout(self.len)) }
    }
}

impl Pool {
    /// A buffer of exactly `len` bytes, a multiple of [`ALIGN_BYTES`], up to a whole block file.
    pub fn lend(&self, len: usize) -> Buffer {
        assert!(len > 0 && len.is_multiple_of(ALIGN_BYTES) && len <= LARGE_BYTES, "buffer of {len} bytes");
        // Half a block and more takes a kept buffer; less is cheap to allocate and would waste one.
        let memory = if len > LARGE_BYTES / 2 {
            let kept = self.0.lock().pop();
            kept.unwrap_or_else(|| Memory::new(LARGE_BYTES))
        } else {
            Memory::new(len)
        };
        Buffer { memory: Some(memory), len, home: Arc::downgrade(&self.0) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if memory.len == LARGE_BYTES
            && let Some(home) = self.home.upgrade()
        {
            let mut kept = home.lock();
            if kept.len() < BUFFERS_KEPT_MAX {
                kept.push(memory);
            }
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: `len <= memory.len`, all of it initialised, and borrowed as long as `self` is.
            Some(memory) => unsafe { std::slice::from_raw_parts(memory.start.as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            // SAFETY: as above, and borrowed exclusively.
            Some(memory) => unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr(), self.len) },
            None => &mut [],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_large_ones_are_used_again() {
        let pool = Pool::default();
        let mut first = pool.lend(LARGE_BYTES);
        assert_eq!(first.as_ptr() as usize % ALIGN_BYTES, 0);
        assert_eq!(first.len(), LARGE_BYTES);
        first[0] = 7;
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.lend(LARGE_BYTES - ALIGN_BYTES).as_ptr(), address);
        assert_eq!(pool.lend(ALIGN_BYTES).len(), ALIGN_BYTES);
    }

    #[test]
    fn no_more_buffers_are_kept_than_the_limit_says() {
        let pool = Pool::default();
        let many: Vec<Buffer> = (0..BUFFERS_KEPT_MAX + 3).map(|_| pool.lend(LARGE_BYTES)).collect();
        drop(many);
        assert_eq!(pool.0.lock().len(), BUFFERS_KEPT_MAX);
    }
}
