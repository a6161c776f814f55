//! The service: what clients request.

use crate::background::policies::PolicyState;
use crate::background::schemes::SchemeWalk;
use crate::background::tier::Move;
use crate::limits::*;
use crate::losses::{Counter, Losses, numbers};
use crate::machine::Machine;
use crate::replica::Replica;
use crate::shared::Shared;
use crate::tasks::{HealStatus, RebalanceStatus, TierSettings, TierState, Work};
use serde::{Deserialize, Serialize};
use shoal_namespace::codec::ops_count;
use shoal_namespace::kv::KvStore;
use shoal_namespace::records::BlockRecord;
use shoal_namespace::{Command, Outcome, query};
use shoal_runtime::planted::mistake;
use shoal_runtime::sync::Mutex;
use shoal_runtime::thread::JoinHandle;
use shoal_types::{
    BlockGroup, BlockId, BlockInfo, BlockScheme, BrickId, Errno, InodeId, SessionId, Statfs, Tier, Timestamp,
};
use shoal_wire::{
    Acquire, AcquireReply, Commit, CommitDone, CommitReply, Done, Grant, GrantReply, LockReply, LockRequest,
    MetaError, MetaService, OpenReply, PROTOCOL_VERSION, Poll, ReadReply, ReadRequest, Recalls, Reclaim,
    SessionRequest,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The content of a brick, as far as the namespace knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BrickUse {
    /// The number of blocks.
    pub blocks: u64,
    /// Their length in bytes.
    pub bytes: u64,
}

/// Blocks that are stored in one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SchemeUse {
    /// Shards that give a block back; 0: they are in copies.
    pub data: u8,
    /// All shards of a block, or all its copies.
    pub all: u8,
    /// The number of blocks.
    pub blocks: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// Blocks that the volume would store in another way today.
    pub unwanted_blocks: u64,
}

/// The use of the scheme that a group is in, in a volume that was created with so many copies.
fn of_group<'a>(
    found: &'a mut BTreeMap<(u8, u8), SchemeUse>,
    group: &BlockGroup,
    original: u8,
) -> &'a mut SchemeUse {
    let (data, all) = numbers(group, original);
    found.entry((data, all)).or_insert_with(|| SchemeUse { data, all, ..SchemeUse::default() })
}

/// A volume's metadata server. Dropping it stops it as a crash would; [`shutdown`](Self::shutdown) is the
/// orderly way.
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Server {
    /// Stops: leadership is transferred if possible, requests in flight are completed or refused, and the
    /// store is flushed so that the next start replays nothing.
    pub fn shutdown(&self) {
        self.shared.background.stop();
        self.shared.heal.stop();
        self.shared.tiering.stop();
        self.shared.replica.shutdown();
        self.join();
    }

    fn join(&self) {
        self.shared.leases.stop();
        self.shared.background.stop();
        self.shared.heal.stop();
        self.shared.tiering.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        // A waiter may hold the last reference to the server: the thread that calls it cannot wait for
        // itself.
        for thread in threads.into_iter().filter(|thread| !thread.is_current()) {
            // A thread that panicked has logged it.
            let _ = thread.join();
        }
        self.shared.leases.drop_work();
    }

    /// The replica of this server.
    pub fn replica(&self) -> &Replica<impl Machine> {
        &self.shared.replica
    }

    /// Counters, for administrators and monitoring. Names of counters that only grow end in `_total`.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let shared = &self.shared;
        let mut stats = shared.replica.stats();
        stats.push(("sessions", shared.sessions.count() as u64));
        stats.push(("granted_bytes", shared.sessions.outstanding_bytes()));
        stats.extend(shared.leases.stats());
        stats.extend(shared.background.stats());
        stats
    }

    /// Bricks have been added, have failed or returned, or are to be drained: blocks are healed, and failed
    /// deletions retried.
    pub fn placement_changed(&self) {
        self.shared.heal.survey();
        self.shared.background.add(Work { bricks: true, sweep_all: true, ..Work::default() });
    }

    /// Deletes soon what bricks have and the namespace does not know.
    pub fn sweep(&self) {
        self.shared.background.add(Work { sweep_soon: true, ..Work::default() });
    }

    /// Starts a rebalance: blocks are moved to where placement would put them today.
    pub fn rebalance(&self) {
        self.shared.heal.rebalance();
    }

    /// Aborts the rebalance in progress, and any that was requested.
    pub fn stop_rebalance(&self) {
        self.shared.heal.stop_rebalance();
    }

    /// Starts a check of every block on the bricks; missing copies are restored.
    pub fn check_copies(&self) {
        self.shared.heal.check();
    }

    /// How fast blocks are copied for healing and rebalancing, in bytes per second; 0: as fast as possible.
    pub fn set_heal_rate(&self, bytes_per_second: u64) {
        self.shared.heal.set_rate(bytes_per_second);
    }

    /// The healer's progress.
    pub fn heal_status(&self) -> HealStatus {
        self.shared.heal.status()
    }

    /// The progress of the last rebalance that was requested while this server led.
    pub fn rebalance_status(&self) -> RebalanceStatus {
        self.shared.heal.rebalance_status()
    }

    /// Whether the healer has no task that can run now.
    pub fn is_healed(&self) -> bool {
        self.shared.heal.is_idle()
    }

    /// When blocks are moved between the tiers of the volume; `None`: it has no hot tier.
    pub fn set_tiers(&self, settings: Option<TierSettings>) {
        self.shared.tiering.set(settings);
    }

    /// The state of the tiers.
    pub fn tier_state(&self) -> Result<TierState, MetaError> {
        self.shared.tier_state()
    }

    /// The blocks that would be moved between the tiers now, and why; nothing is moved.
    pub fn tier_plan(&self) -> Result<Vec<Move>, MetaError> {
        self.shared.tier_plan()
    }

    /// The pin that decides for an inode, and the pins that decide for nothing any more.
    pub fn pin_of(&self, ino: InodeId) -> Result<PolicyState<Tier>, MetaError> {
        self.shared.pin_of(ino)
    }

    /// The scheme of an inode or of the nearest directory above it, and the schemes that decide for nothing
    /// any more.
    pub fn scheme_of(&self, ino: InodeId) -> Result<PolicyState<BlockScheme>, MetaError> {
        self.shared.scheme_of(ino)
    }

    /// Blocks and bytes on each brick according to the namespace, garbage that is not deleted yet included. A
    /// brick without an entry can be removed. Reads the records of all blocks.
    pub fn brick_use(&self) -> Result<BTreeMap<BrickId, BrickUse>, MetaError> {
        let mut found = BTreeMap::<BrickId, BrickUse>::new();
        self.each_block(|_, block| {
            for brick in block.info.group.bricks() {
                let on = found.entry(brick).or_default();
                on.blocks += 1;
                on.bytes += u64::from(block.info.stored_bytes());
            }
        })?;
        Ok(found)
    }

    /// How the blocks in use are stored, those on the hot tier left out. Reads the records of all blocks, and
    /// of all files if directories have schemes of their own.
    pub fn schemes(&self) -> Result<Vec<SchemeUse>, MetaError> {
        let shared = &self.shared;
        let schemes = shared.bricks.policies().schemes;
        let original = shared.tree(query::replica(&*shared.store))?;
        let mut found = BTreeMap::new();
        self.each_block(|_, BlockRecord { info, refs, .. }| {
            if *refs == 0 || info.group.tier() == Tier::Hot {
                return;
            }
            let of = of_group(&mut found, &info.group, original);
            (of.blocks, of.bytes) = (of.blocks + 1, of.bytes + u64::from(info.len));
            if schemes.is_empty() {
                of.unwanted_blocks += u64::from(!shared.bricks.has_wanted_scheme(*info, None));
            }
        })?;
        if !schemes.is_empty() {
            let (mut walk, state) = (SchemeWalk::new(schemes), shared.store.snapshot());
            let mut count = |_: BlockId, info: BlockInfo, scheme: Option<BlockScheme>| {
                if info.group.tier() == Tier::Cold && !shared.bricks.has_wanted_scheme(info, scheme) {
                    of_group(&mut found, &info.group, original).unwanted_blocks += 1;
                }
            };
            while shared.tree(walk.step(&state, &mut count))? {}
        }
        Ok(found.into_values().collect())
    }

    /// How many further losses the blocks in use survive. Reads the records of all blocks.
    pub fn losses(&self) -> Result<Losses, MetaError> {
        let mut counter = Counter::new(self.shared.tree(query::replica(&*self.shared.store))?);
        self.each_block(|id, block| counter.add(&*self.shared.bricks, id, block))?;
        Ok(counter.finish())
    }

    /// Reads the records of all blocks.
    fn each_block(&self, mut each: impl FnMut(BlockId, &BlockRecord)) -> Result<(), MetaError> {
        let shared = &self.shared;
        shared.serving()?;
        let (state, mut after) = (shared.store.snapshot(), None);
        loop {
            let page = shared.tree(query::blocks(&state, after, HEAL_READ_PAGE))?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(*last);
            page.iter().for_each(|(id, block)| each(*id, block));
        }
    }

    /// How many blocks in use are on fewer bricks than they should be.
    pub fn degraded_count(&self) -> Result<u64, MetaError> {
        self.shared.serving()?;
        let state = self.shared.store.snapshot();
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.shared.tree(query::degraded(&state, after, HEAL_READ_PAGE))?;
            let Some((last, _)) = page.last() else { return Ok(count) };
            (count, after) = (count + page.len() as u64, Some(*last));
        }
    }

    /// Blocks in use on fewer bricks than they should be, at most `count_max` of them.
    pub fn degraded(&self, count_max: usize) -> Result<Vec<(BlockId, BlockInfo)>, MetaError> {
        self.shared.serving()?;
        self.shared.tree(query::degraded(&self.shared.store.snapshot(), None, count_max))
    }

    /// Makes everything applied durable in the store and has the log truncated, as happens periodically
    /// anyway.
    pub fn flush(&self) -> Result<(), MetaError> {
        self.shared.replica.flush()
    }

    /// A digest of the whole state, and the log index it belongs to. Replicas at the same index have the same
    /// digest.
    pub fn digest(&self) -> Result<(u64, u128), MetaError> {
        self.shared.replica.digest()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.replica.stop();
        self.join();
    }
}

impl MetaService for Server {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        let shared = &self.shared;
        let term = shared.serving()?;
        if request.protocol != PROTOCOL_VERSION {
            return Err(MetaError::Version { server: PROTOCOL_VERSION, client: request.protocol });
        }
        let _one = shared.sessions.opening.lock();
        for session in shared.sessions.superseded_by(&request) {
            tracing::warn!(%session, "ending a session that its client has given up");
            shared.end_session(session)?;
        }
        let now = Timestamp::now();
        let (client, inodes) = (request.client.clone(), INODES_AT_START);
        let open = match request.origin.clone() {
            Some(origin) => Command::OpenSessionFrom { client, origin, time: now, inodes },
            None => Command::OpenSession { client, time: now, inodes },
        };
        let siblings = shared.sessions.siblings(request.origin.as_ref());
        let Outcome::Opened { session, first, inodes } = shared.propose(&open)? else {
            return Err(MetaError::Failed("a session was not opened".into()));
        };
        shared.sessions.add(session, request);
        shared.lease_begins(term, session)?;
        let volume = shared.tree(query::volume(&shared.store))?;
        let volume = volume.ok_or_else(|| MetaError::Failed("the store holds no volume".into()))?;
        let first_inode = if mistake("allocate inode numbers twice") { 16 } else { first.0 };
        Ok(OpenReply {
            session,
            volume: volume.id,
            renew_ms: RENEW.as_millis() as u64,
            inline_bytes: volume.options.inline_bytes,
            grant: GrantReply { now: Timestamp::now(), first_inode, inodes, bytes: 0 },
            term,
            lease_ms: (shared.sessions.dead_after() * LEASE_PART.0 / LEASE_PART.1).as_millis() as u64,
            siblings,
        })
    }

    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.shared.serving()?;
        self.shared.end_session(session)
    }

    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        let shared = &self.shared;
        shared.serving()?;
        shared.sessions.report(grant.session, grant.space.outstanding_bytes)?;
        let mut reply = GrantReply { now: Timestamp::default(), first_inode: 0, inodes: 0, bytes: 0 };
        if grant.inodes > 0 {
            let command = Command::GrantInodes { session: grant.session, count: grant.inodes };
            match shared.propose(&command)? {
                Outcome::Granted { first, inodes } => (reply.first_inode, reply.inodes) = (first.0, inodes),
                _ => return Err(MetaError::Fenced(grant.session)),
            }
        }
        if grant.space.want_bytes > 0 {
            reply.bytes = shared.grant_room(grant.session, grant.space)?;
        }
        reply.now = Timestamp::now();
        Ok(reply)
    }

    fn submit(&self, commit: Commit, done: CommitDone) {
        let (session, seq) = (commit.session, commit.seq);
        let shared = &self.shared;
        let done = shared.timed(move || format!("batch {}.{}", session.0, seq.0), done);
        let admitted = shared
            .admit(session)
            .and_then(|term| shared.lease_born(term, (session, seq), &commit.born).map(|()| term));
        let term = match admitted {
            Ok(term) => term,
            Err(error) => return done(Err(error)),
        };
        // Before it is in the log: from then on every replica has to decode it, after each restart, too.
        if ops_count(&commit.ops).is_some_and(|count| count > BATCH_OPS_MAX) {
            let why = format!("a batch has at most {BATCH_OPS_MAX} operations");
            return done(Err(MetaError::Malformed(why)));
        }
        tracing::trace!(%session, %seq, born = ?commit.born, gone = ?commit.gone, "batch");
        let (born, gone, table) = (commit.born, commit.gone, shared.clone());
        let command = Command::batch(session, seq, commit.ops);
        self.shared.propose_then(
            &command,
            Box::new(move |outcome| {
                done(outcome.and_then(|outcome| match outcome {
                    Outcome::Applied { seq } => {
                        // After the batch was applied, since the inodes could be found by their numbers until
                        // then.
                        table.lease_applied(term, session, &born, &gone);
                        Ok(CommitReply { seq })
                    }
                    Outcome::Fenced { session } => Err(MetaError::Fenced(session)),
                    Outcome::Refused { index, errno } => {
                        Err(MetaError::Refused { session, seq, index, errno })
                    }
                    // An earlier batch was lost when leadership changed.
                    Outcome::OutOfOrder { expected } => Err(MetaError::OutOfOrder { expected }),
                    // The client has sent a batch that cannot be applied.
                    other => {
                        tracing::error!(%session, %seq, ?other, "a batch cannot be applied");
                        Err(MetaError::Refused { session, seq, index: 0, errno: Errno::EINVAL })
                    }
                }));
            }),
        );
    }

    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        let (session, token) = (request.session, request.token);
        self.shared.serve_read(request, self.shared.timed(move || token.request_name(session, "read"), done));
    }

    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        let (session, token) = (acquire.session, acquire.token);
        let done = self.shared.timed(move || token.request_name(session, "acquire"), done);
        self.shared.acquire(acquire, done);
    }

    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        self.shared.poll(poll, done);
    }

    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        self.shared.lock(request, done);
    }

    fn reclaim(&self, reclaim: Reclaim) -> Result<(), MetaError> {
        self.shared.reclaim(&reclaim)
    }

    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.shared.read_for(session, |state| {
            let find = |id: &BlockId| Ok(query::block(state, *id)?.map(|block| block.info));
            ids.iter().map(find).collect()
        })
    }

    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        let shared = &self.shared;
        let counters = shared.read_for(session, |state| Ok(query::counters(state)?))?;
        shared.room.statfs(shared.reservations(), counters.used_bytes, counters.inodes)
    }
}
