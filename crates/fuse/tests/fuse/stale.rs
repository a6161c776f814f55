//! The kernel's caches are invalidated when another client makes a change. That client is simulated by calls
//! that bypass the kernel.

use crate::content::pattern;
use crate::gate::Gate;
use crate::sys::errno;
use crate::volume::{Volume, printed};
use shoal_client::{Caller, Client, Options, Stale, Wait};
use shoal_fuse::MountOptions;
use shoal_namespace::SetAttr;
use shoal_types::{InodeId, Name};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than any step takes unless it hangs.
const PATIENCE: Duration = Duration::from_secs(15);

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

fn ino(path: &Path) -> InodeId {
    InodeId(path.symlink_metadata().expect("there").ino())
}

fn name(dir: &Path, name: &str) -> Stale {
    Stale::Name { dir: ino(dir), name: Name::try_from(name).expect("a name") }
}

fn count(requests: &[(&str, u64)], op: &str) -> u64 {
    requests.iter().filter(|(name, _)| *name == op).map(|(_, count)| count).sum()
}

/// Runs an action on a thread of its own, in bounded time.
struct Task<T> {
    done: mpsc::Receiver<T>,
    thread: JoinHandle<()>,
}

fn task<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Task<T> {
    let (tell, done) = mpsc::channel();
    let thread = std::thread::spawn(move || drop(tell.send(work())));
    Task { done, thread }
}

impl<T> Task<T> {
    fn is_done(&self) -> bool {
        self.thread.is_finished()
    }

    #[track_caller]
    fn end(self) -> T {
        self.done.recv_timeout(PATIENCE).expect("it ends")
    }
}

#[track_caller]
fn wait_for(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < PATIENCE, "it never happens");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Invalidates the kernel's caches, in bounded time.
#[track_caller]
fn invalidate(volume: &Volume, stale: &[Stale]) {
    let (kernel, stale) = (volume.mounted.kernel_cache(), stale.to_vec());
    task(move || kernel.invalidate(&stale)).end();
}

/// Makes a file without the kernel's knowledge.
fn create_behind(client: &Client, dir: InodeId, name: &str, content: &[u8]) -> InodeId {
    let mode = libc::S_IFREG | 0o644;
    let made = client.create(Wait::Allowed, &CALLER, dir, name.as_bytes(), mode, 0).expect("new");
    client.write(Wait::Allowed, made.ino, 0, content, false).expect("written");
    client.forget(made.ino, 1);
    made.ino
}

/// A volume and its server, mounted by a client that has nothing cached and no room for changes.
fn gated(prepare: impl FnOnce(&Volume)) -> (Volume, Arc<Gate>) {
    let volume = Volume::mount();
    prepare(&volume);
    let world = volume.end();
    let gate = Gate::new(world.group.clone());
    let client = Client::open(gate.clone(), world.bricks.clone(), Options::default()).expect("a session");
    (Volume::mount_client(world, client, MountOptions::default()), gate)
}

#[test]
fn invalidated_name_is_looked_up_again() {
    let volume = Volume::mount();
    let dir = volume.path("dir");
    fs::create_dir(&dir).expect("new");
    fs::write(dir.join("old"), "x").expect("written");
    assert!(dir.join("old").exists() && !dir.join("new").exists());
    create_behind(&volume.client, ino(&dir), "new", b"made elsewhere");
    volume.client.unlink(Wait::Allowed, ino(&dir), b"old").expect("removed");
    assert!(dir.join("old").exists() && !dir.join("new").exists(), "the kernel cannot know");
    invalidate(&volume, &[name(&dir, "old"), name(&dir, "new"), name(&dir, "never heard of")]);
    assert!(!dir.join("old").exists());
    assert_eq!(fs::read_to_string(dir.join("new")).expect("there"), "made elsewhere");
    assert_eq!(volume.stats().invalidations.epochs, 0, "nothing else had to go");
}

#[test]
fn a_listing_goes_with_the_names_in_it() {
    let volume = Volume::mount();
    let dir = volume.path("dir");
    fs::create_dir(&dir).expect("new");
    let list = || {
        let mut names: Vec<_> =
            fs::read_dir(&dir).expect("read").map(|e| e.expect("read").file_name()).collect();
        names.sort();
        names
    };
    for n in 0..300 {
        fs::write(dir.join(n.to_string()), "x").expect("written");
    }
    assert_eq!((list().len(), list().len()), (300, 300));
    assert_eq!(volume.requests(|| drop(list())), [], "it is cached");
    create_behind(&volume.client, ino(&dir), "300", b"");
    assert_eq!(list().len(), 300, "the kernel cannot know");
    // The dcache does not have the name.
    invalidate(&volume, &[name(&dir, "300")]);
    assert_eq!(list().len(), 301);
    // A process that has the directory open sees the name after a rewind.
    let mut open = File::open(&dir).expect("opens");
    let mut page = vec![0; 1 << 16];
    while crate::sys::getdents(&open, &mut page).expect("read") > 0 {}
    create_behind(&volume.client, ino(&dir), "301", b"");
    invalidate(&volume, &[Stale::Node(ino(&dir))]);
    open.rewind().expect("from the beginning");
    let mut text = Vec::new();
    while let len @ 1.. = crate::sys::getdents(&open, &mut page).expect("read") {
        text.extend_from_slice(&page[..len]);
    }
    assert!(text.windows(4).any(|at| at == b"301\0"));
    assert_eq!(list().len(), 302);
}

/// A gated volume with four files in `dir`, and their names in the order in which it is listed.
fn four_files() -> (Volume, Arc<Gate>, [String; 4]) {
    let (volume, gate) =
        gated(|volume| drop(printed(volume.shell("mkdir dir; cd dir; touch one two three four"))));
    let mut names = ["one", "two", "three", "four"].map(|name| Name::try_from(name).expect("a name"));
    names.sort_by_key(Name::cookie);
    (volume, gate, names.map(|name| std::str::from_utf8(name.as_bytes()).expect("text").to_owned()))
}

#[test]
fn listing_ends_before_a_name_that_must_be_waited_for() {
    let (volume, gate, names) = four_files();
    let dir = volume.path("dir");
    let (known, rest) = names.split_at(2);
    gate.list_bare(&rest[0]);
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("listed").file_name().into_string().expect("text")
    };
    let listing = task(move || {
        let mut entries = fs::read_dir(dir).expect("opens").map(name);
        (entries.by_ref().take(2).collect::<Vec<_>>(), entries)
    });
    wait_for(|| listing.is_done());
    let (first, entries) = listing.end();
    assert_eq!(first, known);
    gate.open();
    assert_eq!(entries.collect::<Vec<_>>(), rest);
}

#[test]
fn a_listing_that_waits_does_not_bring_back_a_name_that_was_dropped_meanwhile() {
    let (volume, gate, names) = four_files();
    let dir = volume.path("dir");
    let inode = ino(&dir);
    gate.list_bare(&names[2]);
    let (removed, rest) = names.split_at(2);
    // The kernel keeps dentries of open files.
    let open = removed.iter().map(|name| File::open(dir.join(name)).expect("opens")).collect::<Vec<_>>();
    let path = dir.clone();
    let listing = task(move || fs::read_dir(path).expect("opens").count());
    wait_for(|| gate.waiting() > 0);
    // The listing holds the directory's lock: one notification is blocked by it, and no other is sent after
    // that.
    for name in removed {
        volume.client.unlink(Wait::Allowed, inode, name.as_bytes()).expect("removed");
        let name = Name::try_from(name.as_str()).expect("a name");
        invalidate(&volume, &[Stale::Name { dir: inode, name }, Stale::Node(inode)]);
    }
    assert!(!listing.is_done() && volume.stats().invalidations.epochs > 0);
    gate.open();
    assert!(listing.end() >= 2);
    assert!(removed.iter().all(|name| !dir.join(name).exists()), "they were removed before");
    let look = || assert!(rest.iter().all(|name| dir.join(name).exists()));
    look();
    assert_eq!(volume.requests(look), [], "what was looked up since is kept");
    drop(open);
}

#[test]
fn invalidated_attributes_are_requested_again() {
    let volume = Volume::mount();
    let file = volume.path("file");
    fs::write(&file, "x").expect("written");
    let stat = || fs::metadata(&file).expect("there").mode() & 0o777;
    assert_eq!((stat(), stat()), (0o644, 0o644));
    assert_eq!(volume.requests(|| assert_eq!(stat(), 0o644)), []);
    let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    volume.client.setattr(Wait::Allowed, ino(&file), set).expect("changed");
    assert_eq!(stat(), 0o644, "the kernel cannot know");
    invalidate(&volume, &[Stale::Node(ino(&file))]);
    let requests = volume.requests(|| assert_eq!(stat(), 0o600));
    assert_eq!(count(&requests, "getattr"), 1, "{requests:?}");
    assert_eq!(count(&requests, "lookup"), 0, "{requests:?}");
}

#[test]
fn invalidated_content_is_read_again() {
    let volume = Volume::mount();
    let path = volume.path("file");
    let old = pattern(300_000);
    fs::write(&path, &old).expect("written");
    let file = File::open(&path).expect("opens");
    assert!(fs::read(&path).expect("read") == old);
    volume.client.write(Wait::Allowed, ino(&path), 100_000, b"elsewhere", false).expect("written");
    let read = || {
        let mut bytes = [0; 9];
        file.read_exact_at(&mut bytes, 100_000).expect("read");
        bytes
    };
    assert_eq!(read(), old[100_000..100_009], "the kernel cannot know");
    invalidate(&volume, &[Stale::Node(ino(&path))]);
    assert_eq!(&read(), b"elsewhere");
}

#[test]
fn a_file_that_grew_or_shrank_elsewhere_shows_its_new_size_and_content() {
    let volume = Volume::mount();
    let path = volume.path("file");
    fs::write(&path, "short").expect("written");
    let mut file = File::open(&path).expect("opens");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    volume.client.write(Wait::Allowed, ino(&path), 5, &pattern(20_000), false).expect("written");
    invalidate(&volume, &[Stale::Node(ino(&path))]);
    assert_eq!(fs::metadata(&path).expect("there").len(), 20_005);
    let mut more = Vec::new();
    file.read_to_end(&mut more).expect("read");
    assert!(more == pattern(20_000), "who had read to the end reads on");
    let set = SetAttr { size: Some(3), ..SetAttr::default() };
    volume.client.setattr(Wait::Allowed, ino(&path), set).expect("changed");
    invalidate(&volume, &[Stale::Node(ino(&path))]);
    assert_eq!(fs::read(&path).expect("read"), b"sho");
    file.rewind().expect("from the beginning");
    more.clear();
    file.read_to_end(&mut more).expect("read");
    assert_eq!(more, b"sho");
    // The result is the same for a read that sends no GETATTR first.
    volume.client.write(Wait::Allowed, ino(&path), 3, b"re", false).expect("written");
    invalidate(&volume, &[Stale::Node(ino(&path))]);
    let mut bytes = [0; 8];
    assert_eq!(file.read_at(&mut bytes, 0).expect("read"), 5);
    assert_eq!(&bytes[..5], b"shore");
}

#[test]
fn invalidated_link_target_is_read_again() {
    let volume = Volume::mount();
    let link = volume.path("link");
    std::os::unix::fs::symlink("there", &link).expect("new");
    for _ in 0..2 {
        assert_eq!(fs::read_link(&link).expect("a link"), Path::new("there"));
    }
    assert_eq!(volume.requests(|| drop(fs::read_link(&link))), []);
    invalidate(&volume, &[Stale::Node(ino(&link))]);
    let requests = volume.requests(|| drop(fs::read_link(&link).expect("a link")));
    assert_eq!(count(&requests, "readlink"), 1, "{requests:?}");
}

#[test]
fn when_the_lease_has_run_out_everything_is_asked_for_again() {
    let volume = Volume::mount();
    let (dir, path) = (volume.path("dir"), volume.path("dir/file"));
    fs::create_dir(&dir).expect("new");
    fs::write(&path, pattern(10_000)).expect("written");
    let look = || {
        assert_eq!(fs::read_dir(&dir).expect("read").count(), 1);
        assert!(fs::read(&path).expect("read") == pattern(10_000));
        assert!(!dir.join("absent").exists());
    };
    look();
    look();
    assert_eq!(volume.requests(look), []);
    let (kernel, inodes) = (volume.mounted.kernel_cache(), [InodeId::ROOT, ino(&dir), ino(&path)]);
    task(move || kernel.invalidate_all(&inodes)).end();
    let requests = volume.requests(look);
    for op in ["lookup", "read"] {
        assert!(count(&requests, op) > 0, "{op} in {requests:?}");
    }
    assert!(count(&requests, "readdir") + count(&requests, "readdirplus") > 0, "{requests:?}");
    look();
    assert_eq!(volume.requests(look), [], "it is cached anew");
}

#[test]
fn who_works_in_a_directory_goes_on_when_all_names_are_outdated() {
    let volume = Volume::mount();
    printed(volume.shell("mkdir -p a/b && echo hello > a/b/file"));
    let mut shell = Command::new("timeout")
        .args([
            "60",
            "sh",
            "-c",
            "cd a/b && exec 3<file && echo && read x && cat <&3 && pwd -P && cat file && touch new",
        ])
        .current_dir(volume.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut out = shell.stdout.take().expect("a pipe");
    out.read_exact(&mut [0]).expect("it is there");
    let (kernel, inodes) =
        (volume.mounted.kernel_cache(), [ino(&volume.path("a")), ino(&volume.path("a/b"))]);
    task(move || kernel.invalidate_all(&inodes)).end();
    assert!(volume.path("a/b/file").exists());
    shell.stdin.take().expect("a pipe").write_all(b"\n").expect("heard");
    let mut text = String::new();
    out.read_to_string(&mut text).expect("text");
    assert!(shell.wait().expect("ends").success());
    assert_eq!(text, format!("hello\n{}\nhello\n", volume.path("a/b").display()));
    assert!(volume.path("a/b/new").exists());
}

#[test]
fn a_name_is_dropped_at_once_while_a_create_beside_it_waits() {
    let (volume, gate) = gated(|volume| drop(printed(volume.shell("mkdir dir; touch dir/old"))));
    let dir = volume.path("dir");
    assert!(dir.join("old").exists() && !dir.join("absent").exists());
    let inode = ino(&dir);
    gate.shut_grants();
    let path = dir.join("new");
    let create = task(move || File::create(path).map(drop));
    wait_for(|| gate.waiting() > 0);
    for stale in ["old", "absent"].map(|name| Name::try_from(name).expect("a name")) {
        invalidate(&volume, &[Stale::Name { dir: inode, name: stale }]);
    }
    assert!(!create.is_done(), "it was not waited for");
    assert!(volume.stats().invalidations.epochs > 0);
    gate.open();
    create.end().expect("it blocked no other call");
    let requests = volume.requests(|| {
        assert!(dir.join("old").exists() && dir.join("new").exists() && !dir.join("absent").exists());
    });
    assert!(count(&requests, "lookup") >= 2, "{requests:?}");
}

#[test]
fn a_name_is_dropped_soon_while_a_lookup_keeps_the_directory_locked() {
    let (volume, gate) = gated(|volume| drop(printed(volume.shell("mkdir from to; touch from/file to/old"))));
    let (from, to) = (volume.path("from"), volume.path("to"));
    let dirs = [ino(&from), ino(&to)];
    assert!(to.join("old").exists());
    gate.shut();
    // The kernel looks up the names while it holds the locks of both directories.
    let (old, new) = (from.join("file"), to.join("file"));
    let rename = task(move || fs::rename(old, new));
    wait_for(|| gate.waiting() > 0);
    for dir in dirs {
        let old = Stale::Name { dir, name: Name::try_from("old").expect("a name") };
        invalidate(&volume, &[old, Stale::Node(dir)]);
    }
    assert!(!rename.is_done());
    gate.open();
    rename.end().expect("renamed");
    assert!(!from.join("file").exists() && to.join("file").exists());
    let requests = volume.requests(|| assert!(to.join("old").exists()));
    assert!(count(&requests, "lookup") > 0, "{requests:?}");
}

/// Invalidates a file while a write to it waits; `known`: the kernel has the pages cached.
fn drop_while_writing(known: bool) {
    const LEN: usize = 40_000;
    let (volume, gate) = gated(|volume| fs::write(volume.path("file"), pattern(LEN)).expect("written"));
    let path = volume.path("file");
    let file = Arc::new(OpenOptions::new().read(true).write(true).open(&path).expect("opens"));
    if known {
        assert!(fs::read(&path).expect("read") == pattern(LEN));
    }
    // Caches the content in the client.
    let inode = ino(&path);
    volume.client.read(Wait::Allowed, inode, 0, LEN as u32).expect("read");
    gate.shut_grants();
    let writer = file.clone();
    let write = task(move || writer.write_all_at(&[b'!'; 10_000], 10_000));
    wait_for(|| gate.waiting() > 0);
    invalidate(&volume, &[Stale::Node(inode)]);
    assert!(!write.is_done(), "it was not waited for");
    let seen = volume.requests(|| assert_eq!(fs::metadata(&path).expect("there").len(), LEN as u64));
    assert_eq!(count(&seen, "getattr"), 1, "{seen:?}");
    let reader = file.clone();
    let start = task(move || {
        let mut bytes = [0; 4096];
        reader.read_exact_at(&mut bytes, 0).map(|()| bytes)
    });
    assert!(start.end().expect("read") == pattern(4096)[..]);
    assert!(!write.is_done());
    gate.open();
    write.end().expect("written");
    let mut expected = pattern(LEN);
    expected[10_000..20_000].fill(b'!');
    assert!(fs::read(&path).expect("read") == expected);
}

#[test]
fn a_file_is_dropped_at_once_while_a_write_to_cached_pages_waits() {
    drop_while_writing(true);
}

#[test]
fn a_file_is_dropped_at_once_while_a_write_to_unknown_pages_waits() {
    drop_while_writing(false);
}

#[test]
fn what_surrounds_a_write_in_its_page_is_read_again_after_it() {
    let (volume, gate) = gated(|volume| fs::write(volume.path("file"), pattern(8192)).expect("written"));
    let path = volume.path("file");
    let file = Arc::new(OpenOptions::new().read(true).write(true).open(&path).expect("opens"));
    assert!(fs::read(&path).expect("read") == pattern(8192));
    let inode = ino(&path);
    gate.shut_grants();
    let writer = file.clone();
    let write = task(move || writer.write_all_at(b"here", 5000));
    wait_for(|| gate.waiting() > 0);
    invalidate(&volume, &[Stale::Node(inode)]);
    assert!(!write.is_done());
    let before = volume.stats().invalidations.nodes;
    gate.open();
    write.end().expect("written");
    wait_for(|| volume.stats().invalidations.nodes > before);
    let seen = volume.requests(|| assert_eq!(&fs::read(&path).expect("read")[5000..5004], b"here"));
    assert!(count(&seen, "read") > 0, "{seen:?}");
}

#[test]
fn write_to_a_shared_file_is_not_visible_before_it_is_carried_out() {
    let (volume, gate) = gated(|volume| fs::write(volume.path("file"), pattern(8192)).expect("written"));
    let path = volume.path("file");
    let file = Arc::new(OpenOptions::new().read(true).write(true).open(&path).expect("opens"));
    let inode = ino(&path);
    volume.client.read(Wait::Allowed, inode, 0, 8192).expect("read");
    invalidate(&volume, &[Stale::Node(inode)]);
    assert!(fs::read(&path).expect("read") == pattern(8192));
    gate.shut_grants();
    let writer = file.clone();
    let write = task(move || writer.write_all_at(b"here", 5000));
    wait_for(|| gate.waiting() > 0);
    let seen = move || {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, 5000).map(|()| bytes).expect("read")
    };
    wait_for(|| seen() == pattern(8192)[5000..5004]);
    assert!(!write.is_done());
    gate.open();
    write.end().expect("written");
    assert_eq!(&seen(), b"here");
}

#[test]
fn pages_that_are_being_read_are_waited_for() {
    let (volume, gate) = gated(|volume| fs::write(volume.path("file"), pattern(3 << 20)).expect("written"));
    let path = volume.path("file");
    let inode = ino(&path);
    gate.shut();
    let reader = path.clone();
    let read = task(move || fs::read(reader));
    wait_for(|| gate.waiting() > 0);
    let kernel = volume.mounted.kernel_cache();
    let dropped = task(move || kernel.invalidate(&[Stale::Node(inode)]));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!dropped.is_done() && !read.is_done());
    gate.open();
    dropped.end();
    assert!(read.end().expect("read") == pattern(3 << 20));
}

#[test]
fn invalidation_does_not_wait_for_a_mount_that_ends() {
    let (volume, gate) = gated(|volume| {
        fs::write(volume.path("file"), pattern(3 << 20)).expect("written");
        fs::create_dir(volume.path("dir")).expect("new");
    });
    let (path, dir) = (volume.path("file"), volume.path("dir"));
    let (inode, parent) = (ino(&path), ino(&dir));
    assert!(!dir.join("absent").exists());
    gate.shut();
    gate.shut_grants();
    let read = task(move || fs::read(path).map(drop));
    let create = task(move || File::create(dir.join("new")).map(drop));
    wait_for(|| gate.waiting() >= 2);
    let kernel = volume.mounted.kernel_cache();
    let dropped = task(move || {
        kernel.invalidate(&[Stale::Node(inode)]);
        let absent = Stale::Name { dir: parent, name: Name::try_from("absent").expect("a name") };
        kernel.invalidate(&[absent, Stale::Node(parent)]);
        kernel.invalidate_all(&[inode, parent]);
    });
    std::thread::sleep(Duration::from_millis(50));
    let umount = Command::new("umount").args(["-f", "-l"]).arg(volume.root()).status();
    assert!(umount.expect("runs").success());
    dropped.end();
    read.end().expect_err("the mount is gone");
    create.end().expect_err("the mount is gone");
    gate.open();
    volume.mounted.wait().expect("an end");
    let kernel = volume.mounted.kernel_cache();
    task(move || kernel.invalidate(&[Stale::Node(inode)])).end();
}

#[test]
fn an_answer_on_its_way_does_not_bring_back_what_was_dropped() {
    let volume = Volume::mount();
    fs::write(volume.path("file"), "x").expect("written");
    let inode = ino(&volume.path("file"));
    let volume = volume.remount();
    // Simulates a reply that was sent and not yet handled by the kernel.
    volume.client.lookup(Wait::Allowed, InodeId::ROOT, b"file").expect("found");
    let kernel = volume.mounted.kernel_cache();
    let dropped = task(move || kernel.invalidate(&[Stale::Node(inode)]));
    std::thread::sleep(Duration::from_millis(20));
    let was_waiting = !dropped.is_done();
    fs::metadata(volume.path("file")).expect("there");
    let was_waiting = was_waiting && !dropped.is_done();
    dropped.end();
    let requests = volume.requests(|| assert!(fs::metadata(volume.path("file")).is_ok()));
    assert!(!was_waiting || count(&requests, "getattr") == 1, "{requests:?}");
    // An inode without references of the kernel is not waited for.
    volume.client.forget(inode, 1);
}

#[test]
fn open_finds_the_file_that_another_client_has_just_made() {
    let volume = Volume::mount();
    let root = InodeId::ROOT;
    for n in ["a", "b", "c"] {
        assert!(!volume.path(n).exists());
        create_behind(&volume.client, root, n, b"made elsewhere");
    }
    let mut open = OpenOptions::new();
    let mut file = open.read(true).write(true).create(true).open(volume.path("a")).expect("opens");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    assert_eq!(text, "made elsewhere");
    assert_eq!(errno(File::create_new(volume.path("b"))), libc::EEXIST);
    assert_eq!(errno(fs::create_dir(volume.path("b"))), libc::EEXIST);
    // `O_TRUNC` works as for any other file.
    drop(File::create(volume.path("c")).expect("opens"));
    assert_eq!(fs::metadata(volume.path("c")).expect("there").len(), 0);
}

#[test]
fn waiting_changes_do_not_use_the_threads_of_readers() {
    const WAITING: usize = 300;
    let (volume, gate) =
        gated(|volume| {
            printed(volume.shell(
                "for n in $(seq 0 299); do mkdir $n; done; mkdir cold; touch cold/file; echo x > known",
            ));
        });
    let paths: Vec<_> = (0..WAITING).map(|n| volume.path(&n.to_string())).collect();
    for path in &paths {
        assert!(!path.join("new").exists());
    }
    gate.shut_grants();
    let creates: Vec<_> =
        paths.into_iter().map(|path| task(move || File::create(path.join("new")).map(drop))).collect();
    wait_for(|| volume.stats().slow_queued >= WAITING - 2 * shoal_fuse::limits::SLOW_THREADS);
    let (cold, known) = (volume.path("cold"), volume.path("known"));
    let look = task(move || {
        assert_eq!(fs::read_dir(cold).expect("read").count(), 1);
        assert_eq!(fs::read_to_string(known).expect("read"), "x\n");
    });
    look.end();
    assert!(creates.iter().all(|create| !create.is_done()));
    gate.open();
    creates.into_iter().for_each(|create| create.end().expect("new"));
}

#[test]
fn invalidation_during_many_local_changes_never_hangs() {
    let volume = Volume::mount();
    fs::create_dir(volume.path("dir")).expect("new");
    let dir = ino(&volume.path("dir"));
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (stop, dir) = (stop.clone(), volume.path("dir"));
            task(move || {
                let mut round = 0u64;
                while !stop.load(SeqCst) {
                    let (file, other) =
                        (dir.join(format!("{worker}-{}", round % 5)), dir.join(format!("{worker}")));
                    fs::write(&file, round.to_string()).expect("written");
                    assert_eq!(fs::read_to_string(&file).expect("read"), round.to_string());
                    fs::rename(&file, &other).expect("renamed");
                    fs::remove_file(&other).expect("removed");
                    round += 1;
                }
                round
            })
        })
        .collect();
    let kernel = volume.mounted.kernel_cache();
    let drops = task(move || {
        let start = Instant::now();
        let mut round = 0;
        while start.elapsed() < Duration::from_secs(2) {
            let name = Name::try_from(format!("{}-{}", round % 4, round % 5).as_str()).expect("a name");
            kernel.invalidate(&[Stale::Name { dir, name }, Stale::Node(dir)]);
            if round % 50 == 0 {
                kernel.invalidate_all(&[dir, InodeId::ROOT]);
            }
            round += 1;
        }
    });
    drops.end();
    stop.store(true, SeqCst);
    for worker in workers {
        assert!(worker.end() > 0);
    }
    assert_eq!(fs::read_dir(volume.path("dir")).expect("read").count(), 0);
}

#[test]
fn writer_reads_its_own_writes_however_often_the_file_is_invalidated() {
    const LEN: usize = 64 << 10;
    let (volume, gate) = gated(|volume| fs::write(volume.path("file"), vec![0; LEN]).expect("written"));
    let path = volume.path("file");
    let inode = ino(&path);
    let file = Arc::new(OpenOptions::new().read(true).write(true).open(&path).expect("opens"));
    gate.grant_at_most(10 << 10);
    for round in 1..20u8 {
        assert_eq!(fs::read(&path).expect("read").len(), LEN);
        // Room is granted for one write at a time, so most of them wait.
        gate.shut_grants();
        let (writer, offset) = (file.clone(), u64::from(round) * 1000);
        let write = task(move || {
            writer.write_all_at(&[round; 9000], offset).expect("written");
            let mut seen = vec![0; 9000];
            writer.read_exact_at(&mut seen, offset).expect("read");
            assert!(seen.iter().all(|byte| *byte == round), "round {round}");
        });
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (stop, file) = (stop.clone(), file.clone());
                task(move || {
                    let mut bytes = vec![0; 4096];
                    for page in (0..LEN as u64 / 4096).cycle() {
                        if stop.load(SeqCst) {
                            break;
                        }
                        file.read_exact_at(&mut bytes, page * 4096).expect("read");
                    }
                })
            })
            .collect();
        for _ in 0..5 {
            invalidate(&volume, &[Stale::Node(inode)]);
        }
        gate.open();
        write.end();
        stop.store(true, SeqCst);
        readers.into_iter().for_each(Task::end);
    }
}

/// The file by which the process to be killed reports its progress.
const MARKS: &str = "SHOAL_TEST_TO_BE_KILLED";

/// Not a test, but the process of the next test: serves a mount on which a program waits in write(2), while
/// the page being written is invalidated.
#[test]
fn serve_until_killed() {
    let Some(marks) = std::env::var_os(MARKS).map(std::path::PathBuf::from) else { return };
    let (volume, gate) = gated(|volume| fs::write(volume.path("file"), pattern(8192)).expect("written"));
    let inode = ino(&volume.path("file"));
    fs::write(marks.join("mount"), volume.root().to_str().expect("text")).expect("marked");
    gate.shut_grants();
    let script = format!(
        "printf x | timeout 60 dd of={} bs=1 seek=5000 conv=notrunc; echo $? > {}/written",
        volume.path("file").display(),
        marks.display()
    );
    let mut writer = Command::new("sh").args(["-c", &script]).spawn().expect("a shell");
    wait_for(|| gate.waiting() > 0);
    invalidate(&volume, &[Stale::Node(inode)]);
    fs::write(marks.join("ready"), "").expect("marked");
    // This process is killed now.
    std::thread::sleep(PATIENCE * 2);
    let _ = writer.wait();
}

#[test]
fn mount_killed_while_the_kernel_waits_for_it_ends_every_call() {
    let marks = tempfile::tempdir().expect("a directory");
    let _orphan = Orphan(marks.path());
    let mut process = Command::new(std::env::current_exe().expect("this one"))
        .args(["--exact", "stale::serve_until_killed"])
        // Over io_uring the requests of a dead process end with the abort by its guard, which this one lacks.
        .env("SHOAL_TRANSPORT", "dev")
        .env(MARKS, marks.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("runs");
    wait_for(|| marks.path().join("ready").exists());
    process.kill().expect("killed");
    let process = task(move || process.wait().map(drop));
    wait_for(|| process.is_done() && marks.path().join("written").exists());
    assert_ne!(fs::read_to_string(marks.path().join("written")).expect("read").trim(), "0");
}

/// The mount of a process that was killed.
struct Orphan<'a>(&'a Path);

impl Drop for Orphan<'_> {
    fn drop(&mut self) {
        if let Ok(root) = fs::read_to_string(self.0.join("mount")) {
            // With `-f`, which ends it also if the process is stuck.
            let _ = Command::new("umount").args(["-f", "-l", &root]).status();
            let _ = fs::remove_dir_all(Path::new(&root).parent().expect("a parent"));
        }
    }
}
