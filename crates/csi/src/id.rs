//! Ids of volumes, and the directories of volumes that are created by name.

use crate::limits::{DIRECTORY_BYTES_MAX, ID_BYTES_MAX};
use anyhow::{bail, ensure};
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// Names a directory of a Shoal volume: `VOLUME/DIRECTORY[/DIRECTORY...]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeId {
    /// The Shoal volume.
    pub volume: String,
    /// The directory in it.
    pub path: String,
}

impl VolumeId {
    /// Reads an id; its parts are names of files, so it cannot lead out of the volume.
    pub fn parse(text: &str) -> anyhow::Result<VolumeId> {
        ensure!(text.len() <= ID_BYTES_MAX, "the id has {} bytes; {ID_BYTES_MAX} are allowed", text.len());
        let Some((volume, path)) = text.split_once('/') else {
            bail!("'{}' is no id of a volume, which is VOLUME/DIRECTORY", text.escape_debug());
        };
        for part in text.split('/') {
            let plain = part.chars().all(|c| c.is_alphanumeric() || "-_.@+=".contains(c));
            ensure!(
                plain && !part.is_empty() && part != "." && part != "..",
                "'{}' is no id of a volume: a part is empty or not the name of a directory",
                text.escape_debug()
            );
        }
        Ok(VolumeId { volume: volume.to_owned(), path: path.to_owned() })
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.volume, self.path)
    }
}

/// The directory of a volume that is created by a name. A name that can be one is kept; of another one the
/// usable start is, and a hash.
pub fn directory_of(name: &str) -> String {
    let usable = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if name.chars().all(usable) && !name.starts_with('.') && name.len() <= DIRECTORY_BYTES_MAX {
        return name.to_owned();
    }
    let hash = format!("-{:016x}", xxh3_64(name.as_bytes()));
    let start = name.chars().map(|c| if usable(c) && c != '.' { c } else { '_' });
    start.take(DIRECTORY_BYTES_MAX - hash.len()).collect::<String>() + &hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_names_a_directory_of_a_volume_and_cannot_lead_out_of_it() {
        let id = VolumeId::parse("web/csi/pvc-1").unwrap();
        assert_eq!(
            (id.volume.as_str(), id.path.as_str(), id.to_string().as_str()),
            ("web", "csi/pvc-1", "web/csi/pvc-1")
        );
        let long = format!("web/{}", "x".repeat(ID_BYTES_MAX));
        for bad in [
            "",
            "web",
            "web/",
            "/csi",
            "web/../etc",
            "web/csi/..",
            "web//a",
            "web/a\0",
            "web/a b",
            "web/a,b:/c",
            &long,
        ] {
            assert!(VolumeId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn name_that_cannot_be_a_directory_becomes_a_short_one_that_is_its_own() {
        assert_eq!(directory_of("pvc-0d7c"), "pvc-0d7c");
        let names =
            ["../../etc", ".shoal-csi", "a/b", "a_b ", "a\0b", "ä", &"n".repeat(128), &"n".repeat(127)];
        let made: Vec<String> = names.iter().map(|name| directory_of(name)).collect();
        for (n, directory) in made.iter().enumerate() {
            assert!(directory.len() <= DIRECTORY_BYTES_MAX && !directory.starts_with('.'), "{directory}");
            VolumeId::parse(&format!("web/{directory}")).unwrap();
            assert!(!made[..n].contains(directory), "{directory}");
        }
    }
}
