//! How much is fetched for what is read.

mod support;

use shoal_client::{Caller, Client, Wait};
use shoal_types::InodeId;
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
fn random_read_fetches_little_more_than_it_asks_for() {
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

#[test]
fn sequential_read_fetches_whole_blocks_whatever_its_size() {
    for size in [4 * KIB, 128 * KIB, MIB] {
        let (_world, client, ino) = world();
        (0..FILE_BYTES / size).for_each(|n| read(&client, ino, n * size, size));
        let (gets, fetched) = (stat(&client, "blocks_get_total"), stat(&client, "blocks_get_bytes_total"));
        let single = MIB / size + FILE_BYTES / (4 * MIB) + 2;
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
