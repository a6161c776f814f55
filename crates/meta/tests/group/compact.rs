//! Background work of leaders that are deposed.

use crate::cluster::{Cluster, eventually};
use crate::support::{Session, extents, inline_op, read_file};
use shoal_namespace::op::Op;
use shoal_types::Extent;
use shoal_wire::{BlockService, MetaService};
use std::time::Duration;

/// Pieces of a file: two of them are too long to be joined, and all of them together fit a block.
const PIECES: u8 = 100;
const PIECE_BYTES: usize = 40_000;

#[test]
fn block_stored_by_a_deposed_leader_is_not_named_when_it_leads_again() {
    let mut cluster = Cluster::new(2);
    // Only the first one compacts.
    for (id, after) in [(1, Duration::from_millis(100)), (2, Duration::from_secs(3600))] {
        cluster.crash(id);
        cluster.compact_after = Some(after);
        cluster.start(id);
    }
    cluster.lead(2);
    let mut session = Session::open(&cluster.up[&2]);
    let file = session.touch("f");
    let expected: Vec<u8> = (0..PIECES).flat_map(|piece| [piece; PIECE_BYTES]).collect();
    // In reverse order: a piece that continues another is joined when it is written.
    let piece = |at: u8| inline_op(file, u64::from(at) * PIECE_BYTES as u64, &[at; PIECE_BYTES]);
    let pieces: Vec<Op> = (0..PIECES).rev().map(piece).collect();
    pieces.chunks(20).for_each(|some| session.commit(some));
    assert!(extents(&session, file).len() > 50);

    cluster.bricks.hold_next_compaction();
    cluster.lead(1);
    eventually("it has stored a block", || cluster.bricks.held().is_some());
    let stored = cluster.bricks.held().expect("just seen");
    cluster.lead(2);
    eventually("the other one finds that no file refers to it", || cluster.bricks.get(stored, 0, 1).is_err());
    cluster.lead(1);
    cluster.bricks.let_go();
    session.server = cluster.up[&1].clone();
    eventually("it serves", || session.server.inode(session.id, file).is_ok());
    assert_eq!(read_file(&session, &cluster.bricks, file), expected);
    eventually("it compacts the file once more", || extents(&session, file).len() < 20);
    let names_it = |(_, extent): &(u64, Extent)| matches!(extent, Extent::Block(block) if block.id == stored);
    assert!(!extents(&session, file).iter().any(names_it));
    assert_eq!(read_file(&session, &cluster.bricks, file), expected);
    drop(session);
    cluster.assert_alike();
}
