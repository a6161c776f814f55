//! A kernel tree: unpacked, read cold and warm, removed.

use crate::input::kernel_tar;
use crate::limits::goals;
use crate::measure::Bench;
use crate::side::bash;

/// Measures it.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let archive = kernel_tar()?;
    let sides = bench.sides()?;
    bench.alternate(&sides, |bench, side, _| {
        let top = side.path();
        // The input comes from memory, not from the disk that is measured.
        bash(&top, &format!("cat {} >/dev/null", archive.display()))?;
        bench.time(side, "unpack 17,477 kernel files, sync", Some(goals::UNPACK), || {
            bash(&top, &format!("mkdir linux && tar xf {} -C linux", archive.display()))?;
            side.sync()
        })?;
        side.make_cold()?;
        bench.time(side, "tar them out, cold", Some(goals::TAR_COLD), || {
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
