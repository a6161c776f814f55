//! A mount whose servers do not hear of it any more.

use super::{Pair, Side, eventually, pair_over};
use crate::sys::errno;
use parking_lot::Mutex;
use shoal_client::{Client, Options, Replicas};
use shoal_fuse::MountOptions;
use shoal_meta::Server;
use shoal_types::{BlockId, BlockInfo, NodeId, SessionId, Statfs};
use shoal_wire::*;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// A silent session that is in the way is ended after this.
const DEAD_AFTER: Duration = Duration::from_secs(4);
/// How long calls of the mount that is cut off wait.
const FAIL_AFTER: Duration = Duration::from_secs(1);

/// The way to a server, which can be cut: then neither requests nor answers get through.
pub(super) struct Cut {
    server: Arc<Server>,
    cut: AtomicBool,
}

/// It is the only one.
struct Only(Arc<Cut>);

impl Replicas for Only {
    fn all(&self) -> Vec<(NodeId, Arc<dyn MetaService>)> {
        vec![(NodeId(1), Arc::new(Way(self.0.clone())))]
    }
    fn refresh(&self) {}
}

impl Cut {
    pub(super) fn set(&self, cut: bool) {
        self.cut.store(cut, SeqCst);
    }

    fn way(&self) -> Result<&Server, MetaError> {
        match self.cut.load(SeqCst) {
            true => Err(MetaError::Unavailable("cut off".into())),
            false => Ok(&self.server),
        }
    }

    fn back<T>(&self, answer: Result<T, MetaError>) -> Result<T, MetaError> {
        self.way().and(answer)
    }

    /// Carries an answer, unless the way has been cut in the meantime.
    fn carry<T: 'static>(self: &Arc<Cut>, done: Done<T>) -> Done<T> {
        let way = self.clone();
        Box::new(move |answer| done(way.back(answer)))
    }
}

/// The way as a service.
struct Way(Arc<Cut>);

impl MetaService for Way {
    fn open_session(&self, request: SessionRequest) -> Result<OpenReply, MetaError> {
        self.0.back(self.0.way()?.open_session(request))
    }
    fn close_session(&self, session: SessionId) -> Result<(), MetaError> {
        self.0.back(self.0.way()?.close_session(session))
    }
    fn grant(&self, grant: Grant) -> Result<GrantReply, MetaError> {
        self.0.back(self.0.way()?.grant(grant))
    }
    fn submit(&self, commit: Commit, done: CommitDone) {
        match self.0.way() {
            Ok(server) => server.submit(commit, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn ask(&self, ask: Ask, done: Done<AskReply>) {
        match self.0.way() {
            Ok(server) => server.ask(ask, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn acquire(&self, acquire: Acquire, done: Done<AcquireReply>) {
        match self.0.way() {
            Ok(server) => server.acquire(acquire, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn recalls(&self, poll: Poll, done: Done<Recalls>) {
        match self.0.way() {
            Ok(server) => server.recalls(poll, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn lock(&self, request: LockRequest, done: Done<LockReply>) {
        match self.0.way() {
            Ok(server) => server.lock(request, self.0.carry(done)),
            Err(error) => done(Err(error)),
        }
    }
    fn declare(&self, declaration: Declaration) -> Result<(), MetaError> {
        self.0.back(self.0.way()?.declare(declaration))
    }
    fn blocks(&self, session: SessionId, ids: &[BlockId]) -> Result<Vec<Option<BlockInfo>>, MetaError> {
        self.0.back(self.0.way()?.blocks(session, ids))
    }
    fn statfs(&self, session: SessionId) -> Result<Statfs, MetaError> {
        self.0.back(self.0.way()?.statfs(session))
    }
}

/// Two mounts, and the way of the second one.
fn with_cut(body: impl FnOnce(&Pair, &Cut) + Send + 'static) {
    with_cut_mounted(MountOptions::default(), body);
}

/// The same, mounted in some way.
pub(super) fn with_cut_mounted(mount: MountOptions, body: impl FnOnce(&Pair, &Cut) + Send + 'static) {
    let way: Arc<Mutex<Option<Arc<Cut>>>> = Arc::default();
    let its = way.clone();
    let options =
        shoal_meta::Options { session_dead_after: Some(DEAD_AFTER), ..shoal_meta::Options::default() };
    pair_over(
        mount,
        options,
        move |server, bricks| {
            let cut = Arc::new(Cut { server: server.clone(), cut: AtomicBool::new(false) });
            *way.lock() = Some(cut.clone());
            let options = Options {
                fail_after: Some(FAIL_AFTER),
                close_wait: Duration::from_secs(2),
                ..Options::default()
            };
            Client::open_replicated(Arc::new(Only(cut)), bricks.clone(), options).expect("a session")
        },
        move |pair| {
            let cut = its.lock().take().expect("made with the mount");
            body(pair, &cut);
            // Nothing that it had is left to be committed.
            cut.set(false);
            pair.b.give_up();
        },
    );
}

fn overwrite(side: &Side, name: &str, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(side.path(name))?.write_all_at(content, 0)
}

#[test]
fn whoever_waits_for_a_mount_that_is_cut_off_gets_on_and_that_mount_never_answers_with_what_was() {
    with_cut(|pair, cut| {
        for name in ["file", "gone"] {
            fs::write(pair.a.path(name), "old").expect("written");
            assert_eq!(fs::read_to_string(pair.b.path(name)).expect("there"), "old");
        }
        let open = fs::File::open(pair.b.path("file")).expect("opens");
        fs::write(pair.b.path("its own"), "b").expect("written");
        assert_eq!(fs::read_to_string(pair.a.path("its own")).expect("there"), "b");
        cut.set(true);
        pair.step("the other one gets on");
        overwrite(&pair.a, "file", b"new").expect("written");
        fs::remove_file(pair.a.path("gone")).expect("removed");
        fs::write(pair.a.path("its own"), "a").expect("written");
        pair.step("it does not answer");
        let its_calls = || {
            let mut bytes = [0; 3];
            [
                errno(fs::read(pair.b.path("file"))),
                errno(open.read_exact_at(&mut bytes, 0)),
                errno(fs::metadata(pair.b.path("gone"))),
                errno(fs::metadata(pair.b.path("never"))),
                errno(
                    fs::read_dir(pair.b.root())
                        .map(|list| list.map(|entry| entry.map(drop)).collect::<Vec<_>>()),
                ),
                errno(fs::read(pair.b.path("its own"))),
                errno(fs::write(pair.b.path("its own"), "b")),
                errno(fs::create_dir(pair.b.path("dir"))),
            ]
        };
        for errno in its_calls() {
            assert_eq!(errno, libc::EIO);
        }
        pair.step("it hears what has become of it");
        cut.set(false);
        for errno in its_calls() {
            assert_eq!(errno, libc::EIO);
        }
        let state = pair.a.requests(|| {
            assert_eq!(fs::read_to_string(pair.a.path("file")).expect("there"), "new");
            assert_eq!(fs::read_to_string(pair.a.path("its own")).expect("there"), "a");
        });
        assert!(state.len() < 10, "{state:?}");
    });
}

#[test]
fn a_mount_that_is_cut_off_and_in_nobodys_way_goes_on_as_if_nothing_had_been() {
    with_cut(|pair, cut| {
        fs::write(pair.b.path("file"), "old").expect("written");
        pair.b.client.fsync(shoal_types::InodeId::ROOT).expect("durable");
        cut.set(true);
        pair.step("it notices");
        eventually("it has no right to answer", || fs::metadata(pair.b.path("file")).is_err());
        cut.set(false);
        pair.step("it answers again");
        eventually("it is answered again", || fs::metadata(pair.b.path("file")).is_ok());
        overwrite(&pair.b, "file", b"new").expect("written");
        assert_eq!(fs::read_to_string(pair.a.path("file")).expect("there"), "new");
        overwrite(&pair.a, "file", b"two").expect("written");
        assert_eq!(fs::read_to_string(pair.b.path("file")).expect("there"), "two");
    });
}
