use crate::common::*;
use shoal_types::Errno;

#[test]
fn blocks_are_shared_and_inline_bytes_copied() {
    let mut v = Volume::new();
    let (src, dst) = (v.file(ROOT, "a"), v.file(ROOT, "b"));
    let block = v.write_block(src, 0, 10_000);
    v.write(src, 20_000, b"inline").unwrap();
    v.clone_range((src, 0), (dst, 0), 20_006).unwrap();
    assert_eq!((v.read(dst), v.refs(block)), (v.read(src), Some(2)));
    assert_eq!(v.stat(dst).allocated, v.stat(src).allocated, "the hole stays a hole");
    v.write(dst, 0, b"changed").unwrap();
    assert_eq!(v.read(src)[..7], v.blocks[&block][..7]);
    v.unlink(ROOT, "a", false).unwrap();
    assert_eq!(v.refs(block), Some(1));
    v.assert_clean();
}

#[test]
fn a_part_lands_at_its_offset_in_place_of_what_was_there() {
    let mut v = Volume::new();
    let (src, dst) = (v.file(ROOT, "a"), v.file(ROOT, "b"));
    v.write_block(src, 0, 10_000);
    let old = v.write_block(dst, 0, 10_000);
    let mut expected = v.read(dst);
    expected[500..1500].copy_from_slice(&v.read(src)[3000..4000]);
    v.clone_range((src, 3000), (dst, 500), 1000).unwrap();
    assert_eq!((v.read(dst), v.refs(old)), (expected, Some(2)));
    v.assert_clean();
}

#[test]
fn a_clone_in_steps_shares_as_few_extents_as_one_at_once() {
    let mut v = Volume::new();
    let (src, dst) = (v.file(ROOT, "a"), v.file(ROOT, "b"));
    let block = v.write_block(src, 0, 40_000);
    for step in 0..4 {
        v.clone_range((src, step * 10_000), (dst, step * 10_000), 10_000).unwrap();
    }
    assert_eq!((v.extents(dst), v.refs(block)), (v.extents(src), Some(2)));
    v.assert_clean();
}

#[test]
fn a_file_may_be_cloned_within_itself_but_not_over_itself() {
    let mut v = Volume::new();
    let file = v.file(ROOT, "a");
    let block = v.write_block(file, 0, 1000);
    v.clone_range((file, 0), (file, 500), 500).unwrap();
    let half = v.blocks[&block][..500].to_vec();
    assert_eq!((v.read(file), v.refs(block)), ([&half[..], &half].concat(), Some(2)));
    assert_eq!(v.clone_range((file, 0), (file, 499), 500), Err(Errno::EINVAL));
    assert_eq!(v.clone_range((file, 499), (file, 0), 500), Err(Errno::EINVAL));
    v.assert_clean();
}

#[test]
fn a_range_must_lie_within_its_source() {
    let mut v = Volume::new();
    let (src, dst) = (v.file(ROOT, "a"), v.file(ROOT, "b"));
    v.write(src, 0, b"hello").unwrap();
    assert_eq!(v.clone_range((src, 0), (dst, 0), 6), Err(Errno::EINVAL));
    assert_eq!(v.clone_range((src, 0), (dst, 0), 0), Err(Errno::EINVAL));
    assert_eq!(v.clone_range((src, u64::MAX), (dst, 0), 2), Err(Errno::EINVAL));
    assert_eq!(v.clone_range((src, 0), (dst, i64::MAX as u64), 2), Err(Errno::EFBIG));
    assert_eq!(v.clone_range((ROOT, 0), (dst, 0), 2), Err(Errno::EISDIR));
    v.assert_clean();
}
