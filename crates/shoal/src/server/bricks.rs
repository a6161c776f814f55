//! The bricks of this node: created once, opened at every start, and closed when the map does not name them
//! any more.
//!
//! **Promises.** A brick is created once, in a new or empty directory, and recognised by its identity
//! afterwards. A directory that is missing, empty, or holds another brick is not used, because it lacks what
//! was stored; the report says why.

use super::calls::{BrickReport, Disk};
use super::cluster_view::ClusterView;
use super::disks::check_room;
use super::node_dir::NodeDir;
use super::room::RoomProbe;
use super::statistics::volume_name;
use crate::control::BrickStatistics;
use crate::limits::{BRICK_FREE_BYTES_MIN, REOPEN_AFTER};
use crate::measure::MeasuredBlocks;
use crate::mount_report::reports;
use crate::mounts;
use crate::profile::Profiled;
use parking_lot::Mutex;
use shoal_brick::limits::CONTENTS_COUNTED_MAX;
use shoal_brick::{Brick, BrickError};
use shoal_cluster::draining::takes_blocks;
use shoal_cluster::limits::SCRUB_AFTER;
use shoal_cluster::options::{SCRUB_PAUSED, SCRUB_STATE};
use shoal_cluster::scrub::{ScrubReport, Scrubber};
use shoal_cluster::{BrickState, Bricks, ClusterMap, ReplicatedBlocks};
use shoal_types::{BrickId, GroupId};
use shoal_wire::BlockService;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

enum Slot {
    Opening,
    Serving(Arc<Brick>, Arc<MeasuredBlocks>, Option<Scrubber>),
    /// Why it could not be opened, and when.
    Away(String, Instant),
}

/// The bricks of this node.
pub struct LocalBricks {
    dir: Arc<NodeDir>,
    view: Arc<ClusterView>,
    slots: Mutex<BTreeMap<BrickId, Slot>>,
    /// The room on the disks of bricks that were served.
    rooms: Mutex<BTreeMap<BrickId, Arc<RoomProbe>>>,
}

impl LocalBricks {
    /// No brick is open.
    pub fn new(dir: Arc<NodeDir>, view: Arc<ClusterView>) -> Arc<LocalBricks> {
        Arc::new(LocalBricks { dir, view, slots: Mutex::default(), rooms: Mutex::default() })
    }

    /// Opens the bricks that the map places here, and closes all others.
    pub fn reconcile(self: &Arc<Self>, map: &ClusterMap) {
        let here = self.dir.node();
        let wanted = |id: &BrickId| {
            map.bricks.get(id).filter(|brick| brick.node == here && brick.state != BrickState::Gone)
        };
        let mut slots = self.slots.lock();
        slots.retain(|id, slot| {
            let stays = wanted(id).is_some() || matches!(slot, Slot::Opening);
            if !stays {
                tracing::info!(brick = %id, "a brick is not served here any more");
                self.view.drop_brick(*id);
            }
            stays
        });
        self.rooms.lock().retain(|id, _| slots.contains_key(id));
        self.seal(&slots);
        for (id, slot) in &*slots {
            if let (Slot::Serving(_, _, Some(scrubber)), Some(brick)) = (slot, map.bricks.get(id)) {
                scrubber.pause(is_scrub_paused(map, brick.volume));
            }
        }
        for (id, brick) in map.bricks.iter().filter(|(id, _)| wanted(id).is_some()) {
            let said = match slots.get(id) {
                None => None,
                Some(Slot::Away(why, since)) if since.elapsed() > REOPEN_AFTER => Some(why.clone()),
                Some(_) => continue,
            };
            slots.insert(*id, Slot::Opening);
            let (bricks, id, path) = (self.clone(), *id, brick.path.clone());
            // On a thread of its own, because a disk that hangs must not delay the other bricks.
            let thread = std::thread::Builder::new().name("shoal-open".into()).spawn(move || {
                let opened = open(&bricks.dir, id, &path);
                bricks.record_opened(id, opened, said.as_deref());
            });
            drop(thread.expect("the system has room for a thread"));
        }
    }

    fn record_opened(&self, id: BrickId, opened: Result<Arc<Brick>, String>, said: Option<&str>) {
        let slot = match opened {
            Ok(brick) => {
                let name = self.view.map().brick_name(id);
                let measured = Arc::new(MeasuredBlocks::new(brick.clone(), name));
                brick.seal(!takes_blocks(&self.view.map(), id));
                self.view.serve_brick(id, measured.clone());
                let scrubber = self.scrub(id, brick.clone());
                Slot::Serving(brick, measured, scrubber)
            }
            Err(why) => {
                if said != Some(&why) {
                    tracing::error!(brick = %id, why, "a brick is not served");
                }
                Slot::Away(why, Instant::now())
            }
        };
        self.slots.lock().insert(id, slot);
        self.view.notify_waiters();
    }

    /// Seals the bricks that are to store no new blocks, by the newest map. Under the lock, so that an older
    /// map never unseals one.
    fn seal(&self, slots: &BTreeMap<BrickId, Slot>) {
        let map = self.view.map();
        for (id, slot) in slots {
            if let Slot::Serving(brick, ..) = slot {
                brick.seal(!takes_blocks(&map, *id));
            }
        }
    }

    /// Whether a brick is sealed, and has no block: then it never gets one, unless it is used again.
    pub fn is_cleared(&self, id: BrickId) -> Result<bool, String> {
        let brick = {
            let slots = self.slots.lock();
            self.seal(&slots);
            match slots.get(&id) {
                Some(Slot::Serving(brick, ..)) => brick.clone(),
                _ => return Err(format!("{id} is not served here")),
            }
        };
        brick.is_cleared().map_err(|error| error.to_string())
    }

    /// The identity of a brick that is served.
    pub fn identity(&self, id: BrickId) -> Option<u128> {
        match self.slots.lock().get(&id) {
            Some(Slot::Serving(brick, ..)) => Some(brick.id()),
            _ => None,
        }
    }

    /// Starts the slow background scrub of a brick; damage is repaired from the volume's other bricks.
    fn scrub(&self, id: BrickId, brick: Arc<Brick>) -> Option<Scrubber> {
        let map = self.view.map();
        let volume = map.bricks.get(&id)?.volume;
        let bricks: Arc<dyn Bricks> = self.view.clone();
        let started = Scrubber::start(id, brick, ReplicatedBlocks::new(volume, bricks), SCRUB_AFTER);
        let started = started.inspect_err(|error| tracing::warn!(brick = %id, %error, "it is not scrubbed"));
        started.inspect(|scrubber| scrubber.pause(is_scrub_paused(&map, volume))).ok()
    }

    /// Starts a scrub of all bricks of a volume on this node now.
    pub fn scrub_now(&self, map: &ClusterMap, volume: GroupId) {
        for (id, slot) in &*self.slots.lock() {
            let is_its = map.bricks.get(id).is_some_and(|brick| brick.volume == volume);
            if let (Slot::Serving(_, _, Some(scrubber)), true) = (slot, is_its) {
                scrubber.begin_round();
            }
        }
    }

    /// The disks under a volume's bricks on this node, and the findings of their scrubs.
    pub fn disks(&self, map: &ClusterMap, volume: GroupId) -> Vec<Disk> {
        let here = map.bricks.iter().filter(|(_, brick)| {
            brick.volume == volume && brick.node == self.dir.node() && brick.state != BrickState::Gone
        });
        let hangs = |id: &BrickId| self.rooms.lock().get(id).is_some_and(|probe| probe.hangs());
        let disk = |(id, brick): (&BrickId, &shoal_cluster::Brick)| {
            // A disk that hangs would keep this thread.
            let path = Some(&brick.path).filter(|_| !hangs(id));
            let mount = path.and_then(|path| mounts::containing(path).ok().flatten());
            let stat = path.and_then(|path| nix::sys::statvfs::statvfs(path).ok());
            Disk {
                id: *id,
                mount: mount.map(|mount| (mount.kind, mount.source.display().to_string())),
                inodes: stat.map(|stat| (stat.files(), stat.files_free())),
                scrub: match self.slots.lock().get(id) {
                    Some(Slot::Serving(_, _, Some(scrubber))) => Some(scrubber.report()),
                    _ => None,
                },
            }
        };
        here.map(disk).collect()
    }

    /// The counters of a volume's bricks on this node, as the answer to a round.
    pub fn profiles(
        &self,
        map: &ClusterMap,
        volume: GroupId,
        round: u64,
        marks: bool,
    ) -> BTreeMap<BrickId, Profiled> {
        let is_its = |id: &BrickId| map.bricks.get(id).is_some_and(|brick| brick.volume == volume);
        let slots = self.slots.lock();
        let profiles = slots.iter().filter(|(id, _)| is_its(id)).filter_map(|(id, slot)| match slot {
            Slot::Serving(_, measured, _) => Some((*id, measured.profiled(round, marks))),
            Slot::Opening | Slot::Away(..) => None,
        });
        profiles.collect()
    }

    /// The state of all bricks.
    pub fn reports(&self) -> Vec<BrickReport> {
        let slots: Vec<(BrickId, Result<Arc<Brick>, String>)> = {
            let slots = self.slots.lock();
            let look = |slot: &Slot| match slot {
                Slot::Serving(brick, ..) => Ok(brick.clone()),
                Slot::Opening => Err("starting".into()),
                Slot::Away(why, _) => Err(why.clone()),
            };
            slots.iter().map(|(id, slot)| (*id, look(slot))).collect()
        };
        let report = |(id, brick): (BrickId, Result<Arc<Brick>, String>)| {
            let room = brick.and_then(|brick| {
                let probe = self.rooms.lock().entry(id).or_default().clone();
                probe.room(move || brick.statfs().map_err(|error| error.to_string()))
            });
            match room {
                Ok(room) => BrickReport {
                    id,
                    offline: None,
                    total_bytes: room.total_bytes,
                    free_bytes: room.free_bytes,
                },
                Err(why) => BrickReport { id, offline: Some(why), total_bytes: 0, free_bytes: 0 },
            }
        };
        slots.into_iter().map(report).collect()
    }

    /// The counters of all bricks.
    pub fn statistics(&self, map: &ClusterMap) -> Vec<BrickStatistics> {
        let rooms = self.reports();
        let slots = self.slots.lock();
        let count = |room: BrickReport| {
            let brick = map.bricks.get(&room.id)?;
            let (measured, scrub) = match slots.get(&room.id) {
                Some(Slot::Serving(_, measured, scrubber)) => {
                    (Some(measured), scrubber.as_ref().map(Scrubber::report).unwrap_or_default())
                }
                _ => (None, ScrubReport::default()),
            };
            let (writes, reads) = measured.map(|measured| measured.sizes()).unwrap_or_default();
            Some(BrickStatistics {
                volume: volume_name(map, brick.volume),
                path: brick.path.clone(),
                serves: room.offline.is_none(),
                total_bytes: room.total_bytes,
                free_bytes: room.free_bytes,
                calls: measured.map(|measured| reports(&measured.stats())).unwrap_or_default(),
                written_bytes: writes.total,
                read_bytes: reads.total,
                scrubbed_blocks: scrub.blocks,
                damaged_blocks: scrub.damaged,
                repaired_blocks: scrub.repaired,
            })
        };
        rooms.into_iter().filter_map(count).collect()
    }
}

/// Whether an administrator has paused the scrubbing of a volume.
pub fn is_scrub_paused(map: &ClusterMap, volume: GroupId) -> bool {
    map.option(volume, SCRUB_STATE).as_deref() == Some(SCRUB_PAUSED)
}

fn open(dir: &NodeDir, id: BrickId, path: &Path) -> Result<Arc<Brick>, String> {
    let said = |error: BrickError| error.to_string();
    if let Some(identity) = dir.brick(id) {
        let shown = path.display();
        let brick = Brick::open(path).map_err(|error| match error {
            BrickError::NotABrick(_) => format!(
                "{shown} is missing or empty, and there was a brick before: is its disk mounted? If it is lost, \
                 `shoal volume replace-brick` puts another in its place"
            ),
            other => other.to_string(),
        })?;
        if brick.id() == identity {
            // The directory was made by an older release.
            dir.note_brick_path(id, path).map_err(|error| format!("{error:#}"))?;
        } else {
            return Err(format!(
                "{shown} is another brick ({:032x}) than the one made here ({identity:032x})",
                brick.id()
            ));
        }
        return Ok(brick);
    }
    check_place(path)?;
    let brick = match Brick::format(path) {
        Ok(()) => Brick::open(path).map_err(said)?,
        // It is empty if the process was killed just after creating it; otherwise it holds unrelated data.
        Err(BrickError::NotEmpty(_)) => {
            let brick = Brick::open(path).map_err(|_| BrickError::NotEmpty(path.to_owned()).to_string())?;
            if dir.brick_of(brick.id()).is_some_and(|retired| retired != id) {
                return Err(format!("{}: the retired brick in it is being deleted", path.display()));
            }
            let is_empty = brick.sessions().is_ok_and(|sessions| sessions.is_empty());
            Some(brick)
                .filter(|_| is_empty)
                .ok_or_else(|| BrickError::NotEmpty(path.to_owned()).to_string())?
        }
        Err(error) => return Err(said(error)),
    };
    dir.made_brick(id, brick.id(), path).map_err(|error| format!("{error:#}"))?;
    Ok(brick)
}

/// Whether a brick can be created at a path. The parent must exist, so that an unmounted disk is noticed.
pub fn check_place(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let parent = path.parent().filter(|_| path.is_absolute()).ok_or("a brick is an absolute path")?;
    if !parent.is_dir() {
        return Err(format!("{} is not a directory: make it first, or mount the disk", parent.display()));
    }
    if path.exists() && !path.is_dir() {
        return Err(format!("{shown} is there and not a directory"));
    }
    Ok(())
}

impl LocalBricks {
    /// Whether a brick can be created at a path, which must have free space and be empty. With `force`, a
    /// retired brick of this cluster may be there: it is deleted first, and the answer says what is in it.
    pub fn check_new_place(&self, path: &Path, force: bool) -> Result<Option<String>, String> {
        match check_new_place(path) {
            Err(why) => self.take_over(path, force)?.map(Some).ok_or(why),
            Ok(()) => Ok(None),
        }
    }

    /// A description of the retired brick at a path; `None` if there is none.
    fn take_over(&self, path: &Path, force: bool) -> Result<Option<String>, String> {
        let (map, node, shown) = (self.view.map(), self.dir.identity().node, path.display());
        let bricks = map.volumes.keys().flat_map(|volume| map.bricks_of(*volume));
        let mut here = bricks.filter(|(_, brick)| brick.node == node && brick.path == path);
        if let Some((_, brick)) = here.next() {
            return Err(format!(
                "{shown} is a brick of volume {}, with content: name a new or empty directory",
                volume_name(&map, brick.volume)
            ));
        }
        let Ok((identity, blocks)) = shoal_brick::contents(path) else { return Ok(None) };
        let Some(id) = self.dir.brick_of(identity) else { return Ok(None) };
        if map.bricks.contains_key(&id) {
            return Ok(None);
        }
        let more = if blocks >= CONTENTS_COUNTED_MAX { " or more" } else { "" };
        let what = format!("{shown} holds a retired brick of this cluster with {blocks}{more} blocks");
        if !force {
            return Err(format!(
                "{what}. If `shoal cluster status` shows that it is being deleted, wait for that; `force` after the \
                 bricks deletes it and takes its place"
            ));
        }
        self.dir.note_brick_path(id, path).map_err(|error| format!("{error:#}"))?;
        Ok(Some(format!("{what}, which are deleted first")))
    }
}

/// [`check_place`], and whether there is free space and the directory is empty.
fn check_new_place(path: &Path) -> Result<(), String> {
    check_place(path)?;
    check_room(path, BRICK_FREE_BYTES_MIN, "a brick")?;
    if !path.exists() {
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match entries.flatten().find(|entry| entry.file_name() != "lost+found") {
        None => Ok(()),
        Some(entry) => Err(format!(
            "{} is not empty ({} is in it): a brick is made in a new or empty directory",
            path.display(),
            entry.file_name().to_string_lossy()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::node_dir::{Identity, prepare};
    use super::*;
    use shoal_types::NodeId;

    #[test]
    fn a_brick_is_made_once_and_never_again_where_it_was_lost() {
        let temp = tempfile::tempdir().unwrap();
        let data = prepare(&temp.path().join("data")).unwrap();
        let dir = NodeDir::create(&data, Identity::new(1, NodeId(1), "a", "a:1", "0.0.0.0:1"), b"").unwrap();
        let path = temp.path().join("brick");
        let identity = open(&dir, BrickId(3), &path).unwrap().id();
        assert_eq!(open(&dir, BrickId(3), &path).unwrap().id(), identity);
        let why = open(&dir, BrickId(4), &path).err().unwrap();
        assert!(why.contains("retired brick"), "{why}");
        let unnoted = temp.path().join("unnoted");
        Brick::format(&unnoted).unwrap();
        assert!(open(&dir, BrickId(4), &unnoted).is_ok(), "an empty brick that is not noted down is taken");
        std::fs::remove_dir_all(&path).unwrap();
        let why = open(&dir, BrickId(3), &path).err().unwrap();
        assert!(why.contains("is its disk mounted"), "{why}");
        assert!(!path.exists());
        open(&dir, BrickId(5), &path).unwrap();
        let why = open(&dir, BrickId(3), &path).err().unwrap();
        assert!(why.contains("another brick"), "{why}");
    }

    #[test]
    fn brick_that_could_not_be_recorded_is_recorded_before_it_is_served() {
        let temp = tempfile::tempdir().unwrap();
        let data = prepare(&temp.path().join("data")).unwrap();
        let dir = NodeDir::create(&data, Identity::new(1, NodeId(1), "a", "a:1", "0.0.0.0:1"), b"").unwrap();
        let path = temp.path().join("brick");
        // As on a full disk, `node.json` cannot be replaced.
        std::fs::create_dir(data.join("node.json.new")).unwrap();
        assert!(open(&dir, BrickId(3), &path).is_err());
        std::fs::remove_dir(data.join("node.json.new")).unwrap();
        let brick = open(&dir, BrickId(3), &path).unwrap();
        let block = shoal_types::BlockId { session: shoal_types::SessionId(1), seq: 1 };
        brick.put(block, &[bytes::Bytes::from_static(b"content")]).unwrap();
        let identity = brick.id();
        drop((brick, dir));
        let dir = NodeDir::open(&data).unwrap();
        assert_eq!(open(&dir, BrickId(3), &path).map(|brick| brick.id()), Ok(identity));
    }

    #[test]
    fn new_brick_needs_an_existing_parent_and_an_empty_directory() {
        let temp = tempfile::tempdir().unwrap();
        assert!(check_new_place(&temp.path().join("new")).is_ok() && check_new_place(temp.path()).is_ok());
        assert!(check_new_place(&temp.path().join("no/new")).unwrap_err().contains("is not a directory"));
        std::fs::write(temp.path().join("file"), "").unwrap();
        assert!(check_new_place(temp.path()).unwrap_err().contains("file is in it"));
        assert!(check_new_place(&temp.path().join("file")).is_err());
        assert!(check_new_place(Path::new("relative/brick")).is_err());
    }
}
