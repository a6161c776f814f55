//! State that a new session takes over from the previous one: the kernel's references to inodes, and losses
//! that calls have yet to report.
//!
//! Everything else ends with its session: cache, rights, grants, and the journal, whose uncommitted part is
//! lost.
//!
//! **Errors.** The kernel opens files without a request, so it is unknown through which open file a lost
//! change was made. Since fsync(2) of any file is a barrier for all earlier changes, the next fsync of
//! *every* inode that the kernel refers to fails once. In addition, the next change of the content of each
//! file that lost a change fails once, so that no writer continues after a missing part.

use super::{Core, Outcome};
use shoal_types::{Errno, InodeId, Timestamp};

/// The operations of an ended session that were answered and not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Loss {
    /// Number of these operations, before merging.
    pub(crate) operations: u64,
    /// Number of inodes that they changed and did not remove.
    pub(crate) inodes: usize,
    /// Time of the first of these operations.
    pub(crate) since: Option<Timestamp>,
}

/// Whether calls on an inode have to fail once, because a change was lost.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Unreported {
    /// The next fsync(2) fails.
    to_sync: bool,
    /// The next change of its content fails.
    to_write: bool,
}

impl Core {
    /// The loss if the session ended now.
    pub(crate) fn loss(&self) -> Loss {
        let (operations, since) = self.journal.uncommitted_operations();
        let inodes = if operations == 0 { 0 } else { self.cache.uncommitted().count() };
        Loss { operations, inodes, since }
    }

    /// Takes over from a session that has ended, and marks the inodes on which calls have to fail.
    pub(crate) fn inherit(&mut self, ended: &mut Core) -> Loss {
        let loss = ended.loss();
        self.refs = std::mem::take(&mut ended.refs);
        self.root_unreported = ended.root_unreported;
        if loss.operations > 0 {
            self.root_unreported.to_sync = true;
            self.refs.all_unreported().for_each(|unreported| unreported.to_sync = true);
            for ino in ended.cache.uncommitted() {
                if let Some(unreported) = self.refs.unreported(ino) {
                    unreported.to_write = true;
                }
            }
        }
        loss
    }

    /// Fails once if a change before this fsync(2) was lost.
    pub(crate) fn report_to_sync(&mut self, ino: InodeId) -> Result<(), Errno> {
        self.report(ino, |unreported| &mut unreported.to_sync)
    }

    /// Fails once if a change of this file was lost.
    pub(super) fn report_to_write(&mut self, ino: InodeId) -> Outcome<()> {
        Ok(self.report(ino, |unreported| &mut unreported.to_write)?)
    }

    fn report(&mut self, ino: InodeId, of: impl FnOnce(&mut Unreported) -> &mut bool) -> Result<(), Errno> {
        // The root has no entry in `refs`: the kernel knows it without a lookup.
        let unreported = match ino {
            InodeId::ROOT => Some(&mut self.root_unreported),
            _ => self.refs.unreported(ino),
        };
        let due = unreported.is_some_and(|unreported| std::mem::take(of(unreported)));
        if due { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The covers of the inodes that the kernel refers to, as last known.
    pub(crate) fn referred_covers(&self) -> Vec<InodeId> {
        let mut covers: Vec<InodeId> = self.refs.covers().collect();
        covers.sort_unstable();
        covers
    }
}
