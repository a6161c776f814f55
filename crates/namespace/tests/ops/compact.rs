use crate::common::*;
use shoal_namespace::command::extents_digest;
use shoal_namespace::limits::COMPACT_EXTENTS_MIN;
use shoal_namespace::{Command, Op, Outcome, query};
use shoal_types::{BlockGroup, BlockId, BlockInfo, Errno, Extent, InodeId, SessionId};

/// A file of blocks of 4000 bytes.
fn fragmented(v: &mut Volume, count: u64) -> InodeId {
    let file = v.file(ROOT, "a");
    for n in 0..count {
        v.write_block(file, n * 4000, 4000);
    }
    file
}

#[test]
fn one_block_takes_the_place_of_many_and_nothing_else_changes() {
    let mut v = Volume::new();
    let file = fragmented(&mut v, 3);
    let (inode, bytes, expected) = (v.stat(file), v.read(file), v.extents(file));
    let old: Vec<BlockId> = v.blocks.keys().copied().collect();
    let (block, info) = v.fresh_block(12_000);
    v.blocks.insert(block, bytes.clone());
    v.run(Op::Compact { ino: file, offset: 0, expected, block, info }).unwrap();
    assert_eq!((v.stat(file), v.read(file), v.extents(file).len()), (inode, bytes, 1));
    assert!(old.iter().all(|id| v.refs(*id) == Some(0)));
    assert_eq!(v.refs(block), Some(1));
    v.assert_clean();
}

#[test]
fn what_has_changed_meanwhile_stays_and_the_block_is_garbage() {
    let mut v = Volume::new();
    let file = fragmented(&mut v, 2);
    let stale = v.extents(file);
    v.write(file, 5000, b"new").unwrap();
    let bytes = v.read(file);
    let (block, info) = v.fresh_block(8000);
    v.run(Op::Compact { ino: file, offset: 0, expected: stale.clone(), block, info }).unwrap();
    assert_eq!((v.read(file), v.garbage()), (bytes, vec![block]));
    v.unlink(ROOT, "a", false).unwrap();
    let (late, info) = v.fresh_block(8000);
    v.run(Op::Compact { ino: file, offset: 0, expected: stale, block: late, info }).unwrap();
    assert!(v.garbage().contains(&late), "the file is gone");
    v.assert_clean();
}

#[test]
fn extents_with_a_gap_between_them_are_refused() {
    let mut v = Volume::new();
    let file = fragmented(&mut v, 2);
    v.punch(file, 4000, 10).unwrap();
    let (block, info) = v.fresh_block(8000);
    let op = Op::Compact { ino: file, offset: 0, expected: v.extents(file), block, info };
    assert_eq!(v.run(op), Err(Errno::EINVAL));
}

#[test]
fn the_group_compacts_by_digest() {
    let mut v = Volume::new();
    let file = fragmented(&mut v, 3);
    v.write(file, 6000, &[7; 100]).unwrap();
    let (bytes, extents) = (v.read(file), v.extents(file));
    let Outcome::Blocks { first, count: 2 } = v.command(Command::GrantBlocks { count: 2 }) else { panic!() };
    let info = BlockInfo { len: 12_000, group: BlockGroup::default() };
    let compact = |v: &mut Volume, seq| {
        let block = BlockId { session: SessionId::SERVER, seq };
        v.blocks.insert(block, bytes.clone());
        let digest = extents_digest(&extents);
        v.command(Command::Compact { ino: file, offset: 0, digest, block, info })
    };
    assert_eq!(compact(&mut v, first), Outcome::Compacted { done: true });
    assert_eq!((v.read(file), v.extents(file).len()), (bytes.clone(), 1));
    assert_eq!(compact(&mut v, first + 1), Outcome::Compacted { done: false }, "those extents are no more");
    assert!(v.garbage().contains(&BlockId { session: SessionId::SERVER, seq: first + 1 }));
    assert_eq!(compact(&mut v, first), Outcome::Refused { index: 0, errno: Errno::EEXIST });
    v.assert_clean();
}

#[test]
fn files_of_many_small_extents_are_listed_until_they_are_compacted_or_let_alone() {
    let mut v = Volume::new();
    let candidates = |v: &Volume| query::compaction_candidates(&v.store, None, 9).unwrap();
    let file = fragmented(&mut v, COMPACT_EXTENTS_MIN - 1);
    assert_eq!(candidates(&v), []);
    v.write_block(file, 1 << 30, 4000);
    assert_eq!(candidates(&v), [file]);
    v.command(Command::RestFromCompaction { ino: file });
    assert_eq!(candidates(&v), []);
    for n in 0..COMPACT_EXTENTS_MIN {
        assert_eq!(candidates(&v), []);
        v.write_block(file, (1 << 31) + n * 8192, 4000);
    }
    assert_eq!(candidates(&v), [file], "twice as many");
    v.truncate(file, 0).unwrap();
    assert_eq!(candidates(&v), []);
    v.assert_clean();
}

#[test]
fn large_extents_need_no_compaction() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    for n in 0..2 * COMPACT_EXTENTS_MIN {
        let len = 1 << 20;
        v.reserve(file, n * len * 2, len).unwrap();
    }
    assert_eq!(v.extents(file).len() as u64, 2 * COMPACT_EXTENTS_MIN);
    assert!(v.extents(file).iter().all(|(_, extent)| matches!(extent, Extent::Zero { .. })));
    assert_eq!(query::compaction_candidates(&v.store, None, 9).unwrap(), []);
    v.assert_clean();
}
