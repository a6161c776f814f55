//! No circles between the modules of a crate: a module can be read, and moved, with only those below it.
//!
//! Coarse on purpose: a module is what stands directly under `src`, with everything inside it. It depends on
//! what its code names as `crate::...` or `super::...`; a name that `lib.rs` re-exports counts as its
//! module's. Tests may name anything.

use super::{files, read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The crates that still have circles. This list may only shrink.
const CIRCULAR: &[&str] = &["meta", "shoal"];

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Code alone: comments are cut off, and so are the tests at the end of a file.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The names that follow directly on `text`: one, or the first of each path in a group of braces.
fn heads(text: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = text.strip_prefix('{') else { return vec![word(text)] };
    let (mut depth, mut found, mut part) = (1, Vec::new(), String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => found.push(word(std::mem::take(&mut part).trim())),
            _ => part.push(c),
        }
        if depth == 0 {
            break;
        }
    }
    found.push(word(part.trim()));
    found
}

/// What `lib.rs` or `main.rs` re-exports, and from which module.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for text in lib.split("use ").skip(1) {
        let text = text.trim_start_matches("crate::").trim_start_matches("self::");
        let statement = text.split(';').next().unwrap_or_default();
        let Some((module, rest)) = statement.split_once("::") else { continue };
        for name in rest.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty()) {
            found.insert(name.to_owned(), module.to_owned());
        }
    }
    found
}

/// The module that a file belongs to, and how many `super::` lead from it to the root of the crate.
fn place(relative: &Path) -> (String, usize) {
    let mut parts: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let last = parts.pop().unwrap_or_default();
    if last != "mod.rs" {
        parts.push(last.trim_end_matches(".rs").to_owned());
    }
    (parts.first().cloned().unwrap_or_default(), parts.len())
}

fn graph(source: &Path) -> Graph {
    let mut paths = Vec::new();
    files(source, ".rs", &mut paths);
    let relative = |path: &Path| path.strip_prefix(source).expect("it was found there").to_owned();
    let roots = ["lib", "main"];
    let lib: String = paths
        .iter()
        .filter(|path| roots.contains(&place(&relative(path)).0.as_str()))
        .map(|path| code(&read(path)))
        .collect();
    let exports = exports(&lib);
    let mut graph: Graph = paths.iter().map(|path| (place(&relative(path)).0, BTreeSet::new())).collect();
    graph.retain(|module, _| !roots.contains(&module.as_str()));
    let modules: BTreeSet<String> = graph.keys().cloned().collect();
    for path in paths {
        let relative = relative(&path);
        let (module, depth) = place(&relative);
        let test = relative.iter().any(|part| part == "tests" || part == "tests.rs");
        if test || roots.contains(&module.as_str()) {
            continue;
        }
        let text = code(&read(&path));
        let up = "super::".repeat(depth);
        let root_paths = text.match_indices("crate::").map(|(at, found)| at + found.len());
        let super_paths = text.match_indices(&up).map(|(at, found)| at + found.len());
        for at in root_paths.chain(super_paths) {
            for head in heads(&text[at..]) {
                let target = if modules.contains(&head) { Some(&head) } else { exports.get(&head) };
                if let Some(target) = target.filter(|target| **target != module && modules.contains(*target))
                {
                    graph.entry(module.clone()).or_default().insert(target.clone());
                }
            }
        }
    }
    graph
}

/// The shortest way from a module back to itself.
fn circle(graph: &Graph, start: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![start.to_owned()]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in &graph[way.last().expect("a way begins somewhere")] {
                if next == start {
                    return Some(way);
                }
                if seen.insert(next) {
                    longer.push([way.as_slice(), std::slice::from_ref(next)].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

#[test]
fn modules_of_a_crate_form_no_circle() {
    let (mut faults, mut without) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(root().join("crates")).expect("the crates can be listed").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let graph = graph(&entry.path().join("src"));
        let circles: BTreeSet<Vec<String>> =
            graph.keys().filter_map(|module| circle(&graph, module)).collect();
        let shortest = circles.iter().min_by_key(|circle| circle.len());
        match (CIRCULAR.contains(&name.as_str()), shortest) {
            (true, None) => without.push(name),
            (false, Some(circle)) => {
                faults.push(format!("{name}: {} -> {}", circle.join(" -> "), circle[0]));
            }
            _ => {}
        }
    }
    assert!(faults.is_empty(), "modules form a circle:\n{}", faults.join("\n"));
    assert!(without.is_empty(), "take these off the list in {}: {}", file!(), without.join(", "));
}
