//! Memory for direct I/O: page-aligned buffers, the larger ones used again.
//!
//! All bricks of a process share one pool. It keeps what the process's budget leaves, and nothing for long if
//! no brick is used.

use crate::limits::{ALIGN_BYTES, BUFFER_KEPT_BYTES_MIN, BUFFERS_KEPT_BYTES_MAX, HEADER_BYTES};
use parking_lot::Mutex;
use shoal_runtime::budget::{Budget, Share, Use, of_process};
use shoal_types::limits::BLOCK_BYTES_MAX;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Weak};

/// Length of the largest buffers: a whole block file.
const LARGE_BYTES: usize = HEADER_BYTES + BLOCK_BYTES_MAX as usize;

/// Lends buffers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Mutex<Kept>>);

/// Buffers to be used again.
struct Kept {
    all: Vec<Memory>,
    memory: Share,
    /// Whether a buffer was lent since the pool was last asked to release what is idle.
    is_used: bool,
}

/// Frees kept buffers if none was used since the last call.
pub fn release_idle_buffers() {
    let mut kept = Pool::of_process().0.lock();
    if !std::mem::take(&mut kept.is_used) {
        kept.memory.set(0);
        kept.all = Vec::new();
    }
}

/// A buffer of a multiple of [`ALIGN_BYTES`], aligned likewise. Its bytes are initialised, to anything.
pub(crate) struct Buffer {
    memory: Option<Memory>,
    len: usize,
    home: Weak<Mutex<Kept>>,
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
    pub(crate) fn new(budget: &Arc<Budget>) -> Pool {
        let memory = budget.share(Use::Buffers);
        Pool(Arc::new(Mutex::new(Kept { all: Vec::new(), memory, is_used: false })))
    }

    /// The pool of all bricks of this process.
    pub(crate) fn of_process() -> &'static Pool {
        static PROCESS: LazyLock<Pool> = LazyLock::new(|| Pool::new(of_process()));
        &PROCESS
    }

    /// A buffer of exactly `len` bytes, a multiple of [`ALIGN_BYTES`], up to a whole block file.
    pub fn lend(&self, len: usize) -> Buffer {
        assert!(len > 0 && len.is_multiple_of(ALIGN_BYTES) && len <= LARGE_BYTES, "buffer of {len} bytes");
        let size = kept_size(len).unwrap_or(len);
        let memory = self.0.lock().take(size).unwrap_or_else(|| Memory::new(size));
        Buffer { memory: Some(memory), len, home: Arc::downgrade(&self.0) }
    }
}

/// The size of a kept buffer for this length: a power of two, or a whole block file. `None` where a new
/// buffer is cheap, or would be used by less than three quarters.
fn kept_size(len: usize) -> Option<usize> {
    if len > LARGE_BYTES / 2 {
        return Some(LARGE_BYTES);
    }
    let size = len.next_power_of_two();
    (size >= BUFFER_KEPT_BYTES_MIN && len >= size / 4 * 3).then_some(size)
}

impl Kept {
    fn take(&mut self, size: usize) -> Option<Memory> {
        self.is_used = true;
        let at = self.all.iter().rposition(|memory| memory.len == size)?;
        self.memory.shrink(size);
        Some(self.all.swap_remove(at))
    }

    fn keep(&mut self, memory: Memory) {
        let bytes = self.memory.bytes() + memory.len;
        let is_kept = kept_size(memory.len) == Some(memory.len);
        if is_kept && bytes <= BUFFERS_KEPT_BYTES_MAX.min(self.memory.allowed()) {
            self.memory.grow(memory.len);
            self.all.push(memory);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if let Some(home) = self.home.upgrade() {
            home.lock().keep(memory);
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
        let pool = Pool::new(&Budget::new(1 << 30));
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
    fn part_of_a_block_takes_a_kept_buffer_of_its_size() {
        const MIB: usize = 1 << 20;
        let pool = Pool::new(&Budget::new(1 << 30));
        let part = pool.lend(MIB);
        let address = part.as_ptr();
        drop(part);
        assert_ne!(pool.lend(MIB / 2).as_ptr(), address);
        let part = pool.lend(MIB - ALIGN_BYTES);
        assert_eq!((part.as_ptr(), part.len()), (address, MIB - ALIGN_BYTES));
        assert_eq!(kept_size(MIB / 2 + ALIGN_BYTES), None, "it would leave half of a buffer unused");
        assert_eq!(kept_size(BUFFER_KEPT_BYTES_MIN / 2), None);
    }

    #[test]
    fn no_more_bytes_are_kept_than_the_limit_says() {
        let pool = Pool::new(&Budget::new(1 << 30));
        let many = 2 * BUFFERS_KEPT_BYTES_MAX / LARGE_BYTES;
        drop((0..many).map(|_| (pool.lend(LARGE_BYTES), pool.lend(1 << 20))).collect::<Vec<_>>());
        let kept = pool.0.lock();
        let bytes = kept.memory.bytes();
        assert!(bytes <= BUFFERS_KEPT_BYTES_MAX && bytes + LARGE_BYTES > BUFFERS_KEPT_BYTES_MAX);
        assert_eq!(bytes, kept.all.iter().map(|memory| memory.len).sum::<usize>());
    }

    #[test]
    fn no_buffer_is_kept_where_others_need_the_memory() {
        let budget = Budget::new(4 << 20);
        let pool = Pool::new(&budget);
        let writes = budget.count(Use::Writes, 3 << 20);
        drop((pool.lend(1 << 20), pool.lend(1 << 20)));
        assert_eq!(budget.used_for(Use::Buffers), 1 << 20);
        drop(writes);
        drop((pool.lend(1 << 20), pool.lend(1 << 20)));
        assert_eq!(budget.used_for(Use::Buffers), 2 << 20);
    }
}
