//! The results of a run, as they are kept in a JSON file, and of several runs side by side.

use crate::limits::SYSTEMS_MAX;
use crate::plan::Plan;
use crate::statistics::median;
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The version of the JSON format.
pub const FORMAT: u32 = 1;

/// Everything that a run has measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of the program that measured.
    pub version: String,
    /// Seconds since 1970 at its start.
    pub unix_seconds: u64,
    /// The machine.
    pub machine: String,
    /// The sizes.
    pub plan: Plan,
    /// What was measured; the first one is what the others are compared with.
    pub systems: Vec<System>,
    /// The measurements, in order.
    pub rows: Vec<Row>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// A directory, or several mounts of one file system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct System {
    /// Its name in tables.
    pub label: String,
    /// Its directories.
    pub paths: Vec<String>,
    /// Type and source of its file system.
    pub filesystem: String,
}

/// One measurement on all systems.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The suite's name.
    pub suite: String,
    /// What was done.
    pub what: String,
    /// Seconds of each round, by system.
    pub seconds: Vec<Vec<f64>>,
    /// Requests of the kernel per file in each round, by system; none where they are not known.
    pub requests_per_file: Vec<Vec<f64>>,
}

impl Row {
    /// Median seconds of a system.
    pub fn median(&self, system: usize) -> Option<f64> {
        median(self.seconds.get(system)?)
    }

    /// Median requests per file of a system.
    pub fn requests(&self, system: usize) -> Option<f64> {
        median(self.requests_per_file.get(system)?)
    }

    /// A system's time divided by that of the first one.
    pub fn ratio(&self, system: usize) -> Option<f64> {
        let first = self.median(0).filter(|first| *first > 0.0)?;
        Some(self.median(system)? / first)
    }
}

impl Outcome {
    /// Reads a JSON file.
    pub fn read(path: &Path) -> anyhow::Result<Outcome> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Outcome::parse(&text).with_context(|| path.display().to_string())
    }

    /// Reads JSON.
    pub fn parse(text: &str) -> anyhow::Result<Outcome> {
        let value: serde_json::Value = serde_json::from_str(text).context("this is no JSON")?;
        let format = value["format"].as_u64().context("these are no results of `shoal bench --json`")?;
        ensure!(format == u64::from(FORMAT), "format {format}: this version of shoal reads format {FORMAT}");
        let outcome: Outcome = serde_json::from_value(value)?;
        let columns = outcome.systems.len();
        let whole = |row: &Row| row.seconds.len() == columns && row.requests_per_file.len() == columns;
        ensure!(outcome.rows.iter().all(whole), "a measurement has not a column for each system");
        Ok(outcome)
    }

    /// Writes a JSON file.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text + "\n").with_context(|| path.display().to_string())
    }

    /// The systems of several runs beside each other, with the name of each run.
    pub fn merge(runs: Vec<(String, Outcome)>) -> anyhow::Result<Outcome> {
        let columns: usize = runs.iter().map(|(_, run)| run.systems.len()).sum();
        ensure!(columns <= SYSTEMS_MAX, "{columns} columns: at most {SYSTEMS_MAX} can be compared");
        let several = runs.len() > 1;
        let mut runs = runs.into_iter();
        let (name, mut merged) = runs.next().context("there is nothing to compare")?;
        if several {
            merged.systems.iter_mut().for_each(|system| system.label = format!("{name}: {}", system.label));
        }
        for (name, run) in runs {
            merged.append(&name, run);
        }
        Ok(merged)
    }

    fn append(&mut self, name: &str, run: Outcome) {
        let (before, more) = (self.systems.len(), run.systems.len());
        if run.machine != self.machine {
            self.notes.push(format!("{name} was measured on another machine: {}", run.machine));
        }
        let sizes = |plan: &Plan| Plan { suites: Vec::new(), rounds: 0, ..plan.clone() };
        if sizes(&run.plan) != sizes(&self.plan) {
            self.notes.push(format!("{name} was measured with other sizes: ratios to it mean little"));
        }
        self.notes.extend(run.notes.into_iter().map(|note| format!("{name}: {note}")));
        self.systems.extend(
            run.systems
                .into_iter()
                .map(|system| System { label: format!("{name}: {}", system.label), ..system }),
        );
        for row in run.rows {
            let at = self.rows.iter().position(|own| own.suite == row.suite && own.what == row.what);
            let at = at.unwrap_or_else(|| {
                let none = vec![Vec::new(); before];
                self.rows.push(Row { seconds: none.clone(), requests_per_file: none, ..row.clone() });
                self.rows.len() - 1
            });
            // A measurement that a file has twice would make more columns than there are systems.
            if self.rows[at].seconds.len() == before {
                self.rows[at].seconds.extend(row.seconds);
                self.rows[at].requests_per_file.extend(row.requests_per_file);
            }
        }
        for row in &mut self.rows {
            row.seconds.resize(before + more, Vec::new());
            row.requests_per_file.resize(before + more, Vec::new());
        }
        // Rows of a suite stand together, in the order of the suites' first appearance.
        let mut order: Vec<String> = Vec::new();
        for row in &self.rows {
            if !order.contains(&row.suite) {
                order.push(row.suite.clone());
            }
        }
        self.rows.sort_by_key(|row| order.iter().position(|suite| *suite == row.suite));
    }
}

/// A date and time of day, in UTC.
pub fn date(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Days since 1 March of the year 0, in cycles of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (date, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{date:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two systems, two measurements.
    pub fn example() -> Outcome {
        let system = |label: &str| System {
            label: label.into(),
            paths: vec![format!("/mnt/{label}")],
            filesystem: "ext4 (/dev/vda)".into(),
        };
        let row = |what: &str, first: &[f64], second: &[f64]| Row {
            suite: "untar".into(),
            what: what.into(),
            seconds: vec![first.to_vec(), second.to_vec()],
            requests_per_file: vec![vec![], vec![10.0, 12.0, 11.0]],
        };
        Outcome {
            format: FORMAT,
            version: "1".into(),
            unix_seconds: 1_780_000_000,
            machine: "2 x AMD <EPYC> & co".into(),
            plan: Plan::default(),
            systems: vec![system("plain"), system("a&b \"<c>\"")],
            rows: vec![row("unpack", &[2.0, 1.0, 3.0], &[1.0, 1.0, 1.5]), row("rm -rf", &[0.5], &[0.001])],
            notes: vec!["as root".into()],
        }
    }

    #[test]
    fn results_survive_the_way_through_json() {
        let outcome = example();
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(Outcome::parse(&text).unwrap(), outcome);
        assert_eq!(outcome.rows[0].ratio(1), Some(0.5));
        assert_eq!(outcome.rows[0].requests(1), Some(11.0));
        assert_eq!(outcome.rows[0].requests(0), None);
    }

    #[test]
    fn other_formats_and_broken_tables_are_refused() {
        assert!(Outcome::parse("{").is_err());
        assert!(Outcome::parse("{}").unwrap_err().to_string().contains("--json"));
        assert!(Outcome::parse("{\"format\": 99}").unwrap_err().to_string().contains("format 99"));
        let mut broken = example();
        broken.rows[0].seconds.pop();
        assert!(Outcome::parse(&serde_json::to_string(&broken).unwrap()).is_err());
    }

    #[test]
    fn runs_are_compared_by_suite_and_measurement() {
        let mut other = example();
        other.rows[1].what = "tar".into();
        other.machine = "another".into();
        other.plan.files = Some(7);
        let merged = Outcome::merge(vec![("a".into(), example()), ("b".into(), other)]).unwrap();
        let labels: Vec<&str> = merged.systems.iter().map(|system| system.label.as_str()).collect();
        assert_eq!(labels, ["a: plain", "a: a&b \"<c>\"", "b: plain", "b: a&b \"<c>\""]);
        let whats: Vec<&str> = merged.rows.iter().map(|row| row.what.as_str()).collect();
        assert_eq!(whats, ["unpack", "rm -rf", "tar"]);
        assert!(merged.rows.iter().all(|row| row.seconds.len() == 4 && row.requests_per_file.len() == 4));
        assert_eq!((merged.rows[1].median(2), merged.rows[2].median(0)), (None, None));
        assert_eq!(merged.rows[2].ratio(2), None, "the first system has not measured it");
        assert_eq!(merged.notes.len(), 4, "{:?}", merged.notes);
        assert!(Outcome::merge(Vec::new()).is_err());
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59 UTC");
    }
}
