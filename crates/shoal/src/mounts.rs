//! The kernel's mount table: which Shoal volumes are mounted where, whether they respond, which programs use
//! them.

use crate::control::{self, ControlError, Request, Statistics};
use crate::data_dir;
use crate::limits::{ANSWER_PATIENCE, BUSY_PATIENCE, BUSY_PAUSE, USERS_SHOWN_MAX};
use nix::errno::Errno;
use shoal_fuse::{FSTYPE, mountinfo};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Instant;

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// The mount point.
    pub point: PathBuf,
    /// Type, such as `ext4` or `fuse.shoal`.
    pub kind: String,
    /// What is mounted: of a Shoal, its data directory or `HOST:/VOLUME`.
    pub source: PathBuf,
    /// Device number of the file system, as `MAJOR:MINOR`.
    pub device: String,
    /// Its flags, as the kernel shows them: `rw,nodev,relatime`.
    pub flags: String,
}

/// Whether a mount responds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It responds.
    Alive,
    /// The process behind it is gone.
    Dead,
    /// The process behind it does not respond.
    Hung,
}

impl Mount {
    /// Whether it is a Shoal mount.
    pub fn is_shoal(&self) -> bool {
        self.kind == FSTYPE
    }

    /// The directory of the serving process's control socket, lock and log: the data directory, or the run
    /// directory of a cluster's mount. A bind mount has that of the mount that it was made of.
    pub fn home(&self) -> PathBuf {
        if self.source.is_absolute() {
            return self.source.clone();
        }
        let own = run_dir(&self.point);
        if data_dir::user_of(&own).is_some() {
            return own;
        }
        let all = own.parent().and_then(|dir| std::fs::read_dir(dir).ok());
        let serves = |dir: &PathBuf| {
            let device = std::fs::read_to_string(dir.join(DEVICE));
            device.is_ok_and(|device| device == self.device) && data_dir::user_of(dir).is_some()
        };
        all.into_iter().flatten().flatten().map(|entry| entry.path()).find(serves).unwrap_or(own)
    }

    /// Whether the same file system is still mounted somewhere in this process's mount namespace.
    pub fn is_mounted(&self) -> bool {
        is_detached(&self.device).is_ok_and(|is_detached| !is_detached)
    }

    /// Asks the serving process, if it can be reached; otherwise calls statfs(2), which the kernel does not
    /// answer from its caches. That call runs on another thread, since a program that waits in the kernel for
    /// an unresponsive mount cannot be ended.
    pub fn health(&self) -> Health {
        let home = self.home();
        if data_dir::user_of(&home).is_some() {
            match control::request::<Statistics>(&home, &Request::Stats) {
                Ok(statistics) if statistics.mountpoint == self.point => return Health::Alive,
                Err(ControlError::Silent(_)) => return Health::Hung,
                // It serves another file system by now, is starting or ending, or this user may not ask it.
                _ => {}
            }
        }
        let (answer, answers) = mpsc::channel();
        let point = self.point.clone();
        // On a thread of its own: the call does not return while the serving process hangs.
        std::thread::spawn(move || answer.send(nix::sys::statvfs::statvfs(&point)));
        match answers.recv_timeout(ANSWER_PATIENCE) {
            Ok(Err(Errno::ENOTCONN | Errno::ECONNABORTED | Errno::ECANCELED)) => Health::Dead,
            Ok(_) => Health::Alive,
            Err(_) => Health::Hung,
        }
    }

    /// Programs that have something open on it, as lines to print.
    pub fn users(&self) -> Vec<String> {
        self.programs(&use_of)
    }

    /// Programs that have something open on it, indented, a line each.
    pub fn users_listed(&self) -> String {
        self.users().iter().map(|user| format!("  {user}")).collect::<Vec<_>>().join("\n")
    }

    /// Programs that have a file on it open for writing, as lines to print.
    pub fn writers(&self) -> Vec<String> {
        self.programs(&written_by)
    }

    /// The programs that keep it busy, and what to do about them.
    pub fn why_busy(&self) -> String {
        let list = match self.users_listed() {
            list if list.is_empty() => "  (no process of this user's; root sees all)".to_owned(),
            list => list,
        };
        let point = self.point.display();
        format!(
            "{point} is in use:\n{list}\nIt stays mounted. End them and try again, or `shoal umount --lazy {point}`"
        )
    }

    #[allow(clippy::type_complexity)]
    fn programs(&self, what: &dyn Fn(&Path, &dyn Fn(&Path) -> bool) -> Option<String>) -> Vec<String> {
        let inside = |path: &Path| path.starts_with(&self.point);
        let mut found = Vec::new();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = process.file_name();
            let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else {
                continue;
            };
            let Some(what) = what(&process.path(), &inside) else { continue };
            let command = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            if found.len() == USERS_SHOWN_MAX {
                found.push("... and others".into());
                break;
            }
            found.push(format!("process {pid} ({}): {what}", command.trim()));
        }
        found
    }
}

/// A program that still sees a file system mounted, as a line to print. Containers and services may have
/// mount namespaces of their own, in which a mount stays after it is removed elsewhere.
pub fn holder(device: &str) -> Option<String> {
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        // The third field of each line, see proc_pid_mountinfo(5).
        let table = std::fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default();
        if table.lines().any(|line| line.split(' ').nth(2) == Some(device)) {
            let command = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("process {} ({})", process.file_name().to_string_lossy(), command.trim()));
        }
    }
    None
}

/// What a process uses among the paths `inside`. Only links in /proc are read, so nothing can hang.
fn use_of(process: &Path, inside: &dyn Fn(&Path) -> bool) -> Option<String> {
    for (link, what) in [("cwd", "works in"), ("root", "has as its root"), ("exe", "runs")] {
        if let Ok(target) = std::fs::read_link(process.join(link))
            && inside(&target)
        {
            return Some(format!("{what} {}", target.display()));
        }
    }
    for fd in std::fs::read_dir(process.join("fd")).ok()?.flatten() {
        if let Ok(target) = std::fs::read_link(fd.path())
            && inside(&target)
        {
            return Some(format!("has {} open", target.display()));
        }
    }
    let maps = std::fs::read(process.join("maps")).ok()?;
    maps.split(|&b| b == b'\n').find_map(|line| {
        let path =
            Path::new(std::ffi::OsStr::from_bytes(line.splitn(6, |&b| b == b' ').nth(5)?.trim_ascii()));
        inside(path).then(|| format!("has {} in its memory", path.display()))
    })
}

/// A file among the paths `inside` that a process may write to.
fn written_by(process: &Path, inside: &dyn Fn(&Path) -> bool) -> Option<String> {
    for fd in std::fs::read_dir(process.join("fd")).ok()?.flatten() {
        let Ok(target) = std::fs::read_link(fd.path()) else { continue };
        if !inside(&target) {
            continue;
        }
        // `flags:` is octal, see proc_pid_fdinfo(5).
        let info = std::fs::read_to_string(process.join("fdinfo").join(fd.file_name())).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
        if flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0 {
            return Some(format!("has {} open for writing", target.display()));
        }
    }
    None
}

/// The file in which a mount's process records the device number that it serves.
pub const DEVICE: &str = "device";

/// Records the device number of the file system that a process serves, in its run directory.
pub fn note_device(run: &Path, device: &str) {
    if let Err(error) = std::fs::write(run.join(DEVICE), device) {
        tracing::warn!(%error, "bind mounts of this mount will not be recognised as such");
    }
}

/// The run directory of a cluster's mount, with its control socket, lock and log: it has no data directory.
pub fn run_dir(point: &Path) -> PathBuf {
    let user = nix::unistd::geteuid();
    let below = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => PathBuf::from("/run"),
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(format!("/tmp/user-{user}")),
    };
    below.join("shoal").join(escape(point))
}

/// A path as one file name: `/mnt/web-1` becomes `mnt-web%2d1`.
fn escape(path: &Path) -> String {
    let mut name = String::new();
    for (n, part) in path.iter().skip(1).enumerate() {
        if n > 0 {
            name.push('-');
        }
        for &byte in part.as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' => name.push(char::from(byte)),
                other => name.push_str(&format!("%{other:02x}")),
            }
        }
    }
    name
}

/// Retries to unmount for a moment while the mount is busy.
pub fn retry_while_busy<T, E>(
    is_busy: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && begun.elapsed() < BUSY_PATIENCE => {
                std::thread::sleep(BUSY_PAUSE)
            }
            outcome => return outcome,
        }
    }
}

/// All mounts in this process's mount namespace; later ones cover earlier ones.
fn table() -> io::Result<Vec<Mount>> {
    let entries = mountinfo::table()?.into_iter();
    Ok(entries
        .map(|entry| Mount {
            point: entry.mountpoint,
            kind: entry.fstype,
            source: entry.source,
            device: entry.device,
            flags: entry.flags,
        })
        .collect())
}

/// Whether no mount in this process's mount namespace has this device number: programs may still use it.
pub fn is_detached(device: &str) -> io::Result<bool> {
    Ok(!table()?.iter().any(|mount| mount.device == device))
}

/// All Shoal mounts.
pub fn shoals() -> io::Result<Vec<Mount>> {
    Ok(table()?.into_iter().filter(Mount::is_shoal).collect())
}

/// The topmost mount exactly at a path.
pub fn at(path: &Path) -> io::Result<Option<Mount>> {
    let path = resolve(path)?;
    Ok(table()?.into_iter().rev().find(|mount| mount.point == path))
}

/// The mount that a path is on.
pub fn containing(path: &Path) -> io::Result<Option<Mount>> {
    let path = resolve(path)?;
    let mounts = table()?.into_iter().filter(|mount| path.starts_with(&mount.point));
    // Of several at the same place the last one counts, which is what `max_by_key` answers.
    Ok(mounts.max_by_key(|mount| mount.point.as_os_str().len()))
}

/// Whether a directory may be created at a path: no mount is there, so nothing can hang.
pub fn is_free(path: &Path) -> io::Result<bool> {
    let absolute = std::path::absolute(path)?;
    Ok(!table()?.iter().any(|mount| mount.point == absolute))
}

/// The path without symbolic links, as in the mount table. The last component is not followed into a mount,
/// which may be dead or hang.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    if let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) {
        let point = parent.canonicalize()?.join(name);
        if table()?.iter().any(|mount| mount.point == point) {
            return Ok(point);
        }
    }
    path.canonicalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_a_path_is_the_innermost_one() {
        let proc = containing(Path::new("/proc/self")).unwrap().unwrap();
        assert_eq!((proc.point.as_path(), proc.kind.as_str()), (Path::new("/proc"), "proc"));
        assert_eq!(at(Path::new("/proc")).unwrap().unwrap().kind, "proc");
        assert_eq!(at(Path::new("/proc/self/")).unwrap(), None);
        assert_eq!(proc.health(), Health::Alive);
    }

    #[test]
    fn mount_points_have_names_of_their_own() {
        for (path, name) in [
            ("/mnt/web", "mnt-web"),
            ("/mnt-web", "mnt%2dweb"),
            ("/mnt/web-1/ä", "mnt-web%2d1-%c3%a4"),
            ("/", ""),
        ] {
            assert_eq!(escape(Path::new(path)), name);
        }
        let mount = |source: &str| Mount {
            point: "/mnt/web".into(),
            kind: FSTYPE.into(),
            source: source.into(),
            device: "0:1".into(),
            flags: "rw".into(),
        };
        assert_eq!(mount("/srv/shoal").home(), Path::new("/srv/shoal"));
        assert!(mount("node1,node2:/web").home().ends_with("shoal/mnt-web"));
    }

    #[test]
    fn holder_is_found_for_a_mounted_device_and_for_no_other() {
        let proc = at(Path::new("/proc")).unwrap().unwrap();
        assert!(holder(&proc.device).unwrap().starts_with("process "));
        assert_eq!(holder("4095:1"), None);
    }

    #[test]
    fn programs_that_use_a_mount_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let (device, flags) = ("0:1".to_owned(), "rw".to_owned());
        let mount = Mount { point: point.clone(), kind: FSTYPE.into(), source: "/".into(), device, flags };
        assert_eq!(mount.users(), Vec::<String>::new());
        std::fs::write(point.join("read"), "").unwrap();
        let read = std::fs::File::open(point.join("read")).unwrap();
        assert_eq!((mount.users().len(), mount.writers().len()), (1, 0));
        drop(read);
        let _file = std::fs::File::create(point.join("open")).unwrap();
        assert!(mount.writers()[0].ends_with("open open for writing"), "{:?}", mount.writers());
        let users = mount.users();
        assert_eq!(users.len(), 1, "{users:?}");
        assert!(
            users[0].contains(&std::process::id().to_string()) && users[0].ends_with("open open"),
            "{users:?}"
        );
    }
}
