//! Random operations of several sessions on a volume and on a simple model of a file system have the same
//! outcome.
//!
//! After every sequence the volume's state fits together, a repetition of any batch changes nothing, and the
//! same commands on another store lead to the very same bytes.

#[path = "../common/mod.rs"]
mod common;
mod model;

use bytes::Bytes;
use common::*;
use model::{Model, Node};
use proptest::prelude::*;
use shoal_namespace::codec::encode_ops;
use shoal_namespace::command::extents_digest;
use shoal_namespace::kv::{KvStore, MemStore, WriteBatch};
use shoal_namespace::query::{self, Prefetch};
use shoal_namespace::{Command, Op, Outcome, RenameFlags, SetAttr, XattrSet, apply_command};
use shoal_types::{BlockRef, Cookie, Extent, FileKind, InodeFlags, InodeId, Name, SessionId, XattrName};
use std::collections::{BTreeMap, BTreeSet};

/// Raw numbers of a step; what they mean depends on what there is.
#[derive(Clone, Debug)]
struct Step {
    what: u8,
    a: u8,
    b: u8,
    names: (u8, u8),
    offset: u32,
    len: u32,
    other: u32,
    flag: u8,
    /// The batch ends here.
    cut: bool,
    /// The acting session, if the batch before has ended.
    who: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Places that coincide, sizes around the limits.
    let place = || prop_oneof![4 => 0u32..8, 1 => 12u32..20].prop_map(|n| n * 8192).boxed();
    let len = prop_oneof![
        3 => 1u32..5000,
        3 => Just(4096u32),
        2 => Just(8192u32),
        1 => Just(65_536u32),
        1 => 60_000u32..70_000,
    ];
    let offset = prop_oneof![3 => place(), 1 => 0u32..100_000].boxed();
    let one = (
        (any::<u8>(), any::<u8>(), any::<u8>(), (0u8..4, 0u8..4)),
        (offset.clone(), len, offset, any::<u8>(), (prop::bool::weighted(0.3), 0u8..3)),
    );
    let step = one.prop_map(|((what, a, b, names), (offset, len, other, flag, (cut, who)))| Step {
        what,
        a,
        b,
        names,
        offset,
        len,
        other,
        flag,
        cut,
        who,
    });
    prop::collection::vec(step, 1..60)
}

struct Run {
    volume: Volume,
    model: Model,
    pending: Vec<Op>,
    sessions: [SessionId; 3],
    /// Inodes that once were.
    inos: Vec<InodeId>,
}

fn short_name(n: u8) -> Name {
    name(["a", "b", "c", "a-rather-longer-name"][usize::from(n) % 4])
}

impl Run {
    fn new() -> Run {
        let mut volume = Volume::new();
        let sessions = [volume.session, volume.open_session(), volume.open_session()];
        let root = Node {
            kind: FileKind::Directory,
            perm: 0o755,
            flags: InodeFlags::default(),
            uid: 0,
            gid: 0,
            atime: at(0),
            mtime: at(0),
            ctime: at(0),
            names: BTreeMap::new(),
            content: Vec::new(),
            allocated: Vec::new(),
            xattrs: BTreeMap::new(),
            unlinked: false,
            holders: BTreeSet::new(),
        };
        let model = Model::new(root, volume.session);
        Run { volume, model, pending: Vec::new(), sessions, inos: vec![InodeId::ROOT] }
    }

    /// An inode, preferably of this kind, now and then another or one that is gone.
    fn pick(&self, kind: FileKind, choice: u8) -> InodeId {
        let choice = usize::from(choice);
        let fitting: Vec<InodeId> =
            self.model.nodes.iter().filter(|(_, node)| node.kind == kind).map(|(ino, _)| *ino).collect();
        if choice % 10 == 9 || fitting.is_empty() {
            self.inos[choice / 10 % self.inos.len()]
        } else {
            fitting[choice / 10 % fitting.len()]
        }
    }

    fn step(&mut self, step: &Step) {
        let session = self.sessions[usize::from(step.who)];
        if self.pending.is_empty() && self.volume.session != session {
            self.volume.act_as(session);
            self.model.session = session;
        }
        if let Some(op) = self.op(step) {
            let mut after = self.model.clone();
            match after.apply(&op, &self.volume.blocks) {
                Ok(()) => {
                    self.model = after;
                    self.pending.push(op);
                }
                Err(errno) => {
                    self.flush();
                    assert_eq!(self.volume.run(op.clone()), Err(errno), "{op:?}");
                }
            }
        }
        if step.cut {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let ops = std::mem::take(&mut self.pending);
        if ops.is_empty() {
            return;
        }
        let outcome = self.volume.batch(&ops);
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}: {ops:#?}");
        let seq = self.volume.seq;
        let again = Command::batch(self.volume.session, seq, encode_ops(&ops).into());
        let repeated = apply_command(&self.volume.store, &again).unwrap();
        assert_eq!(repeated, (WriteBatch::default(), Outcome::Applied { seq }), "a repetition does nothing");
    }

    fn op(&mut self, step: &Step) -> Option<Op> {
        use FileKind::{Directory, Regular};
        let time = self.volume.now();
        let clear_setid = step.flag.is_multiple_of(5);
        let (offset, len) = (u64::from(step.offset), u64::from(step.len));
        let (first, second) = (short_name(step.names.0), short_name(step.names.1));
        let parent = self.pick(Directory, step.a);
        let file = self.pick(Regular, step.a);
        Some(match step.what % 37 {
            0..=4 => {
                let ino = self.volume.fresh();
                self.inos.push(ino);
                let kind = match step.flag % 8 {
                    0..=3 => Regular,
                    4..=5 => Directory,
                    6 => FileKind::Symlink,
                    _ => FileKind::Fifo,
                };
                let mut new = blank(kind, time);
                if step.flag & 16 != 0 {
                    new.xattrs.push((attribute("system.posix_acl_access"), Bytes::from_static(b"acl")));
                }
                Op::Create { parent, name: first, ino, new }
            }
            5 => Op::Link { ino: self.pick(Regular, step.b), parent, name: first, time },
            6 => Op::Unlink { parent, name: first, time, keep: step.flag & 1 == 0 },
            7 => Op::Rmdir { parent, name: first, time, keep: step.flag & 1 == 0 },
            8..=10 => Op::Rename {
                from: parent,
                from_name: first,
                to: self.pick(Directory, step.b),
                to_name: second,
                flags: RenameFlags {
                    no_replace: step.flag.is_multiple_of(7),
                    exchange: step.flag.is_multiple_of(3),
                },
                time,
                keep: step.flag & 1 == 0,
            },
            11..=12 => {
                let size = Some(u64::from(step.other));
                Op::SetAttr {
                    ino: file,
                    set: SetAttr {
                        size,
                        mtime: Some(time),
                        ctime: Some(time),
                        clear_setid,
                        ..SetAttr::default()
                    },
                }
            }
            13 => Op::SetAttr {
                ino: self.inos[usize::from(step.a) % self.inos.len()],
                set: SetAttr {
                    perm: (step.flag & 1 == 0).then_some(step.other & 0o7777),
                    uid: (step.flag & 2 == 0).then_some(step.other),
                    atime: Some(time),
                    ctime: Some(time),
                    clear_setid,
                    ..SetAttr::default()
                },
            },
            14..=18 => {
                let content = Extent::Inline(pattern(u64::from(step.other), step.len as usize).into());
                self.write(file, offset, len, Some(content), clear_setid)
            }
            19..=22 => {
                let (id, info) = self.volume.fresh_block(step.len + 100);
                let skip = if step.flag & 1 == 0 { 0 } else { 100 };
                let content = Extent::Block(BlockRef { id, offset: skip, len: step.len });
                let mut op = self.write(file, offset, len, Some(content), clear_setid);
                if let Op::Write { declare, .. } = &mut op {
                    *declare = Some((id, info));
                }
                op
            }
            23 => self.write(file, offset, len, None, clear_setid),
            24 => self.write(file, offset, len, Some(Extent::Zero { len }), clear_setid),
            25..=26 => Op::CloneRange {
                src: file,
                src_offset: offset,
                dst: self.pick(Regular, step.b),
                dst_offset: u64::from(step.other),
                len,
                time,
                clear_setid,
            },
            27 => Op::SetXattr {
                ino: self.inos[usize::from(step.a) % self.inos.len()],
                name: attribute(["user.x", "user.y", "security.capability"][usize::from(step.b) % 3]),
                value: pattern(u64::from(step.other), step.len as usize % 300).into(),
                how: [XattrSet::Any, XattrSet::Create, XattrSet::Replace][usize::from(step.flag) % 3],
                time,
            },
            28 => Op::RemoveXattr {
                ino: self.inos[usize::from(step.a) % self.inos.len()],
                name: attribute(["user.x", "user.y", "security.capability"][usize::from(step.b) % 3]),
                time,
            },
            29..=30 => Op::Forget { ino: self.inos[usize::from(step.a) % self.inos.len()] },
            31..=33 => {
                self.hold(self.sessions[usize::from(step.flag) % 3], [step.a, step.b]);
                return None;
            }
            36 => Op::SetFlags {
                ino: self.inos[usize::from(step.a) % self.inos.len()],
                flags: [InodeFlags::NODUMP, InodeFlags::NOATIME, InodeFlags::default()]
                    [usize::from(step.flag) % 3],
                time,
            },
            34 if step.flag.is_multiple_of(4) => {
                self.replace_session(usize::from(step.a) % 3);
                return None;
            }
            _ => {
                self.compact(file, step.flag & 1 == 0);
                return None;
            }
        })
    }

    fn write(&mut self, ino: InodeId, offset: u64, len: u64, content: Option<Extent>, clear: bool) -> Op {
        let mut op = self.volume.write_op(ino, offset, len, content);
        if let Op::Write { clear_setid, .. } = &mut op {
            *clear_setid = clear;
        }
        op
    }

    /// A session, be it the one that acts or not, refers to some inodes from here on.
    fn hold(&mut self, session: SessionId, choices: [u8; 2]) {
        self.flush();
        let inodes = choices.map(|choice| self.inos[usize::from(choice) % self.inos.len()]);
        self.volume.hold(session, &inodes);
        self.model.hold(session, &inodes);
    }

    /// A session ends, and a new one comes.
    fn replace_session(&mut self, which: usize) {
        self.flush();
        self.volume.close_session(self.sessions[which]);
        self.model.end(self.sessions[which]);
        self.sessions[which] = self.volume.open_session();
        self.model.session = self.volume.session;
    }

    /// Merges the first run of extents without a gap, as the session or as the group.
    fn compact(&mut self, file: InodeId, as_group: bool) {
        self.flush();
        let regular = self.model.nodes.get(&file).is_some_and(|node| node.kind == FileKind::Regular);
        if !regular {
            return;
        }
        let mut run: Vec<(u64, Extent)> = Vec::new();
        for (offset, extent) in self.volume.extents(file) {
            if run.last().is_some_and(|(last, extent)| last + extent.len() != offset) {
                break;
            }
            run.push((offset, extent));
        }
        let Some((offset, _)) = run.first() else { return };
        let offset = *offset;
        let bytes: Vec<u8> = run.iter().flat_map(|(_, extent)| self.volume.bytes(extent)).collect();
        let (mut block, info) = self.volume.fresh_block(bytes.len() as u32);
        if offset + bytes.len() as u64 > self.volume.stat(file).size {
            // Room behind the end cannot become bytes.
            return;
        }
        if as_group {
            block.session = SessionId::SERVER;
            let digest = extents_digest(&run);
            let command = Command::Compact { ino: file, offset, digest, block, info };
            assert_eq!(self.volume.command(command), Outcome::Compacted { done: true });
        } else {
            self.volume.run(Op::Compact { ino: file, offset, expected: run, block, info }).unwrap();
        }
        self.volume.blocks.insert(block, bytes);
    }

    /// The volume shows what the model holds, and nothing else.
    fn compare(&self) {
        let counters = query::counters(&self.volume.store).unwrap();
        let mut used = 0;
        for ino in &self.inos {
            let Some(node) = self.model.nodes.get(ino) else {
                assert_eq!(self.volume.record(*ino), None, "inode {ino} is gone");
                continue;
            };
            let record = self.volume.record(*ino).expect("an inode of the model");
            assert_eq!(query::record(&self.volume.store, *ino).unwrap(), Some(record.inode.clone()));
            assert!(self.volume.holders(*ino).iter().eq(&node.holders), "inode {ino}");
            let inode = record.inode;
            assert_eq!(
                (inode.kind, (inode.perm, inode.flags), inode.uid, inode.gid, inode.nlink),
                (node.kind, (node.perm, node.flags), node.uid, node.gid, self.model.nlink(*ino)),
                "inode {ino}"
            );
            assert_eq!(
                (inode.atime, inode.mtime, inode.ctime),
                (node.atime, node.mtime, node.ctime),
                "inode {ino}"
            );
            let xattrs: BTreeMap<XattrName, Vec<u8>> =
                record.xattrs.into_iter().map(|(name, value)| (name, value.to_vec())).collect();
            assert_eq!(xattrs, node.xattrs, "inode {ino}");
            let allocated = node.allocated.iter().filter(|mark| **mark).count() as u64;
            used += allocated;
            match node.kind {
                FileKind::Directory => {
                    let names: BTreeMap<Name, InodeId> = self
                        .volume
                        .names(*ino)
                        .into_iter()
                        .map(|(name, dentry)| (name, dentry.ino))
                        .collect();
                    assert_eq!(names, node.names, "directory {ino}");
                    self.compare_pages(*ino);
                }
                FileKind::Regular => {
                    assert_eq!(
                        (inode.size, inode.allocated),
                        (node.content.len() as u64, allocated),
                        "file {ino}"
                    );
                    assert!(self.volume.read(*ino) == node.content, "content of {ino}");
                    if let Some(inline) = record.extents {
                        assert_eq!(inline, self.volume.extents(*ino));
                    }
                }
                FileKind::Symlink => assert_eq!(inode.target, node.content),
                _ => {}
            }
        }
        assert_eq!((counters.inodes, counters.used_bytes), (self.model.nodes.len() as u64, used));
        for session in self.sessions {
            let held = query::holds(&self.volume.store, session, usize::MAX).unwrap();
            assert_eq!(held, self.model.held(session), "{session}");
        }
    }

    /// A listing in pages shows the same as one at once.
    fn compare_pages(&self, dir: InodeId) {
        let store = &self.volume.store;
        let whole = query::list(store, dir, Cookie::START, Prefetch::Contents, usize::MAX).unwrap();
        let mut entries = Vec::new();
        let mut after = Cookie::START;
        loop {
            let page = query::list(store, dir, after, Prefetch::Contents, 1).unwrap();
            entries.extend(page.entries);
            if page.end {
                break;
            }
            after = entries.last().expect("a page that is not the last holds names").name.cookie();
        }
        assert_eq!(entries, whole.entries);
        for entry in entries {
            assert_eq!(entry.record, self.volume.record(entry.dentry.ino));
        }
    }

    /// What is left when one session after the other ends and everything due is done.
    fn end(mut self) {
        for session in self.sessions {
            self.volume.close_session(session);
            self.model.end(session);
            self.compare();
            self.volume.assert_clean();
        }
        assert!(self.model.nodes.values().all(|node| !node.unlinked));
        self.volume.clean_up();
        self.volume.assert_clean();
    }
}

fn replay(commands: &[Command]) -> MemStore {
    let store = MemStore::new();
    for command in commands {
        let (batch, _) = apply_command(&store, command).unwrap();
        store.write(&batch).unwrap();
    }
    store
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_do_what_a_simple_file_system_does(steps in steps()) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
            if step.cut {
                run.volume.assert_clean();
            }
        }
        run.flush();
        run.compare();
        run.volume.assert_clean();
        prop_assert!(dump(&replay(&run.volume.commands)) == dump(&run.volume.store), "the same commands, the same bytes");
        run.end();
    }
}

/// `SHOAL_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("SHOAL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000)
}
