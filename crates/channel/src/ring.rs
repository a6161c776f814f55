//! io_uring: requests and replies in memory shared with the kernel (Linux 6.14,
//! `Documentation/filesystems/fuse/fuse-io-uring.rst`).
//!
//! **Model.** Each possible processor has a [`Queue`], with a thread pinned to that processor. A queue has
//! slots. The kernel copies a request into a free slot of the processor that the caller runs on. Its reply is
//! written into the same slot, and one `COMMIT_AND_FETCH` hands both back. The memory of a slot belongs in
//! turn to the kernel, the queue's thread, the reply object, and the kernel again.
//!
//! **Assumes** that the commands of a queue are submitted by its own thread: the kernel copies the next
//! request in the context of the thread that submitted the command. Replies of other threads are handed over
//! to it. Also assumes that a handler does not read long data of a request (WRITE, SETXATTR) after its reply.
//!
//! **Promises** that the kernel has consumed a reply when sending it returns, as with `/dev/fuse`. The file
//! system may rely on this order.
//!
//! A queue has [`FREE_SLOTS_MIN`] slots free whenever its thread has caught up. A request that found none
//! waits in the kernel until another one of its queue is answered (`fuse_uring_commit_fetch`); a slot that
//! is registered later does not fetch it. So a burst of more callers on one processor than there are free
//! slots, all of which wait for a server, delays the callers behind them for as long.
//!
//! INTERRUPT, notifications and nearly every FORGET stay on `/dev/fuse`. A FORGET comes in a slot only where
//! the kernel cannot use an entry of READDIRPLUS (`fuse_force_forget`). A FORGET from `/dev/fuse` has no
//! reply. For one in a slot the kernel waits for a reply, in getdents(2) and with the directory's inode lock
//! held.

use crate::abi::{InHeader, OutHeader};
use crate::device::Device;
use crate::filesystem::{Filesystem, dispatch};
use crate::reply::ReplyPath;
use crate::request::{Operation, decode};
use crate::types::Unique;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex};
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Slots that a queue keeps free: a burst of so many requests finds room before the queue's thread runs.
const FREE_SLOTS_MIN: usize = 256;
/// Slots that are added at once. Their memory counts only once it is used, and the kernel prefers the slot
/// that was used last.
const SLOTS_ADDED: usize = 512;
/// Most slots of a queue.
const SLOTS_MAX: usize = 16_384;
/// Submissions that fit into a ring. More are submitted in several parts.
const SUBMISSIONS: u32 = 128;
/// Completions that fit into a ring. The kernel keeps what does not fit.
const COMPLETIONS: u32 = 1024;

/// Replies up to this size, in bytes, do not overwrite the request, which its handler may still read.
const STAGED_BYTES_MAX: usize = 256;
/// Requests up to this size, in bytes, are copied out of their slot. Longer ones have short replies: WRITE
/// and SETXATTR.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// The first bytes of a payload whose memory a slot keeps in any case.
const KEPT_BYTES: usize = 64 << 10;
/// Slots of a queue that may keep the memory of a whole payload: a stream has few requests in flight, and the
/// kernel uses the slot again that was used last. Beyond it a slot gives its memory back with its next short
/// reply, as to a write.
const KEPT_PAYLOADS: usize = 4;

/// Longest wait of a thread for its reply to be submitted. The thread of a queue takes microseconds.
const SUBMIT_WAIT_MAX: Duration = Duration::from_secs(1);
/// Pause before the kernel is called again that had no memory for a submission.
const NO_MEMORY_PAUSE: Duration = Duration::from_millis(1);
/// Longest wait for the next slot that the kernel gives up when the connection has ended. It looks for them
/// every 50 ms (`FUSE_URING_TEARDOWN_INTERVAL`).
const GIVEN_UP_WAIT_MAX: Duration = Duration::from_secs(5);

/// `user_data` of the read of the event that wakes a queue's thread.
const WAKE: u64 = u64::MAX;

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;
/// `FUSE_URING_IOV_SEGS`: a slot is registered as two ranges of memory, header and payload.
const RANGES: u32 = 2;
/// The offset of `len` in a submission (`struct io_uring_sqe`), in bytes.
const SQE_LEN: usize = 24;

/// `struct fuse_uring_req_header`.
#[repr(C)]
struct Header {
    /// `struct fuse_in_header` of a request, `struct fuse_out_header` of a reply.
    in_out: [u8; 128],
    /// The first argument of a request, if its operation has one of a fixed size.
    op_in: [u8; 128],
    flags: u64,
    /// Names the request in the commit of its reply.
    commit_id: u64,
    /// Bytes in the payload: of the other arguments, or of the reply.
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

/// The first page of a slot holds its header, a staged reply, and what precedes the payload in a message.
const HEAD_BYTES: usize = 4096;
/// The offset of a staged reply.
const STAGED_START: usize = 512;
const _: () = assert!(size_of::<Header>() == 288 && size_of::<Header>() <= STAGED_START);
const _: () = assert!(STAGED_START + STAGED_BYTES_MAX + size_of::<InHeader>() + 128 <= HEAD_BYTES);

/// Memory of one request in flight: the header, then the payload.
struct Slot {
    number: u32,
    memory: NonNull<u8>,
    bytes: usize,
    device: RawFd,
    queue: Arc<Queue>,
    /// Bytes of the payload that may use memory, beyond [`KEPT_BYTES`].
    long_bytes: AtomicUsize,
}

// SAFETY: one side at a time touches the memory: the kernel while the slot is free, the queue's thread while
// it decodes and dispatches the request, the one reply to it after that. `Queue::commit` hands it back.
unsafe impl Send for Slot {}
// SAFETY: as for `Send`; a shared reference gives no access beyond that order.
unsafe impl Sync for Slot {}

impl Slot {
    fn new(number: u32, payload_bytes: usize, device: RawFd, queue: Arc<Queue>) -> io::Result<Slot> {
        let bytes = HEAD_BYTES + payload_bytes;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new private mapping, which overlaps nothing.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind | libc::MAP_NORESERVE, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: this is the mapping just made. Without huge pages only what is used counts; a failure costs
        // memory, and nothing else.
        unsafe { libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE) };
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Slot { number, memory, bytes, device, queue, long_bytes: AtomicUsize::new(0) })
    }

    fn header(&self) -> *mut Header {
        self.memory.as_ptr().cast()
    }

    fn payload_bytes_max(&self) -> usize {
        self.bytes - HEAD_BYTES
    }

    /// So many bytes of the payload are in use.
    fn use_memory(&self, bytes: usize) {
        let Some(bytes) = bytes.checked_sub(KEPT_BYTES) else { return };
        let before = self.long_bytes.fetch_max(bytes, Ordering::Relaxed);
        self.queue.long_bytes.fetch_add(bytes.saturating_sub(before), Ordering::Relaxed);
    }

    /// Gives memory of the payload back to the system if the queue's slots keep too much.
    ///
    /// # Safety
    /// The kernel must not have the slot, and what is beyond [`KEPT_BYTES`] must not be needed.
    unsafe fn trim(&self) {
        if self.queue.long_bytes.load(Ordering::Relaxed) <= KEPT_PAYLOADS * self.payload_bytes_max() {
            return;
        }
        let bytes = self.long_bytes.swap(0, Ordering::Relaxed);
        self.queue.long_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if bytes > 0 {
            let start = self.memory.as_ptr().wrapping_add(HEAD_BYTES + KEPT_BYTES);
            // SAFETY: the range is part of the mapping, and not needed, says the caller. A failure costs
            // memory, and nothing else.
            unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) };
        }
    }

    /// The request as one message, as `/dev/fuse` would have it. The payload stays where it is; header and
    /// first argument are copied in front of it.
    ///
    /// # Safety
    /// The kernel must have put a request into the slot, and its reply must not have been sent.
    unsafe fn message(&self) -> io::Result<&[u8]> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "a slot holds no request");
        // SAFETY: the memory belongs to this thread, says the caller.
        let header = unsafe { &*self.header() };
        let (request, _) = InHeader::read_from_prefix(&header.in_out).map_err(|_| invalid())?;
        let payload = header.payload_bytes as usize;
        let first = (request.len as usize)
            .checked_sub(size_of::<InHeader>() + payload)
            .filter(|first| *first <= header.op_in.len() && payload <= self.payload_bytes_max())
            .ok_or_else(invalid)?;
        self.use_memory(payload);
        let start = HEAD_BYTES - first - size_of::<InHeader>();
        // SAFETY: both ranges lie in the first page behind the header, and the whole message in the mapping.
        unsafe {
            let message = self.memory.as_ptr().add(start);
            message.copy_from_nonoverlapping(header.in_out.as_ptr(), size_of::<InHeader>());
            message.add(size_of::<InHeader>()).copy_from_nonoverlapping(header.op_in.as_ptr(), first);
            Ok(std::slice::from_raw_parts(message, request.len as usize))
        }
    }

    /// A command about this slot.
    fn command(&self, operation: u32, commit_id: u64) -> opcode::UringCmd80 {
        // struct fuse_uring_cmd_req: flags, commit_id, qid.
        let mut request = [0; 80];
        request[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        request[16..18].copy_from_slice(&self.queue.number.to_ne_bytes());
        opcode::UringCmd80::new(types::Fd(self.device), operation).cmd(request)
    }

    /// The command that gives the slot back to the kernel, with its reply.
    fn commit(&self) -> Entry128 {
        // SAFETY: the reply is written, and nothing else touches the slot until this is submitted.
        let commit_id = unsafe {
            let bytes = (*self.header()).payload_bytes as usize;
            if bytes <= STAGED_BYTES_MAX {
                let payload = self.memory.as_ptr().add(HEAD_BYTES);
                payload.copy_from_nonoverlapping(self.memory.as_ptr().add(STAGED_START), bytes);
            }
            (*self.header()).commit_id
        };
        self.command(COMMIT_AND_FETCH, commit_id).build().user_data(self.number.into())
    }

    fn ranges(&self) -> [libc::iovec; RANGES as usize] {
        let payload = self.memory.as_ptr().wrapping_add(HEAD_BYTES).cast();
        [
            libc::iovec { iov_base: self.memory.as_ptr().cast(), iov_len: size_of::<Header>() },
            libc::iovec { iov_base: payload, iov_len: self.payload_bytes_max() },
        ]
    }

    /// The command that gives the slot to the kernel. `ranges` must live until it is submitted.
    fn register(&self, ranges: &[libc::iovec; RANGES as usize]) -> Entry128 {
        let mut entry = self
            .command(REGISTER, 0)
            .addr(Some(ranges.as_ptr() as u64))
            .build()
            .user_data(self.number.into());
        // SAFETY: an entry is a `struct io_uring_sqe` of 128 bytes (`repr(C)`). The crate has no setter for
        // the field `len` of these commands.
        unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN).cast::<u32>().write(RANGES) };
        entry
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: the mapping is this slot's, and the kernel has no command about it: the queue's thread
        // keeps its slots until the kernel has given them up.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

impl ReplyPath for Slot {
    fn reply(&self, unique: Unique, error: i32, data: &[IoSlice<'_>]) -> io::Result<()> {
        let (mut error, mut data) = (error, data);
        let mut bytes = data.iter().map(|part| part.len()).sum::<usize>();
        if bytes > self.payload_bytes_max() {
            // The kernel requests no more than fits: an error is better than a caller that waits for ever.
            (error, data, bytes) = (-libc::EIO, &[], 0);
        }
        let out = OutHeader { len: (size_of::<OutHeader>() + bytes) as u32, error, unique: unique.0 };
        let start = if bytes <= STAGED_BYTES_MAX { STAGED_START } else { HEAD_BYTES };
        self.use_memory(bytes);
        if bytes <= STAGED_BYTES_MAX {
            // SAFETY: the slot is the reply's, and the data of a request is not read after its reply.
            unsafe { self.trim() };
        }
        // SAFETY: there is one reply to a request, and until it is committed these parts of the memory are
        // the reply's. The header is not part of the message that a handler looks at, nor is what is staged.
        unsafe {
            self.memory.as_ptr().copy_from_nonoverlapping(out.as_bytes().as_ptr(), size_of::<OutHeader>());
            (&raw mut (*self.header()).payload_bytes).write(bytes as u32);
            let mut at = self.memory.as_ptr().add(start);
            for part in data {
                at.copy_from_nonoverlapping(part.as_ptr(), part.len());
                at = at.add(part.len());
            }
        }
        self.queue.commit(self.commit())
    }
}

/// The state shared by a queue's thread and its replies.
pub(crate) struct Queue {
    number: u16,
    /// Used by the queue's thread alone. `None`: the connection has ended.
    ring: Mutex<Option<IoUring<Entry128>>>,
    thread: OnceLock<ThreadId>,
    handed: Mutex<Handed>,
    /// Signals that commits handed over were submitted, or never will be.
    submitted: Condvar,
    /// Wakes the queue's thread.
    event: EventFd,
    /// Slots that the kernel has, as far as the queue's thread has seen.
    free: AtomicUsize,
    /// Bytes of the slots' long payloads that may use memory.
    long_bytes: AtomicUsize,
    is_ended: AtomicBool,
}

/// Commits of other threads than the queue's.
#[derive(Default)]
struct Handed {
    commits: Vec<Entry128>,
    /// How many were handed over, and how many of them were submitted.
    count: u64,
    submitted: u64,
    is_over: bool,
}

impl Queue {
    /// Hands a slot with its reply to the kernel, which has consumed it when this returns.
    fn commit(&self, commit: Entry128) -> io::Result<()> {
        if self.thread.get() == Some(&std::thread::current().id()) {
            self.submit(&[commit])?;
            self.free.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let mut handed = self.handed.lock();
        if handed.is_over {
            return Ok(());
        }
        handed.commits.push(commit);
        handed.count += 1;
        let own = handed.count;
        if handed.commits.len() == 1 {
            self.wake()?;
        }
        let due = Instant::now() + SUBMIT_WAIT_MAX;
        while handed.submitted < own && !handed.is_over {
            if self.submitted.wait_until(&mut handed, due).timed_out() {
                tracing::warn!(queue = self.number, "a reply was not submitted for {SUBMIT_WAIT_MAX:?}");
                break;
            }
        }
        Ok(())
    }

    /// Submits the commits of other threads.
    fn submit_handed(&self) -> io::Result<()> {
        let commits = std::mem::take(&mut self.handed.lock().commits);
        if commits.is_empty() {
            return Ok(());
        }
        self.submit(&commits)?;
        self.free.fetch_add(commits.len(), Ordering::Relaxed);
        self.handed.lock().submitted += commits.len() as u64;
        self.submitted.notify_all();
        Ok(())
    }

    /// For the queue's thread.
    fn submit(&self, entries: &[Entry128]) -> io::Result<()> {
        let mut ring = self.ring.lock();
        let Some(ring) = &mut *ring else { return Ok(()) };
        for entry in entries {
            // SAFETY: what the entry points to lives until it is submitted, and the memory of slots and of
            // the read until the ring is gone.
            while unsafe { ring.submission().push(entry) }.is_err() {
                once_there_is_memory(|| ring.submit())?;
            }
        }
        once_there_is_memory(|| ring.submit()).map(drop)
    }

    /// Waits for completions, for `limit` at most.
    fn wait(&self, limit: Option<Duration>, into: &mut Vec<cqueue::Entry>) -> io::Result<()> {
        let mut ring = self.ring.lock();
        let Some(ring) = &mut *ring else { return Ok(()) };
        let limit = limit.map(types::Timespec::from);
        let waited = once_there_is_memory(|| match &limit {
            None => ring.submit_and_wait(1),
            Some(limit) => ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(limit)),
        });
        match waited {
            Ok(_) => {}
            Err(why) if matches!(why.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
            Err(why) => return Err(why),
        }
        into.extend(ring.completion());
        Ok(())
    }

    fn wake(&self) -> io::Result<()> {
        self.event.write(1).map(drop).map_err(io::Error::from)
    }

    /// The connection has ended: the thread is to end, too.
    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.refuse_replies();
        let _ = self.wake();
    }

    fn has_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// The kernel has ended all requests: it takes no more replies.
    fn refuse_replies(&self) {
        self.handed.lock().is_over = true;
        self.submitted.notify_all();
    }

    /// The thread has ended.
    fn close(&self) {
        self.ring.lock().take();
        self.refuse_replies();
    }
}

/// Repeats a call of io_uring_enter(2) for which the kernel has no memory at the moment (`EAGAIN`).
fn once_there_is_memory<T>(mut enter: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match enter() {
            Err(why) if why.raw_os_error() == Some(libc::EAGAIN) => std::thread::sleep(NO_MEMORY_PAUSE),
            outcome => return outcome,
        }
    }
}

/// A queue before it begins.
pub(crate) struct Prepared(Arc<Queue>);

/// Makes a ring for each possible processor. An error says that this kernel, or its administrator, does not
/// allow it.
pub(crate) fn prepare() -> io::Result<Vec<Prepared>> {
    if fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2") {
        return Err(io::Error::other("slots reserve more memory than they use (vm.overcommit_memory=2)"));
    }
    let processors = possible_processors(&fs::read_to_string("/sys/devices/system/cpu/possible")?)
        .ok_or_else(|| io::Error::other("the number of possible processors is unknown"))?;
    (0..processors).map(Prepared::new).collect()
}

/// How many queues the kernel expects: `num_possible_cpus`. The list looks like `0-3,6`.
fn possible_processors(list: &str) -> Option<u16> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u16>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.trim().split(',').map(count).sum()
}

impl Prepared {
    fn new(number: u16) -> io::Result<Prepared> {
        // Not `DEFER_TASKRUN`: when the thread of such a ring has died, its last commands end only when the
        // ring is closed, and so when the process has died. If the process waits for a lock that is held by
        // the caller of such a command, neither ends, and aborting the connection does not help.
        let ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        Ok(Prepared(Arc::new(Queue {
            number,
            ring: Mutex::new(Some(ring)),
            thread: OnceLock::new(),
            handed: Mutex::default(),
            submitted: Condvar::new(),
            event: EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)?,
            free: AtomicUsize::new(0),
            long_bytes: AtomicUsize::new(0),
            is_ended: AtomicBool::new(false),
        })))
    }

    pub(crate) fn queue(&self) -> Arc<Queue> {
        self.0.clone()
    }

    /// Takes requests of one processor until the connection ends, on the current thread. Each has a slot with
    /// room for so many bytes. `extended`: `FUSE_SETXATTR_EXT` is negotiated.
    pub(crate) fn run(
        self,
        device: Arc<Device>,
        payload_bytes: usize,
        extended: bool,
        filesystem: &mut impl Filesystem,
    ) -> io::Result<()> {
        let (queue, slots) = (self.0, Vec::new());
        let mut thread = QueueThread {
            queue,
            device,
            slots,
            payload_bytes,
            extended,
            copied: Vec::new(),
            woken: Box::default(),
            awaits_wake: false,
        };
        let _closing = Closing(thread.queue.clone());
        thread.run(filesystem)
    }
}

/// Closes a queue in the end, however its thread ends.
struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A queue in use, and what its thread needs.
struct QueueThread {
    queue: Arc<Queue>,
    device: Arc<Device>,
    slots: Vec<Arc<Slot>>,
    payload_bytes: usize,
    extended: bool,
    /// The request that is being handled, if it is short.
    copied: Vec<u8>,
    /// The buffer for reads of the event.
    woken: Box<u64>,
    /// The kernel has this buffer.
    awaits_wake: bool,
}

impl Drop for QueueThread {
    fn drop(&mut self) {
        if self.kernel_has_memory() {
            // The kernel may still write into this memory, as the ring's last commands end later than it.
            tracing::warn!(queue = self.queue.number, "memory of a queue stays allocated: it is in use");
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(std::mem::take(&mut self.woken));
        }
    }
}

impl QueueThread {
    /// Whether the kernel may still write into slots, or into the buffer of the event.
    fn kernel_has_memory(&self) -> bool {
        self.awaits_wake || self.queue.free.load(Ordering::Relaxed) > 0
    }

    fn run(&mut self, filesystem: &mut impl Filesystem) -> io::Result<()> {
        // The queue is this thread's alone.
        let _ = self.queue.thread.set(std::thread::current().id());
        pin(self.queue.number);
        if let Some(ring) = &*self.queue.ring.lock() {
            ring.submitter().register_enable_rings()?;
        }
        self.add_slots()?;
        self.wait_for_wake()?;
        let mut taken: Vec<cqueue::Entry> = Vec::with_capacity(COMPLETIONS as usize);
        while !self.queue.has_ended() || self.kernel_has_memory() {
            self.queue.submit_handed()?;
            self.queue.wait(self.queue.has_ended().then_some(GIVEN_UP_WAIT_MAX), &mut taken)?;
            for done in taken.drain(..) {
                match done.user_data() {
                    WAKE => {
                        self.awaits_wake = false;
                        if !self.queue.has_ended() {
                            self.wait_for_wake()?;
                        }
                    }
                    _ if is_given_up(&done) => {
                        self.queue.free.fetch_sub(1, Ordering::Relaxed);
                        if !self.queue.has_ended() {
                            self.queue.end();
                        }
                    }
                    number => self.handle(number as usize, done.result(), filesystem)?,
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, number: usize, result: i32, filesystem: &mut impl Filesystem) -> io::Result<()> {
        let free = self.queue.free.fetch_sub(1, Ordering::Relaxed) - 1;
        if free < FREE_SLOTS_MIN && self.slots.len() < SLOTS_MAX {
            self.add_slots()?;
        }
        if result < 0 {
            // The kernel has given the request up, and the slot with it.
            let why = io::Error::from_raw_os_error(-result);
            tracing::warn!(queue = self.queue.number, slot = number, "the kernel refused a reply: {why}");
            return Ok(());
        }
        if self.queue.has_ended() {
            // The kernel has ended the request. To handle it could take long.
            return Ok(());
        }
        let slot = self.slots.get(number).cloned().ok_or_else(|| io::Error::other("an unknown slot"))?;
        // SAFETY: the completion says that the kernel has put a request into the slot.
        let mut message = unsafe { slot.message() }?;
        if message.len() <= COPIED_BYTES_MAX {
            self.copied.clear();
            self.copied.extend_from_slice(message);
            message = &self.copied;
        }
        let (request, operation) = decode(message, self.extended).map_err(io::Error::other)?;
        let is_forget = matches!(operation, Operation::Forget { .. } | Operation::BatchForget(_));
        // After DESTROY the kernel ends the connection, and with it the commands of each queue.
        dispatch(filesystem, &request, operation, slot.clone());
        if is_forget {
            slot.reply(request.unique(), 0, &[])?;
        }
        Ok(())
    }

    fn add_slots(&mut self) -> io::Result<()> {
        let first = self.slots.len();
        let device = self.device.0.as_raw_fd();
        for number in first..first + SLOTS_ADDED {
            match Slot::new(number as u32, self.payload_bytes, device, self.queue.clone()) {
                Ok(slot) => self.slots.push(Arc::new(slot)),
                // Requests wait for a slot until another one is answered.
                Err(why) if number > 0 => {
                    tracing::warn!(queue = self.queue.number, slots = number, "no memory for slots: {why}");
                    break;
                }
                Err(why) => return Err(why),
            }
        }
        let added = &self.slots[first..];
        // The ranges are read while the commands are submitted.
        let ranges: Vec<_> = added.iter().map(|slot| slot.ranges()).collect();
        let commands: Vec<_> =
            added.iter().zip(&ranges).map(|(slot, ranges)| slot.register(ranges)).collect();
        self.queue.submit(&commands)?;
        self.queue.free.fetch_add(commands.len(), Ordering::Relaxed);
        Ok(())
    }

    fn wait_for_wake(&mut self) -> io::Result<()> {
        let event = types::Fd(self.queue.event.as_raw_fd());
        let into = (&raw mut *self.woken).cast();
        let read = opcode::Read::new(event, into, size_of::<u64>() as u32);
        self.awaits_wake = true;
        self.queue.submit(&[read.build().user_data(WAKE).into()])
    }
}

/// The kernel has given up the slot, because the connection has ended: unmounted, or aborted.
fn is_given_up(done: &cqueue::Entry) -> bool {
    matches!(-done.result(), libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV)
}

/// Binds the thread of a queue to its processor. A failure only costs speed.
fn pin(processor: u16) {
    let mut processors = CpuSet::new();
    if let Err(why) =
        processors.set(processor.into()).and_then(|()| sched_setaffinity(Pid::from_raw(0), &processors))
    {
        tracing::debug!(processor, "the thread of a queue is not pinned: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_processors_are_counted_with_and_without_gaps() {
        assert_eq!(possible_processors("0\n"), Some(1));
        assert_eq!(possible_processors("0-3\n"), Some(4));
        assert_eq!(possible_processors("0-3,8-9,12"), Some(7));
        assert_eq!(possible_processors("3-0"), None);
        assert_eq!(possible_processors(""), None);
    }

    #[test]
    fn call_for_which_the_kernel_has_no_memory_is_repeated() {
        let mut refusals = vec![libc::EAGAIN, libc::EAGAIN];
        let mut enter = || refusals.pop().map_or(Ok(7), |errno| Err(io::Error::from_raw_os_error(errno)));
        assert_eq!(once_there_is_memory(&mut enter).unwrap(), 7);
        let refused = || Err::<(), _>(io::Error::from_raw_os_error(libc::EBADF));
        assert_eq!(once_there_is_memory(refused).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}
