use crate::common::*;
use shoal_namespace::limits::INLINE_JOIN_BYTES_MAX;
use shoal_namespace::{Op, Outcome, SetAttr};
use shoal_types::limits::{FILE_BYTES_MAX, INLINE_BYTES_MAX};
use shoal_types::{BlockRef, Errno, Extent, FileKind, InodeId};

#[test]
fn bytes_written_are_read_and_times_move() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.write(file, 10, b"hello").unwrap();
    let inode = v.stat(file);
    assert_eq!((inode.size, inode.allocated, inode.mtime, inode.ctime), (15, 5, at(v.clock), at(v.clock)));
    assert!(inode.atime < inode.mtime);
    assert_eq!(v.read(file), b"\0\0\0\0\0\0\0\0\0\0hello");
    v.assert_clean();
}

#[test]
fn a_file_that_grows_in_small_pieces_stays_one_extent() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    for n in 0..16 {
        v.write(file, n * 4096, &pattern(n, 4096)).unwrap();
    }
    assert_eq!(v.extents(file).len(), 1);
    v.write(file, 65_536, b"x").unwrap();
    assert_eq!(v.extents(file).len(), 2, "up to the limit");
    v.write(file, 65_537, b"y").unwrap();
    assert_eq!(v.extents(file).len(), 2);
    let expected: Vec<u8> = (0..16).flat_map(|n| pattern(n, 4096)).chain(*b"xy").collect();
    assert_eq!(v.read(file), expected);
    v.assert_clean();
}

#[test]
fn an_overwrite_inside_an_inline_extent_leaves_one() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let mut expected = pattern(1, 60_000);
    v.write(file, 0, &expected).unwrap();
    for (offset, len) in [(100, 10), (0, 5), (59_990, 10), (0, 60_000), (59_000, 2000)] {
        let bytes = pattern(offset as u64, len);
        v.write(file, offset as u64, &bytes).unwrap();
        expected.resize(expected.len().max(offset + len), 0);
        expected[offset..offset + len].copy_from_slice(&bytes);
        assert_eq!((v.extents(file).len(), v.read(file) == expected), (1, true), "{offset}+{len}");
    }
    v.assert_clean();
}

#[test]
fn inline_extents_join_on_both_sides_where_they_fit() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.write(file, 0, &pattern(1, 100)).unwrap();
    v.write(file, 200, &pattern(2, 100)).unwrap();
    assert_eq!(v.extents(file).len(), 2);
    v.write(file, 100, &pattern(3, 100)).unwrap();
    assert_eq!(v.extents(file).len(), 1);
    let large = INLINE_JOIN_BYTES_MAX as usize - 50;
    v.write(file, 1000, &pattern(4, large)).unwrap();
    v.write(file, 950, &pattern(5, 50)).unwrap();
    assert_eq!(v.extents(file).iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [0, 950]);
    v.write(file, 300, &pattern(6, 650)).unwrap();
    assert_eq!(
        v.extents(file).iter().map(|(offset, _)| *offset).collect::<Vec<_>>(),
        [0, 950],
        "left, not right"
    );
    v.assert_clean();
}

#[test]
fn overwriting_the_middle_of_a_block_adds_a_reference_and_overwriting_all_drops_them() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let block = v.write_block(file, 0, 10_000);
    v.write(file, 4000, &[9; 100]).unwrap();
    assert_eq!((v.refs(block), v.extents(file).len(), v.stat(file).allocated), (Some(2), 3, 10_000));
    let mut expected = v.blocks[&block].clone();
    expected[4000..4100].fill(9);
    assert_eq!(v.read(file), expected);
    v.write(file, 0, &[8; 4000]).unwrap();
    assert_eq!(v.refs(block), Some(1));
    let second = v.write_block(file, 0, 10_000);
    assert_eq!((v.refs(block), v.refs(second), v.extents(file).len()), (Some(0), Some(1), 1));
    assert_eq!(v.garbage(), [block]);
    v.assert_clean();
}

#[test]
fn parts_of_a_block_that_continue_each_other_become_one_extent() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let (id, info) = v.fresh_block(3000);
    for (index, part) in [0u32, 2, 1].into_iter().enumerate() {
        let content = Extent::Block(BlockRef { id, offset: part * 1000, len: 1000 });
        let mut op = v.write_op(file, u64::from(part) * 1000, 1000, Some(content));
        if let Op::Write { declare, .. } = &mut op {
            *declare = (index == 0).then_some((id, info));
        }
        v.run(op).unwrap();
    }
    assert_eq!(v.extents(file), [(0, Extent::Block(BlockRef { id, offset: 0, len: 3000 }))]);
    assert_eq!((v.refs(id), v.read(file)), (Some(1), v.blocks[&id].clone()));
    v.assert_clean();
}

#[test]
fn a_hole_frees_what_was_there_and_reads_as_zeros() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.write(file, 0, &[1; 1000]).unwrap();
    v.punch(file, 100, 800).unwrap();
    assert_eq!((v.stat(file).size, v.stat(file).allocated), (1000, 200));
    v.punch(file, 0, 5000).unwrap();
    assert_eq!((v.stat(file).size, v.stat(file).allocated), (1000, 0));
    assert_eq!(v.read(file), [0; 1000]);
    v.assert_clean();
}

#[test]
fn reserved_room_fills_only_the_gaps() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.write(file, 100, &[1; 100]).unwrap();
    v.write(file, 300, &[2; 100]).unwrap();
    v.reserve(file, 50, 500).unwrap();
    assert_eq!((v.stat(file).size, v.stat(file).allocated), (400, 500));
    assert_eq!(
        v.extents(file).iter().map(|(offset, _)| *offset).collect::<Vec<_>>(),
        [50, 100, 200, 300, 400]
    );
    v.reserve(file, 550, 100).unwrap();
    v.reserve(file, 500, 300).unwrap();
    assert_eq!(v.extents(file).len(), 5, "reserved in steps, it stays one extent");
    assert_eq!(v.stat(file).allocated, 750);
    v.write(file, 60, &[3; 10]).unwrap();
    assert_eq!(v.stat(file).allocated, 750);
    v.assert_clean();
}

#[test]
fn allocation_may_extend_the_file() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let mut op = v.write_op(file, 0, 4096, Some(Extent::Zero { len: 4096 }));
    if let Op::Write { size_min, .. } = &mut op {
        *size_min = 4096;
    }
    v.run(op).unwrap();
    assert_eq!((v.stat(file).size, v.read(file)), (4096, vec![0; 4096]));
    v.assert_clean();
}

#[test]
fn only_files_can_be_written_and_none_beyond_the_largest() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let fifo = v.try_make(FileKind::Fifo, ROOT, "p").unwrap();
    assert_eq!(v.write(ROOT, 0, b"x"), Err(Errno::EISDIR));
    assert_eq!(v.write(fifo, 0, b"x"), Err(Errno::EINVAL));
    assert_eq!(v.write(InodeId(4711), 0, b"x"), Err(Errno::ENOENT));
    assert_eq!(v.write(file, FILE_BYTES_MAX, b"x"), Err(Errno::EFBIG));
    v.write(file, FILE_BYTES_MAX - 1, b"x").unwrap();
    assert_eq!(v.reserve(file, u64::MAX - 10, 20), Err(Errno::EFBIG));
    v.assert_clean();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let inline = Extent::Inline("abc".into());
    let other_len = v.write_op(file, 0, 4, Some(inline.clone()));
    let nothing = v.write_op(file, 0, 0, None);
    let oversized = vec![0; INLINE_BYTES_MAX as usize + 1];
    let large = v.write_op(file, 0, oversized.len() as u64, Some(Extent::Inline(oversized.into())));
    let mut hidden = v.write_op(file, 0, 3, Some(inline));
    if let Op::Write { size_min, .. } = &mut hidden {
        *size_min = 2;
    }
    for op in [other_len, nothing, large, hidden] {
        assert_eq!(v.run(op.clone()), Err(Errno::EINVAL), "{op:?}");
    }
    assert_eq!(v.stat(file).size, 0);
}

#[test]
fn blocks_must_be_declared_by_their_own_session_and_referred_to_within_their_length() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let (id, info) = v.fresh_block(1000);
    let refer = |v: &mut Volume, offset, len, declare| {
        let content = Extent::Block(BlockRef { id, offset, len });
        let mut op = v.write_op(file, 0, u64::from(len), Some(content));
        if let Op::Write { declare: declared, .. } = &mut op {
            *declared = declare;
        }
        v.run(op)
    };
    assert_eq!(refer(&mut v, 0, 10, None), Err(Errno::ESTALE), "never declared");
    assert_eq!(refer(&mut v, 991, 10, Some((id, info))), Err(Errno::EINVAL));
    let mut foreign = id;
    foreign.session.0 += 1;
    assert_eq!(refer(&mut v, 0, 10, Some((foreign, info))), Err(Errno::EINVAL));
    refer(&mut v, 0, 10, Some((id, info))).unwrap();
    assert_eq!(refer(&mut v, 0, 10, Some((id, info))), Err(Errno::EEXIST));
    assert_eq!(refer(&mut v, 995, 6, None), Err(Errno::ESTALE), "behind its end");
    refer(&mut v, 990, 10, None).unwrap();
    v.truncate(file, 0).unwrap();
    assert_eq!(refer(&mut v, 0, 10, None), Err(Errno::ESTALE), "garbage may be gone already");
    v.assert_clean();
}

#[test]
fn a_block_may_be_without_references_for_a_moment_inside_a_batch() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let (id, info) = v.fresh_block(1000);
    let content = Some(Extent::Block(BlockRef { id, offset: 0, len: 1000 }));
    let mut first = v.write_op(file, 0, 1000, content.clone());
    if let Op::Write { declare, .. } = &mut first {
        *declare = Some((id, info));
    }
    let cut = Op::SetAttr { ino: file, set: SetAttr { size: Some(0), ..SetAttr::default() } };
    let again = v.write_op(file, 500, 1000, content);
    assert!(matches!(v.batch(&[first, cut, again]), Outcome::Applied { .. }));
    assert_eq!((v.refs(id), v.garbage()), (Some(1), vec![]));
    v.assert_clean();
}

#[test]
fn a_write_without_the_right_to_keep_them_costs_privileges() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    v.setxattr(file, "security.capability", b"caps", Default::default()).unwrap();
    v.setattr(file, SetAttr { perm: Some(0o6755), ..SetAttr::default() }).unwrap();
    v.write(file, 0, b"x").unwrap();
    assert_eq!((v.stat(file).perm, v.stat(file).xattrs), (0o6755, 1));
    let mut op = v.write_op(file, 0, 1, Some(Extent::Inline("y".into())));
    if let Op::Write { clear_setid, .. } = &mut op {
        *clear_setid = true;
    }
    v.run(op).unwrap();
    assert_eq!((v.stat(file).perm, v.stat(file).xattrs), (0o755, 0));
    v.assert_clean();
}
