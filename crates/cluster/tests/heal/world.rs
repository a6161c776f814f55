//! A volume with its metadata server, on bricks in memory.

use crate::cluster::{self, World, eventually};
use crate::meta::{self, Session};
use bytes::Bytes;
use shoal_cluster::ReplicatedBlocks;
use shoal_meta::{Options, Server};
use shoal_namespace::{Op, RenameFlags};
use shoal_types::{BlockGroup, BlockId, BlockInfo, BlockRef, Extent, FileKind, InodeId, Timestamp};
use shoal_wire::VolumeBlocks;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

pub struct Volume {
    pub world: Arc<World>,
    pub blocks: Arc<ReplicatedBlocks>,
    pub server: Arc<Server>,
    pub session: Session,
    /// The expected content of the files.
    pub files: BTreeMap<String, (BlockId, Bytes)>,
    made: u64,
    dir: tempfile::TempDir,
}

impl Volume {
    pub fn new(nodes: u32, replica: u8, bricks: &[u32]) -> Volume {
        Volume::over(World::new(nodes, replica, bricks), replica)
    }

    /// A volume of `data` + `parity` shards, on one brick of each node.
    pub fn sharded(data: u8, parity: u8, nodes: u32) -> Volume {
        Volume::over(World::sharded(data, parity, nodes), parity + 1)
    }

    fn over((world, blocks): (Arc<World>, Arc<ReplicatedBlocks>), replica: u8) -> Volume {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { replica, ..meta::options() };
        let server = Server::open(dir.path(), blocks.clone(), options).unwrap();
        let told: Weak<Server> = Arc::downgrade(&server);
        blocks.when_a_brick_returns(move || {
            if let Some(server) = told.upgrade() {
                server.placement_changed();
            }
        });
        let session = Session::open(&server);
        Volume { world, blocks, server, session, files: BTreeMap::new(), made: 0, dir }
    }

    /// Creates a directory.
    pub fn mkdir(&mut self, parent: InodeId, name: &str) -> InodeId {
        let (ino, create) = self.session.create(parent, name, FileKind::Directory);
        self.session.commit(&[create]);
        ino
    }

    /// Renames from one directory and name to another.
    pub fn rename(&mut self, (from, from_name): (InodeId, &str), (to, to_name): (InodeId, &str)) {
        let (from_name, to_name) = (meta::name(from_name), meta::name(to_name));
        let (flags, time) = (RenameFlags::default(), Timestamp::default());
        self.session.commit(&[Op::Rename { from, from_name, to, to_name, flags, time, keep: false }]);
    }

    /// Creates a file of one block; answers the block's id and group.
    pub fn write(&mut self, len: usize) -> (BlockId, BlockGroup) {
        self.write_at(InodeId::ROOT, &format!("f{}", self.made + 1), len)
    }

    /// [`write`](Self::write) in a directory.
    pub fn write_at(&mut self, dir: InodeId, name: &str, len: usize) -> (BlockId, BlockGroup) {
        self.made += 1;
        let id = BlockId { session: self.session.id, seq: self.made };
        let content = cluster::content(self.made, len);
        let mut stored = None;
        eventually("enough bricks answer", || {
            stored = self.blocks.store(id, std::slice::from_ref(&content)).ok();
            stored.is_some()
        });
        let group = stored.unwrap();
        let (ino, create) = self.session.create(dir, name, FileKind::Regular);
        let extent = Extent::Block(BlockRef { id, offset: 0, len: len as u32 });
        let info = BlockInfo { len: len as u32, group };
        let write = meta::write_op(ino, 0, len as u64, Some(extent), Some((id, info)));
        self.session.commit(&[create, write]);
        self.files.insert(name.to_owned(), (id, content));
        (id, group)
    }

    pub fn unlink(&mut self, name: &str) {
        if self.files.remove(name).is_some() {
            self.session.commit(&[meta::unlink_op(name, false)]);
        }
    }

    pub fn unlink_all(&mut self) {
        for name in self.files.keys().cloned().collect::<Vec<_>>() {
            self.unlink(&name);
        }
    }

    pub fn group(&self, id: BlockId) -> BlockGroup {
        use shoal_wire::MetaService;
        self.server.blocks(self.session.id, &[id]).unwrap()[0].expect("the block is known").group
    }

    pub fn assert_content(&self) {
        use shoal_wire::MetaService;
        for (id, content) in self.files.values() {
            let group = || {
                let known = self.server.blocks(self.session.id, &[*id]).ok().and_then(|found| found[0]);
                known.map_or(BlockGroup::default(), |info| info.group)
            };
            let mut from = group();
            let fetched = loop {
                let fetched = self.blocks.fetch(*id, from, 0, content.len() as u32);
                let now = group();
                if fetched.is_ok() || now == from {
                    break fetched;
                }
                // It was moved meanwhile: a client finds it there, too.
                from = now;
            };
            assert_eq!(&fetched.unwrap(), content, "{id:?}");
        }
    }

    /// Waits until every block has all its copies, on the bricks that the namespace names, with the right
    /// content.
    pub fn assert_healed(&self) {
        eventually("nothing lacks copies", || {
            let waiting = self.server.heal_status().waiting_blocks;
            self.server.is_healed() && waiting == 0 && self.server.degraded(1).unwrap().is_empty()
        });
        self.assert_content();
    }

    /// The bricks store exactly what the namespace says.
    pub fn assert_exact(&self) {
        for (id, content) in self.files.values() {
            let group = self.group(*id);
            assert!(self.blocks.is_whole(group), "{id:?} {group:?}");
            if group.is_sharded() {
                let is_there = |(index, brick)| self.world.mem(brick).has(cluster::shard(*id, index));
                assert!(group.shards().all(is_there), "{id:?} {group:?}");
                continue;
            }
            assert_eq!(Some(self.world.holders(*id)), BlockGroup::new(group.bricks()), "{id:?}");
            for brick in group.bricks() {
                assert_eq!(self.world.mem(brick).content(*id).as_ref(), Some(content));
            }
        }
        let copies: usize = self.world.ids().into_iter().map(|brick| self.world.mem(brick).len()).sum();
        let known: usize = self.files.values().map(|(id, _)| self.group(*id).len()).sum();
        assert_eq!(copies, known);
    }

    /// Stops the server and checks the state on disk.
    pub fn assert_consistent(self) {
        let Volume { server, session, dir, .. } = self;
        server.shutdown();
        drop(session);
        drop(server);
        let state = shoal_store::RocksStore::open(&dir.path().join("store"), &Default::default()).unwrap();
        meta::assert_consistent(&state);
    }
}
