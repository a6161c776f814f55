//! The words after a volume's name, in the grammar that GlusterFS has: `replica 3 node1:/b node2:/b node3:/b force`.

use crate::admin::{BrickName, RemoveStep};
use clap::error::ErrorKind;

/// What `volume create` was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Creation {
    pub replica: u8,
    pub bricks: Vec<BrickName>,
    /// Nodes that keep metadata and no blocks.
    pub arbiters: Vec<String>,
    pub force: bool,
}

/// Bricks and arbiter of a set: two copies and a node that decides.
const ARBITRATED_SET: usize = 3;

/// `[replica N [arbiter 1]] [transport tcp] HOST:/BRICK... [force]`.
pub fn creation(words: &[String]) -> Result<Creation, String> {
    let (words, force) = without_force(words);
    let (mut replica, mut places, mut arbitrated) = (None, Vec::new(), false);
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
            "disperse" | "redundancy" | "thin-arbiter" | "stripe" => {
                return Err(format!("there are no {word} volumes yet: use `replica N`"));
            }
            _ => places.push(word.clone()),
        }
    }
    if arbitrated {
        let (bricks, arbiters) = with_arbiters(replica, &places)?;
        return Ok(Creation { replica: shoal_cluster::ARBITRATED_COPIES, bricks, arbiters, force });
    }
    let (bricks, arbiters) =
        if places.is_empty() { Default::default() } else { (names(&places)?, Vec::new()) };
    match (replica, bricks.len()) {
        (_, 0) => Err("name at least one brick, as HOST:/PATH".into()),
        (Some(replica), _) => Ok(Creation { replica, bricks, arbiters, force }),
        (None, 1) => Ok(Creation { replica: 1, bricks, arbiters, force }),
        // There, the default is one copy on one of the bricks, which people learn when a disk dies.
        (None, count) => Err(format!(
            "say how many copies of each block there shall be: `replica {}`, or `replica 1` for no protection",
            count.min(3)
        )),
    }
}

/// Sets of two bricks and an arbiter, in this order. GlusterFS counts the arbiter as a replica, which is
/// accepted. An arbiter stores nothing in a brick, so its path may be left out.
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

/// `HOST:/BRICK... [force]`.
pub fn bricks(words: &[String]) -> Result<(Vec<BrickName>, bool), String> {
    let (words, force) = without_force(words);
    Ok((names(words)?, force))
}

/// `[replica N] HOST:/BRICK... start|status|stop|commit|force`.
pub fn removal(words: &[String]) -> Result<(Vec<BrickName>, RemoveStep), String> {
    if words.first().is_some_and(|word| word == "replica") {
        return Err("the number of copies stays as it is: leave `replica N` out".into());
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

/// Ends the program as a wrong command line does.
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
            ("disperse 3 a:/b", "no disperse volumes"),
            ("replica 1 a:b", "'a:b' is no brick"),
            ("force a:/b", "'force' is no brick"),
        ] {
            let error = creation(&words(bad)).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
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
}
