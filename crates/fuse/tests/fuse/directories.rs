use crate::volume::{Volume, printed};
use shoal_types::Cookie;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;

/// readdir(3) with its offsets.
struct Dir(*mut libc::DIR);

impl Dir {
    fn open(path: &Path) -> Dir {
        let dir = unsafe { libc::opendir(crate::sys::c(path).as_ptr()) };
        assert!(!dir.is_null());
        Dir(dir)
    }
    fn next(&self) -> Option<(String, u64)> {
        let entry = unsafe { libc::readdir(self.0).as_ref() }?;
        let name = unsafe { CStr::from_ptr(entry.d_name.as_ptr()) };
        Some((name.to_str().expect("our names").to_string(), entry.d_ino))
    }
    fn tell(&self) -> i64 {
        unsafe { libc::telldir(self.0) }
    }
    fn seek(&self, offset: i64) {
        unsafe { libc::seekdir(self.0, offset) };
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        unsafe { libc::closedir(self.0) };
    }
}

fn names(path: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(path).expect("a directory");
    entries.map(|entry| entry.expect("readable").file_name().into_string().expect("text")).collect()
}

#[test]
fn a_listing_begins_with_the_directory_and_its_parent() {
    let volume = Volume::mount();
    fs::create_dir_all(volume.path("a/b")).expect("new");
    let dir = Dir::open(&volume.path("a/b"));
    let ino = |path: &str| fs::metadata(volume.path(path)).unwrap().ino();
    assert_eq!(dir.next(), Some((".".into(), ino("a/b"))));
    assert_eq!(dir.next(), Some(("..".into(), ino("a"))));
    assert_eq!(dir.next(), None);
    let root = Dir::open(volume.root());
    assert_eq!(root.next(), Some((".".into(), 1)));
    assert_eq!(root.next().map(|(name, _)| name), Some("..".into()));
}

#[test]
fn ten_thousand_names_are_listed_once_each() {
    let volume = Volume::mount();
    fs::create_dir(volume.path("d")).expect("new");
    let want: BTreeSet<String> = (0..10_000).map(|n| format!("name-{n}-{}", "x".repeat(n % 40))).collect();
    for name in &want {
        File::create(volume.path("d").join(name)).expect("new");
    }
    assert_eq!(names(&volume.path("d")), want);
    let volume = volume.remount();
    assert_eq!(names(&volume.path("d")), want, "from the server");
    assert_eq!(names(&volume.path("d")), want, "from the kernel's cache");
    let unsorted = Dir::open(&volume.path("d"));
    let mut count = 0;
    while unsorted.next().is_some() {
        count += 1;
    }
    assert_eq!(count, 10_002);
}

#[test]
fn a_listing_tells_kinds_and_numbers() {
    let volume = Volume::mount();
    fs::create_dir(volume.path("dir")).expect("new");
    File::create(volume.path("file")).expect("new");
    std::os::unix::fs::symlink("x", volume.path("link")).expect("new");
    for entry in fs::read_dir(volume.root()).unwrap() {
        let entry = entry.unwrap();
        let meta = fs::symlink_metadata(entry.path()).unwrap();
        assert_eq!(entry.ino(), meta.ino());
        assert_eq!(entry.file_type().unwrap(), meta.file_type());
    }
}

#[test]
fn an_offset_holds_while_names_come_and_go() {
    let volume = Volume::mount();
    fs::create_dir(volume.path("d")).expect("new");
    let path = |n: u32| volume.path(&format!("d/{n}"));
    for n in 0..1000 {
        File::create(path(n)).expect("new");
    }
    let dir = Dir::open(&volume.path("d"));
    let mut seen: Vec<String> = (0..400).map(|_| dir.next().expect("there are more").0).collect();
    let offset = dir.tell();
    // The listed name is removed, another is created, and the listing starts over at its offset.
    for name in seen.iter().skip(2).step_by(2) {
        fs::remove_file(volume.path("d").join(name)).expect("exists");
    }
    for n in 1000..1200 {
        File::create(path(n)).expect("new");
    }
    dir.seek(0);
    dir.next().expect("restarted");
    dir.seek(offset);
    while let Some((name, _)) = dir.next() {
        seen.push(name);
    }
    let distinct: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(distinct.len(), seen.len(), "no name twice");
    assert!((0..1000).all(|n| distinct.contains(&n.to_string())), "no old name missed");
}

#[test]
fn a_cached_listing_follows_every_change() {
    let volume = Volume::mount();
    fs::create_dir(volume.path("d")).expect("new");
    let d = volume.path("d");
    let list = |want: &[&str]| {
        let want: BTreeSet<String> = want.iter().map(|name| name.to_string()).collect();
        assert_eq!(names(&d), want);
        assert_eq!(names(&d), want);
    };
    list(&[]);
    File::create(d.join("a")).expect("new");
    list(&["a"]);
    fs::create_dir(d.join("b")).expect("new");
    list(&["a", "b"]);
    fs::rename(d.join("a"), d.join("c")).expect("moved");
    list(&["b", "c"]);
    fs::hard_link(d.join("c"), d.join("e")).expect("linked");
    fs::remove_dir(d.join("b")).expect("removed");
    list(&["c", "e"]);
    fs::rename(d.join("c"), volume.path("c")).expect("moved");
    list(&["e"]);
}

#[test]
fn rm_r_removes_a_large_tree() {
    let volume = Volume::mount();
    printed(volume.shell("for d in $(seq 30); do mkdir $d; (cd $d; touch $(seq 300)); done"));
    let volume = volume.remount();
    printed(volume.shell("rm -r *"));
    assert_eq!(names(volume.root()), BTreeSet::new());
}

#[test]
fn a_directory_too_large_for_the_cache_is_listed_whole() {
    const NAMES: usize = 70_000;
    let volume = Volume::mount();
    fs::create_dir(volume.path("d")).expect("new");
    for n in 0..NAMES {
        File::create(volume.path(&format!("d/{n}"))).expect("new");
    }
    let volume = volume.remount();
    assert_eq!(names(&volume.path("d")).len(), NAMES);
    printed(volume.shell("rm -r d"));
    assert!(!volume.path("d").exists());
}

/// Two names with one cookie, found by a search of some 2^32 steps.
const TWINS: [&str; 2] = ["4a5f94968da8a61c", "18ffef5e2c7099df"];

/// All names, read with the smallest buffer that the kernel passes on.
fn names_by_pages(path: &Path) -> Vec<String> {
    let dir = File::open(path).expect("opens");
    let mut names = Vec::new();
    loop {
        match page_of(&dir, 4096) {
            page if page.is_empty() => return names,
            page => names.extend(page),
        }
    }
}

/// The names that one getdents64(2) with a buffer of so many bytes returns.
fn page_of(dir: &File, bytes: usize) -> Vec<String> {
    let (mut page, mut names) = (vec![0; bytes], Vec::new());
    let len = crate::sys::getdents(dir, &mut page).expect("readable");
    let mut rest = &page[..len];
    while !rest.is_empty() {
        // struct linux_dirent64: ino, offset, length of the record, kind, name.
        let record = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
        let name = CStr::from_bytes_until_nul(&rest[19..record]).expect("terminated");
        names.push(name.to_str().expect("our names").to_string());
        rest = &rest[record..];
    }
    names
}

#[test]
fn names_that_share_a_cookie_are_both_listed_wherever_a_page_ends() {
    let cookie = |name: &str| Cookie::of(name.as_bytes());
    assert_eq!(cookie(TWINS[0]), cookie(TWINS[1]));
    let before = |name: &String| cookie(name) < cookie(TWINS[0]);
    let earlier: Vec<String> = (0..).map(|n: u32| format!("{n:016}")).filter(before).take(30).collect();
    let volume = Volume::mount();
    for count in 0..earlier.len() {
        let d = volume.path(&count.to_string());
        fs::create_dir(&d).expect("new");
        for name in earlier[..count].iter().map(String::as_str).chain(TWINS).chain(["last", "of", "all"]) {
            File::create(d.join(name)).expect("new");
        }
    }
    let volume = volume.remount();
    for count in 0..earlier.len() {
        let names = names_by_pages(&volume.path(&count.to_string()));
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), distinct.len()), (count + 7, count + 7), "{names:?}");
    }
    printed(volume.shell("rm -r *"));
}

#[test]
fn listing_that_ends_after_a_change_does_not_bring_names_back() {
    let volume = Volume::mount();
    let d = volume.path("d");
    printed(volume.shell("mkdir d; touch d/old d/other"));
    let (one, other) = (File::open(&d).expect("opens"), File::open(&d).expect("opens"));
    assert_eq!(page_of(&one, 4096).len(), 4);
    printed(volume.shell("rm d/old; touch d/new"));
    // `.` and `..` take 24 bytes each.
    assert_eq!(page_of(&other, 48).len(), 2);
    assert_eq!(page_of(&one, 4096).len(), 0, "the kernel takes its cached listing for complete");
    let names: BTreeSet<String> = page_of(&other, 4096).into_iter().collect();
    assert_eq!(names, ["new", "other"].map(String::from).into());
}
