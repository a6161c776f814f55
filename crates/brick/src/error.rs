//! Why a brick cannot be made or opened.

use std::path::{Path, PathBuf};

/// A directory cannot serve as a brick.
#[derive(Debug, thiserror::Error)]
pub enum BrickError {
    /// There is no brick in this directory.
    #[error("{0} is not a brick: the file 'shoal-brick' is missing")]
    NotABrick(PathBuf),
    /// Formatting would overwrite something.
    #[error("{0} is not empty: a brick is made in a new or empty directory")]
    NotEmpty(PathBuf),
    /// Another process has it open.
    #[error("the brick {0} is in use by another process")]
    InUse(PathBuf),
    /// Made by a newer Shoal.
    #[error("{path} has format version {found}; this program knows version {known}: use a newer shoal")]
    Version {
        /// The brick's marker file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version that this program reads and writes.
        known: u32,
    },
    /// The marker file is not what Shoal writes.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// The brick's marker file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The disk failed or permission is missing.
    #[error("{path}: {cause}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
}

impl BrickError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BrickError {
        move |cause| BrickError::Io { path: path.to_owned(), cause }
    }
}
