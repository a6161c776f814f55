//! A program's system calls on a mount: through a model [`Kernel`], or as a kernel without caches would send
//! them, which walks paths name by name.

mod cached;

use crate::kernel::Kernel;
use cached::Cached;
use shoal_client::{Caller, Client, Failure, LookupResult, Reply, Wait};
use shoal_namespace::{RenameFlags, SetAttr};
use shoal_types::{Cookie, Errno, FileKind, Inode, InodeId};
use shoal_witness::limits::{READ_BYTES, SLOTS};
use shoal_witness::ops::{How, Kind, Listed, Op, Outcome, Path, WORD_BYTES, Word};
use std::ops::ControlFlow;
use std::sync::Arc;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const FILE_MODE: u32 = libc::S_IFREG | 0o644;
const DIR_MODE: u32 = libc::S_IFDIR | 0o755;
/// How often a call that met a stale entry is retried. Linux retries once. Here the directory's lock is not
/// held meanwhile, so it takes more.
const STALE_TRIES: u32 = 20;
const WAIT: Wait = Wait::Allowed;

/// An open file.
#[derive(Clone, Copy)]
struct Open {
    ino: InodeId,
    append: bool,
}

/// One worker's open files on one mount, and the calls on them.
pub struct Syscalls {
    client: Arc<Client>,
    /// The worker's thread, as the client counts threads.
    thread: u32,
    slots: Vec<Option<Open>>,
    words: Words,
    /// The kernel of the mount, if it has one.
    cached: Option<Cached>,
}

/// How words are in files: each so often.
#[derive(Clone, Copy)]
struct Words {
    repeats: u64,
}

impl Words {
    /// Bytes of so many words.
    fn bytes(self, words: u64) -> u64 {
        words * WORD_BYTES * self.repeats
    }

    /// A word as it is written.
    fn write(self, word: Word) -> Vec<u8> {
        word.0.to_be_bytes().repeat(self.repeats as usize)
    }

    /// The words of a file's content; `None` if it is in no words, or one of them is not the same everywhere.
    fn read(self, bytes: &[u8]) -> Option<Vec<Word>> {
        let word = |bytes: &[u8]| {
            let (words, rest) = bytes.as_chunks();
            let first = words.first()?;
            let is_whole = rest.is_empty() && words.len() as u64 == self.repeats;
            (is_whole && words.iter().all(|word| word == first)).then(|| Word(u64::from_be_bytes(*first)))
        };
        bytes.chunks(self.bytes(1) as usize).map(word).collect()
    }

    /// The outcome of a read.
    fn content(self, bytes: &[u8]) -> Outcome {
        match self.read(bytes) {
            Some(words) => Outcome::Content { words },
            None => Outcome::Odd { what: format!("{} bytes in torn words: {bytes:x?}", bytes.len()) },
        }
    }

    fn attributes(self, mode: u32, ino: u64, links: u32, size: u64) -> Outcome {
        match kind_of_mode(mode) {
            Some(Kind::File) if !size.is_multiple_of(self.repeats) => {
                Outcome::Odd { what: format!("a file of {size} bytes") }
            }
            Some(kind) => {
                let bytes = if kind == Kind::File { size / self.repeats } else { 0 };
                Outcome::Attributes { kind, ino, links: links.into(), bytes }
            }
            None => Outcome::Odd { what: format!("mode {mode:o}") },
        }
    }

    fn of_inode(self, ino: InodeId, inode: &Inode) -> Outcome {
        self.attributes(inode.kind.mode_bits(), ino.0, inode.nlink, inode.size)
    }
}

fn kind(of: FileKind) -> Option<Kind> {
    match of {
        FileKind::Directory => Some(Kind::Dir),
        FileKind::Regular => Some(Kind::File),
        FileKind::Symlink => Some(Kind::Symlink),
        _ => None,
    }
}

/// `None`: another kind, or no bits of one.
fn kind_of_mode(mode: u32) -> Option<Kind> {
    FileKind::from_mode(mode).filter(|_| mode & libc::S_IFMT != 0).and_then(kind)
}

/// The outcome of readlink(2).
fn target(link: &[u8]) -> Outcome {
    let word = std::str::from_utf8(link).ok().and_then(|word| word.parse().ok());
    match word {
        Some(word) => Outcome::Target { word: Word(word) },
        None => Outcome::Odd { what: format!("leads to {link:?}") },
    }
}

/// References to inodes that are dropped with the call.
struct Held<'a> {
    client: &'a Client,
    thread: u32,
    inodes: Vec<InodeId>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for ino in &self.inodes {
            self.client.forget(*ino, 1);
        }
    }
}

impl Held<'_> {
    fn lookup(&mut self, dir: InodeId, name: u8) -> Reply<Option<(InodeId, Inode)>> {
        let found = self.client.find(WAIT, self.thread, dir, &[name])?;
        Ok(found.map(|LookupResult { entry, .. }| {
            self.inodes.push(entry.ino);
            (entry.ino, entry.inode)
        }))
    }

    fn need(&mut self, dir: InodeId, name: u8) -> Reply<(InodeId, Inode)> {
        let found = self.lookup(dir, name)?;
        found.ok_or(Failure::Errno(Errno::ENOENT))
    }

    /// The lookup that a kernel sends before it creates an entry.
    fn need_free(&mut self, dir: InodeId, name: u8) -> Reply<()> {
        match self.lookup(dir, name)? {
            Some(_) => Err(Errno::EEXIST.into()),
            None => Ok(()),
        }
    }

    /// Walks a path of names.
    fn walk(&mut self, names: &[u8]) -> Reply<InodeId> {
        let mut at = InodeId::ROOT;
        for name in names {
            let (ino, inode) = self.need(at, *name)?;
            match inode.kind {
                FileKind::Directory => at = ino,
                // The simulated symlinks point at nothing.
                FileKind::Symlink => return Err(Errno::ENOENT.into()),
                _ => return Err(Errno::ENOTDIR.into()),
            }
        }
        Ok(at)
    }

    /// The directory of a path, and its last name.
    fn parent(&mut self, path: &Path) -> Reply<(InodeId, u8)> {
        let (last, parents) = path.split_last().ok_or(Failure::Errno(Errno::EINVAL))?;
        Ok((self.walk(parents)?, last))
    }

    fn find(&mut self, path: &Path) -> Reply<(InodeId, Inode)> {
        match path.split_last() {
            None => Ok((InodeId::ROOT, self.client.getattr(WAIT, InodeId::ROOT)?)),
            Some((last, parents)) => {
                let dir = self.walk(parents)?;
                self.need(dir, last)
            }
        }
    }
}

impl Syscalls {
    /// The calls of a worker, by its number, on a mount. Each word is in files so often.
    pub fn new(client: Arc<Client>, kernel: Option<Arc<Kernel>>, worker: u32, repeats: u64) -> Syscalls {
        // The client's threads are numbered from 1.
        let (thread, words) = (worker + 1, Words { repeats });
        let slots = usize::from(SLOTS);
        let cached = kernel.map(|kernel| Cached::new(kernel, slots));
        Syscalls { client, thread, slots: vec![None; slots], words, cached }
    }

    /// The mount.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Whether a slot holds an open file.
    pub fn holds(&self, slot: u8) -> bool {
        let is_cached = self.cached.as_ref().is_some_and(|cached| cached.holds(slot));
        is_cached || self.slots.get(usize::from(slot)).is_some_and(Option::is_some)
    }

    /// Makes a call.
    pub fn perform(&mut self, op: &Op) -> Outcome {
        if let Some(outcome) = self.perform_cached(op) {
            return outcome;
        }
        let mut outcome = self.attempt(op);
        // Linux walks the path once more after ESTALE.
        for _ in 0..STALE_TRIES {
            if outcome != Err(Failure::Errno(Errno::ESTALE)) {
                break;
            }
            outcome = self.attempt(op);
        }
        match outcome {
            Ok(outcome) => outcome,
            Err(Failure::Errno(errno)) => Outcome::failed(errno.0),
            Err(Failure::WouldBlock) => Outcome::Odd { what: "it would not wait".into() },
        }
    }

    fn open_file(&self, slot: u8) -> Reply<Open> {
        let held = self.slots.get(usize::from(slot)).copied().flatten();
        held.ok_or(Failure::Errno(Errno::EBADF))
    }

    fn attempt(&mut self, op: &Op) -> Reply<Outcome> {
        let client = self.client.clone();
        let mut held = Held { client: &client, thread: self.thread, inodes: Vec::new() };
        match op {
            Op::Open { path, create, exclusive, append, slot } => {
                let ino = open(&mut held, path, *create, *exclusive)?;
                // The slot owns the reference from now on.
                let at = held.inodes.iter().rposition(|one| *one == ino);
                at.map(|at| held.inodes.swap_remove(at));
                if let Some(place) = self.slots.get_mut(usize::from(*slot))
                    && let Some(old) = place.replace(Open { ino, append: *append })
                {
                    client.forget(old.ino, 1);
                }
                return Ok(Outcome::Opened { ino: Some(ino.0) });
            }
            Op::Mkdir { path } => {
                let (dir, name) = held.parent(path)?;
                held.need_free(dir, name)?;
                let made = client.create(WAIT, &CALLER, dir, &[name], DIR_MODE, 0)?;
                held.inodes.push(made.ino);
            }
            Op::Rmdir { path } => {
                let (dir, name) = held.parent(path)?;
                held.lookup(dir, name)?;
                client.rmdir(WAIT.by(self.thread), dir, &[name])?;
            }
            Op::Unlink { path } => {
                let (dir, name) = held.parent(path)?;
                held.lookup(dir, name)?;
                client.unlink(WAIT, dir, &[name])?;
            }
            Op::Rename { from, to, how } => {
                let (from, from_name) = held.parent(from)?;
                let above_from = [&[InodeId::ROOT], held.inodes.as_slice()].concat();
                let (to, to_name) = held.parent(to)?;
                let above_to = held.inodes[above_from.len() - 1..].to_vec();
                // A kernel looks both names up first, and sends what it found.
                let moved = held.need(from, from_name)?.0;
                let replaced = held.lookup(to, to_name)?.map(|found| found.0);
                match replaced {
                    Some(_) if *how == How::NoReplace => {}
                    None if *how == How::Exchange => {}
                    _ if above_to.contains(&moved) => return Err(Errno::EINVAL.into()),
                    Some(replaced) if above_from.contains(&replaced) => {
                        let exchange = *how == How::Exchange;
                        return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY }.into());
                    }
                    _ => {}
                }
                let flags =
                    RenameFlags { no_replace: *how == How::NoReplace, exchange: *how == How::Exchange };
                client.rename(WAIT.by(self.thread), from, &[from_name], to, &[to_name], flags)?;
            }
            Op::Link { from, to } => {
                let (ino, inode) = held.find(from)?;
                let (dir, name) = held.parent(to)?;
                held.need_free(dir, name)?;
                if inode.kind == FileKind::Directory {
                    return Err(Errno::EPERM.into());
                }
                let made = client.link(WAIT, ino, dir, &[name])?;
                held.inodes.push(made.ino);
            }
            Op::Symlink { path, target } => {
                let (dir, name) = held.parent(path)?;
                held.need_free(dir, name)?;
                let made = client.symlink(WAIT, &CALLER, dir, &[name], target.0.to_string().as_bytes())?;
                held.inodes.push(made.ino);
            }
            Op::Readlink { path } => {
                let (ino, inode) = held.find(path)?;
                if inode.kind != FileKind::Symlink {
                    return Err(Errno::EINVAL.into());
                }
                return Ok(target(&client.readlink(WAIT, ino)?));
            }
            Op::Lstat { path } => {
                let (ino, inode) = held.find(path)?;
                return Ok(self.words.of_inode(ino, &inode));
            }
            Op::List { path } => {
                let (dir, inode) = held.find(path)?;
                match inode.kind {
                    FileKind::Directory => {}
                    FileKind::Symlink => return Err(Errno::ENOENT.into()),
                    _ => return Err(Errno::ENOTDIR.into()),
                }
                return list(&client, dir);
            }
            Op::Truncate { path, words } => {
                let (ino, inode) = held.find(path)?;
                match inode.kind {
                    FileKind::Directory => return Err(Errno::EISDIR.into()),
                    FileKind::Symlink => return Err(Errno::ENOENT.into()),
                    _ => self.resize(ino, *words)?,
                }
            }
            Op::Read { slot } => return self.read(self.open_file(*slot)?.ino),
            Op::Write { slot, at, word } => {
                let file = self.open_file(*slot)?;
                let bytes = self.words.write(*word);
                client.acquire_write_permit(WAIT, file.ino)?;
                match file.append {
                    true => _ = client.append(WAIT, file.ino, &bytes, false)?,
                    false => client.write(WAIT, file.ino, self.words.bytes(*at), &bytes, false)?,
                }
            }
            Op::Ftruncate { slot, words } => self.resize(self.open_file(*slot)?.ino, *words)?,
            Op::Fstat { slot } => {
                let ino = self.open_file(*slot)?.ino;
                return Ok(self.words.of_inode(ino, &client.getattr(WAIT, ino)?));
            }
            Op::Fsync { slot } => client.fsync(self.open_file(*slot)?.ino)?,
        }
        Ok(Outcome::Done)
    }

    fn resize(&self, ino: InodeId, words: u64) -> Reply<()> {
        let set = SetAttr { size: Some(self.words.bytes(words)), ..SetAttr::default() };
        self.client.setattr(WAIT, ino, set).map(drop)
    }

    fn read(&self, ino: InodeId) -> Reply<Outcome> {
        let len = READ_BYTES as u64 * self.words.repeats;
        let bytes = self.client.read(WAIT, ino, 0, len as u32)?.concat();
        Ok(self.words.content(&bytes))
    }
}

/// The calls that look at everything on a mount.
pub fn look_at_all(call: &mut dyn FnMut(Op) -> Outcome) {
    let mut dirs = vec![Path::default()];
    while let Some(dir) = dirs.pop() {
        let Outcome::Names { listed } = call(Op::List { path: dir.clone() }) else { continue };
        for entry in listed {
            let Some(name) = entry.name.bytes().next() else { continue };
            let path = Path::new(&[dir.names(), &[name]].concat());
            call(Op::Lstat { path: path.clone() });
            match entry.kind {
                Some(Kind::Dir) => dirs.push(path),
                Some(Kind::File) => {
                    call(Op::Open { path, create: false, exclusive: false, append: false, slot: 0 });
                    call(Op::Read { slot: 0 });
                }
                _ => {}
            }
        }
    }
}

impl Drop for Syscalls {
    fn drop(&mut self) {
        for open in self.slots.iter().flatten() {
            self.client.forget(open.ino, 1);
        }
    }
}

fn open(held: &mut Held<'_>, path: &Path, create: bool, exclusive: bool) -> Reply<InodeId> {
    let (dir, name) = match path.split_last() {
        None => return Err(Errno::EISDIR.into()),
        Some(_) => held.parent(path)?,
    };
    loop {
        if let Some((ino, inode)) = held.lookup(dir, name)? {
            return match inode.kind {
                _ if create && exclusive => Err(Errno::EEXIST.into()),
                FileKind::Directory => Err(Errno::EISDIR.into()),
                FileKind::Symlink => Err(Errno::ELOOP.into()),
                _ => Ok(ino),
            };
        }
        if !create {
            return Err(Errno::ENOENT.into());
        }
        match held.client.create(WAIT, &CALLER, dir, &[name], FILE_MODE, 0) {
            Ok(made) => {
                held.inodes.push(made.ino);
                return Ok(made.ino);
            }
            // Another client created it in between.
            Err(Failure::Errno(Errno::EEXIST)) if !exclusive => {}
            Err(failure) => return Err(failure),
        }
    }
}

fn list(client: &Client, dir: InodeId) -> Reply<Outcome> {
    let mut listed = Vec::new();
    let mut after = Cookie::START;
    loop {
        let mut last = after;
        let ended = client.readdir(WAIT, dir, after, false, &mut |name, dentry, _| {
            last = name.cookie();
            let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
            listed.push(Listed { name, kind: kind(dentry.kind), ino: dentry.ino.0 });
            ControlFlow::Continue(())
        })?;
        if ended {
            return Ok(Outcome::Names { listed });
        }
        after = last;
    }
}
