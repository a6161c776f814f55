//! RocksDB as a store: the conformance suite, and failures that only a disk has.

use shoal_namespace::kv::{KvRead, KvStore, WriteBatch};
use shoal_store::conformance::{batch, check, dump};
use shoal_store::{RocksOptions, RocksStore};
use std::path::Path;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn open(dir: &Path) -> RocksStore {
    let options = RocksOptions {
        create: true,
        memtable_bytes: 1 << 20,
        block_cache_bytes: Some(1 << 20),
        blob_file_bytes: 1 << 20,
    };
    RocksStore::open(dir, &options).expect("open")
}

#[test]
fn rocksdb_keeps_the_promises_of_a_store() {
    let dir = tempfile::tempdir().expect("tempdir");
    let count = std::cell::Cell::new(0);
    check(|| {
        count.set(count.get() + 1);
        open(&dir.path().join(count.get().to_string()))
    });
}

#[test]
fn what_was_flushed_is_there_after_reopening_and_the_rest_is_a_prefix() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    store.write(&batch(&[(b"a", Some(b"1"))])).expect("write");
    store.flush().expect("flush");
    store.write(&batch(&[(b"b", Some(b"2"))])).expect("write");
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
}

/// As stores were created before indexes and filters were partitioned.
fn open_as_before(dir: &Path) -> rocksdb::DB {
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(2 << 10);
    let mut tables = rocksdb::BlockBasedOptions::default();
    tables.set_block_cache(&rocksdb::Cache::new_lru_cache(1 << 20));
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tables.set_block_size(16 << 10);
    tables.set_bloom_filter(10.0, false);
    tables.set_optimize_filters_for_memory(true);
    tables.set_format_version(6);
    options.set_block_based_table_factory(&tables);
    rocksdb::DB::open(&options, dir).expect("open")
}

#[test]
fn store_with_unpartitioned_filters_is_read_and_rewritten() {
    let dir = tempfile::tempdir().expect("tempdir");
    let value = |number: u32| vec![number as u8; if number.is_multiple_of(10) { 5_000 } else { 50 }];
    let old = open_as_before(dir.path());
    let mut unlogged = rocksdb::WriteOptions::default();
    unlogged.disable_wal(true);
    for number in 0..20_000u32 {
        old.put_opt(number.to_be_bytes(), value(number), &unlogged).expect("put");
    }
    old.flush().expect("flush");
    drop(old);
    let agrees = |store: &RocksStore| {
        for number in (0..20_000u32).step_by(7) {
            let found = store.get(&number.to_be_bytes()).expect("get");
            assert_eq!(found.as_deref(), Some(&value(number)[..]), "{number}");
            assert_eq!(store.get(&[&number.to_be_bytes()[..], b"x"].concat()).expect("get"), None);
        }
        assert_eq!(dump(store, b"", b"\xff").len(), 20_000);
    };
    let store = open(dir.path());
    agrees(&store);
    for number in (0..20_000u32).step_by(2) {
        store.write(&batch(&[(&number.to_be_bytes(), Some(&value(number)))])).expect("write");
    }
    store.flush().expect("flush");
    // Merges all tables into new ones.
    store.reclaim(u64::MAX, LONG).expect("reclaim");
    agrees(&store);
    drop(store);
    agrees(&open(dir.path()));
}

#[test]
fn stores_of_one_process_share_a_cache_of_bounded_size() {
    let dir = tempfile::tempdir().expect("tempdir");
    let options = RocksOptions { create: true, memtable_bytes: 1 << 20, ..RocksOptions::default() };
    let most = shoal_store::limits::BLOCK_CACHE_BYTES_MIN;
    shoal_store::cache::set_shared_bytes(most);
    let figure = |store: &RocksStore, name| {
        store.stats().into_iter().find(|(one, _)| *one == name).expect("a figure").1 as usize
    };
    let stores: Vec<RocksStore> = (0..3)
        .map(|number| {
            let path = dir.path().join(number.to_string());
            let store = RocksStore::open(&path, &options).expect("open");
            for key in 0..10_000u32 {
                let value: Vec<u8> = (0..1000).map(|at| (key.wrapping_mul(31) >> (at % 24)) as u8).collect();
                store.write(&batch(&[(&key.to_be_bytes(), Some(&value))])).expect("write");
            }
            store.flush().expect("flush");
            assert_eq!(dump(&store, b"", b"\xff").len(), 10_000);
            store
        })
        .collect();
    let used: Vec<usize> = stores.iter().map(|store| figure(store, "store_cache_bytes")).collect();
    assert!(used.iter().all(|one| *one == used[0] && *one > most / 2), "{used:?}");
    assert!(used[0] <= most + (1 << 20), "{} of at most {most} bytes", used[0]);
    assert!(stores.iter().all(|store| figure(store, "store_cache_bytes_max") == most));
}

#[test]
fn a_missing_store_is_not_made_unless_asked_for() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("none");
    assert!(RocksStore::open(&path, &RocksOptions::default()).is_err());
}

#[test]
fn a_flipped_bit_on_disk_is_an_error_and_never_a_value() {
    let dir = tempfile::tempdir().expect("tempdir");
    let value = vec![7u8; 10_000];
    let store = open(dir.path());
    store.write(&batch(&[(b"a", Some(&value)), (b"b", Some(b"small"))])).expect("write");
    store.flush().expect("flush");
    drop(store);
    for entry in std::fs::read_dir(dir.path()).expect("read_dir") {
        let path = entry.expect("entry").path();
        if path.extension().is_some_and(|extension| extension == "blob") {
            let mut bytes = std::fs::read(&path).expect("read");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&path, bytes).expect("write");
        }
    }
    let store = open(dir.path());
    assert!(store.get(b"a").is_err());
    assert_eq!(store.get(b"b").expect("get").as_deref(), Some(&b"small"[..]));
}

#[test]
fn reclaiming_gives_the_room_of_deleted_values_back() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let value = vec![1u8; 60_000];
    for round in 0..4u32 {
        for number in 0..200u32 {
            store.write(&batch(&[(&number.to_be_bytes(), Some(&value))])).expect("write");
        }
        assert_eq!(dump(&store, b"", b"\xff").len(), 200, "round {round}");
        for number in 0..200u32 {
            store.write(&batch(&[(&number.to_be_bytes(), None)])).expect("write");
        }
        store.flush().expect("flush");
        store.reclaim(u64::MAX, LONG).expect("reclaim");
    }
    store.wait_for_compactions().expect("compactions end");
    let blobs =
        store.stats().into_iter().find(|(name, _)| *name == "store_blob_bytes").map(|(_, value)| value);
    assert!(blobs.expect("figure") < 1 << 20, "{blobs:?} bytes of blobs left of nothing");
}

#[test]
fn reclaiming_moves_the_living_out_of_files_of_garbage() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let value = vec![1u8; 60_000];
    for number in 0..200u32 {
        store.write(&batch(&[(&number.to_be_bytes(), Some(&value))])).expect("write");
    }
    store.flush().expect("flush");
    for number in (0..200u32).filter(|number| number % 5 != 0) {
        store.write(&batch(&[(&number.to_be_bytes(), None)])).expect("write");
    }
    store.flush().expect("flush");
    let before = store.blob_bytes();
    store.reclaim(u64::MAX, LONG).expect("reclaim");
    assert!(store.blob_bytes() < before / 3, "{} of {before} bytes left of a fifth", store.blob_bytes());
    assert_eq!(dump(&store, b"", b"\xff").len(), 40);
}

#[test]
fn reclaiming_gets_to_garbage_in_the_middle_with_little_room_to_work_in() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let value = vec![1u8; 60_000];
    for number in 0..400u32 {
        store.write(&batch(&[(&number.to_be_bytes(), Some(&value))])).expect("write");
    }
    store.flush().expect("flush");
    for number in 150..250u32 {
        let key = number.to_be_bytes();
        // Some values stay live, so that no file is all garbage.
        if number % 10 != 0 {
            store.write(&batch(&[(&key, None)])).expect("write");
        }
    }
    store.flush().expect("flush");
    let before = store.blob_bytes();
    store.reclaim(2 << 20, LONG).expect("reclaim");
    let living = 310 * 60_000;
    assert!(store.blob_bytes() < living + living / 8, "{} of {before} bytes left", store.blob_bytes());
}

/// Blocks on the hot tier in the measurement below, and how many of them are looked for.
const HOT_BLOCKS: u64 = 10_000_000;
const CANDIDATES: usize = 1000;

#[test]
#[ignore = "writes ten million records: a minute or more"]
fn next_thousand_of_ten_million_blocks_on_the_hot_tier_are_found_in_milliseconds() {
    use shoal_namespace::{heat, keys, records};
    use shoal_types::{BlockId, SessionId};
    let dir = tempfile::tempdir().expect("tempdir");
    let store = open(dir.path());
    let block = |seq: u64| BlockId { session: SessionId(2 + seq % 8), seq };
    for from in (0..HOT_BLOCKS).step_by(10_000) {
        let key = |seq: u64| {
            (keys::heat(1_700_000_000 + seq * 7919 % HOT_BLOCKS, block(seq)), Some(records::present()))
        };
        store.write(&WriteBatch { changes: (from..from + 10_000).map(key).collect() }).expect("write");
    }
    let find = |after| {
        let begun = std::time::Instant::now();
        let found = heat::longest_unused(&store, after, CANDIDATES).expect("found");
        (begun.elapsed(), found)
    };
    let (first_took, first) = find(None);
    let (next_took, next) = find(first.last().copied());
    // Those before are gone, as after their demotion.
    let gone = first.iter().chain(&next).map(|(since, id)| (keys::heat(*since, *id), None));
    store.write(&WriteBatch { changes: gone.collect() }).expect("write");
    let (after_took, rest) = find(None);
    println!(
        "{CANDIDATES} of {HOT_BLOCKS} blocks: first {first_took:?}, next {next_took:?}, after removal {after_took:?}"
    );
    assert!(first.len() == CANDIDATES && next.len() == CANDIDATES && first < next && next < rest);
    for took in [first_took, next_took, after_took] {
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
}
