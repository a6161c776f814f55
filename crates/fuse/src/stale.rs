//! Makes the kernel drop what other clients change.
//!
//! **Model.** The kernel keeps names, attributes, listings and content without asking, and is told when one of them is no
//! longer right: [`KernelCache`]. It drops a name under the directory's lock, and a page when nobody reads or writes it. A
//! local change holds such a lock while its request waits with us, perhaps for a server, which perhaps waits for this
//! very name to be dropped. So nobody may simply wait for the kernel:
//! - Changes that wait are known here ([`Dropper::under_way`]), with what they hold.
//! - *Names* in a directory that is held are dropped by outdating all names there are, which takes no lock. The same if
//!   a directory turns out to be locked for longer than [`NAME_PATIENCE`](limits::NAME_PATIENCE) by whatever else.
//! - *Pages* that a waiting write may hold are dropped by themselves, so that they hold up no others, and nobody waits for
//!   them: they are locked, so nobody reads them, and the kernel fills them anew. (Unless they are locked because they are being filled.) Others of the write's pages are dropped
//!   under it; whoever then reads them before the write is carried out puts them into the cache as they were. Therefore a
//!   write's pages are dropped once more when it has been carried out and before it is answered.
//! - Pages that a program has *changed through a mapping*, and that the kernel cannot write back before the waiting change is over, are not waited for either: see
//!   `stuck`.
//! - A write to pages that the kernel has is shown to everybody here before we hear of it. So the kernel asks before, and writes only while nobody else can come
//!   in between (see `ask`). Where that is not so (it does not ask when it writes back what was changed through a mapping, for one), and the write has to wait, its pages
//!   are dropped, so that until it is carried out they show what was there before.
//!
//! Notifications are sent by threads of their own, which may block, and which nothing else depends on: not even the end of a
//! process that is killed. Whoever wants things dropped waits as long as he must.
//!
//! **Assumes.** Linux 6.16 or newer for outdating names. An older kernel is told to keep no names at all (see `kernel`), so
//! that there is nothing to drop.
//!
//! **Promises.** When [`KernelCache::forget`] returns, nothing of it is answered from the kernel's cache, even by an answer of
//! ours that was on its way. It returns in bounded time: at once when the mount has ended, and with an error in the log
//! when the kernel has not moved for [`KERNEL_WAIT_MAX`](limits::KERNEL_WAIT_MAX).
//!
//! **What remains.** A process in a directory whose name was outdated is not disturbed, but a local mount or bind mount below
//! such a name is detached when the name is looked up again.

mod append;
mod ask;
mod asked;
mod askers;
mod attributes;
mod empty;
mod mapped;
mod named;
pub(crate) mod notify;
mod pages;
mod prune;
mod settle;
mod size;
mod state;
mod stuck;

pub(crate) use askers::Asking;
pub(crate) use attributes::AttributesAsked;
pub(crate) use named::naming;
pub(crate) use pages::Write;

use crate::answer;
use crate::busy::Busy;
use crate::limits::{
    ARRIVAL_LOOK_EVERY, ARRIVAL_WAIT, ATTRIBUTES_LOOK_EVERY, BLOCKED_AFTER, DROPS_AT_ONCE_MAX,
    KERNEL_WAIT_MAX, NOTIFIER_IDLE_MAX, NOTIFIERS, NOTIFIERS_MAX, WAITING_WRITE_BYTES_MAX,
};
use crate::near;
use crate::nodes::Nodes;
use crate::stopped::{Deadline, Watch};
use asked::Waiting;
use askers::Askers;
use named::Named;
use notify::{Dropped, Notifications};
use pages::Pages;
use parking_lot::{Condvar, Mutex, MutexGuard};
use settle::Settling;
use shoal_client::{Client, KernelCache, Stale};
use shoal_types::{Errno, FileKind, Inode, InodeId};
use size::{Looks, Place};
use state::{Notice, State, Step};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// What the kernel was made to drop.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Drops {
    /// Names, one by one.
    pub names: u64,
    /// Inodes, or parts of their content.
    pub nodes: u64,
    /// Times that all names were outdated, because a local change was in the way.
    pub epochs: u64,
    /// Inodes that the kernel was told to forget if they are not in use, because it referred to more than the
    /// mount's bound.
    pub pruned: u64,
}

#[derive(Default)]
struct Counts {
    names: AtomicU64,
    nodes: AtomicU64,
    epochs: AtomicU64,
    pruned: AtomicU64,
}

/// The kernel locks that a request holds while it is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holds {
    /// None that a notification waits for.
    Nothing,
    /// A directory, or something else that is known by a number.
    Dir(InodeId),
    /// Directories in which a thread changes names, perhaps the same twice.
    Names { dirs: [InodeId; 2], by: u32 },
    /// Pages of a file.
    Pages(Write),
}

impl Holds {
    /// A thread changes names in a directory.
    pub(crate) fn names(dir: InodeId, by: u32) -> Holds {
        Holds::Names { dirs: [dir, dir], by }
    }

    /// A thread looks at a name, perhaps because it is about to change names in these directories.
    pub(crate) fn of_looks(by: u32, dirs: &Option<Vec<InodeId>>) -> Holds {
        match dirs.as_deref() {
            Some([dir]) => Holds::names(*dir, by),
            Some([one, other]) => Holds::Names { dirs: [*one, *other], by },
            _ => Holds::Nothing,
        }
    }
}

/// See the module.
pub(crate) struct Dropper {
    me: Weak<Dropper>,
    client: Weak<Client>,
    nodes: Arc<Nodes>,
    /// The way to the kernel, once there is one.
    kernel: OnceLock<Notifications>,
    /// Where the mount is, once programs can use it.
    place: OnceLock<Place>,
    looks: Looks,
    settling: Settling,
    deadline: Deadline,
    named: Named,
    /// The same of listings with inodes.
    listed: Named,
    askers: Askers,
    busy: Busy,
    /// Anything was ever dropped.
    drops_at_all: AtomicBool,
    /// How often there was nothing to drop.
    skips: AtomicU64,
    state: Mutex<State>,
    /// There is something to do for a thread.
    work: Condvar,
    /// Something was done, or came in the way.
    news: Condvar,
    counts: Counts,
}

impl Dropper {
    pub(crate) fn new(client: &Arc<Client>, nodes: &Arc<Nodes>) -> Arc<Dropper> {
        Arc::new_cyclic(|me| Dropper {
            me: me.clone(),
            client: Arc::downgrade(client),
            nodes: nodes.clone(),
            kernel: OnceLock::new(),
            place: OnceLock::new(),
            looks: Looks::default(),
            settling: Settling::default(),
            deadline: Deadline::default(),
            named: Named::default(),
            listed: Named::default(),
            askers: Askers::new(),
            busy: Busy::new(),
            drops_at_all: AtomicBool::new(false),
            skips: AtomicU64::new(0),
            state: Mutex::default(),
            work: Condvar::new(),
            news: Condvar::new(),
            counts: Counts::default(),
        })
    }

    /// The mount begins: `conversation` is its device. Before that there is nothing to drop.
    pub(crate) fn begin(&self, conversation: &File) -> io::Result<()> {
        let notifications = Notifications::of(conversation)?;
        self.kernel.get_or_init(|| notifications);
        Ok(())
    }

    /// For whoever watches over this process. See [`stopped`](crate::stopped).
    pub(crate) fn watch(&self) -> io::Result<Watch> {
        let kernel = self.kernel.get().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Watch { kernel: kernel.file().try_clone()?, deadline: self.deadline.file()? })
    }

    /// Programs can use the mount from now on, at this place.
    pub(crate) fn is_at(&self, mountpoint: PathBuf, device: String) {
        self.place.get_or_init(|| Place::new(mountpoint, device));
    }

    pub(crate) fn drops(&self) -> Drops {
        let Counts { names, nodes, epochs, pruned } = &self.counts;
        Drops {
            names: names.load(Relaxed),
            nodes: nodes.load(Relaxed),
            epochs: epochs.load(Relaxed),
            pruned: pruned.load(Relaxed),
        }
    }

    /// A thread looks at a name in a directory, perhaps because it is about to change it.
    pub(crate) fn looks_at_names(&self, tid: u32, dir: InodeId) {
        self.busy.note(tid, dir);
    }

    /// A thread is about to change something.
    pub(crate) fn is_at_work(&self, holds: Holds) {
        if let Holds::Names { dirs, by } = holds {
            self.busy.note_both(by, dirs);
        }
    }

    /// Whether the kernel's lock of the names of a directory, or that of all moves between directories, may be held at this moment by other threads than this one.
    pub(crate) fn may_be_locked(&self, tid: u32, dir: InodeId) -> bool {
        self.busy.are_others(tid, dir) || self.state.lock().may_be_locked(dir)
    }

    /// Whether waiting writes would own too much memory with one more.
    pub(crate) fn is_too_much(&self, holds: Holds) -> bool {
        match holds {
            Holds::Pages(Write { len, .. }) => {
                self.state.lock().write_bytes().saturating_add(len) > WAITING_WRITE_BYTES_MAX
            }
            _ => false,
        }
    }

    /// A change begins to wait. It does until the answer is dropped, which must not be before its request was answered.
    pub(crate) fn under_way(self: &Arc<Dropper>, holds: Holds) -> Option<UnderWay> {
        if holds == Holds::Nothing {
            return None;
        }
        let mut state = self.state.lock();
        let mut write = 0;
        match holds {
            Holds::Nothing => {}
            Holds::Dir(dir) => state.lock_dir(dir),
            Holds::Names { dirs, .. } => state.lock_dirs(dirs),
            Holds::Pages(pages) => write = state.begin_write(pages),
        }
        drop(state);
        self.news.notify_all();
        Some(UnderWay { stale: self.clone(), holds, write })
    }

    /// A thread has the kernel read content of a file, until the answer is dropped, which must not be before the request was answered. `fills`: for its pages,
    /// and not past them.
    pub(crate) fn is_read(
        self: &Arc<Dropper>,
        ino: InodeId,
        offset: u64,
        len: u32,
        tid: u32,
        fills: bool,
    ) -> Option<BeingRead> {
        self.drops_at_all.load(SeqCst).then(|| {
            let pages = Pages::of_bytes(offset, u64::from(len));
            let mut state = self.state.lock();
            state.begin_read(ino, pages, tid);
            if fills {
                state.mapped.begin_read(ino, pages);
            }
            drop(state);
            BeingRead { stale: self.clone(), ino, pages }
        })
    }

    /// Waits until the kernel has looked at all attributes that it has asked for.
    fn wait_for_askers(&self, ino: InodeId) {
        let mut waiting = Waiting::of(ino);
        loop {
            let state = self.state.lock();
            waiting.hear(&state.questions);
            let ended = state.ended;
            drop(state);
            if ended || waiting.is_over() {
                return;
            }
            std::thread::sleep(ATTRIBUTES_LOOK_EVERY);
        }
    }

    /// A thread asks for something that comes with attributes. To be called before they are looked at.
    pub(crate) fn asks(&self, tid: u32) -> Asking {
        self.askers.asks(tid, self.skips.load(SeqCst))
    }

    /// The kernel asks about an inode, and may keep what it will be told. To be called before that is looked at.
    pub(crate) fn is_asked_about(&self, ino: InodeId) {
        if self.drops_at_all.load(SeqCst) {
            self.state.lock().empty.is_asked_about(ino);
        }
    }

    /// Whether the kernel may keep these attributes, with which a question is about to be answered. Otherwise they may be from before a change:
    /// a local one in a directory that has been answered, or one of others that found nothing to drop.
    pub(crate) fn may_keep(&self, asking: Asking, ino: InodeId, inode: &Inode) -> bool {
        self.is_asked_about(ino);
        self.skips.load(SeqCst) == asking.skips
            && (inode.kind != FileKind::Directory || self.askers.answered(asking, ino))
    }

    /// A thread has changed something, and is about to be answered. By other numbers than the one that it was about the kernel does not know of that.
    pub(crate) fn changed(&self, holds: Holds) {
        let (dirs, by) = match holds {
            Holds::Dir(ino) => ([ino; 2], None),
            Holds::Names { dirs, by } => (dirs, Some(by)),
            Holds::Nothing | Holds::Pages(_) => return,
        };
        let aliased = self.nodes.of_aliased();
        if by.is_some() && dirs.iter().any(|dir| aliased.contains(dir)) {
            self.outdate();
        }
        if let Some(kernel) = self.kernel.get() {
            for node in aliased {
                // A listing as well.
                if let Err(error) = kernel.inode(node, 0, 0) {
                    tracing::error!(%error, %node, "the kernel cannot drop what was changed under another number");
                }
            }
        }
        if let Some(by) = by {
            self.names_changed(dirs, by);
        }
    }

    /// Answers a change of an inode of which the kernel does not hear what it has led to. What others were told of its attributes before that, and have not
    /// looked at yet, is not to be taken in.
    pub(crate) fn answer_unheard(&self, reply: fuser::ReplyEmpty, ino: InodeId, done: Result<(), Errno>) {
        if done.is_ok() {
            self.attributes_changed(ino);
        }
        answer::empty(reply, done);
    }

    /// What the kernel was told of the attributes of an inode is not to be taken in any more.
    fn attributes_changed(&self, ino: InodeId) {
        let Some(kernel) = self.kernel.get() else { return };
        for node in self.nodes.of(ino) {
            if let Err(error) = kernel.attributes(node) {
                tracing::error!(%error, %ino, "the kernel cannot drop the attributes of what was changed");
            }
        }
    }

    /// A thread has changed names, and is about to be answered. Whatever others were told of the directories before is not to be taken in after that.
    fn names_changed(&self, [one, other]: [InodeId; 2], by: u32) {
        for dir in std::iter::once(one).chain((other != one).then_some(other)) {
            if !self.askers.changed(by, dir) {
                continue;
            }
            self.attributes_changed(dir);
        }
    }

    /// A change of a file that others use as well has to wait. What the kernel shows of a write already, in pages that it knew, is not to be seen before it
    /// is carried out.
    pub(crate) fn is_waiting(&self, holds: Holds) {
        let Holds::Pages(Write { ino, offset, len }) = holds else { return };
        let pages = Pages::of_bytes(offset, len);
        let mut state = self.state.lock();
        state.queue(pages.apart([pages]).into_iter().map(|pages| Notice::Node { ino, pages }));
        self.wake(&mut state);
    }

    /// Whether an inode was dropped not long ago, or is about to be.
    pub(crate) fn was_dropped(&self, ino: InodeId) -> bool {
        self.drops_at_all.load(SeqCst) && self.last_drop(ino).is_some()
    }

    /// The number of the last drop of an inode, if that was not long ago.
    fn last_drop(&self, ino: InodeId) -> Option<u64> {
        self.state.lock().last_drop(ino)
    }

    /// The mount has ended: nobody waits for the kernel any more.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.news.notify_all();
        self.work.notify_all();
    }

    /// Inodes are about to be dropped.
    fn note_drops(&self, inodes: &[InodeId]) {
        self.drops_at_all.store(true, SeqCst);
        self.state.lock().note_drops(inodes);
    }

    /// Inodes are about to be dropped because others change them: who writes what the kernel was let write has to look again.
    fn others_change(&self, inodes: &[InodeId]) {
        self.note_drops(inodes);
        if let Some(client) = self.client.upgrade() {
            client.forget_writers(inodes);
        }
    }

    /// Has notices sent, and waits until nothing of it can be answered from the kernel's cache.
    fn send(&self, notices: &[Notice]) {
        if self.kernel.get().is_none() {
            return;
        }
        for chunk in notices.chunks(DROPS_AT_ONCE_MAX) {
            self.send_round(chunk);
        }
    }

    fn send_round(&self, notices: &[Notice]) {
        let mut state = self.state.lock();
        let round = state.begin(notices.iter().cloned());
        self.wake(&mut state);
        while let Some((left, progress)) = state.left(round) {
            if state.ended {
                return state.abandon(round);
            }
            if progress.elapsed() >= KERNEL_WAIT_MAX {
                tracing::error!(
                    left,
                    "the kernel has not dropped what others have changed, for {} s: programs on this mount may see it as it \
                     was; if they hang, end the mount with 'umount -f -l'",
                    KERNEL_WAIT_MAX.as_secs()
                );
                return state.abandon(round);
            }
            if state.unblock(round) {
                MutexGuard::unlocked(&mut state, || self.outdate());
                state.outdated(round);
                continue;
            }
            self.wake(&mut state);
            self.look_after_stuck(&mut state);
            if state.left(round).is_some() {
                self.news.wait_for(&mut state, BLOCKED_AFTER);
            }
        }
    }

    /// Outdates all names. Never waits.
    fn outdate(&self) {
        self.counts.epochs.fetch_add(1, SeqCst);
        if let Some(Err(error)) = self.kernel.get().map(Notifications::epoch) {
            tracing::error!(%error, "the kernel refuses to outdate names: programs may see names as they were");
        }
    }

    // --- threads ---

    /// Sees to it that there are threads for what is queued.
    fn wake(&self, state: &mut State) {
        self.work.notify_all();
        if state.ended || !state.wants_thread() {
            return;
        }
        if state.threads < NOTIFIERS || (state.threads < NOTIFIERS_MAX && state.all_blocked()) {
            let Some(me) = self.me.upgrade() else { return };
            state.threads += 1;
            let name = format!("fuse-notify-{}", state.threads);
            if let Err(error) = Builder::new().name(name).spawn(move || me.work()) {
                state.threads -= 1;
                tracing::error!(%error, "no thread to make the kernel drop what others have changed");
            }
        }
    }

    fn work(&self) {
        let Some(kernel) = self.kernel.get() else { return };
        kernel.keep_nothing_else();
        near::everywhere();
        let tid = nix::unistd::gettid().as_raw();
        let mut state = self.state.lock();
        while !state.ended {
            match state.step(tid) {
                Step::Tell(id, notice) => {
                    MutexGuard::unlocked(&mut state, || self.tell(kernel, id, &notice));
                    if state.done(id) {
                        self.news.notify_all();
                    }
                }
                Step::Outdate(round) => {
                    MutexGuard::unlocked(&mut state, || self.outdate());
                    if let Some(round) = round {
                        state.outdated(round);
                    }
                    self.news.notify_all();
                }
                Step::Idle => {
                    // The last of what was queued may have been passed over.
                    self.news.notify_all();
                    state.idle += 1;
                    let late = self.work.wait_for(&mut state, NOTIFIER_IDLE_MAX).timed_out();
                    state.idle -= 1;
                    if late && !state.wants_thread() {
                        break;
                    }
                }
            }
        }
        state.threads -= 1;
    }

    /// Tells the kernel one thing. May block.
    fn tell(&self, kernel: &Notifications, id: u64, notice: &Notice) {
        match notice {
            Notice::Entry { dir, name } => {
                self.counts.names.fetch_add(1, Relaxed);
                for node in self.nodes.of(*dir) {
                    if let Err(error) = kernel.entry(node, name) {
                        tracing::warn!(%error, %dir, "the kernel cannot drop a name: all names are outdated instead");
                        self.outdate();
                    }
                }
            }
            Notice::Node { ino, pages } => {
                self.counts.nodes.fetch_add(1, Relaxed);
                self.tell_node(kernel, id, *ino, *pages);
            }
        }
    }

    fn tell_node(&self, kernel: &Notifications, id: u64, ino: InodeId, pages: Pages) {
        let (offset, len) = pages.bytes();
        self.wait_for_askers(ino);
        let (begun, whole) = {
            let mut state = self.state.lock();
            state.goes_to_the_kernel(id);
            (state.mapped.begin_drop(), (pages == Pages::ALL).then(|| state.empty.begin(ino)))
        };
        let dropped = self.drop_node(kernel, ino, offset, len);
        let mut state = self.state.lock();
        let left = state.mapped.dropped(ino, pages, begun);
        if !left.is_empty() {
            state.queue(left.into_iter().map(|pages| Notice::Node { ino, pages }));
            self.wake(&mut state);
        }
        if let Some(drop) = whole {
            state.empty.end(ino, drop, dropped);
        }
    }

    /// Has the kernel drop an inode. Whether it knew it.
    fn drop_node(&self, kernel: &Notifications, ino: InodeId, offset: i64, len: i64) -> bool {
        let start = Instant::now();
        loop {
            let mut told = Ok(Dropped::Unknown);
            // The last is the one that counts; by another the kernel may not know it any more.
            for node in self.nodes.of(ino) {
                told = kernel.inode(node, offset, len);
            }
            match told {
                Ok(Dropped::Yes) => return true,
                Ok(Dropped::Ended) => return false,
                // Either the kernel is about to forget it, or a process has an answer in hand that it did not look at yet.
                Ok(Dropped::Unknown) if self.may_arrive(ino) && start.elapsed() < ARRIVAL_WAIT => {
                    std::thread::sleep(ARRIVAL_LOOK_EVERY);
                }
                Ok(Dropped::Unknown) => return false,
                Err(error) => {
                    tracing::error!(%error, %ino, "the kernel cannot drop what others have changed");
                    return false;
                }
            }
        }
    }

    fn may_arrive(&self, ino: InodeId) -> bool {
        let ended = self.state.lock().ended;
        !ended && self.client.upgrade().is_some_and(|client| client.refers(ino))
    }
}

impl KernelCache for Dropper {
    fn forget(&self, stale: &[Stale]) {
        let mut seen = HashSet::with_capacity(stale.len());
        let (mut names, mut nodes, mut all_names) = (Vec::new(), Vec::new(), false);
        for stale in stale.iter().filter(|stale| !is_passed_over() && seen.insert(*stale)) {
            match stale {
                Stale::Name { dir, name } => {
                    names.push(Notice::Entry { dir: *dir, name: name.clone() });
                }
                Stale::Names(dir) => {
                    all_names = true;
                    nodes.push(*dir);
                }
                Stale::Node(ino) => nodes.push(*ino),
            }
        }
        // The kernel drops a listing with a name only if it knows the name as such.
        let mut known: HashSet<InodeId> = nodes.iter().copied().collect();
        for name in &names {
            if let Notice::Entry { dir, .. } = name
                && known.insert(*dir)
            {
                nodes.push(*dir);
            }
        }
        self.others_change(&nodes);
        let mut state = self.state.lock();
        nodes.retain(|ino| !state.empty.skips(*ino));
        self.skips.store(state.empty.skipped(), SeqCst);
        drop(state);
        // In this order: it waits for the directory's lock, and so for those who have just read the directory to be done.
        if crate::kernel::keeps_names() {
            let epochs = self.epochs();
            if all_names {
                // Nobody knows which names the kernel has of one directory: it looks all up again.
                self.outdate();
            }
            self.send(&names);
            if self.epochs() != epochs {
                self.outdate_listed(|dir| known.contains(&dir));
            }
        }
        self.send(&whole(&nodes));
    }

    fn hold_writes(&self, files: &[InodeId]) {
        self.have_asked(files);
    }

    fn may_answer_until(&self, until: Duration) {
        self.deadline.is(until);
    }

    fn has_changed(&self) {
        self.named.has_changed();
    }

    fn settle_names(&self, concerns: &dyn Fn(InodeId) -> bool) {
        self.wait_for_names(concerns);
    }

    fn forget_all(&self, inodes: &[InodeId]) {
        if crate::kernel::keeps_names() && !self.state.lock().ended {
            self.outdate();
            self.outdate_listed(|_| true);
        }
        self.others_change(inodes);
        self.send(&whole(inodes));
    }
}

/// Whether a drop is left out, as the defect that `make check-planted` has to find.
#[cfg(feature = "planted")]
fn is_passed_over() -> bool {
    /// One of so many.
    const PASSED_OVER_EVERY: u64 = 100;
    static DROPS: AtomicU64 = AtomicU64::new(0);
    DROPS.fetch_add(1, Relaxed) % PASSED_OVER_EVERY == PASSED_OVER_EVERY - 1
}

#[cfg(not(feature = "planted"))]
const fn is_passed_over() -> bool {
    false
}

fn whole(inodes: &[InodeId]) -> Vec<Notice> {
    inodes.iter().map(|ino| Notice::Node { ino: *ino, pages: Pages::ALL }).collect()
}

/// See [`Dropper::is_read`].
pub(crate) struct BeingRead {
    stale: Arc<Dropper>,
    ino: InodeId,
    pages: Pages,
}

impl Drop for BeingRead {
    fn drop(&mut self) {
        self.stale.state.lock().end_read(self.ino, self.pages);
    }
}

/// A change that waits.
pub(crate) struct UnderWay {
    stale: Arc<Dropper>,
    holds: Holds,
    /// Its number, if it is a write.
    write: u64,
}

impl UnderWay {
    /// The change was carried out, and is about to be answered. Nothing is left to be dropped after that: it would make the kernel pass over the
    /// attributes that a read right after the write asks for.
    pub(crate) fn carried_out(&self) {
        // It may have taken long.
        self.stale.is_at_work(self.holds);
        self.stale.changed(self.holds);
        let Holds::Pages(Write { ino, .. }) = self.holds else { return };
        let late = self.stale.state.lock().carried_out(ino, self.write);
        if let Some(pages) = late {
            self.stale.send(&[Notice::Node { ino, pages }]);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.stale.state.lock();
        match self.holds {
            Holds::Nothing => {}
            Holds::Dir(dir) => state.unlock_dir(dir),
            Holds::Names { dirs, .. } => state.unlock_dirs(dirs),
            Holds::Pages(Write { ino, .. }) => state.end_write(ino, self.write),
        }
        drop(state);
        self.stale.is_done(self.holds);
        self.stale.is_answered(self.holds);
    }
}
