//! The server ends with exactly what the client showed: every attribute, name, attribute list and byte.
//!
//! Random operations run against one client with a cache too small for them. Then a second client, with empty
//! caches, looks at the same volume. Whatever the journal merged, cancelled or reordered must not be visible.
//! The content is compared with a plain model as well.

#[path = "support/replicas.rs"]
mod replicas;
mod support;

use proptest::prelude::*;
use replicas::Cluster;
use shoal_client::{Caller, Client, Failure, Fallocate, Options, Wait};
use shoal_namespace::{RenameFlags, SetAttr, XattrSet};
use shoal_types::{Cookie, Errno, FileKind, Inode, InodeId, Name, Timestamp, XattrName};
use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use support::World;

const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

#[derive(Clone, Debug)]
enum Step {
    Create(usize, usize),
    Mkdir(usize, usize),
    Symlink(usize, usize),
    Link(usize, usize, usize, usize),
    Remove(usize, usize),
    Rename(usize, usize, usize, usize, bool),
    Write(usize, usize, u64, usize),
    Truncate(usize, usize, u64),
    Punch(usize, usize, u64, u64),
    Allocate(usize, usize, u64, u64),
    Clone(usize, usize, usize, usize, u64, u64, u64),
    Chmod(usize, usize, u32),
    Utimes(usize, usize, i64),
    Xattr(usize, usize, usize),
    RemoveXattr(usize, usize),
    Forget,
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (dir, name) = (0usize..4, 0usize..5);
    let at =
        prop_oneof![0u64..200, 0u64..20_000, Just(4096u64), Just(4 << 20), (4u64 << 20) - 50..(4 << 20) + 50];
    let len = prop_oneof![1u64..100, 1u64..9000, Just(4096u64), Just(100_000u64)];
    let step = prop_oneof![
        6 => (dir.clone(), name.clone()).prop_map(|(d, n)| Step::Create(d, n)),
        2 => (dir.clone(), name.clone()).prop_map(|(d, n)| Step::Mkdir(d, n)),
        1 => (dir.clone(), name.clone()).prop_map(|(d, n)| Step::Symlink(d, n)),
        2 => (dir.clone(), name.clone(), dir.clone(), name.clone()).prop_map(|(a, b, c, d)| Step::Link(a, b, c, d)),
        5 => (dir.clone(), name.clone()).prop_map(|(d, n)| Step::Remove(d, n)),
        4 => (dir.clone(), name.clone(), dir.clone(), name.clone(), any::<bool>())
            .prop_map(|(a, b, c, d, x)| Step::Rename(a, b, c, d, x)),
        12 => (dir.clone(), name.clone(), at.clone(), len.clone())
            .prop_map(|(d, n, at, len)| Step::Write(d, n, at, len as usize)),
        2 => (dir.clone(), name.clone(), at.clone()).prop_map(|(d, n, at)| Step::Truncate(d, n, at)),
        2 => (dir.clone(), name.clone(), at.clone(), len.clone()).prop_map(|(d, n, a, l)| Step::Punch(d, n, a, l)),
        1 => (dir.clone(), name.clone(), at.clone(), len.clone()).prop_map(|(d, n, a, l)| Step::Allocate(d, n, a, l)),
        2 => (dir.clone(), name.clone(), dir.clone(), name.clone(), at.clone(), at.clone(), len)
            .prop_map(|(a, b, c, d, x, y, l)| Step::Clone(a, b, c, d, x, y, l)),
        2 => (dir.clone(), name.clone(), 0u32..0o7777).prop_map(|(d, n, m)| Step::Chmod(d, n, m)),
        2 => (dir.clone(), name.clone(), -5i64..5).prop_map(|(d, n, t)| Step::Utimes(d, n, t)),
        1 => (dir.clone(), name.clone(), 0usize..300).prop_map(|(d, n, l)| Step::Xattr(d, n, l)),
        1 => (dir, name).prop_map(|(d, n)| Step::RemoveXattr(d, n)),
        2 => Just(Step::Forget),
        2 => Just(Step::Sync),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A client, the kernel references it has given, and the bytes that its files must hold.
struct Run {
    client: std::sync::Arc<Client>,
    dirs: Vec<InodeId>,
    refs: HashMap<InodeId, u64>,
    bytes: HashMap<InodeId, Vec<u8>>,
    filler: u8,
}

fn file_name(n: usize) -> Vec<u8> {
    format!("name{n}").into_bytes()
}

impl Run {
    fn dir(&self, n: usize) -> InodeId {
        self.dirs[n % self.dirs.len()]
    }

    fn find(&mut self, dir: usize, name: usize) -> Option<(InodeId, Inode)> {
        let found = self.client.lookup(Wait::Allowed, self.dir(dir), &file_name(name)).ok().flatten()?;
        *self.refs.entry(found.ino).or_default() += 1;
        Some((found.ino, found.inode))
    }

    fn made(&mut self, entry: Result<shoal_client::Entry, Failure>) {
        if let Ok(entry) = entry {
            *self.refs.entry(entry.ino).or_default() += 1;
            match entry.inode.kind {
                FileKind::Directory => self.dirs.push(entry.ino),
                FileKind::Regular => drop(self.bytes.entry(entry.ino).or_default()),
                _ => {}
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let wait = Wait::Allowed;
        match *step {
            Step::Create(d, n) => {
                let made = self.client.create(wait, &ROOT, self.dir(d), &file_name(n), 0o644, 0);
                self.made(made);
            }
            Step::Mkdir(d, n) => {
                let mode = FileKind::Directory.mode_bits() | 0o755;
                let made = self.client.create(wait, &ROOT, self.dir(d), &file_name(n), mode, 0);
                self.made(made);
            }
            Step::Symlink(d, n) => {
                let made = self.client.symlink(wait, &ROOT, self.dir(d), &file_name(n), b"some/where");
                self.made(made);
            }
            Step::Link(d, n, d2, n2) => {
                if let Some((ino, _)) = self.find(d, n) {
                    let made = self.client.link(wait, ino, self.dir(d2), &file_name(n2));
                    self.made(made);
                }
            }
            Step::Remove(d, n) => {
                let (dir, name) = (self.dir(d), file_name(n));
                if self.client.unlink(wait, dir, &name) == Err(Failure::Errno(Errno::EISDIR)) {
                    let _ = self.client.rmdir(wait.by(1), dir, &name);
                }
            }
            Step::Rename(d, n, d2, n2, exchange) => {
                let flags = RenameFlags { no_replace: false, exchange };
                let (from, to) = (self.dir(d), self.dir(d2));
                let _ = self.client.rename(wait.by(1), from, &file_name(n), to, &file_name(n2), flags);
            }
            Step::Write(d, n, at, len) => {
                let Some((ino, inode)) = self.find(d, n) else { return };
                self.filler = self.filler.wrapping_add(1).max(1);
                let data: Vec<u8> = (0..len).map(|i| self.filler ^ (i / 251) as u8).collect();
                let done = self.client.write(wait, ino, at, &data, false);
                assert_eq!(done.is_ok(), inode.kind == FileKind::Regular, "{done:?}");
                if done.is_ok() {
                    self.put(ino, at as usize, &data);
                }
            }
            Step::Truncate(d, n, size) => {
                let Some((ino, _)) = self.find(d, n) else { return };
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                if self.client.setattr(wait, ino, set).is_ok() {
                    self.bytes.get_mut(&ino).unwrap().resize(size as usize, 0);
                }
            }
            Step::Punch(d, n, at, len) => {
                let Some((ino, _)) = self.find(d, n) else { return };
                if self.client.fallocate(wait, ino, at, len, Fallocate::PunchHole).is_ok() {
                    let bytes = self.bytes.get_mut(&ino).unwrap();
                    let (from, to) = ((at as usize).min(bytes.len()), ((at + len) as usize).min(bytes.len()));
                    bytes[from..to].fill(0);
                }
            }
            Step::Allocate(d, n, at, len) => {
                let Some((ino, _)) = self.find(d, n) else { return };
                let what = Fallocate::Allocate { keep_size: false };
                if self.client.fallocate(wait, ino, at, len, what).is_ok() {
                    let bytes = self.bytes.get_mut(&ino).unwrap();
                    bytes.resize(bytes.len().max((at + len) as usize), 0);
                }
            }
            Step::Clone(d, n, d2, n2, from, to, len) => {
                let (Some((src, _)), Some((dst, _))) = (self.find(d, n), self.find(d2, n2)) else { return };
                if let Ok(done) = self.client.copy_file_range(wait, src, from, dst, to, len) {
                    let bytes = self.bytes[&src].clone();
                    let start = (from as usize).min(bytes.len());
                    let data = bytes[start..start + done as usize].to_vec();
                    if !data.is_empty() {
                        self.put(dst, to as usize, &data);
                    }
                }
            }
            Step::Chmod(d, n, perm) => {
                let Some((ino, _)) = self.find(d, n) else { return };
                let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
                self.client.setattr(wait, ino, set).unwrap();
            }
            Step::Utimes(d, n, secs) => {
                let Some((ino, _)) = self.find(d, n) else { return };
                let time = Some(Timestamp { secs, nanos: 5 });
                let set = SetAttr { atime: time, mtime: time, ..SetAttr::default() };
                self.client.setattr(wait, ino, set).unwrap();
            }
            Step::Xattr(d, n, len) => {
                let Some((ino, _)) = self.find(d, n) else { return };
                self.client.setxattr(wait, ino, b"user.test", &vec![7; len], XattrSet::Any).unwrap();
            }
            Step::RemoveXattr(d, n) => {
                let Some((ino, _)) = self.find(d, n) else { return };
                let _ = self.client.removexattr(wait, ino, b"user.test");
            }
            Step::Forget => {
                for (ino, count) in self.refs.drain() {
                    self.client.forget(ino, count);
                }
            }
            Step::Sync => self.client.fsync(InodeId::ROOT).unwrap(),
        }
    }

    fn put(&mut self, ino: InodeId, at: usize, data: &[u8]) {
        let bytes = self.bytes.get_mut(&ino).unwrap();
        bytes.resize(bytes.len().max(at + data.len()), 0);
        bytes[at..at + data.len()].copy_from_slice(data);
    }
}

/// Everything about a file that a program can see.
#[derive(Debug, PartialEq)]
struct Seen {
    ino: InodeId,
    inode: Inode,
    xattrs: Vec<(XattrName, Vec<u8>)>,
    bytes: Vec<u8>,
}

fn look(client: &Client) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    let mut todo = vec![(String::new(), InodeId::ROOT)];
    while let Some((path, ino)) = todo.pop() {
        let wait = Wait::Allowed;
        let inode = client.getattr(wait, ino).unwrap();
        let xattrs = client.listxattr(wait, ino).unwrap();
        let xattrs = xattrs
            .into_iter()
            .map(|name| {
                let value = client.getxattr(wait, ino, name.as_bytes()).unwrap().to_vec();
                (name, value)
            })
            .collect();
        let mut bytes = Vec::new();
        if inode.kind == FileKind::Regular {
            // Odd sizes, so that reads cross extents.
            while let Ok(parts) = client.read(wait, ino, bytes.len() as u64, 70_001)
                && !parts.is_empty()
            {
                bytes.extend(parts.concat());
            }
            assert_eq!(bytes.len() as u64, inode.size, "{path}");
        }
        if inode.is_dir() {
            let mut after = Cookie::START;
            let mut names = 0;
            // A visitor with little room, so that listings resume.
            while !client
                .readdir(wait, ino, after, false, &mut {
                    let (mut left, after, names, todo, path) = (3, &mut after, &mut names, &mut todo, &path);
                    move |name: &Name, dentry: shoal_namespace::Dentry, _: Option<&Inode>| {
                        if left == 0 {
                            return ControlFlow::Break(());
                        }
                        left -= 1;
                        *names += 1;
                        *after = name.cookie();
                        todo.push((format!("{path}/{name}"), dentry.ino));
                        ControlFlow::Continue(())
                    }
                })
                .unwrap()
            {}
            assert_eq!(names, inode.entries, "{path}");
        }
        seen.insert(path, Seen { ino, inode, xattrs, bytes });
    }
    seen
}

fn run(steps: &[Step], cache_bytes: usize) {
    let world = World::new();
    let client = world.mount_with(Options { cache_bytes, ..Options::default() });
    agree(&world, client, steps);
}

/// Runs the steps while the leader changes all the time, replies are lost and batches forgotten.
fn run_in_unrest(steps: &[Step], seed: u64) {
    let cluster = Cluster::new(seed);
    let world = World { group: cluster.group.clone(), bricks: Default::default() };
    let _unrest = cluster.unrest();
    let options = Options { cache_bytes: 1 << 10, ..Options::default() };
    let client = Client::open_replicated(cluster.clone(), world.bricks.clone(), options).expect("a session");
    agree(&world, client, steps);
}

fn agree(world: &World, client: Arc<Client>, steps: &[Step]) {
    let mut run = Run {
        client: client.clone(),
        dirs: vec![InodeId::ROOT],
        refs: HashMap::new(),
        bytes: HashMap::new(),
        filler: 0,
    };
    for step in steps {
        run.step(step);
    }
    let shown = look(&client);
    for (path, seen) in &shown {
        if seen.inode.kind == FileKind::Regular {
            assert!(seen.bytes == run.bytes[&seen.ino], "content of {path}");
        }
    }
    client.fsync(InodeId::ROOT).unwrap();
    let observer = world.mount();
    let stored = look(&observer);
    for (path, seen) in &shown {
        let other = stored.get(path).unwrap_or_else(|| panic!("{path} did not reach the server"));
        assert_eq!(seen.inode, other.inode, "{path}");
        assert_eq!(seen.xattrs, other.xattrs, "{path}");
        assert!(seen.bytes == other.bytes, "content of {path}");
    }
    assert_eq!(shown.len(), stored.len());
    // What the first client still refers to is deleted with its session; nothing else is left over.
    client.close().unwrap();
    assert_eq!(
        shoal_namespace::query::holds(&world.group.store, client.session(), 10).unwrap(),
        Vec::<InodeId>::new()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_server_ends_with_what_the_client_showed(steps in steps()) {
        run(&steps, 256 << 20);
    }

    #[test]
    fn the_server_ends_with_what_a_client_of_little_memory_showed(steps in steps()) {
        run(&steps, 1 << 10);
    }
}

proptest! {
    // Each case waits for leaders many times.
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn server_ends_with_what_the_client_showed_across_leaders(steps in steps(), seed in any::<u64>()) {
        run_in_unrest(&steps, seed);
    }
}
