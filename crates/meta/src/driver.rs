//! The thread that runs Raft: proposals in, log writes and committed entries out.
//!
//! Group commit: while one flush of the log runs, further proposals gather; the next flush takes them all. Applying is another
//! thread's work, so that the disk and the store are busy at the same time.

use crate::limits::*;
use crate::storage::LogStorage;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use raft::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What the driver is told.
pub(crate) enum Input {
    /// Something to decide.
    Propose {
        /// Comes back with the committed entry.
        context: [u8; 16],
        /// An encoded command.
        data: Vec<u8>,
    },
    /// Entries up to here are applied.
    Applied(u64),
    /// Entries up to here are durable in the store.
    Durable(u64),
    /// No more.
    Stop,
}

/// What the driver counts.
#[derive(Default)]
pub(crate) struct DriverStats {
    pub(crate) proposals: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) log_disk_bytes: AtomicU64,
}

/// See the module.
pub(crate) struct Driver {
    node: RawNode<LogStorage>,
    inputs: Receiver<Input>,
    apply: Sender<Vec<Entry>>,
    flush: Box<dyn Fn() + Send>,
    log_bytes_max: u64,
    /// The store is durable up to here.
    durable: u64,
    /// This is the only replica.
    alone: bool,
    stats: Arc<DriverStats>,
    stop: bool,
}

impl Driver {
    /// Begins as the only member of its group, and asks for its own vote at once.
    pub(crate) fn new(
        storage: LogStorage,
        applied: u64,
        log_bytes_max: u64,
        inputs: Receiver<Input>,
        apply: Sender<Vec<Entry>>,
        flush: Box<dyn Fn() + Send>,
        stats: Arc<DriverStats>,
    ) -> Result<Driver, String> {
        let config = Config {
            id: 1,
            applied,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            max_committed_size_per_ready: GROUP_BYTES_MAX as u64,
            ..Config::default()
        };
        let alone = storage.voters() == [config.id];
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let mut node = RawNode::new(&config, storage, &logger).map_err(|error| error.to_string())?;
        node.campaign().map_err(|error| error.to_string())?;
        Ok(Driver { node, inputs, apply, flush, log_bytes_max, durable: applied, alone, stats, stop: false })
    }

    /// Runs until it is told to stop; an error means that the log cannot be trusted any more.
    pub(crate) fn run(mut self) -> Result<(), String> {
        let mut tick = Instant::now() + TICK;
        while !self.stop {
            if !self.node.has_ready() {
                // Nobody else's silence could mean anything to a single replica: it sleeps until there is work.
                let input = if self.alone {
                    self.inputs.recv().map_err(|_| RecvTimeoutError::Disconnected)
                } else {
                    self.inputs.recv_deadline(tick)
                };
                match input {
                    Ok(input) => self.take(input)?,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
            self.gather()?;
            if !self.alone && Instant::now() >= tick {
                self.node.tick();
                tick = Instant::now() + TICK;
            }
            while self.node.has_ready() {
                self.ready()?;
            }
        }
        Ok(())
    }

    /// Takes what has come together, up to one group.
    fn gather(&mut self) -> Result<(), String> {
        let mut bytes = 0;
        while bytes < GROUP_BYTES_MAX
            && let Ok(input) = self.inputs.try_recv()
        {
            if let Input::Propose { data, .. } = &input {
                bytes += data.len();
            }
            self.take(input)?;
        }
        Ok(())
    }

    fn take(&mut self, input: Input) -> Result<(), String> {
        match input {
            Input::Propose { context, data } => {
                self.stats.proposals.fetch_add(1, Ordering::Relaxed);
                self.stats.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                self.node.propose(context.to_vec(), data).map_err(|error| error.to_string())?;
            }
            Input::Applied(index) => {
                self.node.advance_apply_to(index);
                self.node.mut_store().applied(index);
                self.shorten();
            }
            Input::Durable(index) => {
                self.durable = self.durable.max(index);
                let log = &mut self.node.mut_store().log;
                log.drop_through(self.durable).map_err(|error| error.to_string())?;
            }
            Input::Stop => self.stop = true,
        }
        Ok(())
    }

    /// Asks for a flush of the store when the log has grown enough.
    fn shorten(&mut self) {
        let log = &self.node.store().log;
        self.stats.log_bytes.store(log.bytes(), Ordering::Relaxed);
        self.stats.log_disk_bytes.store(log.disk_bytes(), Ordering::Relaxed);
        if log.bytes_since(self.durable + 1) > self.log_bytes_max {
            (self.flush)();
        }
    }

    /// One round of Raft: persist, then send, then apply.
    fn ready(&mut self) -> Result<(), String> {
        let mut ready = self.node.ready();
        // A single replica has nobody to send to: `messages` and `persisted_messages` go to the transport
        // when there is one, the latter only after the write below.
        self.hand_over(ready.take_committed_entries())?;
        let sync = ready.must_sync();
        let (entries, hard) = (ready.take_entries(), ready.hs().cloned());
        if !entries.is_empty() || hard.is_some() {
            let storage = self.node.mut_store();
            storage.persist(entries, hard.as_ref(), sync).map_err(|error| error.to_string())?;
            self.stats.flushes.store(storage.log.syncs(), Ordering::Relaxed);
        }
        let mut light = self.node.advance_append(ready);
        self.hand_over(light.take_committed_entries())
    }

    fn hand_over(&mut self, entries: Vec<Entry>) -> Result<(), String> {
        if entries.is_empty() {
            return Ok(());
        }
        self.apply.send(entries).map_err(|_| "the store has failed".to_string())
    }
}
