//! Invalidates what the kernel caches of the mount, before another client changes it.
//!
//! **Model.** The kernel answers names, attributes, listings and content from its caches, and is notified
//! before one of them becomes stale: [`KernelCache`]. `INVAL_ENTRY` takes the inode lock of the directory,
//! and `INVAL_INODE` waits for locked pages. A local change holds such a lock while its request waits for a
//! server, which may wait for this invalidation: a deadlock. `docs/KERNEL_CACHE.md` has a section for each
//! such hazard. The defences here:
//! - Changes that wait are registered with the locks that they hold ([`Invalidator::begin_waiting_change`]).
//! - *Names* in a locked directory are invalidated by `INC_EPOCH`, which outdates all names of the mount
//!   without a lock. This is also done if the directory stays locked for
//!   [`NAME_PATIENCE`](limits::NAME_PATIENCE) for another reason (hazard 1).
//! - *Pages* that a waiting write may have locked get notifications of their own, which are not waited for,
//!   unless the pages are being read. A locked page cannot be read, and the kernel fills it anew. The write's
//!   pages are invalidated once more after the write is carried out and before it is answered (hazard 10).
//! - *Dirty pages of a mapping* that the kernel cannot write back before a waiting change ends are not waited
//!   for: see [`unflushable_pages`] (hazard 16).
//! - A write to cached pages is visible on this mount before its request is sent. The write gate makes the
//!   kernel request a permit before it: see [`write_gate`] (hazard 12). A write that passes the gate without
//!   the right (such as the writeback of a mapping) has its pages invalidated, so that they show the old
//!   content until it is carried out.
//!
//! Notifications are sent by threads of their own, which may block. No other thread depends on them, and the
//! process can end without them. Invalidation is synchronous: the caller blocks until the kernel has
//! acknowledged it.
//!
//! **Assumes.** Linux 6.16 or newer for `INC_EPOCH`. An older kernel is told to keep no names at all (see
//! `kernel`), so there are none to invalidate.
//!
//! **Promises.** When [`KernelCache::invalidate`] returns, the kernel's cache answers nothing of the
//! invalidated objects any more, not even from a reply that was in flight. It returns in bounded time: at
//! once when the mount has ended, and with an error in the log when the kernel has made no progress for
//! [`KERNEL_WAIT_MAX`](limits::KERNEL_WAIT_MAX).
//!
//! **What remains.** A process in a directory whose name was outdated continues, but a local mount or bind
//! mount below such a name is detached when the name is looked up again.

mod already_invalidated;
mod append;
mod attributes;
mod dentry_updates;
mod dir_attr_race;
mod getattr_inflight;
mod listed_directories;
mod page_baseline;
mod pages;
mod prune;
mod size;
mod size_barrier;
mod state;
mod unflushable_pages;
mod write_gate;

pub(crate) use attributes::AttributesAsked;
pub(crate) use dir_attr_race::AttrRequest;

use crate::affinity;
use crate::answer;
use crate::context::{Holds, Write};
use crate::dir_activity::DirActivity;
use crate::host::{Host, HostRef, NotifyOutcome};
use crate::limits::{
    ARRIVAL_LOOK_EVERY, ARRIVAL_WAIT, ATTRIBUTES_LOOK_EVERY, BLOCKED_AFTER, INVALIDATIONS_AT_ONCE_MAX,
    KERNEL_WAIT_MAX, NOTIFIER_IDLE_MAX, NOTIFIERS, NOTIFIERS_MAX, WAITING_WRITE_BYTES_MAX,
};
use crate::nodeid_alias::NodeIds;
use crate::stopped::{Deadline, Watch};
use dentry_updates::DentryUpdates;
use dir_attr_race::DirAttrRace;
use getattr_inflight::Waiting;
use listed_directories::ListedDirectories;
use pages::Pages;
use prune::Evictions;
use shoal_client::{Client, KernelCache, Stale};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::{Condvar, Mutex, unlocked};
use shoal_runtime::thread::Builder;
use shoal_runtime::time::{Duration, Instant};
use shoal_types::{Errno, FileKind, Inode, InodeId};
use size::SizeChecks;
use size_barrier::SizeBarrier;
use state::{Notice, State, Step};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Weak};

/// Numbers of invalidations that the kernel was sent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InvalidationCounts {
    /// Dentries, one by one.
    pub names: u64,
    /// Inodes, or page ranges of them.
    pub nodes: u64,
    /// `INC_EPOCH` notifications, which outdate all names.
    pub epochs: u64,
    /// Inodes that the kernel was told to prune, because it referred to more than the mount's bound.
    pub pruned: u64,
}

#[derive(Default)]
struct Counts {
    names: AtomicU64,
    nodes: AtomicU64,
    epochs: AtomicU64,
    pruned: AtomicU64,
}

/// Invalidates the kernel's caches of one mount.
pub(crate) struct Invalidator {
    me: Weak<Invalidator>,
    client: Weak<Client>,
    nodes: Arc<NodeIds>,
    host: HostRef,
    /// The mount has begun: before that the kernel has cached nothing.
    has_begun: AtomicBool,
    size_checks: SizeChecks,
    size_barrier: SizeBarrier,
    deadline: Deadline,
    name_changes: DentryUpdates,
    /// Replies to READDIRPLUS that the kernel may not have handled yet (hazard 2).
    listings: DentryUpdates,
    dir_attr_race: DirAttrRace,
    listed_directories: ListedDirectories,
    evictions: Evictions,
    busy: DirActivity,
    /// An inode was invalidated at least once.
    any_invalidations: AtomicBool,
    /// Number of invalidations skipped because the kernel had nothing cached.
    skips: AtomicU64,
    state: Mutex<State>,
    /// Signals the notification threads that there is work.
    work: Condvar,
    /// Signals waiters that a notification was completed, or that a local change may block one.
    news: Condvar,
    counts: Counts,
}

impl Invalidator {
    pub(crate) fn new(client: &Arc<Client>, nodes: &Arc<NodeIds>, host: &HostRef) -> Arc<Invalidator> {
        Arc::new_cyclic(|me| Invalidator {
            me: me.clone(),
            client: Arc::downgrade(client),
            nodes: nodes.clone(),
            host: host.clone(),
            has_begun: AtomicBool::new(false),
            size_checks: SizeChecks::default(),
            size_barrier: SizeBarrier::new(host),
            deadline: Deadline::default(),
            name_changes: DentryUpdates::new(host),
            listings: DentryUpdates::new(host),
            dir_attr_race: DirAttrRace::new(),
            listed_directories: ListedDirectories::new(),
            evictions: Evictions::default(),
            busy: DirActivity::new(),
            any_invalidations: AtomicBool::new(false),
            skips: AtomicU64::new(0),
            state: Mutex::new(State::new(host)),
            work: Condvar::new(),
            news: Condvar::new(),
            counts: Counts::default(),
        })
    }

    /// The mount begins. Before that the kernel has cached nothing.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, SeqCst);
    }

    /// The kernel, once the mount has begun.
    fn kernel(&self) -> Option<&dyn Host> {
        self.has_begun.load(SeqCst).then_some(&*self.host)
    }

    /// The kernel, with the states of threads.
    pub(crate) fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// The descriptors for the guard process: see [`stopped`](crate::stopped).
    pub(crate) fn watch(&self, kernel: File) -> io::Result<Watch> {
        Ok(Watch { kernel, deadline: self.deadline.file()? })
    }

    pub(crate) fn invalidation_counts(&self) -> InvalidationCounts {
        let Counts { names, nodes, epochs, pruned } = &self.counts;
        InvalidationCounts {
            names: names.load(Relaxed),
            nodes: nodes.load(Relaxed),
            epochs: epochs.load(Relaxed),
            pruned: pruned.load(Relaxed),
        }
    }

    /// A thread looks a name up in a directory. It may hold the inode lock, for a change of the name.
    pub(crate) fn looks_at_names(&self, tid: u32, dir: InodeId) {
        self.busy.note(tid, dir);
    }

    /// A thread is about to carry out a change that holds these locks.
    pub(crate) fn is_at_work(&self, holds: Holds) {
        if let Holds::Names { dirs, by } = holds {
            self.busy.note_both(by, dirs);
        }
    }

    /// Whether the inode lock of a directory, or the file system's rename lock, may be held by other threads
    /// at this moment.
    pub(crate) fn may_be_locked(&self, tid: u32, dir: InodeId) -> bool {
        self.busy.are_others(tid, dir) || self.state.lock().may_be_locked(dir)
    }

    /// Whether one more waiting write would exceed the memory that waiting writes may own.
    pub(crate) fn is_too_much(&self, holds: Holds) -> bool {
        match holds {
            Holds::Pages(Write { len, .. }) => {
                self.state.lock().write_bytes().saturating_add(len) > WAITING_WRITE_BYTES_MAX
            }
            _ => false,
        }
    }

    /// A change begins to wait. It ends when the returned value is dropped, which must be after its request
    /// was answered.
    pub(crate) fn begin_waiting_change(self: &Arc<Invalidator>, holds: Holds) -> Option<WaitingChange> {
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
        Some(WaitingChange { invalidator: self.clone(), holds, write })
    }

    /// A READ is in flight until the returned value is dropped, which must be after the request was answered.
    /// `fills`: the kernel fills pages of its cache with the content.
    pub(crate) fn is_read(
        self: &Arc<Invalidator>,
        ino: InodeId,
        offset: u64,
        len: u32,
        tid: u32,
        fills: bool,
    ) -> Option<BeingRead> {
        self.any_invalidations.load(SeqCst).then(|| {
            let pages = Pages::of_bytes(offset, u64::from(len));
            let mut state = self.state.lock();
            state.begin_read(ino, pages, tid);
            if fills {
                state.page_baselines.begin_read(ino, pages);
            }
            drop(state);
            BeingRead { invalidator: self.clone(), ino, pages }
        })
    }

    /// A write with `O_DIRECT` is stored and not answered yet: invalidates its pages, which may have been
    /// filled since the kernel invalidated them and sent the request (hazard 20).
    pub(crate) fn is_written_directly(&self, write: Write) {
        self.record_invalidations(&[write.ino]);
        self.send(&[Notice::Node { ino: write.ino, pages: Pages::of_bytes(write.offset, write.len) }]);
    }

    /// Has the kernel write dirty pages back: it does so before it invalidates them
    /// (`invalidate_inode_pages2_range`).
    pub(crate) fn write_back(&self, pages: Write) {
        self.send(&[Notice::Node { ino: pages.ino, pages: Pages::of_bytes(pages.offset, pages.len) }]);
    }

    /// Waits until no GETATTR of an inode is in flight and each reply has been consumed (hazard 7).
    fn wait_for_getattrs(&self, ino: InodeId) {
        if mistake("do not wait for requests for attributes") {
            return;
        }
        let mut waiting = Waiting::of(ino);
        loop {
            let state = self.state.lock();
            waiting.update(&state.getattrs);
            let ended = state.ended;
            drop(state);
            if ended || waiting.is_over() {
                return;
            }
            shoal_runtime::thread::sleep(ATTRIBUTES_LOOK_EVERY);
        }
    }

    /// A request whose reply carries attributes has arrived. To be called before the attributes are read.
    pub(crate) fn begin_attr_request(&self, tid: u32) -> AttrRequest {
        self.dir_attr_race.begin(tid, self.skips.load(SeqCst))
    }

    /// The kernel requests an inode, and may cache the reply. To be called before the reply's content is
    /// read.
    pub(crate) fn is_asked_about(&self, ino: InodeId) {
        if self.any_invalidations.load(SeqCst) {
            self.state.lock().already_invalidated.is_asked_about(ino);
        }
    }

    /// Whether the kernel may cache the attributes of a reply. Otherwise they may be from before a change: a
    /// local one in the directory that has been answered, or one of another client for which the invalidation
    /// was skipped.
    pub(crate) fn may_keep(&self, request: AttrRequest, ino: InodeId, inode: &Inode) -> bool {
        self.is_asked_about(ino);
        if mistake("keep every reply with attributes") {
            return true;
        }
        self.skips.load(SeqCst) == request.skips
            && (inode.kind != FileKind::Directory || self.dir_attr_race.answered(request, ino))
    }

    /// A thread has made a change and is about to be answered. The kernel updates only the node id that the
    /// request named; all other node ids (aliases) are invalidated here.
    pub(crate) fn changed(&self, holds: Holds) {
        let (dirs, by) = match holds {
            Holds::Dir(ino) => ([ino; 2], None),
            Holds::Names { dirs, by } => (dirs, Some(by)),
            Holds::Nothing | Holds::Pages(_) => return,
        };
        let is_kept = mistake("keep aliases of a changed directory");
        let aliased = if is_kept { Vec::new() } else { self.nodes.of_aliased() };
        if by.is_some() && dirs.iter().any(|dir| aliased.contains(dir)) {
            self.outdate();
        }
        self.invalidate_directories(aliased);
        if let Some(by) = by {
            self.names_changed(dirs, by);
        }
    }

    /// Answers a change of an inode with a reply that does not carry the new attributes. The kernel ignores
    /// earlier replies with attributes that other threads have not consumed yet.
    pub(crate) fn answer_and_invalidate(
        &self,
        reply: shoal_channel::ReplyEmpty,
        ino: InodeId,
        done: Result<(), Errno>,
    ) {
        if done.is_ok() {
            self.attributes_changed(ino);
        }
        answer::empty(reply, done);
    }

    /// Answers a change by ioctl(2) as [`answer_and_invalidate`](Self::answer_and_invalidate) does.
    pub(crate) fn answer_ioctl(
        &self,
        reply: shoal_channel::ReplyIoctl,
        ino: InodeId,
        done: Result<(), Errno>,
    ) {
        if done.is_ok() {
            self.attributes_changed(ino);
        }
        answer::ioctl(reply, done.map(|()| Vec::new()));
    }

    /// Invalidates the attributes of an inode. The kernel then ignores attributes of requests that it sent
    /// before.
    fn attributes_changed(&self, ino: InodeId) {
        let Some(kernel) = self.kernel() else { return };
        for node in self.nodes.of(ino) {
            if let Err(error) = kernel.attributes(node) {
                tracing::error!(%error, %ino, "the kernel refuses to invalidate the attributes of a changed inode");
            }
        }
    }

    /// A thread has changed names, and is about to be answered. Before that, makes the kernel ignore earlier
    /// attributes of the directories in replies to other threads (hazard 8), and listings that have begun
    /// (hazard 21).
    fn names_changed(&self, [one, other]: [InodeId; 2], by: u32) {
        for dir in std::iter::once(one).chain((other != one).then_some(other)) {
            let is_overtaken = self.dir_attr_race.changed(by, dir);
            if self.ends_listings(dir)
                || !is_overtaken
                || mistake("keep directory attributes that a change overtakes")
            {
                continue;
            }
            self.attributes_changed(dir);
        }
    }

    /// A write to a file that other clients use has to wait. Its bytes may already be in cached pages (hazard
    /// 12), which are invalidated so that programs do not see them before the write is carried out.
    pub(crate) fn is_waiting(&self, holds: Holds) {
        let Holds::Pages(Write { ino, offset, len }) = holds else { return };
        if mistake("keep the pages of a write without a permit") {
            return;
        }
        let pages = Pages::of_bytes(offset, len);
        let mut state = self.state.lock();
        state.queue(pages.apart([pages]).into_iter().map(|pages| Notice::Node { ino, pages }));
        self.wake(&mut state);
    }

    /// Whether an inode was invalidated recently, or is about to be.
    pub(crate) fn was_invalidated(&self, ino: InodeId) -> bool {
        self.any_invalidations.load(SeqCst) && self.last_invalidation(ino).is_some()
    }

    /// The number of the last invalidation of an inode, if that was recent.
    fn last_invalidation(&self, ino: InodeId) -> Option<u64> {
        self.state.lock().last_invalidation(ino)
    }

    /// The mount has ended: all waits for the kernel end.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.news.notify_all();
        self.work.notify_all();
    }

    /// Inodes are about to be invalidated.
    fn record_invalidations(&self, inodes: &[InodeId]) {
        self.any_invalidations.store(true, SeqCst);
        self.state.lock().record_invalidations(inodes);
    }

    /// Inodes are about to be invalidated because other clients change them: write permits for them end.
    fn void_write_permits(&self, inodes: &[InodeId]) {
        self.record_invalidations(inodes);
        if let Some(client) = self.client.upgrade() {
            client.forget_writers(inodes);
        }
    }

    /// Sends notifications, and waits until the kernel's cache answers nothing of their objects any more.
    fn send(&self, notices: &[Notice]) {
        if self.kernel().is_none() {
            return;
        }
        for chunk in notices.chunks(INVALIDATIONS_AT_ONCE_MAX) {
            self.send_batch(chunk);
        }
    }

    fn send_batch(&self, notices: &[Notice]) {
        let mut state = self.state.lock();
        let batch = state.begin(notices.iter().cloned());
        self.wake(&mut state);
        while let Some((left, progress)) = state.left(batch) {
            if state.ended {
                return state.abandon(batch);
            }
            if progress.elapsed() >= KERNEL_WAIT_MAX {
                tracing::error!(
                    left,
                    "the kernel has not invalidated what other clients have changed, for {} s: programs on this mount may see it as it \
                     was; if they hang, end the mount with 'umount -f -l'",
                    KERNEL_WAIT_MAX.as_secs()
                );
                return state.abandon(batch);
            }
            if state.unblock(batch) {
                unlocked(&mut state, || self.outdate());
                state.outdated(batch);
                continue;
            }
            self.wake(&mut state);
            self.watch_unflushable(&mut state);
            if state.left(batch).is_some() {
                self.news.wait_for(&mut state, BLOCKED_AFTER);
            }
        }
    }

    /// Outdates all names by `INC_EPOCH`. Never waits.
    fn outdate(&self) {
        self.counts.epochs.fetch_add(1, SeqCst);
        if let Some(Err(error)) = self.kernel().map(Host::epoch) {
            tracing::error!(%error, "the kernel refuses INC_EPOCH: programs may see outdated names");
        }
    }

    // --- threads ---

    /// Starts notification threads for the queue as needed.
    fn wake(&self, state: &mut State) {
        // An idle thread that finds no work signals the waiters of batches, which call this again.
        if state.has_work() {
            self.work.notify_all();
        }
        if state.ended || !state.needs_thread() {
            return;
        }
        if state.threads < NOTIFIERS || (state.threads < NOTIFIERS_MAX && state.all_blocked()) {
            let Some(me) = self.me.upgrade() else { return };
            state.threads += 1;
            let name = format!("fuse-notify-{}", state.threads);
            if let Err(error) = Builder::new().name(name).spawn(move || me.work()) {
                state.threads -= 1;
                tracing::error!(%error, "cannot start a thread for invalidations");
            }
        }
    }

    fn work(&self) {
        let Some(kernel) = self.kernel() else { return };
        kernel.keep_nothing_else(true);
        affinity::everywhere();
        let tid = kernel.current() as i32;
        let mut state = self.state.lock();
        while !state.ended {
            match state.step(tid) {
                Step::Tell(id, notice) => {
                    unlocked(&mut state, || self.notify(kernel, id, &notice));
                    if state.done(id) {
                        self.news.notify_all();
                    }
                }
                Step::Outdate(batch) => {
                    unlocked(&mut state, || self.outdate());
                    if let Some(batch) = batch {
                        state.outdated(batch);
                    }
                    self.news.notify_all();
                }
                Step::Idle => {
                    // The last notifications of a batch may have been counted as done without being sent.
                    self.news.notify_all();
                    state.idle += 1;
                    let late = self.work.wait_for(&mut state, NOTIFIER_IDLE_MAX).timed_out();
                    state.idle -= 1;
                    if late && !state.needs_thread() {
                        break;
                    }
                }
            }
        }
        state.threads -= 1;
    }

    /// Sends the kernel one notification. May block.
    fn notify(&self, kernel: &dyn Host, id: u64, notice: &Notice) {
        match notice {
            Notice::Entry { dir, name } => {
                self.counts.names.fetch_add(1, Relaxed);
                for node in self.nodes.of(*dir) {
                    if let Err(error) = kernel.entry(node, name) {
                        tracing::warn!(%error, %dir, "the kernel refuses to invalidate a name: all names are outdated instead");
                        self.outdate();
                    }
                }
            }
            Notice::Node { ino, pages } => {
                self.counts.nodes.fetch_add(1, Relaxed);
                self.notify_node(kernel, id, *ino, *pages);
            }
        }
    }

    fn notify_node(&self, kernel: &dyn Host, id: u64, ino: InodeId, pages: Pages) {
        let (offset, len) = pages.bytes();
        self.wait_for_getattrs(ino);
        let (begun, whole) = {
            let mut state = self.state.lock();
            state.goes_to_the_kernel(id);
            (
                state.page_baselines.begin_invalidation(),
                (pages == Pages::ALL).then(|| state.already_invalidated.begin(ino)),
            )
        };
        let dropped = self.invalidate_node(kernel, ino, offset, len);
        let mut state = self.state.lock();
        let left = state.page_baselines.dropped(ino, pages, begun);
        if !left.is_empty() {
            state.queue(left.into_iter().map(|pages| Notice::Node { ino, pages }));
            self.wake(&mut state);
        }
        if let Some(drop) = whole {
            state.already_invalidated.end(ino, drop, dropped);
        }
    }

    /// Invalidates an inode under all its node ids. Returns whether the kernel knew it.
    fn invalidate_node(&self, kernel: &dyn Host, ino: InodeId, offset: i64, len: i64) -> bool {
        let start = Instant::now();
        loop {
            let mut told = Ok(NotifyOutcome::Unknown);
            // The result for the last node id counts; an alias may already be unknown to the kernel.
            for node in self.nodes.of(ino) {
                told = kernel.inode(node, offset, len);
            }
            match told {
                Ok(NotifyOutcome::Invalidated) => return true,
                Ok(NotifyOutcome::Ended) => return false,
                // Either the kernel is evicting the inode, or a reply that introduces it is in flight (hazard
                // 6).
                Ok(NotifyOutcome::Unknown)
                    if self.may_arrive(ino)
                        && start.elapsed() < ARRIVAL_WAIT
                        && !mistake("invalidate an unknown inode only once") =>
                {
                    shoal_runtime::thread::sleep(ARRIVAL_LOOK_EVERY);
                }
                Ok(NotifyOutcome::Unknown) => return false,
                Err(error) => {
                    tracing::error!(%error, %ino, "the kernel refuses to invalidate an inode that another client changes");
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

impl KernelCache for Invalidator {
    fn invalidate(&self, stale: &[Stale]) {
        let mut seen = HashSet::with_capacity(stale.len());
        let (mut names, mut nodes, mut all_names, mut unused) = (Vec::new(), Vec::new(), false, Vec::new());
        for item in stale.iter().filter(|item| !is_passed_over() && seen.insert(*item)) {
            match item {
                Stale::Name { dir, name } => {
                    names.push(Notice::Entry { dir: *dir, name: name.clone() });
                }
                Stale::Names(dir) => {
                    all_names = true;
                    nodes.push(*dir);
                }
                Stale::Node(ino) => nodes.push(*ino),
                Stale::Unused(ino) => unused.push(*ino),
            }
        }
        // `INVAL_ENTRY` invalidates the directory's listing only if the dcache has the name.
        let mut known: HashSet<InodeId> = nodes.iter().copied().collect();
        for name in &names {
            if let Notice::Entry { dir, .. } = name
                && known.insert(*dir)
            {
                nodes.push(*dir);
            }
        }
        self.evictions.request(unused);
        self.void_write_permits(&nodes);
        let mut state = self.state.lock();
        nodes.retain(|ino| {
            !state.already_invalidated.skips(*ino) || mistake("invalidate again what was invalidated")
        });
        self.skips.store(state.already_invalidated.skipped(), SeqCst);
        drop(state);
        // Names come before inodes: `INVAL_ENTRY` waits for the inode lock of the directory, and so for
        // readers of the directory.
        if crate::kernel::keeps_names() {
            let epochs = self.epochs();
            if all_names {
                // The names that the dcache has of one directory are unknown, so all names of the mount are
                // outdated.
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
        if mistake("revoke no write permits") {
            return;
        }
        self.revoke_write_permits(files);
    }

    fn may_answer_until(&self, until: Duration) {
        self.deadline.is(until);
    }

    fn has_changed(&self, thread: u32, dirs: [InodeId; 2]) {
        self.name_changes.is_about_to_be_answered(dirs, thread);
    }

    fn wait_consumed(&self, concerns: &dyn Fn(InodeId) -> bool) {
        self.wait_for_names(concerns);
        self.wait_for_sizes(concerns);
    }

    fn invalidate_all(&self, inodes: &[InodeId]) {
        if mistake("keep the kernel's cache without a lease") {
            return;
        }
        if crate::kernel::keeps_names() && !self.state.lock().ended {
            self.outdate();
            self.outdate_listed(|_| true);
        }
        self.void_write_permits(inodes);
        self.send(&whole(inodes));
    }
}

/// Whether an invalidation is left out: the planted defect that `make check-planted` has to find.
#[cfg(feature = "planted")]
fn is_passed_over() -> bool {
    /// One invalidation in this many is left out.
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

/// A READ in flight: see [`Invalidator::is_read`].
pub(crate) struct BeingRead {
    invalidator: Arc<Invalidator>,
    ino: InodeId,
    pages: Pages,
}

impl Drop for BeingRead {
    fn drop(&mut self) {
        self.invalidator.state.lock().end_read(self.ino, self.pages);
    }
}

/// A change in flight that may wait for a server.
pub(crate) struct WaitingChange {
    invalidator: Arc<Invalidator>,
    holds: Holds,
    /// The number of the write, if it is one.
    write: u64,
}

impl WaitingChange {
    /// The change was carried out, and is about to be answered. Its pages are invalidated before the reply: a
    /// later `INVAL_INODE` would make the kernel ignore the GETATTR of a read that follows the write.
    pub(crate) fn carried_out(&self) {
        // The change may have taken longer than directories count as busy.
        self.invalidator.is_at_work(self.holds);
        self.invalidator.changed(self.holds);
        let Holds::Pages(Write { ino, .. }) = self.holds else { return };
        let late = || self.invalidator.state.lock().carried_out(ino, self.write);
        while let Some(pages) = late() {
            self.invalidator.send(&[Notice::Node { ino, pages }]);
        }
    }
}

impl Drop for WaitingChange {
    fn drop(&mut self) {
        let mut state = self.invalidator.state.lock();
        match self.holds {
            Holds::Nothing => {}
            Holds::Dir(dir) => state.unlock_dir(dir),
            Holds::Names { dirs, .. } => state.unlock_dirs(dirs),
            Holds::Pages(Write { ino, .. }) => state.end_write(ino, self.write),
        }
        drop(state);
        self.invalidator.is_done(self.holds);
        self.invalidator.is_answered(self.holds);
    }
}
