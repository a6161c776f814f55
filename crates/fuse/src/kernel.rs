//! Negotiation with the kernel when a mount begins (INIT).

use crate::limits::{KERNEL_CACHE, REQUEST_BYTES_MAX};
use shoal_channel::{InitFlags, InitRequest, Settings};
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
const REQUIRED: InitFlags = InitFlags::NO_OPEN_SUPPORT
    .union(InitFlags::NO_OPENDIR_SUPPORT)
    // ACLs are checked by the kernel, and inherited by the client, which therefore gets modes unmasked.
    .union(InitFlags::POSIX_ACL)
    .union(InitFlags::DONT_MASK)
    // Otherwise the kernel requests security.capability before every write(2), not only the first: see
    // `invalidate::write_gate`.
    .union(InitFlags::HANDLE_KILLPRIV_V2)
    // Whether setting an ACL costs the set-group-id bit is in the request.
    .union(InitFlags::SETXATTR_EXT)
    // File handles (NFS export, name_to_handle_at(2)) outlive the kernel's cache.
    .union(InitFlags::EXPORT_SUPPORT);

/// Flags that make the mount faster.
const WANTED: InitFlags = InitFlags::DO_READDIRPLUS
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::ASYNC_READ)
    .union(InitFlags::ASYNC_DIO)
    .union(InitFlags::BIG_WRITES)
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::CACHE_SYMLINKS)
    // Cached content is invalidated by notifications, not when the kernel sees another size.
    .union(InitFlags::EXPLICIT_INVAL_DATA);

/// Flags that make the kernel send requests for locks of programs.
const LOCKS: InitFlags = InitFlags::POSIX_LOCKS.union(InitFlags::FLOCK_LOCKS);

// Flags that are not set on purpose:
// - FUSE_POSIX_LOCKS, FUSE_FLOCK_LOCKS, unless the mount keeps locks for the cluster: the kernel's own cost
//   nothing.
// - FUSE_WRITEBACK_CACHE: the kernel would ignore sizes and times that another client changed.
// - FUSE_AUTO_INVAL_DATA: the kernel would request attributes before each read from its cache.
// - FUSE_ATOMIC_O_TRUNC: open(2) sends no message that could truncate.
// - FUSE_READDIRPLUS_AUTO: the kernel asks for inodes only with the first part of a listing unless it sees
//   them used. But tar, find and rm read a whole directory first and use the inodes then, with a lookup for
//   each of the rest. Measured with 20,000 files: tar 0.56 s against 0.10 s, rm -r 3.1 s against 1.2 s; a
//   mere ls 0.02 s against 0.06 s.

/// The first protocol version with `FUSE_NOTIFY_INC_EPOCH`: Linux 6.16.
const ABI_WITH_EPOCHS: (u32, u32) = (7, 44);
/// Whether this kernel is older, for all mounts.
static IS_OLD: AtomicBool = AtomicBool::new(false);

/// Whether the kernel is to cache no names and attributes, for all mounts of this process.
static CACHES_NOTHING: AtomicBool = AtomicBool::new(false);

/// From now on, the kernel asks for every name and all attributes that it uses. This is for measurements.
pub(crate) fn cache_nothing() {
    CACHES_NOTHING.store(true, Relaxed);
}

/// Whether the kernel may cache names. Without `INC_EPOCH`, which takes no lock, it may not: an `INVAL_ENTRY`
/// could deadlock with a local change (`docs/KERNEL_CACHE.md`, hazard 1). So an older kernel asks for every
/// name that it uses.
pub(crate) fn keeps_names() -> bool {
    !IS_OLD.load(Relaxed) && !CACHES_NOTHING.load(Relaxed)
}

/// For how long the kernel may use a name without asking.
pub(crate) fn name_lifetime() -> Duration {
    if keeps_names() { KERNEL_CACHE } else { Duration::ZERO }
}

/// For how long the kernel may use attributes without asking.
pub(crate) fn attr_lifetime() -> Duration {
    if CACHES_NOTHING.load(Relaxed) { Duration::ZERO } else { KERNEL_CACHE }
}

/// Chooses the flags and limits of the mount.
pub(crate) fn negotiate(
    offer: &InitRequest,
    locks_are_ours: bool,
    request_bytes_max: u32,
    background_max: u16,
) -> io::Result<Settings> {
    let required = if locks_are_ours { REQUIRED | LOCKS } else { REQUIRED };
    let missing = required - offer.flags;
    if !missing.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this kernel's FUSE lacks {missing:?}: Linux 5.12 or newer is needed"),
        ));
    }
    let mut flags = (required | WANTED) & offer.flags;
    if offer.version < ABI_WITH_EPOCHS {
        IS_OLD.store(true, Relaxed);
        tracing::warn!(
            "this kernel is older than Linux 6.16: it has to ask for every name, which costs time"
        );
    }
    if !keeps_names() {
        // The inodes of a listing would be looked up again at once.
        flags -= InitFlags::DO_READDIRPLUS;
    }
    let request_bytes_max = request_bytes_max.min(REQUEST_BYTES_MAX);
    Ok(Settings { flags, request_bytes_max, background_max })
}
