//! Columns that line up.

/// A table with a head, its columns two spaces apart, each as wide as its widest cell.
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. A title that begins with `>` stands at the right, with its column.
    pub fn new(head: &[&'static str]) -> Table {
        Table { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[&dyn ToString]) {
        self.rows.push(cells.iter().map(|cell| cell.to_string()).collect());
    }

    /// The head, a rule if wished, and the rows.
    pub fn render(&self, rule: bool) -> String {
        let titles: Vec<&str> = self.head.iter().map(|title| title.trim_start_matches('>')).collect();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain(titles.get(column).map(|title| title.chars().count())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..titles.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut text = String::new();
            for ((cell, width), title) in cells.zip(&widths).zip(&self.head) {
                let gap = if text.is_empty() { "" } else { "  " };
                let padded = match title.starts_with('>') {
                    true => format!("{gap}{cell:>width$}"),
                    false => format!("{gap}{cell:<width$}"),
                };
                text.push_str(&padded);
            }
            format!("{}\n", text.trim_end())
        };
        let mut text = line(&mut titles.iter().copied());
        if rule {
            let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
            text.push_str(&format!("{}\n", "-".repeat(total)));
        }
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        text
    }
}
