use crate::volume::{UNPRIVILEGED, Volume, printed};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

fn mode(volume: &Volume, name: &str) -> u32 {
    fs::metadata(volume.path(name)).expect(name).mode() & 0o7777
}

fn file_with(volume: &Volume, name: &str, mode: u32) {
    fs::write(volume.path(name), "content").expect(name);
    fs::set_permissions(volume.path(name), Permissions::from_mode(mode)).expect(name);
}

#[test]
fn the_kernel_checks_permissions() {
    let volume = Volume::mount();
    file_with(&volume, "private", 0o600);
    file_with(&volume, "public", 0o644);
    assert!(!volume.shell_unprivileged("cat private").status.success());
    assert_eq!(printed(volume.shell_unprivileged("cat public")), "content");
    assert!(!volume.shell_unprivileged("rm -f public").status.success());
    assert!(!volume.shell_unprivileged("touch new").status.success());
}

#[test]
fn a_sticky_directory_protects_the_names_of_others() {
    let volume = Volume::mount();
    fs::create_dir(volume.path("tmp")).expect("new");
    fs::set_permissions(volume.path("tmp"), Permissions::from_mode(0o1777)).expect("set");
    file_with(&volume, "tmp/roots", 0o666);
    assert!(!volume.shell_unprivileged("rm -f tmp/roots").status.success());
    printed(volume.shell_unprivileged("touch tmp/own && rm tmp/own"));
}

#[test]
fn new_files_belong_to_their_maker_and_heed_the_umask() {
    let volume = Volume::mount();
    fs::set_permissions(volume.root(), Permissions::from_mode(0o777)).expect("set");
    printed(volume.shell_unprivileged("umask 027; touch file; mkdir dir; ln -s x link; mkfifo fifo"));
    for (name, want) in [("file", 0o640), ("dir", 0o750), ("fifo", 0o640)] {
        let meta = fs::metadata(volume.path(name)).expect(name);
        assert_eq!(
            (meta.uid(), meta.gid(), meta.mode() & 0o7777),
            (UNPRIVILEGED, UNPRIVILEGED, want),
            "{name}"
        );
    }
    assert_eq!(fs::symlink_metadata(volume.path("link")).unwrap().uid(), UNPRIVILEGED);
}

#[test]
fn a_set_group_id_directory_passes_its_group_on() {
    let volume = Volume::mount();
    fs::create_dir(volume.path("shared")).expect("new");
    chown(volume.path("shared"), None, Some(4321)).expect("set");
    fs::set_permissions(volume.path("shared"), Permissions::from_mode(0o2777)).expect("set");
    printed(volume.shell_unprivileged("touch shared/file; mkdir shared/dir"));
    assert_eq!(fs::metadata(volume.path("shared/file")).unwrap().gid(), 4321);
    let dir = fs::metadata(volume.path("shared/dir")).unwrap();
    assert_eq!((dir.gid(), dir.mode() & 0o2000), (4321, 0o2000));
}

#[test]
fn set_id_bits_are_lost_when_an_unprivileged_user_writes() {
    let volume = Volume::mount();
    for (name, script) in [
        ("written", "echo x >> written"),
        ("truncated", "truncate -s 3 truncated"),
        ("opened", ": > opened"),
        ("allocated", "fallocate -l 9999 allocated"),
    ] {
        file_with(&volume, name, 0o6777);
        assert_eq!(mode(&volume, name), 0o6777);
        printed(volume.shell_unprivileged(script));
        assert_eq!(mode(&volume, name), 0o777, "{name}");
    }
}

#[test]
fn set_id_bits_stay_when_root_writes_and_go_when_the_owner_changes() {
    let volume = Volume::mount();
    file_with(&volume, "file", 0o6777);
    printed(volume.shell("echo x >> file; truncate -s 3 file"));
    assert_eq!(mode(&volume, "file"), 0o6777);
    chown(volume.path("file"), Some(5), None).expect("set");
    assert_eq!(mode(&volume, "file"), 0o777);
    fs::create_dir(volume.path("dir")).expect("new");
    fs::set_permissions(volume.path("dir"), Permissions::from_mode(0o2777)).expect("set");
    chown(volume.path("dir"), Some(5), None).expect("set");
    assert_eq!(mode(&volume, "dir"), 0o2777, "on directories they mean something else");
}

#[test]
fn setting_an_acl_costs_an_outsider_the_set_group_id_bit() {
    let volume = Volume::mount();
    for (name, group, want) in [("foreign", 4321, 0o777), ("own", UNPRIVILEGED, 0o2777)] {
        file_with(&volume, name, 0o2777);
        chown(volume.path(name), Some(UNPRIVILEGED), Some(group)).expect("set");
        fs::set_permissions(volume.path(name), Permissions::from_mode(0o2777)).expect("set");
        printed(volume.shell_unprivileged(&format!("setfacl -m u:7:rwx {name}")));
        assert_eq!(mode(&volume, name), want, "{name}");
    }
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let options = shoal_fuse::MountOptions { read_only: true, ..Default::default() };
    let volume = Volume::mount_with(options);
    assert_eq!(crate::sys::errno(File::create(volume.path("file"))), libc::EROFS);
}
