use super::*;
use crate::fixture::Fixture;
use bytes::Bytes;
use shoal_types::BlockGroup;
use std::os::unix::fs::FileExt;

#[derive(Default)]
struct Heard {
    findings: Vec<String>,
}

impl Listener for Heard {
    fn begin(&mut self, _: &'static str, _: Option<u64>) {}
    fn progress(&mut self, _: u64) {}
    fn finding(&mut self, what: String) {
        self.findings.push(what);
    }
}

fn run(volume: &Fixture, quick: bool) -> (Report, Vec<String>) {
    run_with(volume, &Bricks::single(volume.brick.clone()), quick)
}

fn run_with(volume: &Fixture, bricks: &Bricks, quick: bool) -> (Report, Vec<String>) {
    let mut heard = Heard::default();
    let report = check(&volume.store, bricks, quick, &mut heard).unwrap();
    (report, heard.findings)
}

#[test]
fn a_sound_volume_is_clean_and_counted() {
    let mut volume = Fixture::new();
    let dir = volume.directory(InodeId::ROOT, "dir");
    let file = volume.file(dir, "file");
    volume.write_block(file, 0, &Bytes::from(vec![7; 100_000]));
    // Written by a client that died before it committed.
    let stray = BlockId { session: shoal_types::SessionId(77), seq: 1 };
    volume.brick.put(stray, &[Bytes::from_static(b"x")]).unwrap();
    let (report, findings) = run(&volume, false);
    assert_eq!(findings, Vec::<String>::new());
    assert!(report.clean && report.blocks_read);
    assert_eq!((report.inodes, report.names, report.extents), (3, 2, 1));
    assert_eq!((report.blocks, report.block_bytes, report.blocks_unused), (1, 100_000, 1));
}

#[test]
fn damaged_and_missing_blocks_are_found_with_the_files_they_belong_to() {
    let mut volume = Fixture::new();
    let dir = volume.directory(InodeId::ROOT, "dir");
    let (sound, torn, lost) = (volume.file(dir, "sound"), volume.file(dir, "torn"), volume.file(dir, "lost"));
    let data = Bytes::from(vec![7; 100_000]);
    volume.write_block(sound, 0, &data);
    volume.write_block(torn, 0, &data);
    let torn_block = volume.write_block(torn, 100_000, &data);
    let lost_block = volume.write_block(lost, 0, &data);
    let file = std::fs::OpenOptions::new().write(true).open(volume.block_file(torn_block)).unwrap();
    file.write_all_at(b"damage", 50_000).unwrap();
    std::fs::remove_file(volume.block_file(lost_block)).unwrap();

    let (report, findings) = run(&volume, false);
    assert!(!report.clean);
    assert_eq!((report.blocks_missing, report.blocks_damaged, report.findings), (1, 1, 0));
    let has =
        |text: &str| assert!(findings.iter().any(|finding| finding.contains(text)), "{text}: {findings:#?}");
    has(&format!("block {torn_block} is damaged"));
    has(&format!("block {lost_block} is not on this brick"));
    has(&format!("/dir/torn: bytes 100000 to 199999 are in block {torn_block}"));
    has(&format!("/dir/lost: bytes 0 to 99999 are in block {lost_block}"));
    assert_eq!(findings.len(), 4);

    // Damage inside a block takes reading it.
    let (report, _) = run(&volume, true);
    assert_eq!((report.blocks_missing, report.blocks_damaged, report.clean), (1, 0, false));
}

#[test]
fn in_a_cluster_each_node_answers_for_its_own_copies() {
    let mut volume = Fixture::new();
    let file = volume.file(InodeId::ROOT, "file");
    let data = Bytes::from(vec![7; 10_000]);
    let group = |bricks: &[u16]| BlockGroup::new(bricks.iter().map(|id| BrickId(*id))).unwrap();
    volume.write_block_to(group(&[1, 2, 3]), file, 0, &data);
    let elsewhere = volume.write_block_to(group(&[2, 3, 4]), file, 10_000, &data);
    std::fs::remove_file(volume.block_file(elsewhere)).unwrap();
    let first = |replica| Bricks::some(vec![(BrickId(1), volume.brick.clone())], replica);
    let (report, findings) = run_with(&volume, &first(3), false);
    assert_eq!((report.clean, findings), (true, vec![]));
    assert_eq!((report.blocks, report.copies, report.copies_elsewhere), (2, 1, 5));

    let (report, _) = run_with(&volume, &first(4), false);
    assert_eq!((report.clean, report.blocks_degraded, report.blocks_missing), (false, 2, 0));

    let second = Bricks::some(vec![(BrickId(2), volume.brick.clone())], 3);
    let (report, _) = run_with(&volume, &second, false);
    assert_eq!((report.clean, report.copies, report.blocks_missing), (false, 2, 1));
}

#[test]
fn brick_answers_for_its_shards_of_blocks() {
    let mut volume = Fixture::new();
    let file = volume.file(InodeId::ROOT, "file");
    let data = Bytes::from(vec![7; 200_000]);
    let group = BlockGroup::of_shards(2, 1, 1563).unwrap();
    let group = (0..3).fold(group, |group, at| group.with_shard(at, BrickId(at as u16 + 1)).unwrap());
    let id = volume.write_block_to(group, file, 0, &data);
    let second = || Bricks::some(vec![(BrickId(2), volume.brick.clone())], 2);
    let (report, _) = run_with(&volume, &second(), false);
    let all = (report.clean, report.blocks_missing, report.blocks_unused);
    assert_eq!(all, (false, 1, 1), "the shard is missing, and a whole copy is not what belongs there");

    let name = names::on_brick(id, &group, BrickId(2));
    volume.brick.delete(&[id]).unwrap();
    volume.brick.put(name, &[Bytes::from(vec![7; group.shard_bytes() as usize])]).unwrap();
    let (report, findings) = run_with(&volume, &second(), false);
    assert_eq!((report.clean, findings), (true, vec![]));
    assert_eq!((report.copies, report.copies_elsewhere, report.blocks_unused), (1, 2, 0));

    std::fs::remove_file(volume.block_file(name)).unwrap();
    let (report, findings) = run_with(&volume, &second(), false);
    assert_eq!((report.clean, report.blocks_missing), (false, 1));
    let names_the_file = |finding: &String| finding.contains(&format!("are in block {id}"));
    assert!(findings.iter().any(names_the_file), "{findings:#?}");
}
