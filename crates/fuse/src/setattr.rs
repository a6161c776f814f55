//! Translates SETATTR requests.

use crate::encode::timestamp;
use shoal_channel::SetTime;
use shoal_namespace::SetAttr;
use shoal_types::Timestamp;

/// Resolves "now", and decides about set-id bits and capabilities, which are the server's to clear with
/// `FUSE_HANDLE_KILLPRIV_V2`:
/// - chown clears them always;
/// - truncate clears them where the kernel says so: the caller lacks `CAP_FSETID`;
/// - a request without fields is what the kernel sends when there is nothing else to change: before the first
///   write by a caller that may not keep them, and on chown without an owner or group.
pub(crate) fn resolve(set: shoal_channel::SetAttr, now: Timestamp) -> SetAttr {
    let timestamp = |time| timestamp(time, now);
    let shoal_channel::SetAttr { mode, uid, gid, size, atime, mtime, kill_suidgid } = set;
    let chown = uid.is_some() || gid.is_some();
    // A time that is set to the present is equal to ctime: an append-only inode takes no other one.
    let touches = [atime, mtime].contains(&Some(SetTime::Now));
    let nothing = !chown && mode.is_none() && size.is_none() && atime.is_none() && mtime.is_none();
    SetAttr {
        perm: mode.map(|mode| mode & shoal_types::mode::ALL),
        uid,
        gid,
        size,
        atime: atime.map(timestamp),
        mtime: mtime.map(timestamp),
        ctime: touches.then_some(now),
        clear_setid: chown || kill_suidgid || nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_channel::SetAttr as Wanted;

    const NOW: Timestamp = Timestamp { secs: 7, nanos: 8 };

    #[test]
    fn set_id_bits_go_with_chown_and_where_the_kernel_says_so() {
        let chown = Wanted { gid: Some(5), ..Wanted::default() };
        assert!(resolve(chown, NOW).clear_setid);
        let truncate = Wanted { size: Some(0), ..Wanted::default() };
        assert!(!resolve(truncate, NOW).clear_setid);
        assert!(resolve(Wanted { kill_suidgid: true, ..truncate }, NOW).clear_setid);
        let chmod = Wanted { mode: Some(0o104755), ..Wanted::default() };
        assert!(!resolve(chmod, NOW).clear_setid);
        assert_eq!(resolve(chmod, NOW).perm, Some(0o4755));
        assert!(resolve(Wanted::default(), NOW).clear_setid);
    }

    #[test]
    fn time_set_to_the_present_is_that_of_the_change() {
        let touch = Wanted { mtime: Some(SetTime::Now), ..Wanted::default() };
        let set = resolve(touch, NOW);
        assert_eq!((set.mtime, set.ctime), (Some(NOW), Some(NOW)));
        let other = SetTime::At(shoal_channel::Time { secs: 7, nanos: 8 });
        assert_eq!(resolve(Wanted { mtime: Some(other), ..Wanted::default() }, NOW).ctime, None);
    }
}
