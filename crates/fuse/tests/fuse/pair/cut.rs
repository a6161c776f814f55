//! A mount that is cut off from its servers.

use super::{Pair, Side, eventually, pair_over};
use crate::sys::errno;
use crate::way::{Cut, Only};
use parking_lot::Mutex;
use shoal_client::{Client, Options};
use shoal_fuse::MountOptions;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A silent session that holds up another one is fenced after this.
const DEAD_AFTER: Duration = Duration::from_secs(4);
/// How long calls of the mount that is cut off wait.
const FAIL_AFTER: Duration = Duration::from_secs(1);

/// Two mounts, and the connection of the second one.
fn with_cut(body: impl FnOnce(&Pair, &Cut) + Send + 'static) {
    with_cut_mounted(MountOptions::default(), body);
}

/// Runs a test on two mounts with these mount options, and gives it the connection of the second one.
pub(super) fn with_cut_mounted(mount: MountOptions, body: impl FnOnce(&Pair, &Cut) + Send + 'static) {
    let way: Arc<Mutex<Option<Arc<Cut>>>> = Arc::default();
    let its = way.clone();
    let options =
        shoal_meta::Options { session_dead_after: Some(DEAD_AFTER), ..shoal_meta::Options::default() };
    pair_over(
        mount,
        options,
        move |server, bricks| {
            let cut = Cut::new(server.clone());
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
            // The mount has no changes left to commit.
            cut.set(false);
            pair.b.give_up();
        },
    );
}

fn overwrite(side: &Side, name: &str, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(side.path(name))?.write_all_at(content, 0)
}

#[test]
fn waiter_for_a_mount_that_is_cut_off_goes_on_and_that_mount_shows_nothing_stale() {
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
        eventually("it works again", || fs::metadata(pair.b.path("file")).is_ok());
        assert_eq!(fs::read_to_string(pair.b.path("file")).expect("there"), "new");
        let mut bytes = [0; 3];
        open.read_exact_at(&mut bytes, 0).expect("what was open is");
        assert_eq!(&bytes, b"new");
        assert_eq!(errno(fs::metadata(pair.b.path("gone"))), libc::ENOENT);
        assert_eq!(fs::read_to_string(pair.b.path("its own")).expect("there"), "a");
        assert_eq!(fs::read_dir(pair.b.root()).expect("listed").count(), 2);
        fs::create_dir(pair.b.path("dir")).expect("made");
        overwrite(&pair.b, "dir/../file", b"two").expect("written");
        assert_eq!(fs::read_to_string(pair.a.path("file")).expect("there"), "two");
        assert!(fs::metadata(pair.a.path("dir")).expect("there").is_dir());
        overwrite(&pair.a, "file", b"new").expect("written");
        assert_eq!(fs::read_to_string(pair.b.path("file")).expect("there"), "new");
        let state = pair.a.requests(|| {
            assert_eq!(fs::read_to_string(pair.a.path("file")).expect("there"), "new");
            assert_eq!(fs::read_to_string(pair.a.path("its own")).expect("there"), "a");
        });
        assert!(state.len() < 10, "{state:?}");
    });
}

#[test]
fn what_a_mount_has_lost_is_reported_once_by_each_file_that_was_open_and_then_all_of_it_works() {
    with_cut(|pair, cut| {
        let b = &pair.b;
        fs::create_dir(b.path("dir")).expect("made");
        fs::write(b.path("dir/kept"), "kept").expect("written");
        let dir = fs::File::open(b.path("dir")).expect("opens");
        let kept = OpenOptions::new().read(true).write(true).open(b.path("dir/kept")).expect("opens");
        dir.sync_all().expect("durable");
        cut.set(true);
        let lost = fs::File::create_new(b.path("dir/lost")).expect("made in memory");
        lost.write_all_at(b"lost", 0).expect("written in memory");
        kept.write_all_at(b"lost", 0).expect("written in memory");
        let session = b.client.session();
        pair.step("the other one gets on");
        assert_eq!(fs::read_to_string(pair.a.path("dir/kept")).expect("there"), "kept");
        fs::write(pair.a.path("dir/new"), "new").expect("written");
        cut.set(false);
        pair.step("it works again");
        eventually("another session", || b.client.session() != session);
        for file in [&kept, &lost, &dir] {
            assert_eq!(errno(file.sync_all()), libc::EIO);
            file.sync_all().expect("it was told");
        }
        // Through inodes that programs have kept: open files or their current directory.
        assert_eq!(errno(lost.metadata()), libc::ESTALE);
        assert_eq!(errno(lost.read_at(&mut [0; 4], 0)), libc::ESTALE);
        assert_eq!(errno(kept.write_all_at(b"more", 4)), libc::EIO);
        kept.write_all_at(b"more", 4).expect("it was told");
        let within =
            Command::new("cat").args(["kept", "new"]).current_dir(b.path("dir")).output().expect("cat");
        assert_eq!(String::from_utf8_lossy(&within.stdout), "keptmorenew");
        assert_eq!(errno(fs::metadata(b.path("dir/lost"))), libc::ENOENT);
        kept.sync_all().expect("durable");
        assert_eq!(fs::read_to_string(pair.a.path("dir/kept")).expect("there"), "keptmore");
        pair.step("what is open outlives its name here, too");
        fs::remove_file(pair.a.path("dir/kept")).expect("removed");
        let mut bytes = [0; 8];
        kept.read_exact_at(&mut bytes, 0).expect("still there");
        assert_eq!(&bytes, b"keptmore");
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
