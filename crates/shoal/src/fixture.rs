//! A small volume at rest, for tests: a namespace in memory and a real brick.

use bytes::Bytes;
use shoal_brick::Brick;
use shoal_namespace::codec::encode_ops;
use shoal_namespace::command::{Command, Outcome, apply_command};
use shoal_namespace::kv::{KvStore, MemStore};
use shoal_namespace::op::NewInode;
use shoal_namespace::records::VolumeOptions;
use shoal_namespace::{Op, XattrSet};
use shoal_types::*;
use shoal_wire::BlockService;
use std::path::PathBuf;
use std::sync::Arc;

pub struct Fixture {
    pub store: MemStore,
    pub brick: Arc<Brick>,
    pub dir: tempfile::TempDir,
    session: SessionId,
    next_inode: u64,
    next_block: u64,
    seq: BatchSeq,
}

/// Times are told apart by this.
pub fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 123_456_789 }
}

pub fn name(text: &str) -> Name {
    Name::try_from(text).unwrap()
}

impl Fixture {
    pub fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        Brick::format(&dir.path().join("brick")).unwrap();
        let brick = Brick::open(&dir.path().join("brick")).unwrap();
        let store = MemStore::new();
        let options = VolumeOptions::default();
        let mut fixture = Fixture {
            store,
            brick,
            dir,
            session: SessionId(0),
            next_inode: 0,
            next_block: 0,
            seq: BatchSeq(0),
        };
        fixture.command(Command::Format { volume: 7, uid: 0, gid: 0, perm: 0o755, time: at(1), options });
        let open = Command::OpenSession { client: "test".into(), time: at(1), inodes: 1000 };
        match fixture.command(open) {
            Outcome::Opened { session, first, .. } => {
                (fixture.session, fixture.next_inode) = (session, first.0)
            }
            other => panic!("{other:?}"),
        }
        fixture
    }

    fn command(&self, command: Command) -> Outcome {
        let (batch, outcome) = apply_command(&self.store, &command).unwrap();
        self.store.write(&batch).unwrap();
        outcome
    }

    pub fn op(&mut self, op: Op) {
        self.seq = self.seq.next();
        let ops = encode_ops(&[op]).into();
        let outcome = self.command(Command::batch(self.session, self.seq, ops));
        assert_eq!(outcome, Outcome::Applied { seq: self.seq });
    }

    pub fn create(
        &mut self,
        parent: InodeId,
        text: &str,
        kind: FileKind,
        target: &str,
        rdev: u32,
    ) -> InodeId {
        let ino = InodeId(self.next_inode);
        self.next_inode += 1;
        let target = Bytes::copy_from_slice(target.as_bytes());
        let (uid, gid) = (1000, 2000);
        let new = NewInode {
            kind,
            perm: 0o640,
            uid,
            gid,
            rdev,
            target,
            time: at(5),
            generation: 1,
            xattrs: Vec::new(),
        };
        self.op(Op::Create { parent, name: name(text), ino, new });
        ino
    }

    pub fn file(&mut self, parent: InodeId, text: &str) -> InodeId {
        self.create(parent, text, FileKind::Regular, "", 0)
    }

    pub fn directory(&mut self, parent: InodeId, text: &str) -> InodeId {
        self.create(parent, text, FileKind::Directory, "", 0)
    }

    pub fn write(&mut self, ino: InodeId, offset: u64, data: &Bytes) {
        let content = Some(Extent::Inline(data.clone()));
        self.write_extent(ino, offset, data.len() as u64, content, None);
    }

    /// Writes a block; answers its id.
    pub fn write_block(&mut self, ino: InodeId, offset: u64, data: &Bytes) -> BlockId {
        self.write_block_to(BlockGroup::default(), ino, offset, data)
    }

    /// Writes a block that is said to be on these bricks; answers its id.
    pub fn write_block_to(&mut self, group: BlockGroup, ino: InodeId, offset: u64, data: &Bytes) -> BlockId {
        self.next_block += 1;
        let id = BlockId { session: self.session, seq: self.next_block };
        self.brick.put(id, std::slice::from_ref(data)).unwrap();
        let len = data.len() as u32;
        let content = Some(Extent::Block(BlockRef { id, offset: 0, len }));
        let info = BlockInfo { len, group };
        self.write_extent(ino, offset, u64::from(len), content, Some((id, info)));
        id
    }

    fn write_extent(
        &mut self,
        ino: InodeId,
        offset: u64,
        len: u64,
        content: Option<Extent>,
        declare: Option<(BlockId, BlockInfo)>,
    ) {
        let size_min = offset + len;
        self.op(Op::Write { ino, offset, len, content, size_min, time: at(9), clear_setid: false, declare });
    }

    pub fn xattr(&mut self, ino: InodeId, attribute: &str, value: &'static [u8]) {
        let value = Bytes::from_static(value);
        self.op(Op::SetXattr {
            ino,
            name: XattrName::try_from(attribute).expect("a name"),
            value,
            how: XattrSet::Any,
            time: at(9),
        });
    }

    /// The file of a block on the brick.
    pub fn block_file(&self, id: BlockId) -> PathBuf {
        let (session, run) = (id.session.0, id.seq / 256);
        self.dir.path().join(format!("brick/blocks/{session:x}/{run:x}/{id}"))
    }
}
