//! Makes the calls, on a real file system.

use crate::limits;
use crate::ops::{How, Kind, Listed, Op, Outcome, Path, WORD_BYTES, Word};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// The prefix of a symlink's target; no other name has it.
const TARGET_PREFIX: &str = "nowhere-";

/// One worker's open files, in one tree.
#[derive(Debug)]
pub struct OpenFiles {
    tree: PathBuf,
    slots: Vec<Option<File>>,
}

/// The outcome of a call that succeeded with a result that it should not have.
fn odd(what: impl Into<String>) -> io::Result<Outcome> {
    Ok(Outcome::Odd { what: what.into() })
}

fn kind(of: FileType) -> Option<Kind> {
    if of.is_dir() {
        Some(Kind::Dir)
    } else if of.is_file() {
        Some(Kind::File)
    } else if of.is_symlink() {
        Some(Kind::Symlink)
    } else {
        debug_assert!(of.is_socket() || of.is_fifo() || of.is_char_device() || of.is_block_device());
        None
    }
}

fn attributes(of: &Metadata) -> io::Result<Outcome> {
    let Some(kind) = kind(of.file_type()) else { return odd(format!("a {:?}", of.file_type())) };
    let bytes = if kind == Kind::File { of.size() } else { 0 };
    Ok(Outcome::Attributes { kind, ino: of.ino(), links: of.nlink(), bytes })
}

impl OpenFiles {
    /// For a worker that works in this directory.
    pub fn new(tree: PathBuf) -> Self {
        Self { tree, slots: (0..limits::SLOTS).map(|_| None).collect() }
    }

    /// Whether a slot holds an open file.
    pub fn holds(&self, slot: u8) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(Option::is_some)
    }

    /// Makes a call.
    pub fn perform(&mut self, op: &Op) -> Outcome {
        match self.attempt(op) {
            Ok(outcome) => outcome,
            Err(error) => match error.raw_os_error() {
                Some(errno) => Outcome::failed(errno),
                None => Outcome::Odd { what: error.to_string() },
            },
        }
    }

    fn path(&self, path: &Path) -> PathBuf {
        if path.names().is_empty() { self.tree.clone() } else { self.tree.join(path.to_string()) }
    }

    fn file(&self, slot: u8) -> io::Result<&File> {
        let held = self.slots.get(usize::from(slot)).and_then(Option::as_ref);
        held.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn attempt(&mut self, op: &Op) -> io::Result<Outcome> {
        match op {
            Op::Open { path, create, exclusive, append, slot } => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).append(*append);
                let flags = [(*create, libc::O_CREAT), (*exclusive, libc::O_EXCL)];
                let flags = flags.iter().filter(|flag| flag.0).map(|flag| flag.1).sum::<i32>();
                let file = options.custom_flags(libc::O_NOFOLLOW | flags).open(self.path(path))?;
                let ino = file.metadata().ok().map(|metadata| metadata.ino());
                if let Some(held) = self.slots.get_mut(usize::from(*slot)) {
                    *held = Some(file);
                }
                return Ok(Outcome::Opened { ino });
            }
            Op::Mkdir { path } => fs::create_dir(self.path(path))?,
            Op::Rmdir { path } => fs::remove_dir(self.path(path))?,
            Op::Unlink { path } => fs::remove_file(self.path(path))?,
            Op::Rename { from, to, how } => {
                let flags = match how {
                    How::Replace => RenameFlags::empty(),
                    How::NoReplace => RenameFlags::RENAME_NOREPLACE,
                    How::Exchange => RenameFlags::RENAME_EXCHANGE,
                };
                renameat2(AT_FDCWD, &self.path(from), AT_FDCWD, &self.path(to), flags)?;
            }
            Op::Link { from, to } => fs::hard_link(self.path(from), self.path(to))?,
            Op::Symlink { path, target } => {
                std::os::unix::fs::symlink(format!("{TARGET_PREFIX}{}", target.0), self.path(path))?;
            }
            Op::Readlink { path } => {
                let target = fs::read_link(self.path(path))?.to_string_lossy().into_owned();
                let word = target.strip_prefix(TARGET_PREFIX).and_then(|word| word.parse().ok());
                return match word {
                    Some(word) => Ok(Outcome::Target { word: Word(word) }),
                    None => odd(format!("leads to {target:?}")),
                };
            }
            Op::Lstat { path } => return attributes(&fs::symlink_metadata(self.path(path))?),
            Op::List { path } => return list(&self.path(path)),
            Op::Truncate { path, words } => {
                nix::unistd::truncate(&self.path(path), (words * WORD_BYTES) as i64)?;
            }
            Op::Read { slot } => return read(self.file(*slot)?),
            Op::Write { slot, at, word } => {
                let written = self.file(*slot)?.write_at(&word.0.to_be_bytes(), at * WORD_BYTES)?;
                if written as u64 != WORD_BYTES {
                    return odd(format!("{written} bytes were written"));
                }
            }
            Op::Ftruncate { slot, words } => self.file(*slot)?.set_len(words * WORD_BYTES)?,
            Op::Fstat { slot } => return attributes(&self.file(*slot)?.metadata()?),
            Op::Fsync { slot } => self.file(*slot)?.sync_all()?,
        }
        Ok(Outcome::Done)
    }
}

fn read(file: &File) -> io::Result<Outcome> {
    let mut bytes = [0; limits::READ_BYTES];
    let length = file.read_at(&mut bytes, 0)?;
    let (words, rest) = bytes[..length].as_chunks();
    if !rest.is_empty() {
        return odd(format!("{length} bytes, the last of them {rest:?}"));
    }
    Ok(Outcome::Content { words: words.iter().map(|word| Word(u64::from_be_bytes(*word))).collect() })
}

fn list(path: &std::path::Path) -> io::Result<Outcome> {
    let mut listed = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        listed.push(Listed { name, kind: entry.file_type().ok().and_then(kind), ino: entry.ino() });
    }
    Ok(Outcome::Names { listed })
}
