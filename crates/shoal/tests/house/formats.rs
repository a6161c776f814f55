//! What is stored or sent changes only with its version.
//!
//! Types are encoded by position (postcard), so a field that is added, moved or retyped makes earlier bytes
//! unreadable. `formats.txt` has a hash of the text of each type that is stored or sent, under the version of
//! its format. Comments and layout do not count.

use super::{read, root};
use std::collections::BTreeMap;
use xxhash_rust::xxh3::xxh3_64;

/// A format: its name, the constants of its versions, and the files with its types. A change raises one of
/// the versions.
struct Format {
    name: &'static str,
    versions: &'static [(&'static str, &'static str)],
    types: &'static [&'static str],
}

const FORMATS: &[Format] = &[
    Format {
        name: "records of the namespace and commands of its log, and the types that messages share with them",
        versions: &[
            ("namespace/src/records.rs", "RECORD_VERSION"),
            ("namespace/src/command.rs", "COMMAND_VERSION"),
            ("namespace/src/codec.rs", "OPS_VERSION"),
            ("namespace/src/keys.rs", "LAYOUT_VERSION"),
            ("wire/src/meta.rs", "PROTOCOL_VERSION"),
        ],
        types: &[
            "types/src/attr.rs",
            "types/src/content.rs",
            "types/src/group.rs",
            "types/src/id.rs",
            "types/src/name.rs",
            "types/src/origin.rs",
            "types/src/time.rs",
            "namespace/src/command.rs",
            "namespace/src/command/place.rs",
            "namespace/src/op.rs",
            "namespace/src/records.rs",
            "namespace/src/tree.rs",
            "lease/src/locks/record.rs",
        ],
    },
    Format {
        name: "messages between clients and metadata servers",
        versions: &[("wire/src/meta.rs", "PROTOCOL_VERSION"), ("net/src/remote/mod.rs", "CALL_VERSION")],
        types: &[
            "namespace/src/query/reply.rs",
            "types/src/errno.rs",
            "wire/src/error.rs",
            "wire/src/lease.rs",
            "wire/src/locks.rs",
            "wire/src/meta.rs",
            "net/src/remote/meta.rs",
        ],
    },
    Format {
        name: "messages to bricks",
        versions: &[("net/src/remote/mod.rs", "CALL_VERSION")],
        types: &["wire/src/block.rs", "net/src/remote/brick.rs"],
    },
    Format {
        name: "refusals",
        versions: &[("wire/src/denial.rs", "DENIAL_VERSION")],
        types: &["wire/src/denial.rs"],
    },
    Format {
        name: "cluster map",
        versions: &[("cluster/src/map.rs", "MAP_VERSION")],
        types: &["cluster/src/map.rs", "types/src/scheme.rs"],
    },
    Format {
        name: "commands of the cluster",
        versions: &[("cluster/src/command.rs", "COMMAND_VERSION")],
        types: &["cluster/src/command.rs", "types/src/scheme.rs"],
    },
    Format {
        name: "messages about snapshots",
        versions: &[("meta/src/snapshot.rs", "VERSION")],
        types: &["meta/src/snapshot.rs"],
    },
    Format {
        name: "calls between servers",
        versions: &[("shoal/src/server/calls.rs", "CALLS_VERSION")],
        types: &["shoal/src/server/calls.rs"],
    },
    Format {
        name: "data directory of a node",
        versions: &[("shoal/src/server/node_dir.rs", "FORMAT")],
        types: &["shoal/src/server/node_dir.rs"],
    },
    Format {
        name: "data directory of one machine",
        versions: &[("shoal/src/data_dir.rs", "FORMAT")],
        types: &["shoal/src/data_dir.rs"],
    },
    Format {
        name: "records of CSI volumes",
        versions: &[("csi/src/directories.rs", "RECORD_VERSION")],
        types: &["csi/src/directories.rs"],
    },
];

/// Where the hashes are, below the folder of this crate's tests.
const RECORDED: &str = "crates/shoal/tests/house/formats.txt";

/// Updates the hashes. `same` says that the bytes are the same although the text is not, as after a
/// field was renamed.
const WRITE: &str = "SHOAL_TEST_WRITE_FORMATS";

/// A type's text from its derive to its end, without comments and with single blanks.
fn types(source: &str) -> BTreeMap<String, String> {
    let code: Vec<&str> = source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut found = BTreeMap::new();
    for (at, _) in code.match_indices("#[derive(") {
        let Some(derives) = code[at..].split(")]").next() else { continue };
        if !derives.contains("Serialize") {
            continue;
        }
        let rest = &code[at..];
        let Some(body) = rest.find(['{', ';']) else { continue };
        let end = match rest[body..].starts_with(';') {
            true => body,
            false => {
                let mut depth = 0;
                let closing = rest[body..].char_indices().find(|(_, c)| {
                    depth += i32::from(*c == '{') - i32::from(*c == '}');
                    depth == 0
                });
                body + closing.map_or(0, |(at, _)| at)
            }
        };
        let text = rest[derives.len() + 2..=end].split_whitespace().collect::<Vec<_>>().join(" ");
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        if words.any(|word| word == "struct" || word == "enum") {
            found.insert(words.next().unwrap_or_default().to_owned(), text.clone());
        }
    }
    found
}

/// The value of a constant, as it is written.
fn version(file: &str, name: &str) -> String {
    let text = read(&root().join("crates").join(file));
    let line = text.lines().find(|line| line.contains(&format!("const {name}: ")));
    let value = line.and_then(|line| line.split(" = ").nth(1)).map(|value| value.trim_end_matches(';'));
    value.unwrap_or_else(|| panic!("crates/{file} has no constant {name}")).to_owned()
}

/// The lines of each format: its versions, then its types with their hashes.
fn current() -> BTreeMap<&'static str, (Vec<String>, Vec<String>)> {
    let mut all = BTreeMap::new();
    for format in FORMATS {
        let versions =
            format.versions.iter().map(|(file, name)| format!("{file} {name} {}", version(file, name)));
        let mut hashes = Vec::new();
        for file in format.types {
            let found = types(&read(&root().join("crates").join(file)));
            hashes.extend(
                found
                    .into_iter()
                    .map(|(name, text)| format!("{file} {name} {:016x}", xxh3_64(text.as_bytes()))),
            );
        }
        all.insert(format.name, (versions.collect(), hashes));
    }
    all
}

/// The versions and hashes that `formats.txt` records for each format.
fn recorded(text: &str) -> BTreeMap<String, (Vec<String>, Vec<String>)> {
    let mut all = BTreeMap::<String, (Vec<String>, Vec<String>)>::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(version) = line.strip_prefix("  version ") {
            all.entry(name.clone()).or_default().0.push(version.to_owned());
        } else if let Some(hash) = line.strip_prefix("  ") {
            all.entry(name.clone()).or_default().1.push(hash.to_owned());
        } else {
            name = line.to_owned();
        }
    }
    all
}

/// The types that are in one list only.
fn changed(before: &[String], now: &[String]) -> Vec<String> {
    let other = |one: &[String], two: &[String]| -> Vec<String> {
        one.iter().filter(|line| !two.contains(line)).cloned().collect()
    };
    let mut names: Vec<String> = [other(before, now), other(now, before)].concat();
    names.iter_mut().for_each(|line| *line = line.rsplit_once(' ').map_or("", |(name, _)| name).to_owned());
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn stored_or_sent_type_changes_only_with_the_version_of_its_format() {
    let path = root().join(RECORDED);
    let before = recorded(&std::fs::read_to_string(&path).unwrap_or_default());
    let write = std::env::var(WRITE).ok();
    let (mut text, mut faults, mut stale) = (String::new(), Vec::new(), false);
    for (name, (versions, hashes)) in current() {
        text.push_str(&format!("{name}\n"));
        versions.iter().for_each(|line| text.push_str(&format!("  version {line}\n")));
        hashes.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        let Some((versions_before, hashes_before)) = before.get(name) else {
            stale = true;
            continue;
        };
        let types = changed(hashes_before, &hashes);
        stale |= !types.is_empty() || *versions_before != versions;
        if !types.is_empty() && *versions_before == versions && write.as_deref() != Some("same") {
            faults.push(format!(
                "{name}: {} changed, and none of:\n    {}",
                types.join(", "),
                versions.join("\n    ")
            ));
        }
    }
    assert!(
        faults.is_empty(),
        "what is stored or sent has changed without a version:\n{}\n\
         Raise the version, keep the reader of the old one (a server of the last release sends and has stored it), then\n    \
         {WRITE}=1 cargo test --release -p shoal --test house formats\n\
         If the bytes are the same as before (a name changed), write {WRITE}=same instead.",
        faults.join("\n")
    );
    if write.is_some() {
        std::fs::write(&path, text).expect("the hashes can be written");
        return;
    }
    assert!(
        !stale,
        "{RECORDED} is older than the types. Run: {WRITE}=1 cargo test --release -p shoal --test house formats"
    );
}

#[test]
fn changed_field_is_seen_and_a_changed_comment_is_not() {
    let text = |field: &str, comment: &str| {
        let source = format!(
            "/// A.\n#[derive(Clone, Serialize)]\npub struct A {{\n    // {comment}\n    {field},\n}}\nfn f() {{}}\n"
        );
        types(&source).remove("A").expect("the type is found")
    };
    assert_eq!(text("a: u8", "one"), text("a: u8", "another } comment"));
    assert_ne!(text("a: u8", "one"), text("a: u16", "one"));
    let found = types(
        "#[derive(Serialize)]\nstruct Id(u64);\n#[derive(Debug)]\nstruct No;\n#[derive(Serialize)]\nenum E { A { b: u8 }, C }",
    );
    assert_eq!(found.keys().collect::<Vec<_>>(), ["E", "Id"]);
    assert!(found["E"].ends_with("C }") && found["Id"].ends_with("(u64);"), "{found:?}");
}
