//! Batches in flight to the leader, pure: outcomes in; what to send, and which outcomes to report, out.
//!
//! **Model.** A queue in the order of the journal. A batch stays in it until its outcome is final. The first
//! `sent` of them are in flight in the present *attempt*. A failure that says nothing about the batch itself
//! (the leader has lost leadership, or does not answer) starts the next attempt from the front of the queue.
//! The servers apply each batch once, so sending it again is idempotent.
//!
//! **Promises.** The outcome of every batch is reported once, in order. A late reply to an earlier attempt is
//! accepted if it is a success or a final error, and ignored if it is an error about leadership.

use crate::limits::{RESEND_WINDOW_BATCHES, RESEND_WINDOW_BYTES};
use shoal_runtime::planted::mistake;
use shoal_types::BatchSeq;
use shoal_wire::{Commit, CommitDone, CommitReply, MetaError};
use std::collections::VecDeque;

/// An outcome, and the callback that receives it.
pub(super) type BatchOutcome = (CommitDone, Result<CommitReply, MetaError>);

struct Batch {
    commit: Commit,
    done: CommitDone,
    tried: bool,
}

/// The batches without outcome.
#[derive(Default)]
pub(super) struct Outbox {
    batches: VecDeque<Batch>,
    sent: usize,
    sent_bytes: usize,
    attempt: u64,
    /// Something was committed in this attempt.
    progress: bool,
    ended: Option<MetaError>,
    resent: u64,
}

/// The consequence of an outcome.
pub(super) enum Effect {
    /// Nothing: the outcome was known, or belongs to an earlier attempt.
    Nothing,
    /// These outcomes are to be reported.
    Report(Vec<BatchOutcome>),
    /// The batches are to be sent again.
    Again {
        /// Another leader has to be found first.
        elsewhere: bool,
        /// This attempt committed nothing: pause before the next.
        pause: bool,
    },
}

/// Whether an error is about the server that answered and not about the request.
pub(crate) fn is_transient(error: &MetaError) -> bool {
    matches!(error, MetaError::NotLeader { .. } | MetaError::Unavailable(_) | MetaError::Failed(_))
}

impl Outbox {
    /// Queues a batch. Returns its outcome at once if the outbox has [ended](Self::end).
    pub(super) fn push(&mut self, commit: Commit, done: CommitDone) -> Option<BatchOutcome> {
        match &self.ended {
            Some(error) => Some((done, Err(error.clone()))),
            None => {
                self.batches.push_back(Batch { commit, done, tried: false });
                None
            }
        }
    }

    /// The next batch to send, and the attempt it belongs to; `None` while enough is in flight.
    pub(super) fn next(&mut self) -> Option<(u64, Commit)> {
        let batch = self.batches.get_mut(self.sent)?;
        let bytes = batch.commit.ops.len();
        let fits = self.sent < RESEND_WINDOW_BATCHES && self.sent_bytes + bytes <= RESEND_WINDOW_BYTES;
        if self.sent > 0 && !fits {
            return None;
        }
        self.resent += u64::from(std::mem::replace(&mut batch.tried, true));
        self.sent += 1;
        self.sent_bytes += bytes;
        Some((self.attempt, batch.commit.clone()))
    }

    /// Whether every batch has its outcome.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The oldest batch without outcome.
    pub(super) fn first(&self) -> Option<BatchSeq> {
        self.batches.front().map(|batch| batch.commit.seq)
    }

    /// Batches without outcome.
    pub(super) fn len(&self) -> usize {
        self.batches.len()
    }

    /// The number of times that a batch was sent again.
    pub(super) fn resent(&self) -> u64 {
        self.resent
    }

    /// Marks all batches in flight to be sent again.
    pub(super) fn restart(&mut self) {
        self.attempt += 1;
        (self.sent, self.sent_bytes, self.progress) = (0, 0, false);
    }

    /// A batch that was sent in some attempt has an outcome.
    pub(super) fn outcome(
        &mut self,
        attempt: u64,
        seq: BatchSeq,
        outcome: Result<CommitReply, MetaError>,
    ) -> Effect {
        let current = attempt == self.attempt;
        match outcome {
            Ok(reply) => self.committed(reply.seq.max(seq)),
            Err(error) if is_transient(&error) || matches!(error, MetaError::OutOfOrder { .. }) => {
                if !current || mistake("do not resend batches to a new leader") {
                    return Effect::Nothing;
                }
                let pause = !self.progress;
                self.restart();
                Effect::Again { elsewhere: is_transient(&error), pause }
            }
            Err(error) => {
                let waits = self.first().is_some_and(|first| first <= seq);
                let shared = matches!(error, MetaError::Fenced(_) | MetaError::Refused { .. });
                if !waits || !(current || shared) {
                    return Effect::Nothing;
                }
                Effect::Report(self.end(error))
            }
        }
    }

    fn committed(&mut self, seq: BatchSeq) -> Effect {
        let mut outcomes = Vec::new();
        while self.first().is_some_and(|first| first <= seq)
            && let Some(batch) = self.batches.pop_front()
        {
            if self.sent > 0 {
                self.sent -= 1;
                self.sent_bytes -= batch.commit.ops.len();
            }
            self.progress = true;
            outcomes.push((batch.done, Ok(CommitReply { seq: batch.commit.seq })));
        }
        if outcomes.is_empty() { Effect::Nothing } else { Effect::Report(outcomes) }
    }

    /// Ends the outbox: every batch without outcome, and every later one, gets this error.
    pub(super) fn end(&mut self, error: MetaError) -> Vec<BatchOutcome> {
        self.restart();
        let error = self.ended.get_or_insert(error).clone();
        self.batches.drain(..).map(|batch| (batch.done, Err(error.clone()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shoal_types::SessionId;

    const SESSION: SessionId = SessionId(1);

    fn push(outbox: &mut Outbox, seq: u64, len: usize) {
        let commit = Commit {
            session: SESSION,
            seq: BatchSeq(seq),
            ops: Bytes::from(vec![0; len]),
            born: Vec::new(),
            gone: Vec::new(),
        };
        assert!(outbox.push(commit, Box::new(|_| ())).is_none());
    }

    fn sendable(outbox: &mut Outbox) -> Vec<u64> {
        std::iter::from_fn(|| outbox.next()).map(|(_, commit)| commit.seq.0).collect()
    }

    fn outcomes(effect: Effect) -> usize {
        if let Effect::Report(outcomes) = effect { outcomes.len() } else { 0 }
    }

    #[test]
    fn no_more_is_under_way_than_the_window_allows() {
        let mut outbox = Outbox::default();
        push(&mut outbox, 1, RESEND_WINDOW_BYTES + 1);
        push(&mut outbox, 2, 1);
        assert_eq!(sendable(&mut outbox), [1]);
        assert_eq!(outcomes(outbox.outcome(0, BatchSeq(1), Ok(CommitReply { seq: BatchSeq(1) }))), 1);
        (3..200).for_each(|seq| push(&mut outbox, seq, 1));
        assert_eq!(sendable(&mut outbox).len(), RESEND_WINDOW_BATCHES);
        outbox.restart();
        assert_eq!(sendable(&mut outbox)[0], 2);
        assert_eq!(outbox.resent(), RESEND_WINDOW_BATCHES as u64);
    }

    #[test]
    fn a_late_answer_counts_and_a_late_complaint_does_not() {
        let mut outbox = Outbox::default();
        (1..=3).for_each(|seq| push(&mut outbox, seq, 10));
        assert_eq!(sendable(&mut outbox), [1, 2, 3]);
        let lost = || Err(MetaError::NotLeader { leader: None });
        assert!(matches!(
            outbox.outcome(0, BatchSeq(1), lost()),
            Effect::Again { elsewhere: true, pause: true }
        ));
        assert!(matches!(outbox.outcome(0, BatchSeq(2), lost()), Effect::Nothing));
        // The old leader had committed two of them after all.
        assert_eq!(outcomes(outbox.outcome(0, BatchSeq(2), Ok(CommitReply { seq: BatchSeq(2) }))), 2);
        assert_eq!(sendable(&mut outbox), [3]);
        assert_eq!(outcomes(outbox.outcome(1, BatchSeq(3), Err(MetaError::Fenced(SESSION)))), 1);
        let commit = Commit {
            session: SESSION,
            seq: BatchSeq(4),
            ops: Bytes::new(),
            born: Vec::new(),
            gone: Vec::new(),
        };
        let refused = outbox.push(commit, Box::new(|_| ())).map(|(_, outcome)| outcome.map(|_| ()));
        assert_eq!(refused, Some(Err(MetaError::Fenced(SESSION))));
    }
}
