//! `untar`: a tree like the kernel's is unpacked, archived and removed, on one mount and on several at once.

use super::create;
use crate::limits::FILES_PER_DIR;
use crate::plan::{Plan, Suite};
use crate::programs::bash;
use crate::turn::Turn;
use anyhow::Context;
use rand::{Rng, RngCore, SeedableRng};
use std::path::{Path, PathBuf};

/// Files of a directory: the kernel has 13 on average.
const PER_DIR: usize = 13;

/// Makes the archive that is unpacked: the same files each time.
pub fn archive(dir: &Path, plan: &Plan) -> anyhow::Result<PathBuf> {
    let mean = plan.file_bytes_of(Suite::Untar);
    let tree = dir.join("tree");
    create(&tree, plan.files_of(Suite::Untar), PER_DIR.min(FILES_PER_DIR), |number| {
        let mut random = rand::rngs::StdRng::seed_from_u64(number as u64);
        // Most files are short and a few are long: the product of two even distributions.
        let part = random.random::<f64>() * random.random::<f64>();
        let mut content = vec![0; (4.0 * part * mean as f64) as usize];
        random.fill_bytes(&mut content);
        content
    })?;
    bash(dir, "tar cf tree.tar -C tree . && rm -r tree")?;
    Ok(dir.join("tree.tar"))
}

pub(super) fn run(turn: &mut Turn) -> anyhow::Result<()> {
    let archive = turn.archive.context("the archive was not made")?;
    let files = turn.files();
    for mounts in 1..=turn.tops.len() {
        let on = if mounts == 1 { String::new() } else { format!(" on {mounts} mounts at once") };
        let unpack = format!("mkdir tree && tar xf '{}' -C tree", archive.display());
        turn.time(&format!("unpack, sync{on}"), files * mounts, |turn| {
            turn.parallel(mounts, |mount| bash(turn.top(mount), &unpack))?;
            turn.sync()
        })?;
        let tar = |turn: &Turn| {
            turn.parallel(mounts, |mount| bash(turn.top(mount), "tar cf - tree | cat >/dev/null"))
        };
        if turn.make_cold()? {
            turn.time(&format!("tar, data read, cold{on}"), files * mounts, tar)?;
        } else {
            tar(turn)?;
        }
        turn.time(&format!("tar, data read, warm{on}"), files * mounts, tar)?;
        turn.time(&format!("rm -rf, sync{on}"), files * mounts, |turn| {
            turn.parallel(mounts, |mount| bash(turn.top(mount), "rm -rf tree"))?;
            turn.sync()
        })?;
    }
    Ok(())
}
