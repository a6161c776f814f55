//! One file of the log.

use super::LogEntry;
use super::disk::{Disk, DiskFile};
use super::error::LogError;
use super::format::{self, HEADER_BYTES, RecordKind, SegmentHeader};
use bytes::Bytes;

/// A segment that is open.
pub struct Segment {
    pub header: SegmentHeader,
    pub file: Box<dyn DiskFile>,
    /// Offset of the next record, in bytes.
    pub end: u64,
    /// The content is known to be durable up to here, in bytes.
    pub durable: u64,
}

/// Name of a segment.
pub fn name(number: u64) -> String {
    format!("segment-{number:016x}")
}

/// Name of an old segment that is kept for reuse.
pub fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}")
}

/// Name of an incomplete segment: files with such a name are ignored after a crash.
pub fn temporary_name(number: u64) -> String {
    format!("new-{number:016x}")
}

/// Parses the number of a name with the given prefix.
pub fn number_of(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    (digits.len() == 16).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

/// An unpredictable number.
pub fn random_salt() -> u64 {
    shoal_runtime::random::number()
}

impl Segment {
    /// Creates a segment under its temporary name, from a spare one if there is one. Nothing is durable yet.
    pub fn begin(
        disk: &dyn Disk,
        header: SegmentHeader,
        spare: Option<String>,
        bytes: u64,
    ) -> Result<Segment, LogError> {
        let name = temporary_name(header.number);
        let file = match spare {
            Some(spare) => {
                disk.rename(&spare, &name).map_err(LogError::io(&spare, "renaming"))?;
                disk.open(&name, false)
            }
            None => disk.open(&name, true),
        }
        .map_err(LogError::io(&name, "creating"))?;
        file.reserve(bytes).map_err(LogError::io(&name, "reserving room"))?;
        file.write_at(&header.encode(), 0).map_err(LogError::io(&name, "writing"))?;
        Ok(Segment { header, file, end: HEADER_BYTES, durable: 0 })
    }

    /// Appends encoded records.
    pub fn write(&mut self, records: &[u8]) -> Result<(), LogError> {
        self.file.write_at(records, self.end).map_err(LogError::io(&name(self.header.number), "writing"))?;
        self.end += records.len() as u64;
        Ok(())
    }

    /// Makes what was written durable.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.file.sync().map_err(LogError::io(&name(self.header.number), "flushing"))?;
        self.durable = self.end;
        Ok(())
    }

    /// Reads an entry.
    pub fn read(&self, index: u64, offset: u64, len: u32) -> Result<LogEntry, LogError> {
        let file = name(self.header.number);
        let mut bytes = vec![0; format::RECORD_HEADER_BYTES + len as usize];
        self.file.read_at(&mut bytes, offset).map_err(LogError::io(&file, "reading"))?;
        let (term, tag) = match format::decode_record(&bytes, self.header.salt, offset) {
            Some((header, _)) if header.kind == RecordKind::Entry && header.index == index => {
                (header.term, header.tag)
            }
            _ => {
                let what = format!("entry {index} is not there any more");
                return Err(LogError::Damaged { file, offset, what });
            }
        };
        let payload = Bytes::from(bytes).slice(format::RECORD_HEADER_BYTES..);
        Ok(LogEntry { index, term, tag, payload })
    }
}
