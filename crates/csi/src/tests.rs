//! The calls, against a machine on which mounts are entries of a table.

use crate::directories::Directories;
use crate::messages::*;
use crate::status::{Code, Status};
use crate::{Driver, Mounted, Mounts, Settings, Usage};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

/// The mounts that are there.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<BTreeMap<PathBuf, Mounted>>>);

impl Mounts for Table {
    fn at(&self, point: &Path) -> anyhow::Result<Option<Mounted>> {
        Ok(self.0.lock().unwrap().get(point).cloned())
    }
    fn mount(&self, directory: &str, point: &Path, options: &str) -> anyhow::Result<()> {
        let read_only = options.split(',').any(|option| option == "ro");
        let mounted = Mounted { directory: Some(directory.to_owned()), alive: true, read_only };
        self.0.lock().unwrap().insert(point.to_owned(), mounted);
        Ok(())
    }
    fn unmount(&self, point: &Path) -> anyhow::Result<()> {
        self.0.lock().unwrap().remove(point).map(drop).ok_or_else(|| anyhow::anyhow!("nothing is mounted"))
    }
    fn bind(&self, from: &Path, to: &Path, read_only: bool) -> anyhow::Result<()> {
        let mounted = self.at(from)?.unwrap();
        self.0.lock().unwrap().insert(to.to_owned(), Mounted { read_only, ..mounted });
        Ok(())
    }
    fn unbind(&self, point: &Path) -> anyhow::Result<()> {
        self.unmount(point)
    }
    fn usage(&self, _: &Path) -> anyhow::Result<Usage> {
        Ok(Usage { bytes: 100, bytes_available: 60, inodes: 10, inodes_available: 4 })
    }
    fn check_options(&self, options: &str) -> Result<(), String> {
        if options.contains("wrong") { Err("no such option".into()) } else { Ok(()) }
    }
}

struct World {
    driver: Driver,
    mounts: Table,
    dir: TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let mounts = Table::default();
        let driver = World::driver(&dir, &mounts);
        World { driver, mounts, dir }
    }

    fn driver(dir: &TempDir, mounts: &Table) -> Driver {
        let settings = Settings {
            node: "n1".into(),
            volumes: vec!["web".into(), "mail".into()],
            directory: "csi".into(),
            state: dir.path().join("state"),
            options: String::new(),
            volumes_max: 7,
        };
        Driver::new(settings, Box::new(mounts.clone())).unwrap()
    }

    /// Where the driver makes the directories of the default volume.
    fn base(&self) -> PathBuf {
        self.dir.path().join("state/web/csi")
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn create(&self, name: &str, bytes: i64) -> Result<Volume, Status> {
        let answer = self.driver.create_volume(creation(name, bytes))?;
        Ok(answer.volume.unwrap())
    }

    fn delete(&self, id: &str) {
        self.driver.delete_volume(DeleteVolumeRequest { volume_id: id.into() }).unwrap();
    }

    fn publish(&self, id: &str, target: &str, readonly: bool) -> Result<(), Status> {
        let (staging_target_path, target_path) = (self.path("staging"), self.path(target));
        let (volume_id, volume_capability) = (id.to_owned(), Some(writer()));
        let request = NodePublishVolumeRequest {
            volume_id,
            staging_target_path,
            target_path,
            volume_capability,
            readonly,
        };
        self.driver.node_publish_volume(request).map(drop)
    }

    fn stage(&self, id: &str) -> Result<(), Status> {
        let (staging_target_path, volume_capability) = (self.path("staging"), Some(writer()));
        let request = NodeStageVolumeRequest { volume_id: id.into(), staging_target_path, volume_capability };
        self.driver.node_stage_volume(request).map(drop)
    }
}

fn capability(mode: i32) -> VolumeCapability {
    let access_mode = Some(AccessMode { mode });
    VolumeCapability { block: None, mount: Some(MountVolume::default()), access_mode }
}

fn writer() -> VolumeCapability {
    capability(access_mode::MULTI_NODE_MULTI_WRITER)
}

fn creation(name: &str, required_bytes: i64) -> CreateVolumeRequest {
    let capacity_range = Some(CapacityRange { required_bytes, limit_bytes: 0 });
    CreateVolumeRequest {
        name: name.into(),
        capacity_range,
        volume_capabilities: vec![writer()],
        ..Default::default()
    }
}

fn code<T: std::fmt::Debug>(outcome: Result<T, Status>) -> Code {
    outcome.unwrap_err().code
}

#[test]
fn volume_is_a_directory_and_creating_it_again_finds_it() {
    let world = World::new();
    let volume = world.create("pvc-1", 1 << 30).unwrap();
    assert_eq!((volume.volume_id.as_str(), volume.capacity_bytes), ("web/csi/pvc-1", 1 << 30));
    fs::write(world.base().join("pvc-1/file"), "kept").unwrap();
    assert_eq!(world.create("pvc-1", 1 << 30).unwrap(), volume);
    assert_eq!(world.create("pvc-1", 0).unwrap(), volume);
    assert_eq!(code(world.create("pvc-1", 2 << 30)), Code::AlreadyExists);
    assert!(world.base().join("pvc-1/file").exists());
}

#[test]
fn deleting_removes_only_what_the_driver_made() {
    let world = World::new();
    let id = world.create("pvc-1", 0).unwrap().volume_id;
    fs::create_dir_all(world.base().join("own/deep")).unwrap();
    fs::write(world.base().join("pvc-1/file"), "gone").unwrap();
    for id in ["web/csi/own", "web/csi", "web/csi/..", "web/csi/.shoal-csi", "other/csi/pvc-1", "nonsense"] {
        world.delete(id);
    }
    assert!(world.base().join("own/deep").exists() && world.base().join("pvc-1/file").exists());
    world.delete(&id);
    world.delete(&id);
    assert!(!world.base().join("pvc-1").exists());
    assert_eq!(code(world.create("own", 0)), Code::AlreadyExists);
    let created = world.create("pvc-1", 0).unwrap();
    assert_eq!(created.volume_id, id);
    assert_eq!(fs::read_dir(world.base().join("pvc-1")).unwrap().count(), 0);
}

#[test]
fn creation_and_deletion_that_a_crash_cut_short_are_finished_by_the_next_call() {
    let world = World::new();
    let id = world.create("pvc-1", 5).unwrap().volume_id;
    // As after a crash between the record and the directory.
    fs::remove_dir(world.base().join("pvc-1")).unwrap();
    assert_eq!(world.create("pvc-1", 5).unwrap().capacity_bytes, 5);
    assert!(world.base().join("pvc-1").exists());
    // As after a crash between the directory and its mode.
    let path = world.base().join("pvc-1");
    let new = world.base().join(".pvc-1.new");
    fs::rename(&path, &new).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o700)).unwrap();
    world.create("pvc-1", 5).unwrap();
    assert!(!new.exists() && path.metadata().unwrap().permissions().mode() & 0o777 != 0o700);
    // As after a crash between the directory and the record.
    fs::remove_dir(world.base().join("pvc-1")).unwrap();
    world.delete(&id);
    assert!(!world.base().join(".shoal-csi/volumes/pvc-1.json").exists());
}

#[test]
fn what_cannot_be_removed_does_not_keep_the_rest() {
    let world = World::new();
    world.create("pvc-1", 0).unwrap();
    let directories = Directories::open(world.base()).unwrap();
    let trash = world.base().join(".shoal-csi/deleted");
    for n in 0..9 {
        // A file there is none of the driver's: it is not removed.
        fs::write(trash.join(format!("file-{n}")), "").unwrap();
        fs::create_dir_all(trash.join(format!("volume-{n}/sub"))).unwrap();
    }
    assert!(directories.sweep().is_err());
    assert_eq!(fs::read_dir(&trash).unwrap().count(), 9);
}

#[test]
fn two_names_with_one_directory_are_two_volumes_or_an_error() {
    let world = World::new();
    let ids = ["../a", "..-a", "a/b", "a b"].map(|name| world.create(name, 0).unwrap().volume_id);
    for (n, id) in ids.iter().enumerate() {
        assert!(!ids[..n].contains(id) && id.starts_with("web/csi/"), "{id}");
    }
    // A name that is the directory of another one.
    let taken = ids[0].trim_start_matches("web/csi/");
    assert_eq!(code(world.create(taken, 0)), Code::AlreadyExists);
}

#[test]
fn what_a_volume_cannot_be_is_refused_before_anything_is_made() {
    let world = World::new();
    let with = |change: &dyn Fn(&mut CreateVolumeRequest)| {
        let mut request = creation("pvc-1", 1);
        change(&mut request);
        code(world.driver.create_volume(request))
    };
    assert_eq!(with(&|request| request.name.clear()), Code::InvalidArgument);
    assert_eq!(with(&|request| request.name = "n".repeat(129)), Code::InvalidArgument);
    assert_eq!(with(&|request| request.volume_capabilities.clear()), Code::InvalidArgument);
    assert_eq!(
        with(&|request| request.volume_content_source = Some(ContentSource {})),
        Code::InvalidArgument
    );
    let block =
        |request: &mut CreateVolumeRequest| request.volume_capabilities[0].block = Some(BlockVolume {});
    assert_eq!(with(&block), Code::InvalidArgument);
    for (name, value) in [("volume", "other"), ("mode", "rwx"), ("mode", "77777"), ("replicas", "3")] {
        let set =
            |request: &mut CreateVolumeRequest| drop(request.parameters.insert(name.into(), value.into()));
        assert_eq!(with(&set), Code::InvalidArgument, "{name}={value}");
    }
    let range = |required_bytes, limit_bytes| {
        with(&|request| request.capacity_range = Some(CapacityRange { required_bytes, limit_bytes }))
    };
    assert_eq!((range(-1, 0), range(2, 1)), (Code::InvalidArgument, Code::OutOfRange));
    let option = |request: &mut CreateVolumeRequest| {
        request.volume_capabilities[0].mount.as_mut().unwrap().mount_flags = vec!["wrong".into()];
    };
    assert_eq!(with(&option), Code::InvalidArgument);
    assert!(!world.base().join("pvc-1").exists());
}

#[test]
fn storage_class_chooses_the_volume_and_the_mode() {
    let world = World::new();
    let mut request = creation("pvc-1", 1);
    let pairs = [("volume", "mail"), ("mode", "2775"), ("csi.storage.k8s.io/pvc/name", "data")];
    request.parameters = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let volume = world.driver.create_volume(request).unwrap().volume.unwrap();
    assert_eq!(volume.volume_id, "mail/csi/pvc-1");
    let made = world.dir.path().join("state/mail/csi/pvc-1").metadata().unwrap();
    assert_eq!(made.permissions().mode() & 0o7777, 0o2775);
}

#[test]
fn list_is_complete_in_pages_while_volumes_come_and_go() {
    let world = World::new();
    for n in 0..5 {
        world.create(&format!("pvc-{n}"), n).unwrap();
    }
    let page = |starting_token: &str| {
        let request = ListVolumesRequest { max_entries: 2, starting_token: starting_token.into() };
        let answer = world.driver.list_volumes(request).unwrap();
        let ids = answer.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id);
        (ids.collect::<Vec<_>>(), answer.next_token)
    };
    let (first, token) = page("");
    assert_eq!(first, ["web/csi/pvc-0", "web/csi/pvc-1"]);
    world.delete("web/csi/pvc-1");
    let (second, token) = page(&token);
    assert_eq!(second, ["web/csi/pvc-2", "web/csi/pvc-3"]);
    assert_eq!(page(&token), (vec!["web/csi/pvc-4".to_owned()], String::new()));
    let request = ListVolumesRequest { max_entries: 0, starting_token: "elsewhere".into() };
    assert_eq!(code(world.driver.list_volumes(request)), Code::Aborted);
}

#[test]
fn capacity_grows_and_never_shrinks() {
    let world = World::new();
    let id = world.create("pvc-1", 10).unwrap().volume_id;
    let expand = |id: &str, required_bytes, limit_bytes| {
        let capacity_range = Some(CapacityRange { required_bytes, limit_bytes });
        let request =
            ControllerExpandVolumeRequest { volume_id: id.into(), capacity_range, volume_capability: None };
        world.driver.controller_expand_volume(request).map(|answer| answer.capacity_bytes)
    };
    assert_eq!((expand(&id, 20, 0), expand(&id, 15, 0)), (Ok(20), Ok(20)));
    assert_eq!(code(expand(&id, 5, 8)), Code::OutOfRange);
    assert_eq!(code(expand("web/csi/none", 20, 0)), Code::NotFound);
    assert_eq!(world.create("pvc-1", 20).unwrap().capacity_bytes, 20);
}

#[test]
fn record_of_a_newer_version_is_refused() {
    let world = World::new();
    world.create("pvc-1", 10).unwrap();
    let record = world.base().join(".shoal-csi/volumes/pvc-1.json");
    let text = fs::read_to_string(&record).unwrap().replace("\"version\":1", "\"version\":2");
    fs::write(&record, text).unwrap();
    assert!(world.create("pvc-1", 10).unwrap_err().message.contains("newer shoal"));
}

#[test]
fn volume_is_staged_once_published_often_and_taken_away_in_any_order() {
    let world = World::new();
    let id = world.create("pvc-1", 1).unwrap().volume_id;
    assert_eq!(code(world.publish(&id, "pod", false)), Code::FailedPrecondition);
    world.stage(&id).unwrap();
    world.stage(&id).unwrap();
    for (target, readonly) in [("pod", false), ("pod", false), ("pod2", true)] {
        world.publish(&id, target, readonly).unwrap();
    }
    assert_eq!(code(world.publish(&id, "pod", true)), Code::AlreadyExists);
    let unpublish = |target: &str| {
        let request = NodeUnpublishVolumeRequest { volume_id: id.clone(), target_path: world.path(target) };
        world.driver.node_unpublish_volume(request).unwrap();
        assert!(!Path::new(&world.path(target)).exists());
    };
    unpublish("pod");
    unpublish("pod");
    let request =
        NodeUnstageVolumeRequest { volume_id: id.clone(), staging_target_path: world.path("staging") };
    world.driver.node_unstage_volume(request.clone()).unwrap();
    world.driver.node_unstage_volume(request).unwrap();
    unpublish("pod2");
    let left: Vec<PathBuf> = world.mounts.0.lock().unwrap().keys().cloned().collect();
    assert_eq!(left, [world.dir.path().join("state/web")]);
}

#[test]
fn mount_whose_process_has_died_is_mounted_again_when_the_volume_is_published() {
    let world = World::new();
    let id = world.create("pvc-1", 1).unwrap().volume_id;
    world.stage(&id).unwrap();
    world.publish(&id, "pod", false).unwrap();
    world.mounts.0.lock().unwrap().values_mut().for_each(|mounted| mounted.alive = false);
    world.publish(&id, "pod", false).unwrap();
    let mounts = world.mounts.0.lock().unwrap();
    let alive = |name: &str| mounts[Path::new(&world.path(name))].alive;
    assert!(alive("staging") && alive("pod"));
}

#[test]
fn new_driver_goes_on_with_the_mounts_of_the_one_before() {
    let mut world = World::new();
    let id = world.create("pvc-1", 1).unwrap().volume_id;
    world.stage(&id).unwrap();
    world.driver = World::driver(&world.dir, &world.mounts);
    world.publish(&id, "pod", false).unwrap();
    assert_eq!(world.create("pvc-1", 1).unwrap().volume_id, id);
}

#[test]
fn mount_of_another_volume_is_neither_used_nor_removed() {
    let world = World::new();
    let id = world.create("pvc-1", 1).unwrap().volume_id;
    let staging = world.path("staging");
    world.mounts.mount("web/csi/other", Path::new(&staging), "").unwrap();
    assert_eq!(code(world.stage(&id)), Code::AlreadyExists);
    let request = NodeUnstageVolumeRequest { volume_id: id, staging_target_path: staging.clone() };
    world.driver.node_unstage_volume(request).unwrap();
    assert!(world.mounts.at(Path::new(&staging)).unwrap().is_some());
}

#[test]
fn path_that_is_relative_or_leads_up_is_refused() {
    let world = World::new();
    for bad in ["", "relative", "/a/../b", "/a\0b", &format!("/{}", "x".repeat(5000))] {
        let request = NodeUnpublishVolumeRequest { volume_id: "web/csi/a".into(), target_path: bad.into() };
        assert_eq!(code(world.driver.node_unpublish_volume(request)), Code::InvalidArgument, "{bad}");
    }
}

#[test]
fn statistics_are_of_the_mount_at_the_path_and_of_no_other() {
    let world = World::new();
    let id = world.create("pvc-1", 1).unwrap().volume_id;
    world.stage(&id).unwrap();
    let ask = |id: &str, path: &str| {
        let request = NodeGetVolumeStatsRequest { volume_id: id.into(), volume_path: world.path(path) };
        world.driver.node_get_volume_stats(request).map(|answer| answer.usage)
    };
    let usage = ask(&id, "staging").unwrap();
    assert_eq!((usage[0].total, usage[0].used, usage[0].unit), (100, 40, unit::BYTES));
    assert_eq!((usage[1].available, usage[1].unit), (4, unit::INODES));
    assert_eq!(code(ask(&id, "elsewhere")), Code::NotFound);
    assert_eq!(code(ask("web/csi/other", "staging")), Code::NotFound);
}

#[test]
fn second_call_for_a_volume_is_refused_while_one_is_in_flight() {
    let world = World::new();
    let call = world.driver.inflight.begin("web/csi/pvc-1").unwrap();
    assert_eq!(code(world.create("pvc-1", 1)), Code::Aborted);
    world.create("pvc-2", 1).unwrap();
    drop(call);
    world.create("pvc-1", 1).unwrap();
}
