//! Calls that were refused with `ESTALE` and whose retry is expected.
//!
//! The kernel looks the names up again and retries the call once (`retry_estale`). The reply to the second
//! lookup must therefore still be valid when the retry arrives. So the second lookup is answered only when
//! the client has all rights that the retry needs. Recalls of these rights are delayed until the retry has
//! arrived, for a bounded time. From the second lookup on the thread holds the kernel's locks of these
//! directories, so no other program of this mount comes in between.
//!
//! Usually the rights are still there from the refused call: their recall is delayed from the refusal on. But
//! another program of this mount may get the kernel's lock first, and wait for rights of its own. Then
//! recalls are not delayed, because the clients that hold those rights may be waiting for this one.

use super::recall::subject;
use crate::limits::{
    RETRIES_MAX, RETRY_BESIDE_WAITERS_MAX, RETRY_GIVES_WAY_MAX, RETRY_KNOWN_MAX, RETRY_LOOKED_MAX,
    RETRY_WAIT_MAX,
};
use shoal_namespace::RenameFlags;
use shoal_runtime::time::Duration;
use shoal_types::{FileKind, InodeId, Name, Timestamp};
use shoal_wire::{MOVES, Recall};

/// The kernel's step after the second lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    /// Opens the file, or creates it if the name is free.
    Opens,
    /// Removes the directory. If the name does not lead to a directory, there is no retry.
    Removes,
    /// Renames the first name to the second.
    Renames(RenameFlags),
}

/// A call that was refused with `ESTALE`.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    pub(super) names: Vec<(InodeId, Name)>,
    pub(super) then: Then,
    /// Inodes whose recall is delayed until the retry has arrived.
    pub(super) keeps: Vec<InodeId>,
}

#[derive(Debug)]
struct Expected {
    retry: Retry,
    /// The thread that made the call.
    by: u32,
    /// When the refusal was first observed. The call itself may have begun long before.
    refused: Option<Timestamp>,
    /// For each name: the reply to the second lookup of it, if there was one.
    told: Vec<Option<Option<FileKind>>>,
    /// The second lookup has been answered, and the client has the rights for the retry.
    has_looked: bool,
    /// When that was first observed.
    looked: Option<Timestamp>,
    /// The number of times that its second lookup has waited for other threads.
    yielded: usize,
}

impl Expected {
    fn is_about(&self, dir: InodeId, name: &Name) -> bool {
        self.retry.names.iter().any(|(of, what)| *of == dir && what == name)
    }

    /// The directories that the kernel locks before the retry. They are among `keeps`. `MOVES` counts only
    /// for a rename between two directories: the kernel serializes these (`s_vfs_rename_mutex`).
    fn needs(&self) -> impl Iterator<Item = InodeId> {
        let Retry { names, keeps, .. } = &self.retry;
        let moves = names.iter().any(|(dir, _)| names.first().is_some_and(|(first, _)| first != dir));
        keeps.iter().copied().filter(move |ino| moves || *ino != MOVES)
    }

    /// Whether the kernel will not retry, given the replies to its lookups.
    fn is_over(&self) -> bool {
        let is_directory =
            |at: usize| self.told[at].map(|found| found.map(|kind| kind == FileKind::Directory));
        match self.retry.then {
            Then::Opens => matches!(is_directory(0), Some(Some(_))),
            Then::Removes => matches!(is_directory(0), Some(None | Some(false))),
            Then::Renames(flags) => match (is_directory(0), is_directory(1)) {
                (Some(None), _) => true,
                (_, Some(None)) => flags.exchange,
                (Some(Some(one)), Some(Some(other))) => flags.no_replace || (one != other && !flags.exchange),
                _ => false,
            },
        }
    }

    /// Whether a retry may still arrive.
    fn is_known(&self, now: Timestamp) -> bool {
        self.refused.is_none_or(|refused| left_of(RETRY_KNOWN_MAX, refused, now).is_some())
    }

    /// For how long recalls may still be delayed. `has_local_waiters`: threads of this mount wait for rights.
    fn left(&self, now: Timestamp, has_local_waiters: bool) -> Option<Duration> {
        let wait = |max| if has_local_waiters { RETRY_BESIDE_WAITERS_MAX } else { max };
        match self.looked {
            Some(looked) => left_of(wait(RETRY_LOOKED_MAX), looked, now),
            None => left_of(wait(RETRY_WAIT_MAX), self.refused.unwrap_or(now), now),
        }
    }
}

/// The time left at `now` of a wait that began at `from`; `None` if it is over.
pub(super) fn left_of(wait: Duration, from: Timestamp, now: Timestamp) -> Option<Duration> {
    let gone = nanos(now).saturating_sub(nanos(from));
    // If the clock was set back, the wait counts as just begun.
    let gone = Duration::from_nanos(u64::try_from(gone).unwrap_or(u64::MAX));
    wait.checked_sub(gone).filter(|left| !left.is_zero())
}

fn nanos(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// The id of all threads in another PID namespace: the kernel reports them as 0.
pub(crate) const UNKNOWN_THREAD: u32 = 0;

/// The expected retries of this mount.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    expected: Vec<Expected>,
    /// Directories in which threads of this mount wait for the right to change names, once for each wait.
    waited_for: Vec<InodeId>,
    /// The list has changed, so waiting recalls have to check it again.
    news: bool,
}

impl Retries {
    /// A call of thread `by` fails with `ESTALE`: its retry is expected from now on.
    pub(super) fn expect(&mut self, by: u32, retry: Retry) {
        // A thread makes one call at a time, so no retry of an earlier call is expected any more.
        self.expected.retain(|known| known.by != by || by == UNKNOWN_THREAD);
        if self.expected.len() >= RETRIES_MAX {
            self.expected.remove(0);
        }
        let told = vec![None; retry.names.len()];
        self.expected.push(Expected {
            retry,
            by,
            refused: None,
            told,
            has_looked: false,
            looked: None,
            yielded: 0,
        });
        self.news = true;
    }

    /// The refused call of thread `by` that has this name, if this lookup is its second one.
    pub(super) fn pending_retry(&self, by: u32, dir: InodeId, name: &Name) -> Option<&Retry> {
        let is_it = |expected: &&Expected| expected.by == by && expected.is_about(dir, name);
        self.expected.iter().rev().find(is_it).map(|expected| &expected.retry)
    }

    /// Whether the thread was refused and has not retried yet. Then each of its lookups belongs to a second
    /// walk.
    pub(super) fn expects_retry(&self, by: u32) -> bool {
        by != UNKNOWN_THREAD && self.expected.iter().any(|expected| expected.by == by)
    }

    /// The directories of the refused call to which this second lookup belongs.
    pub(crate) fn pending_retry_dirs(&self, by: u32, dir: InodeId, name: &Name) -> Option<Vec<InodeId>> {
        let retry = self.pending_retry(by, dir, name)?;
        Some(retry.names.iter().map(|(dir, _)| *dir).collect())
    }

    /// The second lookup is answered with `found`, and the client has all rights for the retry. From now on
    /// recalls of `keeps` are delayed.
    pub(super) fn second_lookup_answered(
        &mut self,
        by: u32,
        dir: InodeId,
        name: &Name,
        found: Option<FileKind>,
        keeps: &[InodeId],
    ) {
        for expected in &mut self.expected {
            if expected.by != by || !expected.is_about(dir, name) {
                continue;
            }
            let Expected { retry, told, .. } = &mut *expected;
            for ((of, what), told) in retry.names.iter().zip(told) {
                if *of == dir && what == name {
                    *told = Some(found);
                }
            }
            retry.keeps = keeps.to_vec();
            expected.has_looked = true;
            expected.looked = None;
            self.news = true;
        }
        if self.news {
            self.expected.retain(|expected| !expected.is_over());
        }
    }

    /// A call of thread `by` on these names is carried out, or fails with another error. A thread makes one
    /// call at a time, so its refused call is over.
    pub(super) fn retry_arrived(&mut self, by: u32, names: &[(InodeId, &Name)]) {
        let is_it = |expected: &Expected| {
            let known = expected.retry.names.iter().map(|(dir, name)| (*dir, name));
            expected.by == by && (by != UNKNOWN_THREAD || known.eq(names.iter().copied()))
        };
        if let Some(at) = self.expected.iter().position(is_it) {
            self.expected.swap_remove(at);
            self.news = true;
        }
    }

    /// Whether a second lookup must wait because threads of this mount wait for the right to change names in
    /// `subjects`. Those threads hold kernel locks that the retry needs, so they go first. After
    /// `RETRY_GIVES_WAY_MAX` times the lookup continues.
    pub(super) fn yields_to_waiters(
        &mut self,
        by: u32,
        dir: InodeId,
        name: &Name,
        subjects: &[InodeId],
    ) -> bool {
        if !self.are_waited_for(subjects) {
            return false;
        }
        let is_it = |expected: &&mut Expected| expected.by == by && expected.is_about(dir, name);
        let Some(expected) = self.expected.iter_mut().rev().find(is_it) else { return false };
        expected.yielded += 1;
        expected.yielded <= RETRY_GIVES_WAY_MAX
    }

    /// Whether threads of this mount wait for the right to change names in one of these directories.
    pub(crate) fn are_waited_for(&self, dirs: &[InodeId]) -> bool {
        dirs.iter().any(|dir| self.waited_for.contains(dir))
    }

    /// A thread of this mount begins to wait for the right to change names in these directories. It holds
    /// their inode locks, so a retry that needs these locks cannot arrive before. Returns whether retries are
    /// expected, so that waiting recalls have to check again.
    pub(crate) fn wait_for(&mut self, dirs: &[InodeId]) -> bool {
        self.waited_for.extend(dirs);
        !self.expected.is_empty()
    }

    /// A wait that [`wait_for`](Self::wait_for) recorded has ended. Returns whether retries are expected, so
    /// that waiting recalls have to check again.
    pub(crate) fn wait_ended(&mut self, dirs: &[InodeId]) -> bool {
        for dir in dirs {
            if let Some(at) = self.waited_for.iter().position(|waited| waited == dir) {
                self.waited_for.swap_remove(at);
            }
        }
        !self.expected.is_empty()
    }

    /// Whether waiting recalls have to check the list again. Sets the times of refusals and lookups since the
    /// last call.
    pub(crate) fn take_news(&mut self, now: impl FnOnce() -> Timestamp) -> bool {
        if !std::mem::take(&mut self.news) {
            return false;
        }
        let now = now();
        for expected in &mut self.expected {
            expected.refused.get_or_insert(now);
            if expected.has_looked {
                expected.looked.get_or_insert(now);
            }
        }
        true
    }

    /// For how long a recall has to be delayed; `None` if it can go on.
    pub(crate) fn keep(&mut self, recall: &Recall, now: Timestamp) -> Option<Duration> {
        self.expected.retain(|expected| expected.is_known(now));
        let wanted = |ino: &InodeId| recall.items.iter().any(|item| subject(item) == *ino);
        let is_held_up = |expected: &&Expected| expected.needs().any(|ino| self.waited_for.contains(&ino));
        let kept = self.expected.iter().filter(|expected| expected.retry.keeps.iter().any(wanted));
        let kept = kept.filter(|expected| !is_held_up(expected));
        kept.filter_map(|expected| expected.left(now, !self.waited_for.is_empty())).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_wire::Item;

    const DIR: InodeId = InodeId(7);
    const OTHER: InodeId = InodeId(8);

    fn at(ms: u32) -> Timestamp {
        Timestamp { secs: 9, nanos: ms * 1_000_000 }
    }

    fn recall(ino: InodeId) -> Recall {
        Recall { id: 1, after: Vec::new(), items: vec![Item::Release(ino)] }
    }

    fn retry(names: &[&str], then: Then) -> Retry {
        let names = names.iter().map(|name| (DIR, Name::try_from(*name).expect("a name"))).collect();
        Retry { names, then, keeps: vec![DIR] }
    }

    fn refuse(retries: &mut Retries, by: u32, retry: Retry) {
        retries.expect(by, retry);
        assert!(retries.take_news(|| at(0)));
    }

    #[test]
    fn recall_is_delayed_until_the_refused_thread_has_retried() {
        let (mut retries, name) = (Retries::default(), Name::new("a").expect("a name"));
        for by in [1, 2] {
            refuse(&mut retries, by, retry(&["a"], Then::Removes));
        }
        assert_eq!(retries.keep(&recall(OTHER), at(1)), None);
        assert!(retries.keep(&recall(DIR), at(1)).is_some());
        retries.retry_arrived(1, &[(DIR, &name)]);
        assert!(retries.take_news(|| at(2)) && retries.keep(&recall(DIR), at(2)).is_some(), "thread 2");
        retries.retry_arrived(1, &[(DIR, &name)]);
        retries.retry_arrived(3, &[(DIR, &name)]);
        assert!(!retries.take_news(|| at(2)), "another thread");
        retries.retry_arrived(2, &[(OTHER, &name)]);
        assert!(retries.take_news(|| at(2)) && retries.keep(&recall(DIR), at(2)).is_none());
    }

    #[test]
    fn delay_for_a_thread_that_does_not_retry_is_bounded() {
        let (mut retries, name) = (Retries::default(), Name::new("a").expect("a name"));
        refuse(&mut retries, 1, retry(&["a"], Then::Removes));
        assert_eq!(retries.keep(&recall(DIR), at(400)), Some(RETRY_WAIT_MAX - Duration::from_millis(400)));
        assert_eq!(retries.keep(&recall(DIR), at(500)), None);
        // The thread has waited for other threads, and makes its second lookup now.
        assert!(
            retries.pending_retry(2, DIR, &name).is_none()
                && retries.pending_retry(1, OTHER, &name).is_none()
        );
        assert!(retries.pending_retry(1, DIR, &name).is_some());
        retries.second_lookup_answered(2, DIR, &name, None, &[DIR]);
        assert!(!retries.take_news(|| at(600)), "another thread has looked");
        retries.second_lookup_answered(1, DIR, &name, Some(FileKind::Directory), &[DIR, OTHER]);
        assert!(retries.take_news(|| at(600)));
        assert_eq!(
            retries.keep(&recall(OTHER), at(600)),
            Some(RETRY_LOOKED_MAX),
            "the wait begins with the second lookup"
        );
        assert_eq!(retries.keep(&recall(DIR), Timestamp { secs: 10, nanos: 100_000_000 }), None);
        assert_eq!(retries.keep(&recall(DIR), Timestamp { secs: 19, nanos: 0 }), None);
        assert!(retries.pending_retry(1, DIR, &name).is_none(), "the refusal has expired");
    }

    #[test]
    fn wait_for_a_retry_is_counted_from_the_refusal() {
        let (mut retries, name) = (Retries::default(), Name::new("a").expect("a name"));
        let later = Timestamp { secs: 100, nanos: 0 };
        for noticed in [false, true] {
            retries.expect(1, retry(&["a"], Then::Removes));
            assert!(!noticed || retries.take_news(|| later));
            assert_eq!(retries.keep(&recall(DIR), later), Some(RETRY_WAIT_MAX));
            assert!(retries.pending_retry(1, DIR, &name).is_some());
        }
    }

    #[test]
    fn refusal_of_a_thread_ends_the_expectation_of_its_earlier_retry() {
        let [one, other] = ["a", "b"].map(|name| Name::new(name).expect("a name"));
        for by in [UNKNOWN_THREAD, 1] {
            let mut retries = Retries::default();
            refuse(&mut retries, by, retry(&["a"], Then::Removes));
            refuse(&mut retries, by, retry(&["b"], Then::Removes));
            assert_eq!(retries.pending_retry(by, DIR, &one).is_some(), by == UNKNOWN_THREAD);
            assert!(retries.pending_retry(by, DIR, &other).is_some());
            retries.retry_arrived(by, &[(OTHER, &one)]);
            assert_eq!(retries.pending_retry(by, DIR, &other).is_some(), by == UNKNOWN_THREAD);
        }
    }

    #[test]
    fn recall_is_not_delayed_while_waiters_hold_the_lock_of_the_retry() {
        let mut retries = Retries::default();
        assert!(!retries.wait_for(&[DIR, DIR]));
        refuse(&mut retries, UNKNOWN_THREAD, retry(&["a"], Then::Removes));
        assert_eq!(retries.keep(&recall(DIR), at(1)), None, "other threads hold the directory's lock");
        retries.wait_ended(&[DIR]);
        assert!(retries.wait_for(&[OTHER]) && retries.keep(&recall(DIR), at(1)).is_none());
        retries.wait_ended(&[DIR]);
        assert!(retries.keep(&recall(DIR), at(1)).is_some());
    }

    #[test]
    fn retry_of_a_move_between_directories_is_not_expected_while_another_move_waits() {
        let mut retries = Retries::default();
        let names = |dirs: [InodeId; 2]| dirs.map(|dir| (dir, Name::try_from("a").expect("a name"))).to_vec();
        let then = Then::Renames(RenameFlags { no_replace: false, exchange: false });
        for (dirs, is_move) in [([DIR, DIR], false), ([DIR, OTHER], true)] {
            refuse(&mut retries, 1, Retry { names: names(dirs), then, keeps: vec![DIR, OTHER, MOVES] });
            retries.wait_for(&[InodeId(100), InodeId(101), MOVES]);
            assert_eq!(retries.keep(&recall(DIR), at(1)).is_none(), is_move);
            retries.wait_ended(&[InodeId(100), InodeId(101), MOVES]);
            assert!(retries.keep(&recall(DIR), at(1)).is_some());
        }
    }

    #[test]
    fn second_lookup_waits_for_threads_that_hold_the_lock_it_needs() {
        let (mut retries, name) = (Retries::default(), Name::new("a").expect("a name"));
        // A directory that is about to be removed.
        let removed = OTHER;
        refuse(&mut retries, 1, Retry { keeps: vec![DIR, removed], ..retry(&["a"], Then::Removes) });
        assert!(!retries.yields_to_waiters(1, DIR, &name, &[removed]), "no thread waits");
        assert!(retries.wait_for(&[removed]) && retries.are_waited_for(&[DIR, removed]));
        assert_eq!(retries.keep(&recall(DIR), at(1)), None, "the waiters hold the lock that the retry needs");
        assert!(!retries.yields_to_waiters(2, DIR, &name, &[removed]), "another thread");
        for _ in 0..RETRY_GIVES_WAY_MAX {
            assert!(retries.yields_to_waiters(1, DIR, &name, &[removed]));
        }
        assert!(!retries.yields_to_waiters(1, DIR, &name, &[removed]), "the number of times is bounded");
        assert!(retries.wait_ended(&[removed]) && !retries.are_waited_for(&[removed]));
        assert!(retries.keep(&recall(DIR), at(1)).is_some());
    }

    #[test]
    fn recall_is_not_delayed_if_the_second_lookup_rules_out_a_retry() {
        use FileKind::{Directory, Regular};
        let [one, other] = ["a", "b"].map(|name| Name::new(name).expect("a name"));
        let flags = |no_replace, exchange| Then::Renames(RenameFlags { no_replace, exchange });
        let comes = |then, found: [Option<FileKind>; 2]| {
            let mut retries = Retries::default();
            retries.expect(
                UNKNOWN_THREAD,
                retry(if matches!(then, Then::Renames(_)) { &["a", "b"] } else { &["a"] }, then),
            );
            retries.second_lookup_answered(0, OTHER, &one, None, &[DIR]);
            assert!(retries.keep(&recall(DIR), at(1)).is_some());
            retries.second_lookup_answered(0, DIR, &one, found[0], &[DIR]);
            retries.second_lookup_answered(0, DIR, &other, found[1], &[DIR]);
            retries.keep(&recall(DIR), at(1)).is_some()
        };
        assert!(!comes(Then::Opens, [Some(Regular), None]) && comes(Then::Opens, [None, None]));
        assert!(comes(Then::Removes, [Some(Directory), None]));
        assert!(!comes(Then::Removes, [Some(Regular), None]) && !comes(Then::Removes, [None, None]));
        let replace = flags(false, false);
        assert!(comes(replace, [Some(Directory); 2]) && comes(replace, [Some(Directory), None]));
        assert!(
            !comes(replace, [Some(Directory), Some(Regular)]) && !comes(replace, [None, Some(Directory)])
        );
        assert!(comes(flags(false, true), [Some(Directory), Some(Regular)]));
        assert!(!comes(flags(false, true), [Some(Directory), None]));
        assert!(comes(flags(true, false), [Some(Directory), None]));
        assert!(!comes(flags(true, false), [Some(Directory); 2]));
    }
}
