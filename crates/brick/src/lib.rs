//! A brick: a directory on a local disk that stores blocks.
//!
//! **Models.** A block is an immutable piece of content of 1 byte to 4 MiB under an id that its writer chose.
//! A brick knows ids and bytes; which file a block belongs to, and whether anyone still wants it, is the
//! namespace's affair.
//!
//! **Assumes.** A disk whose fsync tells the truth, and that an id names one content only, ever. One process
//! uses a brick at a time; a lock sees to that.
//!
//! **Promises.** A block is durable when [`put`](shoal_wire::BlockService::put) returns: bytes, name and
//! directories. What [`get`](shoal_wire::BlockService::get) returns was put there. Every byte of a block file
//! is under a checksum (header, 64 KiB chunks, padding), and a mismatch is
//! [`BlockError::Corrupt`](shoal_wire::BlockError::Corrupt) with the block's name, never data. A put that
//! fails, for want of room above all, leaves nothing behind. A put cut off by a crash leaves at most a torn
//! file, which is recognised as such. It reads as corrupt, is listed (so that it can be collected), and may
//! be put again.
//!
//! **Refuses.** Changing a block, a brick of an unknown format version, a directory that is not a brick.
//!
//! A failed fsync concerns one block only, which is then not acknowledged and removed; blocks share no files,
//! so unlike a log a brick goes on after one.
//!
//! ```text
//! BRICK/shoal-brick                     what this is: format version, identity (text)
//! BRICK/blocks/SESSION/RUN/SESSION-SEQ  one block; all numbers hexadecimal, RUN = SEQ / 256
//! ```

mod aligned;
mod brick;
mod delete;
mod disk;
mod error;
mod format;
mod get;
mod header;
mod header_cache;
mod layout;
pub mod limits;
mod list;
mod put;
mod puts;
mod reads;
mod retire;
mod scrub;
mod seal;
mod share;

pub use aligned::release_idle_buffers;
pub use brick::Brick;
pub use error::BrickError;
pub use get::BlockReader;
pub use reads::ReadCounts;
pub use retire::{Retirement, contents, retire};
pub use scrub::{ScrubOptions, ScrubSummary};
pub use share::{Sharing, share};
