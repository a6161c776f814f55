use crate::sys::{Map, errno, fallocate, ioctl, lseek};
use crate::volume::{Volume, printed};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Bytes that repeat nowhere near.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("opens")
}

#[test]
fn written_content_is_read_after_a_new_mount() {
    let mut volume = Volume::mount();
    for (name, len) in [("empty", 0), ("small", 100), ("inline", 60_000), ("large", 9 << 20)] {
        fs::write(volume.path(name), pattern(len)).expect(name);
        assert!(fs::read(volume.path(name)).expect(name) == pattern(len), "{name}");
    }
    volume = volume.remount();
    for (name, len) in [("empty", 0), ("small", 100), ("inline", 60_000), ("large", 9 << 20)] {
        assert!(fs::read(volume.path(name)).expect(name) == pattern(len), "{name}");
    }
}

#[test]
fn writes_land_where_they_are_meant_to() {
    let volume = Volume::mount();
    let path = volume.path("file");
    let mut file = open(&path);
    let mut model = vec![0u8; 300_000];
    for (n, at) in [0usize, 250_000, 70_001, 4095, 131_072, 65_535].into_iter().enumerate() {
        let data = vec![n as u8 + 1; 9_973];
        file.write_all_at(&data, at as u64).expect("written");
        model[at..at + data.len()].copy_from_slice(&data);
    }
    model.truncate(250_000 + 9_973);
    assert!(fs::read(&path).unwrap() == model);
    file.seek(SeekFrom::End(-3)).expect("seeks");
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).expect("read");
    assert_eq!(tail, [2, 2, 2]);
}

#[test]
fn appends_of_two_openers_do_not_overwrite_each_other() {
    let volume = Volume::mount();
    let path = volume.path("log");
    let append = || OpenOptions::new().append(true).create(true).open(&path).expect("opens");
    let (mut a, mut b) = (append(), append());
    for n in 0..100 {
        write!(a, "a{n:03}").expect("appended");
        write!(b, "b{n:03}").expect("appended");
    }
    let log = fs::read_to_string(&path).unwrap();
    assert_eq!(log.len(), 800);
    assert!(log.starts_with("a000b000a001b001"));
}

/// Runs two actions at once, the second repeatedly until the first has ended, while other threads compete for
/// processors.
fn beside(first: impl FnOnce() + Send, mut second: impl FnMut()) {
    const SPINNERS: usize = 3;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..SPINNERS {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let first = scope.spawn(first);
        while !first.is_finished() {
            second();
        }
        over.store(true, Relaxed);
    });
}

fn pause(n: u32) {
    std::thread::sleep(Duration::from_micros(u64::from(n % 7) * 50));
}

#[test]
fn who_reads_while_a_file_is_cut_sees_no_zeros() {
    const PAGE: u64 = 4096;
    const CUTS: u32 = 4000;
    let volume = Volume::mount();
    let (path, content) = (volume.path("f"), vec![b'x'; 10_000]);
    fs::write(&path, &content).expect("writes");
    let (written, read) = (open(&path), open(&path));
    let cut = || {
        for n in 0..CUTS {
            written.write_all_at(&content, 0).expect("writes");
            pause(n);
            // The kernel's truncation of a page is not atomic, on any file system.
            written.set_len(PAGE).expect("cuts");
            pause(n + 3);
        }
    };
    let (mut seen, mut zeros) = (vec![0; content.len()], 0);
    beside(cut, || {
        let len = read.read_at(&mut seen, 0).expect("reads");
        zeros += u32::from(seen[..len].contains(&0));
    });
    assert_eq!(zeros, 0, "of {CUTS} cuts");
}

#[test]
fn who_asks_for_the_length_of_a_file_that_grows_can_read_so_far() {
    const GROWS: u32 = 4000;
    type Grow = fn(&File, u64) -> std::io::Result<()>;
    let volume = Volume::mount();
    let append = |file: &File, _| (&*file).write_all(b"x");
    let ways: [(&str, Grow); 4] = [
        ("written to", |file, at| file.write_all_at(b"x", at)),
        ("appended to", append),
        ("made longer", |file, at| file.set_len(at + 1)),
        ("given room", |file, at| fallocate(file, 0, at as i64, 1)),
    ];
    for (what, grow) in ways {
        let path = volume.path(what);
        let written = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .custom_flags(if what == "appended to" { libc::O_APPEND } else { 0 })
            .open(&path)
            .expect("opens");
        let read = File::open(&path).expect("opens");
        let all = || {
            for n in 0..GROWS {
                grow(&written, u64::from(n)).expect("grows");
                pause(n);
            }
        };
        let mut short = 0;
        beside(all, || {
            let len = read.metadata().expect("told").len();
            if len > 0 && read.read_at(&mut [0], len - 1).expect("reads") == 0 {
                short += 1;
            }
        });
        assert_eq!(short, 0, "{what} {GROWS} times");
    }
}

#[test]
fn direct_io_reads_and_writes_the_same_bytes() {
    let volume = Volume::mount();
    let path = volume.path("file");
    fs::write(&path, pattern(1 << 20)).expect("written");
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    let mut block = vec![0u8; 8192];
    let aligned = block.as_ptr().align_offset(4096);
    let block = &mut block[aligned..aligned + 4096];
    file.read_exact_at(block, 65_536).expect("read");
    assert!(block[..] == pattern(1 << 20)[65_536..69_632]);
    block.fill(9);
    file.write_all_at(block, 65_536).expect("written");
    assert!(fs::read(&path).unwrap()[65_536..69_632].iter().all(|b| *b == 9));
}

#[test]
fn a_shared_mapping_is_the_file_itself() {
    let volume = Volume::mount();
    let path = volume.path("file");
    fs::write(&path, pattern(100_000)).expect("written");
    let file = open(&path);
    let mut map = Map::new(&file, 100_000, libc::MAP_SHARED).expect("maps");
    assert!(map.bytes() == pattern(100_000));
    map.bytes()[50_000..50_010].copy_from_slice(b"via memory");
    assert_eq!(&fs::read(&path).unwrap()[50_000..50_010], b"via memory");
    file.write_all_at(b"via write", 70_000).expect("written");
    assert_eq!(&map.bytes()[70_000..70_009], b"via write");
    map.sync().expect("durable");
    drop((map, file));
    let volume = volume.remount();
    assert_eq!(&fs::read(volume.path("file")).unwrap()[50_000..50_010], b"via memory");
}

#[test]
fn a_private_mapping_leaves_the_file_alone() {
    let volume = Volume::mount();
    let path = volume.path("file");
    fs::write(&path, pattern(8192)).expect("written");
    let mut map = Map::new(&open(&path), 8192, libc::MAP_PRIVATE).expect("maps");
    map.bytes().fill(1);
    assert!(fs::read(&path).unwrap() == pattern(8192));
}

#[test]
fn a_program_runs_from_the_volume() {
    let volume = Volume::mount();
    fs::copy("/bin/true", volume.path("true")).expect("copied");
    assert!(volume.shell("./true").status.success());
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let volume = Volume::mount();
    let path = volume.path("file");
    let file = open(&path);
    file.write_all_at(&pattern(200_000), 0).expect("written");
    fs::remove_file(&path).expect("removed");
    assert_eq!(file.metadata().expect("alive").nlink(), 0);
    file.write_all_at(b"still", 10).expect("writable");
    file.sync_all().expect("durable");
    let mut bytes = vec![0; 200_000];
    file.read_exact_at(&mut bytes, 0).expect("readable");
    assert_eq!(&bytes[10..15], b"still");
    assert!(bytes[15..] == pattern(200_000)[15..]);
}

#[test]
fn holes_read_as_zeros_and_can_be_found() {
    let volume = Volume::mount();
    let file = open(&volume.path("file"));
    file.write_all_at(&[1; 4096], 0).expect("written");
    file.write_all_at(&[2; 4096], 1 << 20).expect("written");
    assert_eq!(lseek(&file, 0, libc::SEEK_HOLE).unwrap(), 4096);
    assert_eq!(lseek(&file, 4096, libc::SEEK_DATA).unwrap(), 1 << 20);
    assert_eq!(lseek(&file, (1 << 20) + 1, libc::SEEK_HOLE).unwrap(), (1 << 20) + 4096);
    assert_eq!(errno(lseek(&file, 1 << 30, libc::SEEK_DATA)), libc::ENXIO);
    let mut gap = vec![3; 4096];
    file.read_exact_at(&mut gap, 500_000).expect("read");
    assert!(gap.iter().all(|b| *b == 0));
}

#[test]
fn data_and_holes_are_found_in_units_of_4_kib() {
    let volume = Volume::mount();
    let file = open(&volume.path("file"));
    file.write_all_at(b"x", 5000).expect("written");
    file.write_all_at(&[2; 3000], 22_000).expect("written");
    for durable in [false, true] {
        if durable {
            file.sync_all().expect("durable");
        }
        assert_eq!(lseek(&file, 0, libc::SEEK_DATA).unwrap(), 4096, "{durable}");
        assert_eq!(lseek(&file, 4096, libc::SEEK_HOLE).unwrap(), 8192, "{durable}");
        assert_eq!(lseek(&file, 8192, libc::SEEK_DATA).unwrap(), 20_480, "{durable}");
        assert_eq!(lseek(&file, 20_480, libc::SEEK_HOLE).unwrap(), 25_000, "{durable}");
        assert_eq!(errno(lseek(&file, 25_000, libc::SEEK_DATA)), libc::ENXIO, "{durable}");
    }
    fallocate(&file, 0, 100_000, 100_000).expect("allocated");
    assert_eq!(lseek(&file, 20_480, libc::SEEK_HOLE).unwrap(), 28_672);
    assert_eq!(errno(lseek(&file, 28_672, libc::SEEK_DATA)), libc::ENXIO, "nothing was written there");
}

#[test]
fn what_was_stored_in_a_hole_through_a_mapping_is_found() {
    let volume = Volume::mount();
    let path = volume.path("file");
    let file = open(&path);
    file.set_len(1 << 20).expect("resized");
    let mut map = Map::new(&file, 1 << 20, libc::MAP_SHARED).expect("mapped");
    map.bytes()[500_000] = 1;
    map.bytes()[600_000] = 2;
    let unit = |offset: i64| offset - offset % 4096;
    assert_eq!(lseek(&file, 0, libc::SEEK_DATA).unwrap(), unit(500_000));
    assert_eq!(lseek(&file, unit(500_000), libc::SEEK_HOLE).unwrap(), unit(500_000) + 4096);
    map.bytes()[500_000 + 4096] = 3;
    assert_eq!(lseek(&file, unit(500_000), libc::SEEK_HOLE).unwrap(), unit(500_000) + 8192);
    assert_eq!(lseek(&file, 550_000, libc::SEEK_DATA).unwrap(), unit(600_000));
    map.bytes()[0] = 4;
    printed(volume.shell("cp --sparse=always file copy && cmp file copy"));
}

#[test]
fn room_can_be_allocated_punched_and_zeroed() {
    let volume = Volume::mount();
    let path = volume.path("file");
    let file = open(&path);
    fallocate(&file, 0, 0, 100_000).expect("allocated");
    let meta = file.metadata().unwrap();
    assert_eq!((meta.len(), meta.blocks()), (100_000, 196));
    fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 100_000, 100_000).expect("allocated");
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    file.write_all_at(&pattern(100_000), 0).expect("written");
    fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 10_000, 5_000).expect("punched");
    fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 99_000, 2_000).expect("zeroed");
    let mut model = pattern(100_000);
    model[10_000..15_000].fill(0);
    model[99_000..].fill(0);
    model.resize(101_000, 0);
    assert!(fs::read(&path).unwrap() == model);
    for unsupported in
        [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE, libc::FALLOC_FL_UNSHARE_RANGE]
    {
        assert_eq!(errno(fallocate(&file, unsupported, 0, 4096)), libc::EOPNOTSUPP);
    }
}

#[test]
fn unknown_ioctl_fails_with_enotty() {
    let volume = Volume::mount();
    let file = open(&volume.path("file"));
    assert_eq!(errno(ioctl(&file, libc::TCGETS)), libc::ENOTTY);
}

#[test]
fn o_sync_writes_are_durable_when_they_return() {
    let volume = Volume::mount();
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create(true).custom_flags(libc::O_SYNC).open(volume.path("file")).unwrap();
    let requests = volume.requests(|| file.write_all(b"now").expect("written"));
    assert!(requests.contains(&("fsync", 1)), "{requests:?}");
}

#[test]
fn file_without_a_name_is_written_and_gets_one() {
    let volume = Volume::mount();
    let mut nameless =
        OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(volume.root()).expect("it is open");
    nameless.write_all(b"content").expect("written");
    assert_eq!(fs::read_dir(volume.root()).expect("listed").count(), 0);
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&nameless));
    let script = format!("ln -L /proc/{}{} name", std::process::id(), &link["/proc/self".len()..]);
    printed(volume.shell(&script));
    assert_eq!(fs::read(volume.path("name")).expect("read"), b"content");
}
