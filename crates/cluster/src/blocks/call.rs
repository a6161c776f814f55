//! Parallel requests to several bricks.

use super::Inner;
use super::lane::Lane;
use bytes::Bytes;
use shoal_runtime::channel::{Receiver, Sender, unbounded};
use shoal_runtime::time::Instant;
use shoal_types::{BlockId, BrickId};
use shoal_wire::{BlockError, BlockService};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Requests of one caller to several bricks. Requests that have not started when this is dropped are
/// cancelled.
pub(super) struct Calls<T> {
    sender: Sender<(BrickId, Result<T, BlockError>)>,
    answers: Receiver<(BrickId, Result<T, BlockError>)>,
    dropped: Arc<AtomicBool>,
    /// Bricks that have not answered.
    pub(super) pending: Vec<BrickId>,
}

impl<T: Send + 'static> Calls<T> {
    pub(super) fn new() -> Calls<T> {
        let (sender, answers) = unbounded();
        Calls { sender, answers, dropped: Arc::default(), pending: Vec::new() }
    }

    /// Starts a request to a brick; its answer comes with [`next`](Self::next).
    pub(super) fn start(
        &mut self,
        inner: &Arc<Inner>,
        brick: BrickId,
        work: impl FnOnce(&dyn BlockService) -> Result<T, BlockError> + Send + 'static,
    ) {
        self.pending.push(brick);
        let (sender, dropped, of) = (self.sender.clone(), self.dropped.clone(), inner.clone());
        let job = move || {
            if !dropped.load(Ordering::Relaxed) {
                let answer = of.ask(brick, work);
                // The caller may have gone on without it.
                let _ = sender.send((brick, answer));
            }
        };
        if inner.lane(brick).threads.submit(Box::new(job)).is_err() {
            let refused = BlockError::Unreachable(format!("too many requests wait for {brick}"));
            // The receiver is in `self`.
            let _ = self.sender.send((brick, Err(refused)));
        }
    }

    /// The next answer; `None`: none came before `until`, or there is nothing to wait for.
    pub(super) fn next(&mut self, until: Instant) -> Option<(BrickId, Result<T, BlockError>)> {
        if self.pending.is_empty() {
            return None;
        }
        let answer = self.answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
        self.pending.retain(|brick| *brick != answer.0);
        Some(answer)
    }
}

impl Calls<Bytes> {
    /// Starts a read of a block from a brick. Where the brick can answer by itself, no thread waits for it.
    pub(super) fn start_get(
        &mut self,
        inner: &Arc<Inner>,
        brick: BrickId,
        id: BlockId,
        offset: u32,
        len: u32,
    ) {
        if let Some(service) = inner.bricks.brick(brick)
            && let Some(permit) = inner.lane(brick).unattended.try_acquire()
        {
            let (sender, of) = (self.sender.clone(), inner.clone());
            let done = move |answer: Result<Bytes, BlockError>| {
                drop(permit);
                of.note_failure(brick, &answer);
                // The caller may have gone on without it.
                let _ = sender.send((brick, answer));
            };
            if service.get_then(id, offset, len, Box::new(done)).is_ok() {
                return self.pending.push(brick);
            }
        }
        self.start(inner, brick, move |it| it.get(id, offset, len));
    }
}

impl<T> Drop for Calls<T> {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Relaxed);
    }
}

/// Whether an error is the brick's, and not about the block or the request.
pub(super) fn blames_brick(error: &BlockError) -> bool {
    matches!(error, BlockError::Unreachable(_) | BlockError::Io { .. } | BlockError::Full)
}

impl Inner {
    /// Sends a request to a brick on this thread, and records whether it answers.
    fn ask<T>(
        &self,
        brick: BrickId,
        work: impl FnOnce(&dyn BlockService) -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        let Some(service) = self.bricks.brick(brick) else {
            self.health.failed(brick);
            return Err(BlockError::Unreachable(format!("{brick} is not connected")));
        };
        let answer = work(&*service);
        self.note_failure(brick, &answer);
        answer
    }

    /// Records a failure that is the brick's.
    fn note_failure<T>(&self, brick: BrickId, answer: &Result<T, BlockError>) {
        if let Err(error) = answer
            && blames_brick(error)
        {
            tracing::debug!(%brick, %error, "a brick failed");
            self.health.failed(brick);
        }
    }

    /// Whether a brick may be used. Periodically this probes the brick for its free space in the background.
    pub(super) fn is_good(self: &Arc<Inner>, brick: BrickId) -> bool {
        let verdict = self.health.verdict(brick);
        if verdict.ask {
            let of = self.clone();
            let job = move || {
                let room = of.ask(brick, |service| service.statfs());
                if of.health.answered(brick, room.ok()) {
                    tracing::info!(%brick, "answers again");
                    of.returned();
                }
            };
            if self.lane(brick).threads.submit(Box::new(job)).is_err() {
                self.health.unasked(brick);
            }
        }
        verdict.good
    }

    pub(super) fn lane(&self, brick: BrickId) -> Arc<Lane> {
        self.lanes.lock().entry(brick).or_insert_with(|| Arc::new(Lane::new(brick))).clone()
    }
}
