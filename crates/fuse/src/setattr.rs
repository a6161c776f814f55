//! What a SETATTR request asks for.

use crate::encode::timestamp;
use fuser::TimeOrNow;
use shoal_namespace::SetAttr;
use shoal_types::Timestamp;

/// The fields of the request as the kernel sent them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<TimeOrNow>,
    pub mtime: Option<TimeOrNow>,
}

impl Wanted {
    /// Resolves "now", and decides about set-id bits and capabilities, which with `FUSE_HANDLE_KILLPRIV_V2`
    /// are the server's to clear. The kernel says so in a flag that `fuser` 0.18 does not pass on, but it
    /// follows from the other fields:
    /// - chown clears them always;
    /// - truncate clears them unless the caller has `CAP_FSETID`, which is taken to mean root;
    /// - a request without fields is what the kernel sends when there is nothing else to change: before the
    ///   first write by a caller that may not keep them, and on chown without an owner or group.
    pub(crate) fn resolve(self, caller_uid: u32, now: Timestamp) -> SetAttr {
        let timestamp = |time| timestamp(time, now);
        let Wanted { mode, uid, gid, size, atime, mtime } = self;
        let chown = uid.is_some() || gid.is_some();
        let truncate = size.is_some() && caller_uid != 0;
        let nothing = !chown && mode.is_none() && size.is_none() && atime.is_none() && mtime.is_none();
        SetAttr {
            perm: mode.map(|mode| mode & shoal_types::mode::ALL),
            uid,
            gid,
            size,
            atime: atime.map(timestamp),
            mtime: mtime.map(timestamp),
            ctime: None,
            clear_setid: chown || truncate || nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { secs: 7, nanos: 8 };

    #[test]
    fn set_id_bits_go_with_chown_and_with_truncation_by_others_than_root() {
        let chown = Wanted { gid: Some(5), ..Wanted::default() };
        assert!(chown.resolve(0, NOW).clear_setid);
        let truncate = Wanted { size: Some(0), ..Wanted::default() };
        assert!(truncate.resolve(1000, NOW).clear_setid);
        assert!(!truncate.resolve(0, NOW).clear_setid);
        let chmod = Wanted { mode: Some(0o104755), ..Wanted::default() };
        assert!(!chmod.resolve(1000, NOW).clear_setid);
        assert_eq!(chmod.resolve(1000, NOW).perm, Some(0o4755));
        assert!(Wanted::default().resolve(1000, NOW).clear_setid);
    }
}
