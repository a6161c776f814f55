//! Parses the words after a volume's name by GlusterFS's grammar: `replica 3 node1:/b node2:/b node3:/b
//! force`.

use crate::admin::render::Shown;
use crate::admin::{BrickName, ClearKind, RemoveStep, ScrubStep};
use crate::limits::TOP_FILES_MAX;
use crate::profile::TopOf;
use clap::error::ErrorKind;

/// The arguments of `volume create`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Creation {
    pub replica: u8,
    pub bricks: Vec<BrickName>,
    /// Nodes that keep metadata and no blocks.
    pub arbiters: Vec<String>,
    /// Data shards and parity shards of a block.
    pub shards: Option<(u8, u8)>,
    pub force: bool,
}

/// Bricks and arbiter of a set: two copies and a node that decides.
const ARBITRATED_SET: usize = 3;

/// `[replica N [arbiter 1] | disperse N [redundancy M] | disperse-data K [redundancy M]] [transport tcp]
/// HOST:/BRICK... [force]`.
pub fn creation(words: &[String]) -> Result<Creation, String> {
    let (words, force) = without_force(words);
    let Said { replica, arbitrated, dispersed, places } = said(words)?;
    if dispersed != Dispersed::default() {
        let (bricks, (data, parity)) = (names(&places)?, dispersed.shards(places.len())?);
        let (replica, arbiters, shards) = (parity.saturating_add(1), Vec::new(), Some((data, parity)));
        return Ok(Creation { replica, bricks, arbiters, shards, force });
    }
    let shards = None;
    if arbitrated {
        let (bricks, arbiters) = with_arbiters(replica, &places)?;
        return Ok(Creation { replica: shoal_cluster::ARBITRATED_COPIES, bricks, arbiters, shards, force });
    }
    let (bricks, arbiters) =
        if places.is_empty() { Default::default() } else { (names(&places)?, Vec::new()) };
    match (replica, bricks.len()) {
        (_, 0) => Err("name at least one brick, as HOST:/PATH".into()),
        (Some(replica), _) => Ok(Creation { replica, bricks, arbiters, shards, force }),
        (None, 1) => Ok(Creation { replica: 1, bricks, arbiters, shards, force }),
        // GlusterFS's default is one copy on one of the bricks, which loses data with the first disk.
        (None, count) => Err(format!(
            "say how many copies of each block there shall be: `replica {}`, or `replica 1` for no protection",
            count.min(3)
        )),
    }
}

/// The arguments of `volume convert`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conversion {
    pub replica: u8,
    /// Data shards and parity shards of a block.
    pub shards: Option<(u8, u8)>,
    pub force: bool,
}

/// `replica N | disperse N [redundancy M] | disperse-data K redundancy M, [force]`. `other` is what the
/// command takes instead.
pub fn conversion(words: &[String], other: &str) -> Result<Conversion, String> {
    let (words, force) = without_force(words);
    let Said { replica, arbitrated, dispersed, places } = said(words)?;
    if let Some(word) = places.first() {
        return Err(match word.parse::<BrickName>() {
            Ok(_) => format!("'{word}': the bricks stay as they are; `volume add-brick` adds some"),
            Err(_) => format!("'{word}': say `replica 3`, `disperse 6 redundancy 2` or `{other}`"),
        });
    }
    match (replica, dispersed) {
        (Some(replica), _) if !arbitrated => Ok(Conversion { replica, shards: None, force }),
        (None, Dispersed { all: Some(_), .. } | Dispersed { data: Some(_), parity: Some(_), .. }) => {
            let (data, parity) = dispersed.shards(0)?;
            Ok(Conversion { replica: parity.saturating_add(1), shards: Some((data, parity)), force })
        }
        _ => Err("say what the volume shall be: `replica 3`, or `disperse 6 redundancy 2`".into()),
    }
}

/// Where a hot tier stores blocks and how, as far as that was said.
pub struct Placement {
    pub replica: Option<u8>,
    /// Data shards and parity shards of a block.
    pub shards: Option<(u8, u8)>,
    pub bricks: Vec<BrickName>,
    pub force: bool,
}

/// `[replica N | disperse N [redundancy M]] HOST:/BRICK... [force]`.
pub fn placement(words: &[String]) -> Result<Placement, String> {
    let (words, force) = without_force(words);
    let Said { replica, arbitrated, dispersed, places } = said(words)?;
    if arbitrated {
        return Err("a hot tier has no arbiters: its metadata are those of the volume".into());
    }
    let bricks = names(&places)?;
    let shards = match dispersed == Dispersed::default() {
        true => None,
        false => Some(dispersed.shards(bricks.len())?),
    };
    Ok(Placement { replica, shards, bricks, force })
}

/// What the words after a volume's name say.
#[derive(Default)]
struct Said {
    replica: Option<u8>,
    arbitrated: bool,
    dispersed: Dispersed,
    /// All other words.
    places: Vec<String>,
}

fn said(words: &[String]) -> Result<Said, String> {
    let Said { mut replica, mut arbitrated, mut dispersed, mut places } = Said::default();
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "replica" => {
                let number = rest.next().map(String::as_str).unwrap_or_default();
                let copies = number.parse().ok().filter(|copies| *copies > 0);
                replica = Some(copies.ok_or_else(|| {
                    format!("'replica {number}': say how many copies of each block, as in `replica 3`")
                })?);
            }
            "transport" => match rest.next().map(String::as_str) {
                Some("tcp") => {}
                other => return Err(format!("transport {}: there is tcp only", other.unwrap_or_default())),
            },
            "arbiter" => match rest.next().map(String::as_str) {
                Some("1") => arbitrated = true,
                other => {
                    return Err(format!("arbiter {}: there is one, `arbiter 1`", other.unwrap_or_default()));
                }
            },
            "disperse" | "disperse-data" | "redundancy" => {
                let number = rest.next().map(String::as_str).unwrap_or_default();
                let count = number.parse().map_err(|_| {
                    format!("'{word} {number}': say how many, as in `disperse 6 redundancy 2`")
                })?;
                match word.as_str() {
                    "disperse" => dispersed.all = Some(count),
                    "disperse-data" => dispersed.data = Some(count),
                    _ => dispersed.parity = Some(count),
                }
            }
            "thin-arbiter" | "stripe" => {
                return Err(format!("there are no {word} volumes yet: use `replica N`"));
            }
            _ => places.push(word.clone()),
        }
    }
    if dispersed != Dispersed::default() && (replica.is_some() || arbitrated) {
        return Err("say `replica` or `disperse`: a block is in copies or in shards".into());
    }
    Ok(Said { replica, arbitrated, dispersed, places })
}

/// The numbers of a dispersed volume, as far as they were said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Dispersed {
    /// All shards of a block.
    all: Option<u8>,
    data: Option<u8>,
    parity: Option<u8>,
}

impl Dispersed {
    /// Data and parity shards. What was not said is concluded from the rest, and from the number of bricks.
    fn shards(self, bricks: usize) -> Result<(u8, u8), String> {
        let all = match self {
            Dispersed { all: Some(all), .. } => all,
            Dispersed { data: Some(data), parity: Some(parity), .. } => data.saturating_add(parity),
            _ => u8::try_from(bricks).map_err(|_| "say `disperse N`: in how many shards a block is")?,
        };
        let parity = match self {
            Dispersed { parity: Some(parity), .. } => parity,
            Dispersed { data: Some(data), .. } => all.saturating_sub(data),
            _ => default_redundancy(all),
        };
        let data = self.data.unwrap_or_else(|| all.saturating_sub(parity));
        if u16::from(data) + u16::from(parity) != u16::from(all) {
            return Err(format!("{data} data shards and {parity} parity shards are not {all} shards"));
        }
        if parity == 0 || parity >= data {
            return Err(format!(
                "{data} data shards and {parity} parity shards: there must be fewer parity shards than data shards, and one \
                 at least, as in `disperse 6 redundancy 2`"
            ));
        }
        Ok((data, parity))
    }
}

/// GlusterFS's choice: the largest number that leaves a power of two as data shards, or else 1.
fn default_redundancy(all: u8) -> u8 {
    let fits = |parity: &u8| *parity < all - *parity && (all - *parity).is_power_of_two();
    (1..=all / 2).rev().find(fits).unwrap_or(1)
}

/// Sets of two bricks and an arbiter, in this order. GlusterFS counts the arbiter as a replica, which is
/// accepted. An arbiter stores no blocks, so its path may be left out.
fn with_arbiters(replica: Option<u8>, places: &[String]) -> Result<(Vec<BrickName>, Vec<String>), String> {
    if !matches!(replica, Some(2 | 3)) {
        return Err(
            "say `replica 2 arbiter 1`: two copies, and a third node that keeps metadata and no blocks"
                .into(),
        );
    }
    if places.is_empty() || !places.len().is_multiple_of(ARBITRATED_SET) {
        return Err(format!(
            "name two bricks and an arbiter, or several such sets: HOST:/BRICK HOST:/BRICK HOST; here are {}",
            places.len()
        ));
    }
    let (mut bricks, mut arbiters) = (Vec::new(), Vec::new());
    for set in places.chunks(ARBITRATED_SET) {
        let Some((arbiter, data)) = set.split_last() else { continue };
        bricks.extend(names(data)?);
        let host = arbiter.parse().map_or_else(|_| arbiter.clone(), |brick: BrickName| brick.host);
        if !arbiters.contains(&host) {
            arbiters.push(host);
        }
    }
    Ok((bricks, arbiters))
}

const COPIES_STAY: &str =
    "the number of copies stays as it is: leave `replica N` out; `volume convert NAME replica N` changes it";

/// `HOST:/BRICK... [force]`.
pub fn bricks(words: &[String]) -> Result<(Vec<BrickName>, bool), String> {
    if words.first().is_some_and(|word| word == "replica") {
        return Err(COPIES_STAY.into());
    }
    let (words, force) = without_force(words);
    Ok((names(words)?, force))
}

/// `[replica N] HOST:/BRICK... start|status|stop|commit|force`.
pub fn removal(words: &[String]) -> Result<(Vec<BrickName>, RemoveStep), String> {
    if words.first().is_some_and(|word| word == "replica") {
        return Err(COPIES_STAY.into());
    }
    let step = match words.last().map(String::as_str) {
        Some("start") => RemoveStep::Start,
        Some("status") => RemoveStep::Status,
        Some("stop") => RemoveStep::Stop,
        Some("commit") => RemoveStep::Commit,
        Some("force") => RemoveStep::Force,
        _ => {
            return Err("end with what to do: start (move away what is on them), status, stop, commit (once they are empty) \
                        or force (give up what is on them)"
                .into());
        }
    };
    Ok((names(words.get(..words.len() - 1).unwrap_or_default())?, step))
}

fn names(words: &[String]) -> Result<Vec<BrickName>, String> {
    if words.is_empty() {
        return Err("name at least one brick, as HOST:/PATH".into());
    }
    words.iter().map(|word| word.parse().map_err(|error: crate::admin::BadName| error.to_string())).collect()
}

fn without_force(words: &[String]) -> (&[String], bool) {
    match words.split_last() {
        Some((last, rest)) if last == "force" => (rest, true),
        _ => (words, false),
    }
}

/// The arguments of `volume set`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Setting {
    /// `volume set help`.
    Help,
    /// A volume, and its new keys and values.
    Pairs(String, Vec<(String, String)>),
}

/// `help`, or `NAME KEY VALUE [KEY VALUE]...`.
pub fn setting(words: &[String]) -> Result<Setting, String> {
    match words {
        [help] if help == "help" => Ok(Setting::Help),
        [name, pairs @ ..] if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
            let pairs =
                pairs.chunks_exact(2).filter_map(|pair| Some((pair.first()?.clone(), pair.last()?.clone())));
            Ok(Setting::Pairs(name.clone(), pairs.collect()))
        }
        _ => {
            Err("say NAME KEY VALUE, as in `web auth.allow 10.0.0.0/8`; `volume set help` lists the keys"
                .into())
        }
    }
}

/// `scrub status|ondemand|pause|resume`, and the other commands of GlusterFS's `volume bitrot`. `None`: the
/// command needs no action here.
pub fn bitrot(words: &[String]) -> Result<Option<ScrubStep>, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["scrub", what] => scrub(what).map(Some),
        ["enable"] => Ok(None),
        ["disable"] => {
            Err("checksums cannot be switched off; `scrub pause` ends the reading of bricks".into())
        }
        ["scrub-throttle" | "scrub-frequency" | "signing-time" | "signer-threads", ..] => Err(
            "that cannot be set: blocks are signed when they are written, and bricks are read at a few MB/s"
                .into(),
        ),
        _ => Err("say scrub status|ondemand|pause|resume".into()),
    }
}

/// A step of scrubbing by its name.
pub fn scrub(what: &str) -> Result<ScrubStep, String> {
    match what {
        "status" => Ok(ScrubStep::Status),
        "start" | "ondemand" => Ok(ScrubStep::Start),
        "pause" => Ok(ScrubStep::Pause),
        "resume" => Ok(ScrubStep::Resume),
        _ => Err(format!("'{what}': say status, ondemand (or start), pause or resume")),
    }
}

/// The arguments of `volume clear-locks`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clearing {
    pub kind: ClearKind,
    /// Locks of programs; otherwise GlusterFS's internal ones, which do not exist here.
    pub of_programs: bool,
    /// First and last byte.
    pub range: Option<(u64, u64)>,
}

/// `kind blocked|granted|all inode|entry|posix [WHENCE,START-LENGTH]`.
pub fn clearing(words: &[String]) -> Result<Clearing, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ["kind", kind, family, range @ ..] = &words[..] else {
        return Err("say kind blocked|granted|all posix, as in `kind granted posix`".into());
    };
    let kind = match *kind {
        "blocked" => ClearKind::Blocked,
        "granted" => ClearKind::Granted,
        "all" => ClearKind::All,
        other => return Err(format!("kind '{other}': say blocked, granted or all")),
    };
    let (of_programs, range) = match (*family, range) {
        ("posix", []) => (true, None),
        ("posix", [range]) => (true, Some(byte_range(range)?)),
        // With a range, or with the name of a directory entry.
        ("inode" | "entry", [] | [_]) => (false, None),
        ("posix" | "inode" | "entry", _) => return Err("one range is enough, as in 0,0-10".into()),
        (other, _) => return Err(format!("'{other}': say posix (or GlusterFS's inode or entry)")),
    };
    Ok(Clearing { kind, of_programs, range })
}

/// The arguments of `volume profile`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profiling {
    Start,
    Stop,
    Info {
        /// The present interval goes on.
        peek: bool,
        shown: Shown,
    },
}

/// `start`, `stop`, or `info [peek|incremental [peek]|cumulative]`.
pub fn profiling(words: &[String]) -> Result<Profiling, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let info = |peek, shown| Ok(Profiling::Info { peek, shown });
    match words[..] {
        ["start"] => Ok(Profiling::Start),
        ["stop"] => Ok(Profiling::Stop),
        ["info"] => info(false, Shown::All),
        ["info", "peek"] => info(true, Shown::All),
        ["info", "incremental"] => info(false, Shown::Interval),
        ["info", "incremental", "peek"] => info(true, Shown::Interval),
        // GlusterFS leaves the interval alone, too.
        ["info", "cumulative"] => info(true, Shown::Cumulative),
        ["info", "clear"] => {
            Err("counters begin with their process and are not cleared: `start` begins an interval".into())
        }
        [.., "nfs"] => Err("there is no NFS server inside".into()),
        _ => Err("say start, stop, or info [peek|incremental [peek]|cumulative]".into()),
    }
}

/// The arguments of `volume top`: which files, or, if `None`, that they are counted anew.
pub fn topmost(words: &[String]) -> Result<Option<TopOf>, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (what, rest) = match words[..] {
        ["clear"] => return Ok(None),
        [what, ref rest @ ..] => (what, rest),
        [] => return Err("say open, read, write, opendir, readdir, read-perf, write-perf or clear".into()),
    };
    let (operation, by_bytes) = match what {
        "read-perf" => ("read", true),
        "write-perf" => ("write", true),
        other => (other, false),
    };
    if !shoal_fuse::operations().any(|known| known == operation) {
        let known: Vec<&str> = shoal_fuse::operations().collect();
        return Err(format!(
            "'{what}' is no request; there are: {}, read-perf, write-perf, clear",
            known.join(", ")
        ));
    }
    let count_max = match rest {
        [] => TOP_FILES_MAX,
        ["list-cnt", number] => match number.parse() {
            Ok(number) if (1..=TOP_FILES_MAX).contains(&number) => number,
            _ => return Err(format!("list-cnt {number}: say how many files, 1 to {TOP_FILES_MAX}")),
        },
        ["bs", ..] => return Err("this writes no test data: `shoal bench` measures, read-perf counts".into()),
        ["nfs", ..] => return Err("there is no NFS server inside".into()),
        ["brick", ..] => {
            return Err(
                "bricks hold blocks and know no files; mounts count, and all of them are shown".into()
            );
        }
        _ => return Err("after the request there may be list-cnt N".into()),
    };
    Ok(Some(TopOf { operation: operation.to_owned(), by_bytes, count_max }))
}

/// `WHENCE,START-LENGTH` as GlusterFS writes it, as first and last byte. A length of 0 means up to the end.
fn byte_range(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("'{text}' is no range: say 0,START-LENGTH, as in 0,0-10");
    let (start, len) = text.strip_prefix("0,").and_then(|rest| rest.split_once('-')).ok_or_else(wrong)?;
    let (start, len): (u64, u64) = start.parse().ok().zip(len.parse().ok()).ok_or_else(wrong)?;
    match len {
        0 => Ok((start, u64::MAX)),
        len => Ok((start, start.checked_add(len - 1).ok_or_else(wrong)?)),
    }
}

/// Exits as clap does for a wrong command line.
pub fn or_usage<T>(parsed: Result<T, String>) -> T {
    parsed.unwrap_or_else(|why| clap::Error::raw(ErrorKind::ValueValidation, format!("{why}\n")).exit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn volumes_are_created_in_the_words_that_glusterfs_has() {
        let made = creation(&words("replica 3 transport tcp a:/b b:/b c:/b d:/b force")).unwrap();
        assert_eq!((made.replica, made.bricks.len(), made.force), (3, 4, true));
        assert_eq!(made.bricks[3].to_string(), "d:/b");
        let made = creation(&words("a:/force")).unwrap();
        assert_eq!((made.replica, made.force), (1, false));
        for (bad, why) in [
            ("", "at least one brick"),
            ("force", "at least one brick"),
            ("replica 3", "at least one brick"),
            ("a:/b b:/b c:/b d:/b", "`replica 3`"),
            ("a:/b b:/b", "`replica 2`"),
            ("replica a:/b", "'replica a:/b'"),
            ("replica 0 a:/b", "'replica 0'"),
            ("replica 300 a:/b", "'replica 300'"),
            ("replica", "'replica '"),
            ("transport rdma a:/b", "tcp only"),
            ("stripe 3 a:/b", "no stripe volumes"),
            ("disperse a:/b", "'disperse a:/b'"),
            ("disperse 6 redundancy 3 a:/b", "fewer parity shards"),
            ("disperse 6 redundancy 0 a:/b", "fewer parity shards"),
            ("disperse 6 disperse-data 3 redundancy 2 a:/b", "are not 6 shards"),
            ("replica 3 disperse 3 a:/b", "`replica` or `disperse`"),
            ("disperse 3 redundancy 1", "at least one brick"),
            ("replica 1 a:b", "'a:b' is no brick"),
            ("force a:/b", "'force' is no brick"),
        ] {
            let error = creation(&words(bad)).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn dispersed_volume_takes_what_is_not_said_from_the_rest() {
        let bricks = "a:/b b:/b c:/b d:/b e:/b f:/b";
        for (text, shards) in [
            ("disperse 6 redundancy 2", (4, 2)),
            ("disperse 6", (4, 2)),
            ("disperse 3", (2, 1)),
            ("disperse 5", (4, 1)),
            ("disperse-data 4 redundancy 2", (4, 2)),
            ("disperse-data 5", (5, 1)),
            ("redundancy 1", (5, 1)),
            ("disperse 6 disperse-data 4", (4, 2)),
        ] {
            let made = creation(&words(&format!("{text} {bricks} force"))).unwrap();
            assert_eq!((made.shards, made.bricks.len(), made.force), (Some(shards), 6, true), "{text}");
            assert_eq!(made.replica, shards.1 + 1);
        }
    }

    #[test]
    fn arbiter_is_the_last_of_each_three_in_both_spellings() {
        for text in ["replica 2 arbiter 1 a:/b b:/b c", "replica 3 arbiter 1 a:/b b:/b c:/b"] {
            let made = creation(&words(text)).unwrap();
            assert_eq!((made.replica, made.bricks.len(), made.force), (2, 2, false), "{text}");
            assert_eq!(made.arbiters, ["c"], "{text}");
        }
        let made = creation(&words("replica 2 arbiter 1 a:/b b:/b e c:/b d:/b e force")).unwrap();
        assert_eq!((made.bricks.len(), made.arbiters, made.force), (4, vec!["e".to_owned()], true));
        for (bad, why) in [
            ("arbiter 1 a:/b b:/b c", "`replica 2 arbiter 1`"),
            ("replica 4 arbiter 1 a:/b b:/b c", "`replica 2 arbiter 1`"),
            ("replica 2 arbiter 2 a:/b b:/b c", "`arbiter 1`"),
            ("replica 2 arbiter 1 a:/b b:/b", "here are 2"),
            ("replica 2 arbiter 1", "here are 0"),
            ("replica 2 arbiter 1 a b:/b c", "'a' is no brick"),
        ] {
            let error = creation(&words(bad)).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn bricks_are_removed_step_by_step() {
        for (word, step) in [
            ("start", RemoveStep::Start),
            ("status", RemoveStep::Status),
            ("stop", RemoveStep::Stop),
            ("commit", RemoveStep::Commit),
            ("force", RemoveStep::Force),
        ] {
            let (bricks, got) = removal(&words(&format!("a:/b c:/d {word}"))).unwrap();
            assert_eq!((bricks.len(), got), (2, step));
        }
        for (bad, why) in [
            ("", "what to do"),
            ("a:/b", "what to do"),
            ("start", "at least one brick"),
            ("replica 2 a:/b start", "leave `replica N` out"),
            ("a:/b oops start", "'oops' is no brick"),
        ] {
            let error = removal(&words(bad)).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn bricks_may_be_followed_by_force() {
        assert_eq!(
            bricks(&words("a:/b c:/d force")).map(|(bricks, force)| (bricks.len(), force)),
            Ok((2, true))
        );
        assert_eq!(bricks(&words("a:/b")).map(|(bricks, force)| (bricks.len(), force)), Ok((1, false)));
        assert!(bricks(&words("")).is_err() && bricks(&words("b")).is_err());
    }

    #[test]
    fn settings_come_in_pairs() {
        assert_eq!(setting(&words("help")), Ok(Setting::Help));
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let pairs = vec![pair("a", "1"), pair("b", "2")];
        assert_eq!(setting(&words("web a 1 b 2")), Ok(Setting::Pairs("web".into(), pairs)));
        for bad in ["", "web", "web a", "web a 1 b"] {
            assert!(setting(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn scrubbing_is_understood_as_glusterfs_spells_it() {
        assert_eq!(bitrot(&words("scrub status")), Ok(Some(ScrubStep::Status)));
        assert_eq!(bitrot(&words("scrub ondemand")), Ok(Some(ScrubStep::Start)));
        assert_eq!(bitrot(&words("enable")), Ok(None));
        for bad in ["", "scrub", "scrub now", "disable", "scrub-throttle lazy"] {
            assert!(bitrot(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn profiles_and_busiest_files_are_asked_for_in_the_words_that_glusterfs_has() {
        let info = |peek, shown| Ok(Profiling::Info { peek, shown });
        for (line, expected) in [
            ("start", Ok(Profiling::Start)),
            ("stop", Ok(Profiling::Stop)),
            ("info", info(false, Shown::All)),
            ("info peek", info(true, Shown::All)),
            ("info incremental peek", info(true, Shown::Interval)),
            ("info cumulative", info(true, Shown::Cumulative)),
        ] {
            assert_eq!(profiling(&words(line)), expected, "{line}");
        }
        for bad in ["", "begin", "info clear", "info nfs", "start now"] {
            assert!(profiling(&words(bad)).is_err(), "{bad}");
        }
        let of = |operation: &str, by_bytes, count_max| {
            Ok(Some(TopOf { operation: operation.into(), by_bytes, count_max }))
        };
        for (line, expected) in [
            ("clear", Ok(None)),
            ("open", of("open", false, 100)),
            ("readdir list-cnt 10", of("readdir", false, 10)),
            ("write-perf", of("write", true, 100)),
            ("copy_file_range list-cnt 1", of("copy_file_range", false, 1)),
        ] {
            assert_eq!(topmost(&words(line)), expected, "{line}");
        }
        for (bad, why) in [
            ("", "say open"),
            ("format", "getattr"),
            ("read list-cnt 0", "1 to 100"),
            ("read list-cnt 101", "1 to 100"),
            ("read-perf bs 256 count 1", "shoal bench"),
            ("read brick a:/b", "bricks hold blocks"),
            ("read oops", "list-cnt"),
        ] {
            let error = topmost(&words(bad)).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn conversion_says_copies_or_shards_and_no_bricks() {
        let converted =
            |text: &str| conversion(&words(text), "status").map(|it| (it.replica, it.shards, it.force));
        assert_eq!(converted("replica 3"), Ok((3, None, false)));
        for text in ["disperse 6 redundancy 2", "disperse-data 4 redundancy 2", "disperse 6 disperse-data 4"]
        {
            assert_eq!(converted(text), Ok((3, Some((4, 2)), false)), "{text}");
        }
        assert_eq!(converted("disperse 3 force"), Ok((2, Some((2, 1)), true)));
        for (bad, why) in [
            ("", "say what"),
            ("redundancy 2", "say what"),
            ("replica 3 arbiter 1", "say what"),
            ("replica 3 a:/b", "the bricks stay"),
            ("replica 3 disperse 6", "or in shards"),
            ("disperse 4 redundancy 3", "fewer parity"),
            ("stauts", "or `status`"),
        ] {
            let error = conversion(&words(bad), "status").unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn locks_are_cleared_in_the_words_that_glusterfs_has() {
        let clear = |kind, of_programs, range| Ok(Clearing { kind, of_programs, range });
        for (line, expected) in [
            ("kind all posix", clear(ClearKind::All, true, None)),
            ("kind granted posix 0,10-5", clear(ClearKind::Granted, true, Some((10, 14)))),
            ("kind blocked posix 0,10-0", clear(ClearKind::Blocked, true, Some((10, u64::MAX)))),
            ("kind all inode 0,0-1", clear(ClearKind::All, false, None)),
            ("kind all entry name", clear(ClearKind::All, false, None)),
        ] {
            assert_eq!(clearing(&words(line)), expected, "{line}");
        }
        for bad in [
            "",
            "kind",
            "kind all",
            "kind some posix",
            "kind all fcntl",
            "kind all posix 1,0-1",
            "kind all posix 0-1",
        ] {
            assert!(clearing(&words(bad)).is_err(), "{bad}");
        }
    }
}
