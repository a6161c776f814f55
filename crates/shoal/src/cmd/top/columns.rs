//! The columns of the tables, for the screen and for plain text.

use super::files::FileRow;
use super::state::Sort;
use crate::rates::Row;
use crate::show;

/// A column of figures.
pub struct Column {
    pub title: &'static str,
    pub width: u16,
    /// What sorts by it.
    pub sort: Option<Sort>,
}

const fn column(title: &'static str, width: u16, sort: Option<Sort>) -> Column {
    Column { title, width, sort }
}

/// Columns of mounts and bricks, beside the name.
pub const ROW: [Column; 6] = [
    column("ops/s", 7, Some(Sort::Operations)),
    column("rd MB/s", 8, Some(Sort::Read)),
    column("wr MB/s", 8, Some(Sort::Written)),
    column("mean", 9, Some(Sort::Latency)),
    column("p99", 8, None),
    column("most time", 15, None),
];

/// Columns of files, between the path and the mount.
pub const FILE: [Column; 3] = [
    column("ops/s", 7, Some(Sort::Operations)),
    column("rd MB/s", 8, Some(Sort::Read)),
    column("wr MB/s", 8, Some(Sort::Written)),
];

/// The figures of a mount or a brick.
pub fn row(row: &Row) -> [String; 6] {
    let Some(rates) = &row.rates else {
        let why = row.trouble.as_deref().map_or("-", |_| "no answer");
        return ["-", "-", "-", "-", "-", why].map(str::to_owned);
    };
    let busiest = rates.busiest.as_ref().map_or_else(|| "-".into(), |(op, part)| format!("{op} {part}%"));
    let [mean, p99] = [rates.mean_ns, rates.p99_ns].map(show::nanos);
    [count(rates.operations), megabytes(rates.read_bytes), megabytes(rates.written_bytes), mean, p99, busiest]
}

/// The figures of a file.
pub fn file(row: &FileRow) -> [String; 3] {
    [count(row.operations), megabytes(row.read_bytes), megabytes(row.written_bytes)]
}

/// Where a file is used.
pub fn users(row: &FileRow) -> String {
    match row.other_mounts {
        0 => row.mount.clone(),
        others => format!("{} +{others}", row.mount),
    }
}

/// Something per second, with no more digits than are of use.
pub fn count(per_second: f64) -> String {
    match per_second {
        none if none <= 0.0 => "0".into(),
        few if few < 9.95 => format!("{few:.1}"),
        many => format!("{many:.0}"),
    }
}

/// Bytes in megabytes, of which one has 1,000,000.
pub fn megabytes(bytes: f64) -> String {
    match bytes / 1e6 {
        none if none <= 0.0 => "0".into(),
        few if few < 9.995 => format!("{few:.2}"),
        some if some < 99.95 => format!("{some:.1}"),
        many => format!("{many:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_as_many_digits_as_are_of_use() {
        assert_eq!([0.0, 0.04, 3.21, 9.96, 12_345.6].map(count), ["0", "0.0", "3.2", "10", "12346"]);
        let bytes = [0.0, 4096.0, 9_994_000.0, 9_996_000.0, 99_960_000.0, 2.5e9];
        assert_eq!(bytes.map(megabytes), ["0", "0.00", "9.99", "10.0", "100", "2500"]);
    }
}
