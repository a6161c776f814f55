//! A name that another client replaces while its inode is being asked for. The name exists at every moment,
//! so it is always found.

#[path = "support/relay.rs"]
mod relay;
mod support;

use relay::{Relay, Transport};
use shoal_client::{Caller, Client, Options, Wait};
use shoal_meta::Server;
use shoal_namespace::RenameFlags;
use shoal_types::{Cookie, InodeId};
use shoal_wire::{Done, MetaService, Query, ReadReply, ReadRequest};
use std::ops::ControlFlow;
use std::sync::Arc;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const ROOT: InodeId = InodeId::ROOT;

type Hook = Box<dyn FnOnce() + Send>;

/// A server in front of which something happens, once, when an inode is asked for.
struct Delayed {
    server: Arc<Server>,
    hook: parking_lot::Mutex<Option<Hook>>,
}

impl Transport for Delayed {
    fn server(&self) -> &Arc<Server> {
        &self.server
    }

    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        let hook = match request.query {
            Query::Inode(_) => self.hook.lock().take(),
            _ => None,
        };
        let Some(hook) = hook else { return self.server.read(request, done) };
        let server = self.server.clone();
        std::thread::spawn(move || {
            hook();
            server.read(request, done);
        });
    }
}

fn list(client: &Client) -> usize {
    let mut seen = 0;
    let mut visit = |_: &shoal_types::Name, _, _: Option<&shoal_types::Inode>| {
        seen += 1;
        ControlFlow::Continue(())
    };
    client.readdir(Wait::Allowed, ROOT, Cookie::START, false, &mut visit).expect("listed");
    seen
}

/// Does something on one client while another one looks up the name `x`, and returns what the lookup finds.
fn meanwhile(work: impl FnOnce(&Client) + Send + 'static) -> Result<Option<InodeId>, shoal_client::Failure> {
    let (_dir, bricks, server) = relay::server();
    let delayed = Arc::new(Relay(Delayed { server: server.clone(), hook: parking_lot::Mutex::new(None) }));
    let looks = Client::open(delayed.clone(), bricks.clone(), Options::default()).expect("a session");
    let works = Client::open(server.clone(), bricks, Options::default()).expect("a session");
    let made = works.create(Wait::Allowed, &CALLER, ROOT, b"x", 0o100644, 0).expect("new");
    works.create(Wait::Allowed, &CALLER, ROOT, b"y", 0o100644, 0).expect("new");
    // The client that looks keeps the name, and the inode is recalled.
    assert_eq!(list(&looks), 2);
    works.write(Wait::Allowed, made.ino, 0, b"content", false).expect("written");
    works.forget(made.ino, 1);
    let worker = works.clone();
    *delayed.0.hook.lock() = Some(Box::new(move || work(&worker)));
    let found = looks.lookup(Wait::Allowed, ROOT, b"x");
    assert!(delayed.0.hook.lock().is_none(), "the inode was asked for");
    for client in [looks, works] {
        client.close().expect("closed");
    }
    server.shutdown();
    found.map(|found| found.map(|entry| entry.ino))
}

#[test]
fn a_name_that_is_replaced_while_its_inode_is_asked_for_is_found() {
    let found = meanwhile(|works| {
        works.rename(Wait::Allowed.by(1), ROOT, b"y", ROOT, b"x", RenameFlags::default()).expect("renamed");
        works.fsync(ROOT).expect("committed");
    });
    assert!(matches!(found, Ok(Some(_))), "{found:?}");
}

#[test]
fn name_removed_while_its_inode_is_fetched_is_absent() {
    let found = meanwhile(|works| {
        works.unlink(Wait::Allowed, ROOT, b"x").expect("removed");
        works.fsync(ROOT).expect("committed");
    });
    assert_eq!(found, Ok(None));
}
