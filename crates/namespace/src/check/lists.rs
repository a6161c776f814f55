//! Sessions, what they hold, lists of work, and what the volume counts.

use super::{Check, Finding, Node, Phase};
use crate::keys::{self, Key, Singleton};
use crate::kv::{KvRead, StoreError};
use crate::records::{Counters, SessionRecord, VolumeRecord};
use shoal_types::{InodeId, SessionId};
use std::collections::BTreeSet;

impl<S: KvRead + ?Sized> Check<'_, S> {
    pub(super) fn lists(&mut self) -> Result<(), StoreError> {
        let counters = self.singletons()?;
        let sessions = self.sessions(counters)?;
        self.holds(&sessions)?;

        let mut expected = std::mem::take(&mut self.to_reap);
        self.work(&keys::all_reap(), &mut expected, "is to be taken apart, but lives or is not there")?;
        for ino in expected {
            self.found(Finding::Work {
                ino,
                what: "is dead, but not on the list of those to be taken apart",
            });
        }
        let mut expected = std::mem::take(&mut self.to_compact);
        self.work(&keys::compact_range(None), &mut expected, "is to be compacted, but needs it not")?;
        for ino in expected {
            self.found(Finding::Work {
                ino,
                what: "has many small extents, but is not on the list to compact",
            });
        }
        for range in keys::unused() {
            self.scan(Phase::Lists, &range, |_, _, _| {})?;
        }
        Ok(())
    }

    fn singletons(&mut self) -> Result<Option<Counters>, StoreError> {
        let layout = self.singleton::<u32>(Singleton::Layout)?;
        let known = keys::LAYOUT_OLDEST..=keys::LAYOUT_VERSION;
        if layout.is_some_and(|layout| !known.contains(&layout)) {
            self.damaged(&keys::singleton(Singleton::Layout), "the layout is unknown to this program");
        }
        if let Some(ino) = self.flagged.filter(|_| layout.is_some_and(|layout| layout < keys::LAYOUT_FLAGS)) {
            let what = "it has flags, which this layout of the store lacks".to_string();
            self.found(Finding::Inode { ino, what });
        }
        self.singleton::<VolumeRecord>(Singleton::Volume)?;
        self.scan(Phase::Lists, &keys::all_singletons(), |_, _, _| {})?;
        let Some(counters) = self.singleton::<Counters>(Singleton::Counters)? else { return Ok(None) };
        let found = self.nodes.len() as u64;
        if counters.inodes != found {
            self.found(Finding::Counter { what: "inodes", counted: counters.inodes, found });
        }
        let found = self.used_bytes;
        if counters.used_bytes != found {
            self.found(Finding::Counter { what: "bytes", counted: counters.used_bytes, found });
        }
        if let Some(last) = self.nodes.last().filter(|node| node.ino >= counters.next_inode) {
            let (ino, what) = (last.ino, "its number has not been granted yet".to_string());
            self.found(Finding::Inode { ino, what });
        }
        Ok(Some(counters))
    }

    fn sessions(&mut self, counters: Option<Counters>) -> Result<BTreeSet<SessionId>, StoreError> {
        let mut sessions = BTreeSet::new();
        self.scan(Phase::Lists, &keys::all_sessions(), |check, key, value| {
            let Some(record) = check.decode::<SessionRecord>(&key, value) else { return };
            let Key::Session(session) = key else { return };
            sessions.insert(session);
            let mut wrong = |what| check.found(Finding::Session { session, what });
            if let Some(counters) = counters {
                if session >= counters.next_session {
                    wrong("its number has not been given out yet");
                }
                let granted = |(first, count): &(u64, u64)| {
                    first.checked_add(*count).is_some_and(|end| end <= counters.next_inode.0)
                };
                if !record.inodes.iter().all(granted) {
                    wrong("it holds inode numbers that have not been granted");
                }
            }
            if !record.inodes.windows(2).all(|pair| matches!(pair, [a, b] if a.0 + a.1 <= b.0)) {
                wrong("its inode numbers are out of order");
            }
        })?;
        Ok(sessions)
    }

    /// Sessions' keys and inodes' records tell of the same holds, and what has no name is held.
    fn holds(&mut self, sessions: &BTreeSet<SessionId>) -> Result<(), StoreError> {
        let mut expected = std::mem::take(&mut self.held);
        let mut held: BTreeSet<InodeId> = expected.iter().map(|(_, ino)| *ino).collect();
        self.scan(Phase::Lists, &keys::all_holds(), |check, key, _| {
            let Key::Hold(session, ino) = key else { return };
            let mut wrong = |what| check.found(Finding::Hold { session, ino, what });
            if !sessions.contains(&session) {
                wrong("the session has ended");
            }
            let told = expected.remove(&(session, ino));
            match check.node(ino).map(|node| node.nlink) {
                None => check.found(Finding::Hold { session, ino, what: "the inode is not there" }),
                // The one key of an inode whose record does not tell, see `Life`.
                Some(0) if !told && held.insert(ino) => {}
                Some(_) if !told => {
                    check.found(Finding::Hold { session, ino, what: "the inode's record does not say so" });
                }
                Some(_) => {}
            }
        })?;
        for (session, ino) in expected {
            self.found(Finding::Hold { session, ino, what: "it is not on the session's list" });
        }
        let unheld = |node: &&Node| node.nlink == 0 && !held.contains(&node.ino);
        let lost: Vec<InodeId> = self.nodes.iter().filter(unheld).map(|node| node.ino).collect();
        for ino in lost {
            self.found(Finding::Lost { ino });
        }
        Ok(())
    }

    /// Compares a list of work with what ought to be on it; leaves what is missing.
    fn work(
        &mut self,
        range: &keys::KeyRange,
        expected: &mut BTreeSet<InodeId>,
        surplus: &'static str,
    ) -> Result<(), StoreError> {
        self.scan(Phase::Lists, range, |check, key, _| {
            let (Key::Reap(ino) | Key::Compact(ino)) = key else { return };
            if !expected.remove(&ino) {
                check.found(Finding::Work { ino, what: surplus });
            }
        })
    }
}
