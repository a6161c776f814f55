//! Attributes, extended attributes and targets of symbolic links.

use super::{Core, Outcome};
use crate::acl;
use crate::limits::OP_ROOM_BYTES;
use bytes::Bytes;
use shoal_namespace::{Fault, Op, SetAttr, XattrSet};
use shoal_types::{Errno, FileKind, Inode, InodeFlags, InodeId, Timestamp, XattrName};

impl Core {
    /// Attributes of an inode.
    pub(crate) fn getattr(&mut self, ino: InodeId) -> Outcome<Inode> {
        self.alive()?;
        Ok(self.cache.need(ino)?.inode.clone())
    }

    /// Target of a symbolic link.
    pub(crate) fn readlink(&mut self, ino: InodeId) -> Outcome<Bytes> {
        self.alive()?;
        let inode = &self.cache.need(ino)?.inode;
        if inode.kind == FileKind::Symlink { Ok(inode.target.clone()) } else { Err(Errno::EINVAL.into()) }
    }

    /// Changes attributes. A new mode also changes the access ACL, if there is one.
    pub(crate) fn setattr(&mut self, ino: InodeId, mut set: SetAttr, now: Timestamp) -> Outcome<Inode> {
        self.admit(OP_ROOM_BYTES)?;
        if set.size.is_some() {
            self.report_to_write(ino)?;
        }
        self.may_change(ino)?;
        set.ctime = set.ctime.or(Some(now));
        if set.size.is_some() && set.mtime.is_none() {
            set.mtime = set.ctime;
        }
        let listed = match set.perm {
            Some(perm) => match self.cache.xattrs(ino)?.get(acl::ACCESS.as_bytes()) {
                Some(list) => Some(acl::after_chmod(list, perm)?),
                None => None,
            },
            None => None,
        };
        self.execute(Op::SetAttr { ino, set }, &[ino], &[], OP_ROOM_BYTES)?;
        if let Some(value) = listed {
            let name = acl::attribute(acl::ACCESS);
            let op = Op::SetXattr { ino, name, value, how: XattrSet::Any, time: now };
            self.execute(op, &[ino], &[], 0)?;
        }
        self.getattr(ino)
    }

    /// Sets the inode flags. `privileged`: the caller may change the immutable and append-only flags.
    ///
    /// It is alone in its batch: no operation is merged across it, and programs that do not know it read all
    /// other batches.
    pub(crate) fn set_flags(
        &mut self,
        ino: InodeId,
        flags: InodeFlags,
        privileged: bool,
        now: Timestamp,
    ) -> Outcome<()> {
        self.admit(OP_ROOM_BYTES)?;
        self.may_change(ino)?;
        let before = self.cache.need(ino)?.inode.flags.only(InodeFlags::ALL);
        if flags == before {
            return Ok(());
        }
        if !privileged && flags.difference(before).intersects(InodeFlags::PRIVILEGED) {
            return Err(Errno::EPERM.into());
        }
        self.seal();
        self.execute(Op::SetFlags { ino, flags, time: now }, &[ino], &[], OP_ROOM_BYTES)?;
        self.seal();
        Ok(())
    }

    /// Value of an extended attribute.
    pub(crate) fn getxattr(&mut self, ino: InodeId, name: &[u8]) -> Outcome<Bytes> {
        self.alive()?;
        self.cache.xattrs(ino)?.get(name).cloned().ok_or(Fault::Errno(Errno::ENODATA))
    }

    /// Names of all extended attributes.
    pub(crate) fn listxattr(&mut self, ino: InodeId) -> Outcome<Vec<XattrName>> {
        self.alive()?;
        Ok(self.cache.xattrs(ino)?.keys().cloned().collect())
    }

    /// Sets an extended attribute. An access ACL that is equivalent to mode bits is stored as mode bits.
    pub(crate) fn setxattr(
        &mut self,
        ino: InodeId,
        name: &XattrName,
        value: &Bytes,
        how: XattrSet,
        now: Timestamp,
    ) -> Outcome<()> {
        let room = value.len() as u64 + OP_ROOM_BYTES;
        self.admit(room)?;
        self.may_change(ino)?;
        if name.as_bytes() != acl::ACCESS.as_bytes() {
            let op = Op::SetXattr { ino, name: name.clone(), value: value.clone(), how, time: now };
            return self.execute(op, &[ino], &[], room);
        }
        let (bits, more) = acl::implied(value)?;
        let has = self.cache.xattrs(ino)?.contains_key(name);
        let perm = (self.cache.need(ino)?.inode.perm & !0o777) | bits;
        if more {
            let op = Op::SetXattr { ino, name: name.clone(), value: value.clone(), how, time: now };
            self.execute(op, &[ino], &[], room)?;
        } else if has {
            self.execute(Op::RemoveXattr { ino, name: name.clone(), time: now }, &[ino], &[], 0)?;
        }
        let set = SetAttr { perm: Some(perm), ctime: Some(now), ..SetAttr::default() };
        self.execute(Op::SetAttr { ino, set }, &[ino], &[], 0)
    }

    /// Removes an extended attribute.
    pub(crate) fn removexattr(&mut self, ino: InodeId, name: &XattrName, now: Timestamp) -> Outcome<()> {
        self.admit(0)?;
        self.execute(Op::RemoveXattr { ino, name: name.clone(), time: now }, &[ino], &[], 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{core, make_file};
    use super::*;
    use shoal_types::Name;

    #[test]
    fn flags_are_alone_in_their_batch() {
        let (mut core, name) = (core(), Name::try_from("file").expect("a name"));
        let ino = make_file(&mut core, InodeId::ROOT, &name);
        let now = Timestamp::default();
        core.set_flags(ino, InodeFlags::NODUMP, false, now).expect("nothing is needed");
        core.set_flags(ino, InodeFlags::NODUMP, false, now).expect("nothing changes");
        let denied = core.set_flags(ino, InodeFlags::IMMUTABLE, false, now);
        assert_eq!(denied, Err(Fault::Errno(Errno::EPERM)));
        core.append(ino, &Bytes::from_static(b"more"), false, now).expect("nothing is needed");
        core.seal();
        let mut batches = std::iter::from_fn(|| core.journal.take_sealed()).map(|sealed| sealed.ops);
        assert!(matches!(batches.next().as_deref(), Some([Op::Create { .. }])));
        assert!(matches!(batches.next().as_deref(), Some([Op::SetFlags { .. }])));
        assert!(matches!(batches.next().as_deref(), Some([Op::Write { .. }])));
        assert_eq!(batches.next(), None);
    }
}
