//! How much is fetched for what is read.

mod support;

use shoal_client::{Caller, Client, Wait};
use shoal_types::InodeId;
use std::time::{Duration, Instant};
use support::World;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const WAIT: Wait = Wait::Allowed;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 48 * MIB;
/// The size of the requests into which the kernel splits larger reads.
const REQUEST_BYTES: u64 = 128 * KIB;

/// A volume with a file in blocks, and a mount that has cached nothing of it.
fn world() -> (World, std::sync::Arc<Client>, InodeId) {
    let world = World::new();
    let writer = world.mount();
    let ino = writer.create(WAIT, &CALLER, InodeId::ROOT, b"file", 0o100644, 0).expect("new").ino;
    for at in (0..FILE_BYTES).step_by(MIB as usize) {
        writer.write(WAIT, ino, at, &content(at, MIB), false).expect("written");
    }
    writer.close().expect("closed");
    let reader = world.mount();
    (world, reader, ino)
}

fn content(at: u64, len: u64) -> Vec<u8> {
    (at / 8..(at + len) / 8).flat_map(u64::to_le_bytes).collect()
}

fn read(client: &Client, ino: InodeId, at: u64, len: u64) {
    assert!(client.read(WAIT, ino, at, len as u32).expect("read").concat() == content(at, len), "{at}");
}

fn stat(client: &Client, name: &str) -> u64 {
    client.stats().iter().find(|stat| stat.name == name).expect("counted").value
}

#[test]
fn random_read_fetches_little_more_than_requested() {
    for size in [64 * KIB, 256 * KIB, MIB] {
        let (_world, client, ino) = world();
        let (mut state, mut asked) = (1_u64, 0);
        for _ in 0..100 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (state >> 33) % (FILE_BYTES / size) * size;
            // The second half arrives first.
            let requests = (0..size.div_ceil(REQUEST_BYTES)).rev();
            requests.for_each(|n| read(&client, ino, offset + n * REQUEST_BYTES, size.min(REQUEST_BYTES)));
            asked += size;
        }
        let fetched = stat(&client, "blocks_get_bytes_total");
        assert!(fetched * 2 <= asked * 3, "{fetched} bytes for {asked} in reads of {size}");
        client.close().expect("closed");
    }
}

/// Reads a range as the kernel does; its second half arrives first if `swapped`.
fn read_in_requests(client: &Client, ino: InodeId, at: u64, len: u64, swapped: bool) {
    let mut requests: Vec<u64> = (at..at + len).step_by(REQUEST_BYTES as usize).collect();
    if swapped {
        requests.reverse();
    }
    requests.into_iter().for_each(|start| read(client, ino, start, REQUEST_BYTES.min(at + len - start)));
}

#[test]
fn no_pattern_fetches_much_more_than_it_reads() {
    // As programs read, and the most that may be fetched per byte read, in percent.
    let strides: Vec<u64> = (0..FILE_BYTES / MIB).map(|n| n * MIB).collect();
    let backward: Vec<u64> = strides.iter().rev().copied().collect();
    let interleaved: Vec<u64> = (0..12).flat_map(|n| [n + 2, n + 15, n + 31].map(|at| at * MIB)).collect();
    let large: Vec<u64> = [5, 1, 9, 3, 7].map(|n| n * 4 * MIB).to_vec();
    let jump_and_run: Vec<u64> = [40, 7, 20, 21, 22, 23, 24, 25, 26, 27].map(|n| n * MIB).to_vec();
    for (what, offsets, size, percent_max) in [
        ("strided", &strides, 256 * KIB, 130),
        ("backward", &backward, MIB, 110),
        ("interleaved", &interleaved, MIB, 140),
        ("random reads of 4 MiB", &large, 4 * MIB, 135),
        ("a jump and a run", &jump_and_run, MIB, 130),
    ] {
        for swapped in [false, true] {
            let (_world, client, ino) = world();
            offsets.iter().for_each(|at| read_in_requests(&client, ino, *at, size, swapped));
            let (fetched, wanted) = (stat(&client, "blocks_get_bytes_total"), offsets.len() as u64 * size);
            assert!(
                fetched * 100 <= wanted * percent_max,
                "{what}, swapped: {swapped}: {fetched} bytes for {wanted}"
            );
            if what == "backward" {
                let hits = stat(&client, "blocks_cache_hits_total");
                assert!(hits * 2 > offsets.len() as u64, "{what}: {hits} reads found what was fetched ahead");
            }
            client.close().expect("closed");
        }
    }
}

#[test]
fn file_read_backward_is_read_ahead() {
    let (_world, client, ino) = world();
    let half = FILE_BYTES / MIB / 2;
    for n in (half..2 * half).rev() {
        read(&client, ino, n * MIB, MIB);
    }
    let lookups = stat(&client, "client_lookups_total");
    assert!(lookups <= 4, "{lookups} requests for the places of 24 MiB");
    let begun = Instant::now();
    while client.read(Wait::Never, ino, (half - 1) * MIB, MIB as u32).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing is fetched ahead");
        std::thread::sleep(Duration::from_millis(2));
    }
    client.close().expect("closed");
}

#[test]
fn sequential_read_fetches_whole_chunks_whatever_its_size() {
    for size in [4 * KIB, 128 * KIB, MIB] {
        let (_world, client, ino) = world();
        (0..FILE_BYTES / size).for_each(|n| read(&client, ino, n * size, size));
        let (gets, fetched) = (stat(&client, "blocks_get_total"), stat(&client, "blocks_get_bytes_total"));
        let single = MIB / size + FILE_BYTES / MIB + 2;
        assert!(gets <= single, "{gets} requests to bricks for reads of {size}");
        assert!(fetched <= FILE_BYTES + 2 * MIB, "{fetched} bytes");
        client.close().expect("closed");
    }
}

#[test]
fn bytes_of_a_read_are_counted_once_even_if_it_is_retried() {
    let (_world, client, ino) = world();
    let count = || stat(&client, "blocks_read_bytes_total");
    assert!(client.read(Wait::Never, ino, 20 * MIB, MIB as u32).is_err(), "nothing is cached yet");
    assert_eq!(count(), 0);
    read(&client, ino, 20 * MIB, MIB);
    assert_eq!(count(), MIB);
    // At the end of the file only what there is counts.
    assert_eq!(
        client.read(WAIT, ino, FILE_BYTES - KIB, MIB as u32).expect("read").concat().len(),
        KIB as usize
    );
    assert_eq!(count(), MIB + KIB);
    client.close().expect("closed");
}
