//! What is agreed with the kernel when a mount begins.

use crate::limits::{BACKGROUND_REQUESTS_MAX, KERNEL_CACHE, REQUEST_BYTES_MAX};
use fuser::{InitFlags, KernelConfig};
use shoal_types::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The answer to an unknown ioctl(2).
pub(crate) const ENOTTY: Errno = Errno(libc::ENOTTY);
/// The answer when too many requests wait.
pub(crate) const ENOMEM: Errno = Errno(libc::ENOMEM);

/// The answer to what is not to be set.
pub(crate) const EBUSY: Errno = Errno(libc::EBUSY);

/// What Shoal cannot do without: correctness depends on it.
const REQUIRED: InitFlags = InitFlags::FUSE_NO_OPEN_SUPPORT
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    // ACLs are checked by the kernel, and inherited by the client, which therefore gets modes unmasked.
    .union(InitFlags::FUSE_POSIX_ACL)
    .union(InitFlags::FUSE_DONT_MASK)
    // Otherwise every write(2) begins with a question for security.capability, and not only the first: see `stale::ask`.
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
    // File handles (NFS export, name_to_handle_at(2)) outlive the kernel's cache.
    .union(InitFlags::FUSE_EXPORT_SUPPORT);

/// What makes it faster.
const WANTED: InitFlags = InitFlags::FUSE_DO_READDIRPLUS
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_ASYNC_READ)
    .union(InitFlags::FUSE_ASYNC_DIO)
    .union(InitFlags::FUSE_BIG_WRITES)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    // Cached content is dropped when we say so, not when the kernel thinks that a size looks new.
    .union(InitFlags::FUSE_EXPLICIT_INVAL_DATA);

/// Locks of programs are asked of us.
const LOCKS: InitFlags = InitFlags::FUSE_POSIX_LOCKS.union(InitFlags::FUSE_FLOCK_LOCKS);

// Not asked for, on purpose:
// - FUSE_POSIX_LOCKS, FUSE_FLOCK_LOCKS, unless the mount is to keep locks for the cluster: the kernel's own cost nothing.
// - FUSE_WRITEBACK_CACHE: the kernel would ignore sizes and times that another client changed.
// - FUSE_AUTO_INVAL_DATA: the kernel would ask for attributes before reading what it has cached.
// - FUSE_ATOMIC_O_TRUNC: open(2) sends no message that could truncate.
// - FUSE_READDIRPLUS_AUTO: the kernel would ask for inodes only with the first part of a listing unless it sees them used,
//   but tar, find and rm read a whole directory first and use them then: for each of the rest a lookup (measured with
//   20,000 files: tar 0.56 s against 0.10 s, rm -r 3.1 s against 1.2 s; a mere ls 0.02 s against 0.06 s).
// - FUSE_SETXATTR_EXT: `fuser` 0.18 misreads the longer message.

/// The first version of the protocol in which the kernel can be told to look every name up again: Linux 6.16.
const ABI_WITH_EPOCHS: (u32, u32) = (7, 44);
/// Whether this kernel is older. It is the same for all mounts.
static IS_OLD: AtomicBool = AtomicBool::new(false);

/// Whether the kernel may keep names. Without a way to drop them that takes no lock it may not: a change of another client
/// could wait for a name to be dropped in a directory that is locked by a local change, which waits for that client. An
/// older kernel therefore asks for every name that it uses.
pub(crate) fn keeps_names() -> bool {
    !IS_OLD.load(Relaxed)
}

/// For how long the kernel may use a name without asking.
pub(crate) fn name_lifetime() -> Duration {
    if keeps_names() { KERNEL_CACHE } else { Duration::ZERO }
}

/// Settles the terms of the mount.
pub(crate) fn negotiate(config: &mut KernelConfig, locks_are_ours: bool) -> io::Result<()> {
    let required = if locks_are_ours { REQUIRED | LOCKS } else { REQUIRED };
    let missing = required - config.capabilities();
    if !missing.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel's FUSE lacks {missing:?}: Linux 5.12 or newer is needed"),
        ));
    }
    let abi = config.kernel_abi();
    let mut wanted = (required | WANTED) & config.capabilities();
    if (abi.0, abi.1) < ABI_WITH_EPOCHS {
        IS_OLD.store(true, Relaxed);
        // What comes with a listing would be asked for again at once.
        wanted -= InitFlags::FUSE_DO_READDIRPLUS;
        tracing::warn!(
            "this kernel is older than Linux 6.16: it has to ask for every name, which costs time"
        );
    }
    let refused = |_| io::Error::other("the FUSE library refuses what the kernel offers");
    config.add_capabilities(wanted).map_err(refused)?;
    config.set_max_write(REQUEST_BYTES_MAX).map_err(|_| io::Error::other("the request size is refused"))?;
    config
        .set_max_background(BACKGROUND_REQUESTS_MAX)
        .map_err(|_| io::Error::other("the number of background requests is refused"))?;
    Ok(())
}
