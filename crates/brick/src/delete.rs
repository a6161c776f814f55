//! Removing blocks, and the directories that become empty.

use crate::brick::Brick;
use crate::disk::refused;
use crate::layout::Run;
use crate::put::BlockLock;
use shoal_runtime::durable::sync_dir;
use shoal_types::BlockId;
use shoal_wire::{BlockError, Moment};
use std::collections::BTreeSet;
use std::io::ErrorKind;

impl Brick {
    pub(crate) fn delete_blocks(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        let mut first_failure = Ok(());
        let mut touched = BTreeSet::new();
        for &id in ids {
            let path = self.blocks.layout.block(id);
            match std::fs::remove_file(&path) {
                Ok(()) => {
                    touched.insert(Run::of(id));
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    first_failure = first_failure.and(self.blocks.check_there());
                }
                Err(error) => first_failure = first_failure.and(Err(refused(&path)(error))),
            }
            self.blocks.headers.remove(id);
        }
        for run in touched {
            // Without this a power failure could bring back blocks that no list names any more.
            let path = self.blocks.layout.run(run);
            match sync_dir(&path) {
                // Another deletion took the last block of the directory, and the directory.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => first_failure = first_failure.and(Err(refused(&path)(error))),
                Ok(()) => self.prune(run),
            }
        }
        first_failure
    }

    pub(crate) fn delete_older_blocks(
        &self,
        ids: &[BlockId],
        than: Moment,
    ) -> Result<Vec<BlockId>, BlockError> {
        let (mut kept, mut older, mut locks) = (Vec::new(), Vec::new(), Vec::new());
        for &id in ids {
            // A put that has begun counts, and one that begins from now on waits until the block is gone.
            match BlockLock::acquire(self, id) {
                Ok(lock) if !self.puts.lock().is_later(id, than) => {
                    locks.push(lock);
                    older.push(id);
                }
                _ => kept.push(id),
            }
        }
        self.delete_blocks(&older)?;
        drop(locks);
        Ok(kept)
    }

    /// Removes a run's directory and its session's if they are empty now. Nothing depends on it, so it may
    /// fail.
    fn prune(&self, run: Run) {
        let (session, directory) = (self.blocks.layout.session(run.session), self.blocks.layout.run(run));
        // Looking first spares puts the wait for the lock in the usual case that there are other blocks.
        if std::fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some()) {
            return;
        }
        let mut runs = self.runs.write();
        if std::fs::remove_dir(&directory).is_ok() {
            runs.remove(&run);
            if std::fs::remove_dir(&session).is_ok() {
                tracing::debug!(session = %run.session, "no blocks left");
            }
        }
    }
}
