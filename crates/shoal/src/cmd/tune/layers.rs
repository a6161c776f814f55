//! The layers that can be switched, and what each is measured with.

/// A layer of caching, or a parameter of one.
#[derive(Debug)]
pub struct Layer {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, for the administrator.
    pub what: &'static str,
    /// The mount option that switches it.
    pub key: &'static str,
    /// The option's value where nothing else is said.
    pub default: &'static str,
    /// The value with which it is compared.
    pub alternative: &'static str,
    /// Where it makes sense.
    pub kind: Kind,
    /// Why the alternative is not set without a decision of the administrator.
    pub caution: Option<&'static str>,
}

/// Where a layer makes sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// On every mount.
    Any,
    /// On mounts of a cluster's volume.
    Cluster,
    /// On every mount, if it is asked for by name.
    Trial,
}

impl Kind {
    /// Whether a layer is measured if none is named.
    pub fn is_usual(self, is_cluster: bool) -> bool {
        match self {
            Kind::Any => true,
            Kind::Cluster => is_cluster,
            Kind::Trial => false,
        }
    }
}

const fn layer(
    name: &'static str,
    key: &'static str,
    default: &'static str,
    alternative: &'static str,
    what: &'static str,
) -> Layer {
    Layer { name, what, key, default, alternative, kind: Kind::Any, caution: None }
}

/// All of them.
pub const ALL: &[Layer] = &[
    layer("kernel-cache", "kernel-cache", "on", "off", "the kernel keeps names and attributes"),
    layer("tree-read-ahead", "tree-read-ahead", "on", "off", "directories are prefetched for a walk"),
    layer("file-read-ahead", "file-read-ahead", "on", "off", "blocks are prefetched for a sequence"),
    layer("kernel-read-ahead", "read-ahead", "2048", "128", "KiB that the kernel reads ahead in a file"),
    layer("inline-limit", "inline-limit", "64", "4", "KiB of content that is kept in the metadata"),
    layer("write-behind", "journal-age", "50", "0", "milliseconds in which changes are gathered"),
    Layer {
        caution: Some("a crash of the machine loses up to half a second of what no fsync covers"),
        ..layer("journal-age", "journal-age", "50", "500", "milliseconds in which changes are gathered")
    },
    Layer {
        kind: Kind::Cluster,
        caution: Some("right only where programs of two mounts never lock the same files"),
        ..layer("locks", "locks", "cluster", "local", "locks of programs exclude between all mounts")
    },
    layer("cache", "cache", "256", "32", "MiB for names, attributes and small files"),
    layer("larger-cache", "cache", "256", "1024", "MiB for names, attributes and small files"),
    layer("block-cache", "block-cache", "128", "16", "MiB for blocks of large files"),
    layer("larger-block-cache", "block-cache", "128", "512", "MiB for blocks of large files"),
    Layer {
        kind: Kind::Cluster,
        ..layer(
            "local-reads",
            "local-reads",
            "on",
            "off",
            "blocks of a brick on this machine are read from its files",
        )
    },
    Layer {
        kind: Kind::Trial,
        caution: Some("nothing is known of such a mount any more"),
        ..layer("statistics", "statistics", "on", "off", "requests of the kernel are counted")
    },
    layer("transport", "transport", "auto", "dev", "how requests come from the kernel"),
];

/// A layer by its name.
pub fn find(name: &str) -> Result<&'static Layer, String> {
    ALL.iter().find(|layer| layer.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|layer| layer.name).collect();
        format!("there is no layer '{name}'; there are {}", names.join(", "))
    })
}

/// A layer as it is and as it is tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// The layer's name, or the options that were given.
    pub name: String,
    /// Its value now.
    pub now: String,
    /// The value that is tried.
    pub other: String,
    /// The mount options that switch it.
    pub options: String,
    /// The volume's setting of that name and value, if there is one.
    pub setting: Option<(String, String)>,
    /// Why it is not set without a decision of the administrator.
    pub caution: Option<String>,
}

impl Layer {
    /// How it is tried where its option has a value already, or none.
    pub fn trial(&self, current: Option<&str>) -> Trial {
        let now = current.unwrap_or(self.default);
        // What is tried already is compared with the default.
        let is_tried = now == self.alternative;
        let other = if is_tried { self.default } else { self.alternative };
        let setting = shoal_cluster::options::find(self.key).map(|known| (known.key.into(), other.into()));
        Trial {
            name: self.name.into(),
            now: now.into(),
            other: other.into(),
            options: format!("{}={other}", self.key),
            setting,
            caution: self.caution.filter(|_| !is_tried).map(str::to_owned),
        }
    }
}

impl Trial {
    /// Options of the administrator's own, beside what is now.
    pub fn of_options(options: &str) -> Trial {
        Trial {
            name: options.into(),
            now: "as now".into(),
            other: "tried".into(),
            options: options.into(),
            setting: None,
            caution: None,
        }
    }
}

/// The last value of an option among words such as `ro,cache=64`.
pub fn value_in<'a>(words: &'a str, key: &str) -> Option<&'a str> {
    words.split(',').rev().find_map(|word| word.trim().strip_prefix(key)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn every_layer_is_switched_by_a_mount_option_and_found_by_name() {
        for layer in ALL {
            assert_eq!(find(layer.name).unwrap().name, layer.name);
            for value in [layer.default, layer.alternative] {
                let word = format!("{}={value}", layer.key);
                let options: Options = word.parse().unwrap_or_else(|why| panic!("{word}: {why}"));
                assert_eq!(options.settings(), [word.as_str()]);
                if let Some(known) = shoal_cluster::options::find(layer.key) {
                    shoal_cluster::options::check(known.key, value).unwrap();
                }
            }
        }
        assert!(find("luck").unwrap_err().contains("kernel-cache"));
    }

    #[test]
    fn defaults_of_layers_are_those_of_the_settings_of_volumes() {
        for layer in ALL {
            if let Some(known) = shoal_cluster::options::find(layer.key) {
                assert_eq!(layer.default, known.default, "{}", layer.name);
            }
        }
    }

    #[test]
    fn layer_that_has_its_alternative_already_is_compared_with_its_default() {
        let locks = find("locks").unwrap();
        let (usual, changed) = (locks.trial(None), locks.trial(Some("local")));
        assert_eq!((usual.now.as_str(), usual.options.as_str()), ("cluster", "locks=local"));
        assert_eq!((changed.now.as_str(), changed.options.as_str()), ("local", "locks=cluster"));
        assert!(usual.caution.is_some() && changed.caution.is_none());
        let cache = find("cache").unwrap().trial(Some("512"));
        assert_eq!((cache.now.as_str(), cache.setting), ("512", Some(("cache".into(), "32".into()))));
        assert_eq!(find("kernel-cache").unwrap().trial(None).setting, None);
    }

    #[test]
    fn last_value_of_an_option_counts() {
        assert_eq!(value_in("ro,cache=64, cache=32", "cache"), Some("32"));
        assert_eq!(value_in("block-cache=16", "cache"), None);
        assert_eq!(value_in("", "cache"), None);
    }
}
