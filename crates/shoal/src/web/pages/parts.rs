//! What pages are made of: tables that become cards on a phone, badges, notes, numbers.

use crate::limits::{BRICK_FULL_PERCENT, BRICK_ROOM_PERCENT, WEB_ROWS_MAX};
use crate::web::chart::bar;
use crate::web::html::{Html, put};
use std::fmt::Display;

/// What is shown of a value that is not known.
pub const UNKNOWN: &str = "–";

/// A cell with this text.
pub fn cell(text: impl Display) -> Html {
    let mut cell = Html::default();
    cell.text(text);
    cell
}

/// A cell with a value that may not be known.
pub fn known(value: Option<impl Display>) -> Html {
    match value {
        Some(value) => cell(value),
        None => cell(UNKNOWN),
    }
}

/// How good something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Good,
    Warning,
    Bad,
    Neutral,
}

impl Severity {
    fn class(self) -> &'static str {
        match self {
            Severity::Good => "good",
            Severity::Warning => "warn",
            Severity::Bad => "bad",
            Severity::Neutral => "calm",
        }
    }
}

/// A word with a coloured dot.
pub fn badge(severity: Severity, text: impl Display) -> Html {
    let mut badge = Html::default();
    put!(&mut badge; "<span class=\"badge ", (severity.class()), "\">", (text), "</span>");
    badge
}

/// A link.
pub fn link(page: &'static str, segment: &str, text: impl Display) -> Html {
    let mut link = Html::default();
    put!(&mut link; "<a href=\"", (page), { segment }, "\">", (text), "</a>");
    link
}

/// `3 of 3`, and how good that is.
pub fn of(some: u64, all: u64) -> Html {
    let severity = if some == all { Severity::Good } else { Severity::Warning };
    badge(severity, format_args!("{some} of {all}"))
}

/// `1 brick`, `2 bricks`.
pub fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(number as u64))
}

/// A number with its thousands apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The room on a disk: a bar of what is in use, and what is free.
pub fn room(total_bytes: Option<u64>, free_bytes: Option<u64>) -> Html {
    let (Some(total), Some(free)) = (total_bytes.filter(|total| *total > 0), free_bytes) else {
        return cell(UNKNOWN);
    };
    let used = total.saturating_sub(free) as f64 / total as f64;
    let kind = match used * 100.0 {
        full if full >= BRICK_FULL_PERCENT as f64 => Severity::Bad,
        filling if filling >= BRICK_ROOM_PERCENT as f64 => Severity::Warning,
        _ => Severity::Neutral,
    };
    let mut page = Html::default();
    let text = format!("{} of {} free", crate::show::bytes(free), crate::show::bytes(total));
    put!(&mut page; "<span class=\"room\">", [bar(used, kind.class())], "<span>", (text), "</span></span>");
    page
}

/// A table. On a phone each row is a card, in which each cell has the title of its column.
pub struct Table {
    columns: &'static [&'static str],
    page: Html,
    rows: usize,
}

impl Table {
    /// A title that begins with `>` is that of a column of figures.
    pub fn new(columns: &'static [&'static str]) -> Table {
        let mut page = Html::default();
        put!(&mut page; "<div class=\"scroll\"><table><thead><tr>");
        for column in columns {
            match column.strip_prefix('>') {
                Some(title) => put!(&mut page; "<th class=\"num\">", (title), "</th>"),
                None => put!(&mut page; "<th>", (column), "</th>"),
            }
        }
        put!(&mut page; "</tr></thead><tbody>");
        Table { columns, page, rows: 0 }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[Html]) {
        self.rows += 1;
        put!(&mut self.page; "<tr>");
        for (column, cell) in self.columns.iter().zip(cells) {
            let (kind, title) = column.strip_prefix('>').map_or(("", *column), |title| ("num", title));
            put!(&mut self.page; "<td class=\"", (kind), "\" data-title=\"", (title), "\">", [cell], "</td>");
        }
        put!(&mut self.page; "</tr>");
    }

    /// The table, or a sentence if there are no rows.
    pub fn or(mut self, none: &'static str) -> Html {
        if self.rows == 0 {
            let mut page = Html::default();
            put!(&mut page; "<p class=\"none\">", (none), "</p>");
            return page;
        }
        put!(&mut self.page; "</tbody></table></div>");
        self.page
    }
}

/// A section with a heading.
pub fn section(title: impl Display, note: impl Display, content: &Html) -> Html {
    let mut page = Html::default();
    put!(&mut page; "<section><h2>", (title), " <small>", (note), "</small></h2>", [*content], "</section>");
    page
}

/// A figure with what it means.
pub fn tile(title: &'static str, figure: impl Display, note: impl Display, severity: Severity) -> Html {
    let mut page = Html::default();
    put!(&mut page; "<div class=\"tile ", (severity.class()), "\"><h3>", (title), "</h3><p class=\"figure\">", (figure),
        "</p><p class=\"note\">", (note), "</p></div>");
    page
}

/// The rows of a page of a long list, and links to the other pages. Pages count from 1.
pub fn paged<'a, T>(all: &'a [T], page: usize, address: &'static str, query: &str) -> (&'a [T], Html) {
    let pages = all.len().div_ceil(WEB_ROWS_MAX).max(1);
    let page = page.clamp(1, pages);
    let first = (page - 1) * WEB_ROWS_MAX;
    let rows = all.get(first..(first + WEB_ROWS_MAX).min(all.len())).unwrap_or_default();
    let mut links = Html::default();
    if pages > 1 {
        let turn = |links: &mut Html, to: usize, text: &'static str| {
            put!(links; "<a href=\"", (address), "?page=", (to));
            if !query.is_empty() {
                put!(links; "&amp;volume=", { query });
            }
            put!(links; "\">", (text), "</a>");
        };
        put!(&mut links; "<nav class=\"turn\">");
        if page > 1 {
            turn(&mut links, page - 1, "← back");
        }
        let range = format!("{}–{} of {}", first + 1, first + rows.len(), grouped(all.len() as u64));
        put!(&mut links; "<span>", (range), "</span>");
        if page < pages {
            turn(&mut links, page + 1, "on →");
        }
        put!(&mut links; "</nav>");
    }
    (rows, links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_list_is_turned_page_by_page_and_any_page_number_shows_one() {
        let all: Vec<usize> = (0..WEB_ROWS_MAX * 2 + 1).collect();
        for (page, first, rows) in
            [(0, 0, WEB_ROWS_MAX), (2, WEB_ROWS_MAX, WEB_ROWS_MAX), (usize::MAX, 2 * WEB_ROWS_MAX, 1)]
        {
            let (shown, links) = paged(&all, page, "/clients", "a&b");
            assert_eq!((shown[0], shown.len()), (first, rows));
            assert!(links.into_text().contains("&amp;volume=a%26b"));
        }
        let (none, links) = paged::<usize>(&[], 3, "/clients", "");
        assert!(none.is_empty() && links.is_empty());
    }

    #[test]
    fn numbers_have_their_thousands_apart() {
        let texts = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn cells_are_escaped_and_carry_the_title_of_their_column() {
        let mut table = Table::new(&["Name", ">Size"]);
        table.row(&[cell("<script>"), cell(7)]);
        let text = table.or("none").into_text();
        assert!(text.contains("<td class=\"\" data-title=\"Name\">&lt;script&gt;</td>"), "{text}");
        assert!(text.contains("<td class=\"num\" data-title=\"Size\">7</td>"), "{text}");
        assert!(Table::new(&["Name"]).or("There is none.").into_text().contains("There is none."));
    }
}
