//! The state of invalidation: queued notifications, those that threads are sending, and the local requests
//! that may block them.

mod recent;
mod unflushable_pages;

use self::recent::Recent;
use super::already_invalidated::AlreadyInvalidated;
use super::append::Readers;
use super::getattr_inflight::GetattrsInFlight;
use super::page_baseline::PageBaselines;
use super::pages::Pages;
use crate::context::Write;
use crate::host::HostRef;
use crate::limits::{BLOCKED_AFTER, NAME_NOTIFIERS_MAX, NAME_PATIENCE};
use shoal_runtime::planted::mistake;
use shoal_runtime::time::Instant;
use shoal_types::{InodeId, Name};
use std::collections::{HashMap, VecDeque};

/// One notification to be sent.
#[derive(Clone, Debug)]
pub(super) enum Notice {
    Entry { dir: InodeId, name: Name },
    Node { ino: InodeId, pages: Pages },
}

/// A batch: the notifications that one caller waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct NotificationBatchId(u64);

/// A notification, and the batch that waits for it.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub batch: Option<NotificationBatchId>,
    pub notice: Notice,
}

#[derive(Debug)]
pub(super) struct NotificationBatch {
    /// Notifications that are not done.
    left: usize,
    /// The last time that one of them was done.
    progress: Instant,
    /// All names were outdated since the batch began.
    pub outdated: bool,
}

/// A notification that a thread is sending.
#[derive(Debug)]
struct Running {
    id: u64,
    task: Task,
    /// The thread id of the sender.
    tid: i32,
    since: Instant,
    /// The batch no longer waits for it.
    not_waited_for: bool,
    /// Parts of its pages have got notifications of their own.
    apart: bool,
}

#[derive(Debug)]
struct Writing {
    id: u64,
    pages: Pages,
    len: u64,
    /// Its pages were invalidated, or were to be, while it waited: they are invalidated once more when it has
    /// been carried out.
    late: bool,
    /// It has been carried out: pages read again after a later invalidation contain it.
    carried_out: bool,
}

/// Local changes that wait for a server, by the kernel locks that they hold.
#[derive(Default, Debug)]
struct WaitingChanges {
    /// Inodes, with the number of changes that hold the lock of each.
    dirs: HashMap<InodeId, usize>,
    /// Changes of names in two directories, which hold the file system's rename lock.
    moves: usize,
    writes: HashMap<InodeId, Vec<Writing>>,
    /// Memory owned by these writes, in bytes.
    write_bytes: u64,
}

#[derive(Default, Debug)]
pub(super) struct State {
    host: HostRef,
    waiting_changes: WaitingChanges,
    queue: VecDeque<Task>,
    running: Vec<Running>,
    batches: HashMap<NotificationBatchId, NotificationBatch>,
    recent: Recent,
    /// READ requests in flight.
    reads: HashMap<InodeId, Vec<Pages>>,
    pub readers: Readers,
    pub getattrs: GetattrsInFlight,
    pub already_invalidated: AlreadyInvalidated,
    pub page_baselines: PageBaselines,
    last_id: u64,
    pub threads: usize,
    pub idle: usize,
    pub ended: bool,
}

/// The next step of a notification thread.
#[derive(Debug)]
pub(super) enum Step {
    /// Send the notification, and then call [`State::done`] with the number.
    Tell(u64, Notice),
    /// Outdate all names, call [`State::outdated`] if a batch waits for that, and get the next step.
    Outdate(Option<NotificationBatchId>),
    /// The queue is empty.
    Idle,
}

impl State {
    /// Of a mount on this host.
    pub fn new(host: &HostRef) -> State {
        let getattrs = GetattrsInFlight::new(host);
        State { host: host.clone(), getattrs, ..State::default() }
    }

    fn id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    // --- local changes ---

    pub fn lock_dir(&mut self, dir: InodeId) {
        *self.waiting_changes.dirs.entry(dir).or_insert(0) += 1;
    }

    pub fn unlock_dir(&mut self, dir: InodeId) {
        if let Some(count) = self.waiting_changes.dirs.get_mut(&dir) {
            *count -= 1;
            if *count == 0 {
                self.waiting_changes.dirs.remove(&dir);
            }
        }
    }

    /// Locks the directories in which names are changed; both are equal if it is only one.
    pub fn lock_dirs(&mut self, dirs: [InodeId; 2]) {
        dirs.into_iter().for_each(|dir| self.lock_dir(dir));
        self.waiting_changes.moves += usize::from(dirs[0] != dirs[1]);
    }

    pub fn unlock_dirs(&mut self, dirs: [InodeId; 2]) {
        dirs.into_iter().for_each(|dir| self.unlock_dir(dir));
        self.waiting_changes.moves -= usize::from(dirs[0] != dirs[1]);
    }

    /// Whether a waiting change may hold an inode lock.
    pub fn is_any_locked(&self) -> bool {
        !self.waiting_changes.dirs.is_empty()
    }

    /// Whether the lock of a directory or the rename lock may be held: by a waiting change, or by a
    /// notification about a name of the directory.
    pub fn may_be_locked(&self, dir: InodeId) -> bool {
        let drops = |notice: &Notice| matches!(notice, Notice::Entry { dir: of, .. } if *of == dir);
        self.waiting_changes.moves > 0
            || self.waiting_changes.dirs.contains_key(&dir)
            || self.running.iter().any(|running| drops(&running.task.notice))
            || self.queue.iter().any(|task| drops(&task.notice))
    }

    /// A write begins to wait. Returns its number. The kernel may have sent the write before a recent
    /// invalidation of its pages; then they are invalidated again after it.
    pub fn begin_write(&mut self, Write { ino, offset, len }: Write) -> u64 {
        let (id, late) = (self.id(), self.recent.last(ino).is_some());
        let writing = Writing { id, pages: Pages::of_bytes(offset, len), len, late, carried_out: false };
        self.waiting_changes.write_bytes += len;
        self.waiting_changes.writes.entry(ino).or_default().push(writing);
        id
    }

    /// Memory owned by waiting writes, in bytes.
    pub fn write_bytes(&self) -> u64 {
        self.waiting_changes.write_bytes
    }

    /// A write was carried out. Returns the pages to invalidate once more before it is answered. `None`: it
    /// is answered next, and no longer in the way of invalidations. When the kernel has consumed the reply, a
    /// program may change the pages again before the answering thread runs; then they must be waited for.
    pub fn carried_out(&mut self, ino: InodeId, id: u64) -> Option<Pages> {
        let write = self.waiting_changes.writes.get_mut(&ino)?.iter_mut().find(|write| write.id == id)?;
        write.carried_out = true;
        let late = std::mem::take(&mut write.late) && !mistake("keep the pages of a write that waited");
        let late = late.then_some(write.pages);
        if late.is_none() {
            self.end_write(ino, id);
        }
        late
    }

    /// A write is answered next, or failed. Nothing is invalidated for it after that.
    pub fn end_write(&mut self, ino: InodeId, id: u64) {
        let Some(writes) = self.waiting_changes.writes.get_mut(&ino) else { return };
        let Some(at) = writes.iter().position(|write| write.id == id) else { return };
        self.waiting_changes.write_bytes -= writes.swap_remove(at).len;
        if writes.is_empty() {
            self.waiting_changes.writes.remove(&ino);
        }
    }

    // --- local reads ---

    pub fn begin_read(&mut self, ino: InodeId, pages: Pages, tid: u32) {
        if self.recent.last(ino).is_some() {
            self.readers.reads(ino, tid);
        }
        self.reads.entry(ino).or_default().push(pages);
    }

    pub fn end_read(&mut self, ino: InodeId, pages: Pages) {
        let Some(reads) = self.reads.get_mut(&ino) else { return };
        if let Some(at) = reads.iter().position(|read| *read == pages) {
            reads.swap_remove(at);
        }
        if reads.is_empty() {
            self.reads.remove(&ino);
        }
    }

    /// Whether a READ of the file is in flight.
    pub fn is_read(&self, ino: InodeId) -> bool {
        self.reads.contains_key(&ino)
    }

    /// Whether a READ of these pages is in flight. Then they may be filled with old content, and are not
    /// locked by a write.
    fn are_read(&self, ino: InodeId, pages: Pages) -> bool {
        self.reads.get(&ino).is_some_and(|reads| reads.iter().any(|read| read.overlaps(pages)))
    }

    // --- batches ---

    /// A thread is about to write its notification to the kernel: from now on it may be blocked there.
    pub fn goes_to_the_kernel(&mut self, id: u64) {
        if let Some(running) = self.running.iter_mut().find(|running| running.id == id) {
            running.since = Instant::now();
        }
    }

    /// The number of the last invalidation of an inode, if it was recent.
    pub fn last_invalidation(&self, ino: InodeId) -> Option<u64> {
        self.recent.last(ino)
    }

    /// Inodes are about to be invalidated.
    pub fn record_invalidations(&mut self, inodes: &[InodeId]) {
        inodes.iter().for_each(|ino| self.recent.note(*ino));
    }

    /// Queues notifications that the caller waits for.
    pub fn begin(&mut self, notices: impl ExactSizeIterator<Item = Notice>) -> NotificationBatchId {
        let batch = NotificationBatchId(self.id());
        let (left, progress) = (notices.len(), Instant::now());
        self.batches.insert(batch, NotificationBatch { left, progress, outdated: false });
        self.queue.extend(notices.map(|notice| Task { batch: Some(batch), notice }));
        batch
    }

    /// Queues notifications without a waiter.
    pub fn queue(&mut self, notices: impl Iterator<Item = Notice>) {
        self.queue.extend(notices.map(|notice| Task { batch: None, notice }));
    }

    /// Returns the number of notifications left of a batch and the time of its last progress, or `None` if it
    /// is finished.
    pub fn left(&mut self, batch: NotificationBatchId) -> Option<(usize, Instant)> {
        let NotificationBatch { left, progress, .. } = self.batches.get(&batch)?;
        if *left == 0 {
            self.batches.remove(&batch);
            return None;
        }
        Some((*left, *progress))
    }

    /// The caller no longer waits for a batch; its remaining notifications are sent nevertheless.
    pub fn abandon(&mut self, batch: NotificationBatchId) {
        self.batches.remove(&batch);
        for task in self.queue.iter_mut().filter(|task| task.batch == Some(batch)) {
            task.batch = None;
        }
    }

    fn count_done(&mut self, batch: Option<NotificationBatchId>, count: usize) {
        if let Some(batch) = batch.and_then(|batch| self.batches.get_mut(&batch)) {
            batch.left = batch.left.saturating_sub(count);
            batch.progress = Instant::now();
        }
    }

    fn is_outdated(&self, batch: Option<NotificationBatchId>) -> bool {
        batch.and_then(|batch| self.batches.get(&batch)).is_some_and(|batch| batch.outdated)
    }

    // --- threads ---

    /// Whether notifications are queued.
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether more notifications are queued than threads are idle.
    pub fn needs_thread(&self) -> bool {
        self.queue.len() > self.idle
    }

    /// Whether all threads have been sending for so long that they count as blocked.
    pub fn all_blocked(&self) -> bool {
        self.running.len() >= self.threads
            && self.running.iter().all(|running| running.since.elapsed() >= BLOCKED_AFTER)
    }

    /// The next step for the thread with this id.
    pub fn step(&mut self, tid: i32) -> Step {
        while let Some(task) = self.queue.pop_front() {
            match (&task.notice, task.batch) {
                (Notice::Entry { .. }, batch) if self.is_outdated(batch) => self.count_done(batch, 1),
                (Notice::Entry { dir, .. }, batch) if self.is_held(*dir) => {
                    if batch.is_some() {
                        self.queue.push_front(task);
                    }
                    return Step::Outdate(batch);
                }
                (Notice::Entry { .. }, _) => return self.run(task, tid),
                (Notice::Node { ino, pages }, _) => {
                    let parts = self.spare_writes(*ino, *pages);
                    if parts.len() > 1 {
                        self.replace(task.batch, *ino, parts);
                    } else if self.is_waited_for(*ino, *pages) {
                        self.count_done(task.batch, 1);
                    } else {
                        return self.run(task, tid);
                    }
                }
            }
        }
        Step::Idle
    }

    /// Whether an `INVAL_ENTRY` in a directory would block on its lock: a local change holds it, or another
    /// thread is already blocked on it. Also true when the bound of threads in `INVAL_ENTRY` is reached: the
    /// rest is kept for `INVAL_INODE`, for which local changes may be waiting.
    fn is_held(&self, dir: InodeId) -> bool {
        let mut names = 0;
        if mistake("wait for the lock of a directory") {
            return false;
        }
        self.waiting_changes.dirs.contains_key(&dir)
            || self.running.iter().any(|running| match &running.task.notice {
                Notice::Entry { dir: of, .. } => {
                    names += 1;
                    names >= NAME_NOTIFIERS_MAX || (running.not_waited_for && *of == dir)
                }
                Notice::Node { .. } => false,
            })
    }

    fn run(&mut self, task: Task, tid: i32) -> Step {
        let (id, notice) = (self.id(), task.notice.clone());
        let since = Instant::now();
        self.running.push(Running { id, task, tid, since, not_waited_for: false, apart: false });
        Step::Tell(id, notice)
    }

    /// All names were outdated: the batch waits for no `INVAL_ENTRY` any more.
    pub fn outdated(&mut self, id: NotificationBatchId) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        batch.outdated = true;
        let mut not_waited_for = 0;
        for running in self.running.iter_mut().filter(|running| running.task.batch == Some(id)) {
            if matches!(running.task.notice, Notice::Entry { .. }) && !running.not_waited_for {
                running.not_waited_for = true;
                not_waited_for += 1;
            }
        }
        self.count_done(Some(id), not_waited_for);
    }

    /// The notification was sent. Returns whether that was the last of a batch.
    pub fn done(&mut self, id: u64) -> bool {
        let Some(at) = self.running.iter().position(|running| running.id == id) else { return false };
        let running = self.running.swap_remove(at);
        if !running.not_waited_for {
            self.count_done(running.task.batch, 1);
        }
        let batch = running.task.batch.and_then(|batch| self.batches.get(&batch));
        batch.is_some_and(|batch| batch.left == 0)
    }

    // --- blocked notifications ---

    /// Whether a thread that is blocked by a local write already invalidates exactly these pages. One is
    /// enough: it invalidates them when they are unlocked, and a locked page cannot be read. Successive
    /// writes may unlock the pages for moments only, and each causes an invalidation of its own. False if no
    /// write is in flight: the pages may have been filled since, and the thread waits for something else.
    fn is_waited_for(&self, ino: InodeId, pages: Pages) -> bool {
        let writes = self.waiting_changes.writes.get(&ino).into_iter().flatten();
        writes.into_iter().any(|write| write.pages.overlaps(pages))
            && !self.are_read(ino, pages)
            && self.running.iter().any(|running| {
                running.not_waited_for
                    && !running.apart
                    && matches!(running.task.notice, Notice::Node { ino: of, pages: what } if of == ino && what == pages)
                    && self.host.is_blocked(running.tid)
            })
    }

    /// Marks the writes in flight to these pages for another invalidation afterwards, and splits the range
    /// around their pages.
    fn spare_writes(&mut self, ino: InodeId, pages: Pages) -> Vec<Pages> {
        let Some(writes) = self.waiting_changes.writes.get_mut(&ino) else { return vec![pages] };
        let mut touched = Vec::new();
        for write in writes.iter_mut().filter(|write| write.pages.overlaps(pages)) {
            write.late |= !write.carried_out;
            touched.push(write.pages);
        }
        pages.apart(touched)
    }

    /// Replaces a notification by notifications for parts of its pages.
    fn replace(&mut self, batch: Option<NotificationBatchId>, ino: InodeId, parts: Vec<Pages>) {
        if let Some(batch) = batch.and_then(|batch| self.batches.get_mut(&batch)) {
            batch.left += parts.len() - 1;
        }
        for pages in parts.into_iter().rev() {
            self.queue.push_front(Task { batch, notice: Notice::Node { ino, pages } });
        }
    }

    /// Stops waiting for notifications of a batch that local writes block. Returns whether an `INVAL_ENTRY`
    /// of it is blocked: then all names are to be outdated.
    pub fn unblock(&mut self, batch: NotificationBatchId) -> bool {
        let (mut names, mut nodes) = (false, Vec::new());
        for running in &self.running {
            if running.not_waited_for || running.task.batch != Some(batch) {
                continue;
            }
            let since = running.since.elapsed();
            match &running.task.notice {
                Notice::Entry { dir, .. } => {
                    names |= (since >= NAME_PATIENCE || self.waiting_changes.dirs.contains_key(dir))
                        && !mistake("wait for the lock of a directory");
                }
                Notice::Node { ino, pages } if since >= BLOCKED_AFTER => {
                    let writes = self.waiting_changes.writes.get(ino).into_iter().flatten();
                    let touched = writes.into_iter().any(|write| write.pages.overlaps(*pages));
                    if touched
                        && self.host.is_blocked(running.tid)
                        && !mistake("wait for pages that a write has locked")
                    {
                        nodes.push((running.id, *ino, *pages));
                    }
                }
                Notice::Node { .. } => {}
            }
        }
        for (id, ino, pages) in nodes {
            let parts = self.spare_writes(ino, pages);
            // A READ in flight may fill the pages with old content.
            if parts.len() == 1 && self.are_read(ino, pages) {
                continue;
            }
            if let Some(running) = self.running.iter_mut().find(|running| running.id == id) {
                (running.not_waited_for, running.apart) = (true, parts.len() > 1);
            }
            match parts {
                // The notification waits for a page that a write has locked. The page cannot be read before
                // it is filled with new content.
                parts if parts.len() == 1 => self.count_done(Some(batch), 1),
                parts => self.replace(Some(batch), ino, parts),
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::UNFLUSHABLE_AFTER;

    /// No thread has this id.
    const NO_THREAD: i32 = -1;
    const DIR: InodeId = InodeId(7);
    const FILE: InodeId = InodeId(8);

    fn entry(name: &str) -> Notice {
        Notice::Entry { dir: DIR, name: Name::try_from(name).expect("a name") }
    }

    fn node(ino: InodeId) -> Notice {
        Notice::Node { ino, pages: Pages::ALL }
    }

    fn told(step: Step) -> u64 {
        match step {
            Step::Tell(id, _) => id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn batch_ends_when_all_its_notifications_were_sent() {
        let mut state = State::default();
        let batch = state.begin([entry("a"), node(FILE)].into_iter());
        let (a, b) = (told(state.step(NO_THREAD)), told(state.step(NO_THREAD)));
        assert!(matches!(state.step(NO_THREAD), Step::Idle));
        state.done(b);
        assert_eq!(state.left(batch).map(|(left, _)| left), Some(1));
        assert!(!state.unblock(batch));
        state.done(a);
        assert!(state.left(batch).is_none());
    }

    #[test]
    fn names_in_a_locked_directory_are_outdated_together() {
        let mut state = State::default();
        let batch = state.begin([entry("a"), entry("b"), entry("c")].into_iter());
        let first = told(state.step(NO_THREAD));
        state.lock_dir(DIR);
        assert!(state.unblock(batch), "the first is blocked in the kernel");
        assert!(matches!(state.step(NO_THREAD), Step::Outdate(_)));
        state.outdated(batch);
        assert!(matches!(state.step(NO_THREAD), Step::Idle));
        assert!(state.left(batch).is_none());
        state.done(first);
        state.unlock_dir(DIR);
        let batch = state.begin([entry("a")].into_iter());
        told(state.step(NO_THREAD));
        assert!(!state.unblock(batch));
    }

    #[test]
    fn few_threads_wait_for_the_locks_of_directories() {
        let mut state = State::default();
        let name = |dir| Notice::Entry { dir: InodeId(dir), name: Name::try_from("a").expect("a name") };
        let batch = state.begin([name(1)].into_iter());
        let first = told(state.step(NO_THREAD));
        std::thread::sleep(NAME_PATIENCE);
        assert!(state.unblock(batch), "the lock is held by a thread without a request here");
        state.outdated(batch);
        assert!(state.left(batch).is_none());
        let again = state.begin([name(1), node(FILE)].into_iter());
        assert!(matches!(state.step(NO_THREAD), Step::Outdate(Some(_))), "another would wait as well");
        state.outdated(again);
        let told_node = told(state.step(NO_THREAD));
        state.done(told_node);
        assert!(state.left(again).is_none());
        // The most threads that may be blocked on directory locks are.
        for dir in 2..=NAME_NOTIFIERS_MAX as u64 {
            state.queue([name(dir)].into_iter());
            told(state.step(NO_THREAD));
        }
        state.queue([name(1000)].into_iter());
        assert!(matches!(state.step(NO_THREAD), Step::Outdate(None)));
        assert!(matches!(state.step(NO_THREAD), Step::Idle));
        state.done(first);
        state.queue([name(1)].into_iter());
        told(state.step(NO_THREAD));
    }

    #[test]
    fn a_write_that_comes_in_between_is_not_waited_for_and_followed_up() {
        let mut state = State::default();
        let batch = state.begin([node(FILE)].into_iter());
        let whole = told(state.step(NO_THREAD));
        let write = state.begin_write(Write { ino: FILE, offset: 4096, len: 4096 });
        std::thread::sleep(BLOCKED_AFTER);
        assert!(!state.unblock(batch));
        let parts = [told(state.step(NO_THREAD)), told(state.step(NO_THREAD)), told(state.step(NO_THREAD))];
        assert!(matches!(state.step(NO_THREAD), Step::Idle));
        state.done(parts[0]);
        state.done(parts[2]);
        assert_eq!(state.left(batch).map(|(left, _)| left), Some(1));
        std::thread::sleep(BLOCKED_AFTER);
        state.unblock(batch);
        assert!(state.left(batch).is_none());
        assert_eq!(state.carried_out(FILE, write), Some(Pages::of_bytes(4096, 4096)));
        let batch = state.begin([node(FILE)].into_iter());
        state.abandon(batch);
        // A thread already waits for the page of the write.
        let rest = [told(state.step(NO_THREAD)), told(state.step(NO_THREAD))];
        assert_eq!(state.carried_out(FILE, write), None);
        for id in rest {
            state.done(id);
        }
        for id in [whole, parts[1]] {
            state.done(id);
        }
        assert!(matches!(state.step(NO_THREAD), Step::Idle));
        assert_eq!(state.write_bytes(), 0);
    }

    #[test]
    fn one_thread_waits_for_a_locked_page_however_often_it_is_dropped() {
        let mut state = State::default();
        let write = state.begin_write(Write { ino: FILE, offset: 0, len: 1 });
        let page = Pages::of_bytes(0, 1);
        let notice = || [Notice::Node { ino: FILE, pages: page }].into_iter();
        let first = state.begin(notice());
        let blocked = told(state.step(NO_THREAD));
        std::thread::sleep(BLOCKED_AFTER);
        state.unblock(first);
        assert!(state.left(first).is_none(), "no caller waits for it");
        for _ in 0..3 {
            let batch = state.begin(notice());
            assert!(matches!(state.step(NO_THREAD), Step::Idle));
            assert!(state.left(batch).is_none());
        }
        assert_eq!(state.carried_out(FILE, write), Some(page));
        let last = state.begin(notice());
        assert!(matches!(state.step(NO_THREAD), Step::Idle));
        assert!(state.left(last).is_none());
        assert_eq!(state.carried_out(FILE, write), None, "pages invalidated later are filled with the write");
        state.done(blocked);
        let batch = state.begin(notice());
        told(state.step(NO_THREAD));
        assert!(state.left(batch).is_some());
    }

    #[test]
    fn pages_that_are_being_read_beside_a_write_are_waited_for() {
        let mut state = State::default();
        state.begin_write(Write { ino: FILE, offset: 0, len: 1 });
        let page = Pages::of_bytes(0, 1);
        state.begin_read(FILE, Pages::of_bytes(0, 8192), 1);
        state.begin_read(FILE, page, 1);
        let batch = state.begin([Notice::Node { ino: FILE, pages: page }].into_iter());
        let blocked = told(state.step(NO_THREAD));
        std::thread::sleep(BLOCKED_AFTER);
        for pages in [Pages::of_bytes(0, 8192), page] {
            state.unblock(batch);
            assert!(state.left(batch).is_some());
            state.end_read(FILE, pages);
        }
        state.begin_read(FILE, Pages::of_bytes(4096, 1), 1);
        state.unblock(batch);
        assert!(state.left(batch).is_none());
        state.end_read(FILE, Pages::of_bytes(4096, 1));
        state.done(blocked);
        assert!(state.reads.is_empty());
    }

    #[test]
    fn reads_elsewhere_in_a_file_do_not_hold_up_what_a_write_is_in_the_way_of() {
        let mut state = State::default();
        let batch = state.begin([node(FILE)].into_iter());
        let blocked = told(state.step(NO_THREAD));
        // The write and the read begin while the kernel is already invalidating the file.
        let [written, read] = [0, 1 << 20].map(|offset| Pages::of_bytes(offset, 1));
        state.begin_write(Write { ino: FILE, offset: 0, len: 1 });
        state.begin_read(FILE, read, 1);
        std::thread::sleep(BLOCKED_AFTER);
        assert!(!state.unblock(batch));
        let mut parts = Vec::new();
        while let Step::Tell(id, Notice::Node { pages, .. }) = state.step(NO_THREAD) {
            parts.push((id, pages));
        }
        assert!(parts.iter().any(|(_, pages)| *pages == written), "{parts:?}");
        assert!(parts.iter().any(|(_, pages)| pages.overlaps(read)), "it may read old content: {parts:?}");
        for (id, pages) in parts {
            assert!(state.left(batch).is_some());
            if pages != written {
                state.done(id);
            }
        }
        std::thread::sleep(BLOCKED_AFTER);
        state.unblock(batch);
        assert!(state.left(batch).is_none(), "no reader waits for pages that the write has locked");
        state.done(blocked);
    }

    #[test]
    fn pages_changed_again_after_a_write_was_answered_are_waited_for() {
        let mut state = State::default();
        let page = Pages::of_bytes(0, 1);
        let write = state.begin_write(Write { ino: FILE, offset: 0, len: 1 });
        assert_eq!(state.carried_out(FILE, write), None);
        // The reply is sent. A program has read and changed the page before this thread runs again.
        let batch = state.begin([Notice::Node { ino: FILE, pages: page }].into_iter());
        told(state.step(NO_THREAD));
        std::thread::sleep(BLOCKED_AFTER);
        state.unblock(batch);
        assert!(state.left(batch).is_some());
        state.end_write(FILE, write);
        assert_eq!(state.write_bytes(), 0);
    }

    #[test]
    fn write_sent_before_an_invalidation_has_its_pages_invalidated_again() {
        let mut state = State::default();
        state.record_invalidations(&[FILE]);
        let write = state.begin_write(Write { ino: FILE, offset: 0, len: 1 });
        assert_eq!(state.carried_out(FILE, write), Some(Pages::of_bytes(0, 1)));
        let other = state.begin_write(Write { ino: DIR, offset: 0, len: 1 });
        assert_eq!(state.carried_out(DIR, other), None);
    }

    #[test]
    fn pages_that_cannot_be_written_back_are_not_waited_for() {
        let mut state = State::default();
        let batch = state.begin([node(FILE)].into_iter());
        let blocked = told(state.step(NO_THREAD));
        std::thread::sleep(UNFLUSHABLE_AFTER);
        state.page_baselines.begin_write(FILE, Pages::ALL);
        state.page_baselines.end_write(FILE, Pages::ALL);
        assert_eq!(state.unflushable(), [], "the file is not being changed");
        state.lock_dir(FILE);
        assert_eq!(state.unflushable(), [FILE]);
        assert_eq!(state.blocked_invalidations(FILE), [(blocked, Pages::ALL)]);
        assert!(state.is_awaited(blocked));
        let changed = Pages::of_bytes(4096, 4096);
        state.stop_waiting_for_pages(blocked, &[changed]);
        assert!(!state.is_awaited(blocked));
        let parts: Vec<u64> = (0..2).map(|_| told(state.step(NO_THREAD))).collect();
        // Another invalidation of the file while the first is blocked: parts of the first have notifications
        // of their own.
        let again = state.begin([node(FILE)].into_iter());
        let second = told(state.step(NO_THREAD));
        for part in parts {
            state.done(part);
        }
        assert!(state.left(batch).is_none());
        assert!(state.left(again).is_some());
        state.stop_waiting_for_pages(second, &[Pages::ALL]);
        assert!(state.left(again).is_none());
        state.done(blocked);
        state.done(second);
        assert!(state.running.is_empty());
    }

    #[test]
    fn running_thread_is_not_blocked() {
        let host = HostRef::default();
        assert!(!host.is_blocked(nix::unistd::gettid().as_raw()));
        assert!(host.is_blocked(NO_THREAD));
    }

    #[test]
    fn write_to_another_file_does_not_end_the_wait_for_a_notification() {
        let mut state = State::default();
        state.begin_write(Write { ino: DIR, offset: 0, len: 1 });
        let batch = state.begin([node(FILE)].into_iter());
        let id = told(state.step(NO_THREAD));
        std::thread::sleep(BLOCKED_AFTER);
        state.unblock(batch);
        assert!(state.left(batch).is_some());
        state.done(id);
        assert!(state.left(batch).is_none());
    }

    #[test]
    fn notification_of_an_abandoned_batch_is_still_sent() {
        let mut state = State::default();
        let batch = state.begin([entry("a"), node(FILE)].into_iter());
        state.lock_dir(DIR);
        state.abandon(batch);
        assert!(state.left(batch).is_none());
        assert!(matches!(state.step(NO_THREAD), Step::Outdate(None)));
        let id = told(state.step(NO_THREAD));
        state.done(id);
        assert!(matches!(state.step(NO_THREAD), Step::Idle));
    }
}
