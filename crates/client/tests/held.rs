//! Files that programs have open while their names are moved from client to client.

#[path = "support/relay.rs"]
mod relay;
mod support;

use shoal_client::{Caller, Client, Options, Wait};
use shoal_namespace::RenameFlags;
use shoal_types::InodeId;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const ROOT: InodeId = InodeId::ROOT;

#[test]
fn replaced_open_file_survives_although_the_moved_file_is_closed_at_once() {
    let (_dir, bricks, server) = relay::server();
    let open = || Client::open(server.clone(), bricks.clone(), Options::default()).expect("a session");
    let (ours, theirs) = (open(), open());
    let make = |name: &[u8]| ours.create(Wait::Allowed, &CALLER, ROOT, name, 0o100644, 0).expect("made").ino;
    let (moved, replaced) = (make(b"moved"), make(b"replaced"));
    ours.write(Wait::Allowed, replaced, 0, b"old", false).expect("written");
    // The other client learns that the file is open here.
    theirs.lookup(Wait::Allowed, ROOT, b"moved").expect("looked up").expect("there");
    let flags = RenameFlags::default();
    theirs.rename(Wait::Allowed.by(1), ROOT, b"moved", ROOT, b"again", flags).expect("renamed");

    ours.rename(Wait::Allowed.by(1), ROOT, b"again", ROOT, b"replaced", flags).expect("renamed");
    ours.forget(moved, 1);
    ours.write(Wait::Allowed, replaced, 0, b"new", false).expect("written");
    ours.fsync(replaced).expect("nothing is lost");
    let read = ours.read(Wait::Allowed, replaced, 0, 100).expect("read").concat();
    assert_eq!(read, b"new");
    ours.forget(replaced, 1);
    ours.close().expect("closed");
    theirs.close().expect("closed");
}
