//! Two mounts of one volume over a real metadata server: a change on one is seen at once on the other.
//!
//! **Bounded.** The body of every test runs on a thread of its own and may take no longer than [`PATIENCE`].
//! Then both mounts are aborted, so that no thread stays in the kernel, and the test fails with the last step
//! that was begun.
//!
//! **The end.** After every test both mounts end, and the server stops. Its data on disk must be consistent:
//! no session, no file without a name that is not about to be removed, and no block missing on the bricks.

mod cut;
mod held;
mod locks;
mod mapped;
mod mapping_locks;
mod moved;
mod quiet;
mod races;
mod random;
mod seen;
mod snapshot;
mod subdirectory;

use crate::world::Bricks;
use parking_lot::Mutex;
use shoal_client::{Client, Options};
use shoal_fuse::{MountError, MountOptions, Mounted};
use shoal_meta::Server;
use shoal_namespace::check::{Finding, Visitor, check};
use shoal_namespace::query;
use shoal_types::{BlockId, BlockInfo};
use shoal_wire::MetaService;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than any test takes unless it hangs, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// A process that has stopped using a mount has closed its files after this.
const LET_GO: Duration = Duration::from_secs(10);

/// One of the mounts.
pub struct Side {
    root: PathBuf,
    mounted: Mounted,
    client: Arc<Client>,
    ended: AtomicBool,
}

impl Side {
    fn mount(root: PathBuf, client: Arc<Client>, options: MountOptions) -> Side {
        fs::create_dir(&root).expect("a mount point");
        let mounted = shoal_fuse::mount(client.clone(), &root, options).expect("mounts");
        Side { root, mounted, client, ended: AtomicBool::new(false) }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Unmounts, commits everything and ends the session.
    pub fn end(&self) {
        self.unmount();
        self.client.close().expect("everything is committed");
        self.ended.store(true, SeqCst);
    }

    /// Unmounts, and ignores changes that cannot be committed: the session may have ended already.
    pub fn give_up(&self) {
        self.unmount();
        let _ = self.client.close();
        self.ended.store(true, SeqCst);
    }

    /// Unmounts. Processes that other tests have just started may hold copies of this process's files for a
    /// moment.
    fn unmount(&self) {
        let begun = Instant::now();
        loop {
            match self.mounted.unmount() {
                Err(MountError::Busy { .. }) if begun.elapsed() < LET_GO => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                outcome => return outcome.expect("no program uses it"),
            }
        }
    }

    /// Rights that this mount has requested from the server so far.
    pub fn acquires(&self) -> u64 {
        let stats = self.client.stats();
        stats.iter().find(|stat| stat.name == "client_acquires_total").expect("it is counted").value
    }

    /// Requests that the kernel sends to this mount while the action runs, by kind.
    pub fn requests(&self, action: impl FnOnce()) -> Vec<(&'static str, u64)> {
        let before = self.mounted.stats();
        action();
        let after = self.mounted.stats();
        let grown = |op: &shoal_fuse::OpStats| (op.name, op.count - before.count(op.name));
        after.ops.iter().map(grown).filter(|(_, count)| *count > 0).collect()
    }
}

/// Two mounts.
pub struct Pair {
    pub a: Side,
    pub b: Side,
    pub bricks: Arc<Bricks>,
    server: Arc<Server>,
    step: Mutex<String>,
    dir: TempDir,
}

impl Pair {
    /// Records the next step, to be reported if it never ends.
    pub fn step(&self, what: impl Into<String>) {
        *self.step.lock() = what.into();
    }

    /// Both mounts, the acting one first.
    pub fn both_ways(&self) -> [(&Side, &Side); 2] {
        [(&self.a, &self.b), (&self.b, &self.a)]
    }

    fn tear_down(&self) {
        for side in [&self.a, &self.b] {
            let _ = Command::new("umount").args(["-f", "-l"]).arg(&side.root).output();
        }
    }

    fn end(self) {
        for side in [&self.a, &self.b] {
            if !side.ended.load(SeqCst) {
                side.end();
            }
        }
        drop((self.a, self.b));
        self.server.shutdown();
        drop(self.server);
        assert_left_clean(&self.dir.path().join("meta"), &self.bricks);
    }
}

/// Runs a test on two mounts.
fn pair(body: impl FnOnce(&Pair) + Send + 'static) {
    pair_mounted(MountOptions::default(), body);
}

/// Runs a test on two mounts with these mount options.
fn pair_mounted(mount: MountOptions, body: impl FnOnce(&Pair) + Send + 'static) {
    pair_over(mount, shoal_meta::Options::default(), |server, bricks| client(server.clone(), bricks), body);
}

fn client(meta: Arc<dyn MetaService>, bricks: &Arc<Bricks>) -> Arc<Client> {
    Client::open(meta, bricks.clone(), Options::default()).expect("a session")
}

/// Runs a test on two mounts with these options of the server, and a client of the second mount with a
/// configuration of its own.
fn pair_over(
    mount: MountOptions,
    options: shoal_meta::Options,
    second: impl FnOnce(&Arc<Server>, &Arc<Bricks>) -> Arc<Client>,
    body: impl FnOnce(&Pair) + Send + 'static,
) {
    let dir = tempfile::Builder::new().prefix("shoal-pair-").tempdir().expect("a directory");
    let meta = dir.path().join("meta");
    fs::create_dir(&meta).expect("a directory");
    let bricks = Arc::new(Bricks::default());
    let options = shoal_meta::Options { create: Some(7), ..options };
    let server = Server::open(&meta, bricks.clone(), options).expect("a server");
    let a = Side::mount(dir.path().join("a"), client(server.clone(), &bricks), mount.clone());
    let b = Side::mount(dir.path().join("b"), second(&server, &bricks), mount);
    let pair = Arc::new(Pair { a, b, bricks, server, step: Mutex::default(), dir });
    let pair = within_patience(pair, body);
    Arc::into_inner(pair).expect("there is no other reference").end();
}

/// Runs the body of a test. Nothing hangs, even if the test does.
fn within_patience(pair: Arc<Pair>, body: impl FnOnce(&Pair) + Send + 'static) -> Arc<Pair> {
    let (tell, done) = mpsc::channel();
    let its = pair.clone();
    let thread = std::thread::spawn(move || {
        body(&its);
        drop(its);
        let _ = tell.send(());
    });
    match done.recv_timeout(PATIENCE) {
        Ok(()) => {
            thread.join().expect("it has ended");
            pair
        }
        Err(RecvTimeoutError::Timeout) => {
            pair.tear_down();
            let step = pair.step.lock().clone();
            take_apart(pair);
            panic!("it does not end: {step}");
        }
        Err(RecvTimeoutError::Disconnected) => {
            pair.tear_down();
            let panic = thread.join().expect_err("it has told nothing");
            eprintln!("the last step: {}", pair.step.lock());
            take_apart(pair);
            std::panic::resume_unwind(panic);
        }
    }
}

/// Takes down the mounts of a failed test. If that hangs, it is left to the end of the process.
fn take_apart(pair: Arc<Pair>) {
    let (tell, done) = mpsc::channel();
    std::thread::spawn(move || {
        drop(pair);
        let _ = tell.send(());
    });
    let _ = done.recv_timeout(LET_GO);
}

/// Asserts that the data on disk is consistent, no session is left, and the bricks hold the blocks of all
/// files.
fn assert_left_clean(meta: &Path, bricks: &Bricks) {
    #[derive(Default)]
    struct Found(Vec<String>, BTreeSet<BlockId>);
    impl Visitor for Found {
        fn finding(&mut self, finding: Finding) {
            self.0.push(finding.to_string());
        }
        fn block(&mut self, id: BlockId, _: BlockInfo) {
            self.1.insert(id);
        }
    }
    let state = shoal_meta::offline::open(meta).expect("a state");
    let mut found = Found::default();
    check(&state, &mut found).expect("readable");
    assert!(found.0.is_empty(), "{:#?}", found.0);
    assert!(query::sessions(&state).expect("readable").is_empty(), "both have ended");
    let stored = bricks.blocks.lock();
    let missing: Vec<_> = found.1.iter().filter(|id| !stored.contains_key(id)).collect();
    assert!(missing.is_empty(), "no brick has {missing:?}");
}

/// Waits until a condition becomes true by itself.
#[track_caller]
pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LET_GO * 3, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
