//! What a brick promises when nothing goes wrong.

mod common;

use bytes::Bytes;
use common::{Fixture, bytes, id};
use proptest::prelude::*;
use shoal_brick::limits::{LIST_BLOCKS_MAX, LIST_DIRECTORIES_MAX};
use shoal_brick::{Brick, BrickError};
use shoal_types::limits::BLOCK_BYTES_MAX;
use shoal_types::{BlockId, SessionId};
use shoal_wire::{BlockError, BlockPage, BlockService};

#[test]
fn a_block_is_read_back_in_any_range_and_after_reopening() {
    let mut fixture = Fixture::new();
    for (seq, len) in
        [(0, 1), (1, 4096), (2, 65_536), (3, 65_537), (4, 1_000_003), (5, BLOCK_BYTES_MAX as usize)]
    {
        let data = bytes(seq, len);
        fixture.brick().put(id(3, seq), std::slice::from_ref(&data)).unwrap();
        assert_eq!(fixture.brick().get(id(3, seq), 0, len as u32).unwrap(), data);
        let brick = fixture.reopen();
        let half = len as u32 / 2;
        assert_eq!(brick.get(id(3, seq), half, len as u32 - half).unwrap(), data.slice(half as usize..));
        assert_eq!(brick.get(id(3, seq), 0, len as u32).unwrap(), data);
        assert_eq!(brick.verify(id(3, seq)).unwrap(), len as u32);
    }
}

#[test]
fn the_parts_of_a_put_become_one_content() {
    let fixture = Fixture::new();
    let whole = bytes(1, 300_000);
    let parts = [whole.slice(..1), Bytes::new(), whole.slice(1..70_000), whole.slice(70_000..)];
    fixture.brick().put(id(1, 1), &parts).unwrap();
    assert_eq!(fixture.brick().get(id(1, 1), 0, 300_000).unwrap(), whole);
}

#[test]
fn a_block_cannot_be_put_twice() {
    let fixture = Fixture::new();
    fixture.brick().put(id(1, 1), &[bytes(1, 100)]).unwrap();
    let again = fixture.brick().put(id(1, 1), &[bytes(2, 100)]);
    assert!(matches!(again, Err(BlockError::Exists(which)) if which == id(1, 1)), "{again:?}");
    assert_eq!(fixture.brick().get(id(1, 1), 0, 100).unwrap(), bytes(1, 100));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let fixture = Fixture::new();
    let brick = fixture.brick();
    for data in [Bytes::new(), Bytes::from(vec![0; BLOCK_BYTES_MAX as usize + 1])] {
        assert!(matches!(brick.put(id(1, 1), &[data]), Err(BlockError::Invalid { .. })));
    }
    assert!(matches!(brick.get(id(1, 1), 0, 1), Err(BlockError::Missing(_))));
    brick.put(id(1, 1), &[bytes(1, 100)]).unwrap();
    for (offset, len) in [(0, 101), (100, 1), (101, 0), (u32::MAX, 1), (1, u32::MAX)] {
        assert!(
            matches!(brick.get(id(1, 1), offset, len), Err(BlockError::Invalid { .. })),
            "{offset}+{len}"
        );
    }
    assert_eq!(brick.get(id(1, 1), 100, 0).unwrap(), Bytes::new());
}

#[test]
fn deleted_blocks_are_gone_and_so_are_empty_directories() {
    let mut fixture = Fixture::new();
    let ids: Vec<_> = [0, 255, 256, 9000].map(|seq| id(0xab, seq)).into();
    for &id in &ids {
        fixture.brick().put(id, &[bytes(id.seq, 10)]).unwrap();
    }
    fixture.brick().put(id(1, 1), &[bytes(1, 10)]).unwrap();
    fixture.brick().delete(&[&ids[..], &[id(0xab, 77), id(99, 0)]].concat()).unwrap();
    for &id in &ids {
        assert!(matches!(fixture.brick().get(id, 0, 1), Err(BlockError::Missing(_))));
    }
    assert!(!fixture.dir.join("blocks/ab").exists());
    assert_eq!(fixture.brick().sessions().unwrap(), [SessionId(1)]);
    // The directories come back when they are needed.
    fixture.brick().put(ids[0], &[bytes(5, 10)]).unwrap();
    assert_eq!(fixture.reopen().get(ids[0], 0, 10).unwrap(), bytes(5, 10));
}

#[test]
fn listings_show_blocks_and_skip_foreign_files() {
    let mut fixture = Fixture::new();
    for (session, seq, len) in [(5, 1, 100), (5, 700, 70_000), (6, 2, 1)] {
        fixture.brick().put(id(session, seq), &[bytes(seq, len)]).unwrap();
    }
    let blocks = fixture.dir.join("blocks");
    std::fs::write(blocks.join("README"), "not ours").unwrap();
    std::fs::write(blocks.join("7"), "a file named like a session").unwrap();
    std::fs::create_dir_all(blocks.join("5/zz")).unwrap();
    std::fs::create_dir_all(blocks.join("8/0")).unwrap();
    std::fs::write(blocks.join("5/0/5-1.bak"), "x").unwrap();
    std::fs::write(blocks.join("5/0/6-1"), "in the wrong session").unwrap();
    std::fs::write(blocks.join("5/0/5-700"), "in the wrong run").unwrap();
    let brick = fixture.reopen();
    let mut sessions = brick.sessions().unwrap();
    sessions.sort();
    assert_eq!(sessions, [SessionId(5), SessionId(6)]);
    for (session, blocks) in [(5, vec![id(5, 1), id(5, 0x2bc)]), (7, vec![]), (8, vec![]), (4, vec![])] {
        assert_eq!(brick.session_blocks(SessionId(session)).unwrap(), blocks);
        assert_eq!(brick.list(id(session, 0)).unwrap(), BlockPage { blocks, next: None });
    }
    assert_eq!([id(5, 1), id(5, 700), id(6, 2)].map(|id| brick.length(id).unwrap()), [100, 70_000, 1]);
    assert!(matches!(brick.length(id(5, 2)), Err(BlockError::Missing(_))));
}

/// Makes files that are named like blocks: what is in them is nothing to a listing.
fn name(fixture: &Fixture, ids: impl IntoIterator<Item = BlockId>) {
    for id in ids {
        let file = fixture.file(id);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, b"").unwrap();
    }
}

/// A listing from a block on, page after page.
fn pages(brick: &Brick, from: BlockId) -> Vec<Vec<BlockId>> {
    let (mut pages, mut next) = (Vec::new(), Some(from));
    while let Some(from) = next {
        let page = brick.list(from).unwrap();
        assert!(page.next.is_none_or(|next| next > from), "{from:?} leads to {:?}", page.next);
        pages.push(page.blocks);
        next = page.next;
    }
    pages
}

#[test]
fn a_long_listing_comes_in_pages_in_order() {
    let fixture = Fixture::new();
    let all: Vec<_> = (100..2 * LIST_BLOCKS_MAX as u64 + 800).map(|seq| id(5, seq)).collect();
    let exactly: Vec<_> = (0..LIST_BLOCKS_MAX as u64).map(|seq| id(6, seq)).collect();
    name(&fixture, all.iter().chain(&exactly).copied());
    let brick = fixture.brick();
    let lens: Vec<usize> = pages(brick, id(5, 0)).iter().map(Vec::len).collect();
    assert_eq!(lens, [LIST_BLOCKS_MAX, LIST_BLOCKS_MAX, 700]);
    assert_eq!(pages(brick, id(6, 0)), [exactly]);
    let last = all[all.len() - 1].seq;
    for from in [0, 99, 100, 101, 255, 256, 257, 5000, last, last + 1, u64::MAX] {
        let left: Vec<BlockId> = all.iter().filter(|id| id.seq >= from).copied().collect();
        assert_eq!(pages(brick, id(5, from)).concat(), left, "from {from} on");
    }
    assert_eq!(brick.session_blocks(SessionId(5)).unwrap(), all);
}

#[test]
fn a_page_takes_few_directories_and_an_empty_one_is_not_the_last() {
    let fixture = Fixture::new();
    let few = LIST_DIRECTORIES_MAX as u64;
    let directory = |session: u64, run: u64| {
        std::fs::create_dir_all(fixture.dir.join(format!("blocks/{session:x}/{run:x}"))).unwrap();
    };
    (0..2 * few).for_each(|run| directory(5, run));
    let behind = id(5, 2 * few * 256 + 9);
    name(&fixture, (0..few + 1).map(|run| id(6, run * 256)).chain([behind]));
    // No block belongs into the last of these.
    (0..few).chain([u64::MAX]).for_each(|run| directory(7, run));
    let brick = fixture.brick();
    assert_eq!(brick.list(id(5, 0)).unwrap(), BlockPage { blocks: vec![], next: Some(id(5, few * 256)) });
    assert_eq!(pages(brick, id(5, 0)), [vec![], vec![], vec![behind]]);
    let lens: Vec<usize> = pages(brick, id(6, 0)).iter().map(Vec::len).collect();
    assert_eq!(lens, [few as usize, 1]);
    assert_eq!(brick.list(id(7, 0)).unwrap(), BlockPage { blocks: vec![], next: None });
}

#[test]
fn what_is_deleted_between_two_pages_does_not_end_a_listing() {
    let fixture = Fixture::new();
    let all: Vec<_> = (0..3 * LIST_BLOCKS_MAX as u64).map(|seq| id(5, seq)).collect();
    name(&fixture, all.iter().copied());
    let brick = fixture.brick();
    let first = brick.list(id(5, 0)).unwrap();
    assert_eq!(first.blocks, all[..LIST_BLOCKS_MAX]);
    // From where the next page begins, more than that page and a part of a directory.
    let left = 2 * LIST_BLOCKS_MAX + 300;
    brick.delete(&all[LIST_BLOCKS_MAX..left]).unwrap();
    assert_eq!(pages(brick, first.next.unwrap()).concat(), all[left..]);
    brick.delete(&all[left..]).unwrap();
    assert_eq!(pages(brick, first.next.unwrap()), [vec![]]);
}

#[test]
fn what_has_been_put_since_a_moment_is_not_deleted_as_older() {
    let mut fixture = Fixture::new();
    let ids = [id(1, 1), id(1, 2), id(1, 3)];
    for id in ids {
        fixture.brick().put(id, &[bytes(id.seq, 100)]).unwrap();
    }
    let before = fixture.brick().moment().unwrap();
    // It exists, and the caller of this put relies on it.
    assert_eq!(fixture.brick().put(ids[1], &[bytes(2, 100)]), Err(BlockError::Exists(ids[1])));
    assert_eq!(fixture.brick().delete_older(&ids[..2], before).unwrap(), [ids[1]]);
    let list = |fixture: &Fixture| fixture.brick().list(id(1, 0)).unwrap().blocks;
    assert_eq!(list(&fixture), [ids[1], ids[2]]);
    // What was put before the brick was opened again is not known any more, so an old moment is too old for
    // anything.
    let brick = fixture.reopen();
    assert_eq!(brick.delete_older(&ids, before).unwrap(), ids);
    let now = brick.moment().unwrap();
    assert_eq!(brick.delete_older(&ids, now).unwrap(), []);
    assert_eq!(list(&fixture), []);
}

#[test]
fn many_threads_put_and_delete_in_the_same_directories() {
    let fixture = Fixture::new();
    let brick = fixture.brick();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for round in 0..40 {
                    // All threads share the runs, which keep becoming empty.
                    let block = id(1, round / 10 * 256 + thread);
                    let data = bytes(thread * 1000 + round, 5000);
                    brick.put(block, std::slice::from_ref(&data)).unwrap();
                    assert_eq!(brick.get(block, 0, 5000).unwrap(), data);
                    brick.delete(&[block]).unwrap();
                }
            });
        }
    });
    assert_eq!(brick.sessions().unwrap(), []);
}

#[test]
fn room_is_that_of_the_disk_less_a_reserve() {
    let fixture = Fixture::new();
    let room = fixture.brick().statfs().unwrap();
    assert!(room.total_bytes > 0 && room.free_bytes < room.total_bytes);
}

#[test]
fn a_brick_is_open_once() {
    let mut fixture = Fixture::new();
    let identity = fixture.brick().id();
    assert!(matches!(Brick::open(&fixture.dir), Err(BrickError::InUse(_))));
    assert_eq!(fixture.reopen().id(), identity);
}

#[test]
fn what_is_not_a_brick_is_refused_with_the_reason() {
    let mut fixture = Fixture::new();
    let foreign = fixture.dir.with_file_name("foreign");
    assert!(matches!(Brick::open(&foreign), Err(BrickError::NotABrick(_))));
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("precious"), "data").unwrap();
    assert!(matches!(Brick::open(&foreign), Err(BrickError::NotABrick(_))));
    assert!(matches!(Brick::format(&foreign), Err(BrickError::NotEmpty(_))));
    assert!(matches!(Brick::format(&fixture.dir), Err(BrickError::NotEmpty(_))));

    fixture.brick = None;
    let marker = fixture.dir.join("shoal-brick");
    std::fs::write(&marker, "shoal brick\nversion 2\nid 00\n").unwrap();
    assert!(matches!(Brick::open(&fixture.dir), Err(BrickError::Version { found: 2, known: 1, .. })));
    for junk in ["", "shoal brick\n", "shoal brick\nversion 1\n", "ext4", "shoal brick\nversion 1\nid xyz\n"]
    {
        std::fs::write(&marker, junk).unwrap();
        assert!(matches!(Brick::open(&fixture.dir), Err(BrickError::Damaged { .. })), "{junk:?}");
    }
}

#[test]
fn an_interrupted_format_is_repeated() {
    let fixture = Fixture::new();
    let dir = fixture.dir.with_file_name("half");
    std::fs::create_dir_all(dir.join("blocks")).unwrap();
    std::fs::write(dir.join("shoal-brick.new"), "shoal br").unwrap();
    assert!(matches!(Brick::open(&dir), Err(BrickError::NotABrick(_))));
    Brick::format(&dir).unwrap();
    Brick::open(&dir).unwrap().put(id(1, 1), &[bytes(1, 1)]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_range_of_any_block_is_what_was_put(
        len in prop_oneof![1usize..10_000, 60_000usize..140_000, 4_000_000usize..=4_194_304],
        cuts in prop::collection::vec(0.0f64..1.0, 0..5),
        ranges in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0), 1..20),
        seed in any::<u64>(),
        cold in any::<bool>(),
    ) {
        let mut fixture = Fixture::new();
        let data = bytes(seed, len);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| (cut * len as f64) as usize).collect();
        cuts.extend([0, len]);
        cuts.sort();
        let parts: Vec<Bytes> = cuts.windows(2).map(|pair| data.slice(pair[0]..pair[1])).collect();
        fixture.brick().put(id(9, seed), &parts).unwrap();
        if cold {
            fixture.reopen();
        }
        for (start, length) in ranges {
            let start = (start * len as f64) as usize;
            let length = (length * (len - start) as f64) as usize;
            let got = fixture.brick().get(id(9, seed), start as u32, length as u32).unwrap();
            prop_assert_eq!(got, data.slice(start..start + length));
        }
    }
}
