//! A state of the model's tree, with the few ways to read and change it.

use super::Errno;
use crate::ops::{Name, Word};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// An inode, by the number of the call that made it: the same thing has the same id in whatever order calls
/// took place.
pub type Id = u32;

/// The root of the tree.
pub const ROOT: Id = 0;

/// How deep a state is printed: no call names a deeper path.
const SHOWN_DEPTH: usize = 3;

/// What an inode is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// Names, and the directory it is in.
    Dir {
        /// What it holds.
        names: BTreeMap<Name, Id>,
        /// Where it is, or was.
        parent: Id,
    },
    /// Content.
    File(Vec<Word>),
    /// Target.
    Symlink(Word),
}

/// One inode.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Inode {
    /// The kind, with its content.
    pub body: Body,
    /// Names that lead to it. A directory has one, or none once it is removed.
    pub names: u32,
    /// Its number, once a call has shown it.
    pub ino: Option<u64>,
}

/// An open file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Handle {
    /// The inode.
    pub id: Id,
    /// Opened with `O_APPEND`.
    pub append: bool,
}

/// A state. Cheap to copy: inodes are shared between copies. Cheap to hash: only what changes is hashed
/// again.
#[derive(Clone, PartialEq, Eq)]
pub struct State {
    /// The hash of all inodes, whatever their order.
    hash: u64,
    /// Sorted by id.
    inodes: Vec<(Id, Arc<Inode>)>,
    /// Sorted by worker and slot.
    handles: Vec<((u32, u8), Handle)>,
}

impl Default for State {
    fn default() -> Self {
        let root = Inode { body: Body::Dir { names: BTreeMap::new(), parent: ROOT }, names: 1, ino: None };
        let mut state = Self { hash: 0, inodes: Vec::new(), handles: Vec::new() };
        state.put(ROOT, root);
        state
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.hash.hash(hasher);
        self.handles.hash(hasher);
    }
}

fn hash_of(id: Id, inode: &Inode) -> u64 {
    let mut hasher = DefaultHasher::new();
    (id, inode).hash(&mut hasher);
    hasher.finish()
}

impl State {
    /// The inode, unless it is gone for good.
    pub fn inode(&self, id: Id) -> Option<&Inode> {
        self.inodes.binary_search_by_key(&id, |inode| inode.0).ok().map(|at| self.inodes[at].1.as_ref())
    }

    /// The names in a directory, or the error of walking through another kind of inode.
    pub fn names(&self, dir: Id) -> Result<&BTreeMap<Name, Id>, Errno> {
        match self.inode(dir).map(|inode| &inode.body) {
            Some(Body::Dir { names, .. }) => Ok(names),
            Some(Body::File(_)) => Err(libc::ENOTDIR),
            Some(Body::Symlink(_)) | None => Err(libc::ENOENT),
        }
    }

    /// What a name in a directory leads to.
    pub fn lookup(&self, dir: Id, name: Name) -> Result<Option<Id>, Errno> {
        Ok(self.names(dir)?.get(&name).copied())
    }

    /// Whether it is a directory.
    pub fn is_dir(&self, id: Id) -> bool {
        self.names(id).is_ok()
    }

    /// The directory that a directory is in.
    pub fn parent(&self, dir: Id) -> Option<Id> {
        match self.inode(dir)?.body {
            Body::Dir { parent, .. } => Some(parent),
            _ => None,
        }
    }

    /// Whether `dir` is `below` or holds it at any depth.
    pub fn holds(&self, dir: Id, below: Id) -> bool {
        let mut at = below;
        // A removed directory has a parent that may be gone; the tree itself ends at the root.
        loop {
            if at == dir {
                return true;
            }
            match self.parent(at) {
                Some(parent) if parent != at => at = parent,
                _ => return false,
            }
        }
    }

    /// What `stat` calls the number of links, as ext4 counts it.
    pub fn links(&self, id: Id) -> u64 {
        match self.inode(id) {
            Some(Inode { body: Body::Dir { names, .. }, names: 1.., .. }) => {
                2 + names.values().filter(|id| self.is_dir(**id)).count() as u64
            }
            Some(inode) => inode.names.into(),
            None => 0,
        }
    }

    /// What a worker's slot holds.
    pub fn handle(&self, worker: u32, slot: u8) -> Option<Handle> {
        let at = self.handles.binary_search_by_key(&(worker, slot), |handle| handle.0).ok()?;
        Some(self.handles[at].1)
    }

    /// Puts an open file into a slot.
    pub fn hold(&mut self, worker: u32, slot: u8, handle: Handle) {
        match self.handles.binary_search_by_key(&(worker, slot), |handle| handle.0) {
            Ok(at) => self.handles[at].1 = handle,
            Err(at) => self.handles.insert(at, ((worker, slot), handle)),
        }
    }

    /// Adds an inode that has one name already or gets it at once.
    pub fn add(&mut self, id: Id, body: Body, ino: Option<u64>) {
        self.put(id, Inode { body, names: 1, ino });
    }

    fn put(&mut self, id: Id, inode: Inode) {
        self.hash ^= hash_of(id, &inode);
        match self.inodes.binary_search_by_key(&id, |inode| inode.0) {
            Ok(at) => {
                self.hash ^= hash_of(id, &self.inodes[at].1);
                self.inodes[at].1 = Arc::new(inode);
            }
            Err(at) => self.inodes.insert(at, (id, Arc::new(inode))),
        }
    }

    /// Changes an inode; nothing if it is gone.
    pub fn alter<T>(&mut self, id: Id, change: impl FnOnce(&mut Inode) -> T) -> Option<T> {
        let at = self.inodes.binary_search_by_key(&id, |inode| inode.0).ok()?;
        let inode = &mut self.inodes[at].1;
        self.hash ^= hash_of(id, inode);
        let changed = change(Arc::make_mut(inode));
        self.hash ^= hash_of(id, inode);
        Some(changed)
    }

    /// Lets a name lead to an inode, or to nothing. Link counts stay as they are.
    pub fn set_name(&mut self, dir: Id, name: Name, to: Option<Id>) {
        self.alter(dir, |inode| {
            if let Body::Dir { names, .. } = &mut inode.body {
                match to {
                    Some(id) => names.insert(name, id),
                    None => names.remove(&name),
                };
            }
        });
        if let Some(moved) = to.filter(|id| self.parent(*id).is_some_and(|parent| parent != dir)) {
            self.alter(moved, |inode| {
                if let Body::Dir { parent, .. } = &mut inode.body {
                    *parent = dir;
                }
            });
        }
    }

    /// Forgets removed inodes that no slot holds and `keep` does not name.
    pub fn forget(&mut self, keep: &BTreeSet<Id>) {
        let handles = &self.handles;
        let held = |id: Id| handles.iter().any(|(_, handle)| handle.id == id);
        let hash = &mut self.hash;
        self.inodes.retain(|(id, inode)| {
            let stays = inode.names > 0 || keep.contains(id) || held(*id);
            if !stays {
                *hash ^= hash_of(*id, inode);
            }
            stays
        });
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, dir: Id, depth: usize) -> fmt::Result {
        let Ok(names) = self.names(dir) else { return Ok(()) };
        if depth == 0 && !names.is_empty() {
            return f.write_str("{..}");
        }
        f.write_str("{")?;
        for (at, (name, id)) in names.iter().enumerate() {
            write!(f, "{}{}: ", if at == 0 { "" } else { ", " }, char::from(*name))?;
            self.show_inode(f, *id, depth - 1)?;
        }
        f.write_str("}")
    }

    fn show_inode(&self, f: &mut fmt::Formatter<'_>, id: Id, depth: usize) -> fmt::Result {
        let Some(inode) = self.inode(id) else { return f.write_str("gone") };
        if let Some(ino) = inode.ino {
            write!(f, "{ino} ")?;
        }
        match &inode.body {
            Body::Dir { .. } => self.show(f, id, depth),
            Body::File(words) => write!(f, "{words:?}"),
            Body::Symlink(word) => write!(f, "-> {word}"),
        }?;
        match (&inode.body, inode.names) {
            (_, 0) => f.write_str(" (removed)"),
            (Body::Dir { .. }, _) | (_, 1) => Ok(()),
            (_, links) => write!(f, " ({links} links)"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f, ROOT, SHOWN_DEPTH)?;
        for ((worker, slot), handle) in &self.handles {
            write!(f, "\n      worker {worker} #{slot}: ")?;
            self.show_inode(f, handle.id, SHOWN_DEPTH)?;
        }
        Ok(())
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
