//! Numbers and progress bars for terminals.

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The names under which mount(8) and umount(8) invoke this program.
pub const MOUNT_HELPERS: [&str; 4] = ["mount.shoal", "mount.fuse.shoal", "umount.shoal", "umount.fuse.shoal"];

/// How a user invokes this program from a shell, so that printed commands work: `shoal` if that is in the
/// path, else its path.
pub fn program() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
        let here = std::env::current_exe().unwrap_or_default();
        named(&called, &here, &std::env::var_os("PATH").unwrap_or_default())
    })
}

/// How to invoke the program `here`, which was called as `called`, with the search path `path`.
fn named(called: &Path, here: &Path, path: &OsStr) -> String {
    let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let is_here = |path: &Path| file(path).is_some() && file(path) == file(here);
    if let Some(found) =
        std::env::split_paths(path).map(|dir| dir.join("shoal")).find(|found| found.is_file())
        && is_here(&found)
    {
        return "shoal".into();
    }
    // Under mount(8) and umount(8) the search path may lack the directory of an installed program.
    if called.file_name().is_some_and(|name| MOUNT_HELPERS.iter().any(|helper| name == *helper)) {
        return "shoal".into();
    }
    // A path as given may be a shorter link.
    let called = (called.components().count() > 1 && called.file_name() == Some(OsStr::new("shoal")))
        .then(|| std::path::absolute(called).ok())
        .flatten();
    let shown = called.filter(|called| is_here(called)).unwrap_or_else(|| here.to_owned());
    let text = shown.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.+@:".contains(c);
    match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A message in which commands in backticks, as `shoal status`, can be pasted.
pub fn runnable(message: &str) -> Cow<'_, str> {
    match program() {
        "shoal" => Cow::Borrowed(message),
        name => Cow::Owned(message.replace("`shoal ", &format!("`{name} "))),
    }
}

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

/// A time in seconds since 1970, as in `2025-11-21 12:40:14 UTC`.
pub fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    // Years start in March, so that a leap day is the last day of its year; 400 years have 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{day_of_month:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

/// A bar for a known amount of work; hidden unless standard error is a terminal.
pub fn bar(what: &str, total: u64) -> ProgressBar {
    style(ProgressBar::new(total), what, "{msg:22} [{bar:32}] {human_pos}/{human_len} {per_sec} {eta}")
}

/// A spinner for work of unknown length.
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
    fn program_is_named_so_that_a_shell_finds_it() {
        let temp = tempfile::tempdir().unwrap();
        let dir = |name: &str| {
            let dir = temp.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            dir
        };
        let (built, bin, other) = (dir("built"), dir("bin"), dir("other place"));
        let here = built.join("shoal");
        std::fs::write(&here, "program").unwrap();
        std::fs::write(other.join("shoal"), "another").unwrap();
        std::os::unix::fs::symlink(&here, bin.join("shoal")).unwrap();
        let helper = bin.join("mount.shoal");
        std::os::unix::fs::symlink(&here, &helper).unwrap();
        let text = |path: &Path| path.display().to_string();
        let path = |dirs: &[&Path]| std::env::join_paths(dirs).unwrap();

        let (both, wrong) = (path(&[temp.path(), &bin, &other]), path(&[&other, &bin]));
        assert_eq!(named(Path::new("shoal"), &here, &both), "shoal");
        assert_eq!(named(&here, &here, &both), "shoal", "found through a link");
        assert_eq!(named(Path::new("shoal"), &here, &wrong), text(&here), "another one is found first");
        assert_eq!(named(&bin.join("shoal"), &here, &wrong), text(&bin.join("shoal")), "as it was called");
        assert_eq!(named(&helper, &here, OsStr::new("")), "shoal", "mount(8) has called it");
        let odd = other.join("shoal");
        assert_eq!(named(&odd, &odd, OsStr::new("")), format!("'{}'", text(&odd)));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(unix_s), text);
        }
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(
            [0, 950, 1500, 2_500_000, 3_000_000_000].map(nanos),
            ["-", "950 ns", "1.5 us", "2.5 ms", "3.0 s"]
        );
        assert_eq!([5, 65, 3700, 90_000].map(seconds), ["5s", "1m 05s", "1h 01m", "1d 01h"]);
    }
}
