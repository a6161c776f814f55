//! Numbers and progress for people.

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use std::time::Duration;

/// Bytes, as in `1.50 GiB`.
pub fn bytes(count: u64) -> String {
    BinaryBytes(count).to_string()
}

/// A duration in nanoseconds, as in `12.3 us`.
pub fn nanos(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        0.0 => "-".into(),
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

/// A duration in seconds, in its two largest units, as in `3h 05m`.
pub fn seconds(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes:02}m"),
        _ => format!("{days}d {hours:02}h"),
    }
}

/// A bar for a known amount of work; invisible where nobody looks.
pub fn bar(what: &str, total: u64) -> ProgressBar {
    style(ProgressBar::new(total), what, "{msg:22} [{bar:32}] {human_pos}/{human_len} {per_sec} {eta}")
}

/// A sign of life for work of unknown length.
pub fn spinner(what: &str) -> ProgressBar {
    let bar = style(ProgressBar::new_spinner(), what, "{spinner} {msg} {elapsed}");
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A counter for work of unknown length.
pub fn counter(what: &str) -> ProgressBar {
    style(ProgressBar::no_length(), what, "{spinner} {msg:20} {human_pos} {per_sec} {elapsed}")
}

fn style(bar: ProgressBar, what: &str, template: &str) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        assert_eq!(
            [0, 950, 1500, 2_500_000, 3_000_000_000].map(nanos),
            ["-", "950 ns", "1.5 us", "2.5 ms", "3.0 s"]
        );
        assert_eq!([5, 65, 3700, 90_000].map(seconds), ["5s", "1m 05s", "1h 01m", "1d 01h"]);
    }
}
