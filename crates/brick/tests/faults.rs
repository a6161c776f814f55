//! What a brick promises when things go wrong: damaged files, crashes, a full disk.

mod common;

use common::{Fixture, bytes, id};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use shoal_brick::{Brick, ScrubOptions};
use shoal_types::SessionId;
use shoal_wire::{BlockError, BlockService};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn is_corrupt<T: std::fmt::Debug>(outcome: &Result<T, BlockError>, which: shoal_types::BlockId) -> bool {
    matches!(outcome, Err(BlockError::Corrupt { id, .. }) if *id == which)
}

#[test]
fn every_flipped_byte_of_a_block_is_detected() {
    let mut fixture = Fixture::new();
    let block = id(1, 1);
    fixture.brick().put(block, &[bytes(1, 5000)]).unwrap();
    let path = fixture.file(block);
    let good = std::fs::read(&path).unwrap();
    assert_eq!(good.len(), 3 * 4096);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for at in 0..good.len() {
        file.write_all_at(&[good[at] ^ (1 << (at % 8))], at as u64).unwrap();
        let outcome = fixture.brick().verify(block);
        assert!(is_corrupt(&outcome, block), "byte {at}: {outcome:?}");
        if at >= 4096 {
            let outcome = fixture.brick().get(block, 0, 5000);
            assert!(is_corrupt(&outcome, block), "byte {at}: {outcome:?}");
        }
        file.write_all_at(&good[at..=at], at as u64).unwrap();
    }
    assert_eq!(fixture.reopen().get(block, 0, 5000).unwrap(), bytes(1, 5000));
}

#[test]
fn every_truncation_and_growth_of_a_block_is_detected() {
    let mut fixture = Fixture::new();
    let block = id(1, 1);
    fixture.brick().put(block, &[bytes(1, 5000)]).unwrap();
    let path = fixture.file(block);
    let good = std::fs::read(&path).unwrap();
    for len in (0..good.len()).step_by(7).chain([4095, 4096, 4097, 8192, 12_287, 12_289, 16_384]) {
        let mut bad = good.clone();
        bad.resize(len, 0);
        std::fs::write(&path, bad).unwrap();
        let brick = fixture.reopen();
        let outcome = brick.get(block, 0, 5000);
        assert!(is_corrupt(&outcome, block), "cut to {len}: {outcome:?}");
        assert!(is_corrupt(&brick.get(block, 100, 1), block), "cut to {len}");
        assert!(is_corrupt(&brick.verify(block), block), "cut to {len}");
    }
}

#[test]
fn a_truncated_block_whose_header_is_remembered_never_yields_data() {
    let fixture = Fixture::new();
    let block = id(1, 1);
    fixture.brick().put(block, &[bytes(1, 200_000)]).unwrap();
    for len in [150_000, 4096, 100, 0] {
        std::fs::OpenOptions::new().write(true).open(fixture.file(block)).unwrap().set_len(len).unwrap();
        let outcome = fixture.brick().get(block, 0, 200_000);
        assert!(is_corrupt(&outcome, block), "cut to {len}: {outcome:?}");
    }
    std::fs::remove_file(fixture.file(block)).unwrap();
    assert!(matches!(fixture.brick().get(block, 0, 1), Err(BlockError::Missing(_))));
}

#[test]
fn brick_whose_disk_was_unmounted_misses_no_block_and_is_not_empty() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, away) = (temp.path().join("brick"), temp.path().join("away"));
    Brick::format(&dir).unwrap();
    let brick = Brick::open(&dir).unwrap();
    let (block, data) = (id(1, 1), bytes(1, 5000));
    brick.put(block, std::slice::from_ref(&data)).unwrap();
    brick.seal(true);
    std::fs::rename(&dir, &away).unwrap();
    let is_refused = |outcome: Result<(), BlockError>| matches!(outcome, Err(BlockError::Io { .. }));
    assert!(is_refused(brick.get(block, 0, 5000).map(drop)), "the copy counts still");
    assert!(is_refused(brick.is_cleared().map(drop)), "a drained brick is not removed");
    assert!(is_refused(brick.sessions().map(drop)) && is_refused(brick.list(block).map(drop)));
    assert!(is_refused(brick.delete(&[block])), "the block is still to be deleted");
    std::fs::rename(&away, &dir).unwrap();
    assert_eq!((brick.get(block, 0, 5000), brick.is_cleared()), (Ok(data), Ok(false)));
    brick.delete(&[block]).unwrap();
    assert_eq!(brick.get(block, 0, 1), Err(BlockError::Missing(block)));
}

#[test]
fn damage_in_one_chunk_leaves_the_others_readable() {
    let fixture = Fixture::new();
    let (block, data) = (id(1, 1), bytes(1, 300_000));
    fixture.brick().put(block, std::slice::from_ref(&data)).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(fixture.file(block)).unwrap();
    file.write_all_at(b"damage", 4096 + 70_000).unwrap();
    assert_eq!(fixture.brick().get(block, 0, 65_536).unwrap(), data.slice(..65_536));
    assert_eq!(fixture.brick().get(block, 131_072, 168_928).unwrap(), data.slice(131_072..));
    assert!(is_corrupt(&fixture.brick().get(block, 131_071, 1), block));
    assert!(is_corrupt(&fixture.brick().get(block, 0, 300_000), block));
}

#[test]
fn a_block_under_the_name_of_another_is_not_taken_for_it() {
    let mut fixture = Fixture::new();
    fixture.brick().put(id(1, 1), &[bytes(1, 100)]).unwrap();
    fixture.brick().put(id(1, 2), &[bytes(2, 100)]).unwrap();
    std::fs::copy(fixture.file(id(1, 1)), fixture.file(id(1, 2))).unwrap();
    assert!(is_corrupt(&fixture.reopen().get(id(1, 2), 0, 100), id(1, 2)));
}

#[test]
fn things_that_are_not_files_are_no_blocks() {
    let mut fixture = Fixture::new();
    fixture.brick().put(id(1, 0), &[bytes(1, 100)]).unwrap();
    std::fs::create_dir(fixture.file(id(1, 1))).unwrap();
    std::os::unix::fs::symlink(fixture.file(id(1, 0)), fixture.file(id(1, 2))).unwrap();
    let brick = fixture.reopen();
    for seq in [1, 2] {
        let outcome = brick.get(id(1, seq), 0, 1);
        assert!(is_corrupt(&outcome, id(1, seq)), "{outcome:?}");
    }
    assert_eq!(brick.session_blocks(SessionId(1)).unwrap(), [id(1, 0)]);
    assert_eq!(brick.list(id(1, 0)).unwrap().blocks, [id(1, 0)]);
}

#[test]
fn a_torn_put_is_listed_reads_as_corrupt_and_is_replaced_by_the_next() {
    let mut fixture = Fixture::new();
    let (block, data) = (id(4, 1), bytes(1, 100_000));
    fixture.brick().put(block, std::slice::from_ref(&data)).unwrap();
    let whole = std::fs::read(fixture.file(block)).unwrap();
    let mut zeroed = whole.clone();
    zeroed[4096..20_000].fill(0);
    // What a crash may leave: nothing, a part, or the full length with parts that never reached the disk.
    for torn in [&[][..], &whole[..4096], &whole[..50_000], &zeroed, &vec![0; whole.len()]] {
        std::fs::write(fixture.file(block), torn).unwrap();
        let brick = fixture.reopen();
        assert!(is_corrupt(&brick.get(block, 0, 100_000), block), "{} bytes", torn.len());
        assert_eq!(brick.list(id(4, 0)).unwrap().blocks, [block]);
        brick.put(block, std::slice::from_ref(&data)).unwrap();
        assert_eq!(brick.get(block, 0, 100_000).unwrap(), data);
        assert!(matches!(brick.put(block, std::slice::from_ref(&data)), Err(BlockError::Exists(_))));
    }
    std::fs::write(fixture.file(block), b"").unwrap();
    assert_eq!(fixture.reopen().list(id(4, 0)).unwrap().blocks, [block]);
    assert!(is_corrupt(&fixture.brick().length(block), block));
    fixture.brick().delete(&[block]).unwrap();
    assert_eq!(fixture.brick().sessions().unwrap(), []);
}

#[test]
fn a_scrub_finds_what_is_damaged_and_counts_the_rest() {
    let mut fixture = Fixture::new();
    for seq in 0..20 {
        fixture.brick().put(id(seq % 3, seq * 100), &[bytes(seq, 10_000)]).unwrap();
    }
    let victims = [id(1, 400), id(2, 1700)];
    for victim in victims {
        let file = std::fs::OpenOptions::new().write(true).open(fixture.file(victim)).unwrap();
        file.write_all_at(b"X", 9000).unwrap();
    }
    let mut damaged = Vec::new();
    let mut report = |which, outcome: Result<u32, BlockError>| {
        if outcome.is_err() {
            assert!(is_corrupt(&outcome, which));
            damaged.push(which);
        }
    };
    let summary =
        fixture.reopen().scrub(&ScrubOptions::default(), &AtomicBool::new(false), &mut report).unwrap();
    assert_eq!((summary.blocks, summary.bytes, summary.damaged, summary.stopped), (20, 180_000, 2, false));
    assert_eq!(damaged, victims);
}

#[test]
fn a_scrub_keeps_its_pace_and_stops_when_told_to() {
    let fixture = Fixture::new();
    for seq in 0..10 {
        fixture.brick().put(id(1, seq), &[bytes(seq, 100_000)]).unwrap();
    }
    let options = ScrubOptions { bytes_per_second: NonZeroU64::new(2_000_000) };
    let started = Instant::now();
    let summary = fixture.brick().scrub(&options, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
    assert_eq!(summary.blocks, 10);
    assert!(started.elapsed() > Duration::from_millis(400), "{:?}", started.elapsed());

    let slow = ScrubOptions { bytes_per_second: NonZeroU64::new(1) };
    let stop = AtomicBool::new(false);
    let mut seen = 0;
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
        });
        fixture.brick().scrub(&slow, &stop, &mut |_, _| seen += 1).unwrap()
    });
    assert!(summary.stopped);
    assert_eq!((summary.blocks, seen), (1, 1));
}

/// A small file system of its own; `None` where the test may not mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        match mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some(options)) {
            Ok(()) => Some(SmallDisk(dir)),
            Err(errno) => {
                eprintln!("not tested: mounting a tmpfs: {errno}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        umount2(self.0.path(), MntFlags::MNT_DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_refuses_blocks_leaves_no_remains_and_recovers() {
    let Some(disk) = SmallDisk::mount("size=16m") else { return };
    let dir = disk.0.path().join("brick");
    Brick::format(&dir).unwrap();
    let brick = Brick::open(&dir).unwrap();
    let data = bytes(1, 4 << 20);
    let mut stored = 0;
    let refusal = loop {
        match brick.put(id(1, stored), std::slice::from_ref(&data)) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refusal, BlockError::Full), "{refusal}");
    assert_eq!(stored, 3);
    assert!(!dir.join(format!("blocks/1/0/1-{stored:x}")).exists());
    assert_eq!(brick.list(id(1, 0)).unwrap().blocks.len() as u64, stored);

    // Small ones still fit, up to the reserve.
    let mut small = 100;
    while brick.put(id(1, small), &[bytes(small, 1000)]).is_ok() {
        small += 1;
    }
    assert!(small > 200);
    assert_eq!(brick.statfs().unwrap().free_bytes, 0);
    assert!(nix::sys::statvfs::statvfs(&dir).unwrap().blocks_available() > 0, "the reserve is left alone");

    brick.delete(&[id(1, 0)]).unwrap();
    assert!(brick.statfs().unwrap().free_bytes > 3 << 20);
    brick.put(id(1, 50), &[bytes(2, 1 << 20)]).unwrap();
    assert_eq!(brick.get(id(1, 1), 0, 4 << 20).unwrap(), data);
}

#[test]
fn a_disk_without_inodes_is_full_too() {
    let Some(disk) = SmallDisk::mount("size=16m,nr_inodes=10") else { return };
    let dir = disk.0.path().join("brick");
    Brick::format(&dir).unwrap();
    let brick = Brick::open(&dir).unwrap();
    let refusal = (0..20).find_map(|seq| brick.put(id(1, seq), &[bytes(seq, 10)]).err());
    assert!(matches!(refusal, Some(BlockError::Full)), "{refusal:?}");
}
