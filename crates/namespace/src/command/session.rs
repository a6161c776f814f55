//! Sessions: their beginning, their inode numbers, what they hold, their end.

use super::Outcome;
use super::volume::{put_counters, refuse};
use crate::kv::{Flow, KvRead, WriteBatch};
use crate::kv_tree::KvTree;
use crate::limits::{CLIENT_BYTES_MAX, END_HOLDS_MAX, GRANT_INODES_MAX, HOLD_INODES_MAX, SESSION_RANGES_MAX};
use crate::query::counters;
use crate::records::{self, Counters, SessionRecord, Standing};
use crate::stored::{TreeError, read, scan};
use crate::{Fault, keys, ops, query};
use shoal_types::{BatchSeq, Errno, InodeId, Origin, SessionId, Timestamp};

pub(super) fn open<S: KvRead + ?Sized>(
    store: &S,
    client: &str,
    origin: Option<&Origin>,
    time: Timestamp,
    inodes: u64,
) -> Result<(WriteBatch, Outcome), TreeError> {
    let mut counters = counters(store)?;
    let session = counters.next_session;
    counters.next_session = SessionId(session.0 + 1);
    let fits = |(at, char): &(usize, char)| at + char.len_utf8() <= CLIENT_BYTES_MAX;
    let client = client.char_indices().take_while(fits).map(|(_, char)| char).collect();
    let standing = origin.cloned().map_or(Standing::Open, Standing::OpenFrom);
    let mut record = SessionRecord { client, opened: time, last: BatchSeq(0), inodes: Vec::new(), standing };
    let (first, inodes) = grant(&mut counters, &mut record, inodes);
    let mut batch = WriteBatch::default();
    put_counters(&mut batch, &counters);
    put(&mut batch, session, &record);
    Ok((batch, Outcome::Opened { session, first, inodes }))
}

pub(super) fn grant_inodes<S: KvRead + ?Sized>(
    store: &S,
    session: SessionId,
    count: u64,
) -> Result<(WriteBatch, Outcome), TreeError> {
    let mut batch = WriteBatch::default();
    let mut record = match read::<SessionRecord>(store, &keys::session(session))? {
        Some(record) if !record.has_ended() => record,
        _ => return Ok((batch, Outcome::Fenced { session })),
    };
    let mut counters = counters(store)?;
    let (first, inodes) = grant(&mut counters, &mut record, count);
    put_counters(&mut batch, &counters);
    put(&mut batch, session, &record);
    Ok((batch, Outcome::Granted { first, inodes }))
}

/// Hands out the next numbers. They are never taken back: 64 bits last.
fn grant(counters: &mut Counters, session: &mut SessionRecord, wanted: u64) -> (InodeId, u64) {
    let first = counters.next_inode;
    let count = wanted.min(GRANT_INODES_MAX).min(u64::MAX - first.0);
    if count > 0 {
        counters.next_inode = InodeId(first.0 + count);
        match session.inodes.last_mut() {
            Some((start, len)) if *start + *len == first.0 => *len += count,
            _ => session.inodes.push((first.0, count)),
        }
        let excess = session.inodes.len().saturating_sub(SESSION_RANGES_MAX);
        session.inodes.drain(..excess);
    }
    (first, count)
}

pub(super) fn hold<S: KvRead + ?Sized>(
    store: &S,
    session: SessionId,
    inodes: &[InodeId],
) -> Result<(WriteBatch, Outcome), TreeError> {
    if inodes.len() > HOLD_INODES_MAX {
        return refuse(Errno::E2BIG);
    }
    if query::session(store, session)?.is_none() {
        return Ok((WriteBatch::default(), Outcome::Fenced { session }));
    }
    let mut tree = KvTree::new(store, session);
    for ino in inodes {
        tree.hold_if_there(*ino)?;
    }
    Ok((tree.finish()?, Outcome::Done))
}

pub(super) fn close<S: KvRead + ?Sized>(
    store: &S,
    session: SessionId,
) -> Result<(WriteBatch, Outcome), TreeError> {
    let key = keys::session(session);
    let Some(mut record) = read::<SessionRecord>(store, &key)? else {
        return Ok((WriteBatch::default(), Outcome::Closed { more: false }));
    };
    let mut held = Vec::new();
    let mut more = false;
    scan(store, &keys::holds_range(session), |key, _| match keys::Key::decode(key) {
        Some(keys::Key::Hold(_, ino)) if held.len() < END_HOLDS_MAX => {
            held.push(ino);
            Ok(Flow::Continue(()))
        }
        Some(keys::Key::Hold(..)) => {
            more = true;
            Ok(Flow::Break(()))
        }
        _ => Err(TreeError::damaged(key, "not the key of a hold")),
    })?;
    let mut tree = KvTree::new(store, session);
    for ino in &held {
        match ops::forget::apply(&mut tree, *ino) {
            Ok(()) | Err(Fault::Errno(_)) => {}
            Err(Fault::Tree(error)) => return Err(error),
        }
    }
    let mut batch = tree.finish()?;
    for ino in held {
        // A hold on what is not there is damage, but no reason to keep a session from ending.
        batch.changes.insert(keys::hold(session, ino), None);
    }
    if more {
        record.standing = Standing::Ended;
        put(&mut batch, session, &record);
    } else {
        batch.changes.insert(key, None);
    }
    Ok((batch, Outcome::Closed { more }))
}

fn put(batch: &mut WriteBatch, session: SessionId, record: &SessionRecord) {
    batch.changes.insert(keys::session(session), Some(records::encode(record)));
}
