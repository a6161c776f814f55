//! Schemes: how blocks are stored.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The numbers of shards of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shards {
    /// Shards that give a block back.
    pub data: u8,
    /// Shards that may be lost.
    pub parity: u8,
}

impl From<(u8, u8)> for Shards {
    /// Data shards and parity shards.
    fn from((data, parity): (u8, u8)) -> Shards {
        Shards { data, parity }
    }
}

impl Shards {
    /// Shards of a block, each on a brick of its own.
    pub fn width(self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }
}

/// How blocks are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BlockScheme {
    /// As so many copies.
    Copies(u8),
    /// As shards. A block that is too short to be split has one copy more than there are parity shards, and
    /// survives as many losses.
    Shards(Shards),
}

impl BlockScheme {
    /// Shards if there are some, and otherwise copies.
    pub fn new(copies: u8, shards: Option<Shards>) -> BlockScheme {
        shards.map_or(BlockScheme::Copies(copies), BlockScheme::Shards)
    }

    /// Copies of a block that is not stored as shards.
    pub fn copies(self) -> u8 {
        match self {
            BlockScheme::Copies(copies) => copies,
            BlockScheme::Shards(shards) => shards.parity.saturating_add(1),
        }
    }

    /// The shards of a block that is long enough to be split.
    pub fn shards(self) -> Option<Shards> {
        match self {
            BlockScheme::Copies(_) => None,
            BlockScheme::Shards(shards) => Some(shards),
        }
    }

    /// Bricks of one block.
    pub fn width(self) -> usize {
        self.shards().map_or(usize::from(self.copies()), Shards::width)
    }
}

impl fmt::Display for BlockScheme {
    /// As an administrator writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockScheme::Copies(copies) => write!(f, "replica {copies}"),
            BlockScheme::Shards(shards) => {
                write!(f, "disperse {} redundancy {}", shards.width(), shards.parity)
            }
        }
    }
}
