//! A mount outlives its sessions: when the servers have ended one, the next begins.
//!
//! **Model.** A [`Session`] owns all state of a session. When the servers have ended it, it is dead for good:
//! calls that wait in it get `EIO`, it sends nothing more and installs no reply. The next session begins with
//! nothing but what `core::inherit` hands over. A call runs in the session that is current when it begins,
//! and stays in it, so no state of one session gets into another.
//!
//! **Denials.** If the servers [deny](shoal_wire::Denial) the volume to the client, the session ends as well,
//! and calls fail with `ENOTCONN` or `EACCES`. The next session begins when they serve the client again;
//! never, if the denial is final.
//!
//! **Order.** First the loss is logged, then the whole kernel cache is invalidated, then the next session
//! begins. Until then calls fail with `EIO` instead of waiting for it: a waiting call would hold locks that
//! the invalidation needs.
//!
//! **Promises.** A change that was answered and is lost is reported by the next fsync(2) of each open file. A
//! mount whose session was ended works again as soon as a server answers. Unmounting waits for none of this.

use crate::backoff::Backoff;
use crate::clock::Clock;
use crate::context::Context;
use crate::failover::{Failover, is_transient};
use crate::kernel::KernelCache;
use crate::lease::Moment;
use crate::limits::{LOSSES_KEPT_MAX, SESSION_PAUSE_MAX, SESSION_PAUSE_MIN};
use crate::mapping_locks::MappingLocks;
use crate::options::Options;
use crate::session::Session;
use crate::shared::MountShared;
use crate::stats::Stat;
use crate::transport::{Servers, Transport};
use shoal_runtime::budget::Budget;
use shoal_runtime::channel::{self, Receiver};
use shoal_runtime::sync::{Condvar, Mutex, RwLock};
use shoal_runtime::thread::{Builder, JoinHandle};
use shoal_runtime::time::{Duration, Instant, wall};
use shoal_types::{Errno, SessionId, Timestamp};
use shoal_wire::{Denial, MetaError, OpenReply, PROTOCOL_VERSION, SessionRequest, VolumeBlocks};
use std::sync::{Arc, OnceLock};

/// The current session, and the thread that replaces it.
pub(crate) struct Mount {
    shared: Arc<MountShared>,
    servers: Servers,
    /// Which files its programs may map shared and writable.
    mapping_locks: Arc<MappingLocks>,
    /// One line for each ended session: what was lost with it.
    losses: Mutex<Vec<String>>,
    current: RwLock<Arc<Session>>,
    state: Mutex<MountState>,
    /// Signalled when the mount ends.
    ending: Condvar,
}

#[derive(Default)]
struct MountState {
    ending: bool,
    interrupted: bool,
    abandoned: bool,
    /// The connection over which a session is being opened.
    opening: Option<Arc<Failover>>,
    /// Threads of the session.
    threads: Vec<JoinHandle<()>>,
    /// The thread that opens the next session.
    keeper: Option<JoinHandle<()>>,
    /// Counters of earlier sessions.
    past: Vec<Stat>,
    sessions_ended: u64,
}

/// Opens a session over a connection.
fn open(
    shared: &MountShared,
    transport: &Transport,
    instance: u128,
) -> Result<(OpenReply, Moment), MetaError> {
    let asked = Moment::now();
    let Options { name, origin, has_ended, .. } = &shared.options;
    let (client, origin) = (name.clone(), origin.clone());
    let request = SessionRequest { protocol: PROTOCOL_VERSION, client, instance, origin };
    let sent = Timestamp::now();
    let opened = transport.meta.open_session(request)?;
    shared.clock.observe(sent, opened.grant.now);
    for (session, process) in &opened.siblings {
        if has_ended(process) {
            tracing::info!(
                session = session.0,
                process = process.number,
                "its process is gone: its session ends"
            );
            // If this fails, the servers end the session when its lease has run out.
            let _ = transport.meta.close_session(*session);
        }
    }
    Ok((opened, asked))
}

impl Mount {
    /// Opens the first session.
    pub(crate) fn begin(
        servers: Servers,
        bricks: Arc<dyn VolumeBlocks>,
        options: Options,
    ) -> Result<Arc<Mount>, MetaError> {
        let (ended, ends) = channel::unbounded();
        let (clock, kernel) = (Clock::default(), OnceLock::new());
        let shared = Arc::new(MountShared { bricks, options, clock, kernel, ended });
        let mapping_locks = Arc::new(MappingLocks::default());
        let transport = Transport::new(&servers, &shared.options);
        let opened = open(&shared, &transport, shoal_runtime::random::wide())?;
        let (session, threads) = Session::start(&shared, &mapping_locks, transport, opened);
        let state = MountState { threads, ..MountState::default() };
        let mount = Arc::new(Mount {
            shared,
            servers,
            mapping_locks,
            losses: Mutex::default(),
            current: RwLock::new(session),
            state: Mutex::new(state),
            ending: Condvar::new(),
        });
        let keeper = mount.clone();
        let run = move || keeper.replace_sessions(&ends);
        let keeper = Builder::new()
            .name("shoal-sessions".into())
            .spawn(run)
            .expect("the system has room for a thread");
        mount.state.lock().keeper = Some(keeper);
        Ok(mount)
    }

    /// The version of operations that all servers and mounts of the volume know.
    pub(crate) fn ops_version(&self) -> u8 {
        self.shared.bricks.ops_version()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The current session.
    pub(crate) fn current(&self) -> Arc<Session> {
        self.current.read().clone()
    }

    /// Runs `step` in the current session, which is not replaced meanwhile. `step` must not wait.
    pub(crate) fn with_current<T>(&self, step: impl FnOnce(&Session) -> T) -> T {
        step(&self.current.read())
    }

    pub(crate) fn take_losses(&self) -> Vec<String> {
        std::mem::take(&mut *self.losses.lock())
    }

    pub(crate) fn set_kernel(&self, kernel: Arc<dyn KernelCache>) {
        if self.shared.kernel.set(kernel).is_err() {
            tracing::warn!(
                "the client is mounted twice: only the first mount is told what other clients change"
            );
        }
    }

    /// Calls that wait for servers or bricks fail from now on.
    pub(crate) fn interrupt(&self) {
        let mut state = self.state.lock();
        state.interrupted = true;
        if let Some(failover) = &state.opening {
            failover.interrupt();
        }
        drop(state);
        self.current().context.interrupt();
    }

    /// The mount was unmounted by force: calls fail, and its end waits for no server.
    pub(crate) fn abandon(&self) {
        self.state.lock().abandoned = true;
        self.current().context.state.lock().abandoned = true;
        self.interrupt();
    }

    /// Ends the replacement of sessions. Returns the current session.
    pub(crate) fn end(&self) -> Arc<Session> {
        let mut state = self.state.lock();
        state.ending = true;
        let opening = state.opening.take();
        drop(state);
        self.ending.notify_all();
        if let Some(failover) = opening {
            failover.stop();
        }
        let session = self.current();
        // Wakes the keeper thread, which then ends.
        let _ = self.shared.ended.send(session.context.id);
        session
    }

    /// Waits for the threads of the session and the keeper thread.
    pub(crate) fn join(&self) {
        let mut state = self.state.lock();
        let threads = std::mem::take(&mut state.threads);
        let keeper = state.keeper.take();
        drop(state);
        for thread in threads.into_iter().chain(keeper) {
            // A thread that panicked has already reported it.
            let _ = thread.join();
        }
    }

    /// The budget for all buffers and caches.
    pub(crate) fn memory(&self) -> &Arc<Budget> {
        &self.shared.options.memory
    }

    pub(crate) fn stats(&self) -> Vec<Stat> {
        let now = self.current().stats();
        let state = self.state.lock();
        let mut stats = add(now, &state.past);
        stats.push(Stat { name: "sessions_ended_total", value: state.sessions_ended });
        stats
    }

    fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.ending || state.interrupted
    }

    /// Sleeps, unless the mount ends.
    fn pause(&self, pause: Duration) {
        let due = Instant::now() + pause;
        let mut state = self.state.lock();
        while !state.ending && !self.ending.wait_until(&mut state, due).timed_out() {}
    }

    /// The keeper thread: replaces each session that the servers end.
    fn replace_sessions(&self, ends: &Receiver<SessionId>) {
        let mut pause = SESSION_PAUSE_MIN;
        while let Ok(ended) = ends.recv() {
            if self.is_over() {
                return;
            }
            let session = self.current();
            if session.context.id != ended {
                continue;
            }
            // Backoff for sessions that are ended as soon as they begin.
            let lived = session.begun.elapsed();
            pause = if lived > SESSION_PAUSE_MAX {
                SESSION_PAUSE_MIN
            } else {
                (pause * 2).min(SESSION_PAUSE_MAX)
            };
            self.replace(&session, pause.saturating_sub(lived));
        }
    }

    /// Replaces a session that has ended by a new one.
    fn replace(&self, ended: &Arc<Session>, pause: Duration) {
        let lost_at = Instant::now();
        self.log_loss(&ended.context, ended.locks.count());
        ended.context.invalidate_kernel();
        // A session that was denied may still exist: this frees its rights at once.
        let _ = ended.context.transport.meta.close_session(ended.context.id);
        ended.retire();
        let denied = ended.context.state.lock().denied.clone();
        if let Some(denial) = denied.filter(|denial| denial.reason.is_final()) {
            return log_final_denial(&denial);
        }
        self.pause(pause);
        let Some((session, threads)) = self.open_next(ended.context.id) else { return };
        let past = ended.stats();
        self.mapping_locks.request_inherited(&session.locks);
        {
            let mut current = self.current.write();
            session.context.state.lock().core.inherit(&mut ended.context.state.lock().core);
            session.locks.inherit(&ended.locks);
            self.mapping_locks.session_replaced(session.context.id);
            *current = session.clone();
        }
        let mut state = self.state.lock();
        state.opening = None;
        state.past = add(past, &state.past);
        state.past.retain(|stat| grows(stat.name));
        state.sessions_ended += 1;
        // Threads of the last session end by themselves, some only when a server or brick has answered.
        state.threads = threads;
        let (ending, interrupted) = (state.ending, state.interrupted);
        session.context.state.lock().abandoned = state.abandoned;
        drop(state);
        if interrupted {
            session.context.interrupt();
        }
        if ending {
            // No call has run in the new session.
            let _ = session.close();
            return;
        }
        tracing::info!(
            session = session.context.id.0,
            seconds = lost_at.elapsed().as_secs_f32(),
            "the mount works again, in a new session"
        );
        watch_referenced_covers(&session);
    }

    /// The session after one that has ended; `None` if there will be none.
    fn open_next(&self, ended: SessionId) -> Option<(Arc<Session>, Vec<JoinHandle<()>>)> {
        let (mut backoff, instance) = (Backoff::new(), shoal_runtime::random::wide());
        let mut denied: Option<Denial> = None;
        loop {
            let transport = Transport::new(&self.servers, &self.shared.options);
            {
                let mut state = self.state.lock();
                if state.ending || state.interrupted {
                    return None;
                }
                state.opening.clone_from(&transport.failover);
            }
            match open(&self.shared, &transport, instance) {
                Ok(opened) => {
                    // If the servers have not ended the old session, its rights would conflict with those of
                    // the new one.
                    let _ = transport.meta.close_session(ended);
                    return Some(Session::start(&self.shared, &self.mapping_locks, transport, opened));
                }
                Err(MetaError::Denied(denial)) if denial.reason.is_final() => {
                    log_final_denial(&denial);
                    return None;
                }
                Err(MetaError::Denied(denial)) => {
                    if denied.as_ref().is_none_or(|last| last.reason != denial.reason) {
                        tracing::warn!(why = %denial, "every call fails until the servers serve this mount again");
                    }
                    denied = Some(denial);
                }
                Err(error) if is_transient(&error) || matches!(error, MetaError::Errno(Errno::EIO)) => {
                    if backoff.complains() {
                        tracing::warn!(%error, "no new session yet: every call fails");
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "there is no new session: every call fails; unmount and mount again");
                    return None;
                }
            }
            self.pause(backoff.pause());
        }
    }

    /// Logs what a session that the servers have ended has lost.
    fn log_loss(&self, ended: &Context, locks: usize) {
        let (loss, denied) = {
            let state = ended.state.lock();
            (state.core.loss(), state.denied.clone())
        };
        let why =
            denied.map_or(ENDED.to_owned(), |denial| format!("this mount's session has ended: {denial}"));
        let session = ended.id.0;
        let mut losses = self.losses.lock();
        if losses.len() < LOSSES_KEPT_MAX {
            let (operations, inodes) = (loss.operations, loss.inodes);
            losses.push(format!(
                "session {session} of {} has ended: lost {operations} operations on {inodes} inodes, and {locks} locks",
                self.shared.options.name
            ));
        }
        drop(losses);
        if loss.operations == 0 {
            tracing::warn!(
                session,
                lost_locks = locks,
                "{why}: everything was committed; calls that wait fail"
            );
            return;
        }
        let since = loss.since.and_then(|since| wall().duration_since(since.into()).ok());
        tracing::error!(
            session,
            lost_operations = loss.operations,
            lost_inodes = loss.inodes,
            lost_seconds = since.unwrap_or_default().as_secs_f32(),
            lost_locks = locks,
            "{why}: what it had not committed is lost; calls that wait fail, and the next fsync of whatever is open"
        );
    }
}

/// Watches the covers of all inodes that the kernel refers to. Otherwise this session is not recalled, and so
/// not recorded as a holder, before an open file loses its last name.
fn watch_referenced_covers(session: &Session) {
    let covers = session.context.state.lock().core.referred_covers();
    for cover in covers {
        if session.context.state.lock().core.alive().is_err() {
            return;
        }
        // A failure is ignored: the inode may be deleted, and calls fetch what they need.
        let _ = session.fetcher.look_at(cover);
    }
}

fn log_final_denial(denial: &Denial) {
    tracing::error!(why = %denial, "this mount has failed for good: every call fails; unmount it");
}

/// Why a session has ended, for the log.
const ENDED: &str = "the servers ended this mount's session, because they did not hear of it for too long or it did not give back what \
                     other clients wait for";

fn grows(name: &str) -> bool {
    name.ends_with("_total") || name.ends_with("_max")
}

/// Adds the counters of earlier sessions.
fn add(mut now: Vec<Stat>, past: &[Stat]) -> Vec<Stat> {
    for stat in now.iter_mut().filter(|stat| grows(stat.name)) {
        if let Some(before) = past.iter().find(|before| before.name == stat.name) {
            stat.value = match stat.name.ends_with("_max") {
                true => stat.value.max(before.value),
                false => stat.value + before.value,
            };
        }
    }
    now
}
