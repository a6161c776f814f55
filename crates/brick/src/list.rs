//! Finding blocks. Files and directories that a brick would not make are passed over.

use crate::brick::Brick;
use crate::disk::refused;
use crate::layout::{Run, block_of, run_of, session_of};
use crate::limits::{LIST_BLOCKS_MAX, LIST_DIRECTORIES_MAX};
use shoal_types::{BlockId, SessionId};
use shoal_wire::{BlockError, BlockPage};
use std::fs::DirEntry;
use std::io::ErrorKind;
use std::path::Path;

impl Brick {
    /// Reads no more directories than it takes to fill the page, and of those none before the place where it
    /// begins.
    pub(crate) fn list_from(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        self.blocks.check_there()?;
        let mut runs = self.runs_of(from.session)?;
        runs.retain(|run| *run >= Run::of(from));
        let mut blocks = Vec::new();
        for (read, run) in runs.into_iter().enumerate() {
            if blocks.len() > LIST_BLOCKS_MAX {
                break;
            }
            if read == LIST_DIRECTORIES_MAX {
                return Ok(BlockPage { blocks, next: Some(run.first()) });
            }
            blocks.extend(self.blocks_of(run)?.into_iter().filter(|id| *id >= from));
        }
        Ok(BlockPage::cut(blocks, LIST_BLOCKS_MAX))
    }

    /// All blocks of a session, in order.
    pub fn session_blocks(&self, session: SessionId) -> Result<Vec<BlockId>, BlockError> {
        let mut found = Vec::new();
        for run in self.runs_of(session)? {
            found.extend(self.blocks_of(run)?);
        }
        Ok(found)
    }

    pub(crate) fn list_sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        let mut found = Vec::new();
        for session in self.session_directories()? {
            if self.has_blocks_of(session)? {
                found.push(session);
            }
        }
        Ok(found)
    }

    /// Whether a session has any block here.
    pub(crate) fn has_blocks_of(&self, session: SessionId) -> Result<bool, BlockError> {
        for run in self.runs_of(session)? {
            if !self.blocks_of(run)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sessions that have a directory, in order.
    pub(crate) fn session_directories(&self) -> Result<Vec<SessionId>, BlockError> {
        self.blocks.check_there()?;
        entries(&self.blocks.layout.blocks, session_of)
    }

    /// Runs of a session that have a directory, in order.
    pub(crate) fn runs_of(&self, session: SessionId) -> Result<Vec<Run>, BlockError> {
        entries(&self.blocks.layout.session(session), |entry| run_of(session, entry))
    }

    /// Blocks of a run, in order.
    pub(crate) fn blocks_of(&self, run: Run) -> Result<Vec<BlockId>, BlockError> {
        entries(&self.blocks.layout.run(run), |entry| block_of(run, entry))
    }
}

/// What a directory holds of the kind that `parse` recognises. A directory that is gone holds nothing.
pub(crate) fn entries<T: Ord>(
    path: &Path,
    parse: impl Fn(&DirEntry) -> Option<T>,
) -> Result<Vec<T>, BlockError> {
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
