//! Limits of erasure coding.

/// Fewest data shards. With one, parity shards would be copies.
pub const DATA_SHARDS_MIN: usize = 2;
/// Most data shards: each is a brick that a read of a whole block asks.
pub const DATA_SHARDS_MAX: usize = 12;
/// Most parity shards. With more than 4, a write costs more than what it protects from is worth.
pub const PARITY_SHARDS_MAX: usize = 4;
/// Bytes of a column, the unit of the code. Part of the format: shards are whole columns, and ranges that are
/// restored begin and end at their borders.
pub const COLUMN_BYTES: u32 = 64;
