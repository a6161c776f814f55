//! A kernel tree: unpacked, read cold and warm, removed.

use crate::input::kernel_tar;
use crate::limits::goals;
use crate::measure::Bench;
use shoal_suites::programs::bash;

/// Runs the benchmark.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let archive = kernel_tar()?;
    let sides = bench.sides()?;
    let (unpack, tar_cold) = match bench.nodes {
        0 => (goals::UNPACK, goals::TAR_COLD),
        _ => (goals::UNPACK_CLUSTER, goals::TAR_COLD_CLUSTER),
    };
    bench.alternate(&sides, |bench, side, _| {
        let top = side.path();
        // The input comes from memory, not from the disk that is measured.
        bash(&top, &format!("cat {} >/dev/null", archive.display()))?;
        let before = side.counted()?;
        bench.time(side, "unpack 17,477 kernel files, sync", Some(unpack), || {
            bash(&top, &format!("mkdir linux && tar xf {} -C linux", archive.display()))?;
            side.sync()
        })?;
        if let (Some(before), Some(after)) = (before, side.counted()?) {
            let requests = after.requests - before.requests;
            bench.facts.push(format!(
                "unpack: {requests} requests for 17,477 files, {:.3} per file (goal: under 0.05); {:.1} MiB sent, {:.0} bytes per file",
                requests as f64 / 17_477.0,
                (after.sent_bytes - before.sent_bytes) as f64 / 1048576.0,
                (after.sent_bytes - before.sent_bytes) as f64 / 17_477.0
            ));
        }
        side.make_cold()?;
        bench.time(side, "tar them out, cold", Some(tar_cold), || {
            bash(&top, "tar cf - linux | cat >/dev/null")
        })?;
        bench.time(side, "tar them out, warm", Some(goals::TAR_WARM), || {
            bash(&top, "tar cf - linux | cat >/dev/null")
        })?;
        bench.time(side, "rm -rf, sync", Some(goals::REMOVE), || {
            bash(&top, "rm -rf linux")?;
            side.sync()
        })
    })
}
