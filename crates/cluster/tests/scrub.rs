//! A scrub of a real brick with a damaged file.

#[path = "blocks/support.rs"]
#[allow(dead_code)]
mod cluster;

use cluster::{VOLUME, World, content, eventually, id};
use shoal_brick::Brick;
use shoal_cluster::map::ClusterMap;
use shoal_cluster::scrub::Scrubber;
use shoal_cluster::{Bricks, ReplicatedBlocks};
use shoal_types::{BrickId, NodeId};
use shoal_wire::{BlockError, BlockService, VolumeBlocks};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A world in which one brick is on a disk.
struct OneReal {
    world: Arc<World>,
    real: Arc<Brick>,
}

const REAL: BrickId = BrickId(1);

impl Bricks for OneReal {
    fn brick(&self, id: BrickId) -> Option<Arc<dyn BlockService>> {
        if id == REAL { Some(self.real.clone()) } else { self.world.brick(id) }
    }
    fn map(&self) -> Arc<ClusterMap> {
        self.world.map()
    }
    fn here(&self) -> Option<NodeId> {
        None
    }
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn flip_a_byte(path: &Path) {
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(5000)).unwrap();
    file.write_all(b"!").unwrap();
}

#[test]
fn damage_is_found_and_repaired_without_a_read() {
    let dir = tempfile::tempdir().unwrap();
    Brick::format(dir.path()).unwrap();
    let real = Brick::open(dir.path()).unwrap();
    let (world, _) = World::new(3, 3, &[1, 2, 3]);
    let blocks = ReplicatedBlocks::new(VOLUME, Arc::new(OneReal { world, real: real.clone() }));
    for seq in 1..=5 {
        assert!(blocks.store(id(seq), &[content(seq, 10_000)]).unwrap().contains(REAL));
    }
    // A block without another copy.
    real.put(id(6), &[content(6, 10_000)]).unwrap();
    let mut stored = Vec::new();
    files(&dir.path().join("blocks"), &mut stored);
    assert_eq!(stored.len(), 6);
    let of = |seq| stored.iter().find(|path| path.ends_with(id(seq).to_string())).unwrap();
    [2, 4, 6].into_iter().for_each(|seq| flip_a_byte(of(seq)));
    assert!(matches!(real.get(id(2), 0, 10_000), Err(BlockError::Corrupt { .. })));

    let scrubber = Scrubber::start(REAL, real.clone(), blocks.clone(), Duration::ZERO).unwrap();
    eventually("the first round ends", || scrubber.report().rounds == 1);
    let report = scrubber.report();
    assert_eq!((report.blocks, report.damaged, report.repaired), (6, 3, 2), "{report:?}");
    for seq in 1..=5 {
        assert_eq!(real.get(id(seq), 0, 10_000).unwrap(), content(seq, 10_000));
    }
    assert!(matches!(real.get(id(6), 0, 10_000), Err(BlockError::Corrupt { .. })));
}
