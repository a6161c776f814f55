//! The text format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use crate::limits::{BUCKET_LOG2, BUCKET_STEP};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows, and begins at 0 with its process.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many observations fell into which bucket.
    Histogram,
}

/// Metrics of one moment.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    families: BTreeMap<String, Family>,
}

#[derive(Clone, Debug)]
struct Family {
    kind: Kind,
    help: String,
    samples: String,
}

impl Exposition {
    /// Adds a sample of a counter or gauge. `labels` are names and values.
    pub fn add(&mut self, kind: Kind, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let samples = self.samples(kind, name, help);
        sample(samples, name, labels, None, value);
    }

    /// Adds a histogram of durations. `log2_ns` tells how many took 2^n up to 2^(n+1) nanoseconds, by n.
    pub fn add_durations(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        log2_ns: &[u64],
        total_ns: u64,
    ) {
        let samples = self.samples(Kind::Histogram, name, help);
        let bucket = format!("{name}_bucket");
        for end in BUCKET_LOG2.step_by(BUCKET_STEP) {
            let below: u64 = log2_ns.iter().take(end).sum();
            let seconds = (end as f64).exp2() / 1e9;
            sample(samples, &bucket, labels, Some(&seconds.to_string()), below as f64);
        }
        let all: u64 = log2_ns.iter().sum();
        sample(samples, &bucket, labels, Some("+Inf"), all as f64);
        sample(samples, &format!("{name}_sum"), labels, None, total_ns as f64 / 1e9);
        sample(samples, &format!("{name}_count"), labels, None, all as f64);
    }

    fn samples(&mut self, kind: Kind, name: &str, help: &str) -> &mut String {
        let new = || Family { kind, help: help.to_owned(), samples: String::new() };
        let family = self.families.entry(name.to_owned()).or_insert_with(new);
        debug_assert_eq!(family.kind, kind, "{name} is of two types");
        &mut family.samples
    }

    /// The names of all metrics.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.families.keys().map(String::as_str)
    }

    /// The whole text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, Family { kind, help, samples }) in &self.families {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            // Writing to a string does not fail.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
        }
        text
    }
}

/// Writes one line.
fn sample(to: &mut String, name: &str, labels: &[(&str, &str)], le: Option<&str>, value: f64) {
    to.push_str(name);
    let all = labels.iter().copied().chain(le.map(|le| ("le", le)));
    for (n, (label, value)) in all.enumerate() {
        to.push(if n == 0 { '{' } else { ',' });
        to.push_str(label);
        to.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => to.push_str("\\\\"),
                '"' => to.push_str("\\\""),
                '\n' => to.push_str("\\n"),
                c => to.push(c),
            }
        }
        to.push('"');
    }
    if !labels.is_empty() || le.is_some() {
        to.push('}');
    }
    let _ = writeln!(to, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_metric_stand_together_and_labels_are_escaped() {
        let mut exposition = Exposition::default();
        exposition.add(Kind::Counter, "b_total", "Bees.", &[("mountpoint", "/mnt/\"a\\b\"\n")], 3.0);
        exposition.add(Kind::Gauge, "a", "One\\two\nlines.", &[], 0.5);
        exposition.add(Kind::Counter, "b_total", "Bees.", &[("mountpoint", "é"), ("volume", "v")], 9e15);
        assert_eq!(
            exposition.render(),
            "# HELP a One\\\\two\\nlines.\n# TYPE a gauge\na 0.5\n\
             # HELP b_total Bees.\n# TYPE b_total counter\n\
             b_total{mountpoint=\"/mnt/\\\"a\\\\b\\\"\\n\"} 3\n\
             b_total{mountpoint=\"é\",volume=\"v\"} 9000000000000000\n"
        );
        assert_eq!(exposition.names().collect::<Vec<_>>(), ["a", "b_total"]);
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_all() {
        let mut log2_ns = [0; 40];
        (log2_ns[3], log2_ns[12], log2_ns[13], log2_ns[39]) = (5, 7, 1, 2);
        let mut exposition = Exposition::default();
        exposition.add_durations("d_seconds", "Durations.", &[("op", "read")], &log2_ns, 1_500_000_000);
        let text = exposition.render();
        for line in [
            "# TYPE d_seconds histogram",
            "d_seconds_bucket{op=\"read\",le=\"0.000004096\"} 5",
            "d_seconds_bucket{op=\"read\",le=\"0.000016384\"} 13",
            "d_seconds_bucket{op=\"read\",le=\"68.719476736\"} 13",
            "d_seconds_bucket{op=\"read\",le=\"+Inf\"} 15",
            "d_seconds_sum{op=\"read\"} 1.5",
            "d_seconds_count{op=\"read\"} 15",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert_eq!(text.lines().filter(|line| line.contains("_bucket")).count(), 14);
    }
}
