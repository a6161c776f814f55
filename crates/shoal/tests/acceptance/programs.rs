//! Common programs: tar, diff, git, rsync, cp, make and a C compiler.

use crate::harness::tree::assert_same;
use crate::harness::volume::shoal;
use crate::harness::{Random, Volume, long, lua_source, plain, run, seed, sh};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// The kernel's source, where it is installed (`scripts/setup bench`).
const KERNEL: &str = "/usr/src/linux-source-6.1.tar.xz";

/// Makes a tree with every kind of file and attribute that archives carry.
pub fn make_tree(top: &Path, files: u64) {
    let mut random = Random::new(seed());
    fs::create_dir_all(top).expect("a directory can be made");
    let mut dirs = vec![top.to_owned()];
    for number in 0..files {
        if random.one_in(12) {
            let dir = random.pick(&dirs).join(format!("dir-{number}"));
            fs::create_dir(&dir).expect("a directory can be made");
            dirs.push(dir);
        }
        let path = random.pick(&dirs).join(format!("file-{number}"));
        let len = random.length(300_000) as usize;
        fs::write(&path, random.bytes(len)).expect("a file can be written");
        let mode = *random.pick(&[0o644, 0o600, 0o755, 0o444, 0o4755]);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
        if random.one_in(20) {
            symlink(format!("../file-{number}"), random.pick(&dirs).join(format!("symlink-{number}")))
                .expect("symlink");
        }
        if random.one_in(20) {
            fs::hard_link(&path, random.pick(&dirs).join(format!("link-{number}"))).expect("link");
        }
    }
}

#[test]
fn a_tree_goes_in_and_out_by_tar_unchanged() {
    let mut volume = Volume::start("tar");
    let local = volume.local();
    make_tree(&local.join("tree"), if long() { 20_000 } else { 2_000 });
    sh(&local, "tar --format=posix -cf tree.tar tree").ok();
    let script = format!("tar xpf {0}/tree.tar && diff -r --no-dereference tree {0}/tree", local.display());
    sh(volume.path(), &script).ok();
    assert_same(&volume.path().join("tree"), &local.join("tree"), true);

    volume.remount();
    assert_same(&volume.path().join("tree"), &local.join("tree"), true);
    let script = format!(
        "tar cf - tree | tar xpf - -C {0}/out && diff -r --no-dereference tree {0}/out/tree",
        local.display()
    );
    fs::create_dir(local.join("out")).expect("a directory can be made");
    sh(volume.path(), &script).ok();

    sh(volume.path(), "rm -rf tree && test -z \"$(ls -A)\"").ok();
    volume.stop();
    volume.fsck();
}

#[test]
fn the_kernel_source_goes_in_and_out_unchanged() {
    if !long() || !Path::new(KERNEL).exists() {
        eprintln!("the kernel source is for long runs, where {KERNEL} is installed");
        return;
    }
    let mut volume = Volume::start("kernel");
    let local = volume.local();
    sh(&local, &format!("tar xf {KERNEL}")).limit(1200).ok();
    sh(volume.path(), &format!("tar xf {KERNEL} && diff -r --no-dereference . {}", local.display()))
        .limit(2400)
        .ok();
    volume.remount();
    let out = local.join("out");
    fs::create_dir(&out).expect("a directory can be made");
    let script = format!("tar cf - * | tar xf - -C {0} && diff -r --no-dereference * {0}/*", out.display());
    sh(volume.path(), &script).limit(2400).ok();
    sh(volume.path(), "rm -rf * && test -z \"$(ls -A)\"").limit(1200).ok();
    volume.stop();
    volume.fsck();
}

#[test]
fn a_c_program_builds_in_parallel_and_a_second_make_has_nothing_to_do() {
    let mut volume = Volume::start("make");
    let script = format!("tar xf {} && mv lua-* lua && cd lua && make -j4 linux", lua_source().display());
    sh(volume.path(), &script).ok();
    let lua = volume.path().join("lua");
    let printed = sh(&lua, "src/lua -e 'print(6 * 7)'").ok();
    assert_eq!(printed.trim(), "42");
    let again = sh(&lua.join("src"), "make -q linux >/dev/null 2>&1 || make linux").ok();
    assert!(!again.contains("gcc"), "make compiles again what it has just compiled:\n{again}");

    volume.remount();
    assert_eq!(sh(&lua, "src/lua -e 'print(6 * 7)'").ok().trim(), "42");
    sh(&lua, "make clean >/dev/null && make -j4 linux").ok();
    volume.stop();
    volume.fsck();
}

#[test]
fn git_repositories_live_here() {
    let mut volume = Volume::start("git");
    let lua = lua_source();
    let setup = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
        git config --global user.email test@example.org; git config --global user.name Test
        git config --global init.defaultBranch main; git config --global --add safe.directory '*'";
    let make = format!(
        "{setup}
        mkdir origin && cd origin && git init -q . && tar xf {} && git add -A && git commit -qm first
        git switch -qc other && git mv lua-* moved && for i in $(seq 300); do echo $i > moved/new-$i; done
        git add -A && git commit -qm second && git switch -q main && test -z \"$(git status --porcelain)\"
        cd .. && git clone -q origin linked && git clone -q --no-hardlinks origin copied
        git clone -q --no-local origin packed",
        lua.display()
    );
    sh(volume.path(), &make).ok();
    let check = format!(
        "{setup}
        for repository in origin linked copied packed; do
            cd $repository && git fsck --full --strict && test -z \"$(git status --porcelain)\"
            git checkout -q origin/other 2>/dev/null || git checkout -q other
            test -z \"$(git status --porcelain)\" && test $(ls moved/new-* | wc -l) = 300
            git checkout -q main && test -d lua-* && cd ..
        done"
    );
    sh(volume.path(), &check).ok();
    volume.remount();
    sh(volume.path(), &check).ok();
    sh(
        volume.path(),
        &format!("{setup}; cd origin && git gc -q --aggressive --prune=now && git fsck --full"),
    )
    .ok();
    volume.stop();
    volume.fsck();
}

#[test]
fn rsync_brings_everything_in_and_out() {
    let mut volume = Volume::start("rsync");
    let local = volume.local();
    let source = local.join("source");
    make_tree(&source, 500);
    let decorate = "mkfifo fifo; mknod device c 1 3; truncate -s 3M sparse; printf x | dd of=sparse bs=1 seek=1M conv=notrunc status=none
        setfattr -n user.colour -v green file-0; setfattr -n trusted.secret -v yes file-1
        setfacl -m u:bin:rwx,g:daemon:r file-2; mkdir acl; setfacl -d -m u:bin:rx acl; touch acl/inherits
        ln -s nowhere dangling; touch -d '1972-03-04 05:06:07.891234567' file-3; touch -h -d '1999-01-01' dangling
        chown -h bin:nogroup file-4 dangling";
    sh(&source, decorate).ok();
    let bring = |from: &Path, to: &Path| {
        // Without a negative window rsync takes times within the same second for equal.
        sh(&local, &format!("rsync -aHAX --modify-window=-1 {}/ {}/", from.display(), to.display())).ok();
        // A second run finds nothing to do, also when it compares contents.
        sh(
            &local,
            &format!("rsync -aHAXnic --modify-window=-1 --delete {}/ {}/", from.display(), to.display()),
        )
        .ok()
    };
    let inside = volume.path().join("inside");
    assert_eq!(bring(&source, &inside), "");
    assert_same(&inside, &source, true);
    volume.remount();
    assert_eq!(bring(&inside, &local.join("out")), "");
    assert_same(&local.join("out"), &source, true);
    volume.stop();
    volume.fsck();
}

#[test]
fn reflink_always_is_refused_by_the_kernel_and_reflink_auto_shares() {
    if plain() {
        return;
    }
    let mut volume = Volume::start("ficlone");
    sh(volume.path(), "head -c 12582912 /dev/urandom >large").ok();
    let requests = |name: &str| {
        let stats = shoal().arg("stats").arg(volume.path()).arg("--json").ok();
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
        let kernel = stats["kernel"].as_array().expect("requests").iter();
        let counts = kernel.filter(|op| op["name"] == name).filter_map(|op| op["count"].as_u64());
        counts.sum::<u64>()
    };
    let refused = sh(volume.path(), "cp --reflink=always large clone").outcome();
    assert!(refused.stderr.contains("not supported"), "{refused}");
    assert_eq!((requests("ioctl"), requests("copy_file_range")), (0, 0), "the kernel answered by itself");
    let written = requests("write");
    sh(volume.path(), "cp --reflink=auto large copy && cmp large copy").ok();
    assert!(requests("copy_file_range") > 0 && requests("write") == written, "it was copied");
    volume.stop();
}

#[test]
fn cp_shares_the_content_of_a_large_file_instead_of_copying_it() {
    let mut volume = Volume::start("reflink");
    let local = volume.local();
    let size: u64 = 96 << 20;
    sh(&local, &format!("head -c {size} /dev/urandom > large && cp large {}/large", volume.path().display()))
        .ok();
    volume.sync();
    let taken = || -> u64 {
        let line = run("du").arg("-s").arg("--block-size=1").arg(volume.data()).ok();
        line.split_whitespace().next().and_then(|count| count.parse().ok()).expect("du prints a count")
    };
    let before = taken();
    sh(volume.path(), "cp --reflink=auto large copy").ok();
    volume.sync();
    let grown = taken().saturating_sub(before);
    assert!(grown < size / 10, "the copy took {grown} bytes");
    // The copy and the original are independent.
    let change = format!("printf changed | dd of=copy bs=1 seek=5000000 conv=notrunc status=none
        cmp large {0}/large && ! cmp -s copy large && rm large && cp {0}/large {0}/changed
        printf changed | dd of={0}/changed bs=1 seek=5000000 conv=notrunc status=none && cmp copy {0}/changed", local.display());
    sh(volume.path(), &change).ok();
    volume.remount();
    sh(volume.path(), &format!("cmp copy {}/changed && rm copy", local.display())).ok();
    volume.stop();
    volume.fsck();
}
