//! A name that another client replaces while its inode is being asked for: it is there at every moment, so it is always found.

mod support;

use shoal_client::{Caller, Client, Options, Wait};
use shoal_meta::Server;
use shoal_namespace::RenameFlags;
use shoal_types::{BlockId, BlockInfo, Cookie, InodeId, SessionId, Statfs};
use shoal_wire::*;
use std::ops::ControlFlow;
use std::sync::Arc;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const ROOT: InodeId = InodeId::ROOT;

type Hook = Box<dyn FnOnce() + Send>;

/// A server on the way to which something happens, once, to a question for an inode.
struct Delayed {
    server: Arc<Server>,
    hook: parking_lot::Mutex<Option<Hook>>,
}

impl MetaService for Delayed {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        self.server.open_session(request)
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.server.close_session(session)
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        self.server.grant(grant)
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        self.server.submit(commit, done);
    }
    fn ask(&self, ask: Ask, done: Done<AskReply>) {
        let hook = match ask.question {
            Question::Inode(_) => self.hook.lock().take(),
            _ => None,
        };
        let Some(hook) = hook else { return self.server.ask(ask, done) };
        let server = self.server.clone();
        std::thread::spawn(move || {
            hook();
            server.ask(ask, done);
        });
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        self.server.acquire(acquire, done);
    }
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        self.server.recalls(poll, done);
    }
    fn declare(&self, declaration: Declaration) -> Result<(), MetaError> {
        self.server.declare(declaration)
    }
    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        self.server.lock(request, done);
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.server.blocks(session, ids)
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.server.statfs(session)
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

/// Does something on one client while another one asks for what the name `x` stands for, and answers what that one finds.
fn meanwhile(work: impl FnOnce(&Client) + Send + 'static) -> Result<Option<InodeId>, shoal_client::Failure> {
    let dir = tempfile::tempdir().expect("a directory");
    let bricks = Arc::new(support::Bricks::default());
    let options = shoal_meta::Options { create: Some(7), ..shoal_meta::Options::default() };
    let server = Server::open(dir.path(), bricks.clone(), options).expect("a server");
    let delayed = Arc::new(Delayed { server: server.clone(), hook: parking_lot::Mutex::new(None) });
    let looks = Client::open(delayed.clone(), bricks.clone(), Options::default()).expect("a session");
    let works = Client::open(server.clone(), bricks, Options::default()).expect("a session");
    let made = works.create(Wait::Allowed, &CALLER, ROOT, b"x", 0o100644, 0).expect("new");
    works.create(Wait::Allowed, &CALLER, ROOT, b"y", 0o100644, 0).expect("new");
    // The one that looks keeps the name, and the inode is taken back.
    assert_eq!(list(&looks), 2);
    works.write(Wait::Allowed, made.ino, 0, b"content", false).expect("written");
    works.forget(made.ino, 1);
    let worker = works.clone();
    *delayed.hook.lock() = Some(Box::new(move || work(&worker)));
    let found = looks.lookup(Wait::Allowed, ROOT, b"x");
    assert!(delayed.hook.lock().is_none(), "the inode was asked for");
    for client in [looks, works] {
        client.close().expect("closed");
    }
    server.shutdown();
    found.map(|found| found.map(|entry| entry.ino))
}

#[test]
fn a_name_that_is_replaced_while_its_inode_is_asked_for_is_found() {
    let found = meanwhile(|works| {
        works.rename(Wait::Allowed, ROOT, b"y", ROOT, b"x", RenameFlags::default()).expect("renamed");
        works.fsync(ROOT).expect("committed");
    });
    assert!(matches!(found, Ok(Some(_))), "{found:?}");
}

#[test]
fn a_name_that_is_removed_while_its_inode_is_asked_for_is_not_there() {
    let found = meanwhile(|works| {
        works.unlink(Wait::Allowed, ROOT, b"x").expect("removed");
        works.fsync(ROOT).expect("committed");
    });
    assert_eq!(found, Ok(None));
}
