//! Charts, as SVG that needs no script. Pure: points in, markup out.
//!
//! **Model.** Only the curves are SVG, stretched to the width that there is. Figures beside them are text of
//! the page, so that they stay readable at any width. Colours are those of the style sheet.

use super::html::{Html, put};

/// Width and height of the area for curves, in units of its own.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 150.0;
/// Widest range of a logarithmic axis, in powers of ten: from a nanosecond to 1,000 seconds.
const DECADES_MAX: i32 = 12;

/// A curve.
pub struct Series {
    pub label: &'static str,
    /// Its latest value, as text.
    pub now: String,
    /// By time, in milliseconds; `None` is a gap.
    pub points: Vec<(u64, Option<f64>)>,
}

/// How values become heights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// From 0 to a round number above the largest value.
    Linear,
    /// From 0 to 1.
    Share,
    /// Between powers of ten. 0 is a gap.
    Logarithmic,
}

/// The part of time that is shown, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from_ms: u64,
    pub to_ms: u64,
}

/// The values at the bottom and at the top, and those that have a line and a label, from the top.
struct Axis {
    bottom: f64,
    top: f64,
    ticks: Vec<f64>,
    is_logarithmic: bool,
}

impl Axis {
    fn of(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Axis {
        match scale {
            Scale::Share => Axis { bottom: 0.0, top: 1.0, ticks: vec![1.0, 0.5, 0.0], is_logarithmic: false },
            Scale::Linear => {
                let top = round_above(values.fold(0.0, f64::max));
                Axis { bottom: 0.0, top, ticks: vec![top, top / 2.0, 0.0], is_logarithmic: false }
            }
            Scale::Logarithmic => {
                let positive = values.filter(|value| value.is_finite() && *value >= 1.0);
                let least = positive.clone().fold(f64::INFINITY, f64::min);
                let most = positive.fold(1.0, f64::max);
                let high = most.log10().ceil() as i32;
                let low = if least.is_finite() { least.log10().floor() as i32 } else { high - 1 };
                let low = low.min(high - 1).max(high - DECADES_MAX);
                let ticks = (low..=high).rev().map(|power| 10f64.powi(power)).collect();
                Axis { bottom: f64::from(low), top: f64::from(high), ticks, is_logarithmic: true }
            }
        }
    }

    /// Height of a value, from the top. `None`: it has no place.
    fn y(&self, value: f64) -> Option<f64> {
        let value = match self.is_logarithmic {
            true if value < 1.0 => return None,
            true => value.log10(),
            false => value,
        };
        let part = (value - self.bottom) / (self.top - self.bottom);
        part.is_finite().then(|| HEIGHT * (1.0 - part.clamp(0.0, 1.0)))
    }
}

/// A round number that is no less: 1, 2 or 5 with zeros.
fn round_above(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let round = [1.0, 2.0, 5.0].into_iter().map(|digit| digit * power).find(|round| *round >= value);
    round.unwrap_or(10.0 * power)
}

/// A chart with its title, its curves' latest values, and its axes.
pub fn chart(
    title: &'static str,
    scale: Scale,
    shape: fn(f64) -> String,
    series: &[Series],
    window: Window,
) -> Html {
    let values = series.iter().flat_map(|one| one.points.iter().filter_map(|(_, value)| *value));
    let axis = Axis::of(scale, values);
    let mut page = Html::default();
    put!(&mut page; "<figure class=\"chart\"><figcaption><span class=\"title\">", (title), "</span>");
    for (at, one) in series.iter().enumerate() {
        put!(&mut page; "<span class=\"key k", (at), "\">", (one.label), " <b>", (&one.now), "</b></span>");
    }
    put!(&mut page; "</figcaption><div class=\"plot\"><div class=\"ticks\">");
    for tick in &axis.ticks {
        put!(&mut page; "<span>", (shape(*tick)), "</span>");
    }
    put!(&mut page; "</div><svg viewBox=\"0 0 ", (WIDTH), " ", (HEIGHT), "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
        (title), "\">");
    for tick in &axis.ticks {
        let y = axis.y(*tick).unwrap_or(HEIGHT);
        put!(&mut page; "<line class=\"grid\" x1=\"0\" x2=\"", (WIDTH), "\" y1=\"", (round(y)), "\" y2=\"", (round(y)), "\"/>");
    }
    for (at, one) in series.iter().enumerate() {
        let runs = runs(one, &axis, window);
        if scale != Scale::Logarithmic && at == 0 {
            put!(&mut page; "<path class=\"area a", (at), "\" d=\"", (area(&runs)), "\"/>");
        }
        put!(&mut page; "<path class=\"line l", (at), "\" d=\"", (line(&runs)), "\"/>");
    }
    let minutes = (window.to_ms.saturating_sub(window.from_ms) + 30_000) / 60_000;
    put!(&mut page; "</svg></div><div class=\"times\"><span>", (minutes), " min ago</span><span>now</span></div></figure>");
    page
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Points that belong together, between gaps.
fn runs(series: &Series, axis: &Axis, window: Window) -> Vec<Vec<(f64, f64)>> {
    let span = window.to_ms.saturating_sub(window.from_ms).max(1) as f64;
    let mut runs = vec![Vec::new()];
    for (at_ms, value) in series.points.iter().filter(|(at_ms, _)| *at_ms >= window.from_ms) {
        let x = WIDTH * (at_ms - window.from_ms) as f64 / span;
        match value.and_then(|value| axis.y(value)) {
            Some(y) => runs.last_mut().into_iter().for_each(|run| run.push((round(x.min(WIDTH)), round(y)))),
            None => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn line(runs: &[Vec<(f64, f64)>]) -> String {
    let mut path = String::new();
    for run in runs {
        for (at, (x, y)) in run.iter().enumerate() {
            path.push_str(&format!("{}{x} {y}", if at == 0 { "M" } else { "L" }));
        }
        if run.len() == 1 {
            // A point alone would have no length, and would not be seen.
            path.push_str("h1.5");
        }
    }
    path
}

fn area(runs: &[Vec<(f64, f64)>]) -> String {
    let mut path = String::new();
    for run in runs {
        let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
        path.push_str(&format!("M{first} {HEIGHT}"));
        run.iter().for_each(|(x, y)| path.push_str(&format!("L{x} {y}")));
        path.push_str(&format!("L{last} {HEIGHT}Z"));
    }
    path
}

/// A bar that is filled to some part, from 0 to 1.
pub fn bar(part: f64, kind: &'static str) -> Html {
    let mut page = Html::default();
    let filled = round(if part.is_finite() { part.clamp(0.0, 1.0) * 100.0 } else { 0.0 });
    put!(&mut page; "<svg class=\"bar ", (kind), "\" viewBox=\"0 0 100 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
        "<rect class=\"rest\" width=\"100\" height=\"1\"/><rect class=\"filled\" width=\"", (filled), "\" height=\"1\"/></svg>");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { from_ms: 1000, to_ms: 2000 };

    fn drawn(scale: Scale, points: &[(u64, Option<f64>)]) -> String {
        let series = Series { label: "read", now: "7".into(), points: points.to_vec() };
        chart("Throughput", scale, |value| value.to_string(), &[series], WINDOW).into_text()
    }

    #[test]
    fn curve_follows_time_and_value_and_breaks_where_nothing_is_known() {
        let points =
            [(500, Some(9.0)), (1000, Some(0.0)), (1500, Some(5.0)), (1600, None), (2000, Some(10.0))];
        let text = drawn(Scale::Linear, &points);
        assert!(text.contains("d=\"M0 150L300 75M600 0h1.5\""), "{text}");
        assert!(text.contains("d=\"M0 150L0 150L300 75L300 150ZM600 150L600 0L600 150Z\""), "{text}");
        assert!(text.contains("<span>10</span><span>5</span><span>0</span>"), "{text}");
    }

    #[test]
    fn latencies_of_any_size_have_a_place_between_powers_of_ten() {
        let text = drawn(Scale::Logarithmic, &[(1000, Some(20.0)), (1500, Some(0.0)), (2000, Some(2e9))]);
        assert!(text.contains("<span>10000000000</span>") && text.contains("<span>10</span>"), "{text}");
        assert!(text.matches("class=\"grid\"").count() == 10, "{text}");
        assert!(text.contains("M0 ") && text.contains("M600 "), "{text}");
    }

    #[test]
    fn values_that_are_no_numbers_and_charts_without_any_are_drawn() {
        for scale in [Scale::Linear, Scale::Share, Scale::Logarithmic] {
            for points in [vec![], vec![(1000, Some(f64::NAN))], vec![(3000, Some(f64::INFINITY)), (1, None)]]
            {
                let text = drawn(scale, &points);
                assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            }
        }
        assert!(bar(f64::NAN, "").into_text().contains("width=\"0\""));
        assert!(bar(7.0, "").into_text().contains("class=\"filled\" width=\"100\""));
    }

    #[test]
    fn top_of_an_axis_is_a_round_number() {
        let tops = [0.0, 0.3, 1.0, 3.0, 99.0, 120.0].map(round_above);
        assert_eq!(tops, [1.0, 0.5, 1.0, 5.0, 100.0, 200.0]);
    }
}
