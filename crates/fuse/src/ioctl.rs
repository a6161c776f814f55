//! Requests of ioctl(2) about inode flags: `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS` of lsattr(1) and
//! chattr(1), `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`.
//!
//! Since Linux 5.13 the kernel sends them for programs (`fuse_fileattr_get`, `fuse_fileattr_set`), and has
//! checked before that the caller owns the file, and has `CAP_LINUX_IMMUTABLE` for a change of the immutable
//! and append-only flags. Older kernels pass on what the program asks for.

use crate::kernel::ENOTTY;
use shoal_channel::Ioctl;
use shoal_types::{Errno, InodeFlags};

/// `_IOR('f', 1, long)`; the value is an `int` in fact.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
/// `_IOW('f', 2, long)`.
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
/// `_IOR('X', 31, struct fsxattr)`.
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
/// `_IOW('X', 32, struct fsxattr)`.
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// Bytes of the flags.
const FLAGS_BYTES: usize = 4;
/// Bytes of `struct fsxattr`, which begins with its flags. All else in it is 0 here.
const FSXATTR_BYTES: usize = 28;
/// The field of `struct fsxattr` that names a project, in bytes.
const FSXATTR_PROJECT: std::ops::Range<usize> = 12..16;

/// The flags, their `FS_*_FL` and their `FS_XFLAG_*`.
const FLAGS: [(InodeFlags, u32, u32); 4] = [
    (InodeFlags::IMMUTABLE, 0x10, 0x08),
    (InodeFlags::APPEND, 0x20, 0x10),
    (InodeFlags::NODUMP, 0x40, 0x80),
    (InodeFlags::NOATIME, 0x80, 0x40),
];

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlagsRequest {
    /// The flags, in this form.
    Get(FlagsFormat),
    /// Set them.
    Set(InodeFlags),
}

/// The form of a reply with flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlagsFormat {
    is_fsxattr: bool,
    /// The kernel takes a reply of exactly so many bytes.
    bytes: usize,
}

/// Decodes a request. `ENOTTY` for one that is not about flags, `EOPNOTSUPP` for flags that there are not.
pub(crate) fn decode(ioctl: &Ioctl<'_>) -> Result<FlagsRequest, Errno> {
    let room = ioctl.out_size as usize;
    match ioctl.cmd {
        FS_IOC_GETFLAGS if (FLAGS_BYTES..=FSXATTR_BYTES).contains(&room) => {
            Ok(FlagsRequest::Get(FlagsFormat { is_fsxattr: false, bytes: room }))
        }
        FS_IOC_FSGETXATTR if room == FSXATTR_BYTES => {
            Ok(FlagsRequest::Get(FlagsFormat { is_fsxattr: true, bytes: room }))
        }
        FS_IOC_SETFLAGS => flags(ioctl.data, |(_, bit, _)| *bit).map(FlagsRequest::Set),
        FS_IOC_FSSETXATTR if ioctl.data.len() == FSXATTR_BYTES => {
            match ioctl.data.get(FSXATTR_PROJECT).is_some_and(|project| project.iter().all(|byte| *byte == 0))
            {
                true => flags(ioctl.data, |(_, _, bit)| *bit).map(FlagsRequest::Set),
                false => Err(Errno::EOPNOTSUPP),
            }
        }
        _ => Err(ENOTTY),
    }
}

/// The flags in the first word of a request.
fn flags(data: &[u8], bit: impl Fn(&(InodeFlags, u32, u32)) -> u32) -> Result<InodeFlags, Errno> {
    let word =
        data.first_chunk::<FLAGS_BYTES>().map(|word| u32::from_ne_bytes(*word)).ok_or(Errno::EINVAL)?;
    let set = FLAGS.iter().filter(|flag| word & bit(flag) != 0);
    let (found, known) = set.fold((0, 0), |(found, known), flag| (found | flag.0.0, known | bit(flag)));
    if word & !known != 0 { Err(Errno::EOPNOTSUPP) } else { Ok(InodeFlags(found)) }
}

/// The reply to a request for flags.
pub(crate) fn encode(form: FlagsFormat, flags: InodeFlags) -> Vec<u8> {
    let set = FLAGS.iter().filter(|(flag, ..)| flags.intersects(*flag));
    let word = set.fold(0, |word, (_, flag, xflag)| word | if form.is_fsxattr { *xflag } else { *flag });
    let mut reply = u32::to_ne_bytes(word).to_vec();
    reply.resize(form.bytes, 0);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(cmd: u32, data: &[u8], out_size: u32) -> Result<FlagsRequest, Errno> {
        decode(&Ioctl { cmd, data, out_size })
    }

    #[test]
    fn flags_are_read_and_set_in_both_forms() {
        let both = InodeFlags(InodeFlags::IMMUTABLE.0 | InodeFlags::NODUMP.0);
        let Ok(FlagsRequest::Get(form)) = ask(FS_IOC_GETFLAGS, &[], 4) else { panic!("flags are asked for") };
        assert_eq!(encode(form, both), 0x50u32.to_ne_bytes());
        let Ok(FlagsRequest::Get(form)) = ask(FS_IOC_FSGETXATTR, &[], 28) else {
            panic!("flags are asked for")
        };
        let reply = encode(form, both);
        assert_eq!((reply.len(), &reply[..4]), (28, &0x88u32.to_ne_bytes()[..]));
        assert_eq!(ask(FS_IOC_FSSETXATTR, &reply, 0), Ok(FlagsRequest::Set(both)));
        assert_eq!(ask(FS_IOC_SETFLAGS, &0x50u32.to_ne_bytes(), 0), Ok(FlagsRequest::Set(both)));
    }

    #[test]
    fn flags_that_there_are_not_are_refused_like_other_requests() {
        // FS_SYNC_FL, and a project.
        assert_eq!(ask(FS_IOC_SETFLAGS, &0x18u32.to_ne_bytes(), 0), Err(Errno::EOPNOTSUPP));
        let mut project = [0; 28];
        project[12] = 1;
        assert_eq!(ask(FS_IOC_FSSETXATTR, &project, 0), Err(Errno::EOPNOTSUPP));
        assert_eq!(ask(FS_IOC_SETFLAGS, &[0], 0), Err(Errno::EINVAL));
        assert_eq!(ask(FS_IOC_FSGETXATTR, &[], 4), Err(ENOTTY));
        assert_eq!(ask(0x1234, &[], 4), Err(ENOTTY));
    }
}
