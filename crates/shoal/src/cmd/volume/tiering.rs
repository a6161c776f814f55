//! The words of `volume tier`, and how many copies a hot tier keeps.
//!
//! New content is on the hot tier only. So a tier for which no number is said tolerates as many losses as its
//! volume does, and a tier that tolerates fewer is reported to the administrator.

use super::grammar::{Placement, placement};
use crate::admin::{BrickName, TierStep};
use std::collections::BTreeSet;

/// The arguments of `volume tier`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tiering {
    Attach(Attachment),
    Step(TierStep),
}

/// `attach [replica N | disperse N [redundancy M]] HOST:/BRICK... [force]`, `status`, `plan`, or
/// `detach start|status|stop|commit`.
pub fn tiering(words: &[String]) -> Result<Tiering, String> {
    if let [attach, rest @ ..] = words
        && attach == "attach"
    {
        return attachment(rest).map(Tiering::Attach);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(Tiering::Step(match words[..] {
        ["status"] | ["detach", "status"] => TierStep::Status,
        ["plan"] => TierStep::Plan,
        ["detach", "start"] => TierStep::DetachStart,
        ["detach", "stop"] => TierStep::DetachStop,
        ["detach", "commit"] => TierStep::DetachCommit,
        ["detach", "force"] | ["detach", "commit", "force"] => {
            return Err(
                "what is on the hot tier is nowhere else: `detach start` moves it, then `detach commit`"
                    .into(),
            );
        }
        _ => {
            return Err(
                "say attach [replica N] HOST:/BRICK..., status, plan, or detach start|status|stop|commit"
                    .into(),
            );
        }
    }))
}

/// The arguments of `volume tier NAME attach`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attachment {
    /// Copies of a block, and data shards and parity shards, if any of that was said.
    said: Option<(u8, Option<(u8, u8)>)>,
    pub bricks: Vec<BrickName>,
    pub force: bool,
}

/// How the hot tier stores blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scheme {
    /// Copies of a block, unless it is in shards.
    pub replica: u8,
    /// Data shards and parity shards.
    pub shards: Option<(u8, u8)>,
    /// What the administrator should know about it.
    pub note: Option<String>,
}

/// `[replica N | disperse N [redundancy M]] HOST:/BRICK... [force]`.
fn attachment(words: &[String]) -> Result<Attachment, String> {
    let Placement { replica, shards, bricks, force } = placement(words)?;
    let said = match shards {
        Some((data, parity)) => Some((parity.saturating_add(1), Some((data, parity)))),
        None => replica.map(|replica| (replica, None)),
    };
    Ok(Attachment { said, bricks, force })
}

impl Attachment {
    /// The scheme of the hot tier of a volume whose blocks have `copies` copies. A block in shards counts as
    /// one more copies than it has parity shards.
    pub fn scheme(&self, volume: &str, copies: u8) -> Result<Scheme, String> {
        let note = |replica| {
            (replica < copies).then(|| match replica {
                1 => "the hot tier keeps one copy of each block: a lost brick loses what is only there"
                    .to_owned(),
                _ => format!(
                    "a block on the hot tier survives {} lost bricks, on the cold tier {}",
                    replica.saturating_sub(1),
                    copies.saturating_sub(1)
                ),
            })
        };
        if let Some((replica, shards)) = self.said {
            return Ok(Scheme { replica, shards, note: note(replica) });
        }
        let wanted = usize::from(copies);
        let hosts: BTreeSet<&str> = self.bricks.iter().map(|brick| brick.host.as_str()).collect();
        let (bricks, nodes) = (self.bricks.len(), hosts.len());
        if bricks < wanted || nodes < wanted && !self.force {
            return Err(format!(
                "volume {volume} survives {} lost bricks, and so does its hot tier by default, with {copies} copies of \
                 each block: name {copies} bricks on {copies} nodes (here: {bricks} on {nodes}), or say `replica 1` \
                 before them if one copy is really wanted: a lost brick loses what is only there",
                copies.saturating_sub(1)
            ));
        }
        Ok(Scheme { replica: copies, shards: None, note: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn scheme(text: &str, copies: u8) -> Result<Scheme, String> {
        attachment(&words(text))?.scheme("web", copies)
    }

    #[test]
    fn tiers_are_attached_and_detached_in_the_words_that_glusterfs_has() {
        let attached = |text: &str| match tiering(&words(text)) {
            Ok(Tiering::Attach(made)) => (made.bricks.len(), made.force),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(attached("attach replica 2 a:/h b:/h"), (2, false));
        assert_eq!(attached("attach disperse 3 redundancy 1 a:/h b:/h c:/h force"), (3, true));
        for (text, step) in [
            ("status", TierStep::Status),
            ("detach status", TierStep::Status),
            ("plan", TierStep::Plan),
            ("detach start", TierStep::DetachStart),
            ("detach stop", TierStep::DetachStop),
            ("detach commit", TierStep::DetachCommit),
        ] {
            assert_eq!(tiering(&words(text)), Ok(Tiering::Step(step)), "{text}");
        }
        for (bad, why) in [
            ("", "say attach"),
            ("detach", "say attach"),
            ("detach force", "nowhere else"),
            ("attach", "at least one brick"),
            ("attach replica 2 arbiter 1 a:/h b:/h c", "no arbiters"),
        ] {
            let error = tiering(&words(bad)).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn hot_tier_keeps_as_many_copies_as_its_volume_if_none_are_said() {
        let three = scheme("a:/t b:/t c:/t", 3).unwrap();
        assert_eq!((three.replica, three.shards, three.note), (3, None, None));
        assert_eq!(scheme("a:/t a:/u b:/t force", 3).unwrap().replica, 3);
        let one = scheme("a:/t", 1).unwrap();
        assert_eq!((one.replica, one.note), (1, None), "a volume of single copies stays as it is");
        assert_eq!(scheme("a:/t b:/t", 1).unwrap().replica, 1);
    }

    #[test]
    fn too_few_bricks_or_nodes_for_the_default_are_refused_with_what_to_say() {
        for words in ["a:/t", "a:/t b:/t", "a:/t a:/u b:/t", "a:/t b:/t force"] {
            let why = scheme(words, 3).unwrap_err();
            assert!(
                why.contains("name 3 bricks on 3 nodes") && why.contains("`replica 1`"),
                "{words}: {why}"
            );
        }
    }

    #[test]
    fn fewer_copies_than_the_volume_has_are_accepted_with_a_note() {
        let one = scheme("replica 1 a:/t", 3).unwrap();
        assert_eq!(
            (one.replica, one.note.is_some_and(|note| note.contains("a lost brick loses"))),
            (1, true)
        );
        let two = scheme("replica 2 a:/t b:/t", 3).unwrap();
        assert_eq!(
            two.note.as_deref(),
            Some("a block on the hot tier survives 1 lost bricks, on the cold tier 2")
        );
        assert_eq!(scheme("replica 3 a:/t b:/t c:/t", 3).unwrap().note, None);
        let shards = scheme("disperse 3 redundancy 1 a:/t b:/t c:/t", 2).unwrap();
        assert_eq!((shards.replica, shards.shards, shards.note), (2, Some((2, 1)), None));
        assert!(scheme("replica 3 arbiter 1 a:/t b:/t c:/t", 2).unwrap_err().contains("arbiters"));
        assert!(scheme("replica 2", 2).unwrap_err().contains("at least one brick"));
    }
}
