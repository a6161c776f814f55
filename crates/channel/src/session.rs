//! A mount, from INIT to its end.

use crate::abi::{self, InitFlags};
use crate::device::{Device, clone_device};
use crate::filesystem::{Filesystem, InitRequest, Settings, dispatch};
use crate::reply::ReplyPath;
use crate::request::{Init, Operation, decode};
use crate::ring::{self, Prepared, Queue};
use crate::types::Unique;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use zerocopy::IntoBytes;

/// A message is at most this much longer than the data of a write: headers, names, and the value of SETXATTR.
/// The kernel wants room for at least `FUSE_MIN_READ_BUFFER` bytes.
const BESIDES_DATA_BYTES: usize = 128 << 10;
/// `FUSE_MIN_READ_BUFFER`: the least payload that a slot of io_uring must have room for.
const PAYLOAD_BYTES_MIN: u32 = 8192;
/// INIT is the first message, and short.
const INIT_BYTES_MAX: usize = 8 << 10;
/// The oldest version of the protocol that is spoken, as far as messages are concerned: Linux 4.20.
const VERSION_MIN: (u32, u32) = (7, 28);
/// The oldest version with which io_uring is used by itself: Linux 6.18, with which it is tested. The kernel
/// has it from 6.14 on.
const VERSION_URING: (u32, u32) = (7, 45);
/// The congestion threshold is three quarters of the background requests, as in the kernel's own default.
const CONGESTION: (u16, u16) = (3, 4);
/// A page of the kernel, in bytes: the unit of the largest request.
const PAGE_BYTES: u32 = 4096;

/// The switch of the kernel's module that allows io_uring, for all mounts of the machine.
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The transport of requests and replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// io_uring from Linux 6.18 on, where that is possible and allowed; otherwise `/dev/fuse`.
    #[default]
    Auto,
    /// io_uring, from Linux 6.14 on; where that is impossible, mounting fails.
    Uring,
    /// `/dev/fuse`.
    Dev,
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Transport, String> {
        match text {
            "auto" => Ok(Transport::Auto),
            "uring" => Ok(Transport::Uring),
            "dev" => Ok(Transport::Dev),
            _ => Err("'transport' is 'auto', 'uring' or 'dev'".into()),
        }
    }
}

/// Lets mounts of this machine use io_uring (Linux 6.14), before they are mounted. Returns whether that had
/// to be switched on. Takes root.
pub fn allow_uring() -> io::Result<bool> {
    if fs::read_to_string(ENABLE_URING)?.trim() == "Y" {
        return Ok(false);
    }
    fs::write(ENABLE_URING, "Y").map(|()| true)
}

/// A connection whose INIT is answered.
pub struct Session<F> {
    filesystem: F,
    device: File,
    settings: Settings,
    /// Empty: requests are read from `/dev/fuse`.
    queues: Vec<Prepared>,
    /// Largest payload of a message, in bytes.
    payload_bytes: usize,
}

impl<F: Filesystem> Session<F> {
    /// Answers INIT. The device must be mounted already.
    pub fn begin(device: File, mut filesystem: F, transport: Transport) -> io::Result<Session<F>> {
        let rings = match transport {
            Transport::Dev => Ok(Vec::new()),
            Transport::Auto | Transport::Uring => ring::prepare().map_err(|why| why.to_string()),
        };
        let device = Arc::new(Device(device));
        let mut buffer = vec![0u64; INIT_BYTES_MAX / size_of::<u64>()];
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let (settings, payload_bytes) = loop {
            let message = device.receive(&mut buffer)?.ok_or(io::ErrorKind::NotConnected)?;
            let (request, operation) = decode(message, false).map_err(|why| invalid(&why.to_string()))?;
            let Operation::Init(mut init) = operation else {
                device.reply(request.unique(), -libc::EIO, &[])?;
                return Err(invalid("the first request of the kernel is not INIT"));
            };
            let is_offered = init.flags.contains(InitFlags::OVER_IO_URING);
            let is_old = init.version < VERSION_URING;
            let is_used = match use_uring(transport, is_offered, is_old, rings.as_ref().map(Vec::len)) {
                Ok(is_used) => is_used,
                Err(why) => {
                    device.reply(request.unique(), -libc::EPROTO, &[])?;
                    return Err(io::Error::new(io::ErrorKind::Unsupported, why));
                }
            };
            init.flags.set(InitFlags::OVER_IO_URING, is_used);
            match answer(&*device, request.unique(), &init, &mut filesystem)? {
                Some(chosen) => break chosen,
                None => continue,
            }
        };
        let device = Arc::into_inner(device).ok_or_else(|| io::Error::other("the device is in use"))?.0;
        let queues = match settings.flags.contains(InitFlags::OVER_IO_URING) {
            true => rings.unwrap_or_default(),
            false => Vec::new(),
        };
        Ok(Session { filesystem, device, settings, queues, payload_bytes })
    }

    /// Whether requests come over io_uring.
    pub fn is_over_uring(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Takes requests from the kernel until the mount has ended, and every thread with it: on so many threads
    /// from `/dev/fuse`, or on one of each processor over io_uring.
    pub fn run(self, readers: usize) -> io::Result<()> {
        let Session { mut filesystem, device, settings, queues, payload_bytes } = self;
        let readers = if queues.is_empty() { readers } else { 1 };
        let mut devices = (1..readers).map(|_| clone_device(&device)).collect::<io::Result<Vec<_>>>()?;
        devices.push(device);
        let devices: Vec<Arc<Device>> = devices.into_iter().map(|device| Arc::new(Device(device))).collect();
        let all: Arc<[Arc<Queue>]> = queues.iter().map(Prepared::queue).collect();
        let mut threads: Vec<JoinHandle<io::Result<()>>> = Vec::new();
        for (n, queue) in queues.into_iter().enumerate() {
            let (mut filesystem, device) = (filesystem.for_thread(), devices[0].clone());
            let extended = settings.flags.contains(InitFlags::SETXATTR_EXT);
            let run = move || {
                let serve = || queue.run(device.clone(), payload_bytes, extended, &mut filesystem);
                let ended = catch_unwind(AssertUnwindSafe(serve))
                    .unwrap_or_else(|_| Err(io::Error::other("a thread that takes requests panicked")));
                // Without this queue callers on its processor would wait for ever.
                ended.inspect_err(|why| abort(&device.0, why))
            };
            threads.push(Builder::new().name(format!("fuse-ring-{n}")).spawn(run)?);
        }
        for (n, device) in devices.into_iter().enumerate() {
            let (mut filesystem, all) = (filesystem.for_thread(), all.clone());
            let run = move || {
                let outcome = take_requests(&device, &mut filesystem, &settings);
                all.iter().for_each(|queue| queue.end());
                outcome
            };
            threads.push(Builder::new().name(format!("fuse-{n}")).spawn(run)?);
        }
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that takes requests panicked")))
        });
        let outcomes: Vec<_> = ended.collect();
        filesystem.destroy()?;
        outcomes.into_iter().collect()
    }
}

/// Whether requests come over io_uring. `rings`: how many could be made, or why none. Fails if the user
/// requires io_uring and there are none. `is_old`: the kernel is older than [`VERSION_URING`].
fn use_uring(
    transport: Transport,
    is_offered: bool,
    is_old: bool,
    rings: Result<usize, &String>,
) -> Result<bool, String> {
    let why = match (is_offered, rings) {
        (true, Ok(_)) if is_old && transport == Transport::Auto => {
            "this kernel is older than Linux 6.18".into()
        }
        (true, Ok(rings)) => return Ok(rings > 0),
        (false, _) => format!("this kernel does not offer FUSE over io_uring (Linux 6.14, {ENABLE_URING})"),
        (true, Err(why)) => format!("io_uring is not to be had: {why}"),
    };
    match transport {
        Transport::Dev => Ok(false),
        Transport::Uring => Err(why),
        Transport::Auto => {
            tracing::info!("io_uring is not used: {why}");
            Ok(false)
        }
    }
}

/// Aborts the connection with this number: every call fails with `ECONNABORTED`. See `fusectl` in the
/// kernel's `Documentation/filesystems/fuse`.
pub fn abort_connection(number: &str) -> io::Result<()> {
    fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1")
}

/// Ends a connection whose requests cannot be taken any more: callers get an error instead of waiting.
fn abort(device: &File, why: &io::Error) {
    tracing::error!("the mount ends, its requests cannot be taken over io_uring any more: {why}");
    let number = fs::read_to_string(format!("/proc/self/fdinfo/{}", device.as_raw_fd()))
        .ok()
        .and_then(|info| Some(info.split_once("fuse_connection:")?.1.split_whitespace().next()?.to_owned()));
    let outcome = match number {
        Some(number) => abort_connection(&number),
        None => Err(io::Error::other("the number of the connection is unknown")),
    };
    if let Err(why) = outcome {
        tracing::error!("the connection could not be aborted: {why}");
    }
}

fn take_requests(
    device: &Arc<Device>,
    filesystem: &mut impl Filesystem,
    settings: &Settings,
) -> io::Result<()> {
    let bytes = settings.request_bytes_max as usize + BESIDES_DATA_BYTES;
    let mut buffer = vec![0u64; bytes.div_ceil(size_of::<u64>())];
    let extended = settings.flags.contains(InitFlags::SETXATTR_EXT);
    while let Some(message) = device.receive(&mut buffer)? {
        let (request, operation) = decode(message, extended).map_err(io::Error::other)?;
        if !dispatch(filesystem, &request, operation, device.clone()) {
            break;
        }
    }
    Ok(())
}

/// Answers an INIT. `None`: the kernel is to send another one, with our major version.
pub(crate) fn answer(
    path: &dyn ReplyPath,
    unique: Unique,
    init: &Init,
    filesystem: &mut impl Filesystem,
) -> io::Result<Option<(Settings, usize)>> {
    let (major, minor) = (abi::MAJOR, abi::MINOR);
    if init.version.0 > major {
        let only = abi::InitOut { major, minor, ..Default::default() };
        path.reply(unique, 0, &[IoSlice::new(only.as_bytes())])?;
        return Ok(None);
    }
    let offer = InitRequest { version: init.version, flags: init.flags - InitFlags::INIT_EXT };
    let chosen = match init.version < VERSION_MIN {
        true => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "this kernel speaks FUSE {}.{}: Linux 4.20 or newer is needed",
                init.version.0, init.version.1
            ),
        )),
        false => filesystem.init(&offer),
    };
    let settings = match chosen {
        Ok(settings) => settings,
        Err(why) => {
            path.reply(unique, -libc::EPROTO, &[])?;
            return Err(why);
        }
    };
    let wanted = settings.flags | InitFlags::INIT_EXT | InitFlags::OVER_IO_URING;
    let settings = Settings { flags: wanted & init.flags, ..settings };
    let flags = settings.flags.bits();
    let max_background = settings.background_max;
    let largest = settings.request_bytes_max.max(init.max_readahead);
    let out = abi::InitOut {
        major,
        minor,
        max_readahead: init.max_readahead,
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background,
        congestion_threshold: max_background / CONGESTION.1 * CONGESTION.0,
        max_write: settings.request_bytes_max,
        time_gran: 1,
        max_pages: largest.div_ceil(PAGE_BYTES) as u16,
        ..Default::default()
    };
    path.reply(unique, 0, &[IoSlice::new(out.as_bytes())])?;
    let payload_bytes = (u32::from(out.max_pages) * PAGE_BYTES).max(out.max_write).max(PAYLOAD_BYTES_MIN);
    Ok(Some((settings, payload_bytes as usize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_without_io_uring_is_fallen_back_from_unless_it_was_asked_for() {
        let none = "ENOSYS".to_owned();
        assert_eq!(use_uring(Transport::Auto, true, false, Ok(2)), Ok(true));
        assert_eq!(use_uring(Transport::Auto, true, true, Ok(2)), Ok(false), "a kernel from 6.14 to 6.17");
        assert_eq!(use_uring(Transport::Uring, true, true, Ok(2)), Ok(true));
        assert_eq!(use_uring(Transport::Auto, false, false, Ok(2)), Ok(false), "it is not allowed");
        assert_eq!(use_uring(Transport::Auto, true, false, Err(&none)), Ok(false), "io_uring is forbidden");
        for offered in [true, false] {
            assert_eq!(use_uring(Transport::Dev, offered, false, Ok(0)), Ok(false));
        }
        assert!(use_uring(Transport::Uring, false, false, Ok(2)).unwrap_err().contains("enable_uring"));
        assert!(use_uring(Transport::Uring, true, false, Err(&none)).unwrap_err().contains("ENOSYS"));
        assert_eq!("uring".parse(), Ok(Transport::Uring));
        assert!("tcp".parse::<Transport>().is_err());
    }
}
