//! Beginning and end of a mount.

use crate::affinity;
use crate::dispatch::Dispatcher;
use crate::filesystem::Filesystem;
use crate::host::{HostRef, Machine};
use crate::hot::{HotBy, HotInode};
use crate::kernel;
use crate::limits;
use crate::locks::LockScope;
use crate::mount_state::Shared;
use crate::mountinfo;
use crate::prime::Primer;
use crate::stats::Stats;
use crate::stopped::Watch;
use crate::tune;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags};
use parking_lot::{Condvar, Mutex};
use shoal_channel::{Session, Transport};
use shoal_client::{Client, KernelCache};
use shoal_runtime::memory;
use shoal_types::InodeId;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The environment variable with the default of the mount option `transport`.
const TRANSPORT: &str = "SHOAL_TRANSPORT";

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source in `/proc/mounts`: the volume.
    pub source: String,
    /// How requests travel between the kernel and this process. The default is the value of the environment
    /// variable `SHOAL_TRANSPORT`, or `auto`.
    pub transport: Transport,
    /// Threads that read requests from `/dev/fuse`, if they do not come over io_uring.
    pub readers: usize,
    /// Threads for requests that have to wait: this many for reads of metadata, as many for content, and as
    /// many for changes.
    pub slow_threads: usize,
    /// Largest read or write request, in bytes: at most [`limits::REQUEST_BYTES_MAX`].
    pub request_bytes_max: u32,
    /// Read-ahead and writeback requests that the kernel may have in flight at once.
    pub background_max: u16,
    /// How far the kernel reads ahead in a file, in KiB.
    pub read_ahead_kib: u32,
    /// Inodes that the kernel may refer to, as far as they are not in use. Needs Linux 6.18.
    pub inodes_max: usize,
    /// Whether users other than the mounting one may use it.
    pub allow_other: bool,
    /// Read-only.
    pub read_only: bool,
    /// Device files do not work.
    pub nodev: bool,
    /// Set-user-id and set-group-id bits do not work.
    pub nosuid: bool,
    /// Programs cannot be run.
    pub noexec: bool,
    /// Which programs' locks exclude each other.
    pub locks: LockScope,
    /// Whether the kernel may cache names and attributes. Otherwise it asks for them at each use, in all
    /// mounts of this process from then on. This is for measurements.
    pub kernel_cache: bool,
    /// Whether requests are counted, for statistics.
    pub statistics: bool,
    /// An operation that takes longer is logged, with what it waits for; `None`: none is.
    pub slow_operation: Option<Duration>,
    /// The directory of the volume that is the root of the mount. The client keeps a reference to it until
    /// the mount ends.
    pub root: InodeId,
    /// SELinux contexts, such as `context=system_u:object_r:httpd_sys_content_t:s0`: for mount(2) as they
    /// are.
    pub contexts: Vec<String>,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        MountOptions {
            source: "shoal".into(),
            transport: std::env::var(TRANSPORT).ok().and_then(|value| value.parse().ok()).unwrap_or_default(),
            readers: cores.min(limits::READER_THREADS_MAX),
            slow_threads: limits::SLOW_THREADS,
            request_bytes_max: limits::REQUEST_BYTES_MAX,
            background_max: limits::BACKGROUND_REQUESTS_MAX,
            read_ahead_kib: limits::READ_AHEAD_KIB,
            inodes_max: (memory::total_bytes() / limits::MEMORY_PER_INODE_BYTES)
                .clamp(limits::INODES_MIN_DEFAULT, limits::INODES_MAX_DEFAULT),
            allow_other: true,
            read_only: false,
            nodev: false,
            nosuid: false,
            noexec: false,
            locks: LockScope::Local,
            kernel_cache: true,
            statistics: true,
            slow_operation: Some(limits::SLOW_OPERATION),
            root: InodeId::ROOT,
            contexts: Vec::new(),
        }
    }
}

/// An error of mounting or unmounting.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("cannot mount on {path}: {cause}")]
    Mountpoint {
        /// The path given.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// A process that served the mount point is gone, but its mount is still there.
    #[error("{path} is a dead mount, left by a process that was killed: remove it with 'umount -l {path}'")]
    Dead {
        /// The mount point.
        path: PathBuf,
    },
    /// No `/dev/fuse`.
    #[error("cannot open /dev/fuse: {0}; is the kernel module loaded ('modprobe fuse')?")]
    Device(io::Error),
    /// The kernel refused.
    #[error("mount(2) on {path}: {cause}; mounting takes root")]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// Processes use the mount.
    #[error("{path} is in use: see 'fuser -vm {path}' for who it is")]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// The connection to the kernel failed.
    #[error("FUSE: {0}")]
    Session(io::Error),
    /// umount(2) failed.
    #[error("umount(2) of {path}: {cause}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// A mounted volume. Dropping it ends the mount at once, even if it is in use.
pub struct Mounted {
    mountpoint: PathBuf,
    /// Device number of the mount, which tells it from other mounts at the same place.
    device: String,
    machine: Arc<Machine>,
    shared: Arc<Shared>,
    end: Arc<End>,
    session: Mutex<Option<JoinHandle<()>>>,
}

/// The outcome of the connection to the kernel, once it has ended.
#[derive(Default)]
struct End {
    outcome: Mutex<Option<Result<(), String>>>,
    known: Condvar,
}

/// Mounts a volume. From then on the kernel's requests are answered on threads of this process, until the
/// volume is unmounted.
pub fn mount(client: Arc<Client>, mountpoint: &Path, options: MountOptions) -> Result<Mounted, MountError> {
    let mountpoint = directory(mountpoint)?;
    if !options.kernel_cache {
        kernel::cache_nothing();
    }
    let device = shoal_channel::open_device().map_err(MountError::Device)?;
    let machine = Arc::new(Machine::default());
    let slow_threads = options.slow_threads.max(1);
    let MountOptions { locks, root, slow_operation, .. } = options;
    let dispatcher = Dispatcher::start(
        client.clone(),
        &HostRef::new(machine.clone()),
        slow_threads,
        locks,
        root,
        slow_operation,
    )
    .map_err(MountError::Session)?;
    let shared = dispatcher.shared().clone();
    if !options.statistics {
        shared.counters.stop();
    }
    affinity::remember();
    if options.transport != Transport::Dev {
        allow_uring(options.transport).map_err(MountError::Session)?;
    }
    attach(&device, &mountpoint, &options)?;
    machine
        .begin(&device)
        .map_err(MountError::Session)
        .inspect(|()| {
            shared.invalidator.begin();
            client.set_kernel(shared.invalidator.clone());
        })
        .and_then(|()| shared.invalidator.bound_references(options.inodes_max).map_err(MountError::Session))
        .and_then(|()| start(dispatcher, device, &mountpoint, &options))
        .map(|(device, end, session)| {
            machine.is_at(mountpoint.clone(), device.clone());
            let (mountpoint, session) = (mountpoint.clone(), Mutex::new(Some(session)));
            Mounted { mountpoint, device, machine: machine.clone(), shared: shared.clone(), end, session }
        })
        .inspect_err(|_| {
            let _ = nix::mount::umount2(&mountpoint, MntFlags::MNT_DETACH);
        })
}

/// The mount point's full path, if it is one.
fn directory(path: &Path) -> Result<PathBuf, MountError> {
    let unusable = |cause: io::Error| match cause.raw_os_error() {
        Some(libc::ENOTCONN) => MountError::Dead { path: path.into() },
        _ => MountError::Mountpoint { path: path.into(), cause },
    };
    let full = path.canonicalize().map_err(unusable)?;
    match full.metadata().map_err(unusable)?.is_dir() {
        true => Ok(full),
        false => Err(unusable(io::ErrorKind::NotADirectory.into())),
    }
}

fn attach(device: &File, mountpoint: &Path, options: &MountOptions) -> Result<(), MountError> {
    let mut flags = MsFlags::empty();
    flags.set(MsFlags::MS_RDONLY, options.read_only);
    flags.set(MsFlags::MS_NODEV, options.nodev);
    flags.set(MsFlags::MS_NOSUID, options.nosuid);
    flags.set(MsFlags::MS_NOEXEC, options.noexec);
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{}",
        device.as_raw_fd(),
        nix::unistd::geteuid(),
        nix::unistd::getegid(),
        if options.allow_other { ",allow_other" } else { "" },
    );
    options.contexts.iter().for_each(|context| data.extend([",", context.as_str()]));
    nix::mount::mount(
        Some(options.source.as_str()),
        mountpoint,
        Some(crate::FSTYPE),
        flags,
        Some(data.as_str()),
    )
    .map_err(|errno| MountError::Refused { path: mountpoint.into(), cause: errno.into() })
}

/// Lets this mount use io_uring, which is a setting of the whole machine.
fn allow_uring(transport: Transport) -> io::Result<()> {
    match shoal_channel::allow_uring() {
        Ok(false) => Ok(()),
        Ok(true) => {
            tracing::info!("io_uring is now allowed for FUSE mounts of this machine (fuse.enable_uring=Y)");
            Ok(())
        }
        Err(why) if transport == Transport::Uring => Err(io::Error::other(format!(
            "transport=uring needs Linux 6.14, and fuse.enable_uring=Y, which only root can set: {why}"
        ))),
        Err(why) => {
            tracing::debug!("io_uring cannot be allowed: {why}");
            Ok(())
        }
    }
}

type Started = (String, Arc<End>, JoinHandle<()>);

/// Negotiates with the kernel (INIT) and starts the threads.
fn start(
    dispatcher: Dispatcher,
    device: File,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Started, MountError> {
    let primer = Primer::default();
    let (request_bytes_max, background_max) = (options.request_bytes_max, options.background_max);
    let front = Filesystem::new(Arc::new(dispatcher), primer.clone(), request_bytes_max, background_max);
    let session = Session::begin(device, front, options.transport).map_err(MountError::Session)?;
    tracing::info!("requests travel over {}", if session.is_over_uring() { "io_uring" } else { "/dev/fuse" });
    let readers = options.readers.max(1);
    let entry = mountinfo::at(mountpoint)
        .map_err(MountError::Session)?
        .ok_or_else(|| MountError::Session(io::Error::other("the mount has vanished")))?;
    tune::read_ahead(&entry.device, options.read_ahead_kib);
    let end = Arc::new(End::default());
    let told = end.clone();
    let run = move || {
        let outcome = session.run(readers).map_err(|cause| cause.to_string());
        *told.outcome.lock() = Some(outcome);
        told.known.notify_all();
    };
    let session = Builder::new().name("fuse-session".into()).spawn(run).map_err(MountError::Session)?;
    primer.run(mountpoint);
    Ok((entry.device, end, session))
}

impl Mounted {
    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Its device number, as `MAJOR:MINOR`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The descriptors with which the guard process invalidates the kernel's cache if this process is
    /// stopped.
    pub fn watch(&self) -> io::Result<Watch> {
        self.shared.invalidator.watch(self.machine.device()?)
    }

    /// The kernel's cache of this mount, to invalidate what other clients change. The client has it already.
    pub fn kernel_cache(&self) -> Arc<dyn KernelCache> {
        self.shared.invalidator.clone()
    }

    /// Counters of the kernel's requests.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The inodes with the most requests of a kind, and since when that has been counted. `None`: there is no
    /// such kind; see [`operations`](crate::operations).
    pub fn hot(&self, op: &str, by: HotBy, count_max: usize) -> Option<(Vec<HotInode>, Instant)> {
        self.shared.counters.hot(op, by, count_max)
    }

    /// The requests in flight, a line each: the request, its age, and what it waits for.
    pub fn in_flight(&self) -> Vec<String> {
        self.shared.running.lines()
    }

    /// Resets the counts of requests by inode.
    pub fn clear_hot(&self) {
        self.shared.counters.clear_hot();
    }

    /// Waits until the volume is unmounted, by [`unmount`](Self::unmount) or by another process (umount(8)),
    /// and every request has been answered. Data written before that is with the client, which makes it
    /// durable when it is closed.
    pub fn wait(&self) -> Result<(), MountError> {
        let mut outcome = self.end.outcome.lock();
        loop {
            match &*outcome {
                Some(Ok(())) => return Ok(()),
                Some(Err(cause)) => return Err(MountError::Session(io::Error::other(cause.clone()))),
                None => self.end.known.wait(&mut outcome),
            }
        }
    }

    /// Whether it is unmounted, by this process or another.
    pub fn has_ended(&self) -> bool {
        self.end.outcome.lock().is_some()
    }

    /// Unmounts and waits for the end. [`MountError::Busy`] if the mount is in use; then it stays.
    pub fn unmount(&self) -> Result<(), MountError> {
        if self.is_ours()? {
            nix::mount::umount2(&self.mountpoint, MntFlags::UMOUNT_NOFOLLOW).map_err(
                |errno| match errno {
                    Errno::EBUSY => MountError::Busy { path: self.mountpoint.clone() },
                    errno => MountError::Unmount { path: self.mountpoint.clone(), cause: errno.into() },
                },
            )?;
        }
        self.wait()
    }

    /// Ends the mount at once, in use or not: it vanishes from its mount point, and every use of open files
    /// fails with `ECONNABORTED` or `ENOTCONN`. Calls that wait for servers that do not answer are
    /// interrupted. An administrator does the same to a hanging mount by `umount -f -l`, or by writing to
    /// `/sys/fs/fuse/connections/N/abort`, which is also done here to a mount that was detached before.
    pub fn abort(&self) -> Result<(), MountError> {
        if self.is_ours()? {
            // The first call aborts the connection, even if the mount is in use; the second detaches the
            // mount.
            let busy = nix::mount::umount2(&self.mountpoint, MntFlags::MNT_FORCE);
            if busy.is_err() {
                nix::mount::umount2(&self.mountpoint, MntFlags::MNT_DETACH).map_err(|errno| {
                    MountError::Unmount { path: self.mountpoint.clone(), cause: errno.into() }
                })?;
            }
        } else if !self.has_ended() {
            let number = self.device.rsplit(':').next().unwrap_or_default();
            shoal_channel::abort_connection(number)
                .map_err(|cause| MountError::Unmount { path: self.mountpoint.clone(), cause })?;
        }
        self.wait()
    }

    /// Whether the mount at the mount point is still this one.
    fn is_ours(&self) -> Result<bool, MountError> {
        let entry = mountinfo::at(&self.mountpoint).map_err(MountError::Session)?;
        Ok(!self.has_ended()
            && entry.is_some_and(|entry| entry.fstype == crate::FSTYPE && entry.device == self.device))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.has_ended()
            && let Err(error) = self.abort()
        {
            tracing::warn!("{error}");
            return;
        }
        if let Some(session) = self.session.lock().take() {
            let _ = session.join();
        }
    }
}
