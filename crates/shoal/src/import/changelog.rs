//! The changelog of replicas: `trusted.afr.VOLUME-client-N` on one brick counts operations that brick N
//! missed.

use super::xattr;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::path::Path;

/// What one brick's copy of a file says about the copies on others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changelog {
    /// Attributes that count missed writes or changes of attributes.
    pub content: BTreeSet<CString>,
    /// Attributes that count missed creations and deletions in a directory.
    pub entries: BTreeSet<CString>,
    /// An operation was in progress when the brick stopped.
    pub dirty: bool,
}

impl Changelog {
    pub fn read(path: &Path, names: &[CString]) -> io::Result<Changelog> {
        let mut read = Changelog::default();
        for name in names.iter().filter(|name| name.as_bytes().starts_with(b"trusted.afr.")) {
            let value = xattr::get(path, name)?.unwrap_or_default();
            // Three numbers of 32 bits: data, attributes, entries.
            let counts =
                |range: std::ops::Range<usize>| value.get(range).unwrap_or(&[]).iter().any(|b| *b != 0);
            if name.as_bytes() == b"trusted.afr.dirty" {
                read.dirty = counts(0..12.min(value.len()));
                continue;
            }
            if counts(0..8.min(value.len())) {
                read.content.insert(name.clone());
            }
            if counts(8.min(value.len())..value.len()) {
                read.entries.insert(name.clone());
            }
        }
        Ok(read)
    }
}

/// Which copies of a replica set are good, by their position; `None` if they accuse each other.
///
/// A copy that accuses another one has seen the latest change, and one that accuses none beside it has missed
/// that. No copy accuses itself, so copies that accuse the same ones do not accuse each other.
pub fn good(accused: &[&BTreeSet<CString>]) -> Option<Vec<usize>> {
    let accusers: Vec<usize> = (0..accused.len()).filter(|at| !accused[*at].is_empty()).collect();
    let Some(first) = accusers.first() else { return Some((0..accused.len()).collect()) };
    accusers.iter().all(|at| accused[*at] == accused[*first]).then_some(accusers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuser_is_good_and_mutual_accusation_is_split_brain() {
        let none = BTreeSet::new();
        let to = |n: u32| BTreeSet::from([CString::new(format!("trusted.afr.v-client-{n}")).unwrap()]);
        let (zero, one, two) = (to(0), to(1), to(2));
        assert_eq!(good(&[&none, &none]), Some(vec![0, 1]));
        assert_eq!(good(&[&none, &zero]), Some(vec![1]));
        assert_eq!(good(&[&one, &zero]), None);
        assert_eq!(good(&[&two, &two, &none]), Some(vec![0, 1]));
        assert_eq!(good(&[&two, &none, &zero]), None, "unclear, so none is taken");
    }
}
