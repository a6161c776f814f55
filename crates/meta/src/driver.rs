//! The thread that runs Raft: proposals and messages in, log writes, messages and committed entries out.
//!
//! Group commit: while one flush of the log runs, further proposals gather; the next flush takes them all.
//! Another thread applies, so that the disk and the store are busy at the same time.

mod lead;
mod log_retention;
mod membership;

use crate::core::{Committed, Core, Input, applying_bytes};
use crate::limits::*;
use crate::machine::Machine;
use crate::storage::LogStorage;
use prost::Message as _;
use raft::StateRole;
use raft::prelude::*;
use shoal_runtime::channel::{Receiver, RecvTimeoutError, Sender};
use shoal_runtime::planted::mistake;
use shoal_runtime::random;
use shoal_runtime::time::Instant;
use shoal_types::ReplicaId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The driver's state.
pub(crate) struct Driver<M: Machine> {
    node: RawNode<LogStorage>,
    core: Arc<Core<M>>,
    inputs: Receiver<Input>,
    apply: Sender<Vec<Committed>>,
    log_bytes_max: u64,
    /// The store is durable up to here.
    durable: u64,
    /// When the other members were last heard from.
    heard: BTreeMap<u64, Instant>,
    /// This is the only replica of the group.
    alone: bool,
    /// Until then requests for votes are ignored: before its restart this replica may have acknowledged a
    /// leader, whose lease counts on that.
    no_vote_until: Option<Instant>,
    leads: bool,
    /// Leadership is being transferred.
    transferring: bool,
    /// When the quorum checks in flight were sent, by their numbers.
    quorum_checks: VecDeque<(u64, Instant)>,
    last_quorum_check: u64,
    ticks: u64,
    /// The election timeout in ticks, and the term and state for which it was drawn.
    election_timeout: (usize, u64, StateRole),
    stop: bool,
}

impl<M: Machine> Driver<M> {
    /// A driver for this log. The only voter of a group starts an election at once.
    pub(crate) fn new(
        core: Arc<Core<M>>,
        storage: LogStorage,
        applied: u64,
        inputs: Receiver<Input>,
        apply: Sender<Vec<Committed>>,
        fresh: bool,
    ) -> Result<Driver<M>, String> {
        let alone = core.peers.is_none();
        let config = Config {
            id: core.id.0,
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
        let single = storage.voters() == [config.id];
        if alone && !single {
            return Err(
                "this is one of several replicas of a cluster's volume, and is served by `shoal server`"
                    .into(),
            );
        }
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let mut node = RawNode::new(&config, storage, &logger).map_err(|error| error.to_string())?;
        if single {
            node.campaign().map_err(|error| error.to_string())?;
        }
        let promises = !single && !fresh;
        let no_vote_until = promises.then(|| Instant::now() + TICK * ELECTION_TICKS as u32);
        Ok(Driver {
            node,
            inputs,
            apply,
            log_bytes_max: core.sizes.log_bytes,
            core,
            durable: applied,
            heard: BTreeMap::new(),
            alone,
            no_vote_until,
            leads: false,
            transferring: false,
            quorum_checks: VecDeque::new(),
            last_quorum_check: 0,
            ticks: 0,
            election_timeout: (ELECTION_TICKS, u64::MAX, StateRole::Follower),
            stop: false,
        })
    }

    /// Runs until it is stopped; an error means that the log cannot be trusted any more.
    pub(crate) fn run(mut self) -> Result<(), String> {
        let mut tick = Instant::now() + TICK;
        while !self.stop {
            if !self.node.has_ready() {
                // A single replica has no timeouts: it sleeps until there is work.
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
                self.tick();
                // One tick at most, however long the iteration took: a late clock is a safe one.
                tick = Instant::now() + TICK;
            }
            while self.node.has_ready() {
                self.ready()?;
            }
        }
        Ok(())
    }

    /// Takes waiting proposals, up to one group.
    fn gather(&mut self) -> Result<(), String> {
        let mut bytes = 0;
        while bytes < GROUP_BYTES_MAX
            && let Ok(input) = self.inputs.try_recv()
        {
            match &input {
                Input::Propose { data, .. } => bytes += data.len(),
                Input::Message(message) => {
                    bytes += message.entries.iter().map(|entry| entry.data.len()).sum::<usize>();
                }
                _ => {}
            }
            self.take(input)?;
        }
        Ok(())
    }

    fn take(&mut self, input: Input) -> Result<(), String> {
        match input {
            Input::Propose { id, context, data, term, since } => {
                self.core.driver.queue.record(since.elapsed());
                self.core.driver.proposals.fetch_add(1, Ordering::Relaxed);
                self.core.driver.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
                let raft = &self.node.raft;
                // The only replica of a group leads all the time, see `Lead::alone`.
                let is_late = !self.alone && term.is_some_and(|term| term != raft.term);
                if raft.state != StateRole::Leader || is_late {
                    self.core.drop_proposal(id);
                    return Ok(());
                }
                match self.node.propose(context.to_vec(), data) {
                    Ok(()) => {}
                    Err(raft::Error::ProposalDropped) => self.core.drop_proposal(id),
                    Err(error) => return Err(error.to_string()),
                }
            }
            Input::Message(message) => {
                self.core.messages_waiting.fetch_sub(1, Ordering::Relaxed);
                self.step(*message)?;
            }
            Input::SetWantedMembers(wanted) => self.step_towards(&wanted)?,
            Input::Transfer => self.transfer(),
            Input::Applied(index) => {
                self.node.advance_apply_to(index);
                self.node.mut_store().applied(index);
                self.request_flush();
            }
            Input::Durable(index) => {
                let further = index > self.durable;
                self.durable = self.durable.max(index);
                let truncatable = self.truncatable();
                let log = &mut self.node.mut_store().log;
                log.truncate_prefix(truncatable).map_err(|error| error.to_string())?;
                self.measure_log();
                if further {
                    // Checked here because the log may have grown too long during the flush, without a later
                    // write.
                    self.request_flush();
                }
            }
            Input::Stop => self.stop = true,
        }
        Ok(())
    }

    fn step(&mut self, message: Message) -> Result<(), String> {
        let kind = message.get_msg_type();
        if let Some(until) = self.no_vote_until {
            // The vote may break a leader's lease. A vote for a transfer of leadership does not.
            let vote = matches!(kind, MessageType::MsgRequestVote | MessageType::MsgRequestPreVote);
            if Instant::now() >= until {
                self.no_vote_until = None;
            } else if vote && message.context.is_empty() {
                return Ok(());
            }
        }
        if kind == MessageType::MsgPropose {
            // Proposals are only sent to the leader itself.
            return Ok(());
        }
        let (from, commit) = (message.from, message.commit);
        if self.node.raft.prs().get(from).is_some() {
            self.heard.insert(from, Instant::now());
        }
        match self.node.step(message) {
            Ok(()) => {}
            // The sender is not, or no longer, in the group.
            Err(raft::Error::StepPeerNotFound | raft::Error::StepLocalMsg) => {}
            Err(raft::Error::Store(error)) => return Err(error.to_string()),
            Err(error) => tracing::debug!(%error, from, "a Raft message was refused"),
        }
        let raft = &self.node.raft;
        let have = raft.raft_log.committed.min(raft.raft_log.persisted);
        if kind == MessageType::MsgHeartbeat && raft.leader_id == from && commit < have {
            // The leader does not know this replica's progress, because the replica got its state by a
            // snapshot and not through the log.
            let mut ack =
                Message { to: from, from: raft.id, term: raft.term, index: have, ..Message::default() };
            ack.set_msg_type(MessageType::MsgAppendResponse);
            self.send(vec![ack]);
        }
        Ok(())
    }

    /// Asks for a flush of the store when the log has grown enough.
    fn request_flush(&mut self) {
        self.measure_log();
        if self.node.store().log.bytes_since(self.durable + 1) > self.log_bytes_max {
            self.core.flush_tasks.ask_flush();
        }
    }

    fn measure_log(&self) {
        let log = &self.node.store().log;
        self.core.driver.log_bytes.store(log.bytes(), Ordering::Relaxed);
        self.core.driver.log_disk_bytes.store(log.disk_bytes(), Ordering::Relaxed);
    }

    fn tick(&mut self) {
        self.draw_election_timeout();
        self.node.tick();
        self.ticks += 1;
        self.check_quorum();
        if let Some(peers) = &self.core.peers {
            let behind = self.node.store().take_behind();
            // Checked again, since the replica may have fetched the state by now.
            for behind in behind.into_iter().filter(|id| self.lacks_log(*id)) {
                peers.send(ReplicaId(behind), crate::snapshot::fetch_state_message());
            }
        }
        self.publish();
    }

    /// Draws the election timeout from the random source that the simulator controls. Raft's own draw is
    /// overwritten.
    fn draw_election_timeout(&mut self) {
        let (term, state) = (self.node.raft.term, self.node.raft.state);
        if (self.election_timeout.1, self.election_timeout.2) != (term, state) {
            let drawn = ELECTION_TICKS + (random::number() % ELECTION_TICKS as u64) as usize;
            self.election_timeout = (drawn, term, state);
        }
        self.node.raft.set_randomized_election_timeout(self.election_timeout.0);
    }

    /// One round of Raft: send what may go at once, persist, send the rest, apply.
    fn ready(&mut self) -> Result<(), String> {
        let mut ready = self.node.ready();
        if let Some(state) = ready.ss() {
            let leads = state.raft_state == StateRole::Leader;
            self.leadership_changed(leads);
        }
        self.send(ready.take_messages());
        for state in ready.take_read_states() {
            self.confirmed(&state);
        }
        self.hand_over(ready.take_committed_entries())?;
        let sync = ready.must_sync() && !mistake("acknowledge before the log is flushed");
        let (entries, hard) = (ready.take_entries(), ready.hs().cloned());
        if !entries.is_empty() || hard.is_some() {
            let begun = Instant::now();
            let storage = self.node.mut_store();
            storage.persist(entries, hard.as_ref(), sync).map_err(|error| error.to_string())?;
            self.core.driver.flush.record(begun.elapsed());
            self.core.driver.flushes.store(storage.log.syncs(), Ordering::Relaxed);
        }
        self.send(ready.take_persisted_messages());
        let mut light = self.node.advance_append(ready);
        self.send(light.take_messages());
        self.hand_over(light.take_committed_entries())
    }

    fn send(&self, messages: Vec<Message>) {
        let Some(peers) = &self.core.peers else { return };
        for message in messages {
            peers.send(ReplicaId(message.to), crate::snapshot::raft_message(&message));
        }
    }

    fn hand_over(&mut self, entries: Vec<Entry>) -> Result<(), String> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut committed = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut members = None;
            if entry.get_entry_type() == EntryType::EntryConfChange {
                let change = ConfChange::decode(entry.data.as_slice()).map_err(|error| error.to_string())?;
                let mut conf = self.node.apply_conf_change(&change).map_err(|error| error.to_string())?;
                // Sorted, because it is stored, and the stores of all replicas are equal to the byte.
                conf.voters.sort_unstable();
                conf.learners.sort_unstable();
                members = Some(conf);
                tracing::info!(group = %self.core.group, ?members, "the members of the group have changed");
            }
            self.core.applying_bytes.fetch_add(applying_bytes(&entry), Ordering::Relaxed);
            committed.push(Committed { entry, members });
        }
        self.core.wait_to_apply();
        self.apply.send(committed).map_err(|_| "the store has failed".to_string())
    }
}
