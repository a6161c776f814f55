//! CRC32C for RocksDB, by the processor's own instruction.
//!
//! RocksDB decides at compile time which instructions it may use, and `librocksdb-sys` compiles it for any
//! processor of the architecture. Its checksum of blobs is then computed from tables, which was a sixth of a
//! server's time while a tree was read. A program that is linked with `--wrap` for
//! `rocksdb::crc32c::Extend(uint32_t, const char*, size_t)` (`crates/shoal/build.rs`) has RocksDB call the
//! function here instead. That function tests at run time what the processor can do. The result is the same,
//! and so are the files. A program that is linked without `--wrap` only takes longer.

use std::ffi::{c_char, c_uint};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static CALLS: AtomicU64 = AtomicU64::new(0);

/// How often the function here was called in this process.
pub fn calls() -> u64 {
    CALLS.load(Relaxed)
}

/// Stops a program that would take all files for damaged. Calling it also links the function into the
/// program, in whatever order a linker looks for it.
pub(crate) fn assert_right() {
    let of = |crc, digits: &[u8]| {
        // SAFETY: the length is that of the slice.
        unsafe { extend(crc, digits.as_ptr().cast(), digits.len()) }
    };
    assert_eq!(
        of(of(0, b"1234"), b"56789"),
        0xE306_9283,
        "the checksum of the digits is not the one in every book"
    );
}

/// Extends the checksum `crc` by these bytes.
///
/// # Safety
///
/// There are `size` bytes at `data`.
#[unsafe(export_name = "__wrap__ZN7rocksdb6crc32c6ExtendEjPKcm")]
unsafe extern "C" fn extend(crc: c_uint, data: *const c_char, size: usize) -> c_uint {
    CALLS.fetch_add(1, Relaxed);
    if size == 0 {
        return crc;
    }
    // SAFETY: promised by the caller; RocksDB does not write to the bytes meanwhile.
    crc32c::crc32c_append(crc, unsafe { std::slice::from_raw_parts(data.cast(), size) })
}
