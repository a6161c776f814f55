//! Several clients of one real metadata server. All their threads work in the same few directories, while
//! replies are late and arrive in any order.
//!
//! No batch may be refused, no call may fail as it would not locally, and in the end all clients see one
//! tree. Where the servers end sessions, calls may fail with `EIO`, and what was not synced may be lost.

#[path = "support/relay.rs"]
mod relay;
mod support;

use parking_lot::{Condvar, Mutex};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use relay::{Relay, Transport};
use shoal_client::{Caller, Client, Failure, KernelCache, Options, Stale, Wait};
use shoal_meta::Server;
use shoal_namespace::{RenameFlags, SetAttr};
use shoal_types::{Cookie, Errno, FileKind, InodeId, SessionId};
use shoal_wire::{Done, MetaService, Query, ReadReply, ReadRequest};
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };
/// Bound of the length of most files.
const BYTES_MAX: u32 = 200;
/// Longer than any run takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs jobs later, in the order of their times.
#[derive(Default)]
struct Later {
    jobs: Mutex<BinaryHeap<Job>>,
    news: Condvar,
    stopped: AtomicBool,
}

struct Job(Instant, Box<dyn FnOnce() + Send>);

impl PartialEq for Job {
    fn eq(&self, other: &Job) -> bool {
        self.0 == other.0
    }
}
impl Eq for Job {}
impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Job) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Job {
    fn cmp(&self, other: &Job) -> std::cmp::Ordering {
        other.0.cmp(&self.0)
    }
}

impl Later {
    fn run(&self) {
        let mut jobs = self.jobs.lock();
        while !self.stopped.load(Ordering::SeqCst) {
            match jobs.peek() {
                None => self.news.wait(&mut jobs),
                Some(job) if job.0 > Instant::now() => {
                    let due = job.0;
                    self.news.wait_until(&mut jobs, due);
                }
                Some(_) => {
                    let job = jobs.pop().expect("looked at");
                    drop(jobs);
                    (job.1)();
                    jobs = self.jobs.lock();
                }
            }
        }
    }

    fn add(&self, at: Instant, job: Box<dyn FnOnce() + Send>) {
        self.jobs.lock().push(Job(at, job));
        self.news.notify_all();
    }
}

/// A server behind a slow line: requests arrive in order, replies do not.
struct Line {
    server: Arc<Server>,
    later: Arc<Later>,
    chance: Mutex<StdRng>,
    slowest_us: u64,
}

impl Transport for Line {
    fn server(&self) -> &Arc<Server> {
        &self.server
    }

    fn back<T: Send + 'static>(&self, done: Done<T>) -> Done<T> {
        if self.slowest_us == 0 {
            return done;
        }
        let wait = {
            let mut chance = self.chance.lock();
            if chance.random_bool(0.2) { chance.random_range(0..self.slowest_us) } else { 0 }
        };
        if wait == 0 {
            return done;
        }
        let later = self.later.clone();
        Box::new(move |answer| {
            let at = Instant::now() + Duration::from_micros(wait);
            later.add(at, Box::new(move || done(answer)));
        })
    }
}

/// A kernel that is slow to invalidate.
struct Kernel {
    chance: Mutex<StdRng>,
    slowest_us: u64,
}

impl KernelCache for Kernel {
    fn invalidate(&self, _: &[Stale]) {
        let wait = self.chance.lock().random_range(0..=self.slowest_us);
        if wait % 3 == 0 {
            std::thread::sleep(Duration::from_micros(wait));
        }
    }
    fn invalidate_all(&self, _: &[InodeId]) {}
}

/// The configuration of a run.
#[derive(Clone, Copy, Debug)]
struct Course {
    seed: u64,
    clients: usize,
    threads: usize,
    steps: usize,
    dirs: usize,
    names: usize,
    slowest_us: u64,
    /// The servers end sessions at random times.
    fences: bool,
}

/// A program that looks up everything by its path, as a kernel without a cache would.
struct Program {
    client: Arc<Client>,
    chance: StdRng,
    course: Course,
    refs: Vec<InodeId>,
    done: u64,
    /// Its number among all programs.
    number: u64,
    /// Files of its own, with the sessions in which they were made.
    own: Vec<(SessionId, String)>,
    /// Those of them that were synced.
    synced: Vec<String>,
}

impl Program {
    fn name(&mut self) -> Vec<u8> {
        format!("n{}", self.chance.random_range(0..self.course.names)).into_bytes()
    }

    fn find(&mut self, dir: InodeId, name: &[u8]) -> Result<InodeId, Failure> {
        let found = self.client.lookup(Wait::Allowed, dir, name)?.ok_or(Errno::ENOENT)?;
        self.refs.push(found.ino);
        Ok(found.ino)
    }

    /// The root, or a directory in it.
    fn dir(&mut self) -> Result<InodeId, Failure> {
        let n = self.chance.random_range(0..=self.course.dirs);
        if n == 0 { Ok(InodeId::ROOT) } else { self.find(InodeId::ROOT, format!("d{n}").as_bytes()) }
    }

    /// Mostly the name of a file, now and then that of a directory in the root.
    fn any(&mut self, dir: InodeId) -> Vec<u8> {
        if dir == InodeId::ROOT && self.chance.random_bool(0.3) {
            return format!("d{}", self.chance.random_range(1..=self.course.dirs.max(1))).into_bytes();
        }
        self.name()
    }

    /// Works on an inode that was found before, as a program does with an open file. The inode is there,
    /// whatever has become of its names, unless it may be lost with a session.
    fn use_open(&mut self) -> Result<(), Failure> {
        let wait = Wait::Allowed;
        let ino = self.refs[self.chance.random_range(0..self.refs.len())];
        let fences = self.course.fences;
        let there = |outcome: Result<(), Failure>| {
            let gone = outcome == Err(Failure::Errno(Errno::ENOENT));
            assert!(fences || !gone, "{ino:?} is gone though it is referred to");
            outcome
        };
        let mut inode = None;
        there(self.client.getattr(wait, ino).map(|found| inode = Some(found)))?;
        if inode.is_none_or(|inode| inode.kind != FileKind::Regular) {
            return Ok(());
        }
        let at = self.chance.random_range(0..u64::from(BYTES_MAX - 10));
        match self.chance.random_range(0..3) {
            0 => there(self.client.read(wait, ino, 0, BYTES_MAX).map(drop)),
            1 => there(self.client.write(wait, ino, at, &[1; 10], false)),
            _ => {
                let set = SetAttr { size: Some(at), ..SetAttr::default() };
                there(self.client.setattr(wait, ino, set).map(drop))
            }
        }
    }

    fn step(&mut self) -> Result<(), Failure> {
        let wait = Wait::Allowed;
        match self.chance.random_range(0..100) {
            0..8 => {
                let n = self.chance.random_range(1..=self.course.dirs.max(1));
                let name = format!("d{n}").into_bytes();
                let made = self.client.create(wait, &CALLER, InodeId::ROOT, &name, DIRECTORY, 0)?;
                self.refs.push(made.ino);
            }
            8..30 => {
                let dir = self.dir()?;
                let name = self.name();
                let made = self.client.create(wait, &CALLER, dir, &name, 0o100644, 0)?;
                self.refs.push(made.ino);
            }
            30..48 => {
                let dir = self.dir()?;
                let name = self.any(dir);
                self.client.unlink(wait, dir, &name)?;
            }
            48..56 => {
                let n = self.chance.random_range(1..=self.course.dirs.max(1));
                let name = format!("d{n}").into_bytes();
                let me = self.number as u32;
                self.looking_twice(me, &[(InodeId::ROOT, &name)], |client| {
                    client.rmdir(wait.by(me), InodeId::ROOT, &name)
                })?;
            }
            56..62 => {
                let (from, to) = (self.dir()?, self.dir()?);
                let (name, new) = (self.name(), self.name());
                let ino = self.find(from, &name)?;
                self.client.link(wait, ino, to, &new)?;
                self.refs.push(ino);
            }
            62..74 => {
                let (from, to) = (self.dir()?, self.dir()?);
                let (name, new) = (self.any(from), self.any(to));
                let exchange = self.chance.random_bool(0.1);
                let flags = RenameFlags { no_replace: false, exchange };
                let me = self.number as u32;
                self.looking_twice(me, &[(from, &name), (to, &new)], |client| {
                    client.rename(wait.by(me), from, &name, to, &new, flags)
                })?;
            }
            74..80 => {
                let dir = self.dir()?;
                self.client.readdir(wait, dir, Cookie::START, true, &mut |_, _, _| ControlFlow::Break(()))?;
            }
            80..86 => {
                let dir = self.dir()?;
                let name = self.name();
                let ino = self.find(dir, &name)?;
                self.client.read(wait, ino, 0, BYTES_MAX)?;
            }
            86..89 => {
                let dir = self.dir()?;
                let name = self.any(dir);
                self.find(dir, &name)?;
            }
            89..94 => {
                let dir = self.dir()?;
                let name = self.name();
                let ino = self.find(dir, &name)?;
                let (byte, at) =
                    (self.chance.random(), self.chance.random_range(0..u64::from(BYTES_MAX - 10)));
                match self.chance.random_range(0..4) {
                    0 => drop(self.client.append(wait, ino, &[byte; 10], false)?),
                    1 => {
                        let set = SetAttr { size: Some(at), ..SetAttr::default() };
                        self.client.setattr(wait, ino, set)?;
                    }
                    _ => self.client.write(wait, ino, at, &[byte; 10], false)?,
                }
            }
            94..99 if !self.refs.is_empty() => self.use_open()?,
            _ => {
                for ino in std::mem::take(&mut self.refs) {
                    self.client.forget(ino, 1);
                }
                if self.chance.random_bool(0.2) {
                    self.make_its_own()?;
                    self.sync()?;
                }
            }
        }
        Ok(())
    }

    /// Makes a call as a kernel does: after `ESTALE` it looks the names up again, and retries once.
    fn looking_twice(
        &mut self,
        me: u32,
        names: &[(InodeId, &[u8])],
        call: impl Fn(&Client) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let stale = Err(Failure::Errno(Errno::ESTALE));
        let outcome = call(&self.client);
        if outcome != stale {
            return outcome;
        }
        let mut kinds = Vec::new();
        for (dir, name) in names {
            let found = self.client.find(Wait::Allowed, me, *dir, name)?.map(|found| found.entry);
            kinds.push(found.as_ref().map(|entry| entry.inode.kind));
            self.refs.extend(found.map(|entry| entry.ino));
        }
        // The kernel itself refuses this call for anything but directories.
        if kinds.iter().any(|kind| *kind != Some(FileKind::Directory)) {
            return Ok(());
        }
        call(&self.client)
    }

    /// Makes a file that no other program ever touches.
    fn make_its_own(&mut self) -> Result<(), Failure> {
        let name = format!("own{}.{}", self.number, self.done);
        let session = self.client.session();
        let made = self.client.create(Wait::Allowed, &CALLER, InodeId::ROOT, name.as_bytes(), 0o100644, 0)?;
        self.refs.push(made.ino);
        if self.client.session() == session {
            self.own.push((session, name));
        }
        Ok(())
    }

    /// Commits all that was created in this session.
    fn sync(&mut self) -> Result<(), Failure> {
        let session = self.client.session();
        self.client.fsync(InodeId::ROOT)?;
        if self.client.session() == session {
            let own = std::mem::take(&mut self.own).into_iter();
            self.synced.extend(own.filter(|(made, _)| *made == session).map(|(_, name)| name));
        }
        Ok(())
    }

    fn run(mut self, ended: &AtomicBool) -> (u64, Vec<String>) {
        for _ in 0..self.course.steps {
            if ended.load(Ordering::SeqCst) {
                break;
            }
            match self.step() {
                Ok(()) => self.done += 1,
                Err(Failure::Errno(
                    Errno::ENOENT
                    | Errno::EEXIST
                    | Errno::ENOTEMPTY
                    | Errno::EISDIR
                    | Errno::ENOTDIR
                    | Errno::EPERM
                    | Errno::EINVAL
                    // The retry may fail with `ESTALE`, too; see `looking_twice`.
                    | Errno::ESTALE,
                )) => {}
                Err(Failure::Errno(Errno::EIO)) if self.course.fences => {}
                Err(failure) => {
                    ended.store(true, Ordering::SeqCst);
                    panic!("{failure:?}: {:?}", self.course);
                }
            }
        }
        for ino in std::mem::take(&mut self.refs) {
            self.client.forget(ino, 1);
        }
        (self.done, self.synced)
    }
}

/// All names below a directory, with their attributes.
fn tree(client: &Client, dir: InodeId, path: &str, found: &mut BTreeMap<String, String>) {
    let mut names = Vec::new();
    let mut visit =
        |name: &shoal_types::Name, dentry: shoal_namespace::Dentry, _: Option<&shoal_types::Inode>| {
            names.push((String::from_utf8_lossy(name.as_bytes()).into_owned(), dentry.ino));
            ControlFlow::Continue(())
        };
    client.readdir(Wait::Allowed, dir, Cookie::START, false, &mut visit).expect("listed");
    for (name, ino) in names {
        let inode = client.getattr(Wait::Allowed, ino).expect("there");
        let path = format!("{path}/{name}");
        let directory = inode.is_dir();
        let parts = match inode.kind {
            FileKind::Regular => client.read(Wait::Allowed, ino, 0, BYTES_MAX).expect("read").concat(),
            _ => Vec::new(),
        };
        found.insert(path.clone(), format!("{ino:?} {inode:?} {parts:?}"));
        if directory {
            tree(client, ino, &path, found);
        }
    }
}

fn run(course: Course) {
    let (_dir, bricks, server) = relay::server();
    let later = Arc::new(Later::default());
    let timer = std::thread::spawn({
        let later = later.clone();
        move || later.run()
    });
    let clients: Vec<Arc<Client>> = (0..course.clients)
        .map(|n| {
            let seed = StdRng::seed_from_u64(course.seed * 1000 + n as u64);
            let line = Line {
                server: server.clone(),
                later: later.clone(),
                chance: Mutex::new(seed.clone()),
                slowest_us: course.slowest_us,
            };
            let options = Options { name: format!("client {n}"), ..Options::default() };
            let client = Client::open(Arc::new(Relay(line)), bricks.clone(), options).expect("a session");
            client.set_kernel(Arc::new(Kernel { chance: Mutex::new(seed), slowest_us: course.slowest_us }));
            client
        })
        .collect();
    let ended = AtomicBool::new(false);
    let begun = Instant::now();
    let over = AtomicBool::new(false);
    let (done, synced) = std::thread::scope(|scope| {
        let fencer = course.fences.then(|| scope.spawn(|| fence(&server, &clients, course.seed, &over)));
        let mut threads = Vec::new();
        for (n, client) in clients.iter().enumerate() {
            for thread in 0..course.threads {
                let seed = course.seed * 1000 + 100 * (n as u64 + 1) + thread as u64;
                let program = Program {
                    client: client.clone(),
                    chance: StdRng::seed_from_u64(seed),
                    course,
                    refs: Vec::new(),
                    done: 0,
                    number: 100 * n as u64 + thread as u64,
                    own: Vec::new(),
                    synced: Vec::new(),
                };
                let ended = &ended;
                threads.push(scope.spawn(move || program.run(ended)));
            }
        }
        let (mut done, mut synced) = (0, Vec::new());
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::SeqCst);
        for outcome in outcomes {
            let (more, its) = outcome.expect("it ends");
            done += more;
            synced.extend(its);
        }
        let fenced = fencer.map_or(0, |fencer| fencer.join().expect("it ends"));
        println!("seed {}: {done} done in {:?}, {fenced} sessions ended", course.seed, begun.elapsed());
        (done, synced)
    });
    assert!(done > 0, "{course:?}");
    for client in &clients {
        let told = client.fsync(InodeId::ROOT);
        assert!(told.is_ok() || course.fences, "{told:?}: {course:?}");
        client.fsync(InodeId::ROOT).expect("committed");
    }
    let trees: Vec<_> = clients
        .iter()
        .map(|client| {
            let mut found = BTreeMap::new();
            tree(client, InodeId::ROOT, "", &mut found);
            found
        })
        .collect();
    for (n, other) in trees.iter().enumerate().skip(1) {
        let unlike = |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
            let unlike = one.iter().filter(|(path, what)| other.get(*path) != Some(what));
            unlike.map(|(path, what)| format!("{path}: {what}\n")).collect::<String>()
        };
        let (here, there) = (unlike(&trees[0], other), unlike(other, &trees[0]));
        assert!(here == there, "client 0:\n{here}client {n}:\n{there}{course:?}");
    }
    for name in synced {
        assert!(trees[0].contains_key(&format!("/{name}")), "{name} was synced: {course:?}");
    }
    for client in clients {
        client.close().expect("closed");
    }
    server.shutdown();
    later.stopped.store(true, Ordering::SeqCst);
    later.news.notify_all();
    timer.join().expect("it ends");
}

/// Ends the session of one client after the other, each time until it has a new one. Returns how often.
fn fence(server: &Server, clients: &[Arc<Client>], seed: u64, over: &AtomicBool) -> u64 {
    let mut chance = StdRng::seed_from_u64(seed);
    let mut fenced = 0;
    while !over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(chance.random_range(5..60)));
        let client = &clients[chance.random_range(0..clients.len())];
        let session = client.session();
        server.close_session(session).expect("ended");
        fenced += 1;
        while client.session() == session {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    fenced
}

/// A server whose clock is an hour ahead.
struct Fast(Arc<Server>);

impl Transport for Fast {
    fn server(&self) -> &Arc<Server> {
        &self.0
    }
    fn ahead_secs(&self) -> i64 {
        3600
    }
}

/// Flags of a rename that replaces its target.
const REPLACE: RenameFlags = RenameFlags { no_replace: false, exchange: false };
/// Mode with which directories are made.
const DIRECTORY: u32 = 0o040755;

/// What thread 1 of a client finds under a name in the root directory.
fn look_by_thread(client: &Client, name: &[u8]) -> Option<InodeId> {
    client.find(Wait::Allowed, 1, InodeId::ROOT, name).expect("answered").map(|found| found.entry.ino)
}

/// A server and two clients without a kernel, of which the first has another clock.
fn two(body: impl FnOnce(&Client, &Client)) {
    let (_dir, bricks, server) = relay::server();
    let transports: [(&str, Arc<dyn MetaService>); 2] =
        [("one", Arc::new(Relay(Fast(server.clone())))), ("other", server.clone())];
    let [one, other] = transports.map(|(name, transport)| {
        let options = Options { name: name.into(), ..Options::default() };
        Client::open(transport, bricks.clone(), options).expect("a session")
    });
    body(&one, &other);
    [one, other].iter().for_each(|client| client.close().expect("closed"));
    server.shutdown();
}

#[test]
fn directory_whose_dentry_may_be_outdated_is_neither_removed_nor_moved() {
    let (wait, root, mode, replace) = (Wait::Allowed, InodeId::ROOT, DIRECTORY, REPLACE);
    two(|one, other| {
        let look = |client: &Client, name: &[u8]| {
            client.lookup(wait, root, name).expect("answered").map(|entry| entry.ino)
        };
        let stale = Err(Failure::Errno(Errno::ESTALE));
        for name in [b"p".as_slice(), b"q"] {
            other.create(wait, &CALLER, root, name, mode, 0).expect("new");
            look(one, name).expect("there");
        }
        // The name leads to another directory than in the dcache.
        other.rename(wait.by(1), root, b"p", root, b"r", replace).expect("moved");
        let new = other.create(wait, &CALLER, root, b"p", mode, 0).expect("new").ino;
        assert_eq!(one.rmdir(wait.by(1), root, b"p"), stale);
        assert_eq!(one.rename(wait.by(1), root, b"q", root, b"p", replace), stale);
        assert_eq!(one.rename(wait.by(1), root, b"p", root, b"q", replace), stale);
        // The kernel has looked it up again.
        assert_eq!(look(one, b"p"), Some(new));
        assert_eq!(one.rmdir(wait.by(1), root, b"p"), Ok(()));
        assert_eq!(look(other, b"p"), None);
        // A name that is free by now is outdated, too.
        look(one, b"r").expect("there");
        other.rmdir(wait.by(1), root, b"r").expect("removed");
        assert_eq!(one.rename(wait.by(1), root, b"q", root, b"r", replace), stale);
        assert_eq!(look(one, b"r"), None);
        assert_eq!(one.rename(wait.by(1), root, b"q", root, b"r", replace), Ok(()));
        // A directory that is back under its name is the one in the dcache.
        other.create(wait, &CALLER, root, b"k", mode, 0).expect("new");
        look(one, b"k").expect("there");
        other.rename(wait.by(1), root, b"k", root, b"l", replace).expect("moved");
        other.rename(wait.by(1), root, b"l", root, b"k", replace).expect("moved back");
        assert_eq!(one.rmdir(wait.by(1), root, b"k"), Ok(()));
        // For files an outdated dentry does no harm.
        one.create(wait, &CALLER, root, b"f", 0o100644, 0).expect("new");
        other.unlink(wait, root, b"f").expect("removed");
        other.create(wait, &CALLER, root, b"f", 0o100644, 0).expect("new");
        assert_eq!(one.unlink(wait, root, b"f"), Ok(()));
    });
}

#[test]
fn retry_after_estale_finds_what_its_reply_said() {
    let (wait, root, mode, replace) = (Wait::Allowed, InodeId::ROOT, DIRECTORY, REPLACE);
    two(|one, other| {
        let look = |name| look_by_thread(one, name);
        let stale = Failure::Errno(Errno::ESTALE);
        other.create(wait, &CALLER, root, b"p", mode, 0).expect("new");
        look(b"p").expect("there");
        for round in 0..4 {
            let old = format!("old{round}");
            other.rename(wait.by(1), root, b"p", root, old.as_bytes(), replace).expect("moved");
            let new = other.create(wait, &CALLER, root, b"p", mode, 0).expect("new").ino;
            assert_eq!(one.rmdir(wait.by(1), root, b"p"), Err(stale));
            std::thread::scope(|scope| {
                let mover = scope.spawn(|| other.rename(wait.by(1), root, b"p", root, b"q", replace));
                std::thread::sleep(Duration::from_millis(50));
                assert_eq!(look(b"p"), Some(new));
                assert_eq!(one.rmdir(wait.by(1), root, b"p"), Ok(()));
                let moved = mover.join().expect("no panic");
                assert_eq!(moved, Err(Failure::Errno(Errno::ENOENT)));
            });
            other.create(wait, &CALLER, root, b"p", mode, 0).expect("new");
            look(b"p").expect("there");
        }
        // Likewise for a name that was created meanwhile, and is opened then.
        let made = other.create(wait, &CALLER, root, b"f", 0o100644, 0).expect("new").ino;
        assert_eq!(support::open_new(one, &CALLER, b"f").err(), Some(stale));
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| other.unlink(wait, root, b"f"));
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(look(b"f"), Some(made));
            assert_eq!(remover.join().expect("no panic"), Ok(()));
        });
        assert!(support::open_new(one, &CALLER, b"f").is_ok(), "the name is free");
    });
}

#[test]
fn retry_has_its_rights_also_when_other_threads_waited_in_between() {
    let (wait, root, mode, replace) = (Wait::Allowed, InodeId::ROOT, DIRECTORY, REPLACE);
    two(|one, other| {
        let look = |name| look_by_thread(one, name);
        let move_away = |name: &[u8], to: &[u8]| other.rename(wait.by(1), root, name, root, to, replace);
        for name in [b"p", b"q"] {
            other.create(wait, &CALLER, root, name, mode, 0).expect("new");
            look(name).expect("there");
        }
        let stale = Failure::Errno(Errno::ESTALE);
        for round in 0..4 {
            let [old, older, new, late] =
                ["old", "older", "new", "late"].map(|name| format!("{name}{round}").into_bytes());
            move_away(b"p", &old).expect("moved");
            other.create(wait, &CALLER, root, b"p", mode, 0).expect("new");
            assert_eq!(one.rename(wait.by(1), root, b"p", root, b"q", replace), Err(stale));
            // A local program gets the kernel's lock, and waits for a client that waits for a reserved right.
            let there = std::thread::scope(|scope| {
                let mover = scope.spawn(|| {
                    move_away(b"p", &older).expect("moved");
                    other.create(wait, &CALLER, root, b"p", mode, 0).expect("new").ino
                });
                std::thread::sleep(Duration::from_millis(50));
                one.create(wait, &CALLER, root, &new, 0o100644, 0).expect("new");
                mover.join().expect("no panic")
            });
            assert_eq!(look(b"p"), Some(there));
            std::thread::scope(|scope| {
                let mover = scope.spawn(|| move_away(b"p", &late));
                std::thread::sleep(Duration::from_millis(50));
                look(b"q").expect("there");
                assert_eq!(one.rename(wait.by(1), root, b"p", root, b"q", replace), Ok(()));
                mover.join().expect("no panic").expect_err("it has gone");
            });
            other.create(wait, &CALLER, root, b"p", mode, 0).expect("new");
            look(b"p").expect("there");
        }
        // If the target directory of a refused rename is removed, the other name is still found.
        let dir = other.create(wait, &CALLER, root, b"dir", mode, 0).expect("new").ino;
        assert_eq!((look(b"dir"), one.lookup(wait, dir, b"new")), (Some(dir), Ok(None)));
        move_away(b"p", b"away").expect("moved");
        let there = other.create(wait, &CALLER, root, b"p", mode, 0).expect("new").ino;
        assert_eq!(one.rename(wait.by(1), root, b"p", dir, b"new", replace), Err(stale));
        other.rmdir(wait.by(1), root, b"dir").expect("no client is waited for long");
        [one, other].into_iter().for_each(|client| client.forget(dir, 1));
        other.fsync(root).expect("gone");
        assert_eq!(look(b"p"), Some(there));
        // A name that was created meanwhile, and is free again.
        other.create(wait, &CALLER, root, b"f", 0o100644, 0).expect("new");
        let open = || support::open_new(one, &CALLER, b"f");
        assert_eq!(open().err(), Some(stale));
        other.unlink(wait, root, b"f").expect("no client is waited for long");
        assert_eq!(look(b"f"), None);
        std::thread::scope(|scope| {
            let maker = scope.spawn(|| other.create(wait, &CALLER, root, b"f", 0o100644, 0));
            std::thread::sleep(Duration::from_millis(50));
            assert!(open().is_ok(), "it has stayed free");
            assert_eq!(maker.join().expect("no panic").err(), Some(Failure::Errno(Errno::EEXIST)));
        });
    });
}

/// A server whose reply to one request is of a term that is over when it arrives.
struct Late {
    server: Arc<Server>,
    /// The number of requests until that one.
    which: AtomicI64,
}

impl Late {
    fn is_it(&self) -> bool {
        self.which.fetch_sub(1, Ordering::SeqCst) == 0
    }
}

impl Transport for Late {
    fn server(&self) -> &Arc<Server> {
        &self.server
    }

    fn read(&self, request: ReadRequest, done: Done<ReadReply>) {
        let late = matches!(request.query, Query::List { .. }) && self.is_it();
        let spoil = move |reply: ReadReply| ReadReply { term: reply.term + u64::from(late), ..reply };
        self.server.read(request, Box::new(move |answer| done(answer.map(spoil))));
    }
}

#[test]
fn listing_with_a_discarded_page_is_fetched_again() {
    const FILES: usize = 20_000;
    let (_dir, bricks, server) = relay::server();
    let client = Client::open(server.clone(), bricks.clone(), Options::default()).expect("a session");
    for n in 0..FILES {
        let name = format!("{n}{}", "x".repeat(240)).into_bytes();
        client.create(Wait::Allowed, &CALLER, InodeId::ROOT, &name, 0o100644, 0).expect("new");
    }
    client.close().expect("closed");
    for page in 0..2 {
        let late = Arc::new(Relay(Late { server: server.clone(), which: AtomicI64::new(page) }));
        let client = Client::open(late.clone(), bricks.clone(), Options::default()).expect("a session");
        let mut seen = 0;
        let mut visit = |_: &shoal_types::Name, _, _: Option<&shoal_types::Inode>| {
            seen += 1;
            ControlFlow::Continue(())
        };
        let mut after = Cookie::START;
        while !client.readdir(Wait::Allowed, InodeId::ROOT, after, false, &mut visit).expect("listed") {
            after = Cookie(after.0 + 1);
        }
        assert!(late.0.which.load(Ordering::SeqCst) < 0, "page {page} was asked for");
        assert_eq!(seen, FILES, "page {page}");
        client.close().expect("closed");
    }
    server.shutdown();
}

/// Ends the whole program when a run hangs, and prints which one.
fn watch(course: Course, ended: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
            if ended.load(Ordering::SeqCst) {
                return;
            }
        }
        eprintln!("it does not end: {course:?}");
        std::process::exit(101);
    });
}

/// `SHOAL_TEST_SEED=n` runs one seed, `SHOAL_TEST_LONG=1` many; `SHOAL_LOG=info,shoal_meta=trace` shows more.
#[test]
fn several_clients_work_in_the_same_directories() {
    run_all(0..12, false);
}

#[test]
fn several_clients_work_in_the_same_directories_while_sessions_are_ended() {
    run_all(0..6, true);
}

fn run_all(some: std::ops::Range<u64>, fences: bool) {
    if let Ok(filter) = std::env::var("SHOAL_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).try_init().ok();
    }
    let seeds = match std::env::var("SHOAL_TEST_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None if std::env::var_os("SHOAL_TEST_LONG").is_some() => 0..1000,
        None => some,
    };
    for seed in seeds {
        let mut chance = StdRng::seed_from_u64(seed);
        let course = Course {
            seed,
            clients: chance.random_range(2..=4),
            threads: chance.random_range(1..=3),
            steps: if fences { 900 } else { 300 },
            dirs: chance.random_range(0..=3),
            names: chance.random_range(1..=6),
            slowest_us: [0, 500, 3000][chance.random_range(0..3)],
            fences,
        };
        let ended = Arc::new(AtomicBool::new(false));
        watch(course, ended.clone());
        run(course);
        ended.store(true, Ordering::SeqCst);
    }
}
