//! Finding blocks. Files and directories that a brick would not make are passed over.

use crate::brick::Brick;
use crate::disk::refused;
use crate::layout::{Run, block_of, run_of, session_of};
use shoal_types::{BlockId, SessionId};
use shoal_wire::{BlockError, BlockStat};
use std::fs::DirEntry;
use std::io::ErrorKind;
use std::path::Path;

impl Brick {
    pub(crate) fn list_session(&self, session: SessionId) -> Result<Vec<BlockStat>, BlockError> {
        let mut found = Vec::new();
        for run in self.runs_of(session)? {
            for id in self.blocks_of(run)? {
                match self.length_of_listed(id) {
                    Ok(len) => found.push(BlockStat { id, len }),
                    Err(BlockError::Corrupt { .. }) => found.push(BlockStat { id, len: 0 }),
                    // Deleted since the directory was read.
                    Err(BlockError::Missing(_)) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(found)
    }

    pub(crate) fn list_sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        let mut found = Vec::new();
        for session in self.session_directories()? {
            for run in self.runs_of(session)? {
                if !self.blocks_of(run)?.is_empty() {
                    found.push(session);
                    break;
                }
            }
        }
        Ok(found)
    }

    /// Sessions that have a directory, in order.
    pub(crate) fn session_directories(&self) -> Result<Vec<SessionId>, BlockError> {
        entries(&self.layout.blocks, session_of)
    }

    /// Runs of a session that have a directory, in order.
    pub(crate) fn runs_of(&self, session: SessionId) -> Result<Vec<Run>, BlockError> {
        entries(&self.layout.session(session), |entry| run_of(session, entry))
    }

    /// Blocks of a run, in order.
    pub(crate) fn blocks_of(&self, run: Run) -> Result<Vec<BlockId>, BlockError> {
        entries(&self.layout.run(run), |entry| block_of(run, entry))
    }
}

/// What a directory holds of the kind that `parse` recognises. A directory that is gone holds nothing.
fn entries<T: Ord>(path: &Path, parse: impl Fn(&DirEntry) -> Option<T>) -> Result<Vec<T>, BlockError> {
    let directory = match std::fs::read_dir(path) {
        // A stray file may have the name of a directory.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        other => other.map_err(refused(path))?,
    };
    let mut found = Vec::new();
    for entry in directory {
        let entry = entry.map_err(refused(path))?;
        match parse(&entry) {
            Some(item) => found.push(item),
            None => tracing::debug!(path = %entry.path().display(), "not a brick's file"),
        }
    }
    found.sort_unstable();
    Ok(found)
}
