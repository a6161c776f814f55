//! The results as text.

use crate::outcome::Outcome;
use crate::plan::Suite;
use crate::statistics::spread;
use crate::suites::trees::split_mounts;
use std::fmt::Write;

/// Seconds in a unit that suits them.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        ..0.001 => format!("{:.0} µs", seconds * 1e6),
        ..0.01 => format!("{:.1} ms", seconds * 1e3),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// The text of a system's cell: median, spread, ratio to the first system, requests per file.
pub fn cell(outcome: &Outcome, row: usize, system: usize) -> String {
    let row = &outcome.rows[row];
    let Some(median) = row.median(system) else { return "-".to_owned() };
    let mut cell = seconds(median);
    if let Some(spread) = spread(&row.seconds[system]) {
        let _ = write!(cell, " ±{:.0}%", spread * 50.0);
    }
    if let Some(ratio) = row.ratio(system).filter(|_| system > 0) {
        let _ = write!(cell, " {ratio:.2}x");
    }
    if let Some(requests) = row.requests(system) {
        let _ = write!(cell, " {requests:.2} req");
    }
    cell
}

/// What the cells mean.
pub const LEGEND: &str = "Median of the rounds, ± half of what lies between the fastest and the slowest; 1.50x: \
                          takes 1.5 times as long as the first directory; req: requests of the kernel per file.";

/// The table, with a head and the notes.
pub fn table(outcome: &Outcome) -> String {
    let mut lines = vec![vec!["".to_owned()]];
    lines[0].extend(outcome.systems.iter().map(|system| system.label.clone()));
    for (number, row) in outcome.rows.iter().enumerate() {
        let mut line = vec![format!("{}: {}", row.suite, row.what)];
        line.extend((0..outcome.systems.len()).map(|system| cell(outcome, number, system)));
        lines.push(line);
    }
    let mut text = format!("{}\n{}{LEGEND}\n", outcome.machine, aligned(&lines));
    for note in &outcome.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text.push_str(&by_mounts(outcome));
    text
}

/// Lines of equally many cells, in columns.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut padded = String::new();
        for (column, cell) in line.iter().enumerate() {
            let gap = if column == 0 { "" } else { "   " };
            let _ = write!(padded, "{gap}{cell:<width$}", width = widths[column]);
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

/// The suite `cluster` by number of mounts: the time of some work by one mount, by two, and so on, and how
/// many times as long as by one that is. Empty if the suite did not run.
fn by_mounts(outcome: &Outcome) -> String {
    let rows: Vec<(&str, usize, usize)> = outcome
        .rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.suite == Suite::Cluster.name())
        .map(|(number, row)| {
            let (work, mounts) = split_mounts(&row.what);
            (work, mounts, number)
        })
        .collect();
    let Some(most) = rows.iter().map(|(_, mounts, _)| *mounts).max() else { return String::new() };
    let mut lines = vec![vec!["mounts at work".to_owned()]];
    lines[0].extend((1..=most).map(|mounts| mounts.to_string()));
    for system in 0..outcome.systems.len() {
        for (work, _, first) in rows.iter().filter(|(_, mounts, _)| *mounts == 1) {
            let alone = outcome.rows[*first].median(system).filter(|seconds| *seconds > 0.0);
            let mut line = vec![format!("{}: {work}", outcome.systems[system].label)];
            line.extend((1..=most).map(|mounts| {
                let row = rows.iter().find(|row| row.0 == *work && row.1 == mounts);
                let median = row.and_then(|row| outcome.rows[row.2].median(system));
                match (median, alone) {
                    (Some(median), Some(alone)) => format!("{} {:.2}x", seconds(median), median / alone),
                    _ => "-".to_owned(),
                }
            }));
            lines.push(line);
        }
    }
    format!("\n{}{BY_MOUNTS}\n", aligned(&lines))
}

/// What the cells by number of mounts mean.
const BY_MOUNTS: &str = "Own trees: each mount does the work of one; common tree: the mounts share that work, and each \
                         of them reads all. 1.50x: takes 1.5 times as long as by one mount.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::example;

    #[test]
    fn table_shows_median_spread_ratio_and_requests() {
        let text = table(&example());
        let line = text.lines().find(|line| line.starts_with("untar: unpack")).unwrap();
        assert!(line.contains("2.00 s ±50%"), "{line}");
        assert!(line.contains("1.00 s ±25% 0.50x 11.00 req"), "{line}");
        assert!(text.contains("Note: as root."), "{text}");
        assert!(!text.contains("mounts at work"), "{text}");
    }

    #[test]
    fn cluster_is_also_shown_by_number_of_mounts() {
        let mut outcome = example();
        let row = &mut outcome.rows[0];
        row.suite = "cluster".into();
        row.what = "own trees: unpack".into();
        let mut several = row.clone();
        several.what = "own trees: unpack on 2 mounts at once".into();
        several.seconds = vec![vec![3.0], vec![]];
        outcome.rows.push(several);
        let text = table(&outcome);
        let shown = text.split("mounts at work").nth(1).unwrap();
        assert!(
            shown
                .lines()
                .any(|line| line.contains("plain: own trees: unpack") && line.contains("3.00 s 1.50x"))
        );
        assert!(shown.contains("1.00 s 1.00x   -"), "{shown}");
    }
}
