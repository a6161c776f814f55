//! The key-value trait over RocksDB.
//!
//! **Shape.** One column family. Values from [`BLOB_BYTES_MIN`] bytes on are in blob files: written once when
//! a memtable is flushed, and then only moved to collect garbage. So compactions do not rewrite the contents
//! of small files. Lookups use Bloom filters; scans are bounded on both sides. Indexes and filters of tables
//! are partitioned: only their top levels stay in memory, the partitions are cached like any block.
//!
//! **Promises.** Writes are atomic and visible at once to readers on all threads. They are durable after
//! [`flush`](KvStore::flush), or once RocksDB has flushed them by itself; the order of writes is the order of
//! durability. Whatever is read from disk has passed its checksum. After a failed write or flush every
//! further one is refused.
//!
//! **Memory** is bounded by [`RocksOptions`].

use crate::cache;
use crate::checksum;
use crate::limits::*;
use bytes::Bytes;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, BottommostLevelCompaction, CompactOptions, DB, DBCompressionType,
    DBRawIterator, FlushOptions, LogLevel, Options, ReadOptions, Snapshot, WaitForCompactOptions,
    WriteOptions,
};
use shoal_namespace::kv::{Flow, KvRead, KvStore, StoreError, WriteBatch};
use std::ffi::CStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much memory a store may use.
#[derive(Clone, Copy, Debug)]
pub struct RocksOptions {
    /// Whether to create a store if there is none.
    pub create: bool,
    /// Size of one memtable, in bytes; up to [`MEMTABLES_MAX`] of them exist.
    pub memtable_bytes: usize,
    /// Bytes of a block cache of its own; without it the store shares the process's, see
    /// [`cache`](crate::cache).
    pub block_cache_bytes: Option<usize>,
    /// A blob file is closed at this size, in bytes.
    pub blob_file_bytes: u64,
}

impl Default for RocksOptions {
    fn default() -> RocksOptions {
        RocksOptions {
            create: false,
            memtable_bytes: MEMTABLE_BYTES_DEFAULT,
            block_cache_bytes: None,
            blob_file_bytes: BLOB_FILE_BYTES_DEFAULT,
        }
    }
}

/// A store in a directory of its own.
pub struct RocksStore {
    db: DB,
    /// A write or flush failed: memory and disk may differ, so further writes are refused.
    poisoned: AtomicBool,
}

/// A snapshot, which later writes do not change.
pub struct RocksSnapshot<'a>(Snapshot<'a>);

fn failed(doing: &str, error: rocksdb::Error) -> StoreError {
    StoreError(format!("{doing}: {}", error.into_string()))
}

impl RocksStore {
    /// Opens the store in a directory, or creates it.
    pub fn open(dir: &Path, options: &RocksOptions) -> Result<RocksStore, StoreError> {
        checksum::assert_right();
        let db = DB::open(&db_options(options), dir)
            .map_err(|error| failed(&format!("opening {}", dir.display()), error))?;
        Ok(RocksStore { db, poisoned: AtomicBool::new(false) })
    }

    /// Opens a store read-only, without changing its files.
    pub fn open_read_only(dir: &Path) -> Result<RocksStore, StoreError> {
        let options = RocksOptions::default();
        let db = DB::open_for_read_only(&db_options(&options), dir, false)
            .map_err(|error| failed(&format!("reading {}", dir.display()), error))?;
        Ok(RocksStore { db, poisoned: AtomicBool::new(false) })
    }

    /// Reclaims the space of deleted records, as far as that needs no more than about `room_bytes` meanwhile.
    /// It merges all tables, which removes blob files that hold nothing but garbage. Then it moves live
    /// values out of the oldest blob files, repeatedly, until little garbage is left or it has taken longer
    /// than `longest`. May be called while the store is in use.
    pub fn reclaim(&self, room_bytes: u64, longest: Duration) -> Result<(), StoreError> {
        let begun = Instant::now();
        self.collect_blobs(0.0)?;
        // Moved values become the newest: so many rounds have visited every file once.
        let mut seen = 0.0;
        while seen < 1.0 && begun.elapsed() < longest {
            let (all, garbage) = (self.blob_bytes(), self.blob_garbage_bytes());
            let files = self.figure(c"rocksdb.num-blob-files");
            if files == 0 || garbage < (all as f64 * RECLAIM_GARBAGE_MIN) as u64 {
                break;
            }
            // Moving needs space for the live part of what is moved, before any of it is freed. RocksDB
            // rounds down to whole files.
            let fits = room_bytes as f64 / all.saturating_sub(garbage).max(1) as f64;
            let share = fits.max(1.01 / files as f64).min(1.0);
            tracing::debug!(all, garbage, files, share, "moving what lives out of blob files");
            self.collect_blobs(share)?;
            seen += (share * files as f64).floor() / files as f64;
        }
        // A compaction ends before its obsolete input files are removed.
        self.wait_for_compactions()
    }

    /// Merges all tables, and moves the live values out of this share of the blob files, the oldest first.
    fn collect_blobs(&self, share: f64) -> Result<(), StoreError> {
        let set = |collect: bool, share: f64| {
            let (collect, share) = (collect.to_string(), share.to_string());
            let options = [
                ("enable_blob_garbage_collection", collect.as_str()),
                ("blob_garbage_collection_age_cutoff", share.as_str()),
            ];
            self.db.set_options(&options).map_err(|error| failed("setting options", error))
        };
        set(share > 0.0, share)?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        options.set_exclusive_manual_compaction(false);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        set(false, 0.0)
    }

    /// Makes a copy of the store, as of now, in a directory that does not exist yet. On the same file system
    /// it shares the files with the store and costs next to nothing.
    pub fn checkpoint(&self, dir: &Path) -> Result<(), StoreError> {
        let made = Checkpoint::new(&self.db).and_then(|checkpoint| checkpoint.create_checkpoint(dir));
        made.map_err(|error| failed(&format!("copying to {}", dir.display()), error))
    }

    /// Bytes in blob files.
    pub fn blob_bytes(&self) -> u64 {
        self.figure(c"rocksdb.total-blob-file-size")
    }

    /// Bytes written that are not flushed to disk yet.
    pub fn unwritten_bytes(&self) -> u64 {
        self.figure(c"rocksdb.cur-size-all-mem-tables")
    }

    /// Waits until running flushes and compactions are done. For tests and measurements.
    pub fn wait_for_compactions(&self) -> Result<(), StoreError> {
        self.db.wait_for_compact(&WaitForCompactOptions::default()).map_err(|error| failed("waiting", error))
    }

    /// Figures for people: name, value.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("store_memtable_bytes", self.unwritten_bytes()),
            ("store_table_bytes", self.figure(c"rocksdb.total-sst-files-size")),
            ("store_blob_bytes", self.blob_bytes()),
            ("store_blob_garbage_bytes", self.blob_garbage_bytes()),
            ("store_cache_bytes", self.figure(c"rocksdb.block-cache-usage")),
            ("store_cache_bytes_max", self.figure(c"rocksdb.block-cache-capacity")),
            ("store_compaction_pending_bytes", self.figure(c"rocksdb.estimate-pending-compaction-bytes")),
        ]
    }

    /// Bytes in blob files that nothing refers to any more, as far as compactions have found out.
    pub fn blob_garbage_bytes(&self) -> u64 {
        self.figure(c"rocksdb.live-blob-file-garbage-size")
    }

    fn figure(&self, name: &CStr) -> u64 {
        self.db.property_int_value(name).ok().flatten().unwrap_or(0)
    }

    fn usable(&self) -> Result<(), StoreError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(StoreError("an earlier write failed; restart to recover from the log".into()));
        }
        Ok(())
    }

    fn poison_on<T>(&self, doing: &str, result: Result<T, rocksdb::Error>) -> Result<T, StoreError> {
        result.map_err(|error| {
            self.poisoned.store(true, Ordering::Release);
            failed(doing, error)
        })
    }
}

fn db_options(options: &RocksOptions) -> Options {
    let mut db = Options::default();
    db.create_if_missing(options.create);
    db.set_paranoid_checks(true);
    db.set_max_open_files(OPEN_FILES_MAX);
    // Contents are in blob files in the order in which whole directories are read: the kernel's readahead
    // detects that.
    db.set_advise_random_on_open(false);
    db.set_max_background_jobs(BACKGROUND_JOBS_MAX);
    db.set_keep_log_file_num(INFO_LOGS_KEPT);
    db.set_max_log_file_size(INFO_LOG_BYTES_MAX);
    db.set_log_level(LogLevel::Warn);
    // The Raft log is the write-ahead log; RocksDB has none here whose size could force a flush.
    db.set_manual_wal_flush(true);
    db.set_write_buffer_size(options.memtable_bytes);
    db.set_max_write_buffer_number(MEMTABLES_MAX);
    db.set_write_buffer_manager(cache::memtables());
    // Written pages go to the disk continuously, not in one burst at the end that delays the log's fsync.
    db.set_bytes_per_sync(1 << 20);
    db.set_level_compaction_dynamic_level_bytes(true);
    db.set_compression_type(DBCompressionType::Lz4);
    db.add_compact_on_deletion_collector_factory(
        TOMBSTONE_WINDOW_ENTRIES,
        (TOMBSTONE_WINDOW_ENTRIES as f64 * TOMBSTONE_RATIO) as usize,
        TOMBSTONE_RATIO,
    );

    db.set_enable_blob_files(true);
    db.set_min_blob_size(BLOB_BYTES_MIN);
    db.set_blob_file_size(options.blob_file_bytes);
    // Contents of files are often compressed already, and small ones too short to gain.
    db.set_blob_compression_type(DBCompressionType::None);
    // Collecting garbage moves live values before it frees anything. So it is done on request only, within
    // the space that the request names: see `reclaim`. Files that hold nothing but garbage are removed
    // without it.
    db.set_enable_blob_gc(false);
    db.set_blob_gc_force_threshold(1.0);

    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&cache::of(options.block_cache_bytes));
    tables.set_cache_index_and_filter_blocks(true);
    tables.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    tables.set_partition_filters(true);
    tables.set_metadata_block_size(METADATA_BLOCK_BYTES);
    tables.set_pin_top_level_index_and_filter(true);
    tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tables.set_block_size(TABLE_BLOCK_BYTES);
    tables.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    tables.set_optimize_filters_for_memory(true);
    tables.set_format_version(6);
    db.set_block_based_table_factory(&tables);
    db
}

fn range(from: &[u8], to: &[u8]) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_iterate_lower_bound(from);
    options.set_iterate_upper_bound(to);
    options
}

fn run_scan(
    mut iterator: DBRawIterator<'_>,
    from: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Flow,
) -> Result<(), StoreError> {
    iterator.seek(from);
    while let Some((key, value)) = iterator.item() {
        if visit(key, value).is_break() {
            return Ok(());
        }
        iterator.next();
    }
    iterator.status().map_err(|error| failed("scanning", error))
}

fn collect(
    found: Vec<Result<Option<rocksdb::DBPinnableSlice<'_>>, rocksdb::Error>>,
) -> Result<Vec<Option<Bytes>>, StoreError> {
    found
        .into_iter()
        .map(|value| {
            value
                .map(|found| found.map(|bytes| Bytes::copy_from_slice(&bytes)))
                .map_err(|error| failed("reading", error))
        })
        .collect()
}

impl KvRead for RocksStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let found = self.db.get(key).map_err(|error| failed("reading", error))?;
        Ok(found.map(Bytes::from))
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        let Some(family) = self.db.cf_handle(rocksdb::DEFAULT_COLUMN_FAMILY_NAME) else {
            return keys.iter().map(|key| self.get(key)).collect();
        };
        collect(self.db.batched_multi_get_cf(family, keys, false))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Flow,
    ) -> Result<(), StoreError> {
        if from >= to {
            return Ok(());
        }
        run_scan(self.db.raw_iterator_opt(range(from, to)), from, visit)
    }
}

impl KvRead for RocksSnapshot<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let found = self.0.get(key).map_err(|error| failed("reading", error))?;
        Ok(found.map(Bytes::from))
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, StoreError> {
        self.0
            .multi_get(keys)
            .into_iter()
            .map(|value| value.map(|found| found.map(Bytes::from)).map_err(|error| failed("reading", error)))
            .collect()
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Flow,
    ) -> Result<(), StoreError> {
        if from >= to {
            return Ok(());
        }
        run_scan(self.0.raw_iterator_opt(range(from, to)), from, visit)
    }
}

impl KvStore for RocksStore {
    type Snapshot<'a> = RocksSnapshot<'a>;

    fn snapshot(&self) -> RocksSnapshot<'_> {
        RocksSnapshot(self.db.snapshot())
    }

    fn write(&self, batch: &WriteBatch) -> Result<(), StoreError> {
        self.usable()?;
        let mut out = rocksdb::WriteBatch::default();
        for (key, value) in &batch.changes {
            match value {
                Some(value) => out.put(key, value),
                None => out.delete(key),
            }
        }
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        self.poison_on("writing", self.db.write_opt(out, &options))
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.usable()?;
        let mut options = FlushOptions::default();
        options.set_wait(true);
        self.poison_on("flushing", self.db.flush_opt(&options))
    }
}
