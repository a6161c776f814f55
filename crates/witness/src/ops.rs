//! The calls of workers and what they return, as a history records them.
//!
//! Everything is small on purpose. Names are single letters, contents and sizes count in words of eight
//! bytes, and every word is written only once in a run. So a read's result says which writes it saw.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes in a [`Word`]. No kernel tears an aligned copy of this size.
pub const WORD_BYTES: u64 = 8;

/// A name in a directory: one lower-case letter.
pub type Name = u8;

/// A path below the tree that a run works in, without symlinks on the way. The empty one is the tree's root.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Path(Vec<Name>);

impl Path {
    /// The path of these names.
    pub fn new(names: &[Name]) -> Self {
        Self(names.to_vec())
    }

    /// All names.
    pub fn names(&self) -> &[Name] {
        &self.0
    }

    /// The last name, and those that lead to its directory. The root has no last name.
    pub fn split_last(&self) -> Option<(Name, &[Name])> {
        self.0.split_last().map(|(last, parents)| (*last, parents))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for (at, name) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "/" }, char::from(*name))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.to_string()
    }
}

impl TryFrom<String> for Path {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "." {
            return Ok(Self::default());
        }
        text.split('/')
            .map(|name| match name.as_bytes() {
                [letter @ b'a'..=b'z'] => Ok(*letter),
                _ => Err(format!("{text:?} is not a path of single letters")),
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Eight bytes of content: 0 for a hole, otherwise written once in a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(pub u64);

impl Word {
    /// The `count`-th word that this worker writes.
    pub fn of(worker: u32, count: u32) -> Self {
        Self((u64::from(worker) + 1) << 32 | u64::from(count))
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 >> 32 {
            0 if self.0 == 0 => f.write_str("hole"),
            0 => write!(f, "{:#x}", self.0),
            worker => write!(f, "w{}#{}", worker - 1, self.0 as u32),
        }
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a rename does if the new name exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Takes its place.
    Replace,
    /// Fails (`RENAME_NOREPLACE`).
    NoReplace,
    /// The two exchange places (`RENAME_EXCHANGE`).
    Exchange,
}

/// One call. Slots are a worker's open files by number; opening into a slot closes what it held.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the fields are the arguments of the system calls
pub enum Op {
    /// `open(O_RDWR | O_NOFOLLOW | ...)` into a slot, and the inode's number from `fstat`.
    Open {
        path: Path,
        create: bool,
        exclusive: bool,
        append: bool,
        slot: u8,
    },
    Mkdir {
        path: Path,
    },
    Rmdir {
        path: Path,
    },
    Unlink {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
        how: How,
    },
    Link {
        from: Path,
        to: Path,
    },
    /// The target is a name that does not exist.
    Symlink {
        path: Path,
        target: Word,
    },
    Readlink {
        path: Path,
    },
    Lstat {
        path: Path,
    },
    /// Open a directory, read all of it, close it.
    List {
        path: Path,
    },
    /// By path.
    Truncate {
        path: Path,
        words: u64,
    },
    /// All of an open file.
    Read {
        slot: u8,
    },
    /// One word at this word of an open file, or at its end if it was opened to append.
    Write {
        slot: u8,
        at: u64,
        word: Word,
    },
    Ftruncate {
        slot: u8,
        words: u64,
    },
    Fstat {
        slot: u8,
    },
    Fsync {
        slot: u8,
    },
}

impl Op {
    /// Whether a success changes what other workers can see, or the caller's open files.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Readlink { .. }
                | Self::Lstat { .. }
                | Self::List { .. }
                | Self::Read { .. }
                | Self::Fstat { .. }
                | Self::Fsync { .. }
        )
    }

    /// Whether it names a path.
    pub fn walks(&self) -> bool {
        !matches!(
            self,
            Self::Read { .. }
                | Self::Write { .. }
                | Self::Ftruncate { .. }
                | Self::Fstat { .. }
                | Self::Fsync { .. }
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, create, exclusive, append, slot } => {
                let flags = [(*create, " create"), (*exclusive, " exclusive"), (*append, " append")];
                let flags: String = flags.iter().filter(|flag| flag.0).map(|flag| flag.1).collect();
                write!(f, "open {path}{flags} as #{slot}")
            }
            Self::Mkdir { path } => write!(f, "mkdir {path}"),
            Self::Rmdir { path } => write!(f, "rmdir {path}"),
            Self::Unlink { path } => write!(f, "unlink {path}"),
            Self::Rename { from, to, how: How::Replace } => write!(f, "rename {from} to {to}"),
            Self::Rename { from, to, how: How::NoReplace } => write!(f, "rename {from} to {to} noreplace"),
            Self::Rename { from, to, how: How::Exchange } => write!(f, "exchange {from} and {to}"),
            Self::Link { from, to } => write!(f, "link {from} as {to}"),
            Self::Symlink { path, target } => write!(f, "symlink {path} to {target}"),
            Self::Readlink { path } => write!(f, "readlink {path}"),
            Self::Lstat { path } => write!(f, "lstat {path}"),
            Self::List { path } => write!(f, "list {path}"),
            Self::Truncate { path, words } => write!(f, "truncate {path} to {words} words"),
            Self::Read { slot } => write!(f, "read #{slot}"),
            Self::Write { slot, at, word } => write!(f, "write #{slot} word {at} = {word}"),
            Self::Ftruncate { slot, words } => write!(f, "ftruncate #{slot} to {words} words"),
            Self::Fstat { slot } => write!(f, "fstat #{slot}"),
            Self::Fsync { slot } => write!(f, "fsync #{slot}"),
        }
    }
}

/// What kind of inode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
}

/// One entry of a listing.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// As the directory returned it; it need not be a name of the run.
    pub name: String,
    /// Missing if the file system does not say.
    pub kind: Option<Kind>,
    /// The inode's number.
    pub ino: u64,
}

/// What a call returned.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the fields are those of `struct stat`
pub enum Outcome {
    /// Success without a result.
    Done,
    /// An open file. The number is missing if it was not requested, or the file system could not say.
    Opened { ino: Option<u64> },
    /// From `lstat` and `fstat`. The size of anything but a file is 0 here.
    Attributes { kind: Kind, ino: u64, links: u64, bytes: u64 },
    /// What was read.
    Content { words: Vec<Word> },
    /// A listing without `.` and `..`.
    Names { listed: Vec<Listed> },
    /// A symlink's target.
    Target { word: Word },
    /// An errno.
    Failed { errno: i32 },
    /// A result that no file system should return, in words. It is never explained.
    Odd { what: String },
}

impl Outcome {
    /// The failure with this errno.
    pub fn failed(errno: i32) -> Self {
        Self::Failed { errno }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Opened { ino: Some(ino) } => write!(f, "opened, ino {ino}"),
            Self::Opened { ino: None } => f.write_str("opened"),
            Self::Attributes { kind, ino, links, bytes } => {
                write!(f, "{kind:?} ino {ino} links {links} size {bytes}")
            }
            Self::Content { words } => write!(f, "{words:?}"),
            Self::Names { listed } => {
                f.write_str("{")?;
                for (at, Listed { name, kind, ino }) in listed.iter().enumerate() {
                    let kind = kind.map_or("?".to_owned(), |kind| format!("{kind:?}"));
                    write!(f, "{}{name}: {kind} {ino}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Self::Target { word } => write!(f, "leads to {word}"),
            Self::Failed { errno } => f.write_str(&errno_name(*errno)),
            Self::Odd { what } => write!(f, "odd: {what}"),
        }
    }
}

/// `ENOENT` and the like.
pub fn errno_name(errno: i32) -> String {
    match nix::errno::Errno::from_raw(errno) {
        nix::errno::Errno::UnknownErrno => format!("errno {errno}"),
        known => format!("{known:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_and_read_back() {
        for text in [".", "a", "p/q/c"] {
            let path = Path::try_from(text.to_owned()).expect("a path");
            assert_eq!(path.to_string(), text);
        }
        for text in ["", "/", "a//b", "ab", "A", "../a"] {
            assert!(Path::try_from(text.to_owned()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_tell_who_wrote_them() {
        assert_eq!(Word::of(3, 17).to_string(), "w3#17");
        assert_eq!(Word(0).to_string(), "hole");
    }
}
