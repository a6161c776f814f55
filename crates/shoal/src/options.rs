//! Mount options, `-o ro,nodev,...`.

use crate::limits::MEMORY_BYTES_MAX;
use shoal_fuse::{LockScope, MountOptions};
use shoal_types::parse_bytes;
use std::path::PathBuf;
use std::str::FromStr;

/// How a volume is mounted and how much memory the client may use.
#[derive(Clone, Debug, Default)]
pub struct Options {
    words: Vec<String>,
    /// For the kernel's side.
    pub mount: MountOptions,
    /// Room for cached metadata and small contents, in bytes.
    pub cache_bytes: Option<usize>,
    /// Room for cached blocks, in bytes.
    pub block_cache_bytes: Option<usize>,
    /// Directory of the client's credentials, for a volume of a cluster.
    pub credentials: Option<PathBuf>,
    /// Further nodes to ask for a volume of a cluster.
    pub servers: Vec<String>,
}

/// What `--help` says of them.
pub const HELP: &str = "\
Mount options, separated by commas:
  ro                 nothing may be changed
  nodev nosuid noexec  as for other file systems
  private            only the user who mounts may use it
  readers=N          threads that read requests from the kernel
  waiters=N          threads for requests that wait for a disk
  read-ahead=KIB     how far the kernel reads ahead in a file
  cache=MIB          memory for names, attributes and small files, as in cache=512 or cache=1GB
  block-cache=MIB    memory for large files
  locks=cluster      fcntl and flock locks exclude between all mounts with this option, not only on this one;
                     opening and closing a file takes a message each
  credentials=DIR    a client's ca.pem, cert.pem and key.pem, for a volume of a cluster
  backup-volfile-servers=HOST:HOST  further nodes to ask, as with GlusterFS
  defaults, rw, async, dev, suid, exec, noatime, relatime: as they are anyway
  _netdev, noauto, nofail, x-..., comment=...: for others that read /etc/fstab

user, users and owner stand for nodev,nosuid,noexec.";

/// What other programs read in fstab(5).
const OF_OTHERS: &[&str] =
    &["_netdev", "auto", "noauto", "nofail", "nouser", "group", "nogroup", "comment", "silent", "loud"];
/// What is so anyway.
const AS_IT_IS: &[&str] =
    &["", "defaults", "rw", "async", "dev", "suid", "exec", "noatime", "relatime", "nomand", "nodiratime"];

impl Options {
    /// The options as they were given, for another process.
    pub fn words(&self) -> String {
        self.words.join(",")
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let number = |max: usize| match value.map(usize::from_str) {
            Some(Ok(number)) if (1..=max).contains(&number) => Ok(number),
            _ => Err(format!("'{name}' wants a number from 1 to {max}, as in '{name}=8'")),
        };
        let text = || {
            value
                .filter(|value| !value.is_empty())
                .ok_or(format!("'{name}' wants a value, as in '{name}=...'"))
        };
        match (name, value) {
            (ignored, _) if OF_OTHERS.contains(&ignored) || ignored.starts_with("x-") => {}
            ("credentials", _) => self.credentials = Some(PathBuf::from(text()?)),
            ("backup-volfile-servers" | "backupvolfile-server", _) => {
                self.servers.extend(text()?.split(':').map(str::to_owned));
            }
            ("locks", Some("local")) => self.mount.locks = LockScope::Local,
            ("locks", Some("cluster")) => self.mount.locks = LockScope::Cluster,
            ("locks", _) => return Err("'locks' is 'locks=local' or 'locks=cluster'".into()),
            ("readers", _) => self.mount.readers = number(256)?,
            ("waiters", _) => self.mount.slow_threads = number(4096)?,
            ("read-ahead", _) => self.mount.read_ahead_kib = number(1 << 20)? as u32,
            ("cache", _) => self.cache_bytes = Some(memory(name, value)?),
            ("block-cache", _) => self.block_cache_bytes = Some(memory(name, value)?),
            (_, Some(_)) => {
                return Err(format!(
                    "there is no mount option '{name}' with a value; see `shoal mount --help`"
                ));
            }
            ("ro", _) => self.mount.read_only = true,
            ("nodev", _) => self.mount.nodev = true,
            ("nosuid", _) => self.mount.nosuid = true,
            ("noexec", _) => self.mount.noexec = true,
            ("private", _) => self.mount.allow_other = false,
            ("user" | "users" | "owner", _) => {
                (self.mount.nodev, self.mount.nosuid, self.mount.noexec) = (true, true, true);
            }
            (word, _) if AS_IT_IS.contains(&word) => {}
            ("remount", _) => return Err("a mount cannot be changed: unmount and mount anew".into()),
            _ => return Err(format!("there is no mount option '{name}'; see `shoal mount --help`")),
        }
        Ok(())
    }
}

/// Memory in bytes, from a number of MiB or a size with a unit.
fn memory(name: &str, value: Option<&str>) -> Result<usize, String> {
    let value = value.unwrap_or_default();
    let bytes = match value.parse::<u64>() {
        Ok(mib) => mib.checked_mul(1 << 20),
        Err(_) => parse_bytes(value).ok(),
    };
    match bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
        Some(bytes) if (1..=MEMORY_BYTES_MAX).contains(&bytes) => Ok(bytes),
        _ => Err(format!("'{name}' wants a number of MiB or a size, as in '{name}=512' or '{name}=1GB'")),
    }
}

impl Options {
    /// Understands what it can and leaves the rest out, as `mount -s` asks for.
    pub fn parse_sloppily(text: &str) -> Options {
        let mut options = Options::default();
        for word in text.split(',').map(str::trim) {
            if options.set(word).is_ok() {
                options.words.push(word.to_owned());
            }
        }
        options
    }
}

impl FromStr for Options {
    type Err = String;
    fn from_str(text: &str) -> Result<Options, String> {
        let mut options = Options::default();
        for word in text.split(',') {
            options.set(word.trim())?;
            options.words.push(word.trim().to_owned());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood_and_passed_on_as_given() {
        let options: Options = "ro, nodev,cache=64".parse().unwrap();
        assert!(options.mount.read_only && options.mount.nodev && !options.mount.nosuid);
        assert_eq!(options.cache_bytes, Some(64 << 20));
        assert_eq!(options.words(), "ro,nodev,cache=64");
        assert_eq!("block-cache=1GB".parse::<Options>().unwrap().block_cache_bytes, Some(1 << 30));
        assert_eq!(options.mount.locks, LockScope::Local);
        assert_eq!("locks=cluster".parse::<Options>().unwrap().mount.locks, LockScope::Cluster);
        assert_eq!("locks=cluster,locks=local".parse::<Options>().unwrap().mount.locks, LockScope::Local);
        assert!("".parse::<Options>().is_ok());
    }

    #[test]
    fn a_line_of_fstab_is_understood() {
        let line = "_netdev,noauto,x-systemd.automount,x-systemd.requires=a.service,user,credentials=/c,\
                    backup-volfile-servers=node2:node3,comment=mine";
        let options: Options = line.parse().unwrap();
        assert!(
            options.mount.nodev && options.mount.nosuid && options.mount.noexec && !options.mount.read_only
        );
        assert_eq!(options.credentials.as_deref(), Some(std::path::Path::new("/c")));
        assert_eq!(options.servers, ["node2", "node3"]);
        assert_eq!(options.words().parse::<Options>().unwrap().servers, options.servers);
        let sloppy = Options::parse_sloppily("ro,of-another-system,cache=x,nodev");
        assert!(sloppy.mount.read_only && sloppy.mount.nodev && sloppy.words() == "ro,nodev");
    }

    #[test]
    fn unknown_options_and_bad_numbers_are_refused_by_name() {
        for (bad, name) in [
            ("sync", "sync"),
            ("cache", "cache"),
            ("cache=x", "cache"),
            ("cache=0", "cache"),
            ("cache=2PB", "cache"),
            ("ro=1", "ro"),
            ("readers=0", "readers"),
            ("credentials", "credentials"),
            ("credentials=", "credentials"),
            ("locks", "locks=cluster"),
            ("locks=global", "locks=cluster"),
            ("remount,ro", "unmount"),
        ] {
            assert!(bad.parse::<Options>().unwrap_err().contains(name), "{bad}");
        }
    }
}
