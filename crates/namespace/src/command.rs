//! What the log of a metadata group carries: every change of a volume's state is one of these commands.
//!
//! **Promises.** [`apply_command`] is a pure function of the store and the command. It answers with the
//! changes and with an outcome, and both are the same on every replica. A command that is refused changes
//! nothing.
//!
//! **Exactly once.** A session numbers its batches. The number of the last one applied is kept beside the
//! state that it led to, so a repetition is known as one, whichever server it comes to and however often.
//!
//! **Refuses** batches out of order, batches of sessions that have ended, and batches in which any operation
//! fails: a client applies its operations to its own state first, so a failure here means that the two have
//! parted.

mod batch;
mod place;
mod session;
mod volume;

use crate::codec::{self, CodecError};
use crate::kv::{KvRead, WriteBatch};
use crate::records::VolumeOptions;
use crate::stored::TreeError;
use bytes::Bytes;
pub use place::Placed;
use serde::{Deserialize, Serialize};
use shoal_types::{BatchSeq, BlockId, BlockInfo, Errno, Extent, InodeId, Origin, SessionId, Timestamp};

/// Version of an encoded command.
///
/// A new command goes behind the others: then those in old logs keep their numbers and are read as before,
/// and a program that does not know the new one refuses it as malformed. So that alone is no new version. One
/// that changes what an existing command carries is.
pub const COMMAND_VERSION: u8 = 1;

/// A change of a volume's state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Makes the volume: an empty root directory. Refused with `EEXIST` where there is one.
    Format {
        /// Its identity.
        volume: u128,
        /// Owner of the root directory.
        uid: u32,
        /// Group of the root directory.
        gid: u32,
        /// Permission bits of the root directory.
        perm: u32,
        /// The time.
        time: Timestamp,
        /// Its settings.
        options: VolumeOptions,
    },
    /// Begins a session: [`Outcome::Opened`].
    OpenSession {
        /// The client, for people to read.
        client: String,
        /// The time.
        time: Timestamp,
        /// How many inode numbers it gets to begin with.
        inodes: u64,
    },
    /// Ends a session. What only it held and has no name dies, as much as one command may destroy:
    /// [`Outcome::Closed`] says whether to repeat it.
    CloseSession {
        /// The session; it may be gone already.
        session: SessionId,
    },
    /// Grants inode numbers: [`Outcome::Granted`].
    GrantInodes {
        /// The session.
        session: SessionId,
        /// How many.
        count: u64,
    },
    /// A batch of a session's journal: [`Outcome::Applied`], or one of the refusals.
    Batch {
        /// The session.
        session: SessionId,
        /// The batch.
        seq: BatchSeq,
        /// `Vec<Op>` as [`encode_ops`](codec::encode_ops) makes it, just as the client sent it.
        ops: Bytes,
    },
    /// Takes extents off a dead inode: [`Outcome::Reaped`].
    Reap {
        /// The inode, from [`query::reap_queue`](crate::query::reap_queue).
        ino: InodeId,
        /// How many at most.
        extents_max: u32,
    },
    /// Blocks of the garbage list have been deleted everywhere, at most
    /// [`limits::COLLECT_BLOCKS_MAX`](crate::limits::COLLECT_BLOCKS_MAX).
    Collected {
        /// The blocks; those that are not on the list are ignored.
        blocks: Vec<BlockId>,
    },
    /// Reserves block numbers of [`SessionId::SERVER`]: [`Outcome::Blocks`].
    GrantBlocks {
        /// How many.
        count: u64,
    },
    /// Puts a block of [`SessionId::SERVER`] in the place of the extents that it was made of, if they are
    /// still there: [`Outcome::Compacted`]. It does what [`Op::Compact`](crate::Op::Compact) does, without
    /// carrying the old content.
    Compact {
        /// The file.
        ino: InodeId,
        /// Where the range begins; it is as long as the block.
        offset: u64,
        /// [`extents_digest`] of what was merged.
        digest: u128,
        /// The block that holds the bytes now.
        block: BlockId,
        /// Its length and place.
        info: BlockInfo,
    },
    /// Compaction has found nothing more to merge in a file: it goes off the list until it has twice as many
    /// extents.
    RestFromCompaction {
        /// The file.
        ino: InodeId,
    },
    /// Changes a volume's settings; refused with `EINVAL` where they make no sense.
    SetOptions {
        /// All of them.
        options: VolumeOptions,
    },
    /// Blocks were copied to other bricks, at most
    /// [`limits::PLACE_BLOCKS_MAX`](crate::limits::PLACE_BLOCKS_MAX): [`Outcome::Placed`].
    Place {
        /// The blocks, each with its old and new group.
        blocks: Vec<Placed>,
    },
    /// A session refers to inodes, whatever their number of names, until it says
    /// [`Op::Forget`](crate::Op::Forget) or ends: they outlive their last name. At most
    /// [`limits::HOLD_INODES_MAX`](crate::limits::HOLD_INODES_MAX); those that are gone are left out.
    Hold {
        /// The session. One that has ended gets [`Outcome::Fenced`].
        session: SessionId,
        /// The inodes.
        inodes: Vec<InodeId>,
    },
    /// Begins a session whose client has said where it runs: [`Outcome::Opened`].
    OpenSessionFrom {
        /// Who mounts, for people to read.
        client: String,
        /// Where it runs.
        origin: Origin,
        /// When.
        time: Timestamp,
        /// How many inode numbers it gets to begin with.
        inodes: u64,
    },
    /// Blocks were moved between the tiers, at most
    /// [`limits::PLACE_BLOCKS_MAX`](crate::limits::PLACE_BLOCKS_MAX): [`Outcome::Placed`].
    MoveTier {
        /// The blocks, each with its old and new group.
        blocks: Vec<Placed>,
        /// When: those that come to the hot tier count as used then.
        time: Timestamp,
    },
    /// Blocks on the hot tier were used, at most
    /// [`limits::PLACE_BLOCKS_MAX`](crate::limits::PLACE_BLOCKS_MAX).
    Touch {
        /// The blocks; those that are not on the hot tier are ignored.
        blocks: Vec<BlockId>,
        /// When.
        time: Timestamp,
    },
    /// A batch of a session's journal whose operations are of version 2: otherwise as [`Command::Batch`].
    /// A replica whose program knows no such operations stops here. It would refuse a [`Command::Batch`] of
    /// them and go on, with another state than the other replicas.
    BatchV2 {
        /// The session.
        session: SessionId,
        /// The batch.
        seq: BatchSeq,
        /// As in [`Command::Batch`].
        ops: Bytes,
    },
}

/// The outcome of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was carried out, without a result.
    Done,
    /// A session has begun.
    Opened {
        /// Its number.
        session: SessionId,
        /// The first inode number granted.
        first: InodeId,
        /// How many.
        inodes: u64,
    },
    /// A session has ended.
    Closed {
        /// It holds something still: repeat the command.
        more: bool,
    },
    /// Inode numbers were granted.
    Granted {
        /// The first.
        first: InodeId,
        /// How many consecutive ones.
        inodes: u64,
    },
    /// The batch is applied, by this command or an earlier one.
    Applied {
        /// All batches up to this one are.
        seq: BatchSeq,
    },
    /// The batch is not the one that comes next.
    OutOfOrder {
        /// That would be this one.
        expected: BatchSeq,
    },
    /// There is no such session, or it has ended.
    Fenced {
        /// The session.
        session: SessionId,
    },
    /// An operation, or the command itself, fails; nothing was changed.
    Refused {
        /// Which operation of a batch.
        index: u32,
        /// The error.
        errno: Errno,
    },
    /// The operations of a batch cannot be decoded.
    Malformed {
        /// What is wrong.
        what: String,
    },
    /// Extents were taken off a dead inode.
    Reaped {
        /// There are more: repeat the command.
        more: bool,
    },
    /// Block numbers were reserved.
    Blocks {
        /// The first.
        first: u64,
        /// How many consecutive ones.
        count: u64,
    },
    /// A compaction was decided.
    Compacted {
        /// The block is in place. Otherwise the file has changed, and the block is on the garbage list.
        done: bool,
    },
    /// It is known where blocks are now.
    Placed {
        /// How many of them; the others have been moved or have become garbage meanwhile.
        count: u32,
    },
}

impl Outcome {
    /// The command itself fails.
    fn refused(errno: Errno) -> Outcome {
        Outcome::Refused { index: 0, errno }
    }
}

impl Command {
    /// The command for a batch, by the version of its operations.
    pub fn batch(session: SessionId, seq: BatchSeq, ops: Bytes) -> Command {
        match codec::ops_version(&ops) {
            Some(2) => Command::BatchV2 { session, seq, ops },
            _ => Command::Batch { session, seq, ops },
        }
    }

    /// Encodes a command for the log.
    pub fn encode(&self) -> Vec<u8> {
        let body = match self {
            Command::Batch { ops, .. } | Command::BatchV2 { ops, .. } => ops.len(),
            _ => 0,
        };
        let mut out = Vec::with_capacity(body + 64);
        out.push(COMMAND_VERSION);
        postcard::to_extend(self, out).expect("encoding into memory cannot fail")
    }

    /// Decodes a command of the log.
    pub fn decode(bytes: &[u8]) -> Result<Command, CodecError> {
        codec::decode(COMMAND_VERSION, bytes)
    }
}

/// Says what a command does to a store: the changes to write, and the outcome to report. The store itself
/// must not change meanwhile. An error means that the store is broken, not that the command is.
pub fn apply_command<S: KvRead + ?Sized>(
    store: &S,
    command: &Command,
) -> Result<(WriteBatch, Outcome), TreeError> {
    match command {
        Command::Format { volume, uid, gid, perm, time, options } => {
            volume::format(store, *volume, (*uid, *gid, *perm), *time, *options)
        }
        Command::SetOptions { options } => volume::set_options(store, *options),
        Command::GrantBlocks { count } => volume::grant_blocks(store, *count),
        Command::Place { blocks } => place::place(store, blocks, Timestamp::default()),
        Command::MoveTier { blocks, time } => place::place(store, blocks, *time),
        Command::Touch { blocks, time } => place::touch(store, blocks, *time),
        Command::Collected { blocks } => volume::collected(store, blocks),
        Command::Reap { ino, extents_max } => volume::reap(store, *ino, *extents_max),
        Command::Compact { ino, offset, digest, block, info } => {
            volume::compact(store, (*ino, *offset), *digest, *block, *info)
        }
        Command::RestFromCompaction { ino } => volume::rest_from_compaction(store, *ino),
        Command::OpenSession { client, time, inodes } => session::open(store, client, None, *time, *inodes),
        Command::OpenSessionFrom { client, origin, time, inodes } => {
            session::open(store, client, Some(origin), *time, *inodes)
        }
        Command::CloseSession { session } => session::close(store, *session),
        Command::Hold { session, inodes } => session::hold(store, *session, inodes),
        Command::GrantInodes { session, count } => session::grant_inodes(store, *session, *count),
        Command::Batch { session, seq, ops } => batch::apply(store, *session, *seq, (1, ops)),
        Command::BatchV2 { session, seq, ops } => batch::apply(store, *session, *seq, (2, ops)),
    }
}

/// A digest of extents with their offsets and contents, to tell whether they are still the same.
pub fn extents_digest(extents: &[(u64, Extent)]) -> u128 {
    let mut digest = xxhash_rust::xxh3::Xxh3::new();
    for (offset, extent) in extents {
        digest.update(&offset.to_be_bytes());
        digest.update(&extent.len().to_be_bytes());
        digest.update(&crate::records::encode_extent(extent));
    }
    digest.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second byte says which command it is.
    #[test]
    fn commands_in_old_logs_are_still_read_as_what_they_were() {
        let (session, ino) = (SessionId(3), InodeId(9));
        let id = BlockId { session, seq: 5 };
        let info = BlockInfo { len: 7, group: shoal_types::BlockGroup::default() };
        let (time, options) = (Timestamp { secs: 1, nanos: 2 }, VolumeOptions::default());
        let process = shoal_types::Process { namespace: 1, number: 2, started: 3 };
        let origin = Origin { certificate: "client a".into(), machine: 4, boot: 5, process };
        let commands = [
            Command::Format { volume: 1, uid: 0, gid: 0, perm: 0o755, time, options },
            Command::OpenSession { client: "a".into(), time, inodes: 1 },
            Command::CloseSession { session },
            Command::GrantInodes { session, count: 1 },
            Command::Batch { session, seq: BatchSeq(1), ops: Bytes::from_static(b"ops") },
            Command::Reap { ino, extents_max: 1 },
            Command::Collected { blocks: vec![id] },
            Command::GrantBlocks { count: 1 },
            Command::Compact { ino, offset: 0, digest: 1, block: id, info },
            Command::RestFromCompaction { ino },
            Command::SetOptions { options },
            Command::Place { blocks: vec![Placed { id, from: info.group, to: info.group }] },
            Command::Hold { session, inodes: vec![ino] },
            Command::OpenSessionFrom { client: "a".into(), origin, time, inodes: 1 },
            Command::MoveTier { blocks: vec![Placed { id, from: info.group, to: info.group }], time },
            Command::Touch { blocks: vec![id], time },
            Command::BatchV2 { session, seq: BatchSeq(1), ops: Bytes::from_static(b"ops") },
        ];
        for (number, command) in commands.into_iter().enumerate() {
            let bytes = command.encode();
            assert_eq!(bytes[..2], [1, number as u8], "{command:?}");
            assert_eq!(Command::decode(&bytes), Ok(command));
        }
        assert!(matches!(Command::decode(&[1, 200, 1]), Err(CodecError::Malformed(_))), "one of the future");
    }
}
