//! The values of the store. Each begins with the version of its format; see [`keys`](crate::keys) for where
//! each is kept.

use crate::codec::{self, CodecError};
use crate::limits::{COMPACT_EXTENT_BYTES_MEAN_MAX, COMPACT_EXTENTS_MIN};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shoal_types::{
    BatchSeq, BlockId, BlockInfo, BlockRef, Extent, FileKind, Inode, InodeId, Origin, SessionId, Timestamp,
};

/// Version of all records below.
pub const RECORD_VERSION: u8 = 1;

/// Encodes a record.
pub fn encode<T: Serialize>(record: &T) -> Bytes {
    codec::encode(RECORD_VERSION, record).into()
}

/// Decodes a record.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    codec::decode(RECORD_VERSION, bytes)
}

/// An inode, and what only the store needs to know of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InodeRecord {
    /// The inode.
    pub inode: Inode,
    /// How many extents its content has.
    pub extents: u64,
    /// It becomes a candidate for compaction with this many extents: raised where compaction found nothing to
    /// merge, so that a file that cannot be improved is not looked at again and again.
    pub compact_at: u64,
    /// What keeps it besides its names.
    pub life: Life,
}

/// What keeps an inode besides its names.
///
/// Encoded as an enum whose first two variants are the two values of the `bool` that stood here before
/// several sessions could hold an inode. So old records are read as what they were, and a record that no
/// session holds has the very bytes it had. In those days one session could hold an inode, by its key alone:
/// an [`Life::Unheld`] inode without a name is held by just that one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Life {
    /// Nothing: it dies with its last name.
    #[default]
    Unheld,
    /// It is dead and invisible; only some of its extents are left to be removed.
    Dead,
    /// These sessions refer to it, in the order of their numbers, never none: it lives until the last of them
    /// lets go, whatever becomes of its names. Each has a key for it ([`Key::Hold`](crate::keys::Key::Hold)).
    Held(Vec<SessionId>),
}

impl InodeRecord {
    /// A record without content.
    pub fn new(inode: Inode) -> InodeRecord {
        InodeRecord { inode, extents: 0, compact_at: COMPACT_EXTENTS_MIN, life: Life::Unheld }
    }

    /// Whether it is dead, and only its extents are still there.
    pub fn is_dead(&self) -> bool {
        self.life == Life::Dead
    }

    /// The sessions that hold it, in the order of their numbers.
    pub fn holders(&self) -> &[SessionId] {
        match &self.life {
            Life::Held(sessions) => sessions,
            Life::Unheld | Life::Dead => &[],
        }
    }

    /// Whether it lives without a name for a session that the record does not tell, see [`Life`].
    pub fn is_held_by_key_alone(&self) -> bool {
        self.inode.nlink == 0 && self.life == Life::Unheld
    }

    /// A session holds it, if it is not dead.
    pub fn hold(&mut self, session: SessionId) {
        match &mut self.life {
            Life::Dead => {}
            Life::Unheld => self.life = Life::Held(vec![session]),
            Life::Held(sessions) => {
                if let Err(at) = sessions.binary_search(&session) {
                    sessions.insert(at, session);
                }
            }
        }
    }

    /// A session holds it no longer.
    pub fn release(&mut self, session: SessionId) {
        if let Life::Held(sessions) = &mut self.life {
            sessions.retain(|holder| *holder != session);
            if sessions.is_empty() {
                self.life = Life::Unheld;
            }
        }
    }

    /// Whether the file has so many and such small extents that it is worth compacting: exactly then it is on
    /// the list.
    pub fn wants_compaction(&self) -> bool {
        self.inode.kind == FileKind::Regular
            && !self.is_dead()
            && self.extents >= self.compact_at.max(COMPACT_EXTENTS_MIN)
            && self.inode.allocated / self.extents <= COMPACT_EXTENT_BYTES_MEAN_MAX
    }
}

/// A block that content refers to, or did until it became garbage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockRecord {
    /// How many extents refer to it. A block that has come to 0 stays there: it is on the garbage list.
    pub refs: u64,
    /// Its length and place.
    pub info: BlockInfo,
}

impl BlockRecord {
    /// Whether it is in use and lacks copies or shards, in a volume that was created with so many copies:
    /// exactly then it is on the list.
    pub fn is_degraded(&self, replica: u8) -> bool {
        self.refs > 0 && self.info.group.is_short(replica)
    }
}

/// Whether a session is open, and where its client runs.
///
/// Encoded as an enum whose first two variants are the two values of the `bool` that stood here before
/// origins were noted: old records are read as what they were.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Standing {
    /// It is open.
    Open,
    /// It has ended, and only its holds are not all dropped yet.
    Ended,
    /// It is open, and its client has said where it runs.
    OpenFrom(Origin),
}

/// A session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Who mounts, for people to read.
    pub client: String,
    /// When it began.
    pub opened: Timestamp,
    /// The last batch that was applied.
    pub last: BatchSeq,
    /// Inode numbers that are its own: first number and count, in order, never adjacent.
    pub inodes: Vec<(u64, u64)>,
    /// Whether it is open.
    pub standing: Standing,
}

impl SessionRecord {
    /// Whether it has ended, and only its holds are not all dropped yet.
    pub fn has_ended(&self) -> bool {
        self.standing == Standing::Ended
    }

    /// Where its client runs, if that is known.
    pub fn origin(&self) -> Option<&Origin> {
        match &self.standing {
            Standing::OpenFrom(origin) => Some(origin),
            Standing::Open | Standing::Ended => None,
        }
    }

    /// Whether the session may give this number to a new inode.
    pub fn owns(&self, ino: InodeId) -> bool {
        let after = self.inodes.partition_point(|(first, _)| *first <= ino.0);
        let range = after.checked_sub(1).and_then(|index| self.inodes.get(index));
        range.is_some_and(|(first, count)| ino.0 - first < *count)
    }
}

/// What a volume is and was told to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Its identity, the same for all its life.
    pub id: u128,
    /// When it was made.
    pub created: Timestamp,
    /// Its settings.
    pub options: VolumeOptions,
}

/// Settings of a volume.
///
/// Encoded as one number, `inline_bytes` in its lower half and above it `replica`: so the records of volumes
/// that were made before there were copies are read as what they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "u64", try_from = "u64")]
pub struct VolumeOptions {
    /// Content up to this size is kept inline, in bytes.
    pub inline_bytes: u32,
    /// How many copies there should be of each block whose group does not say otherwise; 0 in a volume
    /// without a cluster, whose blocks are on its one brick. It does not change once there are blocks.
    pub replica: u8,
}

impl From<VolumeOptions> for u64 {
    fn from(options: VolumeOptions) -> u64 {
        u64::from(options.inline_bytes) | u64::from(options.replica) << 32
    }
}

impl TryFrom<u64> for VolumeOptions {
    type Error = std::num::TryFromIntError;
    fn try_from(word: u64) -> Result<VolumeOptions, Self::Error> {
        Ok(VolumeOptions { inline_bytes: word as u32, replica: u8::try_from(word >> 32)? })
    }
}

impl Default for VolumeOptions {
    fn default() -> VolumeOptions {
        VolumeOptions { inline_bytes: shoal_types::limits::INLINE_BYTES_DEFAULT, replica: 0 }
    }
}

/// What is counted and what is numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// Sum of `allocated` over all inodes, modulo 2^64: reserved room may exceed the disks.
    pub used_bytes: u64,
    /// Inodes in existence, those without a name included.
    pub inodes: u64,
    /// The next inode number to grant.
    pub next_inode: InodeId,
    /// The next session's number.
    pub next_session: SessionId,
    /// The next block number for the metadata group's own use ([`SessionId::SERVER`]).
    pub next_server_block: u64,
}

/// Values that say no more than that their key is there.
pub fn present() -> Bytes {
    Bytes::from_static(&[RECORD_VERSION])
}

const EXTENT_INLINE: u8 = 0;
const EXTENT_BLOCK: u8 = 1;
const EXTENT_ZERO: u8 = 2;

/// Encodes an extent: version, kind, then the bytes themselves, so that they can be taken out without a copy.
pub fn encode_extent(extent: &Extent) -> Bytes {
    let body = match extent {
        Extent::Inline(bytes) => bytes.len(),
        _ => 24,
    };
    let mut out = Vec::with_capacity(2 + body);
    out.push(RECORD_VERSION);
    match extent {
        Extent::Inline(bytes) => {
            out.push(EXTENT_INLINE);
            out.extend_from_slice(bytes);
        }
        Extent::Block(block) => {
            out.push(EXTENT_BLOCK);
            out.extend_from_slice(&block.id.session.0.to_be_bytes());
            out.extend_from_slice(&block.id.seq.to_be_bytes());
            out.extend_from_slice(&block.offset.to_be_bytes());
            out.extend_from_slice(&block.len.to_be_bytes());
        }
        Extent::Zero { len } => {
            out.push(EXTENT_ZERO);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
    out.into()
}

/// Decodes an extent that ends at `end`, with its offset. One that is empty or begins before 0 is damaged.
pub fn decode_extent(end: u64, value: &[u8]) -> Result<(u64, Extent), CodecError> {
    decode_extent_with(end, value, Bytes::copy_from_slice)
}

/// As [`decode_extent`]. `inline` makes the bytes of an inline extent from those of the record.
pub fn decode_extent_with(
    end: u64,
    value: &[u8],
    inline: impl FnOnce(&[u8]) -> Bytes,
) -> Result<(u64, Extent), CodecError> {
    let malformed = || CodecError::Malformed(postcard::Error::DeserializeBadEncoding);
    let (version, rest) = value.split_first().ok_or(CodecError::Empty)?;
    if *version != RECORD_VERSION {
        return Err(CodecError::Version { found: *version, known: RECORD_VERSION });
    }
    let (kind, body) = rest.split_first().ok_or_else(malformed)?;
    let extent = match (*kind, body.len()) {
        (EXTENT_INLINE, _) => Extent::Inline(inline(body)),
        (EXTENT_BLOCK, 24) => {
            let mut numbers = Fields(body);
            let id = BlockId { session: SessionId(numbers.u64()), seq: numbers.u64() };
            Extent::Block(BlockRef { id, offset: numbers.u32(), len: numbers.u32() })
        }
        (EXTENT_ZERO, 8) => Extent::Zero { len: Fields(body).u64() },
        _ => return Err(malformed()),
    };
    match end.checked_sub(extent.len()) {
        Some(offset) if !extent.is_empty() => Ok((offset, extent)),
        _ => Err(malformed()),
    }
}

/// Numbers of fixed size, one behind the other, whose total length has been checked.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u64(&mut self) -> u64 {
        self.take().map_or(0, u64::from_be_bytes)
    }
    fn u32(&mut self) -> u32 {
        self.take().map_or(0, u32::from_be_bytes)
    }
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
}

/// Encodes the value of an extended attribute.
pub fn encode_xattr(value: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(1 + value.len());
    out.push(RECORD_VERSION);
    out.extend_from_slice(value);
    out.into()
}

/// The value of an extended attribute inside its record.
pub fn decode_xattr(record: &[u8]) -> Result<&[u8], CodecError> {
    match record.split_first() {
        None => Err(CodecError::Empty),
        Some((&RECORD_VERSION, value)) => Ok(value),
        Some((&found, _)) => Err(CodecError::Version { found, known: RECORD_VERSION }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::InodeFlags;

    fn file() -> Inode {
        let time = Timestamp { secs: 1, nanos: 2 };
        Inode {
            kind: FileKind::Regular,
            perm: 0o644,
            flags: InodeFlags::default(),
            uid: 1,
            gid: 2,
            nlink: 1,
            rdev: 0,
            size: 3,
            allocated: 3,
            entries: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            generation: 0,
            parent: InodeId::ROOT,
            multi_link: false,
            xattrs: 0,
            target: Bytes::new(),
        }
    }

    #[test]
    fn sessions_are_read_as_they_were_written_before_origins_were_noted() {
        let (client, opened, last, inodes) =
            ("host".to_owned(), Timestamp::default(), BatchSeq(3), vec![(16, 5)]);
        for (ended, standing) in [(false, Standing::Open), (true, Standing::Ended)] {
            let old = encode(&(&client, opened, last, &inodes, ended));
            let record =
                SessionRecord { client: client.clone(), opened, last, inodes: inodes.clone(), standing };
            assert_eq!(decode::<SessionRecord>(&old), Ok(record.clone()));
            assert_eq!(encode(&record), old);
            assert_eq!(record.has_ended(), ended);
        }
    }

    #[test]
    fn inodes_are_read_as_they_were_written_before_several_sessions_could_hold_them() {
        #[derive(Serialize)]
        struct Before {
            inode: Inode,
            extents: u64,
            compact_at: u64,
            reaping: bool,
        }
        for (reaping, life) in [(false, Life::Unheld), (true, Life::Dead)] {
            let before = encode(&Before { inode: file(), extents: 1, compact_at: 64, reaping });
            let now = InodeRecord { inode: file(), extents: 1, compact_at: 64, life };
            assert_eq!(decode(&before), Ok(now.clone()));
            assert_eq!(encode(&now), before);
        }
        let mut held = InodeRecord::new(file());
        held.hold(SessionId(300));
        assert_eq!(decode(&encode(&held)), Ok(held));
    }

    #[test]
    fn inodes_are_read_as_they_were_written_before_there_were_flags() {
        let it = file();
        // The fields in their order; a tuple in a tuple has the bytes of its parts.
        let before = |perm: u32| {
            let first = (it.kind, perm, it.uid, it.gid, it.nlink, it.rdev, it.size, it.allocated);
            let times = (it.entries, it.atime, it.mtime, it.ctime, it.btime, it.generation);
            encode(&(first, times, (it.parent, it.multi_link, it.xattrs, &it.target)))
        };
        assert_eq!(encode(&it), before(0o644));
        assert_eq!(decode(&before(0o644)), Ok(it.clone()));
        let flags = InodeFlags(InodeFlags::APPEND.0 | InodeFlags::NODUMP.0);
        let flagged = Inode { flags, ..it.clone() };
        assert_eq!(encode(&flagged), before(0o644 | u32::from(flags.0) << 16));
        assert_eq!(decode(&encode(&flagged)), Ok(flagged));
    }

    #[test]
    fn holders_are_kept_in_order_and_once() {
        let mut record = InodeRecord::new(file());
        for session in [7, 3, 9, 3] {
            record.hold(SessionId(session));
        }
        assert_eq!(record.holders(), [SessionId(3), SessionId(7), SessionId(9)]);
        for session in [7, 8, 3, 9] {
            record.release(SessionId(session));
        }
        assert_eq!(record, InodeRecord::new(file()));
        record.life = Life::Dead;
        record.hold(SessionId(3));
        assert!(record.is_dead() && record.holders().is_empty());
    }

    #[test]
    fn options_are_read_as_they_were_written_before_there_were_copies() {
        #[derive(Serialize)]
        struct Before {
            inline_bytes: u32,
        }
        for inline_bytes in [0, 4096, 65_536, u32::MAX] {
            let now: VolumeOptions = decode(&encode(&Before { inline_bytes })).unwrap();
            assert_eq!(now, VolumeOptions { inline_bytes, replica: 0 });
            assert_eq!(encode(&now), encode(&Before { inline_bytes }));
        }
        let three = VolumeOptions { inline_bytes: 7, replica: 3 };
        assert_eq!(decode(&encode(&three)), Ok(three));
        assert!(decode::<VolumeOptions>(&encode(&u64::MAX)).is_err());
    }
}
