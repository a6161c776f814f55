//! Bricks on the machine of a mount, whose blocks the mount reads from the brick's own files.
//!
//! **Model.** A block never changes, and every byte of its file is under a checksum. So a mount that finds
//! the brick's directory reads blocks as the node's server would, without a message, a socket, or
//! encryption. Everything else (storing, deleting, listing, repair) goes to the server.
//!
//! **Assumes** that the directory at the brick's path is that brick only if it says so. The server is asked
//! for the brick's identity, over the same connection and with the same access check as for a block. In a
//! container the path may be another directory, and a disk may be unmounted: each read checks the brick's
//! marker file first.
//!
//! **Promises.** A block that cannot be read here is read over the network. Its server decides whether it is
//! missing or damaged.

use super::calls::{NodeReply, NodeRequest, request_over};
use crate::limits::{NEAR_BRICK_AGAIN, NEAR_READS_EVERY, NODE_REPLY_WAIT_MAX};
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_brick::{BlockReader, ReadCounts};
use shoal_net::Link;
use shoal_net::remote::RemoteBrick;
use shoal_types::{BlockId, BrickId, SessionId, Statfs};
use shoal_wire::{BlockError, BlockPage, BlockService, GetDone, Moment};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The bricks on this machine.
#[derive(Default)]
pub struct NearBricks {
    places: Mutex<HashMap<BrickId, Arc<Place>>>,
    counted: Arc<Counted>,
}

/// Counters of reads from the files of bricks.
#[derive(Default)]
struct Counted {
    reads: AtomicU64,
    bytes: AtomicU64,
}

/// Reads of a brick's blocks, and their counts.
struct Place {
    from: Mutex<From>,
    reads: ReadCounts,
    /// When the counts are sent to the brick's server next.
    due: Mutex<Instant>,
}

enum From {
    Files(Arc<BlockReader>),
    /// Over the network, until the files are looked for again.
    Network(Instant),
}

impl NearBricks {
    /// A brick of a node on this machine. `requests` leads to that node.
    /// If its volume has tiers, the counts of reads are sent to the server.
    pub fn brick(
        &self,
        (id, path): (BrickId, PathBuf),
        tiered: bool,
        requests: Arc<Link>,
        remote: RemoteBrick,
    ) -> NearBrick {
        let at_once = || {
            let now = Instant::now();
            let (from, reads, due) = (Mutex::new(From::Network(now)), ReadCounts::default(), Mutex::new(now));
            Arc::new(Place { from, reads, due })
        };
        let place = self.places.lock().entry(id).or_insert_with(at_once).clone();
        NearBrick { id, path, tiered, requests, remote, place, counted: self.counted.clone() }
    }

    /// Reads from files, and their bytes.
    pub fn counted(&self) -> (u64, u64) {
        (self.counted.reads.load(Relaxed), self.counted.bytes.load(Relaxed))
    }
}

/// A brick on this machine.
pub struct NearBrick {
    id: BrickId,
    path: PathBuf,
    tiered: bool,
    requests: Arc<Link>,
    remote: RemoteBrick,
    place: Arc<Place>,
    counted: Arc<Counted>,
}

impl NearBrick {
    fn files(&self) -> Option<Arc<BlockReader>> {
        let mut from = self.place.from.lock();
        match &*from {
            From::Files(reader) if reader.is_there() => return Some(reader.clone()),
            From::Network(until) if *until > Instant::now() => return None,
            _ => {}
        }
        // Other reads use the network while this one looks.
        *from = From::Network(Instant::now() + NEAR_BRICK_AGAIN);
        drop(from);
        match self.find() {
            Ok(reader) => {
                tracing::debug!(brick = %self.id, path = %self.path.display(), "its blocks are read from its files");
                let reader = Arc::new(reader);
                *self.place.from.lock() = From::Files(reader.clone());
                Some(reader)
            }
            Err(why) => {
                tracing::debug!(brick = %self.id, why, "its blocks are read over the network");
                None
            }
        }
    }

    /// Counts a read, and sends the counts to the server periodically.
    fn count(&self, id: BlockId) {
        if !self.tiered {
            return;
        }
        self.place.reads.add(id, 1);
        let now = Instant::now();
        let mut due = self.place.due.lock();
        if *due <= now {
            *due = now + NEAR_READS_EVERY;
            drop(due);
            self.remote.note_reads(self.place.reads.take());
        }
    }

    fn find(&self) -> Result<BlockReader, String> {
        let answer =
            request_over(&self.requests, &NodeRequest::BrickIdentity { brick: self.id }, NODE_REPLY_WAIT_MAX);
        match answer.map_err(|error| error.to_string())? {
            NodeReply::BrickIdentity(id) => {
                BlockReader::open(&self.path, id).map_err(|error| error.to_string())
            }
            other => Err(format!("the server answered {other:?}")),
        }
    }
}

impl BlockService for NearBrick {
    fn get(&self, id: BlockId, offset: u32, len: u32) -> Result<Bytes, BlockError> {
        match self.files().map(|files| files.get(id, offset, len)) {
            Some(Ok(bytes)) => {
                self.counted.reads.fetch_add(1, Relaxed);
                self.counted.bytes.fetch_add(bytes.len() as u64, Relaxed);
                self.count(id);
                Ok(bytes)
            }
            Some(Err(why)) => {
                tracing::debug!(brick = %self.id, %why, "a block is read over the network instead");
                self.remote.get(id, offset, len)
            }
            None => self.remote.get(id, offset, len),
        }
    }
    fn get_then(&self, id: BlockId, offset: u32, len: u32, done: GetDone) -> Result<(), GetDone> {
        let uses_network = matches!(*self.place.from.lock(), From::Network(until) if until > Instant::now());
        match uses_network {
            true => self.remote.get_then(id, offset, len, done),
            // Looking for the files and reading them wait for the server and the disk.
            false => Err(done),
        }
    }
    fn put(&self, id: BlockId, parts: &[Bytes]) -> Result<(), BlockError> {
        self.remote.put(id, parts)
    }
    fn delete(&self, ids: &[BlockId]) -> Result<(), BlockError> {
        self.remote.delete(ids)
    }
    fn moment(&self) -> Result<Moment, BlockError> {
        self.remote.moment()
    }
    fn delete_older(&self, ids: &[BlockId], than: Moment) -> Result<Vec<BlockId>, BlockError> {
        self.remote.delete_older(ids, than)
    }
    fn length(&self, id: BlockId) -> Result<u32, BlockError> {
        self.remote.length(id)
    }
    fn list(&self, from: BlockId) -> Result<BlockPage<BlockId>, BlockError> {
        self.remote.list(from)
    }
    fn sessions(&self) -> Result<Vec<SessionId>, BlockError> {
        self.remote.sessions()
    }
    fn statfs(&self) -> Result<Statfs, BlockError> {
        self.remote.statfs()
    }
    fn check(&self, id: BlockId) -> Result<u32, BlockError> {
        self.remote.check(id)
    }
    fn take_reads(&self) -> Result<Vec<(BlockId, u32)>, BlockError> {
        self.remote.take_reads()
    }
    fn note_reads(&self, reads: Vec<(BlockId, u32)>) {
        self.remote.note_reads(reads);
    }
}
