//! Mapping locks: of two clients that have a file open for reading and writing, one may map it.

#[path = "support/relay.rs"]
mod relay;
mod support;

use shoal_client::{Caller, Client, Creation, Failure, Options, Wait};
use shoal_types::InodeId;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

#[test]
fn a_file_that_two_clients_have_open_for_writing_is_mapped_by_one() {
    let wait = Wait::Allowed;
    let (_dir, bricks, server) = relay::server();
    let [one, other] = ["one", "other"].map(|name| {
        let options = Options { name: name.into(), ..Options::default() };
        Client::open(server.clone(), bricks.clone(), options).expect("a session")
    });
    let (caller, parent, name, mode) = (&CALLER, InodeId::ROOT, b"f", 0o100644);
    let creation = Creation { caller, parent, name, mode, exclusive: true, mappable: true };
    let ino = one.create_open(wait.by(1), &creation).expect("new").ino;
    assert_eq!(one.open_mappable(Wait::Never, ino), Ok(true), "once more");
    // That the other client finds the file tells the servers of the lock.
    let found = other.lookup(wait, parent, name).expect("answered");
    assert_eq!(found.map(|entry| entry.ino), Some(ino));
    assert_eq!(other.open_mappable(Wait::Never, ino), Err(Failure::WouldBlock));
    assert_eq!(other.open_mappable(wait, ino), Ok(false));
    assert_eq!(one.close_mappable(Wait::Never, ino), Ok(()));
    assert_eq!(other.open_mappable(wait, ino), Ok(false), "it is open once yet");
    assert_eq!(one.close_mappable(Wait::Never, ino), Err(Failure::WouldBlock));
    assert_eq!(one.close_mappable(wait, ino), Ok(()));
    assert_eq!(other.open_mappable(wait, ino), Ok(true));
    assert_eq!(one.open_mappable(wait, ino), Ok(false));
    assert_eq!(other.open_mappable(Wait::Never, ino), Ok(true), "without a request");
    assert!([&one, &other].iter().all(|client| !client.has_lost_mapping_lock(ino)));
    (0..2).for_each(|_| other.close_mappable(wait, ino).expect("closed"));
    assert_eq!(one.open_mappable(wait, ino), Ok(true));
    one.close_mappable(wait, ino).expect("closed");
    [one, other].into_iter().for_each(|client| client.close().expect("closed"));
    server.shutdown();
}
