//! Errors of the log.

use std::io;

/// Why a log could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system returned an error.
    #[error("log file {file}: {doing}: {cause}")]
    Io {
        /// Which file of the log's directory; the directory itself is `.`.
        file: String,
        /// What was attempted.
        doing: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// Bytes that were durable are no longer what was written. Nothing is repaired: another replica or a
    /// backup has to help.
    #[error("log file {file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// Which file.
        file: String,
        /// The offset in it.
        offset: u64,
        /// What was found.
        what: String,
    },
    /// Written by a newer version of Shoal.
    #[error("log file {file} has format version {found}; this program reads up to {known}")]
    Version {
        /// Which file.
        file: String,
        /// The version in the file.
        found: u32,
        /// The newest version that this program reads.
        known: u32,
    },
    /// There is a log already where a new one was to be created.
    #[error("there is a log already")]
    Exists,
    /// There is no log.
    #[error("there is no log")]
    Missing,
    /// An entry before the first or after the last was requested.
    #[error("entry {index} is not in the log, which holds {first} to {last}")]
    Absent {
        /// The requested index.
        index: u64,
        /// Index of the first entry.
        first: u64,
        /// Index of the last entry.
        last: u64,
    },
    /// The entries do not continue the log.
    #[error("cannot append {what}")]
    Invalid {
        /// What is wrong with them.
        what: String,
    },
    /// An earlier write failed: the content of the disk is unknown until the log is opened again.
    #[error("the log stopped after a failure: {0}")]
    Poisoned(String),
}

impl LogError {
    pub(crate) fn io(file: &str, doing: &'static str) -> impl FnOnce(io::Error) -> LogError {
        let file = file.to_owned();
        move |cause| LogError::Io { file, doing, cause }
    }
}
