//! A client to which the servers deny its volume by a typed answer, as opposed to silence.

#[path = "support/cut.rs"]
mod cut;
#[path = "support/relay.rs"]
mod relay;
mod support;

use cut::{Cut, Only};
use shoal_client::{Caller, Client, Failure, Lock, LockKind, LockRange, LockSpace, LockWait, Options, Wait};
use shoal_meta::Server;
use shoal_types::{Errno, InodeId};
use shoal_wire::{MetaError, Reason};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const ROOT: InodeId = InodeId::ROOT;
const WAIT: Wait = Wait::Allowed;
/// Longer than any step takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than denials must keep coming before they end a session.
const LONGER_THAN_GRACE: Duration = Duration::from_millis(3500);

struct World {
    client: Arc<Client>,
    transport: Arc<Cut>,
    server: Arc<Server>,
    bricks: Arc<support::Bricks>,
    _dir: TempDir,
}

impl World {
    fn new() -> World {
        let (dir, bricks, server) = relay::server();
        let transport = Cut::new(server.clone());
        let replicas = Arc::new(Only(transport.clone()));
        let client =
            Client::open_replicated(replicas, bricks.clone(), Options::default()).expect("a session");
        World { client, transport, server, bricks, _dir: dir }
    }

    fn make(&self, name: &[u8]) -> InodeId {
        self.client.create(WAIT, &CALLER, ROOT, name, 0o100644, 0).expect("made").ino
    }

    fn end(self) {
        self.client.close().expect("everything is committed, or was told");
        self.server.shutdown();
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn calls_of_a_denied_client_fail_and_it_works_again_when_it_is_served_again() {
    let world = World::new();
    let file = world.make(b"file");
    world.client.fsync(ROOT).expect("committed");
    for (reason, errno) in
        [(Reason::VolumeStopped, Errno::ENOTCONN), (Reason::AddressNotAllowed, Errno::EACCES)]
    {
        let session = world.client.session();
        world.transport.deny(Some(reason), 1);
        assert_eq!(world.client.fsync(file), Ok(()), "there is nothing to commit");
        // Waits until the denials have decided.
        assert_eq!(world.client.statfs(WAIT), Err(Failure::Errno(errno)));
        assert_eq!(world.client.getattr(WAIT, file), Err(Failure::Errno(errno)), "{reason:?}");
        assert_eq!(world.client.write(WAIT, file, 0, b"x", false), Err(Failure::Errno(errno)));
        assert_eq!(world.client.denial().map(|(denial, lost)| (denial.reason, lost)), Some((reason, 0)));
        world.transport.deny(None, 0);
        eventually("another session", || world.client.session() != session);
        assert_eq!(world.client.denial(), None);
        world.client.getattr(WAIT, file).expect("it works again");
        world.client.fsync(file).expect("nothing was lost");
    }
    world.end();
}

#[test]
fn what_a_denied_client_had_not_committed_is_lost_and_reported() {
    let world = World::new();
    let file = world.make(b"file");
    world.client.fsync(ROOT).expect("committed");
    let session = world.client.session();
    world.transport.swallow(true);
    world.make(b"lost");
    world.transport.deny(Some(Reason::VolumeStopped), 1);
    assert_eq!(world.client.fsync(ROOT), Err(Errno::ENOTCONN));
    assert_eq!(world.client.denial().map(|(_, lost)| lost), Some(1));
    world.transport.swallow(false);
    world.transport.deny(None, 0);
    eventually("another session", || world.client.session() != session);
    assert_eq!(world.client.lookup(WAIT, ROOT, b"lost"), Ok(None));
    assert_eq!(world.client.fsync(file), Err(Errno::EIO), "what was open hears of the loss");
    assert_eq!(world.client.fsync(ROOT), Err(Errno::EIO));
    world.end();
}

#[test]
fn an_administrator_who_takes_a_step_back_at_once_ends_no_session() {
    let world = World::new();
    let session = world.client.session();
    world.transport.deny(Some(Reason::VolumeStopped), 1);
    std::thread::sleep(Duration::from_millis(500));
    world.transport.deny(None, 0);
    world.make(b"file");
    world.client.fsync(ROOT).expect("committed");
    assert_eq!(world.client.session(), session);
    world.end();
}

#[test]
fn a_server_with_an_older_map_than_the_client_knows_ends_no_wait() {
    let world = World::new();
    let session = world.client.session();
    world.transport.knows(7);
    world.transport.deny(Some(Reason::VolumeDeleted), 6);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| world.client.statfs(WAIT));
        std::thread::sleep(LONGER_THAN_GRACE);
        assert!(!waits.is_finished(), "only a server that knows may end a wait");
        world.transport.deny(None, 0);
        waits.join().expect("no panic").expect("it has waited");
    });
    assert_eq!(world.client.session(), session);
    world.end();
}

#[test]
fn a_call_that_waits_for_another_client_ends_with_the_denial() {
    let world = World::new();
    let file = world.make(b"file");
    world.client.fsync(ROOT).expect("committed");
    let other =
        Client::open(world.server.clone(), world.bricks.clone(), Options::default()).expect("a session");
    let lock = |owner| Lock {
        ino: file,
        space: LockSpace::Posix,
        owner,
        pid: 1,
        range: LockRange::ALL,
        kind: LockKind::Write,
    };
    other.lock(&lock(1), None).expect("it is free");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| world.client.lock(&lock(2), Some(&LockWait::default())));
        std::thread::sleep(Duration::from_millis(200));
        world.transport.deny(Some(Reason::VolumeStopped), 1);
        eventually("the end of the wait", || waits.is_finished());
        assert_eq!(waits.join().expect("no panic"), Err(Errno::ENOTCONN));
    });
    other.close().expect("closed");
    world.end();
}

#[test]
fn a_final_denial_is_final_and_the_mount_can_be_ended() {
    let world = World::new();
    let session = world.client.session();
    world.transport.deny(Some(Reason::VolumeDeleted), 1);
    assert_eq!(world.client.statfs(WAIT), Err(Failure::Errno(Errno::ENOTCONN)));
    world.transport.deny(None, 0);
    std::thread::sleep(LONGER_THAN_GRACE);
    assert_eq!(world.client.session(), session, "a volume that was deleted does not come back");
    assert_eq!(world.client.statfs(WAIT), Err(Failure::Errno(Errno::ENOTCONN)));
    world.end();
}

#[test]
fn a_denied_client_is_told_at_once_when_it_opens_its_session() {
    let (_dir, bricks, server) = relay::server();
    let transport = Cut::new(server.clone());
    transport.deny(Some(Reason::ClientRevoked), 1);
    let begun = Instant::now();
    let refused = Client::open_replicated(Arc::new(Only(transport)), bricks, Options::default());
    let Err(MetaError::Denied(denial)) = refused.map(drop) else { panic!("it was served") };
    assert_eq!(denial.reason, Reason::ClientRevoked);
    assert!(begun.elapsed() < Duration::from_secs(2), "it took {:?}", begun.elapsed());
    server.shutdown();
}
