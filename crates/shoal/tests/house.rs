//! The house rules that a compiler does not check.
//!
//! - Dependencies point inward, and each has its reason.
//! - Every promise has its tests.
//! - Files stay short.
//! - What is stored or sent changes only with its version ([`formats`]).
//! - The language is the field's ([`language`]).
//! - Modules form no circle ([`modules`]).

#[path = "house/formats.rs"]
mod formats;
#[path = "house/language.rs"]
mod language;
#[path = "house/modules.rs"]
mod modules;

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The house, inside out. A crate may depend on those of lower rank only.
const RANKS: &[(&str, u32)] = &[
    ("shoal-runtime", 0),
    ("shoal-channel", 0),
    ("shoal-csi", 0),
    ("shoal-coding", 0),
    ("shoal-metrics", 0),
    ("shoal-suites", 0),
    ("shoal-types", 1),
    ("shoal-namespace", 2),
    ("shoal-lease", 2),
    ("shoal-wire", 3),
    ("shoal-store", 4),
    ("shoal-net", 4),
    ("shoal-brick", 5),
    ("shoal-meta", 5),
    ("shoal-cluster", 6),
    ("shoal-client", 7),
    ("shoal-fuse", 8),
    ("shoal", 9),
    ("shoal-sim", 10),
    ("shoal-bench", 10),
    ("shoal-witness", 9),
];

/// What the pure crates may use: libraries that compute, and nothing that reads a clock, a file, a socket or
/// chance.
const PURE: &[(&str, &[&str])] = &[
    ("shoal-coding", &["bytes", "crc32c", "reed-solomon-simd", "thiserror"]),
    ("shoal-types", &["bytes", "libc", "serde", "thiserror", "xxhash-rust"]),
    ("shoal-namespace", &["bytes", "postcard", "serde", "thiserror", "xxhash-rust"]),
    ("shoal-lease", &["serde", "thiserror"]),
    ("shoal-wire", &["bytes", "postcard", "serde", "thiserror"]),
];

/// A file longer than this tells of a missing concept.
const FILE_LINES_MAX: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/shoal is two levels down")
        .to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below `dir` whose name ends with `suffix`, build output and hidden folders left out.
fn files(dir: &Path, suffix: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of the work tree can be listed").flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() && !name.starts_with('.') && name != "target" && name != "run" {
            files(&path, suffix, found);
        } else if name.ends_with(suffix) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    files(&root().join("crates"), ".rs", &mut found);
    assert!(!found.is_empty());
    found.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// The workspace's packages by name, each with its normal dependencies.
fn workspace() -> BTreeMap<String, Vec<String>> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&metadata["packages"])
        .iter()
        .map(|package| {
            let normal = list(&package["dependencies"]).into_iter().filter(|dep| dep["kind"].is_null());
            (text(&package["name"]), normal.map(|dep| text(&dep["name"])).collect())
        })
        .collect()
}

#[test]
fn dependencies_point_inward_only() {
    let ranks: BTreeMap<&str, u32> = RANKS.iter().copied().collect();
    let mut faults = Vec::new();
    for (name, dependencies) in workspace() {
        let Some(rank) = ranks.get(name.as_str()) else {
            faults.push(format!("{name} has no place in the house: give it a rank in {}", file!()));
            continue;
        };
        for dependency in dependencies {
            if ranks.get(dependency.as_str()).is_some_and(|inner| inner >= rank) {
                faults.push(format!("{name} must not depend on {dependency}, which is not further in"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_pure_crates_use_nothing_that_does_io() {
    let workspace = workspace();
    let mut faults = Vec::new();
    for (name, allowed) in PURE {
        for dependency in &workspace[*name] {
            if !allowed.contains(&dependency.as_str()) && !dependency.starts_with("shoal-") {
                faults.push(format!("{name} uses {dependency}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_namespace_reads_no_clock_no_chance_no_file_and_starts_no_thread() {
    let forbidden =
        ["SystemTime", "Instant::now", "std::fs", "std::net", "std::thread", "rand::", "HashMap", "HashSet"];
    let mut faults = Vec::new();
    for (path, text) in sources() {
        if !path.starts_with(root().join("crates/namespace/src")) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in forbidden {
                if code.contains(word) {
                    faults.push(format!("{}:{}: {word}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(faults.is_empty(), "equal input must give equal state, byte for byte:\n{}", faults.join("\n"));
}

#[test]
fn what_is_simulated_takes_locks_channels_threads_clocks_and_chance_from_the_runtime() {
    let simulated = [
        "crates/wire/src",
        "crates/meta/src",
        "crates/client/src",
        "crates/cluster/src/blocks.rs",
        "crates/cluster/src/blocks",
    ];
    let forbidden = ["parking_lot::", "std::thread", "mpsc", "std::time::Instant", "SystemTime", " rand::"];
    let mut faults = Vec::new();
    for (path, text) in sources() {
        if !simulated.iter().any(|dir| path.starts_with(root().join(dir))) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in forbidden.iter().filter(|word| code.contains(**word)) {
                faults.push(format!("{}:{}: {word}", path.display(), number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "a simulation would not be in their place:\n{}", faults.join("\n"));
}

#[test]
fn every_crate_begins_with_what_it_is() {
    for (path, text) in sources() {
        if path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") {
            assert!(text.starts_with("//!"), "{} has no module docs at its top", path.display());
        }
    }
}

#[test]
fn files_stay_readable_and_finished() {
    let unfinished = [["todo", "!("].concat(), ["unimplemented", "!("].concat(), ["FIX", "ME"].concat()];
    let mut faults = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            faults.push(format!("{} has {lines} lines: which concept is missing?", path.display()));
        }
        for word in &unfinished {
            if text.contains(word.as_str()) {
                faults.push(format!("{} has a {word}", path.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_direct_dependency_has_its_reason_in_the_docs() {
    let manifest = read(&root().join("Cargo.toml"));
    let reasons = read(&root().join("docs/DEPENDENCIES.md"));
    let (_, after) =
        manifest.split_once("[workspace.dependencies]").expect("the workspace lists its dependencies");
    let section = after.split("\n[").next().unwrap_or_default();
    let mut faults = Vec::new();
    for line in section.lines() {
        let Some((name, _)) = line.split_once('=') else { continue };
        let name = name.trim();
        if !name.starts_with('#') && !name.starts_with("shoal-") && !reasons.contains(&format!("`{name}`")) {
            faults.push(format!("docs/DEPENDENCIES.md gives no reason for `{name}`"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// These documents name the tests behind what they say, as `` `module::of::test` `` in lines that begin with
/// "Test".
const PROMISES: &[&str] = &["docs/SEMANTICS.md", "docs/KERNEL_CACHE.md"];

#[test]
fn every_promise_in_the_documents_has_a_test_that_exists() {
    let sources = sources();
    let mut faults = Vec::new();
    for document in PROMISES {
        let text = read(&root().join(document));
        let lines = text.lines().filter(|line| line.trim_start().starts_with("Test"));
        let tests: Vec<&str> = lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
        assert!(!tests.is_empty(), "{document} names no tests");
        for test in tests {
            let function = format!("fn {}()", test.rsplit("::").next().unwrap_or(test));
            if !sources.iter().any(|(_, text)| text.contains(&function)) {
                faults.push(format!("{document} names the test {test}, which does not exist"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The last cell of a row in docs/GLOSSARY.md is `` `Type`, `path` ``.
#[test]
fn every_word_of_the_glossary_names_a_type_that_exists() {
    let glossary = read(&root().join("docs/GLOSSARY.md"));
    let rows = glossary.lines().filter(|line| line.starts_with("| ") && line.contains(".rs` |"));
    let (mut words, mut faults) = (0, Vec::new());
    for row in rows {
        words += 1;
        let cell = row.trim_end_matches(" |").rsplit("| ").next().unwrap_or_default();
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        let [name, path] = names[..] else { panic!("{row}: the last cell is no type with its file") };
        let text = fs::read_to_string(root().join("crates").join(path)).unwrap_or_default();
        let kinds = ["struct", "enum", "trait", "type", "const"];
        if !kinds.iter().any(|kind| text.contains(&format!("{kind} {name}"))) {
            faults.push(format!("docs/GLOSSARY.md: there is no {name} in crates/{path}"));
        }
    }
    assert!(words > 0, "docs/GLOSSARY.md has no words");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn documents_point_at_files_that_exist() {
    let mut documents = vec![root().join("README.md")];
    files(&root().join("docs"), ".md", &mut documents);
    let mut faults = Vec::new();
    for document in documents {
        let text = read(&document);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let folder = document.parent().expect("a document is in a folder");
            if !folder.join(path).exists() {
                faults.push(format!("{} points at {path}, which is not there", document.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
