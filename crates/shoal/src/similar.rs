//! Finds the name that was probably meant by a misspelt one.

/// Most letters that are wrong, missing, superfluous or swapped.
const DISTANCE_MAX: usize = 2;
/// Each of them needs so many letters in the name, so that short words are not taken for each other.
const LETTERS_PER_ERROR: usize = 3;

/// The most similar of these names; `None` if none is similar enough. A name that is among them is similar to
/// itself, so that is to be looked up before.
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_sign = |letter: char| ['-', '_', '.'].contains(&letter);
    let letters = |name: &str| name.replace(is_sign, "").to_lowercase();
    let wanted = letters(word);
    let distance = |name: &'a str| {
        if letters(name) == wanted {
            return Some((0, name));
        }
        let distance = strsim::osa_distance(word, name);
        (distance <= DISTANCE_MAX && distance * LETTERS_PER_ERROR <= name.len()).then_some((distance, name))
    };
    names.filter_map(distance).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_name_is_similar_to_the_one_that_was_meant_and_a_different_one_is_not() {
        let names = || ["locks", "cache", "ro", "features.read-only", "network.ping-timeout"].into_iter();
        for (word, meant) in [
            ("lokcs", "locks"),
            ("LOCKS", "locks"),
            ("features.reed-only", "features.read-only"),
            ("features_readonly", "features.read-only"),
            ("network.pingtimeout", "network.ping-timeout"),
        ] {
            assert_eq!(nearest(word, names()), Some(meant), "{word}");
        }
        for other in ["rw", "r", "features.shard", "unheard-of", ""] {
            assert_eq!(nearest(other, names()), None, "{other}");
        }
    }
}
