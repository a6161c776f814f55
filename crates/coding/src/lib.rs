//! Erasure coding of blocks: `k` data shards and `m` parity shards, any `k` of which give the block back.
//!
//! **Model.** The code is systematic: data shard `i` is the `i`-th contiguous part of the block, the last
//! ones padded with zeros. So a healthy read needs no arithmetic, and a small one needs one shard. Parity is
//! over columns of [`COLUMN_BYTES`](limits::COLUMN_BYTES): a range of columns is restored from the same range
//! of `k` other shards, without the rest of them.
//!
//! **Promises.** Every [`Shard`] carries a checksum over its bytes and over what it is: its scheme, its index
//! and its offset. A damaged shard, one in another's place and one that is given twice do not count. So the
//! result is the bytes that were encoded, or [`CodingError::TooFew`].
//!
//! **Refuses** schemes outside of [`limits`].
//!
//! Pure: no clock, no I/O, no threads. The arithmetic is `reed-solomon-simd`'s.
//!
//! - [`scheme`]: `k+m`, and where the bytes of a block are; [`shard`]: a shard and its checksum;
//!   [`coder`]: encodes, restores and decodes.

pub mod coder;
pub mod limits;
pub mod scheme;
pub mod shard;

pub use coder::{Coder, CodingError};
pub use scheme::{Layout, Piece, Scheme};
pub use shard::Shard;
