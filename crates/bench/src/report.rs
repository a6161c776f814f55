//! The report: a table for people to read.

use crate::measure::{Bench, Row};
use shoal_suites::table::seconds;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The part of the document above the figures. The text below the marker is kept.
const HEAD: &str = "# Benchmarks

Shoal against a plain directory on the same disk, in the same run: medians, alternating order, everything on
disk at the end of what writes (`syncfs` locally, `fsync` on the volume). Cold: Shoal restarted, the kernel's
caches dropped. Repeat them with `make bench`; one of them with `make bench BENCH=unpack`.
";
/// The part of a cluster's document above the figures.
const HEAD_CLUSTER: &str = "# Benchmarks of a cluster

Servers on one machine, each with a copy of every block and of all metadata, and one client on the same
machine, against a plain directory on the same disk. Both in the same run: medians, alternating order,
everything on disk at the end of what writes. All share one disk and the cores: what is written is written
once locally and once per server here. Cold: client and servers restarted, the kernel's caches dropped. Repeat
them with `make bench-cluster`.
";
/// The document is written by hand from here on.
const MARKER: &str = "<!-- below: written by hand, kept by make bench -->";

/// The results as a page.
pub fn page(bench: &Bench, machine: &str) -> String {
    let (head, servers) = match bench.nodes {
        0 => (HEAD, String::new()),
        nodes => (HEAD_CLUSTER, format!("{nodes} servers; ")),
    };
    let mut page = format!("{head}\nMeasured on {machine};\n{servers}{} runs each.\n\n", bench.runs);
    if !bench.rows().is_empty() {
        page.push_str("| What | Shoal | local | ratio | goal | |\n|---|--:|--:|--:|--:|---|\n");
    }
    for row in bench.rows() {
        page.push_str(&line(row));
    }
    if !bench.facts.is_empty() {
        page.push_str("\nBesides:\n\n");
        for fact in &bench.facts {
            // Writing to a string cannot fail.
            let _ = writeln!(page, "- {fact}");
        }
    }
    page
}

fn line(row: &Row) -> String {
    let (goal, met) = match row.goal {
        Some(goal) => (format!("{goal:.1}"), if row.ratio() <= goal { "met" } else { "**missed**" }),
        None => ("-".to_owned(), ""),
    };
    // A bar in a name would end its cell.
    format!(
        "| {} | {} | {} | {:.2} | {goal} | {met} |\n",
        row.what.replace('|', "\\|"),
        seconds(row.shoal()),
        seconds(row.local()),
        row.ratio()
    )
}

/// Writes the page, and keeps the text below the marker.
pub fn write(path: &Path, page: &str) -> anyhow::Result<()> {
    let old = fs::read_to_string(path).unwrap_or_default();
    let kept = old.split_once(MARKER).map(|(_, kept)| kept).unwrap_or("\n");
    fs::write(path, format!("{page}\n{MARKER}{kept}"))?;
    eprintln!("written to {}", path.display());
    Ok(())
}
