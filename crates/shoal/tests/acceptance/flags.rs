//! Inode flags, as chattr(1) sets them and lsattr(1) shows them.

use crate::harness::{Shared, Volume, plain, run, sh, sys, tree};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The script ends with `EPERM`.
#[track_caller]
fn refused(dir: &Path, script: &str) {
    let outcome = sh(dir, script).outcome();
    let failed = outcome.status.is_some_and(|status| !status.success());
    assert!(failed && outcome.stderr.contains("Operation not permitted"), "{outcome}");
}

/// The letters of the flags that lsattr(1) shows.
fn shown(path: &Path) -> String {
    let line = run("lsattr").arg("-d").arg(path).ok();
    line.split(' ').next().unwrap_or_default().replace('-', "")
}

#[test]
fn immutable_file_is_as_it_is_until_the_flag_is_cleared() {
    let mut volume = Volume::start("immutable");
    let dir = volume.path().join("dir");
    fs::create_dir(&dir).expect("made");
    sh(&dir, "echo content >f && echo other >other && setfattr -n user.a -v 1 f && chattr +i f").ok();
    assert_eq!(shown(&dir.join("f")), "i");
    let script = [
        "rm -f f",
        "echo >f",
        "echo >>f",
        "mv f g",
        "mv -f other f",
        "ln f g",
        "chmod 600 f",
        "chown bin f",
        "touch f",
        "touch -d 2001-01-01 f",
        "truncate -s 0 f",
        "fallocate -l 100 f",
        "setfattr -n user.b -v 1 f",
        "setfattr -x user.a f",
        "setfacl -m u:bin:r f",
        "python3 -c 'import os; os.rename(\"f\", \"g\")'",
    ];
    for line in script {
        refused(&dir, line);
    }
    let check = |volume: &Volume| {
        let dir = volume.path().join("dir");
        assert_eq!(fs::read(dir.join("f")).expect("read"), b"content\n");
        assert_eq!(shown(&dir.join("f")), "i");
        assert_eq!(sys::getxattr(&dir.join("f"), "user.a".as_ref()).expect("kept"), b"1");
    };
    check(&volume);
    // Files beside it are what they always are, and so are copies of it.
    sh(&dir, "echo more >>other && cp -a f copy && echo more >>copy && rm copy").ok();
    volume.remount();
    check(&volume);
    sh(&volume.path().join("dir"), "chattr -i f && mv f g && echo more >>g && rm g").ok();
    volume.stop();
    volume.fsck();
}

#[test]
fn append_only_file_grows_and_is_not_changed_otherwise() {
    let mut volume = Volume::start("append-only");
    let dir = volume.path().to_path_buf();
    sh(&dir, "echo one >log && chattr +a log && echo two >>log && touch log").ok();
    for line in ["echo >log", "rm -f log", "mv log l", "ln log l", "truncate -s 1 log", "chmod 600 log"] {
        refused(&dir, line);
    }
    refused(&dir, "touch -d 2001-01-01 log");
    refused(&dir, "dd if=/dev/zero of=log bs=1 count=1 conv=notrunc");
    refused(&dir, "fallocate -p -o 0 -l 4096 log");
    // More than stays inline.
    sh(&dir, "head -c 300000 /dev/zero | tr '\\0' x >>log && sync log").ok();
    refused(&dir, "dd if=/dev/zero of=log bs=1 count=1 seek=200000 conv=notrunc");
    assert_eq!(shown(&dir.join("log")), "a");
    volume.remount();
    let log = fs::read(volume.path().join("log")).expect("read");
    assert!(log.starts_with(b"one\ntwo\nxxx") && log.len() == 8 + 300_000);
    sh(volume.path(), "chattr -a log && rm log").ok();
    volume.stop();
    volume.fsck();
}

#[test]
fn directories_with_flags_keep_their_names() {
    let mut volume = Volume::start("flagged-directories");
    let top = volume.path().to_path_buf();
    sh(&top, "mkdir i a && touch i/f a/f out && mkdir i/d a/d && chattr +i i && chattr +a a").ok();
    for dir in ["i", "a"] {
        for line in ["rm -f @/f", "rmdir @/d", "mv @/f @/g", "mv @/f g", "mv out @/f", "rmdir @", "mv @ b"] {
            refused(&top, &line.replace('@', dir));
        }
        sh(&top, &format!("echo content >{dir}/f && touch {dir}/d/deeper && rm {dir}/d/deeper")).ok();
    }
    for line in ["touch i/new", "mkdir i/new", "ln out i/new", "ln -s x i/new", "mv out i/"] {
        refused(&top, line);
    }
    sh(&top, "touch a/new && mkdir a/more && ln out a/linked && ln -s x a/symlink && mv out a/").ok();
    refused(&top, "rm -rf a");
    sh(&top, "chattr -i i && chattr -a a && rm -rf i a").ok();
    volume.stop();
    volume.fsck();
}

#[test]
fn flags_are_set_by_those_who_may_and_unknown_ones_are_refused() {
    let volume = Volume::start("who-sets-flags");
    let file = volume.path().join("file");
    fs::write(&file, "").expect("written");
    sys::chmod(volume.path(), 0o777).expect("changed");
    sys::lchown(&file, 2, 2).expect("owned");
    let by = |uid: &str, flags: &str| {
        let user = run("setpriv").arg(format!("--reuid={uid}")).arg("--clear-groups").arg("--regid=2");
        let outcome = user.arg("chattr").arg(flags).arg(&file).outcome();
        outcome.status.is_some_and(|status| status.success())
    };
    assert!(!by("2", "+i") && !by("2", "+a"), "CAP_LINUX_IMMUTABLE is needed");
    assert!(!by("3", "+d"), "only the owner sets the others");
    assert!(by("2", "+dA"));
    assert_eq!(shown(&file), "dA");
    assert!(!by("0", "+S") && !by("0", "+c") && by("0", "+i") && by("0", "-d"));
    assert_eq!(shown(&file), "iA");
    let ctime = |path: &Path| fs::metadata(path).expect("there").ctime_nsec();
    let before = ctime(&file);
    assert!(by("0", "-i"));
    assert_ne!(ctime(&file), before, "the change is seen");
}

#[test]
fn flags_count_at_once_on_the_other_mount() {
    let volume = Shared::start("shared-flags", 2);
    let [one, other] = [0, 1].map(|mount| volume.path(mount).to_path_buf());
    sh(&one, "mkdir dir logs && echo content >dir/f && echo one >logs/log").ok();
    // The other mount has cached all of it.
    sh(&other, "cat dir/f logs/log && ls -lR").ok();
    sh(&one, "chattr +i dir/f && chattr +a logs/log").ok();
    assert_eq!((shown(&other.join("dir/f")), shown(&other.join("logs/log"))), ("i".into(), "a".into()));
    for line in ["echo >>dir/f", "rm -f dir/f", "mv dir/f g", "echo >logs/log", "rm -f logs/log"] {
        refused(&other, line);
    }
    sh(&other, "echo two >>logs/log").ok();
    sh(&one, "echo three >>logs/log && chattr -i dir/f").ok();
    assert_eq!(fs::read(other.join("logs/log")).expect("read"), b"one\ntwo\nthree\n");
    sh(&other, "echo more >>dir/f && mv dir/f g && chattr +i dir").ok();
    refused(&one, "touch dir/new");
    // A file that is open for writing when it becomes immutable takes nothing more.
    let open = sys::open(&one.join("g"), libc::O_WRONLY | libc::O_APPEND, 0).expect("open");
    sh(&other, "chattr +i g").ok();
    assert_eq!(sys::write(&open, b"late").expect_err("it is immutable").0, libc::EPERM);
    sh(&one, "chattr -i g dir && chattr -a logs/log").ok();
    tree::assert_same(&one, &other, true);
    sys::write(&open, b"now").expect("nothing forbids it any more");
    drop(open);
    volume.finish();
}

#[test]
fn copies_and_repositories_are_made_of_files_with_flags() {
    let volume = Volume::start("flags-programs");
    let script = "git init -q r && cd r && echo 1 >a && echo 2 >b
        git -c user.name=n -c user.email=e@e add . && git -c user.name=n -c user.email=e@e commit -qm one
        chattr +i a && chattr +d b && cd ..
        rsync -a r/ copy/ && cp -a r again && git clone -q r clone && diff -r r copy && diff -r r again
        cd copy && echo 3 >a && git -c user.name=n -c user.email=e@e commit -qam two && cd ..
        ! git -C r pull -q ../copy HEAD 2>/dev/null && test $(cat r/a) = 1
        chattr -i r/a && git -C r checkout -q . && git -C r pull -q ../copy HEAD && test $(cat r/a) = 3
        rm -rf r copy again clone";
    sh(volume.path(), script).ok();
}

#[test]
fn volume_takes_flags_and_unnamed_files_once_its_op_version_allows_them() {
    if plain() {
        return;
    }
    let volume = Shared::start("op-version", 1);
    let top = volume.path(0).to_path_buf();
    volume.set("op-version", "1");
    // The mount learns it within a second.
    let script = "touch f
        until ! chattr +d f 2>said; do chattr -d f 2>said || true; sleep 0.1; done
        grep -q 'not supported' said
        ! python3 -c \"import os; os.open('.', os.O_TMPFILE | os.O_RDWR)\" 2>said
        grep -q 'not supported' said && lsattr f";
    sh(&top, script).limit(60).ok();
    volume.set("op-version", "2");
    sh(&top, "until chattr +d f 2>said; do sleep 0.1; done").limit(60).ok();
    sh(&top, "python3 -c \"import os; os.open('.', os.O_TMPFILE | os.O_RDWR)\"").ok();
    volume.finish();
}
