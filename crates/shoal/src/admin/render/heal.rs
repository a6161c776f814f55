//! Blocks that are being moved: healing, spreading, removal of bricks.

use super::count;
use super::table::Table;
use crate::admin::{
    ConversionReport, HealReport, LossesReport, RebalanceReport, RebalanceState, RemovalReport, RemovalState,
    SchemeOfReport,
};
use crate::show;
use std::fmt::Write;

/// `volume heal NAME info`.
pub fn heal(report: &HealReport) -> String {
    let mut text = String::new();
    for brick in &report.bricks {
        let _ = writeln!(text, "{}\n", super::connected(brick));
    }
    let _ = writeln!(text, "Number of blocks to heal: {}", report.degraded);
    if report.waiting > 0 {
        let _ = writeln!(
            text,
            "Waiting for bricks to answer, or to have room: {}",
            count(report.waiting, "block")
        );
    }
    if report.failures > 0 {
        let _ = writeln!(text, "NO GOOD COPY COULD BE READ of {}", count(report.failures, "block"));
    }
    if let Some(error) = report.last_error.as_ref().filter(|_| report.waiting + report.failures > 0) {
        let _ = writeln!(text, "Last trouble: {error}");
    }
    if let Some(losses) = &report.losses {
        text.push_str(&survived(losses));
    }
    if report.scanning {
        let _ = writeln!(text, "Under way: {} done, the number may grow", count(report.examined, "block"));
    }
    let _ = writeln!(
        text,
        "Copied so far by the server of {}, which leads: {}, {}",
        report.leader,
        count(report.copied_blocks, "block"),
        show::bytes(report.copied_bytes),
    );
    text
}

/// What blocks survive, and those that cannot be read now.
fn survived(losses: &LossesReport) -> String {
    let mut text = String::new();
    if losses.classes.is_empty() {
        return text;
    }
    let mut table = Table::new(&["Blocks in", "Survive further losses", ">Number", ">Size"]);
    for class in &losses.classes {
        let survives = match (class.survives, class.whole) {
            (None, _) => "UNREADABLE NOW".to_owned(),
            (Some(losses), true) => format!("{losses} (whole)"),
            (Some(losses), false) => losses.to_string(),
        };
        let tier = if class.hot { ", hot" } else { "" };
        let stored = format!("{}{tier}", scheme(class.shards, class.copies));
        table.row(&[&stored, &survives, &class.blocks, &show::bytes(class.bytes)]);
    }
    let _ = writeln!(text, "\n{}", table.render(true));
    if !losses.unreadable.is_empty() {
        let _ = writeln!(
            text,
            "Unreadable while so many bricks are lost or down: {}",
            losses.unreadable.join(" ")
        );
    }
    text
}

/// `copies`: 0 if an older server does not say how many.
fn scheme(shards: Option<(u8, u8)>, copies: u8) -> String {
    match (shards, copies) {
        (Some((data, parity)), _) => format!("{data} + {parity} shards"),
        (None, 0) => "copies".into(),
        (None, 1) => "1 copy".into(),
        (None, copies) => format!("{copies} copies"),
    }
}

/// `volume rebalance NAME status`.
pub fn rebalance(report: &RebalanceReport) -> String {
    let mut table = Table::new(&["Volume", ">Moved", ">Size", ">Scanned", ">Failures", "Status"]);
    let status = match report.state {
        RebalanceState::NotStarted => "not started",
        RebalanceState::InProgress => "in progress",
        RebalanceState::Completed => "completed",
        RebalanceState::Stopped => "stopped",
    };
    let size = show::bytes(report.copied_bytes);
    table.row(&[&report.name, &report.moved, &size, &report.examined, &report.failures, &status]);
    table.render(true)
}

/// `volume convert NAME status`.
pub fn conversion(report: &ConversionReport) -> String {
    let mut table = Table::new(&["Blocks in", ">Number", ">Size", ">To convert"]);
    for scheme in &report.schemes {
        let stored = self::scheme(scheme.shards, scheme.copies);
        table.row(&[&stored, &scheme.blocks, &show::bytes(scheme.bytes), &scheme.left]);
    }
    let left: u64 = report.schemes.iter().map(|scheme| scheme.left).sum();
    let state = if left == 0 { "completed" } else { "in progress" };
    let mut text = format!("Volume: {}\nConversion: {state}\n", report.name);
    for of in &report.directories {
        let unknown = || format!("inode {}, which was removed, or was not found", of.inode);
        let _ = writeln!(text, "{}: {}", of.path.clone().unwrap_or_else(unknown), of.scheme);
    }
    format!("{text}\n{}", table.render(true))
}

/// `scheme PATH`.
pub fn scheme_of(report: &SchemeOfReport) -> String {
    match (&report.scheme, &report.inherited_from) {
        (None, _) => format!("auto: {}, as volume {}\n", report.of_volume, report.volume),
        (Some(scheme), None) => format!("{scheme}\n"),
        (Some(scheme), Some(from)) => format!("{scheme}, inherited from {from}\n"),
    }
}

/// `volume remove-brick NAME ... status`.
pub fn removal(bricks: &[RemovalReport]) -> String {
    let mut table = Table::new(&["Brick", "Status", ">Blocks left"]);
    for report in bricks {
        let status = match report.state {
            RemovalState::NotStarted => "not started",
            RemovalState::InProgress => "in progress",
            RemovalState::Completed => "completed",
        };
        table.row(&[&report.brick, &status, &super::known(report.blocks_left)]);
    }
    table.render(true)
}
