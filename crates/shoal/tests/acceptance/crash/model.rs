//! The expected content of a writer's directory after each of its steps.

use crate::harness::tree::{Content, Node, Tree, digest};
use crate::harness::{Random, sys};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Files stay below this: inline, mixed and of several blocks.
const FILE_BYTES_MAX: u64 = 6 << 20;
/// Below what the kernel sends in one request.
const WRITE_BYTES_MAX: u64 = 200_000;
/// A write that begins inside a page which is not in the page cache is sent as two requests, parted there.
const PAGE_BYTES: u64 = 4096;
/// With more names than this, the writer begins to remove some.
const NAMES_MAX: usize = 120;
/// The attribute that steps set.
const XATTR: &str = "user.step";

/// One system call, or one of the requests into which the kernel splits it.
#[derive(Clone, Debug)]
pub enum Step {
    Create(PathBuf),
    Mkdir(PathBuf),
    Symlink(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    /// The pattern `fill`, from its byte `skip` on.
    Write {
        path: PathBuf,
        offset: u64,
        len: u64,
        fill: u64,
        skip: u64,
    },
    Truncate(PathBuf, u64),
    Punch {
        path: PathBuf,
        offset: u64,
        len: u64,
    },
    Rename(PathBuf, PathBuf),
    Unlink(PathBuf),
    Rmdir(PathBuf),
    Chmod(PathBuf, u32),
    SetXattr {
        path: PathBuf,
        len: usize,
        fill: u8,
    },
    Fsync(PathBuf),
}

/// The expected state.
#[derive(Default)]
pub struct Model {
    names: BTreeMap<PathBuf, Entry>,
    files: BTreeMap<u64, File>,
    next: u64,
}

enum Entry {
    Dir { mode: u32 },
    Symlink(PathBuf),
    File(u64),
}

struct File {
    mode: u32,
    nlink: u64,
    content: Vec<u8>,
    xattr: Option<Vec<u8>>,
    digest: Cell<Option<u64>>,
}

/// The bytes of a write: a function of its number, so that a misplaced one is detected.
fn bytes(fill: u64, skip: u64, len: u64) -> Vec<u8> {
    let mut bytes = stream(fill, skip + len);
    bytes.drain(..skip as usize);
    bytes
}

fn stream(fill: u64, len: u64) -> Vec<u8> {
    let mut state = fill.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len as usize + 8);
    while bytes.len() < len as usize {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    bytes.truncate(len as usize);
    bytes
}

impl Step {
    /// The requests that the server receives for it, in order.
    pub fn parts(&self) -> Vec<Step> {
        match self {
            Step::Write { path, offset, len, fill, skip } => {
                let head = (PAGE_BYTES - offset % PAGE_BYTES).min(*len);
                let part = |start: u64, len: u64| Step::Write {
                    path: path.clone(),
                    offset: offset + start,
                    len,
                    fill: *fill,
                    skip: skip + start,
                };
                let parts = [part(0, head), part(head, len - head)];
                parts.into_iter().take(if head < *len { 2 } else { 1 }).collect()
            }
            whole => vec![whole.clone()],
        }
    }

    /// Executes it.
    pub fn perform(&self, dir: &Path) -> sys::Sys<()> {
        let at = |path: &Path| dir.join(path);
        let open = |path: &Path, flags| sys::open(&at(path), flags, 0o644);
        match self {
            Step::Create(path) => open(path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY).map(drop),
            Step::Mkdir(path) => sys::mkdir(&at(path), 0o755),
            Step::Symlink(target, path) => Ok(symlink(target, at(path))?),
            Step::Link(from, to) => Ok(fs::hard_link(at(from), at(to))?),
            Step::Write { path, offset, len, fill, skip } => {
                let wrote = sys::pwrite(&open(path, libc::O_WRONLY)?, &bytes(*fill, *skip, *len), *offset)?;
                // A short write: the server died in the middle.
                if wrote == *len { Ok(()) } else { Err(sys::Errno(libc::EIO)) }
            }
            Step::Truncate(path, len) => sys::truncate(&at(path), *len),
            Step::Punch { path, offset, len } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                sys::fallocate(&open(path, libc::O_WRONLY)?, mode, *offset, *len)
            }
            Step::Rename(from, to) => sys::rename(&at(from), &at(to), 0),
            Step::Unlink(path) => Ok(fs::remove_file(at(path))?),
            Step::Rmdir(path) => Ok(fs::remove_dir(at(path))?),
            Step::Chmod(path, mode) => sys::chmod(&at(path), *mode),
            Step::SetXattr { path, len, fill } => {
                sys::setxattr(&at(path), XATTR.as_ref(), &vec![*fill; *len], 0)
            }
            Step::Fsync(path) => sys::fsync(&open(path, libc::O_RDONLY)?),
        }
    }
}

impl Model {
    /// A step that will succeed.
    pub fn random_step(&self, random: &mut Random, number: u64) -> Step {
        let dirs: Vec<&Path> =
            std::iter::once(Path::new("")).chain(self.paths(|e| matches!(e, Entry::Dir { .. }))).collect();
        let files: Vec<&Path> = self.paths(|e| matches!(e, Entry::File(_))).collect();
        let fresh = |random: &mut Random| random.pick(&dirs).join(format!("{number}"));
        if files.is_empty() {
            return Step::Create(fresh(random));
        }
        let file = random.pick(&files).to_path_buf();
        let len = |random: &mut Random| random.length(WRITE_BYTES_MAX - 1) + 1;
        let size = self.file(&file).content.len() as u64;
        if self.names.len() > NAMES_MAX && random.one_in(3) {
            return Step::Unlink(file);
        }
        match random.below(0..26) {
            0..=3 => Step::Create(fresh(random)),
            4 => Step::Mkdir(fresh(random)),
            5 => Step::Symlink(file, fresh(random)),
            6 => Step::Link(file, fresh(random)),
            7..=13 if size < FILE_BYTES_MAX => {
                let offset = if random.one_in(4) { random.below(0..size + 5000) } else { size };
                Step::Write { path: file, offset, len: len(random), fill: number, skip: 0 }
            }
            7..=14 => Step::Truncate(file, random.below(0..size + 5000)),
            15 => Step::Punch { path: file, offset: random.below(0..size + 1), len: len(random) },
            16 => Step::Rename(file, fresh(random)),
            17..=18 => {
                let other = random.pick(&files).to_path_buf();
                if self.same(&file, &other) { Step::Unlink(file) } else { Step::Rename(file, other) }
            }
            19 => Step::Unlink(file),
            20 => self.empty_dir(random).map_or(Step::Unlink(file), Step::Rmdir),
            21 => Step::Chmod(file, *random.pick(&[0o600, 0o644, 0o755, 0o4711])),
            22 => {
                let len = random.length(3000) as usize;
                Step::SetXattr { path: file, len, fill: number as u8 }
            }
            23 if random.one_in(2) => Step::Fsync(random.pick(&dirs).to_path_buf()),
            _ if random.one_in(3) => Step::Fsync(file),
            _ => Step::Write { path: file, offset: 0, len: len(random), fill: number, skip: 0 },
        }
    }

    fn paths(&self, which: impl Fn(&Entry) -> bool) -> impl Iterator<Item = &Path> {
        self.names.iter().filter(move |(_, entry)| which(entry)).map(|(path, _)| path.as_path())
    }

    fn empty_dir(&self, random: &mut Random) -> Option<PathBuf> {
        let is_empty = |dir: &&Path| !self.names.keys().any(|path| path.parent() == Some(dir));
        let empty: Vec<&Path> =
            self.paths(|entry| matches!(entry, Entry::Dir { .. })).filter(is_empty).collect();
        (!empty.is_empty()).then(|| random.pick(&empty).to_path_buf())
    }

    fn id(&self, path: &Path) -> u64 {
        match self.names.get(path) {
            Some(Entry::File(id)) => *id,
            _ => panic!("{} is not a file of the model", path.display()),
        }
    }

    fn same(&self, a: &Path, b: &Path) -> bool {
        self.id(a) == self.id(b)
    }

    fn file(&self, path: &Path) -> &File {
        &self.files[&self.id(path)]
    }

    fn file_mut(&mut self, path: &Path) -> &mut File {
        let id = self.id(path);
        let file = self.files.get_mut(&id).expect("a name leads to its file");
        file.digest.set(None);
        file
    }

    fn drop_name(&mut self, path: &Path) {
        if let Some(Entry::File(id)) = self.names.remove(path) {
            let file = self.files.get_mut(&id).expect("a name leads to its file");
            file.nlink -= 1;
            if file.nlink == 0 {
                self.files.remove(&id);
            }
        }
    }

    /// Applies a step that succeeded.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Create(path) => {
                self.next += 1;
                let file =
                    File { mode: 0o644, nlink: 1, content: Vec::new(), xattr: None, digest: Cell::new(None) };
                self.files.insert(self.next, file);
                self.names.insert(path.clone(), Entry::File(self.next));
            }
            Step::Mkdir(path) => drop(self.names.insert(path.clone(), Entry::Dir { mode: 0o755 })),
            Step::Symlink(target, path) => {
                drop(self.names.insert(path.clone(), Entry::Symlink(target.clone())))
            }
            Step::Link(from, to) => {
                let id = self.id(from);
                self.file_mut(from).nlink += 1;
                self.names.insert(to.clone(), Entry::File(id));
            }
            Step::Write { path, offset, len, fill, skip } => {
                let content = &mut self.file_mut(path).content;
                let (start, end) = (*offset as usize, (offset + len) as usize);
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(&bytes(*fill, *skip, *len));
            }
            Step::Truncate(path, len) => self.file_mut(path).content.resize(*len as usize, 0),
            Step::Punch { path, offset, len } => {
                let content = &mut self.file_mut(path).content;
                let end = ((offset + len) as usize).min(content.len());
                let start = (*offset as usize).min(end);
                content[start..end].fill(0);
            }
            Step::Rename(from, to) => {
                let entry = self.names.remove(from).expect("only what is there is renamed");
                self.drop_name(to);
                self.names.insert(to.clone(), entry);
            }
            Step::Unlink(path) | Step::Rmdir(path) => self.drop_name(path),
            Step::Chmod(path, mode) => self.file_mut(path).mode = *mode,
            Step::SetXattr { path, len, fill } => self.file_mut(path).xattr = Some(vec![*fill; *len]),
            Step::Fsync(_) => {}
        }
    }

    /// The state as a tree. Digests are computed only for files of the length that was found: any other file
    /// differs anyway, and most states that are compared are not the right one.
    pub fn tree(&self, found: &Tree) -> Tree {
        self.names
            .iter()
            .map(|(path, entry)| (path.clone(), self.node(path, entry, found.get(path))))
            .collect()
    }

    fn node(&self, path: &Path, entry: &Entry, found: Option<&Node>) -> Node {
        let node = |mode, nlink, size, content| Node {
            mode,
            owner: (0, 0),
            nlink,
            size,
            rdev: 0,
            mtime_ns: 0,
            content,
            xattrs: BTreeMap::new(),
        };
        match entry {
            Entry::Dir { mode } => {
                let is_child = |(other, entry): &(&PathBuf, &Entry)| {
                    other.parent() == Some(path) && matches!(entry, Entry::Dir { .. })
                };
                let children = self.names.iter().filter(is_child).count() as u64;
                node(libc::S_IFDIR | mode, 2 + children, 0, Content::None)
            }
            Entry::Symlink(target) => node(
                libc::S_IFLNK | 0o777,
                1,
                target.as_os_str().len() as u64,
                Content::Target(target.clone()),
            ),
            Entry::File(id) => {
                let file = &self.files[id];
                let size = file.content.len() as u64;
                let content = if found.is_some_and(|found| found.size == size) { file.digest() } else { 0 };
                let mut node = node(libc::S_IFREG | file.mode, file.nlink, size, Content::Digest(content));
                node.xattrs.extend(file.xattr.iter().map(|value| (XATTR.into(), value.clone())));
                node
            }
        }
    }
}

impl File {
    fn digest(&self) -> u64 {
        self.digest.get().unwrap_or_else(|| {
            let digest = digest(&self.content);
            self.digest.set(Some(digest));
            digest
        })
    }
}
