//! The system's list of mounts, `/proc/self/mountinfo`: shows what is mounted at a path without touching the
//! path, which may hang.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountEntry {
    /// Device number of the file system, as `MAJOR:MINOR`.
    pub device: String,
    /// The mount point.
    pub mountpoint: PathBuf,
    /// Type of the file system, such as `ext4` or [`FSTYPE`](crate::FSTYPE).
    pub fstype: String,
    /// Its flags, such as `rw,nodev,relatime`.
    pub flags: String,
    /// The source, see [`MountOptions::source`](crate::MountOptions::source).
    pub source: PathBuf,
}

/// All mounts that this process sees; later ones cover earlier ones.
pub fn table() -> std::io::Result<Vec<MountEntry>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|&b| b == b'\n').filter_map(parse).collect())
}

/// The uppermost mount at a mount point.
pub fn at(mountpoint: &Path) -> std::io::Result<Option<MountEntry>> {
    Ok(table()?.into_iter().rfind(|entry| entry.mountpoint == mountpoint))
}

/// See proc_pid_mountinfo(5): `ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS [TAGS...] - FSTYPE SOURCE OPTIONS`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&b| b == b' ');
    let device = text(fields.nth(2)?)?;
    let mountpoint = PathBuf::from(unescape(fields.nth(1)?));
    let flags = text(fields.next()?)?;
    let mut fields = fields.skip_while(|&field| field != b"-").skip(1);
    let fstype = text(fields.next()?)?;
    let source = PathBuf::from(unescape(fields.next()?));
    Some(MountEntry { device, mountpoint, flags, fstype, source })
}

fn text(field: &[u8]) -> Option<String> {
    String::from_utf8(field.to_vec()).ok()
}

/// Blanks, tabs, newlines and backslashes are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = match (byte, tail.get(..3)) {
            (b'\\', Some(digits)) => octal(digits),
            _ => None,
        };
        out.push(code.unwrap_or(byte));
        rest = if code.is_some() { tail.get(3..).unwrap_or_default() } else { tail };
    }
    OsString::from_vec(out)
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_mount_point_with_blanks_is_found() {
        let line =
            b"36 35 0:52 / /mnt/a\\040b\\134c rw,noatime shared:1 master:2 - fuse.shoal /srv/a\\040b rw,x=-";
        let entry = parse(line).expect("well formed");
        assert_eq!(entry.device, "0:52");
        assert_eq!(entry.mountpoint.as_os_str().as_bytes(), b"/mnt/a b\\c");
        assert_eq!((entry.fstype.as_str(), entry.flags.as_str()), ("fuse.shoal", "rw,noatime"));
    }

    #[test]
    fn malformed_lines_are_skipped() {
        for line in ["", "36 35 0:52", "36 35 0:52 / /mnt rw shared:1", "a b c d e f -"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(Path::new("/")).expect("readable").is_some());
        assert_eq!(at(Path::new("/no/such/place")).expect("readable"), None);
    }
}
