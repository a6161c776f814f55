//! The tiers of a volume.

use super::count;
use super::table::Table;
use crate::admin::{PinReport, TierPlanReport, TierReport};
use crate::show;
use std::fmt::Write;

/// `volume tier NAME status`.
pub fn tiers(report: &TierReport) -> String {
    let scheme = match report.shards {
        Some((data, parity)) => format!("{data} + {parity} shards of each block"),
        None if report.replica == 1 => "1 copy of each block".into(),
        None => format!("{} copies of each block", report.replica),
    };
    let state = match (report.detaching, report.can_be_removed, report.paused) {
        (true, true, _) => "empty: `detach commit` removes it",
        (true, _, true) => "is to be detached, but moving is paused (tier.pause)",
        (true, ..) => "is being emptied",
        (false, _, true) => "in use; moving is paused (tier.pause)",
        _ => "in use",
    };
    let mut text = format!("Volume: {}\nHot tier: {scheme}\nState: {state}\n", report.name);
    for (n, brick) in report.bricks.iter().enumerate() {
        let _ = writeln!(text, "Brick{}: {brick}", n + 1);
    }
    let _ = match report.room_bytes {
        Some((total, free)) => {
            let used = total.saturating_sub(free);
            let percent = u128::from(used) * 100 / u128::from(total.max(1));
            let _ = writeln!(text, "Used: {} of {} ({percent}%)", show::bytes(used), show::bytes(total));
            let high = report.high_watermark_percent;
            if high > 0 && percent >= high.into() && !report.detaching {
                let _ = writeln!(
                    text,
                    "No block moves here: it is used to {percent}%, and the limit is {high}% (tier.high-watermark)"
                );
            }
            Ok(())
        }
        None => writeln!(text, "Used: unknown, too few of its bricks answer"),
    };
    let _ = writeln!(text, "On it: {}", count(report.hot_blocks, "block"));
    for (tier, blocks, bytes) in [
        ("cold", report.demoted_blocks, report.demoted_bytes),
        ("hot", report.promoted_blocks, report.promoted_bytes),
    ] {
        let _ =
            writeln!(text, "Moved to the {tier} tier: {}, {}", count(blocks, "block"), show::bytes(bytes));
    }
    for pin in &report.pins {
        let unknown = || format!("inode {}, which was removed, or was not found", pin.inode);
        let _ = writeln!(text, "Pinned {}: {}", pin.pinned, pin.path.clone().unwrap_or_else(unknown));
    }
    if let Some(error) = &report.last_error {
        let _ = writeln!(text, "Failed attempts: {}, the last one: {error}", report.failures);
    }
    text
}

/// `tier pin PATH`.
pub fn pin(report: &PinReport) -> String {
    let mut text = match (&report.pinned, &report.inherited_from) {
        (None, _) => "auto: its age, its reads and the room on the hot tier decide\n".to_owned(),
        (Some(tier), None) => format!("{tier}\n"),
        (Some(tier), Some(from)) => format!("{tier}, inherited from {from}\n"),
    };
    if report.pinned.is_some() && !report.has_hot_tier {
        let _ =
            writeln!(text, "Volume {} has no hot tier: this has effect when one is attached", report.volume);
    }
    text
}

/// `volume tier NAME plan`.
pub fn tier_plan(report: &TierPlanReport) -> String {
    if report.moves.is_empty() {
        return "Nothing is to be moved now\n".into();
    }
    let mut table = Table::new(&["Block", "To", ">Size", "Why", "File"]);
    for one in &report.moves {
        let (to, size) = (if one.to_hot { "hot" } else { "cold" }, show::bytes(one.bytes.into()));
        table.row(&[&one.block, &to, &size, &one.reason, &super::known(one.path.as_ref())]);
    }
    table.render(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{PinnedPath, PlannedMove};

    #[test]
    fn tiers_are_shown_with_their_state_and_how_full_they_are() {
        let report = TierReport {
            name: "web".into(),
            replica: 2,
            bricks: vec!["a:/h".parse().unwrap()],
            room_bytes: Some((1000, 250)),
            high_watermark_percent: 75,
            hot_blocks: 1,
            pins: vec![
                PinnedPath { path: Some("/db".into()), inode: 7, pinned: "hot".into() },
                PinnedPath { path: None, inode: 8, pinned: "cold".into() },
            ],
            ..TierReport::default()
        };
        let text = tiers(&report);
        for line in [
            "Hot tier: 2 copies of each block",
            "State: in use\n",
            "Brick1: a:/h",
            "(75%)\nNo block moves here: it is used to 75%, and the limit is 75% (tier.high-watermark)\n",
            "1 block\n",
            "Pinned hot: /db\n",
            "cold: inode 8,",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let leaving = TierReport { detaching: true, can_be_removed: true, room_bytes: None, ..report };
        assert!(tiers(&leaving).contains("`detach commit`") && tiers(&leaving).contains("unknown"));
    }

    #[test]
    fn pin_is_shown_with_where_it_comes_from_and_whether_it_has_effect() {
        let report = PinReport { volume: "web".into(), has_hot_tier: true, ..PinReport::default() };
        assert!(pin(&report).starts_with("auto"));
        let own = PinReport { pinned: Some("hot".into()), ..report };
        assert_eq!(pin(&own), "hot\n");
        let inherited = PinReport { inherited_from: Some("/db".into()), has_hot_tier: false, ..own };
        assert!(pin(&inherited).starts_with("hot, inherited from /db\nVolume web has no hot tier"));
    }

    #[test]
    fn plan_shows_each_block_with_its_reason() {
        let (block, path) = ("block 1.2".to_owned(), Some("/a".to_owned()));
        let one = PlannedMove { block, path, bytes: 4096, to_hot: false, reason: "not used for 2 h".into() };
        let text = tier_plan(&TierPlanReport { name: "web".into(), moves: vec![one] });
        assert!(text.contains("cold") && text.contains("not used for 2 h") && text.contains("/a"), "{text}");
        assert!(tier_plan(&TierPlanReport::default()).contains("Nothing"));
    }
}
