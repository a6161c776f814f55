//! A mounted volume, as a plain Rust API: session, cache, journal, content. No FUSE in it.
//!
//! **The model.** A client holds the right to change what it has cached (an exclusive lease), so it carries operations out on
//! its own copy at once and appends them to a journal, which streams to the metadata server in batches. Nothing waits for
//! a server but: the first look at something, fsync(2), and a writer who is too far ahead.
//!
//! **The parts.** [`core`] is pure: cache, journal and blocks under way, without clock, threads or I/O. It answers or says
//! what it needs. The shell around it has one lock for the core and never holds it while it waits:
//! - [`shell`]: runs calls against the core and fetches what they need;
//! - [`ship`]: sends the journal, in order, and stores its blocks first;
//! - [`reader`]: reads blocks, and ahead of sequential readers.
//!
//! **Promises.** Commit order is the order of the calls. `fsync` returns when everything before it is durable. Memory is bounded by
//! [`limits`]. When something acknowledged has been lost, every later call fails: never silence.

mod acl;
mod api;
mod core;
mod groups;
pub mod limits;
mod locate;
mod patience;
mod reader;
mod shell;
mod ship;
mod stats;

pub use api::{Caller, Entry, Failure, Fallocate, Reply, Seek, Visit, Wait};
pub use stats::Stat;

use shell::Shell;
use shoal_types::{Errno, SessionId, Timestamp};
use shoal_wire::{MetaError, MetaService, PROTOCOL_VERSION, SessionRequest, VolumeBlocks};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A session with a volume. Calls may be made from many threads at once.
pub struct Client {
    shell: Arc<Shell>,
    threads: parking_lot::Mutex<Vec<JoinHandle<()>>>,
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who mounts, for people to read.
    pub name: String,
    /// Room for cached metadata and small contents, in bytes.
    pub cache_bytes: usize,
    /// Room for cached blocks and read-ahead, in bytes.
    pub block_cache_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: format!("process {}", std::process::id()),
            cache_bytes: limits::CACHE_BYTES_DEFAULT,
            block_cache_bytes: limits::BLOCK_CACHE_BYTES_DEFAULT,
        }
    }
}

impl Client {
    /// Opens a session.
    pub fn open(
        meta: Arc<dyn MetaService>,
        bricks: Arc<dyn VolumeBlocks>,
        options: Options,
    ) -> Result<Arc<Client>, MetaError> {
        let opened = meta.open_session(SessionRequest {
            protocol: PROTOCOL_VERSION,
            client: options.name.clone(),
            instance: rand::random(),
            now: Timestamp::now(),
        })?;
        let (shell, threads) = Shell::start(meta, bricks, opened, &options);
        Ok(Arc::new(Client { shell, threads: parking_lot::Mutex::new(threads) }))
    }

    /// The session's number.
    pub fn session(&self) -> SessionId {
        self.shell.session
    }

    /// What the client has done so far, for people and for monitoring.
    pub fn stats(&self) -> Vec<Stat> {
        self.shell.stats()
    }

    /// Commits everything and ends the session. Later calls fail with `ENOTCONN`. Reports if something was lost.
    pub fn close(&self) -> Result<(), Errno> {
        let flushed = self.shell.flush();
        let closed = self.shell.close();
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has already said so.
            let _ = thread.join();
        }
        flushed.and(closed)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shell.stop();
    }
}
