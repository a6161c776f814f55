//! What the model kernel has cached of one mount, and how replies and notifications change it. No waits here:
//! each method is one step of a kernel thread that does not sleep. The names are those of Linux.

use super::pages::Pages;
use shoal_channel::abi;
use std::collections::{BTreeMap, BTreeSet};

/// The root of the mount (`FUSE_ROOT_ID`).
pub const ROOT: u64 = 1;

/// Attributes that are invalid (`inval_mask`): the size,
pub const SIZE: u8 = 1;
/// the times and blocks,
pub const TIMES: u8 = 2;
/// and the others.
pub const OTHERS: u8 = 4;
/// All attributes.
pub const ALL: u8 = SIZE | TIMES | OTHERS;

/// A cached name of a directory: its node id and a letter.
pub type Slot = (u64, u8);

/// A cached listing (`fi->rdc`).
#[derive(Default)]
pub struct Listing {
    /// Names with the offset after each, inode number and type.
    pub names: Vec<(u64, u8, u64, u32)>,
    /// It is complete.
    pub cached: bool,
    /// Its pages were invalidated.
    pub is_lost: bool,
    /// The directory's time of change when the listing began.
    pub mtime: (u64, u32),
    /// The directory's version when the listing began.
    pub iversion: u64,
}

/// An inode.
#[derive(Default)]
pub struct Inode {
    /// Tells inodes apart that had the same number.
    pub generation: u64,
    /// The attributes; `size` is `i_size`.
    pub attr: abi::Attr,
    /// References that FORGET gives back.
    pub nlookup: u64,
    /// Calls and open files that use it.
    pub pins: u32,
    /// Dentries that lead to it.
    pub dentries: u32,
    /// Dentries below it.
    pub children: u32,
    /// Invalid attributes.
    pub invalid: u8,
    /// The attributes were not to be cached (`i_time`).
    pub expired: bool,
    /// The version of the attributes.
    pub attr_version: u64,
    /// A write beyond the end or a truncate is in flight (`FUSE_I_SIZE_UNSTABLE`).
    pub size_unstable: bool,
    /// No `security.capability` (`S_NOSEC`).
    pub nosec: bool,
    /// The directory was removed (`S_DEAD`).
    pub dead: bool,
    /// The page cache.
    pub pages: Pages,
    /// The cached listing of a directory.
    pub listing: Option<Listing>,
    /// The version of a directory's names.
    pub iversion: u64,
    /// The inode lock: -1 exclusive, otherwise the number of holders.
    pub lock: i32,
    /// The one dentry of a directory, which may be unhashed.
    pub place: Option<Slot>,
}

impl Inode {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.attr.mode & libc::S_IFMT == libc::S_IFDIR
    }

    /// Whether it is a regular file.
    pub fn is_regular(&self) -> bool {
        self.attr.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// A dentry.
#[derive(Clone, Copy, Debug)]
pub struct Dentry {
    /// The inode; `None` is a negative dentry.
    pub node: Option<u64>,
    /// The epoch with which it was stamped (`d_time`).
    pub epoch: u64,
    /// It was not to be cached.
    pub expired: bool,
}

/// The call that a thread is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// It reads this inode.
    Reads(u64),
    /// It writes to an open file.
    Writes {
        /// The file was opened with `O_APPEND`.
        appends: bool,
    },
    /// lseek(2).
    Seeks,
}

/// A thread.
#[derive(Default, Debug)]
pub struct Thread {
    /// It was answered and has not run since.
    pub unconsumed: bool,
    /// How often it has run.
    pub turns: u64,
    /// Its call.
    pub call: Option<Call>,
}

/// The caches of one mount.
#[derive(Default)]
pub struct State {
    /// Inodes by node id.
    pub inodes: BTreeMap<u64, Inode>,
    /// The dcache.
    pub dentries: BTreeMap<Slot, Dentry>,
    /// `fc->epoch`.
    pub epoch: u64,
    /// `fc->attr_version`.
    pub attr_version: u64,
    /// `fc->evict_ctr`.
    pub evict_ctr: u64,
    /// The rename lock of the file system.
    pub rename_locked: bool,
    /// Names that are being looked up (`d_in_lookup`).
    pub in_lookup: BTreeSet<Slot>,
    /// References to be given back.
    pub forgets: Vec<(u64, u64)>,
    /// All threads, by id.
    pub threads: BTreeMap<u32, Thread>,
    /// Threads of the mount process that wait in a notification.
    pub blocked: BTreeSet<u32>,
    /// The mount has ended.
    pub ended: bool,
}

impl State {
    /// A new mount.
    pub fn new() -> State {
        let attr = abi::Attr { ino: ROOT, mode: libc::S_IFDIR | 0o755, nlink: 2, ..Default::default() };
        let root = Inode { attr, invalid: ALL, pins: 1, nlookup: 1, ..Default::default() };
        State {
            inodes: BTreeMap::from([(ROOT, root)]),
            epoch: 1,
            attr_version: 1,
            evict_ctr: 1,
            ..State::default()
        }
    }

    /// An inode that the caller has pinned.
    pub fn inode(&mut self, node: u64) -> &mut Inode {
        self.inodes.entry(node).or_default()
    }

    /// The next version of attributes.
    pub fn bump(&mut self, node: u64) {
        self.attr_version += 1;
        let version = self.attr_version;
        self.inode(node).attr_version = version;
    }

    // --- inodes ---

    /// `iput`: evicts an inode that is not in use.
    pub fn put(&mut self, node: u64) {
        let Some(inode) = self.inodes.get(&node) else { return };
        if node == ROOT || inode.pins > 0 || inode.dentries > 0 || inode.children > 0 {
            return;
        }
        let place = inode.place;
        self.forgets.push((node, inode.nlookup));
        self.evict_ctr += 1;
        self.inodes.remove(&node);
        if let Some((parent, _)) = place {
            self.has_child_less(parent);
        }
    }

    fn has_child_less(&mut self, dir: u64) {
        self.inode(dir).children -= 1;
        self.put(dir);
    }

    /// `fuse_iget`. Returns false if the node id has another inode by now.
    pub fn iget(&mut self, entry: &abi::EntryOut, attr_version: u64, evict_ctr: u64) -> bool {
        let node = entry.nodeid;
        let known = self.inodes.get(&node).map(|inode| (inode.generation, inode.attr.mode));
        let format = libc::S_IFMT;
        if let Some((generation, mode)) = known
            && node != ROOT
            && (generation != entry.generation || mode & format != entry.attr.mode & format)
        {
            return false;
        }
        let inode = self.inode(node);
        if known.is_none() {
            (inode.generation, inode.attr, inode.invalid) = (entry.generation, entry.attr, ALL);
        }
        inode.nlookup += 1;
        self.change_attributes(
            node,
            &entry.attr,
            is_kept(entry.attr_valid, entry.attr_valid_nsec),
            attr_version,
            evict_ctr,
        );
        true
    }

    /// `fuse_change_attributes`: ignored if the attributes were touched after the request.
    pub fn change_attributes(
        &mut self,
        node: u64,
        attr: &abi::Attr,
        kept: bool,
        attr_version: u64,
        evict_ctr: u64,
    ) {
        let inode = self.inode(node);
        if inode.size_unstable || (attr_version != 0 && inode.attr_version > attr_version) {
            return;
        }
        self.accept_attributes(node, attr, kept, evict_ctr);
    }

    /// `fuse_change_attributes_common`, and the new size.
    pub fn accept_attributes(&mut self, node: u64, attr: &abi::Attr, kept: bool, evict_ctr: u64) {
        let raced = evict_ctr != 0 && evict_ctr != self.evict_ctr;
        let inode = self.inode(node);
        if !raced || inode.attr_version != 0 {
            inode.invalid = 0;
        }
        let before = inode.attr.size;
        (inode.attr, inode.expired, inode.nosec) = (*attr, !kept, false);
        if inode.is_regular() && before != attr.size {
            inode.pages.truncate(attr.size);
        }
        self.bump(node);
    }

    /// `fuse_read_update_size`: a short read shows the end of the file.
    pub fn read_update_size(&mut self, node: u64, size: u64, attr_version: u64) {
        let inode = self.inode(node);
        if attr_version >= inode.attr_version && size < inode.attr.size && !inode.size_unstable {
            inode.attr.size = size;
            self.bump(node);
        }
    }

    /// `fuse_dir_changed`.
    pub fn dir_changed(&mut self, dir: u64) {
        let inode = self.inode(dir);
        inode.invalid = ALL;
        inode.iversion += 1;
    }

    /// `fuse_entry_unlinked`.
    pub fn entry_unlinked(&mut self, node: u64) {
        let inode = self.inode(node);
        inode.attr.nlink = if inode.is_dir() { 0 } else { inode.attr.nlink.saturating_sub(1) };
        inode.invalid |= TIMES;
        self.bump(node);
    }

    // --- dentries ---

    /// The dentry, if it is hashed.
    pub fn dentry(&self, slot: Slot) -> Option<Dentry> {
        self.dentries.get(&slot).copied()
    }

    /// Removes a dentry without its inode (`d_drop`).
    pub fn d_drop(&mut self, slot: Slot) {
        let Some(dentry) = self.dentries.remove(&slot) else { return };
        let mut is_dir = false;
        if let Some(node) = dentry.node {
            let inode = self.inode(node);
            is_dir = inode.is_dir();
            inode.dentries -= 1;
            self.put(node);
        }
        // The dentry of a directory that is in use keeps its parent.
        if !is_dir {
            self.has_child_less(slot.0);
        }
    }

    /// `d_add`.
    pub fn d_add(&mut self, slot: Slot, dentry: Dentry) {
        self.d_drop(slot);
        self.inode(slot.0).children += 1;
        if let Some(node) = dentry.node {
            let inode = self.inode(node);
            inode.dentries += 1;
            if inode.is_dir()
                && let Some((parent, _)) = inode.place.replace(slot)
            {
                self.has_child_less(parent);
            }
        }
        self.dentries.insert(slot, dentry);
    }

    /// Removes unused dentries below a directory (`shrink_dcache_parent`).
    pub fn shrink(&mut self, dir: u64) {
        let below: Vec<(Slot, Dentry)> =
            self.dentries.range((dir, 0)..=(dir, u8::MAX)).map(|(slot, dentry)| (*slot, *dentry)).collect();
        for (slot, dentry) in below {
            if let Some(node) = dentry.node {
                self.shrink(node);
                if self.inodes.get(&node).is_some_and(|inode| inode.pins > 0 || inode.children > 0) {
                    continue;
                }
            }
            self.d_drop(slot);
        }
    }

    /// `d_invalidate`.
    pub fn d_invalidate(&mut self, slot: Slot) {
        let Some(dentry) = self.dentry(slot) else { return };
        let Some(node) = dentry.node else { return self.d_drop(slot) };
        self.inode(node).pins += 1;
        self.d_drop(slot);
        self.shrink(node);
        self.inode(node).pins -= 1;
        self.put(node);
    }

    /// Whether a directory is the same as another one, or above it.
    pub fn is_above(&self, node: u64, below: u64) -> bool {
        let mut at = below;
        loop {
            if at == node {
                return true;
            }
            match self.inodes.get(&at).and_then(|inode| inode.place) {
                Some((parent, _)) if at != ROOT => at = parent,
                _ => return false,
            }
        }
    }

    /// `d_splice_alias`: a directory has one dentry, which is moved if that needs no lock that is held.
    pub fn splice(&mut self, slot: Slot, dentry: Dentry) -> Result<(), i32> {
        let Some(node) = dentry.node else {
            self.d_add(slot, dentry);
            return Ok(());
        };
        let (is_dir, place) = (self.inode(node).is_dir(), self.inode(node).place);
        if is_dir && let Some(old) = place {
            if self.is_above(node, slot.0) {
                return Err(libc::ELOOP);
            }
            if old.0 != slot.0 {
                let is_locked = self.inodes.get(&old.0).is_some_and(|parent| parent.lock < 0);
                if self.rename_locked || is_locked {
                    return Err(libc::ESTALE);
                }
            }
            if self.dentry(old).is_some_and(|there| there.node == Some(node)) {
                self.inode(node).pins += 1;
                self.d_drop(old);
                self.inode(node).pins -= 1;
            }
        }
        self.d_add(slot, dentry);
        Ok(())
    }

    /// `d_move`, or `d_exchange`.
    pub fn d_move(&mut self, from: Slot, to: Slot, exchange: bool) {
        let (Some(moved), replaced) = (self.dentry(from), self.dentry(to)) else { return };
        let pinned: Vec<u64> = [Some(moved), replaced].iter().flatten().filter_map(|one| one.node).collect();
        pinned.iter().for_each(|node| self.inode(*node).pins += 1);
        self.d_drop(from);
        self.d_drop(to);
        self.d_add(to, moved);
        if exchange && let Some(replaced) = replaced {
            self.d_add(from, replaced);
        }
        for node in pinned {
            self.inode(node).pins -= 1;
            self.put(node);
        }
    }

    // --- notifications ---

    /// `INVAL_ENTRY`, with the lock of the directory. Whether the dcache had the name.
    pub fn inval_entry(&mut self, slot: Slot) -> bool {
        if self.dentry(slot).is_none() {
            return false;
        }
        self.dir_changed(slot.0);
        self.d_invalidate(slot);
        true
    }

    /// The first part of `INVAL_INODE`: attributes. The inode is pinned.
    pub fn inval_attributes(&mut self, node: u64) {
        self.bump(node);
        self.inode(node).invalid = ALL;
    }

    /// `fuse_try_prune_one_inode`.
    pub fn prune(&mut self, node: u64) {
        let Some(inode) = self.inodes.get(&node) else { return };
        if inode.pins > 0 || inode.children > 0 {
            return;
        }
        let its = |(_, dentry): &(&Slot, &Dentry)| dentry.node == Some(node);
        let slots: Vec<Slot> = self.dentries.iter().filter(its).map(|(slot, _)| *slot).collect();
        slots.into_iter().for_each(|slot| self.d_drop(slot));
    }
}

/// Whether a lifetime of a reply is not zero. Those of Shoal are zero or a year.
pub fn is_kept(secs: u64, nanos: u32) -> bool {
    secs > 0 || nanos > 0
}
