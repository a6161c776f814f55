//! A segmented log of numbered entries and of one small state.
//!
//! **Model.** Entries have consecutive indexes, each with the term it was proposed in, a tag and a payload,
//! none of which mean anything here. Beside them the log keeps one state, a few bytes that are replaced as a
//! whole. An append may begin at an index that exists already: then everything from there on is void (a Raft
//! conflict). From the front, the log is truncated in whole segments.
//!
//! **Promises.** When [`RaftLog::append`] with `sync` returns, everything appended so far survives a crash:
//! one flush of the disk per call. After a crash, [`RaftLog::open`] finds a prefix of what was appended that
//! contains all of that. A torn tail of the last segment is cut off; damage anywhere else is refused with the
//! name of the file and the offset.
//!
//! **Failure.** After a failed write or flush the content of the disk is unknown. So the log is poisoned:
//! every further append is refused until it is opened again.
//!
//! **Files.** `segment-NUMBER` (16 hex digits), see [`format`](mod@format); `spare-NUMBER`, old segments for
//! reuse.

pub mod disk;
mod error;
mod format;
mod recover;
mod segment;

pub use error::LogError;

use crate::limits::*;
use bytes::Bytes;
use disk::Disk;
use format::{HEADER_BYTES, RecordHeader, RecordKind};
use segment::Segment;
use std::collections::VecDeque;
use std::path::Path;

/// How a log keeps its files.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// A new segment is begun when the last one has reached this size, in bytes.
    pub segment_bytes: u64,
    /// Old segments that are kept for reuse.
    pub spare_segments: usize,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { segment_bytes: SEGMENT_BYTES_DEFAULT, spare_segments: SPARE_SEGMENTS_MAX }
    }
}

/// An entry as it is appended and read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Its number.
    pub index: u64,
    /// The term it was proposed in.
    pub term: u64,
    /// The caller's mark.
    pub tag: u8,
    /// The caller's bytes.
    pub payload: Bytes,
}

/// The location of an entry on disk.
#[derive(Clone, Copy, Debug)]
struct EntryLocation {
    term: u64,
    segment: u64,
    offset: u32,
    len: u32,
}

/// The log of one replica. One thread owns it.
pub struct RaftLog {
    disk: Box<dyn Disk>,
    options: LogOptions,
    /// In file order; the last one is being written. Never empty.
    segments: VecDeque<Segment>,
    /// Entries after `base_index`, in order.
    locations: VecDeque<EntryLocation>,
    base_index: u64,
    base_term: u64,
    state: Vec<u8>,
    spares: Vec<String>,
    poisoned: Option<String>,
    scratch: Vec<u8>,
    syncs: u64,
}

impl RaftLog {
    /// Creates a log in an empty directory: no entries, as if all up to `base_index` had been truncated.
    pub fn create(
        dir: &Path,
        options: LogOptions,
        base_index: u64,
        base_term: u64,
        state: &[u8],
    ) -> Result<RaftLog, LogError> {
        let disk = disk::open(dir).map_err(LogError::io(".", "opening the directory"))?;
        RaftLog::create_on(disk, options, base_index, base_term, state)
    }

    /// [`create`](Self::create) on any disk.
    pub fn create_on(
        disk: Box<dyn Disk>,
        options: LogOptions,
        base_index: u64,
        base_term: u64,
        state: &[u8],
    ) -> Result<RaftLog, LogError> {
        if recover::has_segments(&*disk)? {
            return Err(LogError::Exists);
        }
        // An earlier attempt may have been cut off.
        let names = disk.list().map_err(LogError::io(".", "listing"))?;
        let spares = recover::collect_spares(&*disk, &names, options.spare_segments)?;
        let mut log = RaftLog {
            disk,
            options,
            segments: VecDeque::new(),
            locations: VecDeque::new(),
            base_index,
            base_term,
            state: state.to_vec(),
            spares,
            poisoned: None,
            scratch: Vec::new(),
            syncs: 0,
        };
        log.begin_segment(1, base_index, base_term)?;
        Ok(log)
    }

    /// Opens the log in a directory and cuts off a torn tail.
    pub fn open(dir: &Path, options: LogOptions) -> Result<RaftLog, LogError> {
        let disk = disk::open(dir).map_err(LogError::io(".", "opening the directory"))?;
        RaftLog::open_on(disk, options)
    }

    /// [`open`](Self::open) on any disk.
    pub fn open_on(disk: Box<dyn Disk>, options: LogOptions) -> Result<RaftLog, LogError> {
        recover::open(disk, options)
    }

    /// Whether there is a log in a directory.
    pub fn exists(dir: &Path) -> Result<bool, LogError> {
        match disk::open(dir) {
            Ok(disk) => recover::has_segments(&*disk),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(LogError::io(".", "opening the directory")(error)),
        }
    }

    /// Index of the first entry, or of the next one if the log is empty.
    pub fn first_index(&self) -> u64 {
        self.base_index + 1
    }

    /// Index of the last entry; one less than the first if there is none.
    pub fn last_index(&self) -> u64 {
        self.base_index + self.locations.len() as u64
    }

    /// Term of an entry, or of the one before the first.
    pub fn term(&self, index: u64) -> Option<u64> {
        if index == self.base_index {
            return Some(self.base_term);
        }
        self.location(index).map(|location| location.term)
    }

    /// The state.
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// Bytes of the log's segments, as far as they are written.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.end).sum()
    }

    /// Bytes that the log takes on its disk, reserved space and spare segments included.
    pub fn disk_bytes(&self) -> u64 {
        let reserved = self.options.segment_bytes;
        let living: u64 = self.segments.iter().map(|segment| segment.end.max(reserved)).sum();
        living + self.spares.len() as u64 * reserved
    }

    /// Bytes of records from an entry on, about: what a replay from there reads.
    pub fn bytes_since(&self, index: u64) -> u64 {
        let Some(location) = self.location(index.max(self.first_index())) else { return 0 };
        let whole = self.segments.iter().filter(|segment| segment.header.number >= location.segment);
        whole.map(|segment| segment.end).sum::<u64>().saturating_sub(u64::from(location.offset))
    }

    /// Flushes of the disk so far.
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Reads an entry, checked against its checksum.
    pub fn entry(&self, index: u64) -> Result<LogEntry, LogError> {
        let absent = || LogError::Absent { index, first: self.first_index(), last: self.last_index() };
        let location = *self.location(index).ok_or_else(absent)?;
        let segment = self
            .segments
            .iter()
            .rfind(|segment| segment.header.number == location.segment)
            .ok_or_else(absent)?;
        segment.read(index, u64::from(location.offset), location.len)
    }

    /// Appends entries and, if there is one, a new state, in this order. The first entry's index is at most
    /// one more than the last one's; existing entries from it on become void. With `sync`, all of it is
    /// durable when this returns.
    pub fn append(&mut self, entries: &[LogEntry], state: Option<&[u8]>, sync: bool) -> Result<(), LogError> {
        if let Some(why) = &self.poisoned {
            return Err(LogError::Poisoned(why.clone()));
        }
        self.check(entries, state)?;
        let result = self.write(entries, state, sync);
        if let Err(error) = &result {
            self.poisoned = Some(error.to_string());
        }
        result
    }

    /// Removes segments all of whose entries have indexes up to `index`.
    pub fn truncate_prefix(&mut self, index: u64) -> Result<(), LogError> {
        if let Some(why) = &self.poisoned {
            return Err(LogError::Poisoned(why.clone()));
        }
        let result = self.remove_segments(index);
        if let Err(error) = &result {
            self.poisoned = Some(error.to_string());
        }
        result
    }

    fn location(&self, index: u64) -> Option<&EntryLocation> {
        self.locations.get(usize::try_from(index.checked_sub(self.first_index())?).ok()?)
    }

    fn check(&self, entries: &[LogEntry], state: Option<&[u8]>) -> Result<(), LogError> {
        let invalid = |what: String| Err(LogError::Invalid { what });
        if let Some(first) = entries.first() {
            if first.index < self.first_index() || first.index > self.last_index() + 1 {
                return invalid(format!(
                    "entry {} to a log of {} to {}",
                    first.index,
                    self.first_index(),
                    self.last_index()
                ));
            }
            if let Some(pair) = entries.windows(2).find(|pair| pair[1].index != pair[0].index + 1) {
                return invalid(format!("entry {} behind {}", pair[1].index, pair[0].index));
            }
        }
        let longest = entries.iter().map(|entry| entry.payload.len()).max().unwrap_or(0);
        if longest.max(state.map_or(0, <[u8]>::len)) > RECORD_BYTES_MAX {
            return invalid(format!("a record of more than {RECORD_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    fn write(&mut self, entries: &[LogEntry], state: Option<&[u8]>, sync: bool) -> Result<(), LogError> {
        if let Some(first) = entries.first()
            && first.index <= self.last_index()
        {
            // A conflict begins a new segment, so that the entries of one segment are always consecutive.
            let term = self.term(first.index - 1).unwrap_or(self.base_term);
            self.truncate_after(first.index - 1);
            self.roll(term)?;
        }
        for entry in entries {
            self.make_room()?;
            let header = RecordHeader {
                kind: RecordKind::Entry,
                tag: entry.tag,
                index: entry.index,
                term: entry.term,
                durable: 0,
                len: entry.payload.len() as u32,
            };
            let (segment, offset) = self.put(header, &entry.payload)?;
            self.locations.push_back(EntryLocation {
                term: entry.term,
                segment,
                offset: offset as u32,
                len: header.len,
            });
        }
        if let Some(state) = state {
            self.make_room()?;
            self.state = state.to_vec();
            self.put_state()?;
        }
        self.write_out()?;
        if sync { self.sync_last() } else { Ok(()) }
    }

    fn put_state(&mut self) -> Result<(), LogError> {
        let state = std::mem::take(&mut self.state);
        let len = state.len() as u32;
        let header = RecordHeader { kind: RecordKind::State, tag: 0, index: 0, term: 0, durable: 0, len };
        let put = self.put(header, &state);
        self.state = state;
        put.map(|_| ())
    }

    /// Buffers a record and answers its segment and offset.
    fn put(&mut self, mut header: RecordHeader, payload: &[u8]) -> Result<(u64, u64), LogError> {
        let gathered = self.scratch.len() as u64;
        let segment = last(&mut self.segments)?;
        let offset = segment.end + gathered;
        header.durable = segment.durable;
        format::encode_record(&mut self.scratch, segment.header.salt, offset, &header, payload);
        let number = segment.header.number;
        if self.scratch.len() >= GATHER_BYTES {
            self.write_out()?;
        }
        Ok((number, offset))
    }

    fn write_out(&mut self) -> Result<(), LogError> {
        if self.scratch.is_empty() {
            return Ok(());
        }
        last(&mut self.segments)?.write(&self.scratch)?;
        self.scratch.clear();
        // One huge record must not keep its memory for good.
        self.scratch.shrink_to(2 * GATHER_BYTES);
        Ok(())
    }

    fn sync_last(&mut self) -> Result<(), LogError> {
        let segment = last(&mut self.segments)?;
        if segment.durable < segment.end {
            segment.sync()?;
            self.syncs += 1;
        }
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), LogError> {
        let end = last(&mut self.segments)?.end + self.scratch.len() as u64;
        if end < self.options.segment_bytes.max(HEADER_BYTES + 1) {
            return Ok(());
        }
        self.roll(self.term(self.last_index()).unwrap_or(self.base_term))
    }

    /// Completes the last segment and begins the next. Everything before it is durable from then on, so that
    /// only the last segment can ever be torn.
    fn roll(&mut self, base_term: u64) -> Result<(), LogError> {
        self.write_out()?;
        self.sync_last()?;
        let number = last(&mut self.segments)?.header.number + 1;
        self.begin_segment(number, self.last_index(), base_term)
    }

    fn begin_segment(&mut self, number: u64, base_index: u64, base_term: u64) -> Result<(), LogError> {
        let header = format::SegmentHeader { number, base_index, base_term, salt: segment::random_salt() };
        let spare = self.spares.pop();
        let segment = Segment::begin(&*self.disk, header, spare, self.options.segment_bytes)?;
        self.segments.push_back(segment);
        // Old segments are removed, so each begins with the state.
        self.put_state()?;
        self.write_out()?;
        self.sync_last()?;
        let name = segment::name(number);
        self.disk.rename(&segment::temporary_name(number), &name).map_err(LogError::io(&name, "renaming"))?;
        self.disk.sync().map_err(LogError::io(".", "flushing the directory"))?;
        self.syncs += 1;
        Ok(())
    }

    fn truncate_after(&mut self, index: u64) {
        self.locations.truncate(index.saturating_sub(self.base_index) as usize);
    }

    fn remove_segments(&mut self, index: u64) -> Result<(), LogError> {
        while self.segments.len() > 1 {
            let Some(first) = self.segments.front() else { break };
            let number = first.header.number;
            // Entries are in file order, so those of the first segment come first.
            let count = self.locations.partition_point(|location| location.segment <= number);
            let last_there = self.base_index + count as u64;
            if last_there > index {
                break;
            }
            if let Some(location) = count.checked_sub(1).and_then(|at| self.locations.get(at)) {
                self.base_term = location.term;
            }
            self.base_index = last_there;
            self.locations.drain(..count);
            self.segments.pop_front();
            self.retire(number)?;
        }
        Ok(())
    }

    fn retire(&mut self, number: u64) -> Result<(), LogError> {
        let name = segment::name(number);
        if self.spares.len() < self.options.spare_segments {
            let spare = segment::spare_name(number);
            self.disk.rename(&name, &spare).map_err(LogError::io(&name, "renaming"))?;
            self.spares.push(spare);
        } else {
            self.disk.remove(&name).map_err(LogError::io(&name, "removing"))?;
        }
        // One by one, so that a crash leaves no gap between the remaining segments.
        self.disk.sync().map_err(LogError::io(".", "flushing the directory"))
    }
}

fn last(segments: &mut VecDeque<Segment>) -> Result<&mut Segment, LogError> {
    segments.back_mut().ok_or(LogError::Missing)
}
