//! Applies a batch of a session's journal.

use super::Outcome;
use crate::codec::OPS_VERSION_FLAGS;
use crate::keys::{LAYOUT_FLAGS, Singleton};
use crate::kv::{KvRead, WriteBatch};
use crate::kv_tree::KvTree;
use crate::records::{self, SessionRecord};
use crate::stored::{TreeError, read};
use crate::{Fault, Op, codec, keys, ops};
use shoal_types::{BatchSeq, BlockId, Errno, Extent, SessionId};

pub(super) fn apply<S: KvRead + ?Sized>(
    store: &S,
    session: SessionId,
    seq: BatchSeq,
    (version, ops): (u8, &[u8]),
) -> Result<(WriteBatch, Outcome), TreeError> {
    let nothing = |outcome| Ok((WriteBatch::default(), outcome));
    let key = keys::session(session);
    let mut record = match read::<SessionRecord>(store, &key)? {
        Some(record) if !record.has_ended() => record,
        _ => return nothing(Outcome::Fenced { session }),
    };
    if seq <= record.last {
        return nothing(Outcome::Applied { seq: record.last });
    }
    if seq != record.last.next() {
        return nothing(Outcome::OutOfOrder { expected: record.last.next() });
    }
    let ops = match codec::decode_ops_up_to(version, ops) {
        Ok(ops) => ops,
        Err(error) => return nothing(Outcome::Malformed { what: error.to_string() }),
    };
    let mut tree = KvTree::new(store, session);
    for (index, op) in ops.iter().enumerate() {
        match admit(&mut tree, session, &record, op).and_then(|()| ops::apply(&mut tree, op)) {
            Ok(()) => {}
            Err(Fault::Errno(errno)) => return nothing(Outcome::Refused { index: index as u32, errno }),
            Err(Fault::Tree(error)) => return Err(error),
        }
    }
    let mut batch = tree.finish()?;
    record.last = seq;
    batch.changes.insert(key, Some(records::encode(&record)));
    if ops.iter().any(|op| op.version() >= OPS_VERSION_FLAGS) {
        need_layout(store, &mut batch, LAYOUT_FLAGS)?;
    }
    Ok((batch, Outcome::Applied { seq }))
}

/// From now on the store has records of this layout: programs that do not know it refuse the store.
fn need_layout(store: &(impl KvRead + ?Sized), batch: &mut WriteBatch, layout: u32) -> Result<(), TreeError> {
    let key = keys::singleton(Singleton::Layout);
    if read::<u32>(store, &key)?.is_none_or(|found| found < layout) {
        batch.changes.insert(key, Some(records::encode(&layout)));
    }
    Ok(())
}

/// What a session may not do, whatever the tree says: use numbers that are not its own or not fresh, and
/// refer to blocks that may be gone.
fn admit<S: KvRead + ?Sized>(
    tree: &mut KvTree<'_, S>,
    session: SessionId,
    record: &SessionRecord,
    op: &Op,
) -> Result<(), Fault<TreeError>> {
    match op {
        Op::Create { ino, .. } | Op::CreateUnnamed { ino, .. } => {
            if !record.owns(*ino) {
                return Err(Errno::EINVAL.into());
            }
            if tree.is_taken(*ino)? {
                return Err(Errno::EEXIST.into());
            }
        }
        Op::Write { declare: Some((id, _)), .. } => check_fresh(tree, session, *id)?,
        Op::Write { content: Some(Extent::Block(block)), .. } if !tree.may_refer(block)? => {
            return Err(Errno::ESTALE.into());
        }
        Op::Compact { block, .. } => check_fresh(tree, session, *block)?,
        _ => {}
    }
    Ok(())
}

/// A block that is declared is the session's own, and new.
fn check_fresh<S: KvRead + ?Sized>(
    tree: &mut KvTree<'_, S>,
    session: SessionId,
    id: BlockId,
) -> Result<(), Fault<TreeError>> {
    if id.session != session {
        return Err(Errno::EINVAL.into());
    }
    if tree.is_block_known(id)? { Err(Errno::EEXIST.into()) } else { Ok(()) }
}
