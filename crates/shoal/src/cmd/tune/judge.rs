//! Which of two is faster, and whether that can be told at all.
//!
//! **Model.** A *control* is what is now, measured a second time in every round. Each alternative is compared
//! with what is now in the same round, and so is the control. How far the ratios of the control lie from 1 is
//! the *noise* of the machine. Either of the two could have been the slower one, so noise is symmetric.
//!
//! **Promises.** A difference is claimed only if the ratio of every round lies beyond all of the noise, on
//! one side, and the median is at least [`DIFFERENCE_MIN`] away from 1.

use crate::limits::TUNE_DIFFERENCE_MIN as DIFFERENCE_MIN;
use serde::Serialize;
use shoal_suites::statistics::{median, range};

/// What is to be thought of a layer as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Without it the work takes longer.
    PaysForItself,
    /// The work takes about as long either way.
    NoDifference,
    /// Without it the work is done sooner.
    Costs,
}

impl Verdict {
    /// For a table.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::PaysForItself => "pays for itself",
            Verdict::NoDifference => "no difference",
            Verdict::Costs => "costs",
        }
    }
}

/// The ratios of a comparison, one for each round.
#[derive(Clone, PartialEq, Debug)]
pub struct Ratios(Vec<f64>);

impl Ratios {
    /// Of the other times to those of now, round by round.
    pub fn of(now: &[f64], other: &[f64]) -> Ratios {
        let pairs = now.iter().zip(other).filter(|(now, _)| **now > 0.0);
        Ratios(pairs.map(|(now, other)| other / now).collect())
    }

    /// The ratio in the middle; 1 if there is none.
    pub fn median(&self) -> f64 {
        median(&self.0).unwrap_or(1.0)
    }

    /// The least and the greatest; 1 if there is none.
    pub fn range(&self) -> (f64, f64) {
        range(&self.0).unwrap_or((1.0, 1.0))
    }

    /// Ratios within are noise, if this is the control.
    pub fn noise(&self) -> (f64, f64) {
        let (least, most) = self.range();
        let bound = most.max(1.0 / least).max(1.0);
        (1.0 / bound, bound)
    }

    /// What this says of the layer as it is now, if the control has these ratios.
    pub fn judge(&self, control: &Ratios) -> Verdict {
        let ((least, most), (low, high)) = (self.range(), control.noise());
        if least > high && self.median() >= 1.0 + DIFFERENCE_MIN {
            Verdict::PaysForItself
        } else if most < low && self.median() <= 1.0 - DIFFERENCE_MIN {
            Verdict::Costs
        } else {
            Verdict::NoDifference
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Costs, NoDifference, PaysForItself};

    const CALM: [f64; 3] = [1.0, 1.01, 0.99];

    fn verdict(ratios: &[f64], control: &[f64]) -> Verdict {
        Ratios(ratios.to_vec()).judge(&Ratios(control.to_vec()))
    }

    #[test]
    fn difference_beyond_the_noise_in_every_round_is_told() {
        assert_eq!(verdict(&[1.2, 1.3, 1.25], &CALM), PaysForItself);
        assert_eq!(verdict(&[0.8, 0.7, 0.75], &CALM), Costs);
        assert_eq!(verdict(&[1.2, 0.99, 1.25], &CALM), NoDifference, "one round says otherwise");
    }

    #[test]
    fn what_the_control_does_too_is_noise() {
        assert_eq!(verdict(&[1.2, 1.3, 1.25], &[1.0, 1.22, 0.9]), NoDifference);
        assert_eq!(verdict(&[0.8, 0.7, 0.75], &[1.0, 1.22, 0.78]), NoDifference);
        assert_eq!(verdict(&[1.2, 1.3, 1.25], &[0.6, 0.7, 0.9]), NoDifference, "noise is symmetric");
        assert_eq!(Ratios(vec![0.5, 1.5]).noise(), (0.5, 2.0));
    }

    #[test]
    fn small_difference_is_none_even_on_a_calm_machine() {
        assert_eq!(verdict(&[1.012, 1.013, 1.014], &[1.0, 1.001, 1.0]), NoDifference);
        assert_eq!(verdict(&[0.985, 0.987, 0.99], &[1.0, 1.0, 1.0]), NoDifference);
        assert_eq!(verdict(&[], &[]), NoDifference);
    }

    #[test]
    fn ratios_are_those_of_the_same_round() {
        let ratios = Ratios::of(&[1.0, 2.0, 0.0], &[2.0, 3.0, 4.0]);
        assert_eq!(ratios, Ratios(vec![2.0, 1.5]));
        assert_eq!((ratios.median(), ratios.range()), (1.75, (1.5, 2.0)));
        assert_eq!(Ratios::of(&[], &[]).median(), 1.0);
    }
}
