//! A volume in memory, with sessions of which one acts in it.
#![allow(dead_code)]

use bytes::Bytes;
use shoal_namespace::check::{self, Finding, Visitor};
use shoal_namespace::codec::encode_ops;
use shoal_namespace::kv::{KvRead, KvStore, MemStore};
use shoal_namespace::op::NewInode;
use shoal_namespace::query::{self, FileRecord, Prefetch};
use shoal_namespace::records::VolumeOptions;
use shoal_namespace::{
    Command, Dentry, Fault, Op, Outcome, RenameFlags, SetAttr, TreeError, XattrSet, apply_command,
};
use shoal_types::{
    BatchSeq, BlockGroup, BlockId, BlockInfo, BlockRef, Cookie, Errno, Extent, FileKind, Inode, InodeFlags,
    InodeId, Name, SessionId, Timestamp, XattrName,
};
use std::collections::{BTreeMap, HashMap};

pub const ROOT: InodeId = InodeId::ROOT;

pub fn name(name: &str) -> Name {
    Name::try_from(name).unwrap()
}

pub fn attribute(name: &str) -> XattrName {
    XattrName::try_from(name).unwrap()
}

/// The n-th moment.
pub fn at(n: i64) -> Timestamp {
    Timestamp { secs: 1_000_000 + n, nanos: 7 }
}

/// Bytes that differ from place to place and from file to file.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(167)) as u8).collect()
}

pub fn blank(kind: FileKind, time: Timestamp) -> NewInode {
    NewInode {
        kind,
        perm: 0o755,
        uid: 10,
        gid: 20,
        rdev: 0,
        target: if kind == FileKind::Symlink { Bytes::from_static(b"target") } else { Bytes::new() },
        time,
        generation: 0,
        xattrs: Vec::new(),
    }
}

pub struct Volume {
    pub store: MemStore,
    pub session: SessionId,
    pub seq: BatchSeq,
    pub next: u64,
    /// The sessions that do not act now, with their last batches and next inode numbers.
    pub others: BTreeMap<SessionId, (BatchSeq, u64)>,
    pub clock: i64,
    pub blocks: HashMap<BlockId, Vec<u8>>,
    /// Where new blocks are.
    pub group: BlockGroup,
    /// Every command given, to be given again elsewhere.
    pub commands: Vec<Command>,
}

pub fn format() -> Command {
    format_with(VolumeOptions::default())
}

pub fn format_with(options: VolumeOptions) -> Command {
    Command::Format { volume: 77, uid: 0, gid: 0, perm: 0o755, time: at(0), options }
}

impl Volume {
    pub fn new() -> Volume {
        Volume::with(VolumeOptions::default())
    }

    pub fn with(options: VolumeOptions) -> Volume {
        let mut volume = Volume {
            store: MemStore::new(),
            session: SessionId(0),
            seq: BatchSeq(0),
            next: 0,
            others: BTreeMap::new(),
            clock: 1,
            blocks: HashMap::new(),
            group: BlockGroup::default(),
            commands: Vec::new(),
        };
        assert_eq!(volume.command(format_with(options)), Outcome::Done);
        volume.open_session();
        volume
    }

    /// Begins a session, which acts from here on.
    pub fn open_session(&mut self) -> SessionId {
        let open = Command::OpenSession { client: "test".into(), time: at(0), inodes: 100_000 };
        match self.command(open) {
            Outcome::Opened { session, first, inodes: 100_000 } => {
                self.others.insert(session, (BatchSeq(0), first.0));
                self.act_as(session);
                session
            }
            other => panic!("{other:?}"),
        }
    }

    /// Another session acts from here on.
    pub fn act_as(&mut self, session: SessionId) {
        self.others.insert(self.session, (self.seq, self.next));
        self.session = session;
        (self.seq, self.next) = self.others.remove(&session).expect("a session");
    }

    pub fn close_session(&mut self, session: SessionId) {
        assert_eq!(self.command(Command::CloseSession { session }), Outcome::Closed { more: false });
    }

    pub fn hold(&mut self, session: SessionId, inodes: &[InodeId]) {
        let inodes = inodes.to_vec();
        assert_eq!(self.command(Command::Hold { session, inodes }), Outcome::Done);
    }

    pub fn forget(&mut self, ino: InodeId) {
        assert_eq!(self.run(Op::Forget { ino }), Ok(()));
    }

    /// The holders of an inode.
    pub fn holders(&self, ino: InodeId) -> Vec<SessionId> {
        query::holders(&self.store, ino).unwrap()
    }

    pub fn command(&mut self, command: Command) -> Outcome {
        let command = Command::decode(&command.encode()).unwrap();
        let (batch, outcome) = apply_command(&self.store, &command).unwrap();
        self.store.write(&batch).unwrap();
        self.commands.push(command);
        outcome
    }

    pub fn batch(&mut self, ops: &[Op]) -> Outcome {
        let seq = self.seq.next();
        let command = Command::batch(self.session, seq, encode_ops(ops).into());
        let outcome = self.command(command);
        if outcome == (Outcome::Applied { seq }) {
            self.seq = seq;
        }
        outcome
    }

    /// One operation in a batch of its own.
    pub fn run(&mut self, op: Op) -> Result<(), Errno> {
        match self.batch(std::slice::from_ref(&op)) {
            Outcome::Applied { .. } => Ok(()),
            Outcome::Refused { index: 0, errno } => Err(errno),
            other => panic!("{op:?}: {other:?}"),
        }
    }

    pub fn now(&mut self) -> Timestamp {
        self.clock += 1;
        at(self.clock)
    }

    pub fn fresh(&mut self) -> InodeId {
        self.next += 1;
        InodeId(self.next - 1)
    }

    pub fn fresh_block(&mut self, len: u32) -> (BlockId, BlockInfo) {
        let id = BlockId { session: self.session, seq: self.blocks.len() as u64 + 1 };
        self.blocks.insert(id, pattern(id.seq, len as usize));
        (id, BlockInfo { len, group: self.group })
    }

    pub fn try_make(&mut self, kind: FileKind, parent: InodeId, at: &str) -> Result<InodeId, Errno> {
        let ino = self.fresh();
        let new = blank(kind, self.now());
        self.run(Op::Create { parent, name: name(at), ino, new })?;
        Ok(ino)
    }

    pub fn file(&mut self, parent: InodeId, at: &str) -> InodeId {
        self.try_make(FileKind::Regular, parent, at).unwrap()
    }

    pub fn dir(&mut self, parent: InodeId, at: &str) -> InodeId {
        self.try_make(FileKind::Directory, parent, at).unwrap()
    }

    pub fn link(&mut self, ino: InodeId, parent: InodeId, to: &str) -> Result<(), Errno> {
        let time = self.now();
        self.run(Op::Link { ino, parent, name: name(to), time })
    }

    pub fn unlink(&mut self, parent: InodeId, what: &str, keep: bool) -> Result<(), Errno> {
        let time = self.now();
        self.run(Op::Unlink { parent, name: name(what), time, keep })
    }

    pub fn rmdir(&mut self, parent: InodeId, what: &str) -> Result<(), Errno> {
        let time = self.now();
        self.run(Op::Rmdir { parent, name: name(what), time, keep: false })
    }

    pub fn rename(&mut self, from: (InodeId, &str), to: (InodeId, &str)) -> Result<(), Errno> {
        self.rename_with(from, to, RenameFlags::default())
    }

    pub fn rename_with(
        &mut self,
        from: (InodeId, &str),
        to: (InodeId, &str),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let time = self.now();
        self.run(Op::Rename {
            from: from.0,
            from_name: name(from.1),
            to: to.0,
            to_name: name(to.1),
            flags,
            time,
            keep: false,
        })
    }

    pub fn setattr(&mut self, ino: InodeId, set: SetAttr) -> Result<(), Errno> {
        self.run(Op::SetAttr { ino, set })
    }

    pub fn truncate(&mut self, ino: InodeId, size: u64) -> Result<(), Errno> {
        self.setattr(ino, SetAttr { size: Some(size), ..SetAttr::default() })
    }

    pub fn write_op(&mut self, ino: InodeId, offset: u64, len: u64, content: Option<Extent>) -> Op {
        let size_min = match content {
            Some(Extent::Inline(_) | Extent::Block(_)) => offset + len,
            _ => 0,
        };
        let time = self.now();
        Op::Write { ino, offset, len, content, size_min, time, clear_setid: false, declare: None }
    }

    pub fn write(&mut self, ino: InodeId, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let content = Extent::Inline(Bytes::copy_from_slice(bytes));
        let op = self.write_op(ino, offset, bytes.len() as u64, Some(content));
        self.run(op)
    }

    pub fn punch(&mut self, ino: InodeId, offset: u64, len: u64) -> Result<(), Errno> {
        let op = self.write_op(ino, offset, len, None);
        self.run(op)
    }

    pub fn reserve(&mut self, ino: InodeId, offset: u64, len: u64) -> Result<(), Errno> {
        let op = self.write_op(ino, offset, len, Some(Extent::Zero { len }));
        self.run(op)
    }

    /// Writes a whole new block.
    pub fn write_block(&mut self, ino: InodeId, offset: u64, len: u32) -> BlockId {
        let (id, info) = self.fresh_block(len);
        let content = Extent::Block(BlockRef { id, offset: 0, len });
        let mut op = self.write_op(ino, offset, u64::from(len), Some(content));
        if let Op::Write { declare, .. } = &mut op {
            *declare = Some((id, info));
        }
        self.run(op).unwrap();
        id
    }

    pub fn clone_range(&mut self, src: (InodeId, u64), dst: (InodeId, u64), len: u64) -> Result<(), Errno> {
        let time = self.now();
        let (src, src_offset, dst, dst_offset) = (src.0, src.1, dst.0, dst.1);
        self.run(Op::CloneRange { src, src_offset, dst, dst_offset, len, time, clear_setid: false })
    }

    pub fn setxattr(&mut self, ino: InodeId, what: &str, value: &[u8], how: XattrSet) -> Result<(), Errno> {
        let time = self.now();
        self.run(Op::SetXattr { ino, name: attribute(what), value: Bytes::copy_from_slice(value), how, time })
    }

    pub fn set_flags(&mut self, ino: InodeId, flags: InodeFlags) -> Result<(), Errno> {
        let time = self.now();
        self.run(Op::SetFlags { ino, flags, time })
    }

    pub fn record(&self, ino: InodeId) -> Option<FileRecord> {
        match query::inode(&self.store, ino) {
            Ok(record) => Some(record),
            Err(Fault::Errno(Errno::ENOENT)) => None,
            Err(other) => panic!("{other:?}"),
        }
    }

    pub fn stat(&self, ino: InodeId) -> Inode {
        self.record(ino).expect("the inode").inode
    }

    pub fn find(&self, dir: InodeId, what: &str) -> Option<Dentry> {
        query::lookup(&self.store, dir, &name(what)).unwrap().found.map(|(dentry, _)| dentry)
    }

    pub fn names(&self, dir: InodeId) -> BTreeMap<Name, Dentry> {
        let reply = query::list(&self.store, dir, Cookie::START, Prefetch::Names, usize::MAX).unwrap();
        assert!(reply.end);
        reply.entries.into_iter().map(|entry| (entry.name, entry.dentry)).collect()
    }

    pub fn extents(&self, ino: InodeId) -> Vec<(u64, Extent)> {
        let (mut extents, mut start) = (Vec::new(), 0);
        loop {
            let page = query::extents(&self.store, ino, start, u64::MAX, usize::MAX).unwrap();
            extents.extend(page.extents);
            if !page.more {
                return extents;
            }
            let (last, extent) = extents.last().expect("a page that is not the last holds extents");
            start = last + extent.len();
        }
    }

    /// Bytes that extents stand for.
    pub fn bytes(&self, extent: &Extent) -> Vec<u8> {
        match extent {
            Extent::Inline(bytes) => bytes.to_vec(),
            Extent::Block(block) => {
                self.blocks[&block.id][block.offset as usize..][..block.len as usize].to_vec()
            }
            Extent::Zero { len } => vec![0; *len as usize],
        }
    }

    pub fn read(&self, ino: InodeId) -> Vec<u8> {
        let mut content = vec![0; self.stat(ino).size as usize];
        for (offset, extent) in self.extents(ino) {
            let offset = offset as usize;
            for (to, from) in content.iter_mut().skip(offset).zip(self.bytes(&extent)) {
                *to = from;
            }
        }
        content
    }

    pub fn refs(&self, id: BlockId) -> Option<u64> {
        query::block(&self.store, id).unwrap().map(|record| record.refs)
    }

    pub fn garbage(&self) -> Vec<BlockId> {
        query::garbage(&self.store, None, usize::MAX).unwrap().into_iter().map(|(id, _)| id).collect()
    }

    pub fn findings(&self) -> Vec<Finding> {
        findings(&self.store)
    }

    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(self.findings(), []);
    }

    /// What a metadata group does in the background, until there is nothing left to do.
    pub fn clean_up(&mut self) {
        while let Some(ino) = query::reap_queue(&self.store, 1).unwrap().pop() {
            self.command(Command::Reap { ino, extents_max: 7 });
            self.assert_clean();
        }
        let blocks = self.garbage();
        self.command(Command::Collected { blocks });
        assert_eq!(self.garbage(), []);
    }
}

pub fn findings(store: &impl KvRead) -> Vec<Finding> {
    struct Collect(Vec<Finding>);
    impl Visitor for Collect {
        fn finding(&mut self, finding: Finding) {
            self.0.push(finding);
        }
    }
    let mut found = Collect(Vec::new());
    let summary = check::check(store, &mut found).unwrap();
    assert_eq!(summary.findings, found.0.len() as u64);
    found.0
}

/// Everything in a store.
pub fn dump(store: &impl KvRead) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (from, to) = shoal_namespace::keys::everything();
    let mut all = Vec::new();
    store
        .scan(&from, &to, &mut |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    all
}

pub type Failure = TreeError;
