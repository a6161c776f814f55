//! Reads blocks, and ahead of sequential readers.
//!
//! A random reader gets just the bytes it asks for. Once a file is read in sequence ([`crate::sequence`]),
//! its blocks are fetched whole and the next few in parallel, whatever the size of the single reads: record
//! size must not matter.

use crate::core::Piece;
use crate::limits::READ_AHEAD_THREADS;
use crate::locate::Persistence;
use crate::sequence::Sequences;
use crate::session::Session;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use shoal_runtime::channel::{Receiver, Sender};
use shoal_runtime::sync::{Condvar, Mutex};
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_types::{BlockId, BlockRef, InodeId};
use shoal_wire::BlockError;
use std::collections::VecDeque;
use std::sync::Arc;

/// A cached run of a block: the block, and where the run begins.
type Key = (BlockId, u32);

/// A run to be read ahead, and those that are wanted around the same time.
pub(crate) struct Ahead {
    run: BlockRef,
    near: Arc<[BlockRef]>,
}

enum Slot {
    Loading,
    Ready(Bytes),
}

#[derive(Default)]
struct Cached {
    slots: FxHashMap<Key, Slot>,
    /// Ready runs, oldest first.
    order: VecDeque<Key>,
    bytes: usize,
}

/// Files whose sequences are remembered; beyond it, all are forgotten, which costs a few small reads.
const SEQUENCE_FILES_MAX: usize = 4096;
/// Runs that may wait to be read ahead; more are not requested.
const AHEAD_QUEUE_MAX: usize = 64;

/// The block cache, and the sequences in which files are read.
pub(crate) struct Reader {
    bytes_max: usize,
    cached: Mutex<Cached>,
    loaded: Condvar,
    sequences: Mutex<FxHashMap<InodeId, Sequences>>,
    ahead: Mutex<Option<Sender<Ahead>>>,
}

impl Reader {
    pub(crate) fn new(bytes_max: usize) -> (Reader, Receiver<Ahead>) {
        let (ahead, requests) = shoal_runtime::channel::bounded(AHEAD_QUEUE_MAX);
        let reader = Reader {
            bytes_max,
            cached: Mutex::default(),
            loaded: Condvar::new(),
            sequences: Mutex::default(),
            ahead: Mutex::new(Some(ahead)),
        };
        (reader, requests)
    }

    pub(crate) fn stop(&self) {
        self.ahead.lock().take();
    }

    /// Records a read. `Some` if the file is being read in sequence there: how many bytes are to be fetched
    /// ahead.
    pub(crate) fn record(&self, ino: InodeId, offset: u64, len: u64) -> Option<u64> {
        let mut files = self.sequences.lock();
        if files.len() >= SEQUENCE_FILES_MAX && !files.contains_key(&ino) {
            files.clear();
        }
        files.entry(ino).or_default().record(offset, len)
    }

    /// Whether a run is cached, or being loaded.
    pub(crate) fn has(&self, run: BlockRef) -> bool {
        self.cached.lock().slots.contains_key(&(run.id, run.offset))
    }

    /// Part of a run, if it is cached.
    pub(crate) fn peek(&self, run: BlockRef, piece: BlockRef) -> Option<Bytes> {
        match self.cached.lock().slots.get(&(run.id, run.offset)) {
            Some(Slot::Ready(bytes)) => cut(bytes, run, piece),
            _ => None,
        }
    }

    fn fill(&self, key: Key, outcome: Option<&Bytes>) {
        let mut cached = self.cached.lock();
        match outcome {
            Some(bytes) => {
                match cached.slots.insert(key, Slot::Ready(bytes.clone())) {
                    Some(Slot::Ready(old)) => cached.bytes -= old.len(),
                    _ => cached.order.push_back(key),
                }
                cached.bytes += bytes.len();
                while cached.bytes > self.bytes_max
                    && let Some(oldest) = cached.order.pop_front()
                {
                    if let Some(Slot::Ready(bytes)) = cached.slots.remove(&oldest) {
                        cached.bytes -= bytes.len();
                    }
                }
            }
            None => {
                cached.slots.remove(&key);
            }
        }
        drop(cached);
        self.loaded.notify_all();
    }
}

/// The piece that lies in a run.
fn cut(bytes: &Bytes, run: BlockRef, piece: BlockRef) -> Option<Bytes> {
    let from = piece.offset.checked_sub(run.offset)? as usize;
    let to = from.checked_add(piece.len as usize)?;
    (to <= bytes.len()).then(|| bytes.slice(from..to))
}

/// Starts the threads that read ahead.
pub(crate) fn start(session: &Arc<Session>, requests: Receiver<Ahead>) -> Vec<JoinHandle<()>> {
    (0..READ_AHEAD_THREADS)
        .map(|n| {
            let (session, requests) = (Arc::clone(session), requests.clone());
            Builder::new()
                .name(format!("shoal-ahead-{n}"))
                .spawn(move || {
                    for Ahead { run, near } in requests {
                        // The call that needs the bytes will meet the same error and report it.
                        let _ = session.load(run, &near, Persistence::GiveUp);
                    }
                })
                .expect("the system has room for a thread")
        })
        .collect()
}

impl Session {
    /// The bytes of a piece, from memory or from a brick. `runs` are the whole extents around and behind it,
    /// if the file is being read in sequence.
    pub(crate) fn read_piece(&self, piece: BlockRef, runs: &[BlockRef]) -> Result<Bytes, BlockError> {
        let around = runs.iter().find(|run| {
            run.id == piece.id
                && run.offset <= piece.offset
                && piece.offset + piece.len <= run.offset + run.len
        });
        match around {
            Some(run) => {
                let bytes = self.load(*run, runs, Persistence::Wait)?;
                cut(&bytes, *run, piece)
                    .ok_or(BlockError::Invalid { id: piece.id, what: "short read".into() })
            }
            None => self.get(piece, &[], Persistence::Wait),
        }
    }

    /// Has the runs fetched that will be read next, up to `bytes_max` bytes.
    pub(crate) fn read_ahead(&self, runs: &[BlockRef], bytes_max: u64) {
        let ahead = self.reader.ahead.lock();
        let Some(ahead) = &*ahead else { return };
        let near: Arc<[BlockRef]> = runs.into();
        let mut bytes = 0u64;
        for run in runs {
            bytes += u64::from(run.len);
            if bytes > bytes_max || self.reader.cached.lock().slots.contains_key(&(run.id, run.offset)) {
                continue;
            }
            // A full queue means that the bricks have enough to do.
            if ahead.try_send(Ahead { run: *run, near: near.clone() }).is_err() {
                return;
            }
        }
    }

    /// A whole run: from memory, from another thread that is loading it, or from the brick.
    fn load(&self, run: BlockRef, near: &[BlockRef], persistence: Persistence) -> Result<Bytes, BlockError> {
        let key = (run.id, run.offset);
        let mut cached = self.reader.cached.lock();
        loop {
            match cached.slots.get(&key) {
                Some(Slot::Ready(bytes)) if bytes.len() >= run.len as usize => {
                    self.counters.block_hits.add(1);
                    return Ok(bytes.clone());
                }
                Some(Slot::Loading) => self.reader.loaded.wait(&mut cached),
                _ => break,
            }
        }
        cached.slots.insert(key, Slot::Loading);
        drop(cached);
        let loaded = self.get(run, near, persistence);
        self.reader.fill(key, loaded.as_ref().ok());
        loaded
    }
}

/// Whether all of these can be had without waiting.
pub(crate) fn in_memory(pieces: &[Piece]) -> bool {
    !pieces.iter().any(|piece| matches!(piece, Piece::Block(_)))
}
