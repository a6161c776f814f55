//! Limits that hold everywhere. Those of a single crate are in its own `limits` module.

use std::time::Duration;

/// Longest name of a directory entry (`NAME_MAX`), in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link (`PATH_MAX` less its NUL), in bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Longest name of an extended attribute (`XATTR_NAME_MAX`), in bytes.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Largest value of an extended attribute (`XATTR_SIZE_MAX`), in bytes.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of names and values of one inode's extended attributes together, so that an inode always fits a
/// reply.
pub const XATTR_TOTAL_BYTES_MAX: usize = 256 << 10;
/// Directories and files of one volume with a policy of one kind: the cluster map has them, which every
/// process keeps.
pub const POLICIES_MAX: usize = 256;
/// Directories above a file among which its policy is looked for; the kernel takes paths of 4096 bytes.
pub const POLICY_DEPTH_MAX: usize = 2048;
/// How long a brick has to be drained, or a detached tier empty, before it is removed. A mount takes less to
/// learn of it, and to commit the blocks that it stored there before.
pub const REMOVAL_WAIT: Duration = Duration::from_secs(15);
/// Largest block of content, in bytes.
pub const BLOCK_BYTES_MAX: u32 = 4 << 20;
/// Content up to this size is kept inline in the namespace by default, in bytes.
pub const INLINE_BYTES_DEFAULT: u32 = 64 << 10;
/// Largest inline extent that any setting may ask for, in bytes: a record must stay small beside a batch.
pub const INLINE_BYTES_MAX: u32 = 256 << 10;
/// Largest file, in bytes: what `off_t` holds.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Most names of one file, as on ext4-class file systems with wide counters.
pub const LINKS_MAX: u32 = 65_000;
/// Most sub-directories of one directory. Like XFS, not like ext4: builds and mail stores reach 65,000.
pub const SUBDIRS_MAX: u32 = u32::MAX - 16;
