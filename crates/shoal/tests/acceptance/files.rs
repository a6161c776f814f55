//! How programs open, append to, unlink and lose files; names and types of every kind.

use crate::harness::tree::{self, name_of, names};
use crate::harness::{Volume, plain, sh, sys};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

#[test]
fn an_unlinked_file_lives_as_long_as_it_is_open() {
    let mut volume = Volume::start("unlinked");
    let path = volume.path().join("file");
    let big: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fs::write(&path, &big).expect("write");
    let mut file = File::options().read(true).write(true).open(&path).expect("open");
    fs::remove_file(&path).expect("unlink");
    assert!(!path.exists());
    assert_eq!(file.metadata().expect("fstat").nlink(), 0);

    // A new file of the same name is not affected.
    fs::write(&path, b"another").expect("write");
    file.write_all_at(b"changed", 1_000_000).expect("write to an unlinked file");
    file.set_len(2_000_000).expect("truncate an unlinked file");
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("seek");
    file.read_to_end(&mut content).expect("read");
    let mut expected = big[..2_000_000].to_vec();
    expected[1_000_000..1_000_007].copy_from_slice(b"changed");
    assert!(content == expected, "the content of the unlinked file is not what was written");
    file.sync_all().expect("fsync of an unlinked file");
    drop(file);
    assert_eq!(fs::read(&path).expect("read"), b"another");
    volume.stop();
    volume.fsck();
}

#[test]
fn a_file_replaced_by_rename_lives_as_long_as_it_is_open() {
    let volume = Volume::start("replaced");
    let (old, new) = (volume.path().join("old"), volume.path().join("new"));
    fs::write(&old, b"old").expect("write");
    let mut file = File::open(&old).expect("open");
    fs::write(&new, b"new").expect("write");
    fs::rename(&new, &old).expect("rename");
    let mut content = String::new();
    file.read_to_string(&mut content).expect("read");
    assert_eq!(content, "old");
    assert_eq!(file.metadata().expect("fstat").nlink(), 0);
    assert_eq!(fs::read(&old).expect("read"), b"new");
}

#[test]
fn appends_from_several_threads_all_arrive_whole() {
    const WRITERS: usize = 4;
    const RECORDS: usize = 500;
    let mut volume = Volume::start("append");
    let path = volume.path().join("log");
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = &path;
            scope.spawn(move || {
                let mut file =
                    File::options().create(true).append(true).open(path).expect("open for appending");
                for record in 0..RECORDS {
                    // Odd lengths, so that records straddle pages.
                    let line = format!("{writer} {record} {}\n", "x".repeat(record % 313));
                    file.write_all(line.as_bytes()).expect("append");
                }
            });
        }
    });
    let check = |path: &Path| {
        let text = fs::read_to_string(path).expect("read");
        let mut next = [0; WRITERS];
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let writer: usize = fields[0].parse().expect("a record begins with its writer");
            assert_eq!(fields[1], next[writer].to_string(), "a record of writer {writer} is lost or doubled");
            assert_eq!(fields[2].len(), next[writer] % 313);
            next[writer] += 1;
        }
        assert_eq!(next, [RECORDS; WRITERS]);
    };
    check(&path);
    volume.remount();
    check(&path);
}

#[test]
fn opening_with_o_trunc_empties_and_with_o_excl_refuses() {
    let volume = Volume::start("open");
    let path = volume.path().join("file");
    fs::write(&path, vec![7; 100_000]).expect("write");
    File::options().write(true).truncate(true).open(&path).expect("open");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 0);
    assert_eq!(fs::metadata(&path).expect("stat").blocks(), 0);
    let refused = File::options().write(true).create_new(true).open(&path).expect_err("the file exists");
    assert_eq!(refused.raw_os_error(), Some(libc::EEXIST));
    let directory = sys::open(volume.path(), libc::O_WRONLY, 0).expect_err("a directory cannot be written");
    assert_eq!(directory.0, libc::EISDIR);
    let not_directory = sys::open(&path, libc::O_RDONLY | libc::O_DIRECTORY, 0).expect_err("not a directory");
    assert_eq!(not_directory.0, libc::ENOTDIR);
}

#[test]
fn o_sync_and_o_direct_writes_are_there_when_read_back() {
    let mut volume = Volume::start("o-sync");
    let path = volume.path().join("file");
    let file =
        sys::open(&path, libc::O_RDWR | libc::O_CREAT | libc::O_SYNC, 0o644).expect("open with O_SYNC");
    for record in 0..50u8 {
        sys::pwrite(&file, &[record; 1000], u64::from(record) * 1000).expect("write");
    }
    drop(file);
    // 8 KiB on a boundary that O_DIRECT accepts anywhere.
    let buffer = vec![9u8; 16384];
    let start = buffer.as_ptr().align_offset(4096);
    let file = sys::open(&path, libc::O_RDWR | libc::O_DIRECT, 0).expect("open with O_DIRECT");
    assert_eq!(sys::pwrite(&file, &buffer[start..start + 8192], 8192), Ok(8192));
    drop(file);
    let mut expected: Vec<u8> = (0..50_000).map(|i| (i / 1000) as u8).collect();
    expected[8192..16384].fill(9);
    assert!(fs::read(&path).expect("read") == expected);
    volume.remount();
    assert!(fs::read(&path).expect("read") == expected);
}

#[test]
fn unnamed_files_get_names_or_die_with_their_last_close() {
    let mut volume = Volume::start("o-tmpfile");
    let mut file = tempfile::tempfile_in(volume.path()).expect("a temporary file");
    file.write_all(&[7; 300_000]).expect("write");
    assert_eq!(names(volume.path()).len(), 0);
    drop(file);
    sh(volume.path(), UNNAMED).ok();
    assert_eq!(names(volume.path()), ["d", "name"]);
    volume.remount();
    assert_eq!(fs::read(volume.path().join("name")).expect("read"), b"content");
    assert_eq!(fs::metadata(volume.path().join("d/x")).expect("there").len(), 300_000);
    sh(volume.path(), "rm -r d name").ok();
    volume.stop();
    volume.fsck();
}

/// Makes files without names; two of them get some.
const UNNAMED: &str = r#"python3 -c "
import os
os.mkdir('d')
top = os.open('.', os.O_RDONLY)
before = os.stat('d')
def link(fd, name):
    # Only with a directory does it call linkat(2).
    os.link(f'/proc/self/fd/{fd}', name, src_dir_fd=top, follow_symlinks=True)
def fails(call, *args):
    try:
        call(*args)
    except FileNotFoundError:
        return
    raise Exception('it did not fail')
fd = os.open('d', os.O_TMPFILE | os.O_RDWR, 0o640)
os.write(fd, b'content')
assert os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_mode & 0o777 == 0o640
assert os.stat('d').st_mtime_ns == before.st_mtime_ns and os.listdir('d') == []
link(fd, 'name')
assert os.fstat(fd).st_nlink == 1 and os.pread(fd, 100, 0) == b'content'
link(fd, 'd/second')
os.unlink('name')
os.rename('d/second', 'name')
large = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o600)
os.write(large, b'x' * 300000)
os.fsync(large)
link(large, 'd/x')
os.fsync(large)
private = os.open('.', os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
fails(link, private, 'private')
gone = os.open('gone', os.O_CREAT | os.O_RDWR, 0o600)
os.unlink('gone')
fails(link, gone, 'again')
lost = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(lost, b'y' * 200000)
os.fsync(lost)
""#;

#[test]
fn names_may_have_255_bytes_of_any_kind() {
    let mut volume = Volume::start("names");
    let longest = volume.path().join(name_of(b'n', 255));
    fs::write(&longest, b"long").expect("a name of 255 bytes");
    let too_long =
        fs::write(volume.path().join(name_of(b'n', 256)), b"").expect_err("256 bytes are too many");
    assert_eq!(too_long.raw_os_error(), Some(libc::ENAMETOOLONG));
    for byte in (1..=255u8).filter(|byte| *byte != b'/' && *byte != b'.') {
        fs::write(volume.path().join(name_of(byte, 1 + usize::from(byte) % 200)), [byte])
            .expect("any byte is a name");
    }
    fs::create_dir(volume.path().join("...")).expect("three dots are a name");
    volume.remount();
    assert_eq!(fs::read(&longest).expect("read"), b"long");
    assert_eq!(names(volume.path()).len(), 1 + 253 + 1);
    for byte in (1..=255u8).filter(|byte| *byte != b'/' && *byte != b'.') {
        let path = volume.path().join(name_of(byte, 1 + usize::from(byte) % 200));
        assert_eq!(fs::read(path).expect("read"), [byte]);
    }
}

#[test]
fn directories_nest_deeper_than_a_path_reaches() {
    const DEPTH: usize = 1500;
    let mut volume = Volume::start("deep");
    // 13 KiB of path: only relative steps get there.
    let level = |number: usize| PathBuf::from(format!("level-{number}"));
    let mut here = sys::open(volume.path(), libc::O_DIRECTORY, 0).expect("open");
    for number in 0..DEPTH {
        sys::mkdir_at(&here, &level(number)).expect("mkdir");
        here = sys::open_at(&here, &level(number), libc::O_DIRECTORY, 0).expect("open");
    }
    let file = sys::open_at(&here, Path::new("file"), libc::O_CREAT | libc::O_RDWR, 0o644).expect("create");
    sys::pwrite(&file, b"bottom", 0).expect("write");
    drop((file, here));
    volume.remount();
    let mut here = sys::open(volume.path(), libc::O_DIRECTORY, 0).expect("open");
    for number in 0..DEPTH {
        here = sys::open_at(&here, &level(number), libc::O_DIRECTORY, 0).expect("open");
    }
    let file = sys::open_at(&here, Path::new("file"), libc::O_RDONLY, 0).expect("open");
    assert_eq!(sys::pread(&file, 100, 0), Ok(b"bottom".to_vec()));
    // Back up again, by what ".." says.
    for _ in 0..DEPTH {
        here = sys::open_at(&here, Path::new(".."), libc::O_DIRECTORY, 0).expect("open");
    }
    assert_eq!(sys::inode(&here), fs::metadata(volume.path()).expect("stat").ino());
    sh(volume.path(), "test $(find . -type d | wc -l) = 1501 && rm -r level-0").ok();
    assert_eq!(names(volume.path()).len(), 0);
}

#[test]
fn fifos_sockets_and_devices_are_kept_and_work() {
    let mut volume = Volume::start("special");
    let at = |name: &str| volume.path().join(name);
    sys::mknod(&at("fifo"), libc::S_IFIFO | 0o622, 0).expect("mkfifo");
    sys::mknod(&at("null"), libc::S_IFCHR | 0o666, libc::makedev(1, 3)).expect("mknod");
    sys::mknod(&at("block"), libc::S_IFBLK | 0o600, libc::makedev(259, 70_000)).expect("mknod");
    let listener = UnixListener::bind(at("socket")).expect("bind");

    let fifo = at("fifo");
    let reader = thread::spawn(move || fs::read_to_string(fifo).expect("read from a fifo"));
    fs::write(at("fifo"), "through the fifo").expect("write to a fifo");
    assert_eq!(reader.join().expect("the reader ends"), "through the fifo");
    let mut out = UnixStream::connect(at("socket")).expect("connect");
    let (mut incoming, _) = listener.accept().expect("accept");
    out.write_all(b"through the socket").expect("send");
    drop(out);
    let mut text = String::new();
    incoming.read_to_string(&mut text).expect("receive");
    assert_eq!(text, "through the socket");
    // A bound socket keeps the mount busy.
    drop((listener, incoming));

    let before = tree::read(volume.path());
    volume.remount();
    assert_eq!(tree::read(volume.path()), before);
    let device = fs::metadata(volume.path().join("block")).expect("stat");
    assert!(device.file_type().is_block_device());
    assert_eq!(device.rdev(), libc::makedev(259, 70_000));
    assert_eq!(device.permissions().mode() & 0o7777, 0o600 & !umask());
}

fn umask() -> u32 {
    // SAFETY: umask(2) cannot fail and takes an integer. Other tests of this process do not change it.
    unsafe {
        let mask = libc::umask(0o022);
        libc::umask(mask);
        mask
    }
}

#[test]
fn permissions_are_checked_for_other_users() {
    let volume = Volume::start("permissions");
    let private = volume.path().join("private");
    fs::create_dir(&private).expect("mkdir");
    fs::write(private.join("file"), b"secret").expect("write");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("chmod");
    let readable = volume.path().join("readable");
    fs::write(&readable, b"open").expect("write");
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o644)).expect("chmod");
    sys::as_user(65534, 65534, || {
        assert_eq!(fs::read(private.join("file")).expect_err("EACCES").raw_os_error(), Some(libc::EACCES));
        assert_eq!(fs::read(&readable).expect("anyone may read this"), b"open");
        assert_eq!(fs::write(&readable, b"").expect_err("EACCES").raw_os_error(), Some(libc::EACCES));
        let create = fs::write(volume.path().join("new"), b"").expect_err("EACCES");
        assert_eq!(create.raw_os_error(), Some(libc::EACCES));
        assert_eq!(sys::chmod(&readable, 0o777).expect_err("EPERM").0, libc::EPERM);
    });
    let sticky = volume.path().join("sticky");
    fs::create_dir(&sticky).expect("mkdir");
    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).expect("chmod");
    fs::write(sticky.join("of-root"), b"").expect("write");
    sys::as_user(65534, 65534, || {
        fs::write(sticky.join("of-uid-65534"), b"").expect("anyone may create here");
        let remove = fs::remove_file(sticky.join("of-root")).expect_err("only the owner may remove");
        assert_eq!(remove.raw_os_error(), Some(libc::EPERM));
    });
    assert_eq!(fs::metadata(sticky.join("of-uid-65534")).expect("stat").uid(), 65534);
}

#[test]
fn writing_takes_set_id_bits_away_from_those_who_may_not_keep_them() {
    let volume = Volume::start("set-id");
    for (name, change) in [
        (
            "written",
            (|path: &Path| File::options().write(true).open(path)?.write_all(b"x")) as fn(&Path) -> _,
        ),
        ("truncated", |path| File::options().write(true).open(path)?.set_len(1)),
    ] {
        let path = volume.path().join(name);
        fs::write(&path, b"program").expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("chmod");
        sys::as_user(65534, 65534, || change(&path)).expect("anyone may write");
        assert_eq!(fs::metadata(&path).expect("stat").mode() & 0o7777, 0o777, "{name}");
    }
    let path = volume.path().join("given-away");
    fs::write(&path, b"program").expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("chmod");
    sys::lchown(&path, 1, 1).expect("chown");
    assert_eq!(fs::metadata(&path).expect("stat").mode() & 0o7777, 0o777);
}

#[test]
fn a_directory_with_the_set_group_id_bit_hands_its_group_down() {
    let volume = Volume::start("set-gid");
    let top = volume.path().join("top");
    fs::create_dir(&top).expect("mkdir");
    sys::lchown(&top, 0, 4242).expect("chown");
    fs::set_permissions(&top, fs::Permissions::from_mode(0o2775)).expect("chmod");
    fs::write(top.join("file"), b"").expect("write");
    fs::create_dir(top.join("dir")).expect("mkdir");
    assert_eq!(fs::metadata(top.join("file")).expect("stat").gid(), 4242);
    let dir = fs::metadata(top.join("dir")).expect("stat");
    assert_eq!((dir.gid(), dir.mode() & 0o2000), (4242, 0o2000));
}

/// Which of a file's times were changed: atime, mtime, ctime.
fn moved(path: &Path, work: impl FnOnce()) -> [bool; 3] {
    let times = |path: &Path| {
        let meta = fs::symlink_metadata(path).expect("stat");
        [
            (meta.atime(), meta.atime_nsec()),
            (meta.mtime(), meta.mtime_nsec()),
            (meta.ctime(), meta.ctime_nsec()),
        ]
    };
    // Local file systems have clocks that tick this coarsely.
    thread::sleep(Duration::from_millis(12));
    let before = times(path);
    work();
    let after = times(path);
    std::array::from_fn(|i| before[i] != after[i])
}

#[test]
fn times_move_as_they_do_locally() {
    let volume = Volume::start("times");
    let history = |top: PathBuf| {
        fs::create_dir_all(top.join("dir")).expect("mkdir");
        let (file, dir) = (top.join("file"), top.join("dir"));
        fs::write(&file, vec![1; 100_000]).expect("write");
        let open = || File::options().read(true).write(true).open(&file).expect("open");
        let write = |offset| open().write_all_at(b"x", offset).expect("write");
        vec![
            moved(&file, || write(5)),
            moved(&file, || write(1 << 20)),
            moved(&file, || open().set_len(10).expect("truncate")),
            moved(&file, || open().set_len(10).expect("truncate to the same length")),
            moved(&file, || sys::truncate(&file, 10).expect("truncate to the same length by path")),
            moved(&file, || sys::chmod(&file, 0o600).expect("chmod")),
            moved(&file, || sys::lchown(&file, 5, 5).expect("chown")),
            moved(&file, || sys::utimens(&file, (5, 5), (6, 6)).expect("utimens")),
            moved(&file, || sys::setxattr(&file, "user.x".as_ref(), b"x", 0).expect("setxattr")),
            moved(&file, || fs::hard_link(&file, top.join("link")).expect("link")),
            moved(&file, || fs::rename(top.join("link"), top.join("renamed")).expect("rename")),
            moved(&file, || fs::remove_file(top.join("renamed")).expect("unlink")),
            moved(&dir, || fs::write(dir.join("new"), b"").expect("create")),
            moved(&dir, || fs::write(dir.join("new"), b"changed").expect("write to a child")),
            moved(&dir, || fs::rename(dir.join("new"), dir.join("newer")).expect("rename inside")),
            moved(&dir, || fs::rename(dir.join("newer"), top.join("out")).expect("rename out of")),
            moved(&top, || fs::create_dir(dir.join("sub")).expect("mkdir further down")),
            moved(&dir, || fs::remove_dir(dir.join("sub")).expect("rmdir")),
            moved(&file, || {
                let file = sys::open(&file, libc::O_RDWR, 0).expect("open");
                sys::fallocate(&file, 0, 0, 50_000).expect("fallocate");
            }),
            moved(&file, || {
                let file = sys::open(&file, libc::O_RDWR, 0).expect("open");
                sys::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 4096)
                    .expect("punch");
            }),
        ]
    };
    let ours = history(volume.path().join("top"));
    let reference = history(volume.local().join("top"));
    for (step, (ours, reference)) in ours.iter().zip(&reference).enumerate() {
        assert_eq!(ours, reference, "step {step}: [atime, mtime, ctime] moved, here and locally");
    }
}

#[test]
fn times_keep_their_nanoseconds_before_1970_and_after_2038() {
    let mut volume = Volume::start("nanoseconds");
    let moments =
        [(-1, 999_999_999), (-1_000_000_000, 1), (0, 0), (4_000_000_000, 123_456_789), (9_000_000_000, 1)];
    for (number, moment) in moments.iter().enumerate() {
        let path = volume.path().join(number.to_string());
        fs::write(&path, b"").expect("write");
        sys::utimens(&path, *moment, *moment).expect("utimens");
    }
    volume.remount();
    for (number, moment) in moments.iter().enumerate() {
        let meta = fs::metadata(volume.path().join(number.to_string())).expect("stat");
        assert_eq!((meta.atime(), meta.atime_nsec()), *moment);
        assert_eq!((meta.mtime(), meta.mtime_nsec()), *moment);
    }
}

#[test]
fn reading_leaves_the_access_time_alone() {
    let volume = Volume::start("atime");
    let path = volume.path().join("file");
    fs::write(&path, b"content").expect("write");
    sys::utimens(&path, (1_000_000, 0), (2_000_000, 0)).expect("utimens");
    fs::read(&path).expect("read");
    if !plain() {
        assert_eq!(fs::metadata(&path).expect("stat").atime(), 1_000_000);
    }
}

#[test]
fn new_files_carry_the_present_time() {
    let volume = Volume::start("now");
    let before = SystemTime::now() - Duration::from_secs(1);
    fs::write(volume.path().join("file"), b"").expect("write");
    let meta = fs::metadata(volume.path().join("file")).expect("stat");
    let after = SystemTime::now() + Duration::from_secs(1);
    for time in [meta.accessed(), meta.modified()] {
        let time = time.expect("the time is known");
        assert!(before < time && time < after);
    }
}
