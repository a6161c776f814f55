//! The results as one HTML page that needs nothing else: no script, no font, no image of another place.

use crate::outcome::{Outcome, date};
use crate::statistics::range;
use crate::table::{LEGEND, cell, seconds};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// Text within HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML allows no other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The page. It is well-formed XML, too.
pub fn page(outcome: &Outcome) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>shoal bench</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>shoal bench</h1>\n"
    );
    head(&mut page, outcome);
    let mut suite = "";
    for (number, row) in outcome.rows.iter().enumerate() {
        if row.suite != suite {
            if !suite.is_empty() {
                page.push_str("</section>\n");
            }
            suite = &row.suite;
            let _ = writeln!(page, "<section>\n<h2>{}</h2>", escape(suite));
        }
        chart(&mut page, outcome, number);
    }
    if !suite.is_empty() {
        page.push_str("</section>\n");
    }
    table(&mut page, outcome);
    page.push_str("</body>\n</html>\n");
    page
}

fn head(page: &mut String, outcome: &Outcome) {
    let plan = &outcome.plan;
    let _ = writeln!(
        page,
        "<p>{}<br/>{}, shoal {}, {} rounds, {} threads</p>\n<ul class=\"systems\">",
        escape(&outcome.machine),
        date(outcome.unix_seconds),
        escape(&outcome.version),
        plan.rounds,
        plan.threads
    );
    for (number, system) in outcome.systems.iter().enumerate() {
        let _ = writeln!(
            page,
            "<li><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"s{}\" width=\"10\" \
             height=\"10\"/></svg> <b>{}</b> <span class=\"dim\">{}</span></li>",
            number % COLOURS,
            escape(&system.label),
            escape(&system.filesystem)
        );
    }
    let _ = writeln!(page, "</ul>\n<p class=\"dim\">{}</p>", escape(LEGEND));
    for note in &outcome.notes {
        let _ = writeln!(page, "<p class=\"note\">Note: {}.</p>", escape(note));
    }
}

/// Colours in the style sheet; further systems begin with the first one again.
const COLOURS: usize = 6;

/// A bar for each system: as long as its median, with a line from the fastest to the slowest round.
fn chart(page: &mut String, outcome: &Outcome, number: usize) {
    let row = &outcome.rows[number];
    let longest = range(&row.seconds.concat()).map_or(1.0, |(_, most)| most).max(f64::MIN_POSITIVE);
    let place = |seconds: f64| 1000.0 * seconds / longest;
    let _ = writeln!(page, "<h3>{}</h3>\n<div class=\"chart\">", escape(&row.what));
    for (system, of_it) in outcome.systems.iter().enumerate() {
        let label = escape(&of_it.label);
        let _ =
            writeln!(page, "<div class=\"line\">\n<span class=\"label\" title=\"{label}\">{label}</span>");
        let shown = escape(&cell(outcome, number, system));
        let _ = write!(
            page,
            "<svg class=\"bar\" viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"{label}: {shown}\">"
        );
        if let (Some(median), Some((least, most))) = (row.median(system), range(&row.seconds[system])) {
            let _ = write!(
                page,
                "<title>{label}: {} to {}</title>\
                 <rect class=\"s{}\" x=\"0\" y=\"2\" width=\"{:.1}\" height=\"16\"/>\
                 <rect class=\"range\" x=\"{:.1}\" y=\"9\" width=\"{:.1}\" height=\"2\"/>",
                seconds(least),
                seconds(most),
                system % COLOURS,
                place(median),
                place(least),
                place(most - least)
            );
        }
        let _ = writeln!(page, "</svg>\n<span class=\"figure\">{shown}</span>\n</div>");
    }
    page.push_str("</div>\n");
}

fn table(page: &mut String, outcome: &Outcome) {
    page.push_str("<section>\n<h2>All figures</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>What</th>");
    for system in &outcome.systems {
        let _ = write!(page, "<th>{}</th>", escape(&system.label));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (number, row) in outcome.rows.iter().enumerate() {
        let _ = write!(page, "<tr><td>{}: {}</td>", escape(&row.suite), escape(&row.what));
        for system in 0..outcome.systems.len() {
            let _ = write!(page, "<td>{}</td>", escape(&cell(outcome, number, system)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n</section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::example;

    /// Every tag that is opened is closed, in order; attributes are quoted.
    fn assert_well_formed(page: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a document type");
        while let Some((text, from)) = rest.split_once('<') {
            assert!(!text.contains('>'), "a stray > in {text:?}");
            let (tag, after) = from.split_once('>').expect("a tag ends");
            assert!(!tag.contains('<') && tag.matches('"').count() % 2 == 0, "{tag}");
            match (tag.strip_prefix('/'), tag.ends_with('/')) {
                (Some(name), _) => assert_eq!(open.pop(), Some(name)),
                (None, true) => {}
                (None, false) => open.push(tag.split_whitespace().next().expect("a name")),
            }
            for (at, _) in text.match_indices('&') {
                let entity = text[at + 1..].split(';').next();
                assert!(matches!(entity, Some("amp" | "lt" | "gt" | "quot")), "{text}");
            }
            rest = after;
        }
        assert!(open.is_empty(), "still open: {open:?}");
    }

    #[test]
    fn page_is_well_formed_whatever_a_directory_is_called() {
        let page = page(&example());
        assert_well_formed(&page);
        assert!(page.contains("a&amp;b &quot;&lt;c&gt;&quot;"));
        assert!(page.contains("2 x AMD &lt;EPYC&gt; &amp; co"));
        assert_eq!(page.matches("class=\"bar\"").count(), 4);
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn page_refers_to_nothing_outside_of_itself() {
        let page = page(&example());
        for outside in ["http:", "https:", "//", "url(", "@import", "src=", "href=", "<script", "<link"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn page_of_no_measurement_is_still_a_page() {
        let mut outcome = example();
        outcome.rows.clear();
        assert_well_formed(&page(&outcome));
    }
}
