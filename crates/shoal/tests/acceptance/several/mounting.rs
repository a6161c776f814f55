//! How a volume is mounted: as mount(8) calls the program, subdirectories, changes of a mount that is there,
//! bind mounts.

use crate::harness::command::Outcome;
use crate::harness::volume::{detach, mounted};
use crate::harness::{Run, Shared, plain, run, sh};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// A mount of a test's own, beside those of the volume.
struct Extra(PathBuf);

impl Drop for Extra {
    fn drop(&mut self) {
        detach(&self.0);
    }
}

impl Extra {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn extra(volume: &Shared, name: &str) -> Extra {
    let point = volume.local().join(name);
    fs::create_dir(&point).expect("a mount point can be made");
    Extra(point)
}

/// Calls the program as mount(8) or umount(8) does, under the name of their helper.
fn helper(volume: &Shared, name: &str) -> Run {
    let program = volume.local().join(name);
    if !program.exists() {
        symlink(env!("CARGO_BIN_EXE_shoal"), &program).expect("a symlink can be made");
    }
    run(program)
}

fn mount(volume: &Shared, what: &str, at: &Extra, options: &str) -> Outcome {
    let options = format!("rw,credentials={},{options}", volume.data().join("tls").display());
    let source = format!("{}{what}", volume.server());
    helper(volume, "mount.shoal").arg(source).arg(&at.0).arg("-o").arg(options).limit(60).outcome()
}

#[track_caller]
fn assert_ok(outcome: &Outcome) {
    assert!(outcome.status.is_some_and(|status| status.success()), "{outcome}");
}

/// Asserts that a mount failed with this code of mount(8), and printed all of these words.
#[track_caller]
fn assert_refused(outcome: &Outcome, code: i32, says: &[&str]) {
    assert_eq!(outcome.status.and_then(|status| status.code()), Some(code), "{outcome}");
    for word in says {
        assert!(outcome.stderr.contains(word), "it does not say '{word}': {outcome}");
    }
}

/// Whether something comes to be so within what news of the cluster map take on a busy machine.
fn eventually(is_so: impl Fn() -> bool) -> bool {
    (0..100).any(|_| {
        is_so() || {
            std::thread::sleep(std::time::Duration::from_millis(200));
            false
        }
    })
}

#[test]
fn subdirectory_and_gluster_options_are_mounted_as_mount_asks() {
    if plain() {
        return;
    }
    let volume = Shared::start("subdirectory", 1);
    let whole = volume.path(0);
    sh(whole, "mkdir -p sites/a/inner sites/b; echo text >sites/file; ln -s a sites/link").ok();
    let (sub, log) = (extra(&volume, "sub"), volume.local().join("web.log"));
    for (what, says) in [
        (":v/sites/c", ["no directory /sites/c", "but a, b"].as_slice()),
        (":v/sites/file", &["is a file"]),
        (":/v/sites/link", &["symbolic link to a"]),
        (":w", &["there is no volume 'w'", "v"]),
    ] {
        assert_refused(&mount(&volume, what, &sub, ""), 32, says);
        assert!(!mounted(&sub.0));
    }
    assert_refused(&mount(&volume, ":v/../x", &sub, ""), 32, &["upwards"]);
    assert_refused(&mount(&volume, ":v", &sub, "root-squash"), 1, &["auth.allow"]);

    let options = format!("_netdev,acl,entry-timeout=1,log-level=DEBUG,log-file={},nodev", log.display());
    let outcome = mount(&volume, ":v/sites/a", &sub, &options);
    assert_ok(&outcome);
    assert!(outcome.stderr.contains("entry-timeout=1: not needed: "), "{outcome}");
    assert!(!outcome.stderr.contains("acl"), "{outcome}");
    let text = fs::read_to_string(&log).expect("the log is there");
    assert!(text.contains("mounted") && text.contains("entry-timeout=1: not needed"), "{text}");
    fs::write(sub.path("new"), "text").expect("written");
    assert_eq!(fs::read_to_string(whole.join("sites/a/new")).expect("seen"), "text");
    let ino = |path: &Path| fs::metadata(path).expect("there").ino();
    assert_eq!(ino(&sub.0), ino(&whole.join("sites/a")));
    assert_eq!(
        sh(&sub.0, "ls -a; cd inner; cd ..; pwd -P").ok(),
        format!(".\n..\ninner\nnew\n{}\n", sub.0.display())
    );
    // A bind mount of it needs no process of its own, and goes without a word.
    let bind = extra(&volume, "bind");
    run("mount").arg("-i").arg("--bind").arg(&sub.0).arg(&bind.0).ok();
    // It ends with an error where some other mount of this machine has lost its process.
    let status = run(env!("CARGO_BIN_EXE_shoal")).arg("status").arg("--json").outcome().stdout;
    let here = sub.0.display().to_string();
    assert_eq!(status.lines().filter(|line| line.contains(&here)).count(), 1, "{status}");
    let outcome = helper(&volume, "umount.fuse.shoal").arg(&bind.0).limit(60).outcome();
    assert_ok(&outcome);
    assert!(outcome.stderr.is_empty() && !mounted(&bind.0) && mounted(&sub.0), "{outcome}");
    assert_ok(&helper(&volume, "umount.fuse.shoal").arg(&sub.0).limit(60).outcome());
    assert!(!mounted(&sub.0));
    volume.finish();
}

#[test]
fn mount_becomes_read_only_with_everything_committed_and_writable_again() {
    if plain() {
        return;
    }
    let volume = Shared::start("remount", 1);
    let at = extra(&volume, "mnt");
    assert_refused(&mount(&volume, ":v", &at, "remount,ro"), 32, &["nothing is mounted"]);
    assert_ok(&mount(&volume, ":v", &at, "nosuid"));
    let flags = || {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let line =
            table.lines().find(|line| line.split(' ').nth(4) == at.0.to_str()).expect("mounted").to_owned();
        line.split(' ').nth(5).expect("flags").to_owned()
    };
    // As the kernel shows them, mount(8) repeats the options of a mount that fstab does not name.
    let remount = |words: &str| {
        let options =
            format!("{words},nosuid,relatime,remount,user_id=0,group_id=0,default_permissions,allow_other");
        let helper = helper(&volume, "mount.fuse.shoal").arg("source").arg(&at.0).arg("-o").arg(options);
        helper.limit(60).outcome()
    };
    let writer = fs::File::create(at.path("open")).expect("made");
    assert_refused(&remount("ro"), 32, &["open for writing", "mnt/open", "stays writable"]);
    drop(writer);
    fs::write(at.path("file"), vec![7; 300_000]).expect("written");
    assert_ok(&remount("ro"));
    assert!(flags().starts_with("ro,nosuid"), "{}", flags());
    let stats = run(env!("CARGO_BIN_EXE_shoal")).arg("stats").arg(&at.0).arg("--json").ok();
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    let numbers = stats["client"].as_array().expect("numbers").iter();
    let left: Vec<_> = numbers
        .filter(|number| number["name"].as_str().is_some_and(|name| name.starts_with("journal_uncommitted")))
        .collect();
    assert!(!left.is_empty() && left.iter().all(|number| number["value"] == 0), "{left:?}");
    let refused = fs::write(at.path("more"), "").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert_refused(&remount("rw,cache=7"), 32, &["cache=7", "cannot be changed"]);
    let set = |value: &str| {
        let shoal = run(env!("CARGO_BIN_EXE_shoal")).env("SHOAL_DATA", volume.data());
        ["volume", "set", "v", "read-only", value].into_iter().fold(shoal, Run::arg).ok();
    };
    let hears = |volume_is: &str| {
        let said = format!("\"read_only_volume\":{volume_is}");
        let status = || run(env!("CARGO_BIN_EXE_shoal")).arg("status").arg(&at.0).arg("--json").ok();
        assert!(eventually(|| status().contains(&said)), "{said} in {}", status());
    };
    set("on");
    hears("true");
    assert_refused(&remount("rw"), 32, &["volume v is read-only", "read-only off"]);
    set("off");
    hears("false");
    assert_ok(&remount("rw,nodev"));
    assert!(flags().starts_with("rw,nosuid,nodev"), "{}", flags());
    fs::write(at.path("more"), "").expect("writable");
    assert_ok(&helper(&volume, "umount.fuse.shoal").arg(&at.0).limit(60).outcome());
    volume.finish();
}
