//! Mount options of GlusterFS and of other file systems that have no counterpart here.
//!
//! **Promises.** What is so anyway is accepted. What is harmless to leave out is accepted with a note that
//! says why it is not needed. What would be misleading is refused, with what to do instead.

/// What becomes of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is so anyway.
    Granted,
    /// Accepted, and told why it is not needed.
    NotNeeded(&'static str),
    /// Refused, and told what to do instead.
    Refused(&'static str),
}
use Answer::{Granted, NotNeeded, Refused};

/// Values that turn something off.
pub const OFF: &[&str] = &["no", "off", "false", "disable", "disabled", "0"];

const CACHES: &str = "caches need no timeout: what another mount changes is invalidated at once";
const BOUNDED: &str = "requests that wait are bounded by readers= and waiters=";
const PERMISSIONS: &str = "the kernel checks permissions with all groups of the caller";
/// Why an option is not needed that concerns a part of GlusterFS only.
pub const GLUSTER_ONLY: &str = "it tunes a part of GlusterFS that Shoal does not have";
const RELIABLE: &str = "all servers are known after the first answer, and asked again until one answers";

/// What becomes of an option, by the value that it is given.
enum Rule {
    Always(Answer),
    /// One answer if the value turns it off, another if not.
    OffOr(Answer, Answer),
    /// One answer for this value, another for the rest.
    For(&'static str, Answer, Answer),
}
use Rule::{Always, For, OffOr};

/// Every option that is known here. docs/ADMIN.md names them all.
const RULES: &[(&str, Rule)] = &[
    ("acl", Always(Granted)),
    ("noacl", Always(Refused("ACLs are always obeyed: leave it out"))),
    ("user_xattr", Always(Granted)),
    ("capability", Always(Granted)),
    ("allow_other", Always(Granted)),
    ("default_permissions", Always(Granted)),
    ("resolve-gids", Always(NotNeeded(PERMISSIONS))),
    ("gid-timeout", Always(NotNeeded(PERMISSIONS))),
    (
        "selinux",
        Always(NotNeeded("security.* attributes are always kept; to label a whole mount say context=")),
    ),
    (
        "transport",
        For(
            "tcp",
            NotNeeded("TCP is the only transport"),
            Refused("here it says how requests come from the kernel: auto, uring or dev; the network is TCP"),
        ),
    ),
    (
        "direct-io-mode",
        OffOr(
            NotNeeded("the page cache is used, and invalidated when another mount changes a file"),
            DIRECT_IO,
        ),
    ),
    ("attribute-timeout", Always(NotNeeded(CACHES))),
    ("entry-timeout", Always(NotNeeded(CACHES))),
    ("negative-timeout", Always(NotNeeded(CACHES))),
    ("auto-invalidation", Always(NotNeeded(CACHES))),
    ("fopen-keep-cache", Always(NotNeeded(CACHES))),
    (
        "kernel-writeback-cache",
        Always(NotNeeded("writes are answered from memory, and committed within 50 ms")),
    ),
    ("attr-times-granularity", Always(NotNeeded("times are kept in nanoseconds"))),
    ("use-readdirp", Always(NotNeeded("listings bring attributes with them where programs look at them"))),
    ("volume-id", Always(NotNeeded("the volume is found by its name"))),
    ("volfile-check", Always(NotNeeded(RELIABLE))),
    ("fetch-attempts", Always(NotNeeded(RELIABLE))),
    ("volfile-max-fetch-attempts", Always(NotNeeded(RELIABLE))),
    ("background-qlen", Always(NotNeeded(BOUNDED))),
    ("congestion-threshold", Always(NotNeeded(BOUNDED))),
    ("lru-limit", Always(NotNeeded("memory is bounded by inodes=, cache= and block-cache="))),
    ("invalidate-limit", Always(NotNeeded("memory is bounded by inodes=, cache= and block-cache="))),
    ("enable-ino32", Always(NotNeeded("inode numbers count up from 1, and fit 32 bits for 4 billion files"))),
    ("mem-accounting", Always(NotNeeded("`shoal stats` shows the memory of a mount"))),
    ("thin-client", Always(NotNeeded("a mount holds connections to the servers that it uses, and no more"))),
    ("no-root-squash", Always(Granted)),
    ("root-squash", OffOr(Granted, ROOT_SQUASH)),
    (
        "worm",
        OffOr(Granted, Refused("there are no write-once volumes: say ro where nothing is to be changed")),
    ),
    ("process-name", Always(NotNeeded("`shoal status` shows which process serves which mount"))),
    ("oom-score-adj", Always(NotNeeded("set OOMScoreAdjust= in a drop-in of shoal-mount@.service"))),
    ("event-history", Always(NotNeeded(GLUSTER_ONLY))),
    ("global-threading", Always(NotNeeded(GLUSTER_ONLY))),
    ("fuse-flush-handle-interrupt", Always(NotNeeded(GLUSTER_ONLY))),
    ("fuse-dev-eperm-ratelimit-ns", Always(NotNeeded(GLUSTER_ONLY))),
    ("halo-max-latency", Always(NotNeeded(HALO))),
    ("halo-max-replicas", Always(NotNeeded(HALO))),
    ("halo-min-replicas", Always(NotNeeded(HALO))),
    ("volume-name", Always(Refused("name the volume in what is mounted: HOST:/VOLUME"))),
    ("server-port", Always(Refused("name the port in what is mounted: HOST:PORT:/VOLUME"))),
    (
        "xlator-option",
        Always(Refused("there are no translators: see `shoal volume set` and `shoal mount --help`")),
    ),
    ("fuse-mountopts", Always(Refused("name its options in -o directly"))),
    ("aux-gfid-mount", Always(Refused("files cannot be opened by an identity: use their paths"))),
    (
        "dump-fuse",
        Always(Refused("`shoal stats MOUNTPOINT` counts requests, and strace(1) shows those of a program")),
    ),
    (
        "sync",
        Always(Refused("leave it out: programs use fsync(2) or O_SYNC, and `shoal sync` commits everything")),
    ),
    (
        "dirsync",
        Always(Refused(
            "leave it out: programs use fsync(2) of the directory, and `shoal sync` commits everything",
        )),
    ),
    ("strictatime", Always(Refused("access times change only when a program sets them: leave it out"))),
    ("mand", Always(Refused("the kernel has no mandatory locks any more: leave it out"))),
    (
        "allow_root",
        Always(Refused("say private for the user who mounts only, or leave it out for all users")),
    ),
];

const DIRECT_IO: Answer = Refused(
    "leave it out: caches are coherent between mounts; a program that wants none opens its files with O_DIRECT",
);
const ROOT_SQUASH: Answer = Refused(
    "root of a client is root of the volume: `shoal volume set VOLUME auth.allow ADDRESSES` and `shoal client \
     revoke` say which machines may mount it, and an export over NFS (nfsd, Ganesha) can squash root",
);
const HALO: &str = "reads prefer copies on this machine, and slow bricks are passed over";

/// What becomes of an option. `None`: it is none of these.
pub fn answer(name: &str, value: Option<&str>) -> Option<Answer> {
    let (_, rule) = RULES.iter().find(|(known, _)| *known == name)?;
    Some(match rule {
        Always(answer) => *answer,
        OffOr(off, _) if value.is_some_and(|value| OFF.contains(&value)) => *off,
        For(one, answer, _) if value == Some(one) => *answer,
        OffOr(_, other) | For(_, _, other) => *other,
    })
}

/// The names of all of these.
pub fn names() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gluster_options_are_granted_explained_or_refused_by_their_value() {
        assert_eq!(answer("acl", None), Some(Granted));
        assert!(matches!(answer("entry-timeout", Some("600")), Some(NotNeeded(why)) if why == CACHES));
        assert!(matches!(answer("transport", Some("tcp")), Some(NotNeeded(_))));
        assert!(matches!(answer("transport", Some("rdma")), Some(Refused(_))));
        for off in OFF {
            assert!(matches!(answer("direct-io-mode", Some(off)), Some(NotNeeded(_))), "{off}");
            assert_eq!(answer("root-squash", Some(off)), Some(Granted), "{off}");
        }
        for (name, value) in [("direct-io-mode", Some("enable")), ("root-squash", None), ("worm", None)] {
            assert!(matches!(answer(name, value), Some(Refused(_))), "{name}");
        }
        assert_eq!(answer("unheard-of", None), None);
    }
}
