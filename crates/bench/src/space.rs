//! The space that a real tree takes in shards and in copies: `/usr/include`, small files included.
//!
//! **Model.** Four servers on this machine with three bricks each. The tree is copied to a volume of three
//! copies, and to one of 8 + 4 shards, which survives one loss more. Counted are the bytes of files on all
//! bricks. Content of up to 64 KiB is in the metadata, which has three copies in both.

use crate::limits::{SPACE_BRICKS, SPACE_NODES, SPACE_TREE};
use crate::measure::Bench;
use crate::nodes;
use shoal_suites::machine::dir_bytes;
use shoal_suites::programs::{bash, quietly};
use std::fs;
use std::path::Path;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let (program, top) = (bench.program().to_owned(), bench.dir.join("space"));
    let _ = fs::remove_dir_all(&top);
    fs::create_dir_all(top.join("mnt"))?;
    nodes::found(&program, &top, SPACE_NODES)?;
    let outcome = measure(&program, &top);
    nodes::stop(&top, SPACE_NODES)?;
    fs::remove_dir_all(&top)?;
    bench.facts.extend(outcome?);
    Ok(())
}

fn measure(program: &Path, top: &Path) -> anyhow::Result<Vec<String>> {
    let mut facts = Vec::new();
    for (name, scheme, options) in [
        ("copies", "replica 3", "locks=local"),
        ("shards", "disperse 12 redundancy 4", "locks=local"),
        ("copies0", "replica 3", "locks=local,inline-limit=0"),
        ("shards0", "disperse 12 redundancy 4", "locks=local,inline-limit=0"),
    ] {
        let path = |brick: usize| top.join(format!("{name}-{brick}"));
        let place = |brick: usize| format!("n{}:{}", brick % SPACE_NODES + 1, path(brick).display());
        let bricks: Vec<String> = (0..SPACE_BRICKS).map(place).collect();
        nodes::create_volume(program, top, (name, scheme), &bricks)?;
        let mount = top.join("mnt");
        nodes::mount_volume(program, top, (SPACE_NODES, name), &mount, options)?;
        let copied = bash(&mount, &format!("cp -a {SPACE_TREE} . && sync -f ."))
            .and_then(|()| quietly(nodes::shoal(program, top, 1).arg("sync").arg(&mount)));
        let tree = dir_bytes(Path::new(SPACE_TREE))?;
        quietly(nodes::shoal(program, top, 1).arg("umount").arg(&mount))?;
        copied?;
        let mut on_bricks = 0;
        for brick in 0..SPACE_BRICKS {
            on_bricks += dir_bytes(&path(brick))?;
        }
        let beside = if options.ends_with("=0") { ", nothing in the metadata" } else { "" };
        let fact = format!(
            "{SPACE_TREE}, {} MiB, as {scheme}{beside}: {} MiB on all bricks, {:.2} bytes for each byte",
            tree >> 20,
            on_bricks >> 20,
            on_bricks as f64 / tree as f64
        );
        eprintln!("{fact}");
        facts.push(fact);
    }
    Ok(facts)
}
