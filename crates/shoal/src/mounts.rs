//! The kernel's table of mounts: which Shoal is mounted where, whether it still lives, who uses it.

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
    /// Where.
    pub point: PathBuf,
    /// Type, such as `ext4` or `fuse.shoal`.
    pub kind: String,
    /// What is mounted: of a Shoal, its data directory or `HOST:/VOLUME`.
    pub source: PathBuf,
    /// Device number of the file system, as `MAJOR:MINOR`.
    pub device: String,
}

/// How a mount answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It does.
    Alive,
    /// The process behind it is gone.
    Dead,
    /// The process behind it does not answer.
    Hung,
}

impl Mount {
    /// Whether it is ours.
    pub fn is_shoal(&self) -> bool {
        self.kind == FSTYPE
    }

    /// The directory where the process behind it can be talked to, and has its lock and log: the data directory, or that of a
    /// cluster's mount.
    pub fn home(&self) -> PathBuf {
        if self.source.is_absolute() { self.source.clone() } else { run_dir(&self.point) }
    }

    /// Asks the process behind it, if there is one that can be asked; else the mount itself something that the kernel does not answer
    /// from its caches. A program that waits in the kernel for a mount that does not answer cannot be ended.
    pub fn health(&self) -> Health {
        let home = self.home();
        if data_dir::user_of(&home).is_some() {
            match control::ask::<Statistics>(&home, &Request::Stats) {
                Ok(statistics) if statistics.mountpoint == self.point => return Health::Alive,
                Err(ControlError::Silent(_)) => return Health::Hung,
                // It serves something else by now, is just beginning or ending, or is not for us to ask.
                _ => {}
            }
        }
        let (answer, answers) = mpsc::channel();
        let point = self.point.clone();
        // On a thread of its own: the call does not return while the process behind the mount hangs.
        std::thread::spawn(move || answer.send(nix::sys::statvfs::statvfs(&point)));
        match answers.recv_timeout(ANSWER_PATIENCE) {
            Ok(Err(Errno::ENOTCONN | Errno::ECONNABORTED)) => Health::Dead,
            Ok(_) => Health::Alive,
            Err(_) => Health::Hung,
        }
    }

    /// Programs that have something open on it, as lines for people.
    pub fn users(&self) -> Vec<String> {
        let inside = |path: &Path| path.starts_with(&self.point);
        let mut found = Vec::new();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = process.file_name();
            let Some(pid) = name.to_str().filter(|name| name.bytes().all(|b| b.is_ascii_digit())) else {
                continue;
            };
            let Some(what) = use_of(&process.path(), &inside) else { continue };
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

/// A program that still sees a file system mounted, as a line for people: containers and services may have mount tables of their own,
/// in which a mount stays when it is taken away elsewhere.
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

/// What a process uses among the paths in question. Only links in /proc are read, so nothing can hang.
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

/// Where the process behind a cluster's mount keeps its control socket, lock and log: it has no data directory.
pub fn run_dir(point: &Path) -> PathBuf {
    let user = nix::unistd::geteuid();
    let below = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => PathBuf::from("/run"),
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(format!("/tmp/user-{user}")),
    };
    below.join("shoal").join(escape(point))
}

/// A path as one name: `/mnt/web-1` becomes `mnt-web%2d1`.
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

/// Repeats an attempt to unmount for a moment while it is refused because of somebody's use of the mount.
pub fn insist<T, E>(is_busy: impl Fn(&E) -> bool, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
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

/// All mounts that this process sees; later ones cover earlier ones.
fn table() -> io::Result<Vec<Mount>> {
    let entries = mountinfo::table()?.into_iter();
    Ok(entries
        .map(|entry| Mount {
            point: entry.mountpoint,
            kind: entry.fstype,
            source: entry.source,
            device: entry.device,
        })
        .collect())
}

/// All Shoal mounts.
pub fn shoals() -> io::Result<Vec<Mount>> {
    Ok(table()?.into_iter().filter(Mount::is_shoal).collect())
}

/// The mount right at a path.
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

/// Whether a directory may be made at a path: there is no mount, so nothing of it can hang.
pub fn is_free(path: &Path) -> io::Result<bool> {
    let absolute = std::path::absolute(path)?;
    Ok(!table()?.iter().any(|mount| mount.point == absolute))
}

/// The path without symbolic links, as it stands in the table. A mount point itself is not touched: what is mounted there
/// may be dead or hang.
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
        };
        assert_eq!(mount("/srv/shoal").home(), Path::new("/srv/shoal"));
        assert!(mount("node1,node2:/web").home().ends_with("shoal/mnt-web"));
    }

    #[test]
    fn somebody_holds_what_is_mounted_and_nobody_what_is_not() {
        let proc = at(Path::new("/proc")).unwrap().unwrap();
        assert!(holder(&proc.device).unwrap().starts_with("process "));
        assert_eq!(holder("4095:1"), None);
    }

    #[test]
    fn programs_that_use_a_mount_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        let mount =
            Mount { point: point.clone(), kind: FSTYPE.into(), source: "/".into(), device: "0:1".into() };
        assert_eq!(mount.users(), Vec::<String>::new());
        let _file = std::fs::File::create(point.join("open")).unwrap();
        let users = mount.users();
        assert_eq!(users.len(), 1, "{users:?}");
        assert!(
            users[0].contains(&std::process::id().to_string()) && users[0].ends_with("open open"),
            "{users:?}"
        );
    }
}
