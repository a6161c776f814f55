//! The client's state, as a pure state machine: the cache of the namespace, the journal of uncommitted
//! operations, and blocks that are not durable yet. No clock, no I/O, no threads, no locks.
//!
//! **Assumes** that calls are made one at a time, under the session's lock, and that servers recall what is
//! cached before another client changes it.
//!
//! **Promises.** A call answers from this state, or returns the [`Need`] that keeps it from answering. The
//! session fetches that, installs it, and runs the call again. A call that returns a need has carried out and
//! recorded nothing.

mod attrs;
mod blocks;
mod cache;
mod change;
mod content;
mod directory;
mod estale;
mod few;
#[cfg(test)]
mod fixture;
mod inherit;
mod install;
mod journal;
mod names;
mod ranges;
mod recall;
mod references;
mod retry_reservations;
mod rights;
mod seek;
mod walks;
mod writers;

pub(crate) use blocks::{BlockTask, Blocks};
pub(crate) use cache::Cache;
pub(crate) use content::Piece;
pub(crate) use install::Ticket;
pub(crate) use journal::{Journal, Sealed};
pub(crate) use names::name;
pub(crate) use walks::{WalkPrefetch, Walks};

use crate::limits::{BATCH_BLOCK_BYTES_MAX, BATCH_BYTES_TARGET, UNCOMMITTED_BYTES_MAX};
use inherit::Unreported;
use references::References;
pub use references::Referred;
use retry_reservations::Retries;
pub(crate) use retry_reservations::UNKNOWN_THREAD;
use rights::Rights;
use rustc_hash::FxHashMap;
use shoal_namespace::{Dentry, Fault, Op, ops};
use shoal_types::{BatchSeq, Errno, InodeId, Name, Policies, Policy, SessionId};
use shoal_wire::Want;
use std::convert::Infallible;
use std::ops::Range;
use writers::Writers;

/// The reason why a call cannot be answered yet: a cache miss, a missing right, or no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The record of an inode.
    Inode(InodeId),
    /// The dentry of a name in a directory.
    Name(InodeId, Name),
    /// All names of a directory, with attributes.
    Directory {
        /// The directory.
        dir: InodeId,
        /// Whether to include the contents of small files.
        contents: bool,
    },
    /// A file's extents from an offset on.
    Extents(InodeId, u64),
    /// More inode numbers.
    Inodes,
    /// More granted room on the volume, in bytes.
    Room(u64),
    /// Commits: the window of uncommitted bytes is full.
    Window,
    /// The right to make all of these changes.
    Rights(Vec<Want>),
    /// The end of all waits, by threads of this mount, for the right to change names in these directories.
    LocalWaiters(Vec<InodeId>),
    /// The end of the recall of the right to change this file.
    RecallDone(InodeId),
}

/// Outcome of a call into the core.
pub(crate) type Outcome<T> = Result<T, Fault<Need>>;

/// The client's state.
pub(crate) struct Core {
    pub(crate) cache: Cache,
    pub(crate) journal: Journal,
    pub(crate) blocks: Blocks,
    /// Bytes of granted room that are left.
    pub(crate) room: u64,
    /// Granted inode numbers that are left.
    pub(crate) inodes: Range<u64>,
    /// Content up to this size is kept inline.
    pub(crate) inline_bytes: u64,
    pub(crate) rights: Rights,
    /// Directory trees that programs are reading, for prefetch.
    pub(crate) walks: Walks,
    /// Whether they are recognised, and their next directories prefetched.
    pub(crate) follows_walks: bool,
    refs: References,
    /// Losses that calls on the root have yet to report.
    root_unreported: Unreported,
    /// Names that another client has changed since the kernel last looked them up, each with its dentry
    /// before the change, if that is known. In the dcache such a name may still lead to another directory: a
    /// local rmdir or rename would mark that one dead (`S_DEAD`).
    outdated_dentries: FxHashMap<(InodeId, Name), Option<Option<Dentry>>>,
    pub(crate) retries: Retries,
    pub(crate) writers: Writers,
    /// Bytes that may be uncommitted; beyond it writers wait.
    window_bytes: u64,
    /// The error of all later calls: set once an acknowledged change was lost or the session has ended.
    dead: Option<Errno>,
}

impl Core {
    pub(crate) fn new(session: SessionId, inline_bytes: u32, cache_bytes: usize) -> Core {
        Core {
            cache: Cache::new(cache_bytes),
            journal: Journal::new(),
            blocks: Blocks::new(session),
            room: 0,
            inodes: 0..0,
            inline_bytes: u64::from(inline_bytes),
            rights: Rights::default(),
            walks: Walks::default(),
            follows_walks: true,
            refs: References::default(),
            root_unreported: Unreported::default(),
            outdated_dentries: FxHashMap::default(),
            retries: Retries::default(),
            writers: Writers::default(),
            window_bytes: UNCOMMITTED_BYTES_MAX,
            dead: None,
        }
    }

    /// What the cache may take, and what may be uncommitted, from now on, in bytes.
    pub(crate) fn limit_memory(&mut self, cache_bytes: usize, window_bytes: u64) {
        self.cache.set_bytes_max(cache_bytes);
        self.window_bytes = window_bytes.min(UNCOMMITTED_BYTES_MAX);
    }

    /// Bytes that may be uncommitted; beyond it writers wait.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// Memory of what is not committed, in bytes. Operations exist twice: here, and as they were sent.
    pub(crate) fn unwritten_memory(&self) -> u64 {
        2 * self.journal.uncommitted_bytes() + self.blocks.bytes()
    }

    /// Evicts what is above the cache's limit, and gives back memory that is not needed any more.
    pub(crate) fn release_idle(&mut self) {
        self.begin();
        self.cache.shrink_tables();
    }

    /// Prepares a call: discards the needs of the last one, and evicts from a full cache.
    pub(crate) fn begin(&mut self) {
        self.rights.missing.clear();
        if self.cache.is_full() {
            self.make_room_of_walks();
        }
        self.cache.evict();
    }

    /// Fails if the session has ended.
    pub(crate) fn alive(&self) -> Result<(), Errno> {
        self.dead.map_or(Ok(()), Err)
    }

    /// Ends the session: later calls fail with this error.
    pub(crate) fn kill(&mut self, errno: Errno) {
        self.dead.get_or_insert(errno);
    }

    /// The session whose state this is.
    pub(crate) fn session(&self) -> SessionId {
        self.blocks.session()
    }

    /// Bytes that were acknowledged to callers and are not committed.
    pub(crate) fn uncommitted_bytes(&self) -> u64 {
        self.journal.uncommitted_bytes() + self.blocks.bytes()
    }

    /// Checks that the session is alive, the window is not full, and the granted room suffices.
    pub(crate) fn admit(&mut self, room: u64) -> Outcome<()> {
        self.alive()?;
        if self.uncommitted_bytes() > self.window_bytes {
            return Err(Fault::Tree(Need::Window));
        }
        if self.room < room {
            return Err(Fault::Tree(Need::Room(room)));
        }
        Ok(())
    }

    /// Carries out an operation on the cache and records it. `subjects` are the inodes it is about, `parents`
    /// the directories whose names it changes; `room` must have been admitted.
    fn execute(&mut self, op: Op, subjects: &[InodeId], parents: &[InodeId], room: u64) -> Outcome<()> {
        self.execute_by(UNKNOWN_THREAD, op, subjects, parents, room)
    }

    /// Carries out an operation for the thread `by`. It may fail with `ESTALE`, or be the retry of an
    /// operation that failed so.
    fn execute_by(
        &mut self,
        by: u32,
        op: Op,
        subjects: &[InodeId],
        parents: &[InodeId],
        room: u64,
    ) -> Outcome<()> {
        self.may_do(&op, subjects)?;
        self.check_dentries(by, &op, subjects)?;
        let before = self.covers_before(&op, subjects);
        ops::apply(&mut self.cache, &op)?;
        self.done(&op, subjects, parents, &before);
        self.has_named(&op, subjects);
        parents.iter().for_each(|dir| self.refs.name_in(*dir));
        if let Op::Write { ino, time, .. } = &op {
            self.writers.has_written(*ino, *time);
        }
        self.room -= room;
        self.journal.record(op, subjects, parents, room, &mut self.cache, &mut self.blocks);
        if self.journal.open_bytes() >= BATCH_BYTES_TARGET
            || self.blocks.batch_bytes() >= BATCH_BLOCK_BYTES_MAX
        {
            self.seal();
        }
        Ok(())
    }

    /// Seals the open batch, and returns the last sealed one. Every recorded operation is in it or before it.
    pub(crate) fn seal(&mut self) -> BatchSeq {
        self.journal.seal(&mut self.cache, &mut self.blocks, self.inline_bytes);
        self.journal.last_sealed()
    }

    /// A batch and all before it are durable and applied.
    pub(crate) fn committed(&mut self, seq: BatchSeq) {
        self.journal.committed(seq);
        self.cache.set_acked(seq);
        self.rights.committed(seq);
    }

    /// The kernel has gained a reference to the inode.
    pub(crate) fn refer(&mut self, ino: InodeId) {
        let cover = self.cache.cover(ino).unwrap_or(ino);
        self.refs.add(ino, cover);
    }

    /// Whether the kernel refers to the inode.
    pub(crate) fn referred(&self, ino: InodeId) -> bool {
        self.refs.contains(ino)
    }

    /// How many inodes the kernel refers to.
    pub(crate) fn referred_count(&self) -> Referred {
        self.refs.referred()
    }

    /// The `count` inodes that the kernel has referred to for longest. The next call returns the next ones.
    pub(crate) fn oldest_referred(&mut self, count: usize) -> Vec<InodeId> {
        self.refs.oldest(count)
    }

    /// The kernel has dropped `count` references. An unlinked file without references is deleted.
    pub(crate) fn forget(&mut self, ino: InodeId, count: u64) {
        let Some(cover) = self.refs.remove(ino, count) else { return };
        self.writers.forget(ino);
        if self.rights.held.remove(&ino) && self.dead.is_none() {
            self.journal_release(ino);
        }
        self.cover_unreferenced(cover);
    }

    /// Records that this session no longer holds the inode. An orphan is deleted; if it was also created in
    /// the open batch, none of its operations is sent.
    fn journal_release(&mut self, ino: InodeId) {
        let op = Op::Forget { ino };
        let dies = self.cache.is_unlinked(ino) && ops::apply(&mut self.cache, &op).is_ok();
        self.journal.record_forget(op, ino, dies, &mut self.blocks);
        let batch = self.cache.stamp();
        self.rights.released_holds.insert(ino, batch);
        // An inode that still has names is not deleted.
        if dies {
            self.inode_deleted(ino);
        }
    }

    /// The policy of a file, as far as the directories above it are cached.
    pub(crate) fn policy_of(&self, ino: InodeId, policies: &Policies) -> Policy {
        let parent = |at| Ok::<_, Infallible>(self.cache.peek(at).map(|node| node.inode.parent));
        policies.of(ino, parent).unwrap_or_default()
    }

    /// The number for a new inode.
    fn next_inode(&mut self) -> Outcome<InodeId> {
        if self.inodes.is_empty() { Err(Fault::Tree(Need::Inodes)) } else { Ok(InodeId(self.inodes.start)) }
    }
}
