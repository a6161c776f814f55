//! Programs that walk through trees: what is prefetched, how much of it, and which clients that disturbs.

#[path = "support/relay.rs"]
mod relay;
mod support;

use relay::{Listener, Relay, Transport};
use shoal_client::{Caller, Client, Options, Wait};
use shoal_meta::Server;
use shoal_types::{Cookie, FileKind, InodeId};
use shoal_wire::{Done, MetaError, MetaService, Query, ReadReply, ReadRequest};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
const WAIT: Wait = Wait::Allowed;
const ROOT: InodeId = InodeId::ROOT;
/// Longer than any step takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than a directory is left alone after it was changed.
const QUIET: Duration = Duration::from_millis(1200);

/// A server and two clients: one makes trees, the other one walks through them.
struct Two {
    _dir: TempDir,
    server: Arc<Server>,
    bricks: Arc<support::Bricks>,
    transport: Arc<Relay<Listener>>,
    maker: Arc<Client>,
    walker: Arc<Client>,
}

impl Two {
    fn new() -> Two {
        let (_dir, bricks, server) = relay::server();
        let transport = Arc::new(Relay(Listener::new(server.clone())));
        let options = |name: &str| Options { name: name.into(), ..Options::default() };
        let maker = Client::open(server.clone(), bricks.clone(), options("maker")).expect("a session");
        let walker = Client::open(transport.clone(), bricks.clone(), options("walker")).expect("a session");
        Two { _dir, server, bricks, transport, maker, walker }
    }

    fn end(self) {
        for client in [self.maker, self.walker] {
            client.close().expect("closed");
        }
        self.server.shutdown();
    }
}

fn mkdir(client: &Client, parent: InodeId, name: &str) -> InodeId {
    let mode = FileKind::Directory.mode_bits() | 0o755;
    client.create(WAIT, &CALLER, parent, name.as_bytes(), mode, 0).expect("new").ino
}

fn file(client: &Client, parent: InodeId, name: &str, content: &[u8]) -> InodeId {
    let ino = client.create(WAIT, &CALLER, parent, name.as_bytes(), 0o100644, 0).expect("new").ino;
    client.write(WAIT, ino, 0, content, false).expect("written");
    ino
}

/// A directory with `dirs` sub-directories, each with a file of its own; they are left alone for a while.
fn forest(client: &Client, dirs: usize, content: &[u8]) -> (InodeId, Vec<InodeId>) {
    forest_named(client, "top", dirs, content)
}

fn forest_named(client: &Client, name: &str, dirs: usize, content: &[u8]) -> (InodeId, Vec<InodeId>) {
    let top = mkdir(client, ROOT, name);
    let made = (0..dirs)
        .map(|n| {
            let dir = mkdir(client, top, &format!("d{n}"));
            file(client, dir, "file", content);
            dir
        })
        .collect();
    client.fsync(ROOT).expect("durable");
    std::thread::sleep(QUIET);
    (top, made)
}

/// Names in a directory, as a listing with inodes shows them.
fn list(client: &Client, dir: InodeId) -> Vec<(String, InodeId)> {
    let mut found = Vec::new();
    let mut visit = |name: &shoal_types::Name, dentry: shoal_namespace::Dentry, _: Option<&_>| {
        found.push((String::from_utf8_lossy(name.as_bytes()).into_owned(), dentry.ino));
        ControlFlow::Continue(())
    };
    while !client.readdir(WAIT, dir, Cookie::START, true, &mut visit).expect("listed") {}
    found
}

fn read(client: &Client, ino: InodeId) -> Vec<u8> {
    client.read(WAIT, ino, 0, 1 << 20).expect("read").concat()
}

/// Lists the first directories of a forest as tar(1) does. Returns how many files were found.
fn walk(client: &Client, top: InodeId, dirs: usize, reads: bool, content: &[u8]) -> usize {
    let mut files = 0;
    for (_, dir) in list(client, top).into_iter().take(dirs) {
        for (_, ino) in list(client, dir) {
            files += 1;
            assert!(!reads || read(client, ino) == content);
        }
    }
    files
}

fn stat(client: &Client, name: &str) -> u64 {
    client.stats().iter().find(|stat| stat.name == name).expect("counted").value
}

#[test]
fn a_tree_is_read_with_few_requests() {
    const DIRS: usize = 400;
    let two = Two::new();
    let (top, _) = forest(&two.maker, DIRS, b"content");
    let recalls = stat(&two.maker, "client_recalls_total");
    assert_eq!(walk(&two.walker, top, DIRS, true, b"content"), DIRS);
    let (asked, recalled) = (two.transport.0.count(), stat(&two.maker, "client_recalls_total") - recalls);
    assert!(asked <= DIRS / 8, "{asked} requests for {DIRS} directories");
    assert!(recalled <= DIRS as u64 / 8, "{recalled} recalls for {DIRS} directories");
    two.end();
}

#[test]
fn files_of_a_directory_larger_than_the_cache_are_read_with_few_requests() {
    const FILES: usize = 500;
    const CACHE_BYTES: usize = 16 << 20;
    let two = Two::new();
    let dir = mkdir(&two.maker, ROOT, "large");
    let content = vec![b'x'; 60_000];
    assert!(FILES * content.len() > CACHE_BYTES);
    for n in 0..FILES {
        file(&two.maker, dir, &format!("f{n}"), &content);
    }
    two.maker.fsync(ROOT).expect("durable");
    std::thread::sleep(QUIET);
    let options = Options { name: "small".into(), cache_bytes: CACHE_BYTES, ..Options::default() };
    let small = Client::open(two.transport.clone(), two.bricks.clone(), options).expect("a session");
    let before = two.transport.0.count();
    let files = list(&small, dir);
    assert_eq!(files.len(), FILES);
    assert!(files.iter().all(|(_, ino)| read(&small, *ino) == content));
    let asked = two.transport.0.count() - before;
    assert!(asked <= FILES / 8, "{asked} requests for {FILES} files");
    assert!(stat(&small, "cache_bytes") <= 2 * CACHE_BYTES as u64);
    small.close().expect("closed");
    two.end();
}

#[test]
fn blocks_are_read_ahead_of_the_walk() {
    const DIRS: usize = 40;
    const READ: usize = 10;
    let two = Two::new();
    let content = vec![b'x'; 200_000];
    let (top, _) = forest(&two.maker, DIRS, &content);
    assert_eq!(walk(&two.walker, top, READ, true, &content), READ);
    let due = Instant::now() + PATIENCE;
    while two.bricks.read.lock().len() < READ + 3 {
        assert!(Instant::now() < due, "{} blocks were read", two.bricks.read.lock().len());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(two.bricks.read.lock().len() < DIRS, "all of them were read");
    two.end();
}

#[test]
fn walk_that_reads_no_content_is_soon_sent_none() {
    const DIRS: usize = 400;
    let two = Two::new();
    let content = vec![b'x'; 10_000];
    let (top, _) = forest(&two.maker, DIRS, &content);
    assert_eq!(walk(&two.walker, top, DIRS, false, &content), DIRS);
    let cached = stat(&two.walker, "cache_bytes");
    assert!(cached < (DIRS * content.len() / 2) as u64, "{cached} bytes are cached");
    // The content is fetched when a program reads it after all.
    assert_eq!(walk(&two.walker, top, DIRS, true, &content), DIRS);
    two.end();
}

#[test]
fn what_comes_ahead_is_bounded_and_a_walk_that_stops_stops_it() {
    const DIRS: usize = 500;
    const BYTES: usize = 200_000;
    let two = Two::new();
    // Inline in a few pieces, so that all of it comes along.
    let top = mkdir(&two.maker, ROOT, "top");
    for n in 0..DIRS {
        let dir = mkdir(&two.maker, top, &format!("d{n}"));
        for part in 0..4 {
            file(&two.maker, dir, &part.to_string(), &vec![7; BYTES / 4]);
        }
    }
    two.maker.fsync(ROOT).expect("durable");
    std::thread::sleep(QUIET);
    walk(&two.walker, top, 5, true, &vec![7; BYTES / 4]);
    // What is in flight has arrived when nothing more is requested.
    rest(&two);
    let (ahead, bound) = (stat(&two.walker, "walk_ahead_bytes"), (32 << 20) as u64);
    assert!(ahead > 0, "nothing came ahead");
    assert!(ahead <= bound, "{ahead} bytes are here ahead");
    assert!(stat(&two.walker, "cache_bytes") <= bound + (8 << 20));
    assert!(two.transport.0.ahead().len() < DIRS / 2, "everything was asked for");
    two.end();
}

#[test]
fn what_came_ahead_is_the_first_to_go_when_room_is_needed() {
    let (_dir, bricks, server) = relay::server();
    let maker = Client::open(server.clone(), bricks.clone(), Options::default()).expect("a session");
    let content = vec![9; 30_000];
    let (top, _) = forest(&maker, 300, &content);
    let options = Options { cache_bytes: 2 << 20, ..Options::default() };
    let walker = Client::open(server.clone(), bricks, options).expect("a session");
    assert_eq!(walk(&walker, top, 300, true, &content), 300);
    let cached = stat(&walker, "cache_bytes");
    assert!(cached <= 4 << 20, "{cached} bytes are cached");
    for client in [maker, walker] {
        client.close().expect("closed");
    }
    server.shutdown();
}

#[test]
fn prefetched_directory_shows_later_changes_of_other_clients() {
    let two = Two::new();
    let (top, dirs) = forest(&two.maker, 100, b"before");
    walk(&two.walker, top, 10, true, b"before");
    while two.transport.0.ahead().len() < 90 || stat(&two.walker, "walk_directories_total") < 80 {
        std::thread::sleep(Duration::from_millis(10));
    }
    for (n, dir) in dirs.iter().enumerate() {
        let found = two.maker.lookup(WAIT, *dir, b"file").expect("answered").expect("there").ino;
        match n % 3 {
            0 => two.maker.write(WAIT, found, 0, b"after!", false).expect("written"),
            1 => two.maker.unlink(WAIT, *dir, b"file").expect("removed"),
            _ => drop(file(&two.maker, *dir, "more", b"more")),
        }
    }
    for (n, dir) in dirs.iter().enumerate() {
        let found = list(&two.walker, *dir);
        let content: Vec<Vec<u8>> = found.iter().map(|(_, ino)| read(&two.walker, *ino)).collect();
        match n % 3 {
            0 => assert_eq!(content, [b"after!"]),
            1 => assert!(found.is_empty()),
            _ => assert_eq!(content.len(), 2),
        }
    }
    two.end();
}

#[test]
fn walk_takes_no_rights_from_a_client_that_works_ahead_of_it() {
    let two = Two::new();
    let (top, dirs) = forest(&two.maker, 60, b"content");
    // The order in which they are listed.
    let order = list(&two.maker, top);
    let (_, busy) = order[50];
    assert!(dirs.contains(&busy));
    let (recalls, acquires) = ("client_recalls_total", "client_acquires_total");
    file(&two.maker, busy, "new", b"new");
    two.maker.fsync(ROOT).expect("durable");
    walk(&two.walker, top, 20, true, b"content");
    while two.transport.0.ahead().len() < 55 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let before = (stat(&two.maker, recalls), stat(&two.maker, acquires));
    file(&two.maker, busy, "newer", b"newer");
    assert_eq!((stat(&two.maker, recalls), stat(&two.maker, acquires)), before, "it was disturbed");
    // A lookup sees the change.
    assert_eq!(list(&two.walker, busy).len(), 3);
    two.end();
}

#[test]
fn single_lookups_are_no_walk() {
    let two = Two::new();
    let (top, dirs) = forest(&two.maker, 50, b"content");
    list(&two.walker, top);
    list(&two.walker, dirs[7]);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(two.transport.0.ahead(), BTreeSet::new());
    two.end();
}

/// Waits until nothing more is requested.
fn rest(two: &Two) {
    let mut asked = two.transport.0.count();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = two.transport.0.count();
        if now == asked {
            return;
        }
        asked = now;
    }
}

#[test]
fn tree_beside_a_walk_is_not_watched_by_the_walker() {
    const DIRS: usize = 60;
    let two = Two::new();
    let (walked, _) = forest_named(&two.maker, "walked", DIRS, b"content");
    let (_, beside) = forest_named(&two.maker, "beside", DIRS, b"content");
    list(&two.walker, ROOT);
    assert_eq!(walk(&two.walker, walked, DIRS, true, b"content"), DIRS);
    rest(&two);
    let ahead = two.transport.0.ahead();
    assert!(!beside.iter().any(|dir| ahead.contains(dir)), "it was asked for ahead");
    let before = (stat(&two.walker, "client_recalls_total"), stat(&two.maker, "client_acquires_total"));
    beside.iter().for_each(|dir| two.maker.unlink(WAIT, *dir, b"file").expect("removed"));
    let after = (stat(&two.walker, "client_recalls_total"), stat(&two.maker, "client_acquires_total"));
    assert_eq!(after, before, "an unlink waited for a client that has never looked there");
    two.end();
}

#[test]
fn prefetched_directories_of_a_stopped_walk_are_given_up_after_a_few_recalls() {
    const DIRS: usize = 150;
    let two = Two::new();
    let (top, _) = forest(&two.maker, DIRS, b"content");
    let order: Vec<InodeId> = list(&two.maker, top).into_iter().map(|(_, dir)| dir).collect();
    walk(&two.walker, top, 10, true, b"content");
    rest(&two);
    assert!(stat(&two.walker, "walk_directories_total") > DIRS as u64 / 2, "little came ahead");
    let before = stat(&two.walker, "client_recalls_total");
    let removed = &order[20..];
    removed.iter().for_each(|dir| two.maker.unlink(WAIT, *dir, b"file").expect("removed"));
    let recalls = stat(&two.walker, "client_recalls_total") - before;
    assert!(recalls <= 10, "{recalls} recalls for {} directories", removed.len());
    removed.iter().for_each(|dir| assert!(list(&two.walker, *dir).is_empty(), "{dir} is seen as it was"));
    two.end();
}

#[test]
fn directory_with_cached_attributes_only_is_given_up_at_the_first_recall() {
    let two = Two::new();
    let (top, _) = forest(&two.maker, 1, b"content");
    list(&two.walker, ROOT);
    let before = stat(&two.walker, "client_recalls_total");
    for n in 0..10 {
        file(&two.maker, top, &format!("new{n}"), b"new");
    }
    let recalls = stat(&two.walker, "client_recalls_total") - before;
    assert!(recalls <= 1, "{recalls} recalls of a directory that nothing was looked up in");
    assert_eq!(list(&two.walker, top).len(), 11);
    two.end();
}

/// Prefetch requests are answered by a server that led before.
struct Late(Arc<Server>);

impl Transport for Late {
    fn server(&self) -> &Arc<Server> {
        &self.0
    }

    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        let is_walk = matches!(request.query, Query::Walk { .. });
        let back = move |answer: Result<ReadReply, MetaError>| {
            done(answer.map(|reply| ReadReply { term: reply.term + u64::from(is_walk), ..reply }));
        };
        self.0.read(request, Box::new(back));
    }
}

#[test]
fn prefetch_reply_of_an_earlier_leader_is_discarded() {
    const DIRS: usize = 40;
    let two = Two::new();
    let (top, _) = forest(&two.maker, DIRS, b"content");
    let late = Arc::new(Relay(Late(two.server.clone())));
    let options = Options { name: "late".into(), ..Options::default() };
    let client = Client::open(late, two.bricks.clone(), options).expect("a session");
    let (tell, walked) = std::sync::mpsc::channel();
    let walker = client.clone();
    std::thread::spawn(move || tell.send(walk(&walker, top, DIRS, true, b"content")));
    assert_eq!(walked.recv_timeout(PATIENCE), Ok(DIRS), "the walk hangs");
    client.close().expect("closed");
    two.end();
}
