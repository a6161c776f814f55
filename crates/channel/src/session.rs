//! A mount, from INIT to its end.

use crate::abi::{self, InitFlags};
use crate::device::{Device, clone_device};
use crate::filesystem::{Filesystem, Offer, Settings, dispatch};
use crate::reply::Transport;
use crate::request::{Init, Operation, decode};
use crate::types::Unique;
use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use zerocopy::IntoBytes;

/// A message is at most this much longer than the data of a write: headers, names, and the value of SETXATTR.
/// The kernel wants room for at least `FUSE_MIN_READ_BUFFER` bytes.
const BESIDES_DATA_BYTES: usize = 128 << 10;
/// INIT is the first message, and short.
const INIT_BYTES_MAX: usize = 8 << 10;
/// The oldest version of the protocol that is spoken, as far as messages are concerned: Linux 4.20.
const VERSION_MIN: (u32, u32) = (7, 28);
/// The congestion threshold is three quarters of the background requests, as in the kernel's own default.
const CONGESTION: (u16, u16) = (3, 4);
/// A page of the kernel, in bytes: the unit of the largest request.
const PAGE_BYTES: u32 = 4096;

/// A connection whose INIT is answered.
pub struct Session<F> {
    filesystem: F,
    device: File,
    settings: Settings,
}

impl<F: Filesystem> Session<F> {
    /// Answers INIT. The device must be mounted already.
    pub fn begin(device: File, mut filesystem: F) -> io::Result<Session<F>> {
        let device = Arc::new(Device(device));
        let mut buffer = vec![0u64; INIT_BYTES_MAX / size_of::<u64>()];
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let settings = loop {
            let message = device.receive(&mut buffer)?.ok_or(io::ErrorKind::NotConnected)?;
            let (request, operation) = decode(message, false).map_err(|why| invalid(&why.to_string()))?;
            let Operation::Init(init) = operation else {
                device.reply(request.unique(), -libc::EIO, &[])?;
                return Err(invalid("the first request of the kernel is not INIT"));
            };
            match answer(&device, request.unique(), &init, &mut filesystem)? {
                Some(settings) => break settings,
                None => continue,
            }
        };
        let device = Arc::into_inner(device).ok_or_else(|| io::Error::other("the device is in use"))?.0;
        Ok(Session { filesystem, device, settings })
    }

    /// Takes requests from the kernel on so many threads until the mount has ended, and every thread with it.
    pub fn run(self, readers: usize) -> io::Result<()> {
        let Session { mut filesystem, device, settings } = self;
        let mut devices = (1..readers).map(|_| clone_device(&device)).collect::<io::Result<Vec<_>>>()?;
        devices.push(device);
        let started: io::Result<Vec<JoinHandle<io::Result<()>>>> = devices
            .into_iter()
            .enumerate()
            .map(|(n, device)| {
                let (mut filesystem, device) = (filesystem.for_thread(), Arc::new(Device(device)));
                Builder::new()
                    .name(format!("fuse-{n}"))
                    .spawn(move || take_requests(&device, &mut filesystem, &settings))
            })
            .collect();
        let ended = started?.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that takes requests panicked")))
        });
        let outcomes: Vec<_> = ended.collect();
        filesystem.destroy()?;
        outcomes.into_iter().collect()
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
fn answer(
    device: &Device,
    unique: Unique,
    init: &Init,
    filesystem: &mut impl Filesystem,
) -> io::Result<Option<Settings>> {
    let (major, minor) = (abi::MAJOR, abi::MINOR);
    if init.version.0 > major {
        let only = abi::InitOut { major, minor, ..Default::default() };
        device.reply(unique, 0, &[IoSlice::new(only.as_bytes())])?;
        return Ok(None);
    }
    let offer = Offer { version: init.version, flags: init.flags - InitFlags::INIT_EXT };
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
            device.reply(unique, -libc::EPROTO, &[])?;
            return Err(why);
        }
    };
    let flags = ((settings.flags | InitFlags::INIT_EXT) & init.flags).bits();
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
    device.reply(unique, 0, &[IoSlice::new(out.as_bytes())])?;
    Ok(Some(settings))
}
