//! Every kind of completed change is seen at once by the other mount, which has looked before.

use super::snapshot::snapshot;
use super::{Side, pair};
use crate::sys::{Map, errno, fallocate, getxattr, mknod, removexattr, renameat2, setxattr, utimens};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

const EXCHANGE: u32 = libc::RENAME_EXCHANGE;

/// Makes an object, lets the other mount look at it, changes it, and compares; in both directions.
fn seen(
    prepare: impl Fn(&Path) + Send + 'static,
    change: impl Fn(&Path) + Send + 'static,
    expect: impl Fn(&Path) + Send + 'static,
) {
    pair(move |pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let dir = format!("dir{n}");
            fs::create_dir(one.path(&dir)).expect("new");
            pair.step(format!("{n}: prepare"));
            prepare(&one.path(&dir));
            // Both mounts have everything cached.
            pair.step(format!("{n}: look"));
            assert_same(one, other);
            pair.step(format!("{n}: change"));
            change(&one.path(&dir));
            pair.step(format!("{n}: look at the change"));
            expect(&other.path(&dir));
            assert_same(one, other);
        }
    });
}

/// The observer looks first: the change must become visible without the other mount's look.
#[track_caller]
fn assert_same(one: &Side, other: &Side) {
    let (observed, own) = (snapshot(other.root()), snapshot(one.root()));
    assert_eq!(observed, own);
}

fn write(path: &Path, content: impl AsRef<[u8]>) {
    fs::write(path, content).expect("written");
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("opens")
}

#[track_caller]
fn assert_gone(path: &Path) {
    assert_eq!(errno(fs::symlink_metadata(path)), libc::ENOENT, "{}", path.display());
    let dir = path.parent().expect("a directory");
    let name = path.file_name().expect("a name");
    assert!(fs::read_dir(dir).expect("read").all(|entry| entry.expect("read").file_name() != name));
}

fn meta(path: &Path) -> fs::Metadata {
    fs::symlink_metadata(path).expect("there")
}

#[test]
fn a_name_that_was_absent_is_there_when_the_other_mount_has_made_it() {
    seen(
        |dir| {
            for name in ["file", "dir", "link", "fifo", "hard"] {
                assert!(!dir.join(name).exists());
            }
            write(&dir.join("old"), "x");
        },
        |dir| {
            write(&dir.join("file"), "new");
            fs::create_dir(dir.join("dir")).expect("new");
            symlink("target", dir.join("link")).expect("new");
            mknod(&dir.join("fifo"), libc::S_IFIFO | 0o600, 0).expect("new");
            fs::hard_link(dir.join("old"), dir.join("hard")).expect("new");
        },
        |dir| {
            assert_eq!(fs::read_to_string(dir.join("file")).expect("there"), "new");
            assert!(meta(&dir.join("dir")).is_dir());
            assert_eq!(fs::read_link(dir.join("link")).expect("there"), Path::new("target"));
            assert_eq!(meta(&dir.join("fifo")).mode(), libc::S_IFIFO | 0o600);
            assert_eq!((meta(&dir.join("old")).nlink(), meta(&dir.join("hard")).nlink()), (2, 2));
        },
    );
}

#[test]
fn each_new_name_is_seen_before_the_next_is_made() {
    pair(|pair| {
        for n in 0..40 {
            let (one, other) = pair.both_ways()[n % 2];
            let name = format!("file{n}");
            pair.step(name.clone());
            assert!(!other.path(&name).exists());
            write(&one.path(&name), "x");
            assert_eq!(fs::read_to_string(other.path(&name)).expect("there"), "x");
            let listed = fs::read_dir(other.root()).expect("read").count();
            assert_eq!(listed, n + 1);
        }
    });
}

#[test]
fn a_name_that_the_other_mount_has_removed_is_gone() {
    seen(
        |dir| {
            for name in ["file", "other"] {
                write(&dir.join(name), name);
            }
            fs::hard_link(dir.join("other"), dir.join("hard")).expect("new");
            fs::create_dir_all(dir.join("full/empty")).expect("new");
        },
        |dir| {
            fs::remove_file(dir.join("file")).expect("removed");
            fs::remove_file(dir.join("hard")).expect("removed");
            fs::remove_dir(dir.join("full/empty")).expect("removed");
        },
        |dir| {
            assert_gone(&dir.join("file"));
            assert_gone(&dir.join("hard"));
            assert_gone(&dir.join("full/empty"));
            assert_eq!((meta(&dir.join("other")).nlink(), meta(&dir.join("full")).nlink()), (1, 2));
            fs::remove_dir(dir.join("full")).expect("it is empty");
        },
    );
}

#[test]
fn files_and_directories_are_seen_under_their_new_names() {
    seen(
        |dir| {
            fs::create_dir_all(dir.join("from/tree/deep")).expect("new");
            fs::create_dir(dir.join("to")).expect("new");
            write(&dir.join("from/tree/deep/leaf"), "leaf");
            for name in ["file", "mover", "over", "over2"] {
                write(&dir.join("from").join(name), name);
            }
            write(&dir.join("to/victim"), "victim");
        },
        |dir| {
            let rename = |from: &str, to: &str| fs::rename(dir.join(from), dir.join(to)).expect("renamed");
            rename("from/file", "from/renamed");
            rename("from/mover", "to/moved");
            rename("from/over", "from/over2");
            rename("from/tree", "to/tree");
            rename("to/moved", "to/victim");
        },
        |dir| {
            for gone in ["from/file", "from/mover", "from/over", "from/tree", "to/moved"] {
                assert_gone(&dir.join(gone));
            }
            let read = |name: &str| fs::read_to_string(dir.join(name)).expect("there");
            assert_eq!(read("from/renamed"), "file");
            assert_eq!(read("from/over2"), "over");
            assert_eq!(read("to/victim"), "mover");
            assert_eq!(read("to/tree/deep/leaf"), "leaf");
            assert_eq!((meta(&dir.join("from")).nlink(), meta(&dir.join("to")).nlink()), (2, 3));
            assert_eq!(meta(&dir.join("to/tree/..")).ino(), meta(&dir.join("to")).ino());
        },
    );
}

#[test]
fn two_names_that_were_exchanged_are_seen_so() {
    seen(
        |dir| {
            for sub in ["x", "y"] {
                fs::create_dir_all(dir.join(sub).join("tree")).expect("new");
                write(&dir.join(sub).join("file"), sub);
                write(&dir.join(sub).join("tree/leaf"), sub);
            }
        },
        |dir| {
            renameat2(&dir.join("x/file"), &dir.join("y/file"), EXCHANGE).expect("exchanged");
            renameat2(&dir.join("x/tree"), &dir.join("y/tree"), EXCHANGE).expect("exchanged");
            renameat2(&dir.join("x/tree"), &dir.join("y/file"), EXCHANGE).expect("exchanged");
        },
        |dir| {
            let read = |name: &str| fs::read_to_string(dir.join(name)).expect("there");
            assert_eq!((read("x/file"), read("x/tree")), ("y".into(), "x".into()));
            assert_eq!((read("y/tree/leaf"), read("y/file/leaf")), ("x".into(), "y".into()));
        },
    );
}

#[test]
fn changed_attributes_are_seen() {
    seen(
        |dir| {
            write(&dir.join("file"), "x");
            write(&dir.join("linked"), "x");
            fs::hard_link(dir.join("linked"), dir.join("hard")).expect("new");
            fs::create_dir(dir.join("dir")).expect("new");
            symlink("target", dir.join("link")).expect("new");
        },
        |dir| {
            for name in ["file", "linked", "dir"] {
                fs::set_permissions(dir.join(name), Permissions::from_mode(0o701)).expect("changed");
                chown(dir.join(name), Some(7), Some(8)).expect("changed");
                utimens(&dir.join(name), (1, 2), (3, 4)).expect("changed");
            }
            utimens(&dir.join("link"), (5, 6), (7, 8)).expect("changed");
        },
        |dir| {
            for name in ["file", "linked", "hard", "dir"] {
                let meta = meta(&dir.join(name));
                assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o701, 7, 8), "{name}");
                assert_eq!((meta.mtime(), meta.mtime_nsec()), (3, 4), "{name}");
            }
            assert_eq!(meta(&dir.join("link")).mtime(), 7);
        },
    );
}

#[test]
fn written_bytes_are_seen() {
    // Small content is kept with the metadata, large content in blocks.
    for len in [10, 3_000, 100_000, 3 << 20] {
        seen(
            move |dir| {
                for name in ["over", "grown", "cut", "appended", "allocated", "punched", "linked"] {
                    write(&dir.join(name), vec![b'o'; len]);
                }
                fs::hard_link(dir.join("linked"), dir.join("hard")).expect("new");
            },
            move |dir| {
                open(&dir.join("over")).write_all_at(b"new", len as u64 / 2).expect("written");
                open(&dir.join("hard")).write_all_at(b"new", len as u64 / 2).expect("written");
                open(&dir.join("grown")).write_all_at(b"tail", 2 * len as u64).expect("written");
                open(&dir.join("cut")).set_len(len as u64 / 2).expect("cut");
                let mut file = OpenOptions::new().append(true).open(dir.join("appended")).expect("opens");
                file.write_all(b"more").expect("written");
                let file = open(&dir.join("allocated"));
                fallocate(&file, 0, len as i64, 5).expect("allocated");
                let file = open(&dir.join("punched"));
                let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                fallocate(&file, punch, 1, len as i64 / 2).expect("punched");
            },
            move |dir| {
                let read = |name: &str| fs::read(dir.join(name)).expect("there");
                let old = vec![b'o'; len];
                let mut over = old.clone();
                over[len / 2..len / 2 + 3].copy_from_slice(b"new");
                for name in ["over", "linked", "hard"] {
                    assert!(read(name) == over, "{name} of {len}");
                }
                assert!(read("grown") == [old.clone(), vec![0; len], b"tail".to_vec()].concat(), "{len}");
                assert!(read("cut") == old[..len / 2], "{len}");
                assert!(read("appended") == [old.clone(), b"more".to_vec()].concat(), "{len}");
                assert!(read("allocated") == [old.clone(), vec![0; 5]].concat(), "{len}");
                let mut punched = old;
                punched[1..1 + len / 2].fill(0);
                assert!(read("punched") == punched, "{len}");
            },
        );
    }
}

#[test]
fn both_append_to_one_file_in_turns() {
    pair(|pair| {
        write(&pair.a.path("log"), "");
        let mut files = [&pair.a, &pair.b]
            .map(|side| OpenOptions::new().append(true).read(true).open(side.path("log")).expect("opens"));
        let mut expected = Vec::new();
        for n in 0..40 {
            pair.step(format!("{n}"));
            let line = format!("line {n}\n");
            files[n % 2].write_all(line.as_bytes()).expect("written");
            expected.extend_from_slice(line.as_bytes());
            for side in [&pair.b, &pair.a] {
                assert_eq!(fs::read(side.path("log")).expect("there"), expected, "{n}");
            }
        }
    });
}

#[test]
fn extended_attributes_are_seen() {
    seen(
        |dir| {
            write(&dir.join("file"), "x");
            setxattr(&dir.join("file"), "user.old", b"1", 0).expect("set");
            setxattr(&dir.join("file"), "user.changed", b"1", 0).expect("set");
            fs::create_dir(dir.join("dir")).expect("new");
        },
        |dir| {
            setxattr(&dir.join("file"), "user.new", b"2", 0).expect("set");
            setxattr(&dir.join("file"), "user.changed", b"2", 0).expect("set");
            removexattr(&dir.join("file"), "user.old").expect("removed");
            setxattr(&dir.join("dir"), "user.new", b"3", 0).expect("set");
        },
        |dir| {
            let get = |name: &str, attr: &str| getxattr(&dir.join(name), attr, 100).map(|(_, value)| value);
            assert_eq!(get("file", "user.new").expect("set"), b"2");
            assert_eq!(get("file", "user.changed").expect("set"), b"2");
            assert_eq!(errno(get("file", "user.old")), libc::ENODATA);
            assert_eq!(get("dir", "user.new").expect("set"), b"3");
        },
    );
}

#[test]
fn an_acl_counts_at_once_on_the_other_mount() {
    let setfacl = |dir: &Path, spec: &str| {
        let status = Command::new("setfacl").args(["-m", spec]).arg(dir.join("file")).status();
        assert!(status.expect("runs").success());
    };
    seen(
        move |dir| {
            write(&dir.join("file"), "x");
            fs::set_permissions(dir.join("file"), Permissions::from_mode(0o600)).expect("changed");
            setfacl(dir, "u:7:---");
        },
        move |dir| setfacl(dir, "u:7:rwx"),
        |dir| {
            let printed =
                Command::new("getfacl").args(["-cnp"]).arg(dir.join("file")).output().expect("runs");
            assert!(String::from_utf8_lossy(&printed.stdout).contains("user:7:rwx"), "{printed:?}");
            assert_eq!(meta(&dir.join("file")).mode() & 0o777, 0o670);
        },
    );
}

#[test]
fn replaced_symlink_leads_to_its_new_target() {
    seen(
        |dir| {
            for name in ["one", "two"] {
                write(&dir.join(name), name);
            }
            symlink("one", dir.join("link")).expect("new");
            assert_eq!(fs::read_to_string(dir.join("link")).expect("followed"), "one");
        },
        |dir| {
            symlink("two", dir.join("link.new")).expect("new");
            fs::rename(dir.join("link.new"), dir.join("link")).expect("renamed");
        },
        |dir| assert_eq!(fs::read_to_string(dir.join("link")).expect("followed"), "two"),
    );
}

#[test]
fn name_replaced_by_another_kind_of_file_is_seen() {
    seen(
        |dir| {
            write(&dir.join("thing"), "x");
            fs::create_dir(dir.join("other")).expect("new");
        },
        |dir| {
            fs::remove_file(dir.join("thing")).expect("removed");
            fs::create_dir(dir.join("thing")).expect("new");
            write(&dir.join("thing/below"), "x");
            fs::remove_dir(dir.join("other")).expect("removed");
            write(&dir.join("other"), "a file");
        },
        |dir| {
            assert_eq!(fs::read_to_string(dir.join("thing/below")).expect("there"), "x");
            assert_eq!(fs::read_to_string(dir.join("other")).expect("there"), "a file");
        },
    );
}

#[test]
fn a_file_in_memory_shows_what_the_other_mount_has_written() {
    pair(|pair| {
        for (n, (one, other)) in pair.both_ways().into_iter().enumerate() {
            let name = format!("file{n}");
            for len in [3_000, 100_000] {
                write(&one.path(&name), vec![b'o'; len]);
                let mut map = Map::new(&open(&one.path(&name)), len, libc::MAP_SHARED).expect("mapped");
                assert!(map.bytes().iter().all(|byte| *byte == b'o'));
                let file = open(&other.path(&name));
                for round in 0..5u8 {
                    pair.step(format!("{n}: {len} bytes, {round}"));
                    file.write_all_at(&[b'0' + round; 5], len as u64 - 10).expect("written");
                    assert_eq!(map.bytes()[len - 10..len - 4], [[b'0' + round; 5].as_slice(), b"o"].concat());
                }
                assert!(map.bytes()[..len - 10].iter().all(|byte| *byte == b'o'));
            }
        }
    });
}
