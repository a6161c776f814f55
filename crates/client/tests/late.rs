//! A block that a brick stores only after its session has ended, and after the servers have swept the blocks
//! of that session.

#[path = "support/cut.rs"]
mod cut;
#[path = "support/relay.rs"]
mod relay;
mod support;

use bytes::Bytes;
use cut::{Cut, Only};
use parking_lot::{Condvar, Mutex};
use shoal_client::{Caller, Client, Options, Wait};
use shoal_types::{BlockId, Errno, InodeId, SessionId, Statfs};
use shoal_wire::{BlockError, BlockPage, BlockService, MetaService};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::Bricks;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
/// More than travels inline.
const BLOCK_BYTES: usize = 256 << 10;
/// Nothing here takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A brick that stores nothing while the gate is closed.
struct Gate {
    bricks: Arc<Bricks>,
    closed: Mutex<bool>,
    waiting: Mutex<usize>,
    opened: Condvar,
}

impl BlockService for Gate {
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        let mut closed = self.closed.lock();
        let waits = usize::from(*closed);
        *self.waiting.lock() += waits;
        while *closed {
            self.opened.wait(&mut closed);
        }
        let stored = self.bricks.put(id, parts);
        *self.waiting.lock() -= waits;
        stored
    }
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        self.bricks.get(id, offset, len)
    }
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        self.bricks.delete(ids)
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        self.bricks.length(id)
    }
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        self.bricks.list(from)
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.bricks.sessions()
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        BlockService::statfs(&*self.bricks)
    }
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn block_stored_after_its_session_has_ended_is_deleted() {
    let (_dir, bricks, server) = relay::server();
    let gate = Arc::new(Gate {
        bricks: bricks.clone(),
        closed: Mutex::new(false),
        waiting: Mutex::new(0),
        opened: Condvar::new(),
    });
    let transport = Cut::new(server.clone());
    let client = Client::open_replicated(Arc::new(Only(transport.clone())), gate.clone(), Options::default());
    let client = client.expect("a session");
    let write = |name: &[u8]| {
        let made = client.create(Wait::Allowed, &CALLER, InodeId::ROOT, name, 0o100644, 0).expect("made");
        client.write(Wait::Allowed, made.ino, 0, &vec![7; BLOCK_BYTES], false).expect("written");
    };
    transport.swallow(true);
    write(b"swept");
    eventually("a block is stored", || bricks.blocks.lock().len() == 1);
    *gate.closed.lock() = true;
    write(b"late");
    eventually("a block is on its way", || *gate.waiting.lock() > 0);
    let ended = client.session();
    server.close_session(ended).expect("ended");
    eventually("another session follows", || client.session() != ended);
    eventually("what the session left is swept", || bricks.blocks.lock().is_empty());
    *gate.closed.lock() = false;
    gate.opened.notify_all();
    eventually("the block is stored late", || *gate.waiting.lock() == 0);
    // The client itself deletes it, since no batch will name it.
    eventually("nothing is left", || bricks.blocks.lock().is_empty());
    transport.swallow(false);
    assert_eq!(client.fsync(InodeId::ROOT), Err(Errno::EIO), "the loss is said");
    client.close().expect("closed");
    server.shutdown();
}
