//! Medians and spreads.

/// The middle value, or the mean of the two in the middle; `None` of no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[n / 2]),
        n => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

/// The least and the greatest value; `None` of no values.
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    Some((least, values.iter().copied().max_by(f64::total_cmp)?))
}

/// How far the values lie apart, as a part of their median; `None` of fewer than two values.
pub fn spread(values: &[f64]) -> Option<f64> {
    let (least, most) = range(values).filter(|_| values.len() > 1)?;
    let median = median(values).filter(|median| *median > 0.0)?;
    Some((most - least) / median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value_or_the_mean_of_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn spread_is_relative_to_the_median_and_needs_two_values() {
        assert_eq!(range(&[2.0, 5.0, 3.0]), Some((2.0, 5.0)));
        assert_eq!(spread(&[2.0, 5.0, 4.0]), Some(0.75));
        assert_eq!(spread(&[2.0]), None);
        assert_eq!(spread(&[0.0, 0.0]), None);
    }
}
