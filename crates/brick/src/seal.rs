//! A sealed brick stores no new block: it is being drained, or its tier is detached.
//!
//! **Why.** A client with an older map still chooses such a brick. A block that it stored there may be
//! committed at any later time, and is known to no server until then. So the brick itself has to say when
//! nothing can come any more: it is sealed, no put is in flight, and no block is left on it.

use crate::brick::Brick;
use shoal_runtime::planted::mistake;
use shoal_types::BlockId;
use shoal_wire::BlockError;
use std::sync::atomic::Ordering;

impl Brick {
    /// Refuses new blocks from now on, or stores them again. Never waits for puts in flight.
    pub fn seal(&self, is_sealed: bool) {
        if self.sealed.swap(is_sealed, Ordering::SeqCst) != is_sealed {
            tracing::info!(is_sealed, brick = %self.blocks.layout.root.display(), "stores no new blocks while sealed");
        }
    }

    /// Whether it is sealed and has no block. As long as it stays sealed, it has none later either.
    pub fn is_cleared(&self) -> Result<bool, BlockError> {
        let is_sealed = self.sealed.load(Ordering::SeqCst);
        if mistake("take a sealed brick for empty") {
            return Ok(is_sealed);
        }
        // A put locks its block before it looks at the seal: one that has not seen the seal is among these.
        let has_puts = !self.under_way.lock().is_empty();
        Ok(is_sealed && !has_puts && !self.has_blocks()?)
    }

    /// Refuses a put into a sealed brick, unless that replaces a damaged block. The block must be locked.
    pub(crate) fn check_seal(&self, id: BlockId) -> Result<(), BlockError> {
        let is_sealed = self.sealed.load(Ordering::SeqCst);
        let is_there = || self.blocks.layout.block(id).exists();
        if !is_sealed || is_there() || mistake("store new blocks on a sealed brick") {
            return Ok(());
        }
        // The client continues with another brick, or waits until it knows the newer map.
        Err(BlockError::Unreachable(format!("the brick is drained and does not take block {id}")))
    }

    fn has_blocks(&self) -> Result<bool, BlockError> {
        for session in self.session_directories()? {
            if self.has_blocks_of(session)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::put::BlockLock;
    use bytes::Bytes;
    use shoal_types::SessionId;
    use shoal_wire::BlockService;
    use std::sync::Arc;

    const CONTENT: [Bytes; 1] = [Bytes::from_static(b"x")];

    fn id(seq: u64) -> BlockId {
        BlockId { session: SessionId(1), seq }
    }

    fn brick(dir: &tempfile::TempDir) -> Arc<Brick> {
        Brick::format(dir.path()).expect("a brick");
        Brick::open(dir.path()).expect("a brick")
    }

    #[test]
    fn sealed_brick_is_cleared_when_its_last_block_is_deleted() {
        let dir = tempfile::tempdir().expect("tempdir");
        let brick = brick(&dir);
        assert_eq!(brick.is_cleared(), Ok(false), "it takes blocks");
        brick.put(id(1), &CONTENT).expect("it takes blocks");
        brick.seal(true);
        assert!(matches!(brick.put(id(2), &CONTENT), Err(BlockError::Unreachable(_))));
        assert_eq!(brick.put(id(1), &CONTENT), Err(BlockError::Exists(id(1))), "a damaged one is replaced");
        assert_eq!((brick.get(id(1), 0, 1), brick.is_cleared()), (Ok(CONTENT[0].clone()), Ok(false)));
        brick.delete(&[id(1)]).expect("it can be deleted");
        assert_eq!(brick.is_cleared(), Ok(true));
        brick.seal(false);
        assert_eq!((brick.put(id(2), &CONTENT), brick.is_cleared()), (Ok(()), Ok(false)));
    }

    #[test]
    fn sealed_brick_is_not_cleared_while_a_put_is_in_flight() {
        let dir = tempfile::tempdir().expect("tempdir");
        let brick = brick(&dir);
        let put = BlockLock::acquire(&brick, id(1)).expect("no other put is in flight");
        brick.seal(true);
        assert_eq!(brick.is_cleared(), Ok(false), "that put may not have seen the seal");
        drop(put);
        assert_eq!(brick.is_cleared(), Ok(true));
    }
}
