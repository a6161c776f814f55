//! Comparison of directory trees, down to the attributes that local file systems keep.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Differences shown at most.
const DIFFERENCES_SHOWN_MAX: usize = 20;

/// The attributes of a file that are compared. A directory's size and the times of symlinks are left out:
/// file systems differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// `st_mode`.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Names.
    pub nlink: u64,
    /// Length of a file.
    pub size: u64,
    /// Device number of a device.
    pub rdev: u64,
    /// mtime in nanoseconds.
    pub mtime_ns: i128,
    /// A digest of the content, or the target of a symlink.
    pub content: Content,
    /// Extended attributes.
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
}

/// The content of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Digest of a regular file's bytes.
    Digest(u64),
    /// Target of a symlink.
    Target(PathBuf),
    /// Any other kind of file has no content.
    None,
}

/// A tree by relative path; the top itself is not in it.
pub type Tree = BTreeMap<PathBuf, Node>;

/// Reads everything below a directory.
pub fn read(top: &Path) -> Tree {
    let mut tree = Tree::new();
    read_into(top, Path::new(""), &mut tree);
    tree
}

fn read_into(top: &Path, below: &Path, tree: &mut Tree) {
    let dir = top.join(below);
    for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("cannot list {}: {error}", dir.display())) {
        let entry = entry.unwrap_or_else(|error| panic!("cannot go on listing {}: {error}", dir.display()));
        let path = below.join(entry.file_name());
        let node =
            node(&top.join(&path)).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let is_dir = node.mode & libc::S_IFMT == libc::S_IFDIR;
        assert!(tree.insert(path.clone(), node).is_none(), "{} is listed twice", path.display());
        if is_dir {
            read_into(top, &path, tree);
        }
    }
}

/// Reads one file.
pub fn node(path: &Path) -> std::io::Result<Node> {
    let meta = fs::symlink_metadata(path)?;
    let kind = meta.file_type();
    let content = if kind.is_file() {
        Content::Digest(digest_file(path)?)
    } else if kind.is_symlink() {
        Content::Target(fs::read_link(path)?)
    } else {
        Content::None
    };
    let is_device = kind.is_block_device() || kind.is_char_device();
    let mtime_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    Ok(Node {
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        nlink: meta.nlink(),
        size: if kind.is_dir() { 0 } else { meta.size() },
        rdev: if is_device { meta.rdev() } else { 0 },
        mtime_ns: if kind.is_symlink() { 0 } else { mtime_ns },
        content,
        xattrs: super::sys::xattrs(path)?,
    })
}

/// A digest of bytes.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn digest_file(path: &Path) -> std::io::Result<u64> {
    let (mut file, mut hasher, mut buffer) = (File::open(path)?, DefaultHasher::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            // The hasher takes a stream, so the boundaries of the reads make no difference.
            Ok(n) => hasher.write(buffer.get(..n).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Panics with the differences, if there are any. mtimes are compared if `times` is set.
pub fn assert_same(ours: &Path, reference: &Path, times: bool) {
    let (mut a, mut b) = (read(ours), read(reference));
    if !times {
        a.values_mut().chain(b.values_mut()).for_each(|node| node.mtime_ns = 0);
    }
    let differences = differences(&a, &b);
    assert!(differences.is_empty(), "{} and {} differ:\n{differences}", ours.display(), reference.display());
}

/// The differences between two trees, for printing; empty if there are none.
pub fn differences(ours: &Tree, reference: &Tree) -> String {
    let (mut text, mut count) = (String::new(), 0);
    let mut show = |line: String| {
        count += 1;
        if count <= DIFFERENCES_SHOWN_MAX {
            let _ = writeln!(text, "    {line}");
        }
    };
    for (path, node) in ours {
        match reference.get(path) {
            None => show(format!("{} should not be there", path.display())),
            Some(other) if other != node => {
                show(format!("{}:\n        is        {node:?}\n        should be {other:?}", path.display()));
            }
            Some(_) => {}
        }
    }
    for path in reference.keys().filter(|path| !ours.contains_key(*path)) {
        show(format!("{} is missing", path.display()));
    }
    if count > DIFFERENCES_SHOWN_MAX {
        let _ = writeln!(text, "    ... and {} more", count - DIFFERENCES_SHOWN_MAX);
    }
    text
}

/// The names in a directory, sorted.
pub fn names(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("cannot list {}: {error}", dir.display()));
    let mut names: Vec<OsString> =
        entries.map(|entry| entry.expect("a listing goes on").file_name()).collect();
    names.sort();
    names
}

/// A name of `len` bytes.
pub fn name_of(byte: u8, len: usize) -> OsString {
    OsStr::from_bytes(&vec![byte; len]).to_owned()
}
