//! The kernel front end: a volume as a directory, through FUSE.
//!
//! **Model.** A few threads read requests and answer them from the client's memory. A request that the client
//! cannot answer without waiting is repeated by a thread kept for that, so that it holds up no other request.
//! There is no file system logic here: every method decodes a request, makes one call of
//! [`shoal_client::Client`], and encodes the outcome.
//!
//! **The kernel caches.** A session is recalled before another client changes what it caches. So the kernel
//! may cache names (also negative ones), attributes, listings, link targets and content without a time limit,
//! and the mount invalidates them ([`invalidate`], `docs/KERNEL_CACHE.md`). `open`, `opendir` and `flush` are
//! refused once with `ENOSYS`; from then on the kernel opens and closes files without a message. A repeated
//! read sends nothing at all. (With locks that exclude between mounts, opening and closing take a message
//! each: [`LockScope`].)
//!
//! **Assumes** Linux 6.16 or newer; since 5.12 it works, but the kernel has to look every name up.
//! Permissions and ACLs are checked by the kernel (`default_permissions`); its own fcntl and flock locks
//! exclude within the mount.
//!
//! **Promises.** A request gets exactly one reply. Queues and threads are bounded (see [`limits`]). When the
//! mount has ended, for any reason, every request has been answered before [`Mounted::wait`] returns.
//!
//! **Refuses.** ioctl(2) except for inode flags, `RENAME_WHITEOUT`, collapsing and inserting ranges.
//!
//! **If it hangs.** A process that hangs in a mount whose server does not answer is freed by `umount -f -l`,
//! or by `echo 1 > /sys/fs/fuse/connections/N/abort` (N: the minor device number, see `stat -c %d`). A mount
//! process should have a guard process, which calls [`release`] if the mount process is killed, and
//! [`StoppedKernel::empty`] if it is stopped.

mod affinity;
mod answer;
mod context;
mod dir_activity;
mod dispatch;
mod encode;
mod filesystem;
mod handle;
mod host;
mod hot;
mod invalidate;
mod ioctl;
mod kernel;
pub mod limits;
mod listing;
mod local;
mod locks;
mod mount;
mod mount_point;
mod mount_state;
pub mod mountinfo;
mod nodeid_alias;
mod notify;
mod orphan;
mod prime;
mod running;
mod seek;
mod setattr;
mod slot_table;
mod slow;
mod split_listings;
mod stats;
mod statx;
mod stopped;
mod thread;
mod tune;
mod xattr;

pub use host::{DirtyPages, Host, NotifyOutcome, OpenFile, Thread, Writing};
pub use hot::{HotBy, HotInode};
pub use invalidate::InvalidationCounts;
pub use local::{LocalMount, LocalOptions};
pub use locks::LockScope;
pub use mount::{MountError, MountOptions, Mounted, mount};
pub use orphan::release;
pub use shoal_channel::Transport;
pub use stats::{OpStats, Stats, operations};
pub use stopped::{StoppedKernel, Watch};

/// The file system's type as `/proc/mounts` shows it.
pub const FSTYPE: &str = "fuse.shoal";
