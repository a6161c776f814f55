//! The keys of the store: what is kept where, and in which order.
//!
//! Numbers are big-endian, so that their order is that of the bytes. The first byte says what a record is:
//!
//! | Key                               | Value                     | For                                              |
//! |-----------------------------------|---------------------------|--------------------------------------------------|
//! | `i` inode `0`                     | [`InodeRecord`]           | an inode                                         |
//! | `i` inode `1` name                | version, bytes            | an extended attribute                            |
//! | `i` inode `2` end                 | an [`Extent`]             | content that ends before `end`                   |
//! | `d` directory cookie name         | [`Dentry`]                | a name                                           |
//! | `b` session sequence              | [`BlockRecord`]           | a block, and how many extents refer to it        |
//! | `g` session sequence              | [`BlockInfo`]             | a block that nothing refers to, to be deleted    |
//! | `u` session sequence              | version                   | a block in use on fewer bricks than it should be |
//! | `r` inode                         | version                   | an inode that died; its extents are to be taken apart |
//! | `o` session inode                 | version                   | an inode that a session holds; its record says so too |
//! | `s` session                       | [`SessionRecord`]         | a session                                        |
//! | `c` inode                         | version                   | a file of many small extents, to be compacted    |
//! | `t` session sequence              | [`HotRecord`]             | a block on the hot tier with references          |
//! | `h` seconds session sequence      | version                   | index of hot blocks by their last use            |
//! | `m` word                          | see [`Singleton`]         | what a volume has one of                         |
//!
//! So everything about a file lies together: one scan reads a small file whole, and what was created together
//! is read together. Extents are kept under their ends, not their beginnings: then those that overlap a range
//! are a forward scan from its start, however long they are. A directory lies in the order of its listing,
//! and names whose cookies collide lie side by side.
//!
//! [`InodeRecord`]: crate::records::InodeRecord
//! [`Extent`]: shoal_types::Extent
//! [`Dentry`]: crate::Dentry
//! [`BlockRecord`]: crate::records::BlockRecord
//! [`BlockInfo`]: shoal_types::BlockInfo
//! [`SessionRecord`]: crate::records::SessionRecord
//! [`HotRecord`]: crate::heat::HotRecord

use shoal_types::{BlockId, Cookie, InodeId, Name, SessionId, XattrName};

/// Version of this layout, kept in the volume under [`Singleton::Layout`].
///
/// Records of held inodes have grown a list since 1 ([`Life`](crate::records::Life)), in a way that leaves
/// the bytes of all others as they were, and needs nothing rewritten: so it is still 1. Inodes with flags
/// could be read by programs that do not obey the flags: so the first batch with
/// [`Op::SetFlags`](crate::Op::SetFlags) makes it [`LAYOUT_FLAGS`].
pub const LAYOUT_VERSION: u32 = 2;
/// A volume begins with this layout.
pub const LAYOUT_OLDEST: u32 = 1;
/// The layout in which inodes have flags.
pub const LAYOUT_FLAGS: u32 = 2;

const INODE: u8 = b'i';
const DENTRY: u8 = b'd';
const BLOCK: u8 = b'b';
const GARBAGE: u8 = b'g';
const DEGRADED: u8 = b'u';
const REAP: u8 = b'r';
const HOLD: u8 = b'o';
const SESSION: u8 = b's';
const COMPACT: u8 = b'c';
const HOT: u8 = b't';
const HEAT: u8 = b'h';
const SINGLETON: u8 = b'm';

const PART_INODE: u8 = 0;
const PART_XATTR: u8 = 1;
const PART_EXTENT: u8 = 2;
const PART_END: u8 = 3;

/// A range of keys, its end excluded.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// What a volume has one of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Singleton {
    /// The layout of the store, at most [`LAYOUT_VERSION`], a `u32`.
    Layout,
    /// [`VolumeRecord`](crate::records::VolumeRecord).
    Volume,
    /// [`Counters`](crate::records::Counters).
    Counters,
    /// Position in the Raft log up to which the store has come. The metadata server writes it, with every
    /// batch.
    Applied,
    /// Term of the log entry at that position.
    AppliedTerm,
    /// Who decides in the Raft group, as of that position.
    Members,
    /// The cluster map, in the store of the group that keeps it.
    ClusterMap,
}

impl Singleton {
    const ALL: [Singleton; 7] = [
        Singleton::Layout,
        Singleton::Volume,
        Singleton::Counters,
        Singleton::Applied,
        Singleton::AppliedTerm,
        Singleton::Members,
        Singleton::ClusterMap,
    ];

    fn word(self) -> &'static [u8] {
        match self {
            Singleton::Layout => b"layout",
            Singleton::Volume => b"volume",
            Singleton::Counters => b"counters",
            Singleton::Applied => b"applied",
            Singleton::AppliedTerm => b"applied-term",
            Singleton::Members => b"members",
            Singleton::ClusterMap => b"cluster-map",
        }
    }
}

/// A key, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Key {
    /// An inode.
    Inode(InodeId),
    /// An extended attribute.
    Xattr(InodeId, XattrName),
    /// The extent with this end (the offset of the first byte behind it).
    Extent(InodeId, u64),
    /// A name in a directory; the cookie follows from the name.
    Dentry(InodeId, Name),
    /// A block.
    Block(BlockId),
    /// A block that nothing refers to.
    Garbage(BlockId),
    /// A block in use that has too few copies.
    Degraded(BlockId),
    /// A dead inode with extents left.
    Reap(InodeId),
    /// An inode that a session refers to: it outlives its last name.
    Hold(SessionId, InodeId),
    /// A session.
    Session(SessionId),
    /// A file to be compacted.
    Compact(InodeId),
    /// A block in use on the hot tier.
    Hot(BlockId),
    /// A block on the hot tier in the index by last use, and the Unix time of that, in seconds.
    Heat(u64, BlockId),
    /// What a volume has one of.
    Singleton(Singleton),
}

impl Key {
    /// The key's bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Key::Inode(ino) => inode(*ino),
            Key::Xattr(ino, name) => xattr(*ino, name),
            Key::Extent(ino, end) => extent(*ino, *end),
            Key::Dentry(dir, name) => dentry(*dir, name),
            Key::Block(id) => block(*id),
            Key::Garbage(id) => garbage(*id),
            Key::Degraded(id) => degraded(*id),
            Key::Reap(ino) => reap(*ino),
            Key::Hold(session, ino) => hold(*session, *ino),
            Key::Session(id) => session(*id),
            Key::Compact(ino) => compact(*ino),
            Key::Hot(id) => hot(*id),
            Key::Heat(since, id) => heat(*since, *id),
            Key::Singleton(which) => singleton(*which),
        }
    }

    /// Takes a key apart; `None` if it is none of this layout.
    pub fn decode(key: &[u8]) -> Option<Key> {
        let (tag, rest) = key.split_first()?;
        Some(match *tag {
            INODE => {
                let (ino, rest) = number(rest)?;
                let ino = InodeId(ino);
                match rest.split_first()? {
                    (&PART_INODE, []) => Key::Inode(ino),
                    (&PART_XATTR, name) => Key::Xattr(ino, XattrName::try_from(name).ok()?),
                    (&PART_EXTENT, end) => Key::Extent(ino, only(end)?),
                    _ => return None,
                }
            }
            DENTRY => {
                let (dir, rest) = number(rest)?;
                let (cookie, name) = number(rest)?;
                let name = Name::try_from(name).ok().filter(|name| name.cookie() == Cookie(cookie))?;
                Key::Dentry(InodeId(dir), name)
            }
            BLOCK => Key::Block(block_id(rest)?),
            GARBAGE => Key::Garbage(block_id(rest)?),
            DEGRADED => Key::Degraded(block_id(rest)?),
            REAP => Key::Reap(InodeId(only(rest)?)),
            HOLD => {
                let (session, rest) = number(rest)?;
                Key::Hold(SessionId(session), InodeId(only(rest)?))
            }
            SESSION => Key::Session(SessionId(only(rest)?)),
            COMPACT => Key::Compact(InodeId(only(rest)?)),
            HOT => Key::Hot(block_id(rest)?),
            HEAT => {
                let (since, rest) = number(rest)?;
                Key::Heat(since, block_id(rest)?)
            }
            SINGLETON => Key::Singleton(Singleton::ALL.into_iter().find(|which| which.word() == rest)?),
            _ => return None,
        })
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), rest))
}

fn only(bytes: &[u8]) -> Option<u64> {
    number(bytes).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| number)
}

fn block_id(bytes: &[u8]) -> Option<BlockId> {
    let (session, rest) = number(bytes)?;
    Some(BlockId { session: SessionId(session), seq: only(rest)? })
}

fn key(tag: u8, numbers: &[u64], tail: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + 8 * numbers.len() + tail.len());
    key.push(tag);
    for number in numbers {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key.extend_from_slice(tail);
    key
}

fn part(ino: InodeId, part: u8, tail: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(10 + tail.len());
    key.push(INODE);
    key.extend_from_slice(&ino.0.to_be_bytes());
    key.push(part);
    key.extend_from_slice(tail);
    key
}

/// Key of an inode.
pub fn inode(ino: InodeId) -> Vec<u8> {
    part(ino, PART_INODE, &[])
}
/// Key of an extended attribute.
pub fn xattr(ino: InodeId, name: &XattrName) -> Vec<u8> {
    part(ino, PART_XATTR, name.as_bytes())
}
/// Key of the extent with this end.
pub fn extent(ino: InodeId, end: u64) -> Vec<u8> {
    part(ino, PART_EXTENT, &end.to_be_bytes())
}
/// Key of a name.
pub fn dentry(dir: InodeId, name: &Name) -> Vec<u8> {
    key(DENTRY, &[dir.0, name.cookie().0], name.as_bytes())
}
/// Key of a block.
pub fn block(id: BlockId) -> Vec<u8> {
    key(BLOCK, &[id.session.0, id.seq], &[])
}
/// Key of a block on the garbage list.
pub fn garbage(id: BlockId) -> Vec<u8> {
    key(GARBAGE, &[id.session.0, id.seq], &[])
}
/// Key of a block on the list of those with too few copies.
pub fn degraded(id: BlockId) -> Vec<u8> {
    key(DEGRADED, &[id.session.0, id.seq], &[])
}
/// Key of a dead inode in the queue.
pub fn reap(ino: InodeId) -> Vec<u8> {
    key(REAP, &[ino.0], &[])
}
/// Key of a session's hold on an inode.
pub fn hold(session: SessionId, ino: InodeId) -> Vec<u8> {
    key(HOLD, &[session.0, ino.0], &[])
}
/// Key of a session.
pub fn session(id: SessionId) -> Vec<u8> {
    key(SESSION, &[id.0], &[])
}
/// Key of a file to be compacted.
pub fn compact(ino: InodeId) -> Vec<u8> {
    key(COMPACT, &[ino.0], &[])
}
/// Key of a block on the hot tier.
pub fn hot(id: BlockId) -> Vec<u8> {
    key(HOT, &[id.session.0, id.seq], &[])
}
/// Key of a block on the hot tier in the order of time.
pub fn heat(since: u64, id: BlockId) -> Vec<u8> {
    key(HEAT, &[since, id.session.0, id.seq], &[])
}
/// Key of what a volume has one of.
pub fn singleton(which: Singleton) -> Vec<u8> {
    key(SINGLETON, &[], which.word())
}

/// All inodes, each with its extended attributes and its extents.
pub fn inodes_range() -> KeyRange {
    (vec![INODE], vec![INODE + 1])
}
/// Everything about an inode: its record, its extended attributes, its extents.
pub fn file_range(ino: InodeId) -> KeyRange {
    (part(ino, PART_INODE, &[]), part(ino, PART_END, &[]))
}
/// An inode's extended attributes.
pub fn xattrs_range(ino: InodeId) -> KeyRange {
    (part(ino, PART_XATTR, &[]), part(ino, PART_EXTENT, &[]))
}
/// An inode's extents that end behind `start`: those that overlap anything from there on.
pub fn extents_range(ino: InodeId, start: u64) -> KeyRange {
    (extent(ino, start.saturating_add(1)), part(ino, PART_END, &[]))
}
/// A directory's names behind a cookie.
pub fn dentries_range(dir: InodeId, after: Cookie) -> KeyRange {
    let to = match dir.0.checked_add(1) {
        Some(next) => key(DENTRY, &[next], &[]),
        None => vec![DENTRY + 1],
    };
    (key(DENTRY, &[dir.0, after.0.saturating_add(1)], &[]), to)
}
/// All inodes with all that belongs to them.
pub fn all_files() -> KeyRange {
    all(INODE)
}
/// All names.
pub fn all_dentries() -> KeyRange {
    all(DENTRY)
}
/// All blocks.
pub fn all_blocks() -> KeyRange {
    all(BLOCK)
}
/// The garbage list behind a block, or from its start.
pub fn garbage_range(after: Option<BlockId>) -> KeyRange {
    behind(GARBAGE, after)
}
/// The blocks behind one, or from the first.
pub fn blocks_range(after: Option<BlockId>) -> KeyRange {
    behind(BLOCK, after)
}
/// The list of blocks with too few copies behind a block, or from its start.
pub fn degraded_range(after: Option<BlockId>) -> KeyRange {
    behind(DEGRADED, after)
}
/// The queue of dead inodes.
pub fn all_reap() -> KeyRange {
    all(REAP)
}
/// All holds.
pub fn all_holds() -> KeyRange {
    all(HOLD)
}
/// A session's holds.
pub fn holds_range(session: SessionId) -> KeyRange {
    let to = match session.0.checked_add(1) {
        Some(next) => key(HOLD, &[next], &[]),
        None => vec![HOLD + 1],
    };
    (key(HOLD, &[session.0], &[]), to)
}
/// All sessions.
pub fn all_sessions() -> KeyRange {
    all(SESSION)
}
/// The files to be compacted behind one, or from the start.
pub fn compact_range(after: Option<InodeId>) -> KeyRange {
    let (from, to) = all(COMPACT);
    (after.map_or(from, |ino| key(COMPACT, &[ino.0], &[0])), to)
}
/// All blocks on the hot tier.
pub fn all_hot() -> KeyRange {
    all(HOT)
}
/// The blocks on the hot tier in the order of time: behind one, or from the longest unused.
pub fn heat_range(after: Option<(u64, BlockId)>) -> KeyRange {
    let (from, to) = all(HEAT);
    (after.map_or(from, |(since, id)| key(HEAT, &[since, id.session.0, id.seq], &[0])), to)
}
/// What a volume has one of.
pub fn all_singletons() -> KeyRange {
    all(SINGLETON)
}
/// The ranges in which there are no keys.
pub fn unused() -> Vec<KeyRange> {
    let mut tags =
        [INODE, DENTRY, BLOCK, GARBAGE, DEGRADED, REAP, HOLD, SESSION, COMPACT, HOT, HEAT, SINGLETON];
    tags.sort_unstable();
    let mut from = Vec::new();
    let mut ranges = Vec::new();
    for tag in tags {
        ranges.push((std::mem::replace(&mut from, vec![tag + 1]), vec![tag]));
    }
    ranges.push((from, everything().1));
    ranges
}
/// The whole store.
pub fn everything() -> KeyRange {
    (Vec::new(), vec![0xff; 64])
}

fn behind(tag: u8, after: Option<BlockId>) -> KeyRange {
    let (from, to) = all(tag);
    (after.map_or(from, |id| key(tag, &[id.session.0, id.seq], &[0])), to)
}

fn all(tag: u8) -> KeyRange {
    (vec![tag], vec![tag + 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<(Key, &'static str)> {
        let name = Name::try_from("ab").unwrap();
        let id = BlockId { session: SessionId(3), seq: 0x1_0002 };
        vec![
            (Key::Inode(InodeId(0x102)), "69000000000000010200"),
            (Key::Xattr(InodeId(0x102), XattrName::try_from("ab").unwrap()), "690000000000000102016162"),
            (Key::Extent(InodeId(0x102), 0x1000), "690000000000000102020000000000001000"),
            (Key::Dentry(InodeId(1), name), "6400000000000000015439b8ce126ab9ae6162"),
            (Key::Block(id), "6200000000000000030000000000010002"),
            (Key::Garbage(id), "6700000000000000030000000000010002"),
            (Key::Degraded(id), "7500000000000000030000000000010002"),
            (Key::Reap(InodeId(9)), "720000000000000009"),
            (Key::Hold(SessionId(2), InodeId(9)), "6f00000000000000020000000000000009"),
            (Key::Session(SessionId(2)), "730000000000000002"),
            (Key::Compact(InodeId(9)), "630000000000000009"),
            (Key::Hot(id), "7400000000000000030000000000010002"),
            (Key::Heat(5, id), "68000000000000000500000000000000030000000000010002"),
            (Key::Singleton(Singleton::Layout), "6d6c61796f7574"),
            (Key::Singleton(Singleton::Volume), "6d766f6c756d65"),
            (Key::Singleton(Singleton::Counters), "6d636f756e74657273"),
            (Key::Singleton(Singleton::Applied), "6d6170706c696564"),
        ]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn keys_on_disk_never_change() {
        for (key, bytes) in samples() {
            assert_eq!(hex(&key.encode()), bytes, "{key:?}");
        }
    }

    #[test]
    fn every_key_can_be_taken_apart_again() {
        for (key, _) in samples() {
            assert_eq!(Key::decode(&key.encode()), Some(key));
        }
    }

    #[test]
    fn bytes_that_are_no_key_are_told_apart() {
        for (key, _) in samples() {
            let bytes = key.encode();
            let mut longer = bytes.clone();
            longer.push(b'x');
            assert!(Key::decode(&longer) != Some(key.clone()), "{key:?}");
            assert!(Key::decode(&bytes[..bytes.len() - 1]) != Some(key.clone()), "{key:?}");
        }
        assert_eq!(Key::decode(b""), None);
        assert_eq!(Key::decode(b"z12345678"), None);
        let mut misplaced = dentry(InodeId(1), &Name::try_from("ab").unwrap());
        misplaced[10] ^= 1;
        assert_eq!(Key::decode(&misplaced), None, "a name under a cookie that is not its own");
    }

    #[test]
    fn a_file_lies_between_its_neighbours() {
        let (from, to) = file_range(InodeId(7));
        let inside = [
            inode(InodeId(7)),
            xattr(InodeId(7), &XattrName::try_from("user.x").unwrap()),
            extent(InodeId(7), u64::MAX),
        ];
        assert!(inside.iter().all(|key| *key >= from && *key < to));
        assert!(inode(InodeId(8)) >= to && extent(InodeId(6), u64::MAX) < from);
        assert!(inside.is_sorted());
    }
}
