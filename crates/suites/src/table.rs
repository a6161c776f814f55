//! The results as text.

use crate::outcome::Outcome;
use crate::statistics::spread;
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
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = format!("{}\n", outcome.machine);
    for line in &lines {
        let mut padded = String::new();
        for (column, cell) in line.iter().enumerate() {
            let gap = if column == 0 { "" } else { "   " };
            let _ = write!(padded, "{gap}{cell:<width$}", width = widths[column]);
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text.push_str(LEGEND);
    text.push('\n');
    for note in &outcome.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text
}

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
    }
}
