//! The program is linked so that RocksDB does not compute its checksums from tables.

use shoal_namespace::kv::{KvRead, KvStore};
use shoal_store::conformance::batch;
use shoal_store::limits::BLOB_BYTES_MIN;
use shoal_store::{RocksOptions, RocksStore, checksum};

#[test]
fn rocksdb_has_the_processor_compute_the_checksums_of_contents() {
    let dir = tempfile::tempdir().expect("tempdir");
    let options = RocksOptions { create: true, ..RocksOptions::default() };
    let store = RocksStore::open(dir.path(), &options).expect("open");
    let content = vec![7; BLOB_BYTES_MIN as usize];
    store.write(&batch(&[(b"a", Some(&content))])).expect("write");
    let before = checksum::calls();
    store.flush().expect("flush");
    let written = checksum::calls();
    assert!(written > before, "a blob was written without the function of `shoal_store::checksum`");
    assert_eq!(store.get(b"a").expect("get").as_deref(), Some(&content[..]));
    assert!(checksum::calls() > written, "a blob was read without it");
}
