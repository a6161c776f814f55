//! Mount options, `-o ro,nodev,...`.
//!
//! **Promises.** Options of GlusterFS are understood: what means something takes effect, what is harmless is
//! accepted with a note, what would be misleading is refused with what to do instead ([`gluster`]).

pub mod gluster;

use crate::limits::{JOURNAL_AGE_MS_MAX, MEMORY_BYTES_MAX, MEMORY_LIMIT_MIN, SLOW_OPERATION_S_MAX};
use crate::similar::nearest;
use gluster::Answer;
use shoal_fuse::{LockScope, MountOptions, Transport};
use shoal_types::limits::INLINE_BYTES_MAX;
use shoal_types::parse_bytes;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Names of options that take effect, for suggestions. docs/ADMIN.md names them all.
const OWN: &[&str] = &[
    "subdir",
    "remount",
    "log-level",
    "log-file",
    "private",
    "readers",
    "waiters",
    "read-ahead",
    "cache",
    "block-cache",
    "inodes",
    "locks",
    "credentials",
    "backup-volfile-servers",
    "context",
    "reader-thread-count",
    "transport",
    "local-reads",
    "kernel-cache",
    "statistics",
    "tree-read-ahead",
    "file-read-ahead",
    "inline-limit",
    "journal-age",
    "slow-operation",
    "memory",
];

/// How a volume is mounted and how much memory the client may use.
#[derive(Clone, Debug, Default)]
pub struct Options {
    words: Vec<String>,
    /// Those of them that a mount cannot change while it is mounted.
    settings: Vec<String>,
    notes: Vec<String>,
    /// For the kernel's side.
    pub mount: MountOptions,
    /// The budget of the process for all buffers and caches, in bytes.
    pub memory_bytes: Option<usize>,
    /// Room for cached metadata and small contents, in bytes.
    pub cache_bytes: Option<usize>,
    /// Room for cached blocks, in bytes.
    pub block_cache_bytes: Option<usize>,
    /// Content up to this size is kept in the metadata, in bytes.
    pub inline_bytes_max: Option<u32>,
    /// Longest time that a change waits for others before it is sent.
    pub journal_age_max: Option<Duration>,
    /// Directories are not prefetched for programs that walk through a tree.
    pub no_tree_read_ahead: bool,
    /// Blocks are not fetched ahead of a program that reads a file in sequence.
    pub no_file_read_ahead: bool,
    /// Blocks of a brick on this machine are read through its server, too, not from its files.
    pub reads_through_server: bool,
    /// Directory of the client's credentials, for a volume of a cluster.
    pub credentials: Option<PathBuf>,
    /// Further nodes to ask for a volume of a cluster.
    pub servers: Vec<String>,
    /// The directory of the volume that is mounted, if not its root.
    pub subdirectory: Option<String>,
    /// What is logged, unless `SHOAL_LOG` says otherwise.
    pub log_level: Option<&'static str>,
    /// Where it is logged, if not in the usual place.
    pub log_file: Option<PathBuf>,
    /// A mount that is there already is to be changed.
    pub remount: bool,
    /// Flags of the kernel that were named, and what they are to be.
    pub flags: Vec<(Flag, bool)>,
}

/// What mount(2) can change of a mount that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// Nothing may be changed.
    ReadOnly,
    /// Device files do not work.
    NoDev,
    /// Set-user-id and set-group-id bits do not work.
    NoSuid,
    /// Programs cannot be run.
    NoExec,
}

/// What an option does.
enum Effect {
    /// Nothing that a mount could do otherwise.
    None,
    /// It may be changed while it is mounted.
    Change,
    /// It is so from the beginning of the mount to its end.
    Setting,
}

/// What `--help` says of them.
pub const HELP: &str = "\
Mount options, separated by commas:
  ro                 nothing may be changed
  remount            changes a mount that is there: ro, rw, nodev, nosuid, noexec
  subdir=DIR         mount this directory of the volume, as HOST:/VOLUME/DIR does
  nodev nosuid noexec  as for other file systems
  private            only the user who mounts may use it
  readers=N          threads that read requests from the kernel (GlusterFS: reader-thread-count=N)
  transport=auto     takes requests over io_uring from Linux 6.18 on, else from /dev/fuse (default)
                     (transport=uring: over io_uring, or no mount; transport=dev: from /dev/fuse)
  waiters=N          threads for requests that wait for a disk
  read-ahead=KIB     how far the kernel reads ahead in a file
  inodes=N           inodes that the kernel may keep while they are not in use: bounds the memory
                     of the mount (by default one per 32 KiB of memory; needs Linux 6.18)
  memory=SIZE        budget of the process for all buffers and caches, as in memory=512MiB: at
                     least 64 MiB (by default an eighth of the machine's memory, from 256 MiB to
                     1 GiB)
  cache=MIB          of that, at most so much for names, attributes and small files, as in
                     cache=512 or cache=1GB
  block-cache=MIB    of that, at most so much for large files
  locks=cluster      fcntl and flock locks exclude between all mounts with this option (default of
                     a cluster's volumes); opening and closing a file takes a message to the
                     mount's process each
  locks=local        locks exclude between the programs of this mount, without messages: for web
                     roots, builds, and volumes that are mounted once (default of `shoal up`)
  local-reads=off    also blocks of a brick on this machine are read through its server, not from
                     its files
  kernel-cache=off   the kernel keeps no names and attributes, but asks for them at each use; this
                     and the next five are for measurements, which `shoal tune` does
  statistics=off     requests of the kernel are not counted: `shoal stats`, `top` and `profile`
                     show none
  tree-read-ahead=off  directories are not prefetched for programs that walk through a tree
  file-read-ahead=off  blocks are not fetched ahead of a file that is read in sequence
  inline-limit=KIB   content up to this size is kept in the metadata (64; a volume may have less;
                     0: none is)
  journal-age=MS     how long a change may wait for more before it is sent: what a crash of this
                     machine may lose without fsync (50)
  credentials=DIR    a client's ca.pem, cert.pem and key.pem, for a volume of a cluster
  backup-volfile-servers=HOST:HOST  further nodes to ask, as with GlusterFS
  slow-operation=S   log operations that take longer than S seconds, with what they wait for (5;
                     0: none)
  log-level=LEVEL    trace, debug, info, warning, error or none; SHOAL_LOG overrides it
  log-file=FILE      where the log goes; otherwise it is where `shoal status` says
  context=, fscontext=, defcontext=, rootcontext=  SELinux labels, for the kernel
  `shoal volume set NAME locks|cache|block-cache|read-ahead|slow-operation|read-only VALUE` sets
                     defaults for all mounts of a volume
  defaults, rw, async, dev, suid, exec, acl, noatime, relatime: as they are anyway
  _netdev, noauto, nofail, x-..., comment=...: for others that read /etc/fstab
  Other options of GlusterFS are accepted with a note if they are not needed.

user, users and owner stand for nodev,nosuid,noexec.";

/// What other programs read in fstab(5).
const OF_OTHERS: &[&str] =
    &["_netdev", "auto", "noauto", "nofail", "nouser", "group", "nogroup", "comment", "silent", "loud"];
/// What is so anyway.
const AS_IT_IS: &[&str] = &[
    "",
    "defaults",
    "async",
    "noatime",
    "relatime",
    "norelatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "nomand",
    "nodiratime",
    "diratime",
    "noiversion",
];
/// What the kernel shows of a mount, and mount(8) repeats when it is changed.
const SHOWN: &[&str] = &["user_id", "group_id", "rootmode", "max_read", "blksize", "fd"];
/// Mount options that label files for SELinux.
const CONTEXTS: &[&str] = &["context", "fscontext", "defcontext", "rootcontext"];
/// What `/proc/filesystems` lists where the kernel has SELinux.
const SELINUX: &str = "selinuxfs";

impl Options {
    /// The options as they were given, for another process.
    pub fn words(&self) -> String {
        self.words.join(",")
    }

    /// Those of them that are so from the beginning of the mount to its end.
    pub fn settings(&self) -> &[String] {
        &self.settings
    }

    /// What the administrator should know of them, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn set(&mut self, word: &str) -> Result<Effect, String> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let number = |max: usize| match value.map(usize::from_str) {
            Some(Ok(number)) if (1..=max).contains(&number) => Ok(number),
            _ => Err(format!("'{name}' wants a number from 1 to {max}, as in '{name}=8'")),
        };
        let from_zero = |max: usize| match value.map(usize::from_str) {
            Some(Ok(number)) if number <= max => Ok(number),
            _ => Err(format!("'{name}' wants a number from 0 to {max}, as in '{name}=8'")),
        };
        let is_off = || match value {
            Some("on") => Ok(false),
            Some("off") => Ok(true),
            _ => Err(format!("'{name}' is '{name}=on' or '{name}=off'")),
        };
        let text = || {
            value
                .filter(|value| !value.is_empty())
                .ok_or(format!("'{name}' wants a value, as in '{name}=...'"))
        };
        if let Some((flag, on)) = flag(word) {
            self.flag(flag, on);
            return Ok(Effect::Change);
        }
        match (name, value) {
            (ignored, _) if OF_OTHERS.contains(&ignored) || ignored.starts_with("x-") => {
                return Ok(Effect::None);
            }
            (shown, Some(_)) if self.remount && SHOWN.contains(&shown) => return Ok(Effect::None),
            (context, _) if CONTEXTS.contains(&context) => return self.label(word, text()?, has_selinux()),
            ("credentials", _) => self.credentials = Some(PathBuf::from(text()?)),
            ("backup-volfile-servers" | "backupvolfile-server", _) => self.servers.extend(hosts(text()?)),
            ("subdir" | "subdir-mount", _) => self.subdirectory = subdirectory(text()?)?,
            ("log-level", _) => self.log_level = Some(log_level(text()?)?),
            ("log-file", _) => self.log_file = Some(log_file(text()?)?),
            ("locks", Some("local")) => self.mount.locks = LockScope::Local,
            ("locks", Some("cluster")) => self.mount.locks = LockScope::Cluster,
            ("locks", _) => return Err(format!("{word}: say locks=local or locks=cluster")),
            ("readers" | "reader-thread-count", _) => self.mount.readers = number(256)?,
            // GlusterFS has an option of this name with other values.
            ("transport", Some(own)) if own.parse::<Transport>().is_ok() => {
                self.mount.transport = own.parse()?
            }
            ("waiters", _) => self.mount.slow_threads = number(4096)?,
            ("read-ahead", _) => self.mount.read_ahead_kib = number(1 << 20)? as u32,
            ("slow-operation", Some("0")) => self.mount.slow_operation = None,
            ("slow-operation", _) => {
                let seconds = number(SLOW_OPERATION_S_MAX)?;
                self.mount.slow_operation = Some(Duration::from_secs(seconds as u64));
            }
            ("local-reads", _) => self.reads_through_server = is_off()?,
            ("kernel-cache", _) => self.mount.kernel_cache = !is_off()?,
            ("statistics", _) => self.mount.statistics = !is_off()?,
            ("tree-read-ahead", _) => self.no_tree_read_ahead = is_off()?,
            ("file-read-ahead", _) => self.no_file_read_ahead = is_off()?,
            ("inline-limit", _) => {
                let kib = from_zero(INLINE_BYTES_MAX as usize >> 10)?;
                self.inline_bytes_max = Some((kib as u32) << 10);
            }
            ("journal-age", _) => {
                let milliseconds = from_zero(JOURNAL_AGE_MS_MAX)?;
                self.journal_age_max = Some(Duration::from_millis(milliseconds as u64));
            }
            ("inodes", _) => self.mount.inodes_max = number(1 << 32)?,
            // GlusterFS takes 0 for no limit.
            ("lru-limit", Some(limit)) if limit != "0" => self.mount.inodes_max = number(1 << 32)?,
            ("memory", _) => match memory(name, value)? {
                bytes if bytes < MEMORY_LIMIT_MIN => {
                    return Err(format!("'memory' is a budget of {} MiB at least", MEMORY_LIMIT_MIN >> 20));
                }
                bytes => self.memory_bytes = Some(bytes),
            },
            ("cache", _) => self.cache_bytes = Some(memory(name, value)?),
            ("block-cache", _) => self.block_cache_bytes = Some(memory(name, value)?),
            ("private", None) => self.mount.allow_other = false,
            ("remount", None) => {
                self.remount = true;
                return Ok(Effect::Change);
            }
            ("user" | "users" | "owner", None) => {
                [Flag::NoDev, Flag::NoSuid, Flag::NoExec].into_iter().for_each(|flag| self.flag(flag, true));
                return Ok(Effect::Change);
            }
            (word, None) if AS_IT_IS.contains(&word) => return Ok(Effect::None),
            _ => return self.answer(word, name, value),
        }
        Ok(Effect::Setting)
    }

    /// An option that has no counterpart here.
    fn answer(&mut self, word: &str, name: &str, value: Option<&str>) -> Result<Effect, String> {
        match gluster::answer(name, value) {
            Some(Answer::Granted) => Ok(Effect::None),
            Some(Answer::NotNeeded(why)) => {
                self.notes.push(format!("{word}: not needed: {why}"));
                Ok(Effect::None)
            }
            Some(Answer::Refused(instead)) => Err(format!("{word}: {instead}")),
            None => {
                let with = if value.is_some() { " with a value" } else { "" };
                let other = |known: &&str| *known != name;
                let near = nearest(name, OWN.iter().copied().chain(gluster::names()).filter(other));
                let meant = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
                Err(format!("there is no mount option '{name}'{with}; {meant}see `shoal mount --help`"))
            }
        }
    }

    fn flag(&mut self, flag: Flag, on: bool) {
        self.flags.push((flag, on));
        match flag {
            Flag::ReadOnly => self.mount.read_only = on,
            Flag::NoDev => self.mount.nodev = on,
            Flag::NoSuid => self.mount.nosuid = on,
            Flag::NoExec => self.mount.noexec = on,
        }
    }

    /// A label for SELinux. mount(2) refuses it where the kernel has none.
    fn label(&mut self, word: &str, label: &str, selinux: bool) -> Result<Effect, String> {
        if label.contains(',') && !(label.len() > 1 && label.starts_with('"') && label.ends_with('"')) {
            return Err(format!("{word}: a label with commas stands in double quotes"));
        }
        if selinux {
            self.mount.contexts.push(word.to_owned());
            return Ok(Effect::Setting);
        }
        self.notes.push(format!(
            "{word}: not needed: SELinux is not enabled on this machine, so files have no labels"
        ));
        Ok(Effect::None)
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

/// A flag that a word sets, or takes away again.
fn flag(word: &str) -> Option<(Flag, bool)> {
    Some(match word {
        "ro" => (Flag::ReadOnly, true),
        "rw" => (Flag::ReadOnly, false),
        "nodev" => (Flag::NoDev, true),
        "dev" => (Flag::NoDev, false),
        "nosuid" => (Flag::NoSuid, true),
        "suid" => (Flag::NoSuid, false),
        "noexec" => (Flag::NoExec, true),
        "exec" => (Flag::NoExec, false),
        _ => return None,
    })
}

/// `HOST:HOST`, with ports and IPv6 addresses in brackets, too: a number is the port of the host before it.
fn hosts(text: &str) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let bracket = rest.starts_with('[').then(|| rest.find(']')).flatten().unwrap_or(0);
        let end = rest[bracket..].find(':').map_or(rest.len(), |at| bracket + at);
        let (part, after) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
        match hosts.last_mut() {
            Some(host) if part.parse::<u16>().is_ok() => host.extend([":", part]),
            _ => hosts.push(part.to_owned()),
        }
        rest = after;
    }
    hosts
}

/// A directory of a volume, without needless slashes; `None`: its root.
pub fn subdirectory(path: &str) -> Result<Option<String>, String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    match parts.contains(&"..") {
        true => Err(format!(
            "'{path}' leads upwards: name the subdirectory by its path from the root of the volume"
        )),
        false => Ok(Some(parts.join("/")).filter(|path| !path.is_empty())),
    }
}

/// GlusterFS's names of levels, or those of `SHOAL_LOG`.
fn log_level(name: &str) -> Result<&'static str, String> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "trace" => "trace",
        "debug" => "debug",
        "info" => "info",
        "warning" | "warn" => "warn",
        "error" | "critical" => "error",
        "none" | "off" => "off",
        _ => return Err(format!("log-level={name}: say trace, debug, info, warning, error or none")),
    })
}

fn log_file(path: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(format!("log-file={}: say it as an absolute path", path.display())),
    }
}

fn has_selinux() -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.split_whitespace().any(|word| word == SELINUX)
}

/// The words of an option list. Commas in double quotes are part of a word.
fn split(text: &str) -> Vec<&str> {
    let mut quoted = false;
    let words = text.split(move |letter| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    });
    words.map(str::trim).collect()
}

impl Options {
    /// These options on top of a volume's own, which count where these say nothing. A volume that is
    /// read-only stays so.
    pub fn on_top_of(&self, volume: &str) -> Result<Options, String> {
        let is_read_only = volume.parse::<Options>()?.mount.read_only;
        let mut options: Options = [volume, &self.words()].join(",").parse()?;
        if is_read_only {
            options.flag(Flag::ReadOnly, true);
        }
        Ok(options)
    }

    fn parse(
        text: &str,
        mut refused: impl FnMut(&mut Options, String) -> Result<(), String>,
    ) -> Result<Options, String> {
        let words = split(text);
        // What mount(8) repeats of the kernel's may stand before it.
        let mut options = Options { remount: words.contains(&"remount"), ..Options::default() };
        for word in words {
            match options.set(word) {
                Ok(effect) => {
                    if matches!(effect, Effect::Setting) {
                        options.settings.push(word.to_owned());
                    }
                    options.words.push(word.to_owned());
                }
                Err(why) => refused(&mut options, why)?,
            }
        }
        Ok(options)
    }

    /// Understands what it can and leaves the rest out with a note, as `mount -s` asks for.
    pub fn parse_sloppily(text: &str) -> Options {
        let left_out = |options: &mut Options, why| {
            options.notes.push(format!("left out (-s): {why}"));
            Ok(())
        };
        Options::parse(text, left_out).unwrap_or_default()
    }
}

impl FromStr for Options {
    type Err = String;
    fn from_str(text: &str) -> Result<Options, String> {
        Options::parse(text, |_, why| Err(why))
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
        for bound in ["inodes=5000", "lru-limit=0,lru-limit=5000"] {
            assert_eq!(bound.parse::<Options>().unwrap().mount.inodes_max, 5000, "{bound}");
        }
        assert_eq!("block-cache=1GB".parse::<Options>().unwrap().block_cache_bytes, Some(1 << 30));
        assert_eq!(options.mount.locks, LockScope::Local);
        let layers = "kernel-cache=off,tree-read-ahead=off,file-read-ahead=off,inline-limit=0,journal-age=0";
        let options: Options = layers.parse().unwrap();
        assert!(!options.mount.kernel_cache && options.no_tree_read_ahead && options.no_file_read_ahead);
        assert_eq!((options.inline_bytes_max, options.journal_age_max), (Some(0), Some(Duration::ZERO)));
        assert_eq!("locks=cluster".parse::<Options>().unwrap().mount.locks, LockScope::Cluster);
        assert_eq!("locks=cluster,locks=local".parse::<Options>().unwrap().mount.locks, LockScope::Local);
        assert!("".parse::<Options>().is_ok());
    }

    #[test]
    fn a_mount_overrides_what_its_volume_says_and_takes_the_rest() {
        let of = |own: &str, volume: &str| own.parse::<Options>().unwrap().on_top_of(volume).unwrap();
        let options = of("nodev,cache=64", "locks=cluster,cache=32,block-cache=16,read-ahead=512");
        assert_eq!((options.cache_bytes, options.block_cache_bytes), (Some(64 << 20), Some(16 << 20)));
        assert_eq!((options.mount.locks, options.mount.read_ahead_kib), (LockScope::Cluster, 512));
        assert!(options.mount.nodev && !options.mount.read_only);
        assert_eq!(of("locks=local", "locks=cluster").mount.locks, LockScope::Local);
        assert_eq!(of("locks=cluster", "locks=local").mount.locks, LockScope::Cluster);
        assert!(of("rw,defaults", "ro").mount.read_only, "mount(8) says rw of its own accord");
    }

    #[test]
    fn volumes_have_the_defaults_that_the_client_has() {
        let words = shoal_cluster::ClusterMap::default().mount_options(shoal_types::GroupId(7));
        let (own, of_volume) = (Options::default(), words.parse::<Options>().unwrap());
        let client = shoal_client::Options::default();
        assert_eq!(of_volume.cache_bytes, Some(client.cache_bytes));
        assert_eq!(of_volume.block_cache_bytes, Some(client.block_cache_bytes));
        assert_eq!(of_volume.mount.read_ahead_kib, own.mount.read_ahead_kib);
        assert_eq!((of_volume.mount.locks, own.mount.locks), (LockScope::Cluster, LockScope::Local));
        assert!(!of_volume.mount.read_only);
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
    fn options_of_glusterfs_take_effect_or_are_answered_with_a_note() {
        let line = "log-level=WARNING,log-file=/var/log/web.log,reader-thread-count=3,acl,subdir-mount=/sites/a/,\
                    attribute-timeout=1,transport=tcp,no-root-squash";
        let options: Options = line.parse().unwrap();
        assert_eq!((options.log_level, options.mount.readers), (Some("warn"), 3));
        assert_eq!(options.log_file.as_deref(), Some(std::path::Path::new("/var/log/web.log")));
        assert_eq!(options.subdirectory.as_deref(), Some("sites/a"));
        let notes = options.notes().join("\n");
        assert_eq!(options.notes().len(), 2, "{notes}");
        assert!(notes.starts_with("attribute-timeout=1: not needed: "), "{notes}");
        assert_eq!(options.words().parse::<Options>().unwrap().notes(), options.notes());
        assert_eq!(
            "CRITICAL".parse::<Options>().map(drop),
            Err("there is no mount option 'CRITICAL'; see `shoal mount --help`".into())
        );
        assert!(Options::parse_sloppily("worm,nodev").notes()[0].contains("left out"));
    }

    #[test]
    fn selinux_labels_go_to_the_kernel_only_if_it_has_selinux() {
        let label = "context=\"system_u:object_r:t:s0:c1,c2\"";
        assert_eq!(split(&format!("ro,{label},nodev")), ["ro", label, "nodev"]);
        let mut options = Options::default();
        options.label(label, &label[8..], true).unwrap();
        assert_eq!(
            (options.mount.contexts.as_slice(), options.notes().len()),
            ([label.to_owned()].as_slice(), 0)
        );
        options.label(label, &label[8..], false).unwrap();
        assert!(options.mount.contexts.len() == 1 && options.notes()[0].contains("SELinux is not enabled"));
        assert!(options.label("context=a:s0:c1,c2", "a:s0:c1,c2", true).is_err());
    }

    #[test]
    fn later_flag_wins_and_remount_tells_flags_from_settings() {
        let options: Options = "ro,nodev,rw,dev".parse().unwrap();
        assert!(!options.mount.read_only && !options.mount.nodev && !options.remount);
        let shown =
            "rw,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other,remount,ro,locks=local";
        let options: Options = shown.parse().unwrap();
        assert!(options.remount && options.mount.read_only && options.mount.nosuid);
        assert_eq!(options.settings(), ["locks=local"]);
        assert_eq!(options.flags, [(Flag::ReadOnly, false), (Flag::NoSuid, true), (Flag::ReadOnly, true)]);
        assert!("user_id=0".parse::<Options>().is_err(), "only where a mount is changed");
    }

    #[test]
    fn backup_servers_may_have_ports_and_ipv6_addresses() {
        assert_eq!(
            hosts("node2:node3:7471:[fd00::1]:[fd00::2]:9"),
            ["node2", "node3:7471", "[fd00::1]", "[fd00::2]:9"]
        );
    }

    #[test]
    fn administrators_guide_names_every_mount_option() {
        let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ADMIN.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let own = OWN.iter().copied();
        let missing: Vec<&str> =
            gluster::names().chain(own).filter(|name| !guide.contains(&format!("`{name}"))).collect();
        assert!(missing.is_empty(), "docs/ADMIN.md does not name {missing:?}");
    }

    #[test]
    fn misspelt_option_is_refused_with_the_one_that_was_meant() {
        for (word, meant) in [
            ("lokcs=local", "locks"),
            ("blockcache=64", "block-cache"),
            ("attribute-timout=1", "attribute-timeout"),
            ("credential=/c", "credentials"),
        ] {
            let why = word.parse::<Options>().unwrap_err();
            assert!(why.contains(&format!("did you mean {meant}?")), "{word}: {why}");
        }
    }

    #[test]
    fn every_option_of_the_list_is_understood() {
        for name in OWN {
            let why = |word: &str| word.parse::<Options>().err().unwrap_or_default();
            let unknown = "there is no mount option";
            let tried = [(*name).to_owned(), format!("{name}=1")];
            assert!(tried.iter().any(|word| !why(word).starts_with(unknown)), "{name}");
        }
    }

    #[test]
    fn unknown_options_and_bad_numbers_are_refused_by_name() {
        for (bad, name) in [
            ("sync", "sync"),
            ("cache", "cache"),
            ("cache=x", "cache"),
            ("cache=0", "cache"),
            ("cache=2PB", "cache"),
            ("memory=63MiB", "64 MiB at least"),
            ("memory=lots", "memory"),
            ("ro=1", "ro"),
            ("readers=0", "readers"),
            ("transport=rdma", "transport"),
            ("inodes=0", "inodes"),
            ("kernel-cache", "kernel-cache=on"),
            ("tree-read-ahead=maybe", "tree-read-ahead=off"),
            ("inline-limit=257", "0 to 256"),
            ("journal-age=-1", "journal-age"),
            ("credentials", "credentials"),
            ("credentials=", "credentials"),
            ("locks", "locks=cluster"),
            ("locks=global", "locks=cluster"),
            ("worm", "worm"),
            ("direct-io-mode=enable", "O_DIRECT"),
            ("log-level=loud", "warning"),
            ("log-file=web.log", "absolute"),
            ("subdir=a/../b", "upwards"),
            ("context=", "context"),
        ] {
            assert!(bad.parse::<Options>().unwrap_err().contains(name), "{bad}");
        }
    }
}
