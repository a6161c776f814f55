//! lseek(2) for data and holes. The kernel passes it on without writing dirty pages back (`fuse_lseek`). So
//! what a program has stored in a hole through a mapping would not be found, and cp(1) would leave it out.

use crate::context::Write;
use crate::limits::SEEK_ROUNDS_MAX;
use crate::mount_state::Attempt;
use shoal_client::{Failure, Reply, Seek, Wait};
use shoal_types::Errno;

/// Looks for data or a hole from an offset on. A hole counts only once the kernel has no dirty pages of it.
pub(crate) fn seek(attempt: Attempt<'_>, offset: u64, what: Seek) -> Reply<u64> {
    let ino = attempt.context.ino;
    let look = || attempt.client().lseek(attempt.wait, ino, offset, what);
    let mut sought = look()?;
    for _ in 0..SEEK_ROUNDS_MAX {
        if sought.hole.is_empty() {
            break;
        }
        if attempt.wait == Wait::Never {
            return Err(Failure::WouldBlock);
        }
        let (offset, len) = (sought.hole.start, sought.hole.end - sought.hole.start);
        attempt.shared.invalidator.write_back(Write { ino, offset, len });
        let again = look()?;
        if again == sought {
            break;
        }
        sought = again;
    }
    sought.found.ok_or(Errno::ENXIO.into())
}
