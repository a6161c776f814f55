//! Calls that were refused with `ESTALE`. The kernel looks their names up again and comes back, but only once: what it will be told then has to be
//! right still when it is back. So nobody else gets to change these names in between, if that does not take too long.

use crate::limits::{RETRIES_MAX, RETRY_LOOKED_MAX, RETRY_WAIT_MAX};
use shoal_namespace::RenameFlags;
use shoal_runtime::time::Duration;
use shoal_types::{FileKind, InodeId, Name, Timestamp};
use shoal_wire::{Item, Recall};

/// What the kernel does with what it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    /// Nothing that has to do with the name.
    Finds,
    /// Removes it, if it is a directory's.
    Removes,
    /// Moves what the first stands for to the second.
    Renames(RenameFlags),
}

/// A call that was refused.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) names: Vec<(InodeId, Name)>,
    pub(super) then: Then,
    /// What is not given back before it is over.
    pub(super) keeps: Vec<InodeId>,
    /// When it was refused.
    pub(super) refused: Timestamp,
}

#[derive(Debug)]
struct Expected {
    retry: Retry,
    /// Which thread's.
    by: u32,
    /// What the kernel was told since of each name.
    told: Vec<Option<Option<FileKind>>>,
    /// When it was told the last of them.
    ready: Option<Timestamp>,
}

impl Expected {
    fn has_looked(&self) -> bool {
        self.told.iter().all(Option::is_some)
    }

    /// Whether the kernel does not come back with what it knows now.
    fn is_over(&self) -> bool {
        let is_directory =
            |at: usize| self.told[at].map(|found| found.map(|kind| kind == FileKind::Directory));
        match self.retry.then {
            Then::Finds => self.has_looked(),
            Then::Removes => matches!(is_directory(0), Some(None | Some(false))),
            Then::Renames(flags) => match (is_directory(0), is_directory(1)) {
                (Some(None), _) => true,
                (_, Some(None)) => flags.exchange,
                (Some(Some(one)), Some(Some(other))) => flags.no_replace || (one != other && !flags.exchange),
                _ => false,
            },
        }
    }

    /// For how long it may still be waited for.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        let until = |from: Timestamp, wait: Duration| {
            let gone = nanos(now).saturating_sub(nanos(from));
            // A clock that was set back says nothing.
            let gone = Duration::from_nanos(u64::try_from(gone).unwrap_or(u64::MAX));
            wait.checked_sub(gone).filter(|left| !left.is_zero())
        };
        let left = until(self.retry.refused, RETRY_WAIT_MAX)?;
        match self.ready {
            Some(ready) => until(ready, RETRY_LOOKED_MAX).map(|more| more.min(left)),
            None => Some(left),
        }
    }
}

fn nanos(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    /// The thread whose call is carried out, where that matters.
    pub(crate) by: u32,
    expected: Vec<Expected>,
    /// Something of it has changed.
    news: bool,
}

impl Retries {
    /// A call is refused.
    pub(super) fn expect(&mut self, retry: Retry) {
        if self.expected.len() >= RETRIES_MAX {
            self.expected.remove(0);
        }
        let told = vec![None; retry.names.len()];
        self.expected.push(Expected { retry, by: self.by, told, ready: None });
    }

    /// The kernel is told what a name stands for.
    pub(super) fn looked(&mut self, dir: InodeId, name: &Name, found: Option<FileKind>) {
        for Expected { retry, told, .. } in &mut self.expected {
            for ((of, what), told) in retry.names.iter().zip(told) {
                if *of == dir && what == name {
                    *told = Some(found);
                    self.news = true;
                }
            }
        }
        if self.news {
            self.expected.retain(|expected| !expected.is_over());
        }
    }

    /// A call about these names is carried out, or fails for another reason.
    pub(super) fn came_back(&mut self, names: &[(InodeId, &Name)]) {
        let is_it = |Expected { retry, by, .. }: &Expected| {
            let known = retry.names.iter().map(|(dir, name)| (*dir, name));
            *by == self.by && known.eq(names.iter().copied())
        };
        if let Some(at) = self.expected.iter().position(is_it) {
            self.expected.swap_remove(at);
            self.news = true;
        }
    }

    /// Whether those who wait have to look again.
    pub(crate) fn take_news(&mut self, now: impl FnOnce() -> Timestamp) -> bool {
        if !std::mem::take(&mut self.news) {
            return false;
        }
        let now = now();
        for expected in self.expected.iter_mut().filter(|expected| expected.has_looked()) {
            expected.ready.get_or_insert(now);
        }
        true
    }

    /// For how long this is not to be given back yet.
    pub(crate) fn keep(&mut self, recall: &Recall, now: Timestamp) -> Option<Duration> {
        self.expected.retain(|expected| expected.left(now).is_some());
        let wanted = |ino: &InodeId| {
            recall.items.iter().any(|item| match item {
                Item::Downgrade(of) | Item::Release(of) | Item::Drop { ino: of, .. } => of == ino,
            })
        };
        let kept = self.expected.iter().filter(|expected| expected.retry.keeps.iter().any(wanted));
        kept.filter_map(|expected| expected.left(now)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        Retry { names, then, keeps: vec![DIR], refused: at(0) }
    }

    #[test]
    fn nothing_is_given_back_before_whoever_was_refused_has_come_back() {
        let (mut retries, name) = (Retries::default(), Name::new("a").expect("a name"));
        for by in [1, 2] {
            retries.by = by;
            retries.expect(retry(&["a"], Then::Removes));
        }
        assert_eq!(retries.keep(&recall(OTHER), at(1)), None);
        assert!(retries.keep(&recall(DIR), at(1)).is_some());
        retries.by = 1;
        retries.came_back(&[(DIR, &name)]);
        assert!(retries.take_news(|| at(2)) && retries.keep(&recall(DIR), at(2)).is_some(), "two were");
        retries.came_back(&[(DIR, &name)]);
        retries.by = 2;
        retries.came_back(&[(OTHER, &name)]);
        assert!(!retries.take_news(|| at(2)));
        retries.came_back(&[(DIR, &name)]);
        assert!(retries.take_news(|| at(2)) && retries.keep(&recall(DIR), at(2)).is_none());
    }

    #[test]
    fn nobody_is_waited_for_long_who_does_not_come_back() {
        let (mut retries, name) = (Retries::default(), Name::new("a").expect("a name"));
        retries.expect(retry(&["a"], Then::Removes));
        assert_eq!(retries.keep(&recall(DIR), at(400)), Some(RETRY_WAIT_MAX - Duration::from_millis(400)));
        retries.looked(DIR, &name, Some(FileKind::Directory));
        assert!(retries.take_news(|| at(400)));
        assert_eq!(retries.keep(&recall(DIR), at(400)), Some(RETRY_LOOKED_MAX), "it has nothing else to do");
        assert_eq!(retries.keep(&recall(DIR), Timestamp { secs: 10, nanos: 0 }), None);
        assert!(retries.expected.is_empty());
    }

    #[test]
    fn nobody_is_waited_for_who_has_no_reason_to_come_back() {
        use FileKind::{Directory, Regular};
        let [one, other] = ["a", "b"].map(|name| Name::new(name).expect("a name"));
        let flags = |no_replace, exchange| Then::Renames(RenameFlags { no_replace, exchange });
        let comes = |then, found: [Option<FileKind>; 2]| {
            let mut retries = Retries::default();
            retries.expect(retry(if matches!(then, Then::Renames(_)) { &["a", "b"] } else { &["a"] }, then));
            retries.looked(OTHER, &one, None);
            assert!(retries.keep(&recall(DIR), at(1)).is_some());
            retries.looked(DIR, &one, found[0]);
            retries.looked(DIR, &other, found[1]);
            retries.keep(&recall(DIR), at(1)).is_some()
        };
        assert!(!comes(Then::Finds, [Some(Regular), None]));
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
