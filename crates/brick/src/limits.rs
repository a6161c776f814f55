//! Limits of a brick, and sizes that are part of its disk format.

use shoal_types::limits::BLOCK_BYTES_MAX;

/// Bytes under one checksum. Part of the format. A read verifies whole chunks: small enough that a read of
/// one page costs little more, large enough that the checksums of 4 MiB fit a header with room to spare.
pub const CHUNK_BYTES: u32 = 64 << 10;

/// Bytes of a block file's header. Part of the format. One page, so that the content behind it is aligned
/// for direct I/O on every disk.
pub const HEADER_BYTES: usize = 4096;

/// A read that ends before this byte of a block fetches header and content in one request to the disk, if
/// the header is not in memory: more bytes would cost more than the second request.
pub const FRONT_BYTES_MAX: u32 = 256 << 10;

/// Alignment of file offsets, lengths and memory for direct I/O, in bytes: the largest logical block size in
/// use.
pub const ALIGN_BYTES: usize = 4096;

/// Most chunks of a block.
pub const CHUNKS_MAX: u32 = BLOCK_BYTES_MAX.div_ceil(CHUNK_BYTES);

/// Blocks per directory. Part of the format. 1 GiB of large blocks: few enough directories to make durable,
/// few enough names in each to list at once.
pub const DIRECTORY_BLOCKS: u64 = 256;

/// Blocks in one page of a listing: some tens of kilobytes.
pub const LIST_BLOCKS_MAX: usize = 4096;

/// Directories of blocks that are read for one page of a listing: seconds, on a slow disk, however few blocks
/// are left in each.
pub const LIST_DIRECTORIES_MAX: usize = 256;

/// Puts whose order is remembered, about 100 bytes each. It is many more than a brick receives between the
/// moment at which a copy is found to be in excess and its removal. A removal that comes later spares the
/// copy, which is found once more.
pub const PUTS_REMEMBERED_MAX: usize = 65_536;

/// Blocks whose reads are counted until the volume's leader takes the counts, a few seconds: about 40 bytes
/// each. The list of them fits a message.
pub const READS_REMEMBERED_MAX: usize = 65_536;

/// Headers remembered in memory, per generation of the cache (there are two): about 400 bytes each, so 6 MiB
/// for 64 GiB of large blocks whose reads need no second request to the disk.
pub const HEADERS_CACHED_MAX: usize = 8192;

/// Directories remembered as durable. Forgetting them only costs an fsync each.
pub const DIRECTORIES_KNOWN_MAX: usize = 65_536;

/// Bytes of buffers that are kept for the next reads and writes instead of being freed, and faulted in again:
/// eight large blocks.
pub const BUFFERS_KEPT_BYTES_MAX: usize = 33 << 20;

/// Smaller buffers are not kept, in bytes.
pub const BUFFER_KEPT_BYTES_MIN: usize = 256 << 10;

/// Room that blocks leave on the disk, as a share of it: 1/64. The metadata group decides about space long
/// before; this is the backstop that keeps its log and store writable on the same disk.
pub const RESERVE_SHARE: u64 = 64;

/// Upper bound of that room, in bytes.
pub const RESERVE_BYTES_MAX: u64 = 256 << 20;

/// Blocks counted when a retired brick is looked at: a second or two on a slow disk, and enough to know that
/// it is not empty.
pub const CONTENTS_COUNTED_MAX: u64 = 100_000;
