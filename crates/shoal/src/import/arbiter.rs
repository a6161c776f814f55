//! Telling an arbiter's brick from one with content.
//!
//! **Model.** The arbiter of a replica set has all of its files, with their names, owners, modes, times,
//! attributes and changelogs, and each regular file is empty, shards included. No attribute says so. A brick
//! whose regular files are all empty is therefore taken for an arbiter's, unless the administrator says that
//! they are empty indeed.
//!
//! **Cost.** The first regular file with content settles it. All files are looked at on an arbiter's brick
//! only.

use super::run::is_internal;
use super::{at, xattr};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// On the root directory of a brick that is being freed and had content at the beginning: what a move that
/// was killed has left there may be empty files only.
const HAD_CONTENT: &CStr = c"trusted.shoal.content";
/// The permissions of link-to files, which are empty on every brick.
const LINK_TO_MODE: u32 = 0o1000;
const SHARDS: &str = ".shard";

/// What the regular files of a brick are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Files {
    /// There are none.
    None,
    /// So many, and all are empty.
    Empty(u64),
    /// At least one has content, or had when a move began.
    WithContent,
}

/// Looks at the regular files of a brick until one has content.
pub fn files_of(brick: &Path) -> io::Result<Files> {
    if xattr::get(brick, HAD_CONTENT).map_err(|error| at(brick, error))?.is_some() {
        return Ok(Files::WithContent);
    }
    let mut empty = 0;
    let mut directories = vec![brick.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(|error| at(&directory, error))? {
            let entry = entry.map_err(|error| at(&directory, error))?;
            let (name, path) = (entry.file_name(), entry.path());
            if directory == brick && is_internal(&name) && name != SHARDS {
                continue;
            }
            let kind = entry.file_type().map_err(|error| at(&path, error))?;
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file() {
                // Not of a symbolic link's target.
                let stat = entry.metadata().map_err(|error| at(&path, error))?;
                match stat.len() {
                    1.. => return Ok(Files::WithContent),
                    0 => empty += u64::from(stat.mode() & 0o7777 != LINK_TO_MODE),
                }
            }
        }
    }
    Ok(if empty == 0 { Files::None } else { Files::Empty(empty) })
}

/// Remembers on a brick that it had content.
pub fn mark_content(brick: &Path) -> io::Result<()> {
    xattr::set(brick, HAD_CONTENT, b"1").map_err(|error| at(brick, error))
}
