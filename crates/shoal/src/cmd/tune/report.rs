//! What was measured, as a table and as JSON.

use super::judge::{Ratios, Verdict};
use super::layers::Trial;
use serde::Serialize;
use shoal_suites::statistics::median;
use shoal_suites::table::{aligned, seconds};
use std::fmt::Write;

/// A part of a suite, and how long it took in each round.
pub type Part = (String, Vec<f64>);
/// All parts, in the order of the suite.
pub type Times = Vec<Part>;

/// Adds the times of one more round.
pub fn add(times: &mut Times, round: impl IntoIterator<Item = (String, f64)>) {
    for (what, seconds) in round {
        match times.iter_mut().find(|(known, _)| *known == what) {
            Some((_, all)) => all.push(seconds),
            None => times.push((what, vec![seconds])),
        }
    }
}

/// How long all parts took together, round by round.
fn totals(times: &[Part]) -> Vec<f64> {
    let rounds = times.iter().map(|(_, seconds)| seconds.len()).min().unwrap_or(0);
    (0..rounds).map(|round| times.iter().map(|(_, seconds)| seconds[round]).sum()).collect()
}

/// Everything that was measured.
#[derive(Serialize)]
pub struct Report {
    /// The volume, as it was mounted.
    pub volume: String,
    /// The mount options of all mounts.
    pub options: String,
    /// The suites.
    pub suites: Vec<String>,
    /// How often each was run.
    pub rounds: usize,
    /// Median seconds of the suites as things are now.
    pub seconds: f64,
    /// How far what is now differs from itself: ratios within are noise.
    pub noise: (f64, f64),
    /// The layers, in the order in which they were named.
    pub layers: Vec<LayerReport>,
    /// Settings of the volume that were changed.
    pub set: Vec<String>,
}

/// One layer.
#[derive(Serialize)]
pub struct LayerReport {
    /// Its name.
    pub layer: String,
    /// Its value now.
    pub now: String,
    /// The value that was tried.
    pub other: String,
    /// The mount options that were tried.
    pub options: String,
    /// Median seconds of the suites with that.
    pub seconds: f64,
    /// Those divided by the seconds as things are now: the median of the rounds.
    pub ratio: f64,
    /// The least and the greatest of the rounds.
    pub range: (f64, f64),
    /// What to think of the layer as it is now.
    pub verdict: Verdict,
    /// Parts of the suites that differ.
    pub parts: Vec<PartReport>,
    /// Why the other value is not set without a decision.
    pub caution: Option<String>,
    #[serde(skip)]
    setting: Option<(String, String)>,
}

/// A part of a suite.
#[derive(Serialize)]
pub struct PartReport {
    /// What is done.
    pub what: String,
    /// Median of the other seconds divided by those of now.
    pub ratio: f64,
    /// What to think of the layer as it is now, for this part.
    pub verdict: Verdict,
}

/// Everything together, round by round.
fn ratios(now: &[Part], other: &[Part]) -> Ratios {
    Ratios::of(&totals(now), &totals(other))
}

/// Compares what is now, measured twice, with each trial.
pub fn layers(now: &[Part], control: &[Part], trials: &[(Trial, Times)]) -> Vec<LayerReport> {
    let noise = ratios(now, control);
    let compared = trials.iter().map(|(trial, times)| {
        let ratios = ratios(now, times);
        LayerReport {
            layer: trial.name.clone(),
            now: trial.now.clone(),
            other: trial.other.clone(),
            options: trial.options.clone(),
            seconds: total(times),
            ratio: ratios.median(),
            range: ratios.range(),
            verdict: ratios.judge(&noise),
            parts: parts(now, control, times),
            caution: trial.caution.clone(),
            setting: trial.setting.clone(),
        }
    });
    compared.collect()
}

/// The parts that differ by themselves.
fn parts(now: &[Part], control: &[Part], other: &[Part]) -> Vec<PartReport> {
    let of = |times: &[Part], what: &str| {
        times.iter().find(|(known, _)| known == what).map(|(_, seconds)| seconds.clone()).unwrap_or_default()
    };
    let compared = now.iter().map(|(what, seconds)| {
        let ratios = Ratios::of(seconds, &of(other, what));
        let verdict = ratios.judge(&Ratios::of(seconds, &of(control, what)));
        PartReport { what: what.clone(), ratio: ratios.median(), verdict }
    });
    compared.filter(|part| part.verdict != Verdict::NoDifference).collect()
}

/// Ratios within are noise: so far what is now differs from itself.
pub fn noise(now: &[Part], control: &[Part]) -> (f64, f64) {
    ratios(now, control).noise()
}

/// Median seconds of everything.
pub fn total(times: &[Part]) -> f64 {
    median(&totals(times)).unwrap_or(0.0)
}

impl Report {
    /// Layers whose other value is faster.
    fn costly(&self) -> impl Iterator<Item = &LayerReport> {
        self.layers.iter().filter(|layer| layer.verdict == Verdict::Costs)
    }

    /// What should be changed and needs no decision: the fastest of several values of one option.
    fn chosen(&self) -> Vec<&LayerReport> {
        let key = |layer: &LayerReport| layer.options.split('=').next().map(str::to_owned);
        let mut chosen: Vec<&LayerReport> = Vec::new();
        for layer in self.costly().filter(|layer| layer.caution.is_none()) {
            match chosen.iter_mut().find(|known| key(known) == key(layer)) {
                Some(known) if known.ratio > layer.ratio => *known = layer,
                Some(_) => {}
                None => chosen.push(layer),
            }
        }
        chosen
    }

    /// Settings of the volume to be changed.
    pub fn settings(&self) -> Vec<(String, String)> {
        self.chosen().into_iter().filter_map(|layer| layer.setting.clone()).collect()
    }

    /// The options of a mount with everything that should be changed.
    pub fn mount_options(&self) -> String {
        let chosen = self.chosen();
        let words = chosen.iter().map(|layer| layer.options.as_str());
        let all = Some(self.options.as_str()).into_iter().chain(words).filter(|words| !words.is_empty());
        all.collect::<Vec<_>>().join(",")
    }

    /// What is faster, and takes a decision: the options, and why.
    pub fn cautions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.costly().filter_map(|layer| Some((layer.options.as_str(), layer.caution.as_deref()?)))
    }

    /// The table.
    pub fn table(&self) -> String {
        let head = ["layer", "now", "other", "now", "other", "other/now", "the layer as it is now"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for layer in &self.layers {
            let (least, most) = layer.range;
            lines.push(vec![
                layer.layer.clone(),
                layer.now.clone(),
                layer.other.clone(),
                seconds(self.seconds),
                seconds(layer.seconds),
                format!("{:.2}x ±{:.0}%", layer.ratio, (most - least) * 50.0),
                layer.verdict.words().into(),
            ]);
        }
        let (low, high) = self.noise;
        let mut text = format!(
            "{}, suite {}, {} rounds in turn{}\n{}",
            self.volume,
            self.suites.join(","),
            self.rounds,
            if self.options.is_empty() { String::new() } else { format!(", mounted with {}", self.options) },
            aligned(&lines)
        );
        let _ = writeln!(
            text,
            "Median of the rounds, ± half of what lies between the least and the greatest ratio. What is now, against \
             itself, differs by {low:.2}x to {high:.2}x: what lies within is noise."
        );
        for layer in self.layers.iter().filter(|layer| !layer.parts.is_empty()) {
            let _ = writeln!(text, "\n{} {} instead of {}:", layer.layer, layer.other, layer.now);
            for part in &layer.parts {
                let _ = writeln!(text, "  {:.2}x  {}", part.ratio, part.what);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::tune::layers::find;

    fn times(parts: &[(&str, &[f64])]) -> Times {
        parts.iter().map(|(what, seconds)| (what.to_string(), seconds.to_vec())).collect()
    }

    fn report(layers: Vec<LayerReport>) -> Report {
        let (volume, options) = ("node1:/web".into(), "ro".into());
        let suites = vec!["untar".into()];
        Report { volume, options, suites, rounds: 2, seconds: 3.0, noise: (0.99, 1.01), layers, set: vec![] }
    }

    fn example() -> Report {
        let now = times(&[("untar: unpack", &[1.0, 1.0]), ("untar: tar", &[2.0, 2.0])]);
        let control = times(&[("untar: unpack", &[1.0, 1.01]), ("untar: tar", &[2.0, 1.99])]);
        let trial = |name: &str, unpack: &[f64], tar: &[f64]| {
            let times = times(&[("untar: unpack", unpack), ("untar: tar", tar)]);
            (find(name).unwrap().trial(None), times)
        };
        report(layers(
            &now,
            &control,
            &[
                trial("kernel-cache", &[1.0, 1.0], &[6.0, 6.2]),
                trial("cache", &[0.9, 0.9], &[1.8, 1.8]),
                trial("larger-cache", &[0.5, 0.5], &[1.0, 1.0]),
                trial("locks", &[0.5, 0.5], &[2.0, 2.0]),
                trial("write-behind", &[0.8, 0.8], &[1.8, 1.8]),
                trial("block-cache", &[1.0, 1.01], &[2.0, 1.98]),
            ],
        ))
    }

    #[test]
    fn layers_are_judged_by_everything_and_parts_by_themselves() {
        let report = example();
        let verdicts: Vec<Verdict> = report.layers.iter().map(|layer| layer.verdict).collect();
        use Verdict::{Costs, NoDifference, PaysForItself};
        assert_eq!(verdicts, [PaysForItself, Costs, Costs, Costs, Costs, NoDifference]);
        let parts: Vec<&str> = report.layers[0].parts.iter().map(|part| part.what.as_str()).collect();
        assert_eq!(parts, ["untar: tar"]);
        assert!(report.layers[5].parts.is_empty());
        let text = report.table();
        assert!(text.contains("pays for itself") && text.contains("0.99x to 1.01x"), "{text}");
        assert!(text.contains("kernel-cache off instead of on:\n  3.05x  untar: tar\n"), "{text}");
    }

    #[test]
    fn best_value_of_a_setting_is_chosen_and_what_needs_a_decision_is_not() {
        let report = example();
        assert_eq!(report.settings(), [("cache".to_owned(), "1024".to_owned())]);
        assert_eq!(report.cautions().map(|(options, _)| options).collect::<Vec<_>>(), ["locks=local"]);
        assert_eq!(report.mount_options(), "ro,cache=1024,journal-age=0");
    }

    #[test]
    fn rounds_are_added_by_part() {
        let mut all = Times::new();
        for seconds in [1.0, 2.0] {
            add(&mut all, [("a".to_owned(), seconds), ("b".to_owned(), 10.0 * seconds)]);
        }
        assert_eq!(all, times(&[("a", &[1.0, 2.0]), ("b", &[10.0, 20.0])]));
        assert_eq!((totals(&all), total(&all)), (vec![11.0, 22.0], 16.5));
        assert_eq!(noise(&all, &all), (1.0, 1.0));
        assert_eq!(totals(&Times::new()), Vec::<f64>::new());
    }
}
