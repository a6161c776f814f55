//! What reaches the server, and when.

mod support;

use shoal_client::{Caller, Failure, Fallocate, Options, Wait};
use shoal_namespace::{Op, RenameFlags, SetAttr};
use shoal_types::{Errno, Extent, InodeFlags, InodeId, Timestamp};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::World;

const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };
const WAIT: Wait = Wait::Allowed;

/// A client that has cached the root, so that nothing below it has to be fetched.
fn warm(world: &World) -> std::sync::Arc<shoal_client::Client> {
    let client = world.mount();
    assert_eq!(client.lookup(WAIT, InodeId::ROOT, b"nothing"), Ok(None));
    // The first operation requests room.
    let first = client.create(WAIT, &ROOT, InodeId::ROOT, b"first", 0o644, 0).unwrap();
    client.unlink(WAIT, InodeId::ROOT, b"first").unwrap();
    client.forget(first.ino, 1);
    client.fsync(InodeId::ROOT).unwrap();
    world.group.applied.lock().clear();
    client
}

#[test]
fn an_unpacked_file_is_three_operations() {
    let world = World::new();
    let client = warm(&world);
    let file = client.create(Wait::Never, &ROOT, InodeId::ROOT, b"file", 0o600, 0).unwrap();
    for chunk in 0..3u64 {
        client.write(Wait::Never, file.ino, chunk * 100, &[chunk as u8; 100], false).unwrap();
    }
    let time = Some(Timestamp { secs: 1, nanos: 0 });
    for set in [
        SetAttr { mtime: time, atime: time, ..SetAttr::default() },
        SetAttr { uid: Some(5), gid: Some(6), ..SetAttr::default() },
        SetAttr { perm: Some(0o644), ..SetAttr::default() },
    ] {
        client.setattr(Wait::Never, file.ino, set).unwrap();
    }
    client.fsync(InodeId::ROOT).unwrap();
    let ops = world.group.applied.lock();
    assert!(
        matches!(&ops[..], [Op::Create { .. }, Op::Write { len: 300, .. }, Op::SetAttr { .. }]),
        "{ops:?}"
    );
}

#[test]
fn nothing_is_merged_across_a_change_of_flags() {
    let world = World::new();
    let client = warm(&world);
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).unwrap().ino;
    let append = |flags: InodeFlags| {
        client.set_inode_flags(WAIT, file, flags, 0).unwrap();
        client.append(WAIT, file, b"more", false).unwrap();
    };
    client.write(WAIT, file, 0, b"0123456789", false).unwrap();
    append(InodeFlags::APPEND);
    assert_eq!(client.write(WAIT, file, 0, b"x", false), Err(Failure::Errno(Errno::EPERM)));
    assert_eq!(client.write(WAIT, file, 14, b"x", false), Err(Failure::Errno(Errno::EPERM)), "not appended");
    assert_eq!(
        client.set_inode_flags(WAIT, file, InodeFlags::IMMUTABLE, 1000),
        Err(Failure::Errno(Errno::EPERM))
    );
    append(InodeFlags::default());
    client.write(WAIT, file, 0, b"x", false).unwrap();
    client.fsync(file).unwrap();
    let ops = world.group.applied.lock();
    let is_flags = |op: &Op| matches!(op, Op::SetFlags { .. });
    let positions: Vec<usize> = (0..ops.len()).filter(|at| is_flags(&ops[*at])).collect();
    assert_eq!(positions, [2, 4], "{ops:?}");
}

#[test]
fn append_only_file_outgrows_its_inline_bytes() {
    let world = World::new();
    let client = warm(&world);
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).unwrap().ino;
    client.write(WAIT, file, 0, b"first", false).unwrap();
    client.set_inode_flags(WAIT, file, InodeFlags::APPEND, 0).unwrap();
    let mut expected = b"first".to_vec();
    for n in 0..40u8 {
        client.append(WAIT, file, &[n; 5_000], false).unwrap();
        expected.extend([n; 5_000]);
    }
    client.fsync(file).expect("the servers refuse nothing");
    let parts = client.read(WAIT, file, 0, 1 << 20).unwrap();
    assert!(parts.concat() == expected);
}

#[test]
fn unnamed_file_is_sent_when_it_gets_a_name_and_never_heard_of_without_one() {
    let world = World::new();
    let client = warm(&world);
    for n in 0..10u8 {
        let file = client.create_unnamed(WAIT, &ROOT, InodeId::ROOT, 0o600, false).unwrap();
        assert_eq!(file.inode.nlink, 0);
        client.write(WAIT, file.ino, 0, &[n; 100_000], false).unwrap();
        client.forget(file.ino, 1);
    }
    client.fsync(InodeId::ROOT).unwrap();
    assert!(world.group.applied.lock().is_empty());
    let file = client.create_unnamed(WAIT, &ROOT, InodeId::ROOT, 0o600, false).unwrap();
    client.write(WAIT, file.ino, 0, b"content", false).unwrap();
    client.fsync(InodeId::ROOT).unwrap();
    let linked = client.link(WAIT, file.ino, InodeId::ROOT, b"name").unwrap();
    assert_eq!((linked.ino, linked.inode.nlink), (file.ino, 1));
    client.forget(file.ino, 2);
    client.fsync(InodeId::ROOT).unwrap();
    assert_eq!(client.read(WAIT, file.ino, 0, 100).unwrap().concat(), b"content");
    let other = world.mount();
    let found = other.lookup(WAIT, InodeId::ROOT, b"name").unwrap().expect("it has a name");
    assert_eq!(other.read(WAIT, found.ino, 0, 100).unwrap().concat(), b"content");
}

#[test]
fn a_temporary_file_is_never_heard_of() {
    let world = World::new();
    let client = warm(&world);
    for n in 0..10 {
        let name = format!("tmp{n}");
        let file = client.create(WAIT, &ROOT, InodeId::ROOT, name.as_bytes(), 0o600, 0).unwrap();
        client.write(WAIT, file.ino, 0, &vec![1; 100_000], false).unwrap();
        client.unlink(WAIT, InodeId::ROOT, name.as_bytes()).unwrap();
        client.forget(file.ino, 1);
    }
    client.fsync(InodeId::ROOT).unwrap();
    let ops = world.group.applied.lock();
    assert!(ops.iter().all(|op| matches!(op, Op::SetAttr { ino: InodeId::ROOT, .. })), "{ops:?}");
    assert!(ops.len() <= 2, "{ops:?}");
}

#[test]
fn an_open_file_survives_its_last_name_until_it_is_forgotten() {
    let world = World::new();
    let client = warm(&world);
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"open", 0o600, 0).unwrap();
    client.fsync(file.ino).unwrap();
    client.unlink(WAIT, InodeId::ROOT, b"open").unwrap();
    client.fsync(InodeId::ROOT).unwrap();
    client.write(WAIT, file.ino, 0, b"still here", false).unwrap();
    client.fsync(InodeId::ROOT).unwrap();
    assert_eq!(client.read(WAIT, file.ino, 0, 100).unwrap().concat(), b"still here");
    assert_eq!(client.getattr(WAIT, file.ino).unwrap().nlink, 0);
    client.forget(file.ino, 1);
    client.fsync(InodeId::ROOT).unwrap();
    assert!(matches!(world.group.applied.lock().last(), Some(Op::Forget { .. })));
    assert_eq!(client.getattr(WAIT, file.ino), Err(Failure::Errno(Errno::ENOENT)));
}

#[test]
fn a_renamed_file_is_committed_after_its_content() {
    let world = World::new();
    let client = warm(&world);
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"new", 0o600, 0).unwrap();
    client.write(WAIT, file.ino, 0, &vec![7; 5 << 20], false).unwrap();
    let (root, flags) = (InodeId::ROOT, RenameFlags::default());
    client.rename(WAIT.by(1), root, b"new", root, b"current", flags).unwrap();
    client.fsync(InodeId::ROOT).unwrap();
    let ops = world.group.applied.lock();
    let rename = ops.iter().position(|op| matches!(op, Op::Rename { .. })).unwrap();
    let written: u64 =
        ops[..rename].iter().map(|op| if let Op::Write { len, .. } = op { *len } else { 0 }).sum();
    assert_eq!(written, 5 << 20);
    for op in ops.iter() {
        if let Op::Write { content: Some(Extent::Block(block)), .. } = op {
            assert!(world.bricks.blocks.lock().contains_key(&block.id), "{block:?} was not durable");
        }
    }
}

#[test]
fn small_appends_to_a_large_file_travel_inline() {
    let world = World::new();
    let client = warm(&world);
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"log", 0o600, 0).unwrap();
    client.write(WAIT, file.ino, 0, &vec![1; 100_000], false).unwrap();
    client.fsync(file.ino).unwrap();
    let blocks = world.bricks.blocks.lock().len();
    for n in 0..5u64 {
        client.write(WAIT, file.ino, 100_000 + n * 10, &[2; 10], false).unwrap();
        client.fsync(file.ino).unwrap();
    }
    assert_eq!(world.bricks.blocks.lock().len(), blocks);
    assert_eq!(client.read(WAIT, file.ino, 99_999, 100).unwrap().concat()[..3], [1, 2, 2]);
}

#[test]
fn small_writes_within_a_large_file_fill_blocks_if_they_are_sequential() {
    let world = World::new();
    let client = warm(&world);
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"image", 0o600, 0).unwrap().ino;
    client.fallocate(WAIT, file, 0, 1 << 20, Fallocate::Allocate { keep_size: false }).unwrap();
    client.fsync(file).unwrap();
    let stored = || world.bricks.blocks.lock().len();
    let inline = || {
        let ops = std::mem::take(&mut *world.group.applied.lock());
        let bytes = ops.iter().map(|op| match op {
            Op::Write { content: Some(Extent::Inline(bytes)), .. } => bytes.len(),
            _ => 0,
        });
        bytes.sum::<usize>()
    };
    // Every second kilobyte, then all of them one after the other.
    (0..512u64).for_each(|n| client.write(WAIT, file, n * 2048, &[1; 1024], false).unwrap());
    client.fsync(file).unwrap();
    assert_eq!((stored(), inline()), (0, 512 << 10));
    (0..1024u64).for_each(|n| client.write(WAIT, file, n * 1024, &[2; 1024], false).unwrap());
    client.fsync(file).unwrap();
    let (blocks, bytes) = (stored(), inline());
    assert!((1..=8).contains(&blocks) && bytes <= 64 << 10, "{blocks} blocks, {bytes} bytes inline");
    // Few writes between two fsync(2)s travel with the operations, as those of a database's log.
    for n in 0..64u64 {
        client.write(WAIT, file, n * 1024, &[3; 1024], false).unwrap();
        client.fsync(file).unwrap();
    }
    assert_eq!((stored(), inline()), (blocks, 64 << 10));
    let content = client.read(WAIT, file, 0, 1 << 20).unwrap().concat();
    assert!(content[..64 << 10].iter().all(|byte| *byte == 3) && content[64 << 10..].iter().all(|b| *b == 2));
}

#[test]
fn a_batch_of_many_small_appends_stays_small() {
    let world = World::with_inline(64 << 10);
    let client = warm(&world);
    let files: Vec<_> = (0..300)
        .map(|n| {
            let name = format!("log{n}");
            let file = client.create(WAIT, &ROOT, InodeId::ROOT, name.as_bytes(), 0o600, 0).unwrap();
            client.write(WAIT, file.ino, 0, &vec![1; 70_000], false).unwrap();
            file.ino
        })
        .collect();
    client.fsync(InodeId::ROOT).unwrap();
    for ino in &files {
        client.write(WAIT, *ino, 70_000, &vec![2; 60_000], false).unwrap();
    }
    client.fsync(InodeId::ROOT).unwrap();
    let largest = world.group.largest.load(Ordering::SeqCst);
    assert!(largest < 4 << 20, "a batch of {largest} bytes");
    for ino in &files {
        assert_eq!(client.read(WAIT, *ino, 69_999, 2).unwrap().concat(), [1, 2]);
    }
}

#[test]
fn a_full_volume_refuses_writes_and_takes_removals() {
    let world = World::new();
    let client = warm(&world);
    let keep = client.create(WAIT, &ROOT, InodeId::ROOT, b"keep", 0o600, 0).unwrap();
    world.group.free_bytes.store(0, Ordering::SeqCst);
    let mut written = 0u64;
    let refusal = loop {
        match client.write(WAIT, keep.ino, written, &vec![1; 1 << 20], false) {
            Ok(()) => written += 1 << 20,
            Err(error) => break error,
        }
    };
    assert_eq!(refusal, Failure::Errno(Errno::ENOSPC));
    assert_eq!(client.getattr(WAIT, keep.ino).unwrap().size, written);
    client.fsync(keep.ino).unwrap();
    client.unlink(WAIT, InodeId::ROOT, b"keep").unwrap();
    client.fsync(InodeId::ROOT).unwrap();
    world.group.free_bytes.store(1 << 30, Ordering::SeqCst);
    client.create(WAIT, &ROOT, InodeId::ROOT, b"again", 0o600, 0).unwrap();
    client.fsync(InodeId::ROOT).unwrap();
}

#[test]
fn unreported_loss_is_reported_by_close() {
    let world = World::new();
    for told in [false, true] {
        let client = warm(&world);
        let first = client.session();
        client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).unwrap();
        world.group.fence(first);
        while client.session() == first {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if told {
            assert_eq!(client.fsync(InodeId::ROOT), Err(Errno::EIO));
        }
        assert_eq!(client.close(), if told { Ok(()) } else { Err(Errno::EIO) });
    }
}

#[test]
fn a_block_that_cannot_be_stored_fails_the_fsync_and_is_never_named() {
    let world = World::new();
    let client = warm(&world);
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).unwrap();
    client.fsync(file.ino).unwrap();
    world.group.applied.lock().clear();
    world.bricks.broken.store(true, Ordering::SeqCst);
    client.write(WAIT, file.ino, 0, &vec![1; 100_000], false).unwrap();
    assert_eq!(client.fsync(file.ino), Err(Errno::EIO));
    assert_eq!(world.group.applied.lock().len(), 0);
}

#[test]
fn deletion_of_a_block_that_hangs_does_not_delay_stores() {
    // More than there are threads that store blocks.
    const FILES: u8 = 10;
    let world = World::new();
    let client = world.mount_with(Options { journal_age_max: Duration::from_secs(60), ..Options::default() });
    let stored =
        || client.stats().iter().find(|stat| stat.name == "blocks_put_total").expect("counted").value;
    world.bricks.hangs.store(true, Ordering::SeqCst);
    let are_stored = (1..=FILES).all(|n| {
        let ino = client.create(WAIT, &ROOT, InodeId::ROOT, &[n + b'a'], 0o100644, 0).expect("made").ino;
        client.write(WAIT, ino, 0, &vec![n; 4 << 20], false).expect("written");
        let begun = Instant::now();
        while stored() < n.into() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(2));
        }
        client.unlink(WAIT, InodeId::ROOT, &[n + b'a']).expect("removed");
        client.forget(ino, 1);
        stored() == n.into()
    });
    world.bricks.hangs.store(false, Ordering::SeqCst);
    assert!(are_stored, "{} blocks are stored", stored());
    client.close().expect("closed");
}

#[test]
fn after_close_everything_is_at_the_server_and_calls_fail() {
    let world = World::new();
    let client = warm(&world);
    client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).unwrap();
    client.close().unwrap();
    assert_eq!(client.getattr(WAIT, InodeId::ROOT), Err(Failure::Errno(Errno::ENOTCONN)));
    let next = world.mount();
    assert!(next.lookup(WAIT, InodeId::ROOT, b"file").unwrap().is_some());
}

#[test]
fn journal_has_an_age_only_while_something_is_uncommitted() {
    let world = World::new();
    let client = warm(&world);
    let age_ms = |client: &shoal_client::Client| {
        let stats = client.stats();
        stats.iter().find(|stat| stat.name == "journal_age_ms").expect("it is counted").value
    };
    client.fsync(InodeId::ROOT).unwrap();
    assert_eq!(age_ms(&client), 0);
    // A batch may be committed before the age is read.
    let ages = (0..500).map(|n| {
        client.create(WAIT, &ROOT, InodeId::ROOT, format!("file{n}").as_bytes(), 0o600, 0).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        age_ms(&client)
    });
    assert!(ages.into_iter().any(|age| age > 0));
    client.fsync(InodeId::ROOT).unwrap();
    assert_eq!(age_ms(&client), 0);
}

#[test]
fn an_unsynced_change_reaches_the_server_by_itself() {
    let world = World::new();
    let client = warm(&world);
    client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).unwrap();
    for _ in 0..500 {
        if !world.group.applied.lock().is_empty() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nothing arrived within five seconds");
}

#[test]
fn what_is_changed_gets_the_time_of_the_servers_wherever_their_clock_goes() {
    let world = World::new();
    let ahead = |secs| world.group.ahead_secs.store(secs, Ordering::SeqCst);
    ahead(3600);
    let client = world.mount();
    // The clocks are read one after the other, hence a second more or less.
    let is_theirs = |time: Timestamp| world.group.now().secs.abs_diff(time.secs) <= 1;
    let file = client.create(WAIT, &ROOT, InodeId::ROOT, b"file", 0o600, 0).unwrap();
    let made = client.getattr(WAIT, file.ino).unwrap();
    assert!(is_theirs(made.mtime) && is_theirs(made.ctime), "{made:?}");
    // Another server leads, and is asked for more inode numbers before a call has to wait for them.
    ahead(-3600);
    assert!(is_theirs(Timestamp { secs: client.now().secs - 7200, ..made.mtime }));
    for n in 0..1000 {
        let name = format!("another{n}");
        client.create(WAIT, &ROOT, InodeId::ROOT, name.as_bytes(), 0o600, 0).unwrap();
    }
    client.fsync(InodeId::ROOT).unwrap();
    client.write(WAIT, file.ino, 0, b"content", false).unwrap();
    let written = client.getattr(WAIT, file.ino).unwrap();
    assert!(is_theirs(written.mtime) && is_theirs(written.ctime), "{written:?}");
}
