//! Where blocks lie in a brick's directory, and which names there are blocks.

use crate::limits::DIRECTORY_BLOCKS;
use shoal_types::{BlockId, SessionId};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

/// The file that identifies a directory as a brick.
pub(crate) const MARKER: &str = "shoal-brick";

/// A directory of blocks: a session and a run of consecutive sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Run {
    pub session: SessionId,
    pub run: u64,
}

impl Run {
    /// The run that a block belongs to.
    pub fn of(id: BlockId) -> Run {
        Run { session: id.session, run: id.seq / DIRECTORY_BLOCKS }
    }

    /// The first block that may belong to it.
    pub fn first(self) -> BlockId {
        BlockId { session: self.session, seq: self.run * DIRECTORY_BLOCKS }
    }
}

/// Paths of a brick.
pub(crate) struct Layout {
    /// The brick's directory.
    pub root: PathBuf,
    /// The directory of all blocks.
    pub blocks: PathBuf,
}

impl Layout {
    pub fn new(root: &Path) -> Layout {
        Layout { root: root.to_owned(), blocks: root.join("blocks") }
    }

    /// What identifies the directory as a brick.
    pub fn marker(&self) -> PathBuf {
        self.root.join(MARKER)
    }

    pub fn session(&self, session: SessionId) -> PathBuf {
        self.blocks.join(format!("{:x}", session.0))
    }

    pub fn run(&self, run: Run) -> PathBuf {
        self.blocks.join(format!("{:x}/{:x}", run.session.0, run.run))
    }

    pub fn block(&self, id: BlockId) -> PathBuf {
        let run = Run::of(id);
        self.blocks.join(format!("{:x}/{:x}/{id}", run.session.0, run.run))
    }
}

/// The session whose directory this is; files of other programs have none.
pub(crate) fn session_of(entry: &DirEntry) -> Option<SessionId> {
    hex(entry.file_name().to_str()?).map(SessionId)
}

/// The run of a session whose directory this is; a number that no block's run has is not the brick's.
pub(crate) fn run_of(session: SessionId, entry: &DirEntry) -> Option<Run> {
    let run = hex(entry.file_name().to_str()?)?;
    (run <= u64::MAX / DIRECTORY_BLOCKS).then_some(Run { session, run })
}

/// The block whose file this is: `None` for a name that no block of this directory would have.
pub(crate) fn block_of(run: Run, entry: &DirEntry) -> Option<BlockId> {
    let name = entry.file_name();
    let (session, seq) = name.to_str()?.split_once('-')?;
    let id = BlockId { session: SessionId(hex(session)?), seq: hex(seq)? };
    (Run::of(id) == run && entry.file_type().ok()?.is_file()).then_some(id)
}

/// A number exactly as `{:x}` writes it.
fn hex(text: &str) -> Option<u64> {
    let value = u64::from_str_radix(text, 16).ok()?;
    (format!("{value:x}") == text).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_brick_writes_are_taken_for_its_own() {
        assert_eq!(hex("1f"), Some(31));
        for foreign in ["", "01f", "1F", "+1", "0x1", "1g", "11112222333344445", "lost+found"] {
            assert_eq!(hex(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn paths_of_blocks_never_change() {
        let layout = Layout::new(Path::new("/b"));
        let id = BlockId { session: SessionId(0x2a), seq: 0x1234 };
        assert_eq!(layout.block(id), Path::new("/b/blocks/2a/12/2a-1234"));
    }
}
