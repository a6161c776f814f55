//! Calls about inode flags.

use crate::client::Client;
use crate::values::{Reply, Wait};
use shoal_types::{Errno, InodeFlags, InodeId};
use shoal_wire::OPS_VERSION_FLAGS;

impl Client {
    /// `FS_IOC_GETFLAGS`: the inode flags.
    pub fn inode_flags(&self, wait: Wait, ino: InodeId) -> Reply<InodeFlags> {
        Ok(self.getattr(wait, ino)?.flags)
    }

    /// `FS_IOC_SETFLAGS`, by a user. The immutable and append-only flags need `CAP_LINUX_IMMUTABLE`
    /// (`EPERM`): of the caller only the user is known, so it is root alone. `EOPNOTSUPP` while there may be
    /// servers and mounts that know no flags.
    pub fn set_inode_flags(&self, wait: Wait, ino: InodeId, flags: InodeFlags, uid: u32) -> Reply<()> {
        if self.mount.ops_version() < OPS_VERSION_FLAGS {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let now = self.now();
        self.current().call(wait, |core| core.set_flags(ino, flags, uid == 0, now))
    }

    /// open(2) for writing, and perhaps for appending alone: `EPERM` if the inode flags forbid it.
    pub fn may_open_for_writing(&self, wait: Wait, ino: InodeId, appends: bool) -> Reply<()> {
        self.current().call(wait, |core| core.may_open_for_writing(ino, appends))
    }
}
