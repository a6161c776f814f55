//! What becomes of a volume of GlusterFS: bricks, redundancy, options, and a reason for what is left out.

use super::volfile::Translator;
use crate::cmd::volume::gluster::look_up;
use std::fmt;

/// How the bricks of a volume are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Redundancy {
    /// Copies of each file, of which so many are arbiters.
    Copies { all: usize, arbiters: usize },
    /// Bricks of a set, and those of them that may be lost.
    Shards { all: usize, parity: usize },
}

/// The words of `volume create`.
impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Redundancy::Copies { all, arbiters: 0 } => write!(f, "replica {all}"),
            Redundancy::Copies { all, arbiters } => {
                write!(f, "replica {} arbiter {arbiters}", all - arbiters)
            }
            Redundancy::Shards { all, parity } => write!(f, "disperse {all} redundancy {parity}"),
        }
    }
}

/// A volume as it was configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub name: Option<String>,
    pub redundancy: Redundancy,
    /// `HOST:/PATH`, in the order of the sets.
    pub bricks: Vec<String>,
    /// Options as `volume set` takes them.
    pub options: Vec<(String, String)>,
    /// Parts of the configuration, and what becomes of each.
    pub notes: Vec<(String, String)>,
}

impl Plan {
    /// Refuses numbers that no volume has.
    pub fn checked(self) -> Result<Plan, String> {
        match self.redundancy {
            Redundancy::Copies { all, arbiters } if arbiters >= all => {
                Err(format!("{arbiters} of {all} copies would be arbiters"))
            }
            Redundancy::Shards { all, parity } if parity >= all => {
                Err(format!("{parity} of {all} shards would be redundant"))
            }
            _ => Ok(self),
        }
    }
}

/// Translators by kind, and what becomes of them. Those that combine bricks are not here.
const TRANSLATORS: &[(&str, &str)] = &[
    ("cluster/distribute", "blocks are spread over all bricks by their sizes"),
    ("cluster/nufa", "blocks are spread over all bricks by their sizes"),
    ("cluster/dht", "blocks are spread over all bricks by their sizes"),
    ("protocol/client", "a brick"),
    ("protocol/server", "not needed: `shoal server` serves all bricks of a node"),
    ("storage/posix", "a brick"),
    ("features/locks", "not needed: locks are kept by the metadata leader"),
    ("features/posix-locks", "not needed: locks are kept by the metadata leader"),
    ("features/access-control", "not needed: ACLs are always obeyed"),
    ("features/bitrot-stub", "not needed: every block has checksums"),
    ("features/shard", "not needed: large files are in blocks on all bricks"),
    ("features/upcall", "not needed: caches are always coherent"),
    ("features/read-only", "read-only on"),
    ("features/worm", "left out: there are no write-once volumes"),
    ("features/quota", "left out: there are no quotas yet"),
    ("features/trash", "left out: there is no trash"),
    ("features/changelog", "left out: there is no geo-replication yet"),
    ("debug/io-stats", "not needed: `shoal stats` always counts"),
    ("debug/trace", "left out: strace(1) shows the calls of a program"),
    ("encryption/rot-13", "left out: connections are encrypted; encrypt the disks under the bricks"),
    ("encryption/crypt", "left out: connections are encrypted; encrypt the disks under the bricks"),
    ("mount/fuse", "`shoal mount`"),
    ("nfs/server", "left out: export a mount with nfs-ganesha or the kernel's server"),
    ("performance/*", "not needed: caching, read-ahead and write-behind are always on and coherent"),
    ("features/*", "not needed: it is a part of GlusterFS that Shoal does not have"),
    ("meta", "not needed: `shoal stats` and `shoal volume status` show the state"),
];

/// Options of translators that `volume set` knows under another name.
const OPTIONS: &[(&str, &str, &str)] = &[
    ("performance/io-cache", "cache-size", "performance.cache-size"),
    ("performance/quick-read", "cache-size", "performance.cache-size"),
    ("features/read-only", "read-only", "features.read-only"),
];

/// The plan for a volume file. `host`: the machine of bricks that are directories of this process.
pub fn of_translators(all: &[Translator], host: &str) -> Result<Plan, String> {
    let is_used = |one: &Translator| all.iter().any(|above| above.subvolumes.contains(&one.name));
    let tops: Vec<&Translator> = all.iter().filter(|one| !is_used(one)).collect();
    let mut plan = Plan {
        name: None,
        redundancy: Redundancy::Copies { all: 1, arbiters: 0 },
        bricks: Vec::new(),
        options: Vec::new(),
        notes: Vec::new(),
    };
    for top in &tops {
        descend(all, top, host, &mut plan, false)?;
    }
    if let [top] = tops[..] {
        plan.name = Some(top.name.clone());
    }
    match plan.bricks.is_empty() {
        true => Err("there is no brick in it: no protocol/client and no storage/posix".into()),
        false => Ok(plan),
    }
}

/// Goes down the stack. `redundant`: a translator above keeps copies or shards.
fn descend(
    all: &[Translator],
    one: &Translator,
    host: &str,
    plan: &mut Plan,
    redundant: bool,
) -> Result<(), String> {
    let wrong = |why: String| Err(format!("line {}: volume {}: {why}", one.line, one.name));
    let number = |key: &str| one.option(key).and_then(|value| value.parse::<usize>().ok());
    let (mut redundant, what) = (redundant, format!("{} {}", one.kind, one.name));
    match one.kind.as_str() {
        "cluster/replicate" | "cluster/afr" | "cluster/disperse" | "cluster/ec" => {
            let all = one.subvolumes.len();
            let here = match one.kind.ends_with("replicate") || one.kind.ends_with("afr") {
                true => Redundancy::Copies { all, arbiters: number("arbiter-count").unwrap_or(0) },
                false => Redundancy::Shards { all, parity: number("redundancy").unwrap_or(1) },
            };
            if redundant {
                return wrong("redundancy within redundancy has no counterpart".into());
            }
            if !plan.bricks.is_empty() && plan.redundancy != here {
                return wrong(format!("sets of {} and of {here} in one volume", plan.redundancy));
            }
            (plan.redundancy, redundant) = (here, true);
            plan.notes.push((what, here.to_string()));
        }
        "cluster/stripe" => {
            return wrong("there are no stripes: blocks of a file are on all bricks anyway".into());
        }
        "protocol/client" | "storage/posix" => {
            let place = match one.kind.as_str() {
                "storage/posix" => one.option("directory").map(|path| (host, path)),
                _ => one.option("remote-host").zip(one.option("remote-subvolume")),
            };
            let Some((host, path)) = place else {
                return wrong("it says neither a directory nor remote-host and remote-subvolume".into());
            };
            let brick = format!("{host}:{path}");
            plan.notes.push((what, format!("brick {brick}")));
            plan.bricks.push(brick);
        }
        kind => match look_up(TRANSLATORS, kind) {
            Some(becomes) => plan.notes.push((what, (*becomes).to_owned())),
            None => return wrong(format!("nothing is known of type {kind}")),
        },
    }
    if one.kind == "features/read-only" && one.option("read-only").is_none() {
        plan.options.push(("features.read-only".into(), "on".into()));
    }
    for (key, value) in &one.options {
        let ours =
            OPTIONS.iter().find(|(kind, name, _)| *kind == one.kind && name == key).map(|(.., ours)| *ours);
        let is_allow =
            one.kind == "protocol/server" && key.starts_with("auth.addr.") && key.ends_with(".allow");
        if let Some(ours) = ours.or(is_allow.then_some("auth.allow")) {
            plan.options.retain(|(known, _)| known != ours);
            plan.options.push((ours.to_owned(), value.clone()));
        }
    }
    for name in &one.subvolumes {
        let below = all.iter().find(|below| below.name == *name).ok_or("the file has changed")?;
        descend(all, below, host, plan, redundant)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::import::volfile::parse;

    fn client(n: usize) -> String {
        format!(
            "volume c{n}\n type protocol/client\n option remote-host node{n}\n option remote-subvolume /srv/web\nend-volume\n"
        )
    }

    fn stacked(kind: &str, name: &str, options: &str, below: &[String]) -> String {
        format!("volume {name}\n type {kind}\n {options}\n subvolumes {}\nend-volume\n", below.join(" "))
    }

    #[test]
    fn client_volume_file_becomes_bricks_copies_and_options() {
        let clients: String = (1..=4).map(client).collect();
        let names =
            |range: std::ops::RangeInclusive<usize>| range.map(|n| format!("c{n}")).collect::<Vec<_>>();
        let text = clients
            + &stacked("cluster/replicate", "r0", "", &names(1..=2))
            + &stacked("cluster/replicate", "r1", "", &names(3..=4))
            + &stacked("cluster/distribute", "d", "", &["r0".into(), "r1".into()])
            + &stacked("performance/io-cache", "io", "option cache-size 64MB", &["d".into()])
            + &stacked("performance/write-behind", "web", "option flush-behind on", &["io".into()]);
        let plan =
            of_translators(&parse(&text).expect("it is right"), "localhost").expect("it can be planned");
        assert_eq!(plan.name.as_deref(), Some("web"));
        assert_eq!(plan.redundancy.to_string(), "replica 2");
        assert_eq!(plan.bricks, (1..=4).map(|n| format!("node{n}:/srv/web")).collect::<Vec<_>>());
        assert_eq!(plan.options, [("performance.cache-size".to_owned(), "64MB".to_owned())]);
        assert!(
            plan.notes.iter().any(|(what, so)| what.contains("write-behind") && so.contains("not needed"))
        );
    }

    #[test]
    fn process_with_bricks_of_its_own_becomes_a_dispersed_volume() {
        let brick =
            |n: usize| format!("volume b{n}\n type storage/posix\n option directory /d{n}\nend-volume\n");
        let bricks: String = (1..=3).map(brick).collect();
        let names: Vec<String> = (1..=3).map(|n| format!("b{n}")).collect();
        let text = bricks + &stacked("cluster/disperse", "e", "option redundancy 1", &names);
        let plan = of_translators(&parse(&text).expect("it is right"), "n1").expect("it can be planned");
        assert_eq!(plan.redundancy.to_string(), "disperse 3 redundancy 1");
        assert_eq!(plan.bricks, ["n1:/d1", "n1:/d2", "n1:/d3"]);
    }

    #[test]
    fn what_has_no_counterpart_is_refused_with_its_line() {
        let (one, two) = (client(1) + &client(2), ["c1".to_owned(), "c2".to_owned()]);
        for (text, why) in [
            (one.clone() + &stacked("cluster/stripe", "s", "", &two), "no stripes"),
            (
                one.clone() + &stacked("cluster/unify", "u", "", &two),
                "nothing is known of type cluster/unify",
            ),
            (
                one.clone()
                    + &stacked("cluster/replicate", "r", "", &two)
                    + &stacked("cluster/replicate", "rr", "", &["r".into()]),
                "within redundancy",
            ),
            ("volume c\n type protocol/client\nend-volume\n".to_owned(), "line 1: volume c"),
            ("volume c\n type mount/fuse\nend-volume\n".to_owned(), "no brick"),
        ] {
            let error = of_translators(&parse(&text).expect("it is right"), "h").expect_err(&text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
