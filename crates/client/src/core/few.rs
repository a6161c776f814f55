//! A map in order of its keys that usually has one entry at most: then it needs no memory of its own.
//!
//! Nearly every file has one extent, and one known range. A `BTreeMap` would allocate room for eleven.

use std::collections::BTreeMap;
use std::ops::Range;

/// A map from offsets.
#[derive(Clone, Debug)]
pub(crate) enum FewMap<V> {
    /// At most one entry.
    One(Option<(u64, V)>),
    /// Two or more.
    Many(BTreeMap<u64, V>),
}

impl<V> Default for FewMap<V> {
    fn default() -> FewMap<V> {
        FewMap::One(None)
    }
}

impl<V: PartialEq> PartialEq for FewMap<V> {
    fn eq(&self, other: &FewMap<V>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<V: Eq> Eq for FewMap<V> {}

impl<V> FromIterator<(u64, V)> for FewMap<V> {
    fn from_iter<I: IntoIterator<Item = (u64, V)>>(entries: I) -> FewMap<V> {
        let mut map = FewMap::default();
        entries.into_iter().for_each(|(key, value)| _ = map.insert(key, value));
        map
    }
}

impl<V> FewMap<V> {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, FewMap::One(None))
    }

    /// Whether there are two entries at least.
    pub(crate) fn is_many(&self) -> bool {
        matches!(self, FewMap::Many(_))
    }

    /// All entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        let (one, many) = match self {
            FewMap::One(one) => (one.as_ref(), None),
            FewMap::Many(map) => (None, Some(map)),
        };
        let one = one.into_iter().map(|(key, value)| (*key, value));
        one.chain(many.into_iter().flat_map(|map| map.iter()).map(|(key, value)| (*key, value)))
    }

    /// All values, in order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The entries in a range of keys, in order.
    pub(crate) fn range(&self, keys: Range<u64>) -> impl Iterator<Item = (u64, &V)> {
        let (one, many) = match self {
            FewMap::One(one) => (one.as_ref().filter(|(key, _)| keys.contains(key)), None),
            // `BTreeMap::range` panics if the start is behind the end.
            FewMap::Many(map) => (None, Some(map.range(keys.start..keys.end.max(keys.start)))),
        };
        let one = one.into_iter().map(|(key, value)| (*key, value));
        one.chain(many.into_iter().flatten().map(|(key, value)| (*key, value)))
    }

    /// The last entry whose key is at most this one.
    pub(crate) fn at_or_before(&self, key: u64) -> Option<(u64, &V)> {
        match self {
            FewMap::One(one) => one.as_ref().filter(|(at, _)| *at <= key).map(|(at, value)| (*at, value)),
            FewMap::Many(map) => map.range(..=key).next_back().map(|(at, value)| (*at, value)),
        }
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        match self {
            FewMap::One(one) => one.as_mut().filter(|(at, _)| *at == key).map(|(_, value)| value),
            FewMap::Many(map) => map.get_mut(&key),
        }
    }

    /// Sets an entry. Returns the value before.
    pub(crate) fn insert(&mut self, key: u64, value: V) -> Option<V> {
        match self {
            FewMap::Many(map) => map.insert(key, value),
            FewMap::One(one) => match one.take() {
                None => {
                    *one = Some((key, value));
                    None
                }
                Some((at, before)) if at == key => {
                    *one = Some((key, value));
                    Some(before)
                }
                Some(other) => {
                    *self = FewMap::Many(BTreeMap::from([other, (key, value)]));
                    None
                }
            },
        }
    }

    /// Removes an entry, and returns its value.
    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        match self {
            FewMap::One(one) => one.take_if(|(at, _)| *at == key).map(|(_, value)| value),
            FewMap::Many(map) => {
                let removed = map.remove(&key);
                if map.len() == 1 {
                    *self = FewMap::One(map.pop_first());
                }
                removed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_agrees_with_a_tree() {
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let (mut map, mut tree) = (FewMap::default(), BTreeMap::new());
        for _ in 0..20_000 {
            let (key, value) = (next(6), next(100));
            match next(3) {
                0 => assert_eq!(map.insert(key, value), tree.insert(key, value)),
                1 => assert_eq!(map.remove(key), tree.remove(&key)),
                _ => assert_eq!(map.get_mut(key), tree.get_mut(&key)),
            }
            assert!(map.iter().eq(tree.iter().map(|(key, value)| (*key, value))));
            let (from, to) = (next(7), next(7));
            let range = tree.range(from..to.max(from)).map(|(key, value)| (*key, value));
            assert!(map.range(from..to).eq(range));
            let before = tree.range(..=from).next_back().map(|(key, value)| (*key, value));
            assert_eq!((map.at_or_before(from), map.is_empty()), (before, tree.is_empty()));
            assert_eq!(
                matches!(map, FewMap::Many(_)),
                tree.len() > 1,
                "it takes no more memory than it must"
            );
        }
    }
}
