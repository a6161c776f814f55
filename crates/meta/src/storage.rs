//! The Raft log, as the `raft` crate's storage trait.
//!
//! An entry's payload is its context and its data; its type is the tag. The log has one state record, with
//! Raft's hard state and the group's members.

use crate::limits::{LOG_CACHE_BYTES, LOG_CACHE_MEMORY_PART};
use bytes::Bytes;
use prost::Message;
use raft::prelude::*;
use raft::{GetEntriesContext, RaftState, Storage, StorageError};
use shoal_runtime::budget::{Share, Use, of_process};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::Mutex;
use shoal_store::{LogEntry, LogError, RaftLog};
use std::collections::{BTreeSet, VecDeque};

/// The Raft log, with the values that Raft reads often.
pub(crate) struct LogStorage {
    pub(crate) log: RaftLog,
    hard: HardState,
    conf: ConfState,
    /// The newest entries, consecutive: they are about to be applied.
    recent: VecDeque<Entry>,
    recent_memory: Share,
    /// Replicas that lack entries which are not in the log any more.
    behind: Mutex<BTreeSet<u64>>,
}

/// Version of the encoding of that state.
const STATE_VERSION: u8 = 1;

/// Members and hard state of a new group.
pub(crate) fn first_state(voters: Vec<u64>) -> Vec<u8> {
    let conf = ConfState { voters, ..ConfState::default() };
    encode_state(&HardState::default(), &conf)
}

pub(crate) fn encode_state(hard: &HardState, conf: &ConfState) -> Vec<u8> {
    let mut out = vec![STATE_VERSION];
    hard.encode_length_delimited(&mut out).expect("memory does not fail");
    conf.encode_length_delimited(&mut out).expect("memory does not fail");
    out
}

pub(crate) fn decode_state(state: &[u8]) -> Result<(HardState, ConfState), String> {
    let (version, mut rest) = state.split_first().ok_or("it is empty")?;
    if *version != STATE_VERSION {
        return Err(format!("version {version} is unknown to this program, which knows {STATE_VERSION}"));
    }
    let hard = HardState::decode_length_delimited(&mut rest).map_err(|error| error.to_string())?;
    let conf = ConfState::decode_length_delimited(&mut rest).map_err(|error| error.to_string())?;
    Ok((hard, conf))
}

/// Splits a log entry's payload into context and data.
pub(crate) fn split(payload: &Bytes) -> Option<(Bytes, Bytes)> {
    let len = usize::from(*payload.first()?);
    (payload.len() > len).then(|| (payload.slice(1..=len), payload.slice(1 + len..)))
}

fn to_log(entry: &Entry) -> LogEntry {
    let mut payload = Vec::with_capacity(1 + entry.context.len() + entry.data.len());
    payload.push(u8::try_from(entry.context.len()).expect("contexts are 16 bytes"));
    payload.extend_from_slice(&entry.context);
    payload.extend_from_slice(&entry.data);
    LogEntry { index: entry.index, term: entry.term, tag: entry.entry_type as u8, payload: payload.into() }
}

pub(crate) fn from_log(entry: LogEntry) -> raft::Result<Entry> {
    let (context, data) = split(&entry.payload).ok_or_else(|| other("an entry without context"))?;
    Ok(Entry {
        entry_type: i32::from(entry.tag),
        index: entry.index,
        term: entry.term,
        context: context.to_vec(),
        data: data.to_vec(),
        ..Entry::default()
    })
}

fn other(what: impl ToString) -> raft::Error {
    raft::Error::Store(StorageError::Other(what.to_string().into()))
}

impl LogStorage {
    /// Opens Raft's view of a log; `applied` is the store's last entry, `members` the group as of then, if
    /// that has ever changed.
    pub(crate) fn new(log: RaftLog, applied: u64, members: Option<ConfState>) -> Result<LogStorage, String> {
        let (mut hard, founders) =
            decode_state(log.state()).map_err(|error| format!("the log's state is damaged: {error}"))?;
        // What was applied was committed, whether or not the log recorded it.
        hard.commit = hard.commit.max(applied);
        if applied > log.last_index() || applied < log.first_index() - 1 {
            return Err(format!(
                "the store is at entry {applied}, but the log holds {} to {}: they do not belong together",
                log.first_index(),
                log.last_index()
            ));
        }
        let conf = members.unwrap_or(founders);
        let behind = Mutex::default();
        Ok(LogStorage {
            log,
            hard,
            conf,
            recent: VecDeque::new(),
            recent_memory: of_process().share(Use::Store),
            behind,
        })
    }

    /// The members with a vote.
    pub(crate) fn voters(&self) -> &[u64] {
        &self.conf.voters
    }

    /// The members, as of when the log was opened.
    pub(crate) fn members(&self) -> ConfState {
        self.conf.clone()
    }

    /// The last committed index, as far as the log recorded it.
    pub(crate) fn committed(&self) -> u64 {
        self.hard.commit
    }

    /// Takes the replicas that lacked truncated entries, since the last call.
    pub(crate) fn take_behind(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.behind.lock())
    }

    /// Makes entries and hard state durable, in one flush.
    pub(crate) fn persist(
        &mut self,
        entries: Vec<Entry>,
        hard: Option<&HardState>,
        sync: bool,
    ) -> Result<(), LogError> {
        let forgets = entries.is_empty() && mistake("forget the vote");
        let state = hard.filter(|_| !forgets).map(|hard| {
            self.hard = hard.clone();
            encode_state(&self.hard, &self.conf)
        });
        let records: Vec<LogEntry> = entries.iter().map(to_log).collect();
        self.log.append(&records, state.as_deref(), sync)?;
        if let Some(first) = entries.first() {
            while self.recent.back().is_some_and(|last| last.index >= first.index) {
                self.forget(|recent| recent.pop_back());
            }
            self.recent_memory.grow(entries.iter().map(|entry| entry.data.len()).sum());
            self.recent.extend(entries);
            let bytes_max = LOG_CACHE_BYTES.min(of_process().limit() / LOG_CACHE_MEMORY_PART);
            while self.recent_memory.bytes() > bytes_max {
                self.forget(|recent| recent.pop_front());
            }
        }
        Ok(())
    }

    fn forget(&mut self, pop: impl FnOnce(&mut VecDeque<Entry>) -> Option<Entry>) {
        if let Some(entry) = pop(&mut self.recent) {
            self.recent_memory.shrink(entry.data.len());
        }
    }

    /// Entries up to `index` have been applied and need not be in memory.
    pub(crate) fn applied(&mut self, index: u64) {
        while self.recent.front().is_some_and(|first| first.index <= index) {
            self.forget(|recent| recent.pop_front());
        }
    }

    fn entry(&self, index: u64) -> raft::Result<Entry> {
        if let Some(first) = self.recent.front()
            && let Some(at) = index.checked_sub(first.index)
            && let Some(entry) = self.recent.get(at as usize)
        {
            return Ok(entry.clone());
        }
        from_log(self.log.entry(index).map_err(other)?)
    }
}

impl Storage for LogStorage {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.log.first_index() {
            return Err(raft::Error::Store(StorageError::Compacted));
        }
        let max = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let mut entries = Vec::new();
        for index in low..high {
            let entry = self.entry(index)?;
            bytes += entry.encoded_len() as u64;
            if bytes > max && !entries.is_empty() {
                break;
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.log.term(index) {
            Some(term) => Ok(term),
            None if index < self.log.first_index() => Err(raft::Error::Store(StorageError::Compacted)),
            None => Err(raft::Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.log.first_index())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.log.last_index())
    }

    /// Raft's own snapshots are not used: a replica that is behind is told to fetch the state, and Raft
    /// retries until the log reaches back far enough.
    fn snapshot(&self, _request_index: u64, to: u64) -> raft::Result<Snapshot> {
        self.behind.lock().insert(to);
        Err(raft::Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_store::LogOptions;
    use std::path::Path;

    fn storage(dir: &Path) -> LogStorage {
        let log = RaftLog::create(dir, LogOptions::default(), 0, 0, &first_state(vec![1])).expect("create");
        LogStorage::new(log, 0, None).expect("storage")
    }

    fn entry(index: u64, len: usize) -> Entry {
        Entry { index, term: 2, data: vec![index as u8; len], context: vec![7; 16], ..Entry::default() }
    }

    fn read(
        storage: &LogStorage,
        low: u64,
        high: u64,
        max: impl Into<Option<u64>>,
    ) -> raft::Result<Vec<Entry>> {
        storage.entries(low, high, max, GetEntriesContext::empty(false))
    }

    #[test]
    fn entries_come_back_alike_from_memory_and_from_the_log() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut storage = storage(dir.path());
        // As the first entry of a new leader.
        let empty = Entry { index: 2, term: 2, ..Entry::default() };
        let written = vec![entry(1, 10), empty, entry(3, 5000)];
        let hard = HardState { term: 2, vote: 1, commit: 1 };
        storage.persist(written.clone(), Some(&hard), true).expect("persist");
        assert_eq!(read(&storage, 1, 4, None), Ok(written.clone()));
        storage.applied(3);
        assert_eq!(read(&storage, 1, 4, None), Ok(written.clone()));
        drop(storage);
        let log = RaftLog::open(dir.path(), LogOptions::default()).expect("open");
        let storage = LogStorage::new(log, 3, None).expect("storage");
        assert_eq!(read(&storage, 1, 4, None), Ok(written));
        let state = storage.initial_state().expect("state");
        assert_eq!(state.hard_state, HardState { commit: 3, ..hard }, "what was applied is committed");
        assert_eq!(state.conf_state.voters, [1]);
    }

    #[test]
    fn replacing_entries_are_read_and_replaced_ones_are_not() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut storage = storage(dir.path());
        storage.persist((1..=5).map(|index| entry(index, 10)).collect(), None, true).expect("persist");
        let newer = Entry { term: 3, ..entry(3, 20) };
        storage.persist(vec![newer.clone()], None, true).expect("persist");
        assert_eq!(storage.last_index(), Ok(3));
        assert_eq!(read(&storage, 2, 4, None), Ok(vec![entry(2, 10), newer]));
        assert_eq!((storage.term(2), storage.term(3)), (Ok(2), Ok(3)));
    }

    #[test]
    fn a_page_of_entries_has_at_least_one_and_respects_its_size() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut storage = storage(dir.path());
        storage.persist((1..10).map(|index| entry(index, 1000)).collect(), None, true).expect("persist");
        let page = |low, high, size: u64| read(&storage, low, high, size).expect("read").len();
        assert_eq!((page(2, 10, 0), page(2, 10, 2100), page(5, 7, 1 << 20)), (1, 2, 2));
    }

    #[test]
    fn truncated_entries_are_compacted_and_entries_behind_the_end_unavailable() {
        let dir = tempfile::tempdir().expect("tempdir");
        let log =
            RaftLog::create(dir.path(), LogOptions::default(), 7, 2, &first_state(vec![1])).expect("create");
        assert!(LogStorage::new(log, 6, None).is_err(), "a store that is behind the log");
        let log = RaftLog::open(dir.path(), LogOptions::default()).expect("open");
        assert!(LogStorage::new(log, 8, None).is_err(), "a store that is ahead of the log");
        let log = RaftLog::open(dir.path(), LogOptions::default()).expect("open");
        let storage = LogStorage::new(log, 7, None).expect("storage");
        assert_eq!(read(&storage, 7, 8, None), Err(StorageError::Compacted.into()));
        assert_eq!((storage.term(6), storage.term(7)), (Err(StorageError::Compacted.into()), Ok(2)));
        assert_eq!(storage.term(8), Err(StorageError::Unavailable.into()));
        assert_eq!((storage.first_index(), storage.last_index()), (Ok(8), Ok(7)));
    }

    #[test]
    fn a_damaged_state_is_refused() {
        let good = first_state(vec![1]);
        assert!(decode_state(&good).is_ok());
        for cut in 0..good.len() {
            assert!(decode_state(&good[..cut]).is_err(), "cut at {cut}");
        }
        let mut newer = good;
        newer[0] = 2;
        assert!(decode_state(&newer).is_err_and(|why| why.contains("version 2")));
    }
}
