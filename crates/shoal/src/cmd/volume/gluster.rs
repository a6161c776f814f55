//! Options of GlusterFS's `volume set`: what becomes of them here.
//!
//! **Promises.** What has a counterpart is set. What is harmless to leave out is accepted with a note that
//! says why it is not needed. What would be misleading is refused, with what to do instead. An option of
//! which GlusterFS knows nothing either is an error, so that a misspelt one of ours is noticed.
//! `docs/VOLUME-OPTIONS.md` is written from this table.

use crate::options::gluster::{GLUSTER_ONLY, OFF};
use crate::similar::nearest;
use shoal_cluster::options::ALL;
#[cfg(test)]
use std::fmt::Write;

/// Another word for off, of options that choose a method.
const NONE: &str = "none";

/// What becomes of an option with a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// This option of ours is set to this value.
    Set(&'static str, String),
    /// Nothing is set, and this is why.
    NotNeeded(&'static str),
    /// Refused, with what to do instead.
    Refused(&'static str),
}

/// What becomes of an option by its value.
#[derive(Clone, Copy)]
enum Rule {
    /// Becomes this option, with the same value.
    Same(&'static str),
    /// Becomes this switch.
    Switch(&'static str),
    NotNeeded(&'static str),
    Refused(&'static str),
    /// Refused when it is turned off, and not needed otherwise.
    OffRefused(&'static str, &'static str),
    /// Not needed when it is turned off, and refused otherwise.
    OnRefused(&'static str, &'static str),
}
use Rule::{NotNeeded, OffRefused, OnRefused, Refused, Same, Switch};

const CACHES: &str = "caches are coherent between mounts and need no timeout";
const ALWAYS_ON: &str =
    "caching, read-ahead and write-behind are always on, and fsync(2) and O_SYNC are obeyed";
const THREADS: &str = "threads follow the load by themselves";
const HEALS: &str = "healing always runs, and heals whole blocks by their checksums";
const HEAL_STAYS: &str = "healing cannot be switched off; heal.bytes-per-second bounds it";
const MAJORITY: &str = "a majority always decides, so there is no split brain";
const MAJORITY_STAYS: &str = "a majority always decides: this cannot be switched off";
const MEMORY: &str =
    "memory is bounded by `shoal server --cache`, and by cache=, block-cache= and inodes= of mounts";
const LAYOUT: &str =
    "names are in a replicated database: there are no layouts, link files or lookups on all bricks";
const TIERS: &str =
    "the mover looks each second; tier.bytes-per-second bounds it, and tier.demote-after says what moves";
const ENCRYPTED: &str = "connections are always encrypted, with certificates of the cluster's own authority";
const COUNTED: &str = "bricks and mounts always count: `volume profile NAME info` shows it; log-level= and SHOAL_LOG set what is logged";
const DETECTED: &str = "a node that does not answer is noticed within seconds";
const NFS: &str = "there is no NFS server inside: export a mount with nfs-ganesha or the kernel's server";
const OP_VERSION: &str = "each volume has its own: `volume get NAME op-version` shows it, and `volume set NAME op-version 2` \
                          raises it when all nodes and mounts have been upgraded";
const QUOTA: &str = "there are no quotas yet";
const SNAPSHOTS: &str = "there are no snapshots yet";
const GEO: &str = "there is no geo-replication yet: copy from a mount with rsync";
const WORM: &str = "there are no write-once volumes: say read-only on where nothing is to be changed";

/// An option of both, in which GlusterFS has wildcards.
const ALLOW: &str = "auth.allow";

/// Options by name, for [`look_up`].
const RULES: &[(&str, Rule)] = &[
    ("auth.reject", Refused("say which addresses may mount: `volume set NAME auth.allow ADDRESSES`")),
    (
        "auth.ssl-allow",
        Refused("each client has a certificate: `shoal client issue` and `shoal client revoke`"),
    ),
    ("changelog.changelog", OnRefused("nothing reads a change log", GEO)),
    ("changelog.*", NotNeeded(GLUSTER_ONLY)),
    ("client.ssl", OffRefused(ENCRYPTED, "connections are always encrypted: this cannot be switched off")),
    ("client.*", NotNeeded(THREADS)),
    ("cluster.background-self-heal-count", NotNeeded(HEALS)),
    ("cluster.brick-multiplex", NotNeeded("one server serves all bricks of a node")),
    ("cluster.choose-local", NotNeeded("a read asks the bricks of its own machine first")),
    ("cluster.data-self-heal", OffRefused(HEALS, HEAL_STAYS)),
    ("cluster.data-self-heal-algorithm", NotNeeded(HEALS)),
    ("cluster.eager-lock", NotNeeded("locks of writes are leases that a mount keeps until another one asks")),
    ("cluster.enable-shared-storage", Refused("make a volume for it: `shoal volume create`")),
    (
        "cluster.ensure-durability",
        OffRefused(ALWAYS_ON, "what is acknowledged is durable: this cannot be switched off"),
    ),
    ("cluster.entry-self-heal", OffRefused(HEALS, HEAL_STAYS)),
    ("cluster.favorite-child-policy", NotNeeded(MAJORITY)),
    ("cluster.granular-entry-heal", NotNeeded(HEALS)),
    ("cluster.heal-timeout", NotNeeded(HEALS)),
    ("cluster.locking-scheme", NotNeeded(HEALS)),
    ("cluster.lookup-optimize", NotNeeded(LAYOUT)),
    ("cluster.lookup-unhashed", NotNeeded(LAYOUT)),
    ("cluster.metadata-self-heal", OffRefused(HEALS, HEAL_STAYS)),
    ("cluster.min-free-disk", NotNeeded("a share of each disk is reserved by itself")),
    ("cluster.min-free-inodes", NotNeeded("a share of each disk is reserved by itself")),
    ("cluster.max-op-version", Refused(OP_VERSION)),
    ("cluster.op-version", Refused(OP_VERSION)),
    ("cluster.quorum-count", NotNeeded(MAJORITY)),
    ("cluster.quorum-reads", NotNeeded(MAJORITY)),
    ("cluster.quorum-type", OffRefused(MAJORITY, MAJORITY_STAYS)),
    ("cluster.read-hash-mode", NotNeeded("a read asks the bricks of its own machine first")),
    ("cluster.readdir-optimize", NotNeeded(LAYOUT)),
    (
        "cluster.rebal-throttle",
        Refused("say how many bytes per second: `volume set NAME heal.bytes-per-second 50MB`"),
    ),
    ("cluster.rebalance-stats", NotNeeded(COUNTED)),
    ("cluster.self-heal-daemon", OffRefused(HEALS, HEAL_STAYS)),
    ("cluster.self-heal-window-size", NotNeeded(HEALS)),
    ("cluster.server-quorum-ratio", NotNeeded(MAJORITY)),
    ("cluster.server-quorum-type", OffRefused(MAJORITY, MAJORITY_STAYS)),
    ("cluster.shd-max-threads", NotNeeded(HEALS)),
    ("cluster.shd-wait-qlength", NotNeeded(HEALS)),
    ("cluster.tier-pause", Switch("tier.pause")),
    ("cluster.tier-*", NotNeeded(TIERS)),
    ("cluster.use-anonymous-inode", NotNeeded(HEALS)),
    ("cluster.use-compound-fops", NotNeeded(GLUSTER_ONLY)),
    ("cluster.watermark-hi", Same("tier.high-watermark")),
    ("cluster.watermark-low", Same("tier.low-watermark")),
    ("cluster.weighted-rebalance", NotNeeded("blocks are spread by the sizes of the bricks")),
    ("config.transport", NotNeeded("TCP is the only transport")),
    ("dht.*", NotNeeded(LAYOUT)),
    ("diagnostics.*", NotNeeded(COUNTED)),
    ("disperse.*", NotNeeded("shards are written, read and healed as wholes by themselves")),
    ("features.barrier", Refused(SNAPSHOTS)),
    ("features.bitrot", OffRefused("every block has checksums", "checksums cannot be switched off")),
    ("features.cache-invalidation", NotNeeded(CACHES)),
    ("features.cache-invalidation-timeout", NotNeeded(CACHES)),
    ("features.ctime", NotNeeded("times are those of the metadata, the same on all bricks")),
    ("features.inode-quota", OnRefused("there are none", QUOTA)),
    ("features.quota", OnRefused("there are none", QUOTA)),
    ("features.read-only", Switch("read-only")),
    ("features.scrub", Refused("say `volume scrub NAME pause` or `volume scrub NAME resume`")),
    ("features.scrub-freq", NotNeeded("bricks are read through again and again, at a few MB/s")),
    ("features.scrub-throttle", NotNeeded("bricks are read through again and again, at a few MB/s")),
    ("features.selinux", NotNeeded("security.* attributes are always kept")),
    ("features.shard", NotNeeded("large files are in blocks on all bricks anyway")),
    ("features.shard-block-size", NotNeeded("large files are in blocks on all bricks anyway")),
    ("features.tag-namespaces", NotNeeded(GLUSTER_ONLY)),
    ("features.trash", OnRefused("there is none", "there is no trash: keep backups")),
    ("features.uss", OnRefused("there are none", SNAPSHOTS)),
    ("features.worm", OnRefused("there are none", WORM)),
    ("features.worm-file-level", OnRefused("there are none", WORM)),
    ("features.utime", NotNeeded("times are those of the metadata, the same on all bricks")),
    ("features.*", NotNeeded(GLUSTER_ONLY)),
    ("ganesha.enable", OnRefused("there is none", NFS)),
    ("geo-replication.indexing", OnRefused("nothing reads an index", GEO)),
    ("geo-replication.*", NotNeeded(GLUSTER_ONLY)),
    ("locks.mandatory-locking", OnRefused("there is none", "the kernel has no mandatory locks any more")),
    ("locks.*", NotNeeded("locks are kept by the metadata leader; `volume clear-locks` revokes them")),
    ("network.inode-lru-limit", NotNeeded(MEMORY)),
    ("network.ping-timeout", NotNeeded(DETECTED)),
    ("network.remote-dio", NotNeeded("O_DIRECT reaches the servers, past the cache of the kernel")),
    ("network.*", NotNeeded(DETECTED)),
    ("nfs.disable", OffRefused("there is no NFS server inside", NFS)),
    ("nfs.*", NotNeeded("there is no NFS server inside")),
    ("performance.cache-size", Same("block-cache")),
    ("performance.cache-samba-metadata", NotNeeded(CACHES)),
    ("performance.client-io-threads", NotNeeded(THREADS)),
    ("performance.io-thread-count", NotNeeded(THREADS)),
    ("performance.md-cache-timeout", NotNeeded(CACHES)),
    ("performance.nl-cache-timeout", NotNeeded(CACHES)),
    ("performance.qr-cache-timeout", NotNeeded(CACHES)),
    ("performance.*", NotNeeded(ALWAYS_ON)),
    ("server.allow-insecure", NotNeeded("clients are known by certificates, and may use any port")),
    ("server.root-squash", OnRefused("root of a client is root of the volume", ROOT_SQUASH)),
    ("server.all-squash", OnRefused("users of a client are users of the volume", ROOT_SQUASH)),
    ("server.ssl", OffRefused(ENCRYPTED, "connections are always encrypted: this cannot be switched off")),
    ("server.*", NotNeeded(THREADS)),
    ("ssl.*", NotNeeded(ENCRYPTED)),
    ("storage.owner-gid", Refused("change the owner of the mounted volume: `chgrp GROUP MOUNTPOINT`")),
    ("storage.owner-uid", Refused("change the owner of the mounted volume: `chown USER MOUNTPOINT`")),
    ("storage.reserve", NotNeeded("a share of each disk is reserved by itself")),
    ("storage.*", NotNeeded("bricks hold blocks: this concerns files on bricks")),
    ("transport.*", NotNeeded("TCP is the only transport")),
    ("transport-type", NotNeeded("TCP is the only transport")),
];

const ROOT_SQUASH: &str = "`volume set NAME auth.allow ADDRESSES` and `shoal client revoke` say which machines may mount; an \
                           export over NFS can squash root";

/// GlusterFS's groups of options, and why none of them sets anything.
const GROUPS: &[(&str, &str)] = &[
    ("db-workload", ALWAYS_ON),
    ("distributed-virt", ALWAYS_ON),
    ("gluster-block", ALWAYS_ON),
    ("metadata-cache", CACHES),
    ("nl-cache", CACHES),
    ("samba", CACHES),
    ("small-file-perf", ALWAYS_ON),
    ("virt", ALWAYS_ON),
];

/// The entry of a table with this name, or else that of its family: a name that ends with `*` stands for all
/// that begin like it.
pub fn look_up<'a, T>(table: &'a [(&str, T)], name: &str) -> Option<&'a T> {
    let is_family = |known: &str| known.strip_suffix('*').is_some_and(|family| name.starts_with(family));
    let own = table.iter().find(|(known, _)| *known == name);
    own.or_else(|| table.iter().find(|(known, _)| is_family(known))).map(|(_, entry)| entry)
}

/// The error of an option that there is not, neither here nor in GlusterFS, or that only a family admits
/// although it is very similar to a known name. `None`: the option is known, or a family admits it.
pub fn unknown(key: &str) -> Option<String> {
    let names = || RULES.iter().map(|(name, _)| *name).chain(ALL.iter().map(|known| known.key));
    if names().any(|name| name == key) {
        return None;
    }
    // The name of a family is no option.
    if let Some(meant) = nearest(key, names().filter(|name| !name.ends_with('*'))) {
        return Some(format!("there is no option '{key}'; did you mean {meant}?"));
    }
    match look_up(RULES, key) {
        Some(_) => None,
        None => shoal_cluster::options::check(key, "").err(),
    }
}

/// GlusterFS's `10.0.0.*` as a network; every other word stays as it is.
fn network(word: &str) -> String {
    let octets: Vec<&str> = word.strip_suffix(".*").map(|rest| rest.split('.').collect()).unwrap_or_default();
    match octets.len() {
        1..=3 if octets.iter().all(|octet| octet.parse::<u8>().is_ok()) => {
            let zeros = ".0".repeat(4 - octets.len());
            format!("{}{zeros}/{}", octets.join("."), octets.len() * 8)
        }
        _ => word.to_owned(),
    }
}

/// Tells which option and value of ours one of GlusterFS became.
pub fn translated((key, value): (&str, &str), (ours, ours_value): (&str, &str)) -> String {
    match key == ours {
        true => format!("{value} means {ours_value}"),
        false => format!("{key} is {ours} here"),
    }
}

/// The option of ours that a known one of GlusterFS sets; the same name if it is one of ours. The error says
/// why it sets none.
pub fn ours(key: &str) -> Result<&str, String> {
    match look_up(RULES, key) {
        None => Ok(key),
        Some(Same(ours) | Switch(ours)) => Ok(ours),
        Some(NotNeeded(why) | Refused(why) | OffRefused(why, _) | OnRefused(why, _)) => {
            Err(format!("{key} is an option of GlusterFS that sets nothing here: {why}"))
        }
    }
}

/// What becomes of an option of GlusterFS. `None`: it is none.
pub fn answer(key: &str, value: &str) -> Option<Answer> {
    if key == ALLOW && value.contains(".*") {
        let networks: Vec<String> = value.split(',').map(|word| network(word.trim())).collect();
        return Some(Answer::Set(ALLOW, networks.join(",")));
    }
    let word = value.to_ascii_lowercase();
    let off = word == NONE || OFF.contains(&word.as_str());
    Some(match *look_up(RULES, key)? {
        Same(ours) => Answer::Set(ours, value.to_owned()),
        Switch(ours) => Answer::Set(ours, if off { "off" } else { "on" }.to_owned()),
        OffRefused(_, why) if off => Answer::Refused(why),
        OnRefused(_, why) if !off => Answer::Refused(why),
        NotNeeded(why) | OffRefused(why, _) | OnRefused(why, _) => Answer::NotNeeded(why),
        Refused(why) => Answer::Refused(why),
    })
}

/// Why a group of options sets nothing. `None`: GlusterFS has no such group.
pub fn group(name: &str) -> Option<&'static str> {
    look_up(GROUPS, name).copied()
}

/// `docs/VOLUME-OPTIONS.md`.
#[cfg(test)]
fn document() -> String {
    let mut text = String::from(
        "# Volume options\n\nThis page is written from the program's own tables\n\
         (`SHOAL_WRITE_DOCS=1 cargo test --release -p shoal gluster`).\n\n\
         ## Options of Shoal\n`shoal volume set NAME KEY VALUE`, `volume get NAME KEY|all`, `volume reset NAME KEY`.\n\n\
         | option | default | what it does |\n|---|---|---|\n",
    );
    for known in ALL {
        let _ =
            writeln!(text, "| `{}` | {} | {} |", known.key, known.default.replace('*', "`*`"), known.help);
    }
    text.push_str(
        "\n## Options of GlusterFS\nThey are understood, so that old scripts run: what has a counterpart is set, what is not\n\
         needed is said to be so, and what would be misleading is refused.\n\n\
         | option | what becomes of it |\n|---|---|\n",
    );
    for (name, rule) in RULES {
        let what = match rule {
            Same(ours) => format!("sets `{ours}`"),
            Switch(ours) => format!("sets `{ours}` to on or off"),
            NotNeeded(why) => format!("not needed: {why}"),
            Refused(why) => format!("refused: {why}"),
            OffRefused(why, off) => format!("not needed: {why}; refused if off: {off}"),
            OnRefused(why, on) => format!("off is not needed: {why}; else refused: {on}"),
        };
        let _ = writeln!(text, "| `{name}` | {what} |");
    }
    text.push_str("\n## Groups of GlusterFS\n`shoal volume set NAME group GROUP` sets nothing.\n\n| group | why |\n|---|---|\n");
    for (name, why) in GROUPS {
        let _ = writeln!(text, "| `{name}` | {why} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn gluster_option_is_set_explained_or_refused_by_its_value() {
        assert_eq!(answer("features.read-only", "Enable"), Some(Answer::Set("read-only", "on".into())));
        assert_eq!(answer("features.read-only", "OFF"), Some(Answer::Set("read-only", "off".into())));
        assert_eq!(answer("performance.cache-size", "1GB"), Some(Answer::Set("block-cache", "1GB".into())));
        assert_eq!(answer("nfs.disable", "on"), Some(Answer::NotNeeded("there is no NFS server inside")));
        assert_eq!(answer("nfs.disable", "off"), Some(Answer::Refused(NFS)));
        assert_eq!(answer("features.quota", "on"), Some(Answer::Refused(QUOTA)));
        assert_eq!(answer("performance.parallel-readdir", "on"), Some(Answer::NotNeeded(ALWAYS_ON)));
        assert_eq!(answer("cluster.self-heal-daemon", "off"), Some(Answer::Refused(HEAL_STAYS)));
        for unknown in ["cluster.metadata-replica", "auth.alow", "lock", "unheard.of"] {
            assert_eq!(answer(unknown, "1"), None, "{unknown}");
        }
        let networks = Answer::Set("auth.allow", "10.0.0.0/8,192.168.7.0/24,10.1.2.3".into());
        assert_eq!(answer("auth.allow", "10.*, 192.168.7.*,10.1.2.3"), Some(networks));
        assert_eq!(answer("auth.allow", "*"), None, "it is ours");
        let said = translated(("auth.allow", "10.77.0.*"), ("auth.allow", "10.77.0.0/24"));
        assert_eq!(said, "10.77.0.* means 10.77.0.0/24");
        assert_eq!(
            translated(("features.read-only", "on"), ("read-only", "on")),
            "features.read-only is read-only here"
        );
        assert!(group("metadata-cache").is_some() && group("nonsense").is_none());
    }

    #[test]
    fn option_that_is_read_or_reset_is_translated_or_explained() {
        assert_eq!(ours("features.read-only"), Ok("read-only"));
        assert_eq!(ours("performance.cache-size"), Ok("block-cache"));
        assert_eq!(ours("cluster.watermark-hi"), Ok("tier.high-watermark"));
        assert_eq!(ours("locks"), Ok("locks"));
        assert!(ours("performance.parallel-readdir").unwrap_err().contains("sets nothing here"));
        assert!(ours("cluster.op-version").unwrap_err().contains("volume get NAME op-version"));
    }

    #[test]
    fn misspelt_option_is_refused_with_the_one_that_was_meant() {
        for (key, meant) in [
            ("performance.cache-szie", "performance.cache-size"),
            ("features.reed-only", "features.read-only"),
            ("client.sssl", "client.ssl"),
            ("network.pingtimeout", "network.ping-timeout"),
            ("nfs.disabel", "nfs.disable"),
            ("auth.alow", "auth.allow"),
            ("blockcache", "block-cache"),
        ] {
            let why = format!("there is no option '{key}'; did you mean {meant}?");
            assert_eq!(unknown(key), Some(why), "{key}");
        }
        assert!(unknown("unheard.of").is_some_and(|why| why.contains("there are: auth.allow")));
    }

    /// Options of GlusterFS's glusterd-volume-set.c that only a family of the table admits, and that are
    /// spelt like another one.
    #[test]
    fn option_of_glusterfs_is_not_taken_for_a_misspelt_one() {
        for key in [
            "performance.io-cache-size",
            "performance.qr-cache-size",
            "performance.nl-cache-limit",
            "performance.parallel-readdir",
            "performance.cache-swift-metadata",
            "features.sdfs",
            "features.shard-lru-limit",
            "features.worm-files-deletable",
            "features.barrier-timeout",
            "network.frame-timeout",
            "changelog.changelog-dir",
            "client.event-threads",
            "server.event-threads",
            "storage.reserve-size",
            "nfs.drc",
            "cluster.tier-mode",
            "cluster.metadata-self-heal",
            "cache",
            "locks",
        ] {
            assert_eq!(unknown(key), None, "{key}");
        }
        for (key, _) in RULES {
            assert_eq!(unknown(key), None, "{key}");
        }
    }

    #[test]
    fn every_option_that_is_set_is_one_of_ours_and_no_name_is_there_twice() {
        for (at, (name, rule)) in RULES.iter().enumerate() {
            assert!(RULES[at + 1..].iter().all(|(other, _)| other != name), "{name}");
            assert!(shoal_cluster::options::find(name).is_none(), "{name} is ours");
            if let Same(ours) | Switch(ours) = rule {
                assert!(shoal_cluster::options::find(ours).is_some(), "{ours}");
            }
        }
    }

    #[test]
    fn page_of_volume_options_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/VOLUME-OPTIONS.md");
        if std::env::var_os("SHOAL_WRITE_DOCS").is_some() {
            std::fs::write(&path, document()).expect("written");
        }
        let text = std::fs::read_to_string(&path).expect("the page is there");
        assert!(
            text == document(),
            "docs/VOLUME-OPTIONS.md is not what the tables say: SHOAL_WRITE_DOCS=1 writes it"
        );
    }
}
