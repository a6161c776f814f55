//! Plain text tables, for scripts and for output that is no terminal.

use super::columns;
use super::state::{Shown, Sort, sorted, sorted_files};
use crate::admin::render::Table;
use crate::limits::TOP_TEXT_ROWS_MAX;
use crate::rates::Row;
use crate::show;
use std::fmt::Write;

/// All tables.
pub fn tables(shown: &Shown, sort: Sort, has_files: bool) -> String {
    let mut text = String::new();
    let volume = shown.volume.as_deref().unwrap_or("(no volume)");
    let at = shown.at.map_or_else(String::new, |at| format!(", {}", show::date(at)));
    let node = shown.node.as_deref().map_or_else(String::new, |node| format!(", asked {node}"));
    let _ = writeln!(text, "{volume}{at}{node}");
    for note in &shown.notes {
        let _ = writeln!(text, "note: {note}");
    }
    if let Some(total) = &shown.sample.total {
        let [mean, p99] = [total.mean_ns, total.p99_ns].map(show::nanos);
        let _ = writeln!(
            text,
            "all mounts: {} ops/s, {} MB/s read, {} MB/s written, latency {mean} mean, {p99} p99",
            columns::count(total.operations),
            columns::megabytes(total.read_bytes),
            columns::megabytes(total.written_bytes),
        );
    }
    add_rows(&mut text, "mount", &shown.sample.mounts, sort);
    add_rows(&mut text, "brick", &shown.sample.bricks, sort);
    if has_files {
        for (title, directories) in [("file", false), ("directory", true)] {
            let rows = sorted_files(&shown.files, sort, directories);
            let mut table = Table::new(&[title, ">ops/s", ">rd MB/s", ">wr MB/s", "mount"]);
            for row in rows.iter().take(TOP_TEXT_ROWS_MAX) {
                let [ops, read, written] = columns::file(row);
                table.row(&[&row.path, &ops, &read, &written, &columns::users(row)]);
            }
            let _ = write!(text, "\n{}", table.render(false));
            add_rest(&mut text, rows.len());
        }
    }
    text
}

fn add_rows(text: &mut String, title: &'static str, rows: &[Row], sort: Sort) {
    let mut table = Table::new(&[title, ">ops/s", ">rd MB/s", ">wr MB/s", ">mean", ">p99", "most time"]);
    for row in sorted(rows, sort).into_iter().take(TOP_TEXT_ROWS_MAX) {
        let [ops, read, written, mean, p99, busiest] = columns::row(row);
        let busiest = row.trouble.clone().unwrap_or(busiest);
        table.row(&[&row.name, &ops, &read, &written, &mean, &p99, &busiest]);
    }
    let _ = write!(text, "\n{}", table.render(false));
    add_rest(text, rows.len());
}

fn add_rest(text: &mut String, rows: usize) {
    if rows > TOP_TEXT_ROWS_MAX {
        let _ = writeln!(text, "and {} more", rows - TOP_TEXT_ROWS_MAX);
    }
}
