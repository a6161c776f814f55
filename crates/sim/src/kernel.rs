//! A model of the Linux kernel between programs and the front end of a mount.
//!
//! **Model.** Each mount has a [`Kernel`] with dentries, attributes, pages, listings and locks, after Linux
//! 6.18 (`fs/fuse`, `fs/namei.c`, `mm/filemap.c`). Programs make system calls on it ([`names`], [`content`]).
//! What it has not cached it requests: it encodes a message of the FUSE protocol, and the real front end
//! (`shoal_fuse`) decodes, carries out and answers it on tasks of its own. Notifications come back through
//! [`shoal_fuse::Host`], and wait for the locks that the kernel takes for them ([`host`]).
//!
//! **A reply is handled later than it is sent**: the calling task runs again after a random time, and only
//! then changes the caches. That is what most hazards of `docs/KERNEL_CACHE.md` need.
//!
//! **Leaves out** mappings and so dirty pages, direct I/O, `..` and permissions, eviction for want of memory
//! (except by `PRUNE`), and RCU.

pub mod content;
pub mod host;
pub mod locks;
pub mod names;
pub mod pages;
pub mod readdir;
pub mod state;
pub mod walk;

use crate::focus::Focus;
use crate::kernel::state::{Call, State};
use crate::network::OneThread;
use crate::scheduler::Scheduler;
use shoal_channel::abi::{self, opcode};
use shoal_channel::{InitFlags, ReplyPath, Unique};
use shoal_client::Client;
use shoal_fuse::{LocalMount, LocalOptions};
use shoal_runtime::channel::{Receiver, Sender, bounded, unbounded};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::thread::{Builder, JoinHandle, sleep};
use shoal_runtime::time::Duration;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Tasks that take requests.
const READERS: usize = 2;
/// Threads of the front end for requests that wait.
const SLOW_THREADS: usize = 4;
/// Largest read or write request, in bytes.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Inodes that the kernel may refer to: never too many, or soon.
const INODES_MAX: [usize; 4] = [6, 1 << 20, 1 << 20, 1 << 20];
/// One reply in this many is handled late, ...
const LATE_ONE_OF: u32 = 2;
/// ... by this many microseconds at most, ...
const LATE_US_MAX: u64 = 400;
/// ... and one late one in this many ...
const VERY_LATE_ONE_OF: u32 = 6;
/// ... by this many: more than `NAME_PATIENCE`, and less than the front end waits at most.
const VERY_LATE_US_MAX: u64 = 65_000;
/// One late reply in this many is very late in a focused world.
const FOCUSED_VERY_LATE_ONE_OF: u32 = 2;
/// Thread ids of the mount process begin here; those of programs are lower.
const MOUNT_THREADS: u32 = 1 << 24;
/// The version of the protocol that Linux 6.18 speaks.
const VERSION: (u32, u32) = (7, 45);

/// A reply: data, or an errno.
type Reply<'a> = Result<&'a [u8], i32>;
/// What is done with a reply when it arrives, without a thread that waits for it.
type Completion = Box<dyn FnOnce(&mut State, Reply<'_>) + Send>;

/// A request without a reply so far.
enum Pending {
    /// A thread waits for the reply.
    Waited(u32, Sender<Result<Vec<u8>, i32>>),
    /// The reply is handled when it arrives (`fuse_simple_background`).
    Background(Completion),
}

/// Requests in flight.
#[derive(Default)]
struct Requests {
    last: u64,
    pending: BTreeMap<u64, Pending>,
}

/// The kernel of one mount.
pub struct Kernel {
    world: OneThread<Rc<Scheduler>>,
    state: Mutex<State>,
    /// Signals that a lock or a page may be free.
    news: Condvar,
    requests: Mutex<Requests>,
    /// Messages for the tasks that take requests; `None` once the mount has ended.
    queue: Mutex<Option<Sender<Vec<u8>>>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// One late reply in so many is very late, and by how many microseconds at most.
    very_late: (u32, u64),
    /// The value of the front end that outlives the tasks.
    mount: Mutex<Option<OneThread<LocalMount>>>,
}

/// Replies of the front end.
struct Replies(Arc<Kernel>);

impl ReplyPath for Replies {
    fn reply(&self, unique: Unique, error: i32, data: &[IoSlice<'_>]) -> io::Result<()> {
        let reply = match error {
            0 => Ok(data.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>()),
            error => Err(-error),
        };
        let Some(pending) = self.0.requests.lock().pending.remove(&unique.0) else { return Ok(()) };
        match pending {
            Pending::Waited(tid, tell) => {
                self.0.state.lock().threads.entry(tid).or_default().unconsumed = true;
                // The caller may have died.
                let _ = tell.send(reply);
            }
            Pending::Background(complete) => {
                tracing::debug!(unique = unique.0, error, "handles a reply in the background");
                complete(&mut self.0.state.lock(), reply.as_deref().map_err(|errno| *errno));
                self.0.news.notify_all();
            }
        }
        Ok(())
    }
}

/// A structure at the beginning of a reply.
fn structure<T: FromBytes>(data: &[u8]) -> Result<T, i32> {
    T::read_from_prefix(data).map(|(value, _)| value).map_err(|_| libc::EIO)
}

fn message(unique: u64, tid: u32, opcode: u32, node: u64, body: &[&[u8]]) -> Vec<u8> {
    let len = size_of::<abi::InHeader>() + body.iter().map(|part| part.len()).sum::<usize>();
    let header =
        abi::InHeader { len: len as u32, opcode, unique, nodeid: node, pid: tid, ..Default::default() };
    [&[header.as_bytes()], body].concat().concat()
}

impl Kernel {
    /// Mounts: starts the front end for a client.
    pub fn mount(
        world: &Rc<Scheduler>,
        client: &Arc<Client>,
        focus: Option<Focus>,
    ) -> io::Result<Arc<Kernel>> {
        let (queue, requests) = unbounded();
        let kernel = Arc::new(Kernel {
            world: OneThread(world.clone()),
            state: Mutex::new(State::new()),
            news: Condvar::new(),
            requests: Mutex::default(),
            queue: Mutex::new(Some(queue)),
            tasks: Mutex::default(),
            very_late: focus.map_or((VERY_LATE_ONE_OF, VERY_LATE_US_MAX), |focus| {
                (FOCUSED_VERY_LATE_ONE_OF, focus.late_us_max())
            }),
            mount: Mutex::default(),
        });
        let flags = InitFlags::from_bits_retain(u64::MAX) - InitFlags::OVER_IO_URING;
        let init = abi::InitIn {
            major: VERSION.0,
            minor: VERSION.1,
            max_readahead: 128 << 10,
            flags: flags.bits() as u32,
            flags2: (flags.bits() >> 32) as u32,
            ..Default::default()
        };
        let init = message(1, 0, opcode::INIT, 0, &[init.as_bytes()]);
        let inodes_max = INODES_MAX[world.below(INODES_MAX.len() as u64) as usize];
        let options =
            LocalOptions { slow_threads: SLOW_THREADS, request_bytes_max: REQUEST_BYTES_MAX, inodes_max };
        let replies = Arc::new(Replies(kernel.clone()));
        let host = Arc::new(host::ModelHost(kernel.clone()));
        let mount = LocalMount::begin(client, host, options, &init, replies)?;
        for n in 0..READERS {
            let (front, requests) = (mount.for_thread(), requests.clone());
            let task = Builder::new().name(format!("fuse-{n}")).spawn(move || take(front, &requests))?;
            kernel.tasks.lock().push(task);
        }
        *kernel.mount.lock() = Some(OneThread(mount));
        Ok(kernel)
    }

    /// Unmounts. No call is in flight, and no file is open.
    pub fn unmount(&self) {
        let mut state = self.state.lock();
        state.shrink(state::ROOT);
        drop(state);
        self.send_forgets();
        *self.queue.lock() = None;
        for task in std::mem::take(&mut *self.tasks.lock()) {
            let _ = task.join();
        }
        self.state.lock().ended = true;
        if let Some(mount) = self.mount.lock().take() {
            let _ = mount.take().end();
        }
    }

    /// The inode number that programs see.
    pub fn number(&self, node: u64) -> u64 {
        self.state.lock().inode(node).attr.ino
    }

    // --- requests ---

    fn send(&self, message: Vec<u8>) -> bool {
        let queue = self.queue.lock().clone();
        queue.is_some_and(|queue| queue.send(message).is_ok())
    }

    /// Sends a request, waits for the reply, and handles it: at once or later, and then in one step.
    fn request<T>(
        &self,
        tid: u32,
        opcode: u32,
        node: u64,
        body: &[&[u8]],
        handle: impl FnOnce(&mut State, Reply<'_>) -> T,
    ) -> T {
        tracing::debug!(tid, opcode, node, "requests");
        let (tell, reply) = bounded(1);
        let unique = self.register(|_| Pending::Waited(tid, tell));
        let is_sent = self.send(message(unique, tid, opcode, node, body));
        let reply = if is_sent { reply.recv().unwrap_or(Err(libc::ENOTCONN)) } else { Err(libc::ENOTCONN) };
        self.run_late();
        let mut state = self.state.lock();
        tracing::debug!(tid, opcode, node, error = reply.as_ref().err(), "handles a reply");
        let thread = state.threads.entry(tid).or_default();
        (thread.unconsumed, thread.turns) = (false, thread.turns + 1);
        let done = handle(&mut state, reply.as_deref().map_err(|errno| *errno));
        drop(state);
        self.news.notify_all();
        self.send_forgets();
        done
    }

    /// Sends a request whose reply is handled when it arrives. `prepare` gets its number.
    fn request_in_background(
        &self,
        (tid, opcode, node): (u32, u32, u64),
        body: &[&[u8]],
        prepare: impl FnOnce(&mut State, u64),
        complete: impl FnOnce(&mut State, u64, Reply<'_>) + Send + 'static,
    ) {
        let unique = self.register(|unique| {
            Pending::Background(Box::new(move |state: &mut State, reply: Reply<'_>| {
                complete(state, unique, reply);
            }))
        });
        tracing::debug!(tid, opcode, node, unique, "requests in the background");
        prepare(&mut self.state.lock(), unique);
        if !self.send(message(unique, tid, opcode, node, body))
            && let Some(Pending::Background(complete)) = self.requests.lock().pending.remove(&unique)
        {
            complete(&mut self.state.lock(), Err(libc::ENOTCONN));
        }
    }

    /// Numbers a request.
    fn register(&self, pending: impl FnOnce(u64) -> Pending) -> u64 {
        let mut requests = self.requests.lock();
        requests.last += 1;
        let unique = requests.last;
        requests.pending.insert(unique, pending(unique));
        unique
    }

    /// A thread that was woken does not run at once.
    fn run_late(&self) {
        let world = &self.world.0;
        if !world.once_in(LATE_ONE_OF) {
            return;
        }
        let (one_of, very_late_us_max) = self.very_late;
        let longest = if world.once_in(one_of) { very_late_us_max } else { LATE_US_MAX };
        sleep(Duration::from_micros(world.below(longest)));
    }

    fn send_forgets(&self) {
        let forgets = std::mem::take(&mut self.state.lock().forgets);
        for (node, nlookup) in forgets {
            let unique = self.requests.lock().last;
            let forget = abi::ForgetIn { nlookup };
            self.send(message(unique, 0, opcode::FORGET, node, &[forget.as_bytes()]));
        }
    }

    /// Notes the call that a thread is in.
    fn enter(&self, tid: u32, call: Option<Call>) {
        self.state.lock().threads.entry(tid).or_default().call = call;
    }
}

/// Takes requests until the mount has ended.
fn take(mut front: LocalMount, requests: &Receiver<Vec<u8>>) {
    for message in requests {
        if let Err(error) = front.take(&message) {
            tracing::error!(%error, "the model kernel has sent a malformed message");
        }
    }
}

/// An inode that is in use until this is dropped.
pub struct Pin {
    kernel: Arc<Kernel>,
    node: u64,
}

impl Pin {
    /// Its node id.
    pub fn node(&self) -> u64 {
        self.node
    }

    fn new(kernel: &Arc<Kernel>, state: &mut State, node: u64) -> Pin {
        state.inode(node).pins += 1;
        Pin { kernel: kernel.clone(), node }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.kernel.state.lock();
        state.inode(self.node).pins -= 1;
        state.put(self.node);
        drop(state);
        self.kernel.send_forgets();
    }
}
