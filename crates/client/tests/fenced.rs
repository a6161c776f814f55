//! A client whose session the servers have ended. What it had not committed is lost, and the loss is
//! reported. Then the client works again, and sees what the other client has done meanwhile.

#[path = "support/cut.rs"]
mod cut;
#[path = "support/relay.rs"]
mod relay;
mod support;

use cut::{Cut, Only};
use parking_lot::Mutex;
use shoal_client::{
    Caller, Client, Creation, Failure, Fallocate, KernelCache, Lock, LockKind, LockRange, LockSpace,
    LockWait, Options, Stale, Wait,
};
use shoal_meta::Server;
use shoal_namespace::{RenameFlags, SetAttr};
use shoal_types::{Errno, InodeId, SessionId};
use shoal_wire::MetaService;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const ROOT: InodeId = InodeId::ROOT;
const WAIT: Wait = Wait::Allowed;
const EIO: Failure = Failure::Errno(Errno::EIO);
/// A silent session whose rights are wanted is ended after this.
const DEAD_AFTER: Duration = Duration::from_secs(3);
/// Longer than any step takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two clients of a server; the connection of the second can be cut.
struct World {
    one: Arc<Client>,
    cut_off: Arc<Client>,
    transport: Arc<Cut>,
    server: Arc<Server>,
    _dir: TempDir,
}

impl World {
    fn new() -> World {
        let options =
            shoal_meta::Options { session_dead_after: Some(DEAD_AFTER), ..shoal_meta::Options::default() };
        let (dir, bricks, server) = relay::server_with(options);
        let options = |name: &str| Options { name: name.into(), ..Options::default() };
        let one = Client::open(server.clone(), bricks.clone(), options("one")).expect("a session");
        let transport = Cut::new(server.clone());
        let replicas = Arc::new(Only(transport.clone()));
        let cut_off = Client::open_replicated(replicas, bricks, options("cut off")).expect("a session");
        World { one, cut_off, transport, server, _dir: dir }
    }

    /// From now on nothing that the second client does is committed.
    fn swallow(&self) {
        self.transport.swallow(true);
    }

    /// The servers end the second client's session, and it begins another.
    fn fence(&self) {
        let ended = self.cut_off.session();
        self.server.close_session(ended).expect("ended");
        self.wait_for_next(ended);
    }

    fn wait_for_next(&self, ended: SessionId) {
        eventually("another session", || self.cut_off.session() != ended);
        self.transport.swallow(false);
    }

    fn end(self) {
        let World { one, cut_off, server, .. } = self;
        cut_off.close().expect("everything is committed, and what was lost has been said");
        one.close().expect("closed");
        server.shutdown();
    }
}

#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn create(client: &Client, name: &[u8]) -> InodeId {
    client.create(WAIT, &CALLER, ROOT, name, 0o100644, 0).expect("made").ino
}

fn find(client: &Client, name: &[u8]) -> Option<InodeId> {
    client.lookup(WAIT, ROOT, name).expect("answered").map(|entry| entry.ino)
}

fn read(client: &Client, ino: InodeId) -> Vec<u8> {
    client.read(WAIT, ino, 0, 100).expect("read").concat()
}

fn stat(client: &Client, name: &str) -> u64 {
    client.stats().iter().find(|stat| stat.name == name).expect("counted").value
}

#[test]
fn a_mount_whose_session_was_ended_works_again_without_being_mounted_anew() {
    let world = World::new();
    let (one, cut_off) = (&world.one, &world.cut_off);
    let kept = create(cut_off, b"kept");
    cut_off.write(WAIT, kept, 0, b"old", false).expect("written");
    cut_off.fsync(kept).expect("durable");
    let ended = cut_off.session();
    world.transport.set(true);
    let lost = create(cut_off, b"lost");
    cut_off.write(WAIT, kept, 0, b"lost", false).expect("written");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| cut_off.fsync(kept));
        // Waits until the silent session has been ended.
        assert_eq!(find(one, b"kept"), Some(kept));
        assert_eq!(read(one, kept), b"old");
        one.write(WAIT, kept, 0, b"new", false).expect("written");
        let other = create(one, b"other");
        one.fsync(other).expect("durable");
        world.transport.set(false);
        assert_eq!(waits.join().expect("no panic"), Err(Errno::EIO), "the waiting call fails");
    });
    world.wait_for_next(ended);
    // What the other client has done is there, and what was not committed is not.
    assert_eq!(read(cut_off, kept), b"new");
    assert_eq!(find(cut_off, b"lost"), None);
    assert!(find(cut_off, b"other").is_some());
    assert_eq!(cut_off.getattr(WAIT, lost), Err(Failure::Errno(Errno::ENOENT)));
    // The loss is reported once for every file that was open.
    for ino in [kept, lost, ROOT] {
        assert_eq!(cut_off.fsync(ino), Err(Errno::EIO));
        assert_eq!(cut_off.fsync(ino), Ok(()));
    }
    assert_eq!(cut_off.write(WAIT, kept, 0, b"two", false), Err(EIO));
    cut_off.write(WAIT, kept, 0, b"two", false).expect("written");
    assert_eq!(read(one, kept), b"two");
    let more = create(cut_off, b"more");
    cut_off.fsync(more).expect("durable");
    assert_eq!(find(one, b"more"), Some(more));
    assert_eq!(stat(cut_off, "sessions_ended_total"), 1);
    assert!(stat(cut_off, "journal_operations_total") >= 6, "what was counted before still counts");
    world.end();
}

#[test]
fn whatever_was_open_hears_once_of_a_loss_and_what_was_opened_later_does_not() {
    let world = World::new();
    let cut_off = &world.cut_off;
    let (written, clean) = (create(cut_off, b"written"), create(cut_off, b"clean"));
    let later = create(cut_off, b"later");
    cut_off.write(WAIT, clean, 0, b"bytes", false).expect("written");
    cut_off.fsync(ROOT).expect("durable");
    cut_off.forget(later, 1);
    world.swallow();
    let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    cut_off.setattr(WAIT, written, set(10)).expect("longer");
    world.fence();
    // Every kind of change to its content would continue after a missing part.
    let allocate = Fallocate::Allocate { keep_size: false };
    let changes: [&dyn Fn() -> Result<(), Failure>; 5] = [
        &|| cut_off.write(WAIT, written, 0, b"x", false),
        &|| cut_off.append(WAIT, written, b"x", false).map(drop),
        &|| cut_off.setattr(WAIT, written, set(1)).map(drop),
        &|| cut_off.fallocate(WAIT, written, 0, 10, allocate),
        &|| cut_off.copy_file_range(WAIT, clean, 0, written, 0, 1).map(drop),
    ];
    for change in changes {
        assert_eq!(change(), Err(EIO));
        change().expect("it was told");
        cut_off.fsync(written).expect_err("it is told of the first loss and of the next ones");
        world.swallow();
        cut_off.write(WAIT, written, 0, b"lost", false).expect("written");
        world.fence();
    }
    cut_off.write(WAIT, clean, 0, b"x", false).expect("nothing of it was lost");
    for ino in [clean, written, ROOT] {
        assert_eq!(cut_off.fsync(ino), Err(Errno::EIO));
    }
    assert_eq!(find(cut_off, b"later"), Some(later));
    for ino in [clean, written, later] {
        assert_eq!(cut_off.fsync(ino), Ok(()));
    }
    world.end();
}

#[test]
fn where_nothing_was_lost_nothing_fails() {
    let world = World::new();
    let cut_off = &world.cut_off;
    let file = create(cut_off, b"file");
    cut_off.write(WAIT, file, 0, b"bytes", false).expect("written");
    cut_off.fsync(file).expect("durable");
    for round in 1..=3 {
        world.fence();
        cut_off.fsync(file).expect("nothing was lost");
        cut_off.write(WAIT, file, round, b"bytes", false).expect("written");
        cut_off.fsync(ROOT).expect("durable");
        assert_eq!(world.one.getattr(WAIT, file).expect("there").size, 5 + round);
    }
    world.end();
}

#[test]
fn it_happens_again_and_again_and_each_time_exactly_what_was_not_committed_is_lost() {
    let world = World::new();
    let (one, cut_off) = (&world.one, &world.cut_off);
    let dir = cut_off.create(WAIT, &CALLER, ROOT, b"dir", 0o040755, 0).expect("made").ino;
    let mut kept = Vec::new();
    for round in 0..10 {
        let name = |what: &str| format!("{what}{round}").into_bytes();
        cut_off.create(WAIT, &CALLER, dir, &name("kept"), 0o100644, 0).expect("made");
        kept.push(name("kept"));
        cut_off.fsync(dir).expect("durable");
        // The other client reads it periodically.
        if round % 3 == 1 {
            assert!(one.lookup(WAIT, dir, &name("kept")).expect("answered").is_some());
        }
        world.swallow();
        cut_off.create(WAIT, &CALLER, dir, &name("lost"), 0o100644, 0).expect("made");
        let flags = RenameFlags::default();
        cut_off.rename(WAIT.by(1), dir, &name("kept"), dir, &name("moved"), flags).expect("moved");
        world.fence();
        for client in [cut_off, one] {
            let there = |name: &[u8]| client.lookup(WAIT, dir, name).expect("answered").is_some();
            assert!(kept.iter().all(|name| there(name)));
            assert!(!there(&name("lost")) && !there(&name("moved")));
        }
        assert_eq!(cut_off.fsync(dir), Err(Errno::EIO));
    }
    assert_eq!(cut_off.fsync(ROOT), Err(Errno::EIO));
    assert_eq!(stat(cut_off, "sessions_ended_total"), 10);
    world.end();
}

#[test]
fn calls_that_wait_while_the_session_ends_fail_and_none_hangs() {
    let world = World::new();
    let (one, cut_off) = (&world.one, &world.cut_off);
    let files: Vec<InodeId> = (0..20u8).map(|n| create(cut_off, &[b'a' + n])).collect();
    cut_off.fsync(ROOT).expect("durable");
    for round in 0..5u8 {
        // The client that is cut off has lost its rights to these files, and would have to acquire them
        // again.
        for ino in &files {
            one.write(WAIT, *ino, 0, &[round; 10], false).expect("written");
        }
        world.swallow();
        let new = create(cut_off, &[b'A' + round]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Reads, writes and syncs over and over: each succeeds or fails with `EIO`. Returns how often it
            // failed.
            let work = |what: u8| {
                let (files, over) = (&files, &over);
                move || {
                    let mut failed = 0;
                    while !over.load(Ordering::SeqCst) {
                        for ino in files {
                            let outcome = match what {
                                0 => cut_off.read(WAIT, *ino, 0, 10).map(drop),
                                1 => cut_off.write(WAIT, *ino, 10, &[what; 10], false),
                                _ => cut_off.fsync(*ino).map_err(Into::into),
                            };
                            if let Err(failure) = outcome {
                                assert_eq!(failure, EIO);
                                failed += 1;
                            }
                        }
                    }
                    failed
                }
            };
            let workers = [0, 1, 2].map(|what| scope.spawn(work(what)));
            std::thread::sleep(Duration::from_millis(20));
            world.fence();
            over.store(true, Ordering::SeqCst);
            let [_, writes, syncs] = workers.map(|worker| worker.join().expect("no panic"));
            assert!(writes + syncs > 0, "no call failed");
        });
        assert_eq!(find(cut_off, &[b'A' + round]), None);
        let _ = cut_off.fsync(new);
        for ino in &files {
            let _ = cut_off.fsync(*ino);
            assert_eq!(cut_off.read(WAIT, *ino, 0, 10).expect("read").concat(), [round; 10]);
        }
        let _ = cut_off.fsync(ROOT);
    }
    world.end();
}

/// Counts invalidations of the whole cache.
#[derive(Default)]
struct Kernel {
    all: AtomicU64,
    inodes: Mutex<Vec<InodeId>>,
}

impl KernelCache for Kernel {
    fn invalidate(&self, _: &[Stale]) {}
    fn invalidate_all(&self, inodes: &[InodeId]) {
        self.all.fetch_add(1, Ordering::SeqCst);
        *self.inodes.lock() = inodes.to_vec();
    }
}

#[test]
fn the_kernel_forgets_everything_and_what_it_refers_to_outlives_its_name_afterwards_too() {
    let world = World::new();
    let (one, cut_off) = (&world.one, &world.cut_off);
    let kernel = Arc::new(Kernel::default());
    cut_off.set_kernel(kernel.clone());
    let dir = cut_off.create(WAIT, &CALLER, ROOT, b"dir", 0o040755, 0).expect("made").ino;
    let open = cut_off.create(WAIT, &CALLER, dir, b"open", 0o100644, 0).expect("made").ino;
    cut_off.write(WAIT, open, 0, b"bytes", false).expect("written");
    cut_off.fsync(open).expect("durable");
    world.fence();
    assert_eq!(kernel.all.load(Ordering::SeqCst), 1);
    let mut forgotten = std::mem::take(&mut *kernel.inodes.lock());
    forgotten.sort();
    assert_eq!(forgotten, [ROOT, dir, open]);
    assert!(cut_off.refers(open) && cut_off.refers(dir));
    // The file has not been used since.
    eventually("watched again", || stat(cut_off, "client_lookups_total") >= 2);
    one.unlink(WAIT, dir, b"open").expect("removed");
    one.fsync(ROOT).expect("durable");
    assert_eq!(read(cut_off, open), b"bytes");
    cut_off.forget(open, 1);
    assert!(!cut_off.refers(open));
    cut_off.fsync(ROOT).expect("nothing was lost");
    assert_eq!(cut_off.getattr(WAIT, open), Err(Failure::Errno(Errno::ENOENT)));
    world.end();
}

fn lock(ino: InodeId, owner: u64) -> Lock {
    let (space, kind, range) = (LockSpace::Posix, LockKind::Write, LockRange::ALL);
    Lock { ino, space, owner, pid: 1, range, kind }
}

#[test]
fn locks_end_with_the_session_and_new_ones_work() {
    let world = World::new();
    let (one, cut_off) = (&world.one, &world.cut_off);
    let file = create(cut_off, b"file");
    let other = create(cut_off, b"other");
    cut_off.fsync(file).expect("durable");
    cut_off.lock(&lock(file, 1), None).expect("free");
    one.lock(&lock(other, 1), None).expect("free");
    std::thread::scope(|scope| {
        let wait = Arc::new(LockWait::default());
        let waits = scope.spawn({
            let wait = wait.clone();
            move || cut_off.lock(&lock(other, 2), Some(&wait))
        });
        std::thread::sleep(Duration::from_millis(50));
        world.fence();
        assert_eq!(waits.join().expect("no panic"), Err(Errno::EIO));
        // The wait has ended already.
        cut_off.cancel_lock(&wait);
    });
    one.lock(&lock(file, 1), None).expect("free again");
    assert_eq!(cut_off.lock(&lock(file, 3), None), Err(Errno::EAGAIN));
    one.unlock(&lock(file, 1)).expect("given up");
    cut_off.lock(&lock(file, 3), None).expect("free");
    assert_eq!(one.lock(&lock(file, 1), None), Err(Errno::EAGAIN));
    world.end();
}

#[test]
fn mapping_locks_are_requested_again_unless_another_client_has_had_them() {
    let world = World::new();
    let (one, cut_off) = (&world.one, &world.cut_off);
    let open = |name| {
        let (caller, parent, mode) = (&CALLER, ROOT, 0o100644);
        let creation = Creation { caller, parent, name, mode, exclusive: true, mappable: true };
        cut_off.create_open(WAIT.by(1), &creation).expect("made").ino
    };
    let (kept, lost) = (open(b"kept"), open(b"lost"));
    cut_off.fsync(lost).expect("durable");
    assert_eq!((find(one, b"kept"), find(one, b"lost")), (Some(kept), Some(lost)));
    assert_eq!(one.open_mappable(WAIT, lost), Ok(false));
    let ended = cut_off.session();
    world.transport.set(true);
    world.server.close_session(ended).expect("ended");
    assert_eq!(one.open_mappable(WAIT, lost), Ok(true));
    world.transport.set(false);
    world.wait_for_next(ended);
    eventually("the one is requested again", || !cut_off.has_lost_mapping_lock(kept));
    assert!(cut_off.has_lost_mapping_lock(lost));
    assert_eq!(one.open_mappable(WAIT, kept), Ok(false));
    one.close_mappable(WAIT, lost).expect("closed");
    world.fence();
    assert!(cut_off.has_lost_mapping_lock(lost), "another client has had it");
    assert!(!cut_off.has_lost_mapping_lock(kept));
    [kept, lost].into_iter().for_each(|ino| cut_off.close_mappable(WAIT, ino).expect("closed"));
    assert!(!cut_off.has_lost_mapping_lock(lost));
    assert_eq!(one.open_mappable(WAIT, kept), Ok(true));
    one.close_mappable(WAIT, kept).expect("closed");
    world.end();
}

#[test]
fn a_mount_that_ends_while_its_session_has_ended_does_not_hang() {
    for moment in 0..4 {
        let world = World::new();
        let file = create(&world.cut_off, b"file");
        world.cut_off.fsync(file).expect("durable");
        world.swallow();
        world.cut_off.write(WAIT, file, 0, b"lost", false).expect("written");
        world.server.close_session(world.cut_off.session()).expect("ended");
        std::thread::sleep(Duration::from_millis(10 * moment));
        let begun = Instant::now();
        assert_eq!(world.cut_off.close(), Err(Errno::EIO), "something was lost and no call had failed");
        assert!(begun.elapsed() < PATIENCE / 2);
        world.one.close().expect("closed");
        world.server.shutdown();
    }
}
