//! Requests of the kernel, decoded. Names and data stay where the kernel has put them.

use crate::abi::{self, InHeader, InitFlags, SetattrValid, WriteFlags, opcode};
use crate::types::{FileHandle, Lock, LockOwner, NodeId, SetTime, Time, Unique};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The header of a request: its number, its inode and its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    header: InHeader,
}

impl Request {
    /// The number of the request.
    pub fn unique(&self) -> Unique {
        Unique(self.header.unique)
    }

    /// The inode that it is about, or the directory of the name that it is about.
    pub fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    /// User of the caller.
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// Group of the caller.
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// The calling thread (the kernel's name for the field is misleading); 0 for requests of the kernel
    /// itself.
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    pub(crate) fn opcode(&self) -> u32 {
        self.header.opcode
    }
}

/// A request is too short for its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request of the kernel is too short")]
pub struct Malformed;

/// SETATTR: the fields to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Type and permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size, in bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Set-id bits are to be cleared (`FUSE_HANDLE_KILLPRIV_V2`).
    pub kill_suidgid: bool,
}

/// MKNOD, MKDIR or CREATE: what is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Make<'a> {
    /// Its name.
    pub name: &'a OsStr,
    /// Type and permissions.
    pub mode: u32,
    /// Permissions that the caller masks.
    pub umask: u32,
    /// Of a device file, the device.
    pub rdev: u32,
    /// Of CREATE, the flags of open(2).
    pub flags: i32,
}

/// READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The open file.
    pub handle: FileHandle,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u32,
    /// The flags of open(2).
    pub flags: i32,
}

/// WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The open file.
    pub handle: FileHandle,
    /// First byte.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// The flags of open(2).
    pub flags: i32,
    /// Flags of the request.
    pub write_flags: WriteFlags,
}

/// SETXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetXattr<'a> {
    /// The attribute.
    pub name: &'a OsStr,
    /// Its value.
    pub value: &'a [u8],
    /// `XATTR_CREATE`, `XATTR_REPLACE` or 0.
    pub flags: i32,
    /// The set-group-id bit is to be cleared, too (`FUSE_SETXATTR_ACL_KILL_SGID`).
    pub kill_sgid: bool,
}

/// GETLK, SETLK or SETLKW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The open file.
    pub handle: FileHandle,
    /// The owner of the lock.
    pub owner: LockOwner,
    /// The lock.
    pub lock: Lock,
    /// Whether it is one of flock(2), which never conflicts with one of fcntl(2).
    pub flock: bool,
}

/// FALLOCATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallocate {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// The mode of fallocate(2).
    pub mode: i32,
}

/// COPY_FILE_RANGE, from the inode of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// First byte of the source.
    pub offset_in: u64,
    /// The target.
    pub node_out: NodeId,
    /// First byte in the target.
    pub offset_out: u64,
    /// Bytes.
    pub len: u64,
    /// None are known.
    pub flags: u64,
}

/// IOCTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// The number of the request, see ioctl(2).
    pub cmd: u32,
    /// What the caller hands over.
    pub data: &'a [u8],
    /// Bytes for which the caller has room: the reply to a request of the kernel itself has as many.
    pub out_size: u32,
}

/// INIT: what the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Init {
    pub version: (u32, u32),
    pub flags: InitFlags,
    pub max_readahead: u32,
}

/// The operation of a request, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Init(Init),
    Destroy,
    Interrupt(Unique),
    Forget { nlookup: u64 },
    BatchForget(Forgets<'a>),
    Lookup { name: &'a OsStr },
    Mknod(Make<'a>),
    Mkdir(Make<'a>),
    Create(Make<'a>),
    Tmpfile(Make<'a>),
    Symlink { name: &'a OsStr, target: &'a OsStr },
    Link { node: NodeId, name: &'a OsStr },
    Unlink { name: &'a OsStr },
    Rmdir { name: &'a OsStr },
    Rename { name: &'a OsStr, new_dir: NodeId, new_name: &'a OsStr, flags: u32 },
    Readlink,
    Readdir(Read),
    Readdirplus(Read),
    Getattr { handle: Option<FileHandle> },
    Statx { handle: Option<FileHandle> },
    Setattr(SetAttr),
    Statfs,
    Read(Read),
    Write(Write<'a>),
    Fallocate(Fallocate),
    CopyFileRange(CopyFileRange),
    Lseek { offset: i64, whence: i32 },
    Fsync,
    Fsyncdir,
    Getxattr { name: &'a OsStr, size: u32 },
    Listxattr { size: u32 },
    Setxattr(SetXattr<'a>),
    Removexattr { name: &'a OsStr },
    Open { flags: i32 },
    Opendir,
    Flush { owner: LockOwner },
    Release { handle: FileHandle },
    Releasedir,
    Getlk(LockRequest),
    Setlk { request: LockRequest, wait: bool },
    Access,
    Poll,
    Bmap,
    Ioctl(Ioctl<'a>),
    Unknown,
}

/// The inodes of BATCH_FORGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgets<'a>(&'a [u8]);

impl Forgets<'_> {
    /// Each inode, and how many references the kernel drops.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, u64)> {
        let one = |bytes: &[u8]| abi::ForgetOne::read_from_bytes(bytes).ok();
        let each = self.0.chunks_exact(size_of::<abi::ForgetOne>()).filter_map(one);
        each.map(|forget| (NodeId(forget.nodeid), forget.nlookup))
    }
}

/// The rest of a request.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Malformed> {
        let (taken, rest) = T::read_from_prefix(self.0).map_err(|_| Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A name, which a zero ends.
    fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let len = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed)?;
        let (name, rest) = self.0.split_at(len);
        self.0 = &rest[1..];
        Ok(OsStr::from_bytes(name))
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len as usize).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// Decodes a message. `extended`: `FUSE_SETXATTR_EXT` is negotiated.
pub(crate) fn decode(message: &[u8], extended: bool) -> Result<(Request, Operation<'_>), Malformed> {
    let mut body = Body(message);
    let header: InHeader = body.take()?;
    if header.len as usize != message.len() {
        return Err(Malformed);
    }
    let request = Request { header };
    Ok((request, operation(&header, body, extended)?))
}

fn operation<'a>(header: &InHeader, body: Body<'a>, extended: bool) -> Result<Operation<'a>, Malformed> {
    let operation = match header.opcode {
        opcode::LOOKUP..=opcode::FORGET
        | opcode::SYMLINK..=opcode::LINK
        | opcode::CREATE
        | opcode::TMPFILE
        | opcode::RENAME2 => names(header.opcode, body)?,
        opcode::GETXATTR..=opcode::REMOVEXATTR | opcode::SETXATTR => xattrs(header.opcode, body, extended)?,
        opcode::GETLK..=opcode::SETLKW => locks(header.opcode, body)?,
        opcode::READ | opcode::WRITE | opcode::READDIR | opcode::READDIRPLUS | opcode::FALLOCATE => {
            content(header.opcode, body)?
        }
        opcode::COPY_FILE_RANGE | opcode::LSEEK => content(header.opcode, body)?,
        _ => control(header.opcode, body)?,
    };
    Ok(operation)
}

fn names(opcode: u32, mut body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    Ok(match opcode {
        opcode::LOOKUP => Operation::Lookup { name: body.name()? },
        opcode::FORGET => Operation::Forget { nlookup: body.take::<abi::ForgetIn>()?.nlookup },
        opcode::SYMLINK => Operation::Symlink { name: body.name()?, target: body.name()? },
        opcode::MKNOD => {
            let abi::MknodIn { mode, rdev, umask, .. } = body.take()?;
            Operation::Mknod(Make { name: body.name()?, mode, umask, rdev, flags: 0 })
        }
        opcode::MKDIR => {
            let abi::MkdirIn { mode, umask } = body.take()?;
            let mode = mode | libc::S_IFDIR;
            Operation::Mkdir(Make { name: body.name()?, mode, umask, rdev: 0, flags: 0 })
        }
        opcode::CREATE | opcode::TMPFILE => {
            let abi::CreateIn { flags, mode, umask, .. } = body.take()?;
            let (mode, flags) = (mode | libc::S_IFREG, flags as i32);
            let make = Make { name: body.name()?, mode, umask, rdev: 0, flags };
            if opcode == opcode::CREATE { Operation::Create(make) } else { Operation::Tmpfile(make) }
        }
        opcode::UNLINK => Operation::Unlink { name: body.name()? },
        opcode::RMDIR => Operation::Rmdir { name: body.name()? },
        opcode::RENAME => {
            let abi::RenameIn { newdir } = body.take()?;
            let (name, new_dir) = (body.name()?, NodeId(newdir));
            Operation::Rename { name, new_dir, new_name: body.name()?, flags: 0 }
        }
        opcode::RENAME2 => {
            let abi::Rename2In { newdir, flags, .. } = body.take()?;
            let (name, new_dir) = (body.name()?, NodeId(newdir));
            Operation::Rename { name, new_dir, new_name: body.name()?, flags }
        }
        opcode::LINK => {
            let node = NodeId(body.take::<abi::LinkIn>()?.oldnodeid);
            Operation::Link { node, name: body.name()? }
        }
        _ => Operation::Unknown,
    })
}

fn xattrs(opcode: u32, mut body: Body<'_>, extended: bool) -> Result<Operation<'_>, Malformed> {
    Ok(match opcode {
        opcode::GETXATTR => {
            let size = body.take::<abi::GetxattrIn>()?.size;
            Operation::Getxattr { name: body.name()?, size }
        }
        opcode::LISTXATTR => Operation::Listxattr { size: body.take::<abi::GetxattrIn>()?.size },
        opcode::REMOVEXATTR => Operation::Removexattr { name: body.name()? },
        opcode::SETXATTR => {
            let abi::SetxattrIn { size, flags, setxattr_flags, .. } = match extended {
                true => body.take()?,
                false => {
                    let [size, flags] = body.take()?;
                    abi::SetxattrIn { size, flags, ..Default::default() }
                }
            };
            let (name, value) = (body.name()?, body.bytes(size)?);
            let kill_sgid = setxattr_flags & abi::SETXATTR_ACL_KILL_SGID != 0;
            Operation::Setxattr(SetXattr { name, value, flags: flags as i32, kill_sgid })
        }
        _ => Operation::Unknown,
    })
}

fn locks(opcode: u32, mut body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let abi::LkIn { fh, owner, lk, lk_flags, .. } = body.take()?;
    let lock = Lock { start: lk.start, end: lk.end, kind: lk.kind as i32, pid: lk.pid };
    let (handle, owner, flock) = (FileHandle(fh), LockOwner(owner), lk_flags & abi::LK_FLOCK != 0);
    let request = LockRequest { handle, owner, lock, flock };
    Ok(match opcode {
        opcode::GETLK => Operation::Getlk(request),
        _ => Operation::Setlk { request, wait: opcode == opcode::SETLKW },
    })
}

fn content(opcode: u32, mut body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    Ok(match opcode {
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => {
            let abi::ReadIn { fh, offset, size, flags, .. } = body.take()?;
            let read = Read { handle: FileHandle(fh), offset, size, flags: flags as i32 };
            match opcode {
                opcode::READ => Operation::Read(read),
                opcode::READDIR => Operation::Readdir(read),
                _ => Operation::Readdirplus(read),
            }
        }
        opcode::WRITE => {
            let abi::WriteIn { fh, offset, size, write_flags, flags, .. } = body.take()?;
            let (handle, flags) = (FileHandle(fh), flags as i32);
            let write_flags = WriteFlags::from_bits_retain(write_flags);
            Operation::Write(Write { handle, offset, data: body.bytes(size)?, flags, write_flags })
        }
        opcode::FALLOCATE => {
            let abi::FallocateIn { offset, length: len, mode, .. } = body.take()?;
            Operation::Fallocate(Fallocate { offset, len, mode: mode as i32 })
        }
        opcode::COPY_FILE_RANGE => {
            let abi::CopyFileRangeIn { off_in, nodeid_out, off_out, len, flags, .. } = body.take()?;
            let (offset_in, offset_out, node_out) = (off_in, off_out, NodeId(nodeid_out));
            Operation::CopyFileRange(CopyFileRange { offset_in, node_out, offset_out, len, flags })
        }
        opcode::LSEEK => {
            let abi::LseekIn { offset, whence, .. } = body.take()?;
            Operation::Lseek { offset: offset as i64, whence: whence as i32 }
        }
        _ => Operation::Unknown,
    })
}

fn control(opcode: u32, mut body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    Ok(match opcode {
        opcode::INIT => {
            let InitFields { major, minor, max_readahead, flags } = body.take()?;
            // Kernels before `FUSE_INIT_EXT` send no upper half.
            let upper: u32 = body.take().unwrap_or_default();
            let flags = InitFlags::from_bits_retain(u64::from(flags) | u64::from(upper) << 32);
            Operation::Init(Init { version: (major, minor), flags, max_readahead })
        }
        opcode::DESTROY => Operation::Destroy,
        opcode::INTERRUPT => Operation::Interrupt(Unique(body.take::<abi::InterruptIn>()?.unique)),
        opcode::BATCH_FORGET => {
            let abi::BatchForgetIn { count, .. } = body.take()?;
            let len = count.checked_mul(size_of::<abi::ForgetOne>() as u32).ok_or(Malformed)?;
            Operation::BatchForget(Forgets(body.bytes(len)?))
        }
        opcode::GETATTR => {
            let abi::GetattrIn { getattr_flags, fh, .. } = body.take()?;
            Operation::Getattr { handle: named_handle(getattr_flags, fh) }
        }
        opcode::STATX => {
            let abi::StatxIn { getattr_flags, fh, .. } = body.take()?;
            Operation::Statx { handle: named_handle(getattr_flags, fh) }
        }
        opcode::SETATTR => Operation::Setattr(setattr(&body.take()?)),
        opcode::READLINK => Operation::Readlink,
        opcode::STATFS => Operation::Statfs,
        opcode::FSYNC => Operation::Fsync,
        opcode::FSYNCDIR => Operation::Fsyncdir,
        opcode::OPEN => Operation::Open { flags: body.take::<abi::OpenIn>()?.flags as i32 },
        opcode::OPENDIR => Operation::Opendir,
        opcode::FLUSH => Operation::Flush { owner: LockOwner(body.take::<abi::FlushIn>()?.lock_owner) },
        opcode::RELEASE => Operation::Release { handle: FileHandle(body.take::<abi::ReleaseIn>()?.fh) },
        opcode::RELEASEDIR => Operation::Releasedir,
        opcode::ACCESS => Operation::Access,
        opcode::POLL => Operation::Poll,
        opcode::BMAP => Operation::Bmap,
        opcode::IOCTL => {
            let abi::IoctlIn { cmd, in_size, out_size, .. } = body.take()?;
            Operation::Ioctl(Ioctl { cmd, data: body.bytes(in_size)?, out_size })
        }
        _ => Operation::Unknown,
    })
}

/// The open file that GETATTR or STATX names.
fn named_handle(getattr_flags: u32, fh: u64) -> Option<FileHandle> {
    (getattr_flags & abi::GETATTR_FH != 0).then_some(FileHandle(fh))
}

/// The fields of `fuse_init_in` that every kernel sends.
#[repr(C)]
#[derive(FromBytes, KnownLayout, Immutable)]
struct InitFields {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
}

fn setattr(fields: &abi::SetattrIn) -> SetAttr {
    let valid = SetattrValid::from_bits_retain(fields.valid);
    let has = |flag| valid.contains(flag);
    let time = |set, now, secs: u64, nanos| {
        let at = SetTime::At(Time { secs: secs as i64, nanos });
        has(set).then_some(if has(now) { SetTime::Now } else { at })
    };
    SetAttr {
        mode: has(SetattrValid::MODE).then_some(fields.mode),
        uid: has(SetattrValid::UID).then_some(fields.uid),
        gid: has(SetattrValid::GID).then_some(fields.gid),
        size: has(SetattrValid::SIZE).then_some(fields.size),
        atime: time(SetattrValid::ATIME, SetattrValid::ATIME_NOW, fields.atime, fields.atimensec),
        mtime: time(SetattrValid::MTIME, SetattrValid::MTIME_NOW, fields.mtime, fields.mtimensec),
        kill_suidgid: has(SetattrValid::KILL_SUIDGID),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    /// A message with this body.
    fn message(opcode: u32, body: &[&[u8]]) -> Vec<u8> {
        let body = body.concat();
        let len = (size_of::<InHeader>() + body.len()) as u32;
        let header =
            InHeader { len, opcode, unique: 7, nodeid: 9, uid: 1, gid: 2, pid: 3, ..Default::default() };
        [header.as_bytes(), &body].concat()
    }

    fn decoded(message: &[u8]) -> Operation<'_> {
        decode(message, true).expect("it is whole").1
    }

    #[test]
    fn caller_and_inode_are_in_the_header() {
        let message = message(opcode::LOOKUP, &[b"name\0"]);
        let (request, operation) = decode(&message, true).expect("it is whole");
        assert_eq!((request.unique(), request.node()), (Unique(7), NodeId(9)));
        assert_eq!((request.uid(), request.gid(), request.pid()), (1, 2, 3));
        assert_eq!(operation, Operation::Lookup { name: OsStr::new("name") });
    }

    #[test]
    fn every_cut_of_a_message_is_malformed_and_none_is_read_beyond_its_end() {
        let rename = abi::Rename2In { newdir: 4, flags: 1, padding: 0 };
        let write = abi::WriteIn { size: 3, ..Default::default() };
        let xattr = abi::SetxattrIn { size: 2, ..Default::default() };
        let ioctl = abi::IoctlIn { cmd: 7, in_size: 4, ..Default::default() };
        let forgets = [abi::ForgetOne { nodeid: 5, nlookup: 6 }; 2];
        let batch = abi::BatchForgetIn { count: 2, dummy: 0 };
        for whole in [
            message(opcode::RENAME2, &[rename.as_bytes(), b"a\0b\0"]),
            message(opcode::WRITE, &[write.as_bytes(), b"abc"]),
            message(opcode::SETXATTR, &[xattr.as_bytes(), b"user.a\0", b"vw"]),
            message(opcode::BATCH_FORGET, &[batch.as_bytes(), forgets.as_bytes()]),
            message(opcode::IOCTL, &[ioctl.as_bytes(), b"word"]),
            message(opcode::SETLK, &[abi::LkIn::default().as_bytes()]),
            message(opcode::SETATTR, &[abi::SetattrIn::default().as_bytes()]),
        ] {
            assert!(decode(&whole, true).is_ok());
            for len in 0..whole.len() {
                let mut cut = whole[..len].to_vec();
                assert_eq!(decode(&cut, true), Err(Malformed), "shorter than its header says");
                if len >= size_of::<InHeader>() {
                    cut[..4].copy_from_slice(&(len as u32).to_ne_bytes());
                    assert_eq!(decode(&cut, true), Err(Malformed), "{len} of {}", whole.len());
                }
            }
        }
    }

    #[test]
    fn batch_forget_counts_each_inode() {
        let forgets = [abi::ForgetOne { nodeid: 5, nlookup: 6 }, abi::ForgetOne { nodeid: 8, nlookup: 1 }];
        let message = message(
            opcode::BATCH_FORGET,
            &[abi::BatchForgetIn { count: 2, dummy: 0 }.as_bytes(), forgets.as_bytes()],
        );
        let Operation::BatchForget(all) = decoded(&message) else { panic!("it is another operation") };
        assert_eq!(all.iter().collect::<Vec<_>>(), [(NodeId(5), 6), (NodeId(8), 1)]);
    }

    #[test]
    fn a_time_before_1970_counts_nanoseconds_forward() {
        let valid = SetattrValid::ATIME | SetattrValid::MTIME | SetattrValid::MTIME_NOW;
        let valid = (valid | SetattrValid::KILL_SUIDGID).bits();
        let fields =
            abi::SetattrIn { valid, atime: -5i64 as u64, atimensec: 300_000_000, ..Default::default() };
        let message = message(opcode::SETATTR, &[fields.as_bytes()]);
        let Operation::Setattr(set) = decoded(&message) else { panic!("it is another operation") };
        assert_eq!(set.atime, Some(SetTime::At(Time { secs: -5, nanos: 300_000_000 })));
        assert_eq!((set.mtime, set.size, set.kill_suidgid), (Some(SetTime::Now), None, true));
    }

    #[test]
    fn setxattr_is_shorter_where_its_extension_is_not_negotiated() {
        let short = message(opcode::SETXATTR, &[2u32.as_bytes(), 1u32.as_bytes(), b"user.a\0vw"]);
        let (_, operation) = decode(&short, false).expect("it is whole");
        let expected = SetXattr { name: OsStr::new("user.a"), value: b"vw", flags: 1, kill_sgid: false };
        assert_eq!(operation, Operation::Setxattr(expected));
        let fields = abi::SetxattrIn { size: 2, flags: 1, setxattr_flags: 1, padding: 0 };
        let long = message(opcode::SETXATTR, &[fields.as_bytes(), b"user.a\0vw"]);
        assert_eq!(decoded(&long), Operation::Setxattr(SetXattr { kill_sgid: true, ..expected }));
    }

    #[test]
    fn unknown_operations_are_told_apart() {
        for opcode in [0, 7, 19, 41, 48, 50, 53, 4096, u32::MAX] {
            assert_eq!(decoded(&message(opcode, &[])), Operation::Unknown, "{opcode}");
        }
    }

    #[test]
    fn init_of_an_old_kernel_has_no_upper_flags() {
        let old = message(opcode::INIT, &[[7u32, 31, 4096, 1].as_bytes()]);
        let Operation::Init(init) = decoded(&old) else { panic!("it is another operation") };
        assert_eq!((init.version, init.flags), ((7, 31), InitFlags::ASYNC_READ));
        let fields = abi::InitIn { major: 7, minor: 44, flags2: 1 << 9, ..Default::default() };
        let new = message(opcode::INIT, &[fields.as_bytes()]);
        let Operation::Init(init) = decoded(&new) else { panic!("it is another operation") };
        assert_eq!(init.flags, InitFlags::OVER_IO_URING);
    }
}
