//! The log on a disk that loses data, damages it, and refuses calls.

mod support;

use bytes::Bytes;
use proptest::prelude::*;
use shoal_store::{LogEntry, LogError, LogOptions, RaftLog};
use support::{Chance, SECTOR_BYTES, SimDisk};

const OPTIONS: LogOptions = LogOptions { segment_bytes: 8 << 10, spare_segments: 2 };

fn entry(index: u64, term: u64, len: usize) -> LogEntry {
    let payload: Vec<u8> = (0..len).map(|at| (at as u64 * 7 + index * 13 + term) as u8).collect();
    LogEntry { index, term, tag: (index % 3) as u8, payload: payload.into() }
}

fn new_log(disk: &SimDisk) -> RaftLog {
    RaftLog::create_on(Box::new(disk.clone()), OPTIONS, 0, 0, b"start").expect("create")
}

fn reopen(disk: &SimDisk) -> Result<RaftLog, LogError> {
    RaftLog::open_on(Box::new(disk.clone()), OPTIONS)
}

fn entries(log: &RaftLog) -> Vec<LogEntry> {
    (log.first_index()..=log.last_index()).map(|index| log.entry(index).expect("entry")).collect()
}

fn last_segment(disk: &SimDisk) -> String {
    disk.names().into_iter().rfind(|name| name.starts_with("segment-")).expect("a segment")
}

#[test]
fn a_real_directory_keeps_entries_state_and_terms() {
    let dir = tempfile::tempdir().expect("tempdir");
    assert!(!RaftLog::exists(&dir.path().join("absent")).expect("exists"));
    assert!(matches!(RaftLog::open(dir.path(), OPTIONS), Err(LogError::Missing)));
    let mut log = RaftLog::create(dir.path(), OPTIONS, 5, 2, b"one").expect("create");
    assert_eq!((log.first_index(), log.last_index(), log.term(5)), (6, 5, Some(2)));
    let written: Vec<_> = (6..40).map(|index| entry(index, 3, 700)).collect();
    log.append(&written, Some(b"two"), true).expect("append");
    drop(log);
    assert!(matches!(RaftLog::create(dir.path(), OPTIONS, 0, 0, b""), Err(LogError::Exists)));
    let log = RaftLog::open(dir.path(), OPTIONS).expect("open");
    assert_eq!(entries(&log), written);
    assert_eq!((log.state(), log.term(5), log.term(39), log.term(40)), (&b"two"[..], Some(2), Some(3), None));
    assert!(matches!(log.entry(40), Err(LogError::Absent { index: 40, first: 6, last: 39 })));
}

#[test]
fn creation_that_was_cut_off_anywhere_can_be_repeated() {
    let mut chance = Chance(0x9e37_79b9);
    for calls in 0.. {
        let disk = SimDisk::default();
        disk.fail_after(calls);
        let create = |disk: &SimDisk| RaftLog::create_on(Box::new(disk.clone()), OPTIONS, 7, 2, b"start");
        let is_complete = create(&disk).is_ok();
        for _ in 0..20 {
            let disk = disk.crash(&mut chance);
            let log = match disk.names().iter().any(|name| name.starts_with("segment-")) {
                true => reopen(&disk),
                false => create(&disk),
            };
            let mut log = log.unwrap_or_else(|error| panic!("cut off after {calls} calls: {error}"));
            assert_eq!((log.state(), log.last_index(), log.term(7)), (&b"start"[..], 7, Some(2)));
            log.append(&[entry(8, 3, 100)], None, true).expect("append");
        }
        if is_complete {
            return;
        }
    }
}

#[test]
fn record_that_was_torn_is_not_completed_by_a_later_one() {
    const FILE: &str = "segment-0000000000000001";
    let (first, old, new) = (entry(1, 1, 50), entry(2, 1, 1500), entry(2, 1, 1600));
    let disk = SimDisk::default();
    let mut log = new_log(&disk);
    log.append(std::slice::from_ref(&first), None, true).expect("append");
    let before = disk.content(FILE);
    log.append(&[old], None, false).expect("append");
    let written = disk.content(FILE);
    // The bytes of `lost` sectors are from before, all others from after a write.
    let mix = |before: &[u8], after: &[u8], lost: &dyn Fn(usize) -> bool| -> Vec<u8> {
        let byte = |at: usize| if lost(at / SECTOR_BYTES) { before.get(at) } else { after.get(at) };
        (0..after.len()).map(|at| byte(at).copied().unwrap_or(0)).collect()
    };
    let sectors = written.len() / SECTOR_BYTES;
    for torn in 0..sectors {
        let disk = disk.copy();
        disk.edit(FILE, |content| *content = mix(&before, &written, &|sector| sector >= torn));
        let mut log = reopen(&disk).expect("open");
        if log.last_index() == 2 {
            continue;
        }
        let before = disk.content(FILE);
        log.append(std::slice::from_ref(&new), None, false).expect("append");
        let written = disk.content(FILE);
        for kept in 0..sectors {
            let disk = disk.copy();
            disk.edit(FILE, |content| *content = mix(&before, &written, &|sector| sector < kept));
            let found = entries(&reopen(&disk).expect("open"));
            assert!(found == [first.clone()] || found == [first.clone(), new.clone()], "{torn}, {kept}");
        }
    }
}

#[test]
fn entries_that_do_not_join_on_are_refused_and_change_nothing() {
    let disk = SimDisk::default();
    let mut log = new_log(&disk);
    for bad in [vec![entry(2, 1, 1)], vec![entry(0, 1, 1)], vec![entry(1, 1, 1), entry(3, 1, 1)]] {
        assert!(matches!(log.append(&bad, None, true), Err(LogError::Invalid { .. })));
    }
    log.append(&[entry(1, 1, 1)], None, true).expect("append");
    assert_eq!(log.last_index(), 1);
}

#[test]
fn a_conflict_replaces_everything_from_its_index_on() {
    let disk = SimDisk::default();
    let mut log = new_log(&disk);
    log.append(&(1..=30).map(|index| entry(index, 1, 900)).collect::<Vec<_>>(), None, true).expect("append");
    log.append(&[entry(12, 2, 10), entry(13, 2, 10)], Some(b"later"), true).expect("append");
    let expected: Vec<_> =
        (1..12).map(|index| entry(index, 1, 900)).chain([entry(12, 2, 10), entry(13, 2, 10)]).collect();
    assert_eq!(entries(&log), expected);
    let mut log = reopen(&disk).expect("open");
    assert_eq!(entries(&log), expected);
    assert_eq!(log.state(), b"later");
    // Voided segments are removed with the others.
    log.truncate_prefix(11).expect("drop");
    let log = reopen(&disk).expect("open");
    assert_eq!((log.first_index(), log.last_index(), log.term(11)), (12, 13, Some(1)));
}

#[test]
fn dropping_takes_whole_segments_and_their_files_are_written_again() {
    let disk = SimDisk::default();
    let mut log = new_log(&disk);
    for index in 1..=60 {
        log.append(&[entry(index, 1, 900)], None, true).expect("append");
    }
    let before = log.bytes();
    log.truncate_prefix(40).expect("drop");
    assert!(log.first_index() > 30 && log.first_index() <= 41, "first index {}", log.first_index());
    assert!(log.bytes() < before / 2);
    assert_eq!(log.term(log.first_index() - 1), Some(1));
    let spares = |disk: &SimDisk| disk.names().iter().filter(|name| name.starts_with("spare-")).count();
    assert_eq!(spares(&disk), OPTIONS.spare_segments);
    let first = log.first_index();
    for index in 61..=70 {
        log.append(&[entry(index, 2, 900)], None, true).expect("append");
    }
    assert!(spares(&disk) < OPTIONS.spare_segments);
    log.truncate_prefix(1000).expect("drop all but the last");
    let log = reopen(&disk).expect("open");
    assert!(log.first_index() > first && log.last_index() == 70);
    assert_eq!(entries(&log).last(), Some(&entry(70, 2, 900)));
}

#[test]
fn every_cut_of_an_unflushed_tail_leaves_all_that_was_flushed() {
    let disk = SimDisk::default();
    let mut log = new_log(&disk);
    log.append(&[entry(1, 1, 50), entry(2, 1, 50)], None, true).expect("append");
    let flushed = log.bytes() as usize;
    log.append(&[entry(3, 1, 50), entry(4, 1, 50)], Some(b"late"), false).expect("append");
    let end = log.bytes() as usize;
    let name = last_segment(&disk);
    let whole = entries(&log);
    for cut in flushed..=end {
        for fill in [None, Some(0), Some(0xff)] {
            let torn = disk.copy();
            torn.edit(&name, |bytes| match fill {
                None => bytes.truncate(cut),
                Some(fill) => bytes[cut..end].fill(fill),
            });
            let mut log = reopen(&torn).expect("open");
            let found = entries(&log);
            assert!(found.len() >= 2 && whole.starts_with(&found), "cut at {cut}: {} entries", found.len());
            // And entries can be appended again.
            let next = log.last_index() + 1;
            log.append(&[entry(next, 9, 33)], None, true).expect("append");
            assert_eq!(reopen(&torn).expect("open").entry(next).expect("entry"), entry(next, 9, 33));
        }
    }
}

#[test]
fn damage_before_the_last_flush_is_refused_with_file_and_offset() {
    let disk = SimDisk::default();
    let mut log = new_log(&disk);
    for index in 1..=20 {
        log.append(&[entry(index, 1, 900)], None, true).expect("append");
    }
    let segments: Vec<_> = disk.names().into_iter().filter(|name| name.starts_with("segment-")).collect();
    assert!(segments.len() > 2);
    let flip = |name: &str, at: usize| {
        let bad = disk.copy();
        bad.edit(name, |bytes| bytes[at] ^= 0x10);
        reopen(&bad).err()
    };
    for name in &segments {
        for at in [0, 17, 4096, 4200, 5000] {
            match flip(name, at) {
                Some(LogError::Damaged { file, offset, .. }) => {
                    // A segment that lost its end is noticed where the next one begins.
                    assert!(file >= *name && offset <= at as u64, "{name} {at}: {file} {offset}");
                }
                Some(LogError::Version { .. }) => {}
                other => panic!("{name} {at}: {other:?}"),
            }
        }
    }
    let missing = disk.copy();
    shoal_store::log::disk::Disk::remove(&missing, &segments[1]).expect("remove");
    assert!(matches!(reopen(&missing), Err(LogError::Damaged { file, .. }) if file == segments[1]));
}

#[test]
fn a_newer_format_is_refused_by_its_version() {
    let disk = SimDisk::default();
    new_log(&disk);
    disk.edit(&last_segment(&disk), |bytes| bytes[8] = 2);
    assert!(matches!(reopen(&disk), Err(LogError::Version { found: 2, known: 1, .. })));
}

#[test]
fn after_a_failed_call_nothing_more_is_accepted_and_reopening_recovers() {
    for calls in 0..40 {
        let disk = SimDisk::default();
        let mut log = new_log(&disk);
        log.append(&[entry(1, 1, 900)], None, true).expect("append");
        disk.fail_after(calls);
        let mut acknowledged = 1;
        for index in 2..=30 {
            match log.append(&[entry(index, 1, 900)], None, true) {
                Ok(()) => acknowledged = index,
                Err(_) => break,
            }
        }
        if acknowledged < 30 {
            assert!(matches!(
                log.append(&[entry(acknowledged + 1, 1, 1)], None, true),
                Err(LogError::Poisoned(_))
            ));
        }
        let after = disk.crash(&mut Chance(u64::from(calls) + 1));
        let log = reopen(&after).unwrap_or_else(|error| panic!("failure after {calls} calls: {error}"));
        assert!(log.last_index() >= acknowledged, "failure after {calls} calls");
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Entries of these lengths; `back`: how many older ones they void.
    Append {
        back: u64,
        lens: Vec<usize>,
        state: bool,
        sync: bool,
    },
    Drop {
        back: u64,
    },
    Crash {
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let append = (
        prop_oneof![6 => Just(0u64), 1 => 1..4u64],
        prop::collection::vec(prop_oneof![0..200usize, 200..3000usize], 0..5),
        any::<bool>(),
        any::<bool>(),
    );
    prop_oneof![
        8 => append.prop_map(|(back, lens, state, sync)| Step::Append { back, lens, state, sync }),
        1 => (0..10u64).prop_map(|back| Step::Drop { back }),
        2 => (1..u64::MAX).prop_map(|seed| Step::Crash { seed }),
    ]
}

/// The changes of the log, one record at a time: a crash may stop between any two.
#[derive(Clone, PartialEq, Debug)]
struct Model {
    entries: Vec<LogEntry>,
    state: Bytes,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_crashes_the_log_holds_a_prefix_with_everything_flushed(steps in prop::collection::vec(step(), 1..40)) {
        let mut disk = SimDisk::default();
        let mut log = new_log(&disk);
        let mut term = 1;
        let mut now = Model { entries: Vec::new(), state: Bytes::from_static(b"start") };
        // All states that a crash may leave, the flushed one first.
        let mut possible = vec![now.clone()];
        let mut dropped = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Append { back, lens, state, sync } => {
                    let back = back.min(log.last_index() - dropped.max(log.first_index() - 1));
                    if back > 0 && !lens.is_empty() {
                        term += 1;
                    }
                    let start = log.last_index() + 1 - back;
                    let batch: Vec<_> =
                        lens.iter().enumerate().map(|(at, len)| entry(start + at as u64, term, *len)).collect();
                    if let Some(first) = batch.first() {
                        now.entries.truncate(first.index as usize - 1);
                        possible.push(now.clone());
                    }
                    for entry in &batch {
                        now.entries.push(entry.clone());
                        possible.push(now.clone());
                    }
                    let new_state = state.then(|| format!("state {number}"));
                    if let Some(state) = &new_state {
                        now.state = state.clone().into();
                        possible.push(now.clone());
                    }
                    log.append(&batch, new_state.as_deref().map(str::as_bytes), sync).expect("append");
                    if sync {
                        possible = vec![now.clone()];
                    }
                }
                Step::Drop { back } => {
                    // As a server does: only flushed entries are truncated.
                    log.append(&[], None, true).expect("flush");
                    possible = vec![now.clone()];
                    dropped = dropped.max(log.last_index().saturating_sub(back));
                    log.truncate_prefix(dropped).expect("drop");
                }
                Step::Crash { seed } => {
                    disk = disk.crash(&mut Chance(seed));
                    log = reopen(&disk).expect("open after a crash");
                    let first = log.first_index();
                    prop_assert!(first <= dropped + 1);
                    let found = entries(&log);
                    let state = Bytes::copy_from_slice(log.state());
                    let fits = |model: &Model| {
                        model.state == state && model.entries.len() as u64 + 1 >= first
                            && model.entries.get(first as usize - 1..) == Some(&found[..])
                    };
                    let Some(model) = possible.iter().rev().find(|model| fits(model)) else {
                        return Err(TestCaseError::fail(format!("{} to {} is no prefix", first, log.last_index())));
                    };
                    now = model.clone();
                    possible = vec![now.clone()];
                }
            }
        }
        let first = log.first_index() as usize;
        prop_assert_eq!(&entries(&log)[..], &now.entries[first - 1..]);
    }
}
