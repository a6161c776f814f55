use super::*;
use crate::fixture::Fixture;
use bytes::Bytes;
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
    let mut heard = Heard::default();
    let report = check(&volume.store, &volume.brick, quick, &mut heard).unwrap();
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
