//! The cached names of a directory.

use crate::limits::CONTENDED_LOOKUPS_MAX;
use shoal_namespace::Dentry;
use shoal_types::{BatchSeq, Cookie, Name};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// No name sorts before this one.
static LOWEST: LazyLock<Name> = LazyLock::new(|| Name::try_from("\u{1}").expect("a valid name"));

/// A name, present or known to be absent.
#[derive(Clone, Debug)]
struct Slot {
    dentry: Option<Dentry>,
    /// The batch that changed it last.
    modified: BatchSeq,
}

/// The names of a directory as far as they are cached, in the order of listings.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    slots: BTreeMap<(Cookie, Name), Slot>,
    /// All names are in `slots`: what is not there does not exist.
    complete: bool,
    /// Some inodes of these names were evicted, so READDIRPLUS has to fetch the listing again.
    pub(crate) lacks_inodes: bool,
    /// The contents of files whose names come after this were not fetched with the listing; `None`: all were.
    pub(crate) contents_after: Option<Cookie>,
    /// Number of files whose content has been fetched singly since.
    pub(super) single_fetches: u32,
    /// Another client has changed names since all were cached.
    contended: bool,
    /// Number of names that have been looked up singly since another client changed names.
    single_lookups: u32,
    /// Changes when names are invalidated: a listing fetched in several pages is complete only if it did not.
    pub(crate) version: u64,
}

/// Rough size of a slot in memory, in bytes.
pub(crate) const SLOT_BYTES: usize = 120;

impl Directory {
    /// A directory that was just created: known to be empty.
    pub(crate) fn born() -> Directory {
        Directory { complete: true, ..Directory::default() }
    }

    /// Whether no name is cached.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Invalidates names, and the knowledge that all are cached. Returns by how many bytes this grew.
    pub(crate) fn forget(&mut self, names: &[Name], version: u64) -> isize {
        (self.complete, self.contended, self.version, self.single_lookups) = (false, true, version, 0);
        let mut known = |name: &&Name| self.slots.remove(&(name.cookie(), (*name).clone())).is_some();
        -((names.iter().filter(|name| known(name)).count() * SLOT_BYTES) as isize)
    }

    /// Evicts all names. Returns by how many bytes this grew.
    pub(crate) fn forget_all(&mut self, version: u64) -> isize {
        let bytes = self.bytes() as isize;
        *self = Directory { version, ..Directory::default() };
        -bytes
    }

    /// Whether to look up an unknown name singly, because another client changes names here. Counts the
    /// lookup.
    pub(super) fn look_up_singly(&mut self) -> bool {
        let alone = self.contended && self.single_lookups < CONTENDED_LOOKUPS_MAX;
        self.single_lookups += u32::from(alone);
        alone
    }

    /// Whether every name is known.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// `Some` if it is known whether the name exists.
    pub(crate) fn get(&self, name: &Name) -> Option<Option<Dentry>> {
        match self.slots.get(&(name.cookie(), name.clone())) {
            Some(slot) => Some(slot.dentry),
            None if self.complete => Some(None),
            None => None,
        }
    }

    /// Sets or removes a name. Returns by how many bytes this grew.
    pub(crate) fn set(&mut self, name: &Name, dentry: Option<Dentry>, modified: BatchSeq) -> isize {
        let key = (name.cookie(), name.clone());
        if dentry.is_none() && self.complete {
            return match self.slots.remove(&key) {
                Some(_) => -(SLOT_BYTES as isize),
                None => 0,
            };
        }
        match self.slots.insert(key, Slot { dentry, modified }) {
            Some(_) => 0,
            None => SLOT_BYTES as isize,
        }
    }

    /// Installs a name from a server that had everything up to `acked`, unless it was changed here later.
    /// Returns by how many bytes this grew.
    pub(crate) fn install(&mut self, name: &Name, dentry: Option<Dentry>, acked: BatchSeq) -> isize {
        let key = (name.cookie(), name.clone());
        match self.slots.get_mut(&key) {
            Some(slot) if slot.modified > acked => 0,
            Some(slot) => {
                slot.dentry = dentry;
                0
            }
            None => {
                self.slots.insert(key, Slot { dentry, modified: BatchSeq(0) });
                SLOT_BYTES as isize
            }
        }
    }

    /// All names have been installed: a missing one does not exist. Returns by how many bytes this grew.
    pub(crate) fn set_complete(&mut self) -> isize {
        (self.complete, self.contended) = (true, false);
        let before = self.slots.len();
        self.slots.retain(|_, slot| slot.dentry.is_some());
        -(((before - self.slots.len()) * SLOT_BYTES) as isize)
    }

    /// Names that exist, after a cookie, in order.
    pub(crate) fn after(&self, cookie: Cookie) -> impl Iterator<Item = (&Name, Dentry)> {
        // All names of a cookie are listed together, so the next page begins with the next cookie.
        let from = (Cookie(cookie.0.saturating_add(1)), LOWEST.clone());
        self.slots.range(from..).filter_map(|((_, name), slot)| Some((name, slot.dentry?)))
    }

    /// Rough size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES
    }
}
