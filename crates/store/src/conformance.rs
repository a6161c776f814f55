//! What every [`KvStore`] must do, as a suite that a store's own tests call.
//!
//! Each function panics with a message when the store does not keep the trait's promise.

use bytes::Bytes;
use shoal_namespace::kv::{Flow, KvRead, KvStore, WriteBatch};
use std::collections::BTreeMap;

/// Runs the whole suite, each part on a new store.
pub fn check<S: KvStore>(new: impl Fn() -> S) {
    reads_see_writes_at_once(&new());
    a_batch_replaces_and_removes(&new());
    scans_are_ordered_half_open_and_can_break_off(&new());
    several_keys_come_back_in_the_order_they_were_asked_for(&new());
    a_snapshot_does_not_move(&new());
    large_values_survive_a_flush(&new());
    many_threads_read_while_one_writes(&new());
}

/// A batch of changes; `None` removes.
pub fn batch(changes: &[(&[u8], Option<&[u8]>)]) -> WriteBatch {
    let owned = |(key, value): &(&[u8], Option<&[u8]>)| (key.to_vec(), value.map(Bytes::copy_from_slice));
    WriteBatch { changes: changes.iter().map(owned).collect() }
}

/// Everything in `[from, to)`.
pub fn dump(store: &impl KvRead, from: &[u8], to: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    store
        .scan(from, to, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            Flow::Continue(())
        })
        .expect("scan");
    found
}

fn reads_see_writes_at_once(store: &impl KvStore) {
    assert_eq!(store.get(b"a").expect("get"), None);
    store.write(&batch(&[(b"a", Some(b"1")), (b"", Some(b"empty key"))])).expect("write");
    assert_eq!(store.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(store.get(b"").expect("get").as_deref(), Some(&b"empty key"[..]));
    store.write(&batch(&[(b"e", Some(b""))])).expect("write");
    assert_eq!(
        store.get(b"e").expect("get").as_deref(),
        Some(&b""[..]),
        "an empty value is not an absent one"
    );
}

fn a_batch_replaces_and_removes(store: &impl KvStore) {
    store.write(&batch(&[(b"a", Some(b"1")), (b"b", Some(b"2"))])).expect("write");
    store.write(&batch(&[(b"a", Some(b"3")), (b"b", None), (b"never there", None)])).expect("write");
    assert_eq!(dump(store, b"", b"\xff"), [(b"a".to_vec(), b"3".to_vec())]);
    store.write(&WriteBatch::default()).expect("an empty batch is fine");
}

fn scans_are_ordered_half_open_and_can_break_off(store: &impl KvStore) {
    store
        .write(&batch(&[
            (b"b", Some(b"")),
            (b"a\xff", Some(b"")),
            (b"a", Some(b"")),
            (b"a\0", Some(b"")),
            (b"c", Some(b"")),
        ]))
        .expect("write");
    let keys =
        |from: &[u8], to: &[u8]| dump(store, from, to).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(b"a", b"c"), [b"a".to_vec(), b"a\0".to_vec(), b"a\xff".to_vec(), b"b".to_vec()]);
    assert_eq!(keys(b"a\x01", b"b"), [b"a\xff".to_vec()]);
    assert!(
        keys(b"b", b"b").is_empty() && keys(b"c", b"a").is_empty(),
        "empty and reversed ranges hold nothing"
    );
    let mut seen = 0;
    store
        .scan(b"", b"\xff", &mut |_, _| {
            seen += 1;
            if seen == 2 { Flow::Break(()) } else { Flow::Continue(()) }
        })
        .expect("scan");
    assert_eq!(seen, 2);
}

fn several_keys_come_back_in_the_order_they_were_asked_for(store: &impl KvStore) {
    store.write(&batch(&[(b"a", Some(b"1")), (b"b", Some(b"2"))])).expect("write");
    let keys = [b"b".to_vec(), b"x".to_vec(), b"a".to_vec(), b"b".to_vec()];
    let expected = [Some(&b"2"[..]), None, Some(b"1"), Some(b"2")].map(|v| v.map(Bytes::from_static));
    assert_eq!(store.multi_get(&keys).expect("multi_get"), expected);
    assert_eq!(store.snapshot().multi_get(&keys).expect("multi_get"), expected);
}

fn a_snapshot_does_not_move(store: &impl KvStore) {
    store.write(&batch(&[(b"a", Some(b"1")), (b"b", Some(b"2"))])).expect("write");
    let before = store.snapshot();
    store.write(&batch(&[(b"a", None), (b"b", Some(b"3")), (b"c", Some(b"4"))])).expect("write");
    store.flush().expect("flush");
    assert_eq!(before.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(dump(&before, b"", b"\xff"), [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
    assert_eq!(dump(store, b"", b"\xff"), [(b"b".to_vec(), b"3".to_vec()), (b"c".to_vec(), b"4".to_vec())]);
}

fn large_values_survive_a_flush(store: &impl KvStore) {
    let mut model = BTreeMap::new();
    for (number, size) in [0, 1, 100, 2047, 2048, 4096, 65_536, 1 << 20].into_iter().enumerate() {
        let value: Vec<u8> = (0..size).map(|at: usize| (at * 31 + number) as u8).collect();
        model.insert(vec![b'k', number as u8], value);
    }
    for (key, value) in &model {
        store.write(&batch(&[(key, Some(value))])).expect("write");
    }
    let expected: Vec<_> = model.into_iter().collect();
    assert_eq!(dump(store, b"", b"\xff"), expected);
    store.flush().expect("flush");
    assert_eq!(dump(store, b"", b"\xff"), expected);
    for (key, value) in &expected {
        assert_eq!(store.get(key).expect("get").as_deref(), Some(&value[..]));
    }
}

fn many_threads_read_while_one_writes(store: &impl KvStore) {
    const ROUNDS: u32 = 300;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let view = store.snapshot();
                    let one = view.get(b"one").expect("get");
                    assert_eq!(one, view.get(b"two").expect("get"), "a batch was seen in part");
                    if one.as_deref() == Some(&ROUNDS.to_be_bytes()[..]) {
                        break;
                    }
                }
            });
        }
        for round in 0..=ROUNDS {
            let value = round.to_be_bytes();
            store.write(&batch(&[(b"one", Some(&value)), (b"two", Some(&value))])).expect("write");
        }
    });
}
