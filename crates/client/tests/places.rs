//! Blocks on several bricks: batches name their groups, and readers find them even if they move or do not
//! answer.

mod support;

use shoal_client::{Caller, Client, Options, Wait};
use shoal_namespace::Op;
use shoal_types::{BlockId, BlockInfo, Errno, InodeId};
use shoal_wire::VolumeBlocks;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use support::{Group, Spread, World};

const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };
const WAIT: Wait = Wait::Allowed;
const BLOCK: usize = 4 << 20;

fn mount(group: &Arc<Group>, spread: &Arc<Spread>) -> Arc<Client> {
    let options = Options { block_cache_bytes: 0, ..Options::default() };
    Client::open(group.clone(), spread.clone(), options).expect("a session")
}

fn write(client: &Client, name: &[u8], bytes: &[u8]) -> InodeId {
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, name, 0o600, 0).unwrap();
    for (n, part) in bytes.chunks(1 << 20).enumerate() {
        client.write(WAIT, file.ino, (n << 20) as u64, part, false).unwrap();
    }
    file.ino
}

fn read(client: &Client, ino: InodeId, len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let parts = client.read(WAIT, ino, bytes.len() as u64, 128 << 10).unwrap();
        assert!(!parts.is_empty());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
    }
    bytes
}

fn content(blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK).map(|n| (n / 4096 + n) as u8).collect()
}

/// Every block that was declared so far, as the volume knows it.
fn declared(group: &Group) -> Vec<(BlockId, BlockInfo)> {
    let applied = group.applied.lock();
    let declare = applied.iter().filter_map(|op| match op {
        Op::Write { declare, .. } => *declare,
        _ => None,
    });
    declare.collect()
}

#[test]
fn batch_names_the_bricks_of_its_blocks() {
    let (group, spread) = (Group::new(4096), Spread::new(5, 3));
    let client = mount(&group, &spread);
    // Some blocks are stored long before their batch is sealed, some afterwards.
    let bytes = content(6);
    let ino = write(&client, b"file", &bytes);
    write(&client, b"short", &bytes[..10_000]);
    client.fsync(ino).unwrap();
    // A batch that is sealed in the middle, because it is old enough, ends a block there.
    let blocks = declared(&group);
    assert!(blocks.len() >= 7, "{blocks:?}");
    let lens: usize = blocks.iter().map(|(_, info)| info.len as usize).sum();
    assert_eq!(lens, bytes.len() + 10_000);
    for (id, info) in &blocks {
        assert_eq!(info.group.len(), 3);
        assert_eq!(info.group, spread.holders(*id));
    }
    assert!(blocks.iter().any(|(_, info)| info.group != blocks[0].1.group), "all are in one group");
    assert_eq!(read(&client, ino, bytes.len()), bytes);
    assert_eq!(group.located.load(Ordering::SeqCst), 0);
}

#[test]
fn reply_with_extents_contains_the_groups_of_their_blocks() {
    let (group, spread) = (Group::new(4096), Spread::new(4, 2));
    let bytes = content(3);
    let writer = mount(&group, &spread);
    let ino = write(&writer, b"file", &bytes);
    writer.close().unwrap();
    let reader = mount(&group, &spread);
    assert_eq!(read(&reader, ino, bytes.len()), bytes);
    assert_eq!(group.located.load(Ordering::SeqCst), 0);
}

#[test]
fn a_block_that_was_moved_is_found_again() {
    let (group, spread) = (Group::new(4096), Spread::new(5, 2));
    let client = mount(&group, &spread);
    let bytes = content(3);
    let ino = write(&client, b"file", &bytes);
    client.fsync(ino).unwrap();
    let shifted = spread.shift(2);
    let moves = declared(&group).into_iter().map(|(id, info)| (id, shifted(info.group)));
    group.moved.lock().extend(moves);
    assert_eq!(read(&client, ino, bytes.len()), bytes);
    let located = group.located.load(Ordering::SeqCst);
    assert!((1..=12).contains(&located), "asked {located} times");
}

#[test]
fn read_of_a_block_on_no_brick_fails_without_waiting() {
    let (group, spread) = (Group::new(4096), Spread::new(3, 2));
    let client = mount(&group, &spread);
    let ino = write(&client, b"file", &content(1));
    client.fsync(ino).unwrap();
    for (id, info) in declared(&group) {
        spread.discard(&[(id, info.group)]).unwrap();
    }
    assert_eq!(client.read(WAIT, ino, 0, 100), Err(Errno::EIO.into()));
}

#[test]
fn reads_and_writes_wait_for_bricks_that_do_not_answer() {
    let (group, spread) = (Group::new(4096), Spread::new(3, 2));
    let client = mount(&group, &spread);
    let bytes = content(1);
    let ino = write(&client, b"file", &bytes);
    client.fsync(ino).unwrap();
    (1..=3).for_each(|brick| spread.set_down(brick, true));
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| read(&client, ino, bytes.len()));
        let more = write(&client, b"more", &bytes);
        let syncs = scope.spawn({
            let client = &client;
            move || client.fsync(more)
        });
        while client
            .stats()
            .iter()
            .filter(|stat| stat.name.ends_with("_waits_total") && stat.value > 1)
            .count()
            < 2
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!reads.is_finished() && !syncs.is_finished());
        (1..=2).for_each(|brick| spread.set_down(brick, false));
        assert_eq!(reads.join().unwrap(), bytes);
        assert_eq!(syncs.join().unwrap(), Ok(()));
    });
    assert!(declared(&group).len() >= 2);
}

#[test]
fn stored_block_that_no_batch_names_is_deleted() {
    let (group, spread) = (Group::new(4096), Spread::new(3, 2));
    let client = mount(&group, &spread);
    let ino = write(&client, b"keep", &content(1));
    client.fsync(ino).unwrap();
    let temporary = write(&client, b"temporary", &content(2));
    client.unlink(WAIT, InodeId::ROOT, b"temporary").unwrap();
    client.forget(temporary, 1);
    client.fsync(ino).unwrap();
    for _ in 0..1000 {
        if spread.count() == 2 * declared(&group).len() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{} copies are left of {} blocks", spread.count(), declared(&group).len());
}

#[test]
fn client_of_a_single_process_never_looks_up_block_groups() {
    let world = World::new();
    let bytes = content(2);
    let writer = world.mount();
    let ino = write(&writer, b"file", &bytes);
    assert_eq!(read(&writer, ino, bytes.len()), bytes);
    writer.close().unwrap();
    let reader = world.mount();
    assert_eq!(read(&reader, ino, bytes.len()), bytes);
    world.bricks.blocks.lock().clear();
    let again = world.mount_with(Options { block_cache_bytes: 0, ..Options::default() });
    assert_eq!(again.read(WAIT, ino, 0, 100), Err(Errno::EIO.into()));
    assert_eq!(world.group.located.load(Ordering::SeqCst), 0);
}
