//! What the tests of a brick share.
#![allow(dead_code)]

use bytes::Bytes;
use shoal_brick::Brick;
use shoal_types::{BlockId, SessionId};
use std::path::PathBuf;
use std::sync::Arc;

/// A brick in a directory of its own.
pub struct Fixture {
    pub brick: Option<Arc<Brick>>,
    pub dir: PathBuf,
    _temporary: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Fixture {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("brick");
        Brick::format(&dir).unwrap();
        Fixture { brick: Some(Brick::open(&dir).unwrap()), dir, _temporary: temporary }
    }

    pub fn brick(&self) -> &Arc<Brick> {
        self.brick.as_ref().unwrap()
    }

    /// Closes the brick and opens it again: nothing is remembered.
    pub fn reopen(&mut self) -> &Arc<Brick> {
        self.brick = None;
        self.brick = Some(Brick::open(&self.dir).unwrap());
        self.brick()
    }

    /// The file of a block.
    pub fn file(&self, id: BlockId) -> PathBuf {
        self.dir.join(format!("blocks/{:x}/{:x}/{id}", id.session.0, id.seq / 256))
    }
}

pub fn id(session: u64, seq: u64) -> BlockId {
    BlockId { session: SessionId(session), seq }
}

/// Bytes that look random and depend on the seed.
pub fn bytes(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out.into()
}
