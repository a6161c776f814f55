//! POSIX access control lists as far as a file system has to understand them: what a new file inherits, and
//! how a list and the mode bits stay consistent.
//!
//! The kernel checks access and validates lists. The format is that of the `system.posix_acl_*` attributes
//! (`include/uapi/linux/posix_acl_xattr.h`); the rules are those of `fs/posix_acl.c` and of POSIX 1003.1e
//! draft 17.

use bytes::Bytes;
use shoal_types::{Errno, FileKind, XattrName};

/// Attribute of the list that governs access to a file.
pub(crate) const ACCESS: &str = "system.posix_acl_access";
/// Attribute of the list that new files in a directory inherit.
pub(crate) const DEFAULT: &str = "system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

fn parse(value: &[u8]) -> Result<Vec<Entry>, Errno> {
    let (version, entries) = value.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(entries
        .chunks_exact(8)
        .map(|e| Entry {
            tag: u16::from_le_bytes([e[0], e[1]]),
            perm: u16::from_le_bytes([e[2], e[3]]) & 7,
            id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
        })
        .collect())
}

fn format(entries: &[Entry]) -> Bytes {
    let mut out = VERSION.to_le_bytes().to_vec();
    for entry in entries {
        out.extend(entry.tag.to_le_bytes());
        out.extend(entry.perm.to_le_bytes());
        out.extend(entry.id.to_le_bytes());
    }
    out.into()
}

fn find(entries: &mut [Entry], tag: u16) -> Option<&mut Entry> {
    entries.iter_mut().find(|entry| entry.tag == tag)
}

/// Whether the list says no more than mode bits can.
fn is_minimal(entries: &[Entry]) -> bool {
    entries.iter().all(|entry| matches!(entry.tag, USER_OBJ | GROUP_OBJ | OTHER))
}

/// The entry that the group bits of the mode stand for.
fn group_class(entries: &mut [Entry]) -> Option<&mut Entry> {
    let tag = if entries.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OBJ };
    find(entries, tag)
}

/// The permission bits and the lists of a new file in a directory with this default list.
pub(crate) fn inherit(
    default: &Bytes,
    perm: u32,
    kind: FileKind,
) -> Result<(u32, Vec<(XattrName, Bytes)>), Errno> {
    let mut entries = parse(default)?;
    // Only what both the list and the creator allow.
    let mut bits = 0;
    for (shift, entry) in [
        (6, find(&mut entries, USER_OBJ).copied()),
        (3, group_class(&mut entries).copied()),
        (0, find(&mut entries, OTHER).copied()),
    ] {
        let entry = entry.ok_or(Errno::EIO)?;
        bits |= (u32::from(entry.perm) & (perm >> shift)) << shift;
    }
    set_bits(&mut entries, bits);
    let mut lists = Vec::new();
    if !is_minimal(&entries) {
        lists.push((attribute(ACCESS), format(&entries)));
    }
    if kind == FileKind::Directory {
        lists.push((attribute(DEFAULT), default.clone()));
    }
    Ok(((perm & !0o777) | (bits & 0o777), lists))
}

fn set_bits(entries: &mut [Entry], perm: u32) {
    let class = |shift: u32| ((perm >> shift) & 7) as u16;
    if let Some(entry) = find(entries, USER_OBJ) {
        entry.perm = class(6);
    }
    if let Some(entry) = group_class(entries) {
        entry.perm = class(3);
    }
    if let Some(entry) = find(entries, OTHER) {
        entry.perm = class(0);
    }
}

/// The list of a file whose mode was changed to `perm`.
pub(crate) fn after_chmod(access: &Bytes, perm: u32) -> Result<Bytes, Errno> {
    let mut entries = parse(access)?;
    set_bits(&mut entries, perm);
    Ok(format(&entries))
}

/// Permission bits (0777) that an access list implies, and whether it says more than they do.
pub(crate) fn implied(access: &[u8]) -> Result<(u32, bool), Errno> {
    let mut entries = parse(access)?;
    let user = find(&mut entries, USER_OBJ).ok_or(Errno::EINVAL)?.perm;
    let group = group_class(&mut entries).ok_or(Errno::EINVAL)?.perm;
    let other = find(&mut entries, OTHER).ok_or(Errno::EINVAL)?.perm;
    let bits = u32::from(user) << 6 | u32::from(group) << 3 | u32::from(other);
    Ok((bits, !is_minimal(&entries)))
}

/// Name of one of the two attributes.
pub(crate) fn attribute(name: &'static str) -> XattrName {
    XattrName::try_from(name).expect("a constant of this module is a valid name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Bytes {
        format(&entries.iter().map(|&(tag, perm, id)| Entry { tag, perm, id }).collect::<Vec<_>>())
    }

    #[test]
    fn a_new_file_gets_what_list_and_creator_both_allow() {
        let default = list(&[(1, 7, 0), (2, 6, 1000), (4, 5, 0), (16, 7, 0), (32, 5, 0)]);
        let (perm, lists) = inherit(&default, 0o660, FileKind::Regular).unwrap();
        assert_eq!(perm, 0o660);
        let expected = list(&[(1, 6, 0), (2, 6, 1000), (4, 5, 0), (16, 6, 0), (32, 0, 0)]);
        assert_eq!(lists, [(attribute(ACCESS), expected)]);
    }

    #[test]
    fn a_new_directory_inherits_the_default_list_too() {
        let default = list(&[(1, 7, 0), (4, 5, 0), (32, 0, 0)]);
        let (perm, lists) = inherit(&default, 0o2777, FileKind::Directory).unwrap();
        assert_eq!(perm, 0o2750);
        assert_eq!(lists, [(attribute(DEFAULT), default)]);
    }

    #[test]
    fn a_mode_change_reaches_the_mask_and_not_the_owning_group() {
        let access = list(&[(1, 7, 0), (2, 6, 1000), (4, 5, 0), (16, 7, 0), (32, 5, 0)]);
        let after = after_chmod(&access, 0o640).unwrap();
        assert_eq!(after, list(&[(1, 6, 0), (2, 6, 1000), (4, 5, 0), (16, 4, 0), (32, 0, 0)]));
        assert_eq!(implied(&after), Ok((0o640, true)));
    }

    #[test]
    fn damaged_lists_are_refused() {
        assert_eq!(implied(b"").unwrap_err(), Errno::EINVAL);
        assert_eq!(implied(&[1, 0, 0, 0]).unwrap_err(), Errno::EOPNOTSUPP);
        assert_eq!(implied(&[2, 0, 0, 0, 1]).unwrap_err(), Errno::EOPNOTSUPP);
        assert_eq!(implied(&[2, 0, 0, 0]).unwrap_err(), Errno::EINVAL);
    }
}
