//! Opening a log after a crash or a shutdown.
//!
//! Segments are read in the order of their numbers and checked record by record. A segment begins under a
//! temporary name. It gets its own only when its header and state are durable, and the previous segment is
//! durable by then. So every segment but the last is intact to its end, and of the last only the tail after
//! its last flush may be torn.

use super::disk::{Disk, DiskFile};
use super::error::LogError;
use super::format::{self, HEADER_BYTES, RecordHeader, RecordKind, SegmentHeader};
use super::segment::{self, Segment};
use super::{EntryLocation, LogOptions, RaftLog};
use shoal_runtime::planted::mistake;
use std::collections::VecDeque;

/// Whether there are segments on the disk.
pub fn has_segments(disk: &dyn Disk) -> Result<bool, LogError> {
    let names = disk.list().map_err(LogError::io(".", "listing"))?;
    Ok(names.iter().any(|name| segment::number_of(name, "segment-").is_some()))
}

/// Opens the log.
pub fn open(disk: Box<dyn Disk>, options: LogOptions) -> Result<RaftLog, LogError> {
    let names = disk.list().map_err(LogError::io(".", "listing"))?;
    let mut numbers: Vec<u64> =
        names.iter().filter_map(|name| segment::number_of(name, "segment-")).collect();
    numbers.sort_unstable();
    let (Some(&first), Some(&newest)) = (numbers.first(), numbers.last()) else {
        return Err(LogError::Missing);
    };
    if let Some(gap) = (first..=newest).zip(&numbers).find(|(expected, found)| expected != *found) {
        return Err(LogError::Damaged {
            file: segment::name(gap.0),
            offset: 0,
            what: "the segment is missing between others".into(),
        });
    }
    let spares = collect_spares(&*disk, &names, options.spare_segments)?;
    let mut log = RaftLog {
        disk,
        options,
        segments: VecDeque::new(),
        locations: VecDeque::new(),
        base_index: 0,
        base_term: 0,
        state: Vec::new(),
        spares,
        poisoned: None,
        scratch: Vec::new(),
        syncs: 0,
    };
    for number in numbers {
        read_segment(&mut log, number, number == newest)?;
    }
    if mistake("lose the tail of the log") && log.last_index() > log.base_index {
        log.truncate_after(log.last_index() - 1);
    }
    // The tail was read from the page cache, which may hold what a crashed process wrote and never flushed.
    let name = segment::name(newest);
    super::last(&mut log.segments)?.file.sync().map_err(LogError::io(&name, "flushing"))?;
    Ok(log)
}

/// Keeps spare files for reuse; removes excess ones and files that a crash left incomplete.
pub fn collect_spares(disk: &dyn Disk, names: &[String], keep: usize) -> Result<Vec<String>, LogError> {
    let mut spares = Vec::new();
    for name in names {
        let spare = segment::number_of(name, "spare-").is_some();
        if spare && spares.len() < keep {
            spares.push(name.clone());
        } else if spare || segment::number_of(name, "new-").is_some() {
            disk.remove(name).map_err(LogError::io(name, "removing"))?;
        }
    }
    Ok(spares)
}

fn read_segment(log: &mut RaftLog, number: u64, newest: bool) -> Result<(), LogError> {
    let name = segment::name(number);
    let file = log.disk.open(&name, false).map_err(LogError::io(&name, "opening"))?;
    let len = file.len().map_err(LogError::io(&name, "asking for the length"))?;
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0).map_err(LogError::io(&name, "reading"))?;
    let header = SegmentHeader::decode(&name, &bytes)?;
    let damaged = |offset: u64, what: String| LogError::Damaged { file: name.clone(), offset, what };
    if header.number != number {
        return Err(damaged(0, format!("it calls itself segment {}", header.number)));
    }
    begin(log, &header).map_err(|what| damaged(0, what))?;

    let mut end = HEADER_BYTES;
    let mut has_state = false;
    while let Some((record, payload)) =
        rest(&bytes, end).and_then(|rest| format::decode_record(rest, header.salt, end))
    {
        match record.kind {
            RecordKind::State => {
                log.state = payload.to_vec();
                has_state = true;
            }
            RecordKind::Entry => add(log, number, end, &record).map_err(|what| damaged(end, what))?,
        }
        end += format::record_bytes(payload.len());
    }
    if !has_state {
        return Err(damaged(end, "the segment does not begin with a state".into()));
    }
    match format::find_record(&bytes, header.salt, end) {
        Some((place, _)) if !newest => {
            return Err(damaged(end, format!("no intact record here, but there is one at byte {place}")));
        }
        Some((place, record)) if record.durable > end => {
            let what =
                format!("this was durable when the record at byte {place} was written, and is not intact");
            return Err(damaged(end, what));
        }
        _ if newest => clear_rest(log, &*file, &name, &bytes, end)?,
        // An earlier segment ends where the next one begins; the index of its first entry shows whether
        // anything is missing.
        _ => {}
    }
    log.segments.push_back(Segment { header, file, end, durable: end });
    Ok(())
}

/// Clears what is behind the last intact record. A torn record there must not be taken for a continuation of
/// what is written next. Nor must a later record complete it: if that has the same bytes in the sectors that
/// were lost, and only those are written, the torn one would be intact. [`open`] flushes the file.
fn clear_rest(
    log: &RaftLog,
    file: &dyn DiskFile,
    name: &str,
    bytes: &[u8],
    end: u64,
) -> Result<(), LogError> {
    if rest(bytes, end).is_none_or(|rest| rest.iter().all(|byte| *byte == 0)) {
        return Ok(());
    }
    tracing::info!(file = %name, offset = end, "clearing what is behind the last record of the log");
    file.set_len(end).map_err(LogError::io(name, "clearing what is behind the last record"))?;
    if let Err(error) = file.reserve(log.options.segment_bytes) {
        // The disk may be full. Room is then found as it is needed.
        tracing::debug!(file = %name, %error, "no room was reserved");
    }
    Ok(())
}

fn rest(bytes: &[u8], offset: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(offset).ok()?..)
}

/// Registers the start of a segment: entries after its base are void.
fn begin(log: &mut RaftLog, header: &SegmentHeader) -> Result<(), String> {
    if log.segments.is_empty() || header.base_index < log.base_index {
        // The first one, or one that overwrote all entries that are left of older ones.
        log.locations.clear();
        log.base_index = header.base_index;
        log.base_term = header.base_term;
        return Ok(());
    }
    if header.base_index > log.last_index() {
        return Err(format!(
            "it begins after entry {}, but the one before ends at {}",
            header.base_index,
            log.last_index()
        ));
    }
    if log.term(header.base_index) != Some(header.base_term) {
        return Err(format!("it disagrees about the term of entry {}", header.base_index));
    }
    log.truncate_after(header.base_index);
    Ok(())
}

fn add(log: &mut RaftLog, segment: u64, offset: u64, record: &RecordHeader) -> Result<(), String> {
    if record.index != log.last_index() + 1 {
        return Err(format!("entry {} follows entry {}", record.index, log.last_index()));
    }
    let offset = u32::try_from(offset).map_err(|_| "the segment is too long".to_string())?;
    log.locations.push_back(EntryLocation { term: record.term, segment, offset, len: record.len });
    Ok(())
}
