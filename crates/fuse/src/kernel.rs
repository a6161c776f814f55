//! Negotiation with the kernel when a mount begins (INIT).

use crate::limits::{BACKGROUND_REQUESTS_MAX, KERNEL_CACHE, REQUEST_BYTES_MAX};
use fuser::{InitFlags, KernelConfig};
use shoal_types::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The error for an unknown ioctl(2).
pub(crate) const ENOTTY: Errno = Errno(libc::ENOTTY);
/// The error when too many requests wait.
pub(crate) const ENOMEM: Errno = Errno(libc::ENOMEM);

/// The error for an attribute that may not be set.
pub(crate) const EBUSY: Errno = Errno(libc::EBUSY);

/// Flags that correctness depends on.
const REQUIRED: InitFlags = InitFlags::FUSE_NO_OPEN_SUPPORT
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    // ACLs are checked by the kernel, and inherited by the client, which therefore gets modes unmasked.
    .union(InitFlags::FUSE_POSIX_ACL)
    .union(InitFlags::FUSE_DONT_MASK)
    // Otherwise the kernel asks for security.capability before every write(2), not only the first: see
    // `invalidate::write_gate`.
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2)
    // File handles (NFS export, name_to_handle_at(2)) outlive the kernel's cache.
    .union(InitFlags::FUSE_EXPORT_SUPPORT);

/// Flags that make the mount faster.
const WANTED: InitFlags = InitFlags::FUSE_DO_READDIRPLUS
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    .union(InitFlags::FUSE_ASYNC_READ)
    .union(InitFlags::FUSE_ASYNC_DIO)
    .union(InitFlags::FUSE_BIG_WRITES)
    .union(InitFlags::FUSE_MAX_PAGES)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    // Cached content is invalidated by notifications, not when the kernel sees another size.
    .union(InitFlags::FUSE_EXPLICIT_INVAL_DATA);

/// Flags that make the kernel send requests for locks of programs.
const LOCKS: InitFlags = InitFlags::FUSE_POSIX_LOCKS.union(InitFlags::FUSE_FLOCK_LOCKS);

// Flags that are not set on purpose:
// - FUSE_POSIX_LOCKS, FUSE_FLOCK_LOCKS, unless the mount keeps locks for the cluster: the kernel's own cost
//   nothing.
// - FUSE_WRITEBACK_CACHE: the kernel would ignore sizes and times that another client changed.
// - FUSE_AUTO_INVAL_DATA: the kernel would ask for attributes before reading what it has cached.
// - FUSE_ATOMIC_O_TRUNC: open(2) sends no message that could truncate.
// - FUSE_READDIRPLUS_AUTO: the kernel asks for inodes only with the first part of a listing unless it sees
//   them used. But tar, find and rm read a whole directory first and use the inodes then, with a lookup for
//   each of the rest. Measured with 20,000 files: tar 0.56 s against 0.10 s, rm -r 3.1 s against 1.2 s; a
//   mere ls 0.02 s against 0.06 s.
// - FUSE_SETXATTR_EXT: `fuser` 0.18 misreads the longer message.

/// The first protocol version with `FUSE_NOTIFY_INC_EPOCH`: Linux 6.16.
const ABI_WITH_EPOCHS: (u32, u32) = (7, 44);
/// Whether this kernel is older, for all mounts.
static IS_OLD: AtomicBool = AtomicBool::new(false);

/// Whether the kernel may cache names. Without `INC_EPOCH`, which takes no lock, it may not: an `INVAL_ENTRY`
/// could deadlock with a local change (`docs/KERNEL_CACHE.md`, hazard 1). So an older kernel asks for every
/// name that it uses.
pub(crate) fn keeps_names() -> bool {
    !IS_OLD.load(Relaxed)
}

/// For how long the kernel may use a name without asking.
pub(crate) fn name_lifetime() -> Duration {
    if keeps_names() { KERNEL_CACHE } else { Duration::ZERO }
}

/// Chooses the flags and limits of the mount.
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
        // The inodes of a listing would be looked up again at once.
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
