//! The rules of language: comments, documents and names are in the words of the field, short, and stand
//! alone.
//!
//! A rule looks at the lines of a file. No file is exempt.

use super::{files, read, root};

/// Columns of a line of comment or of a document, as for code.
const COLUMNS_MAX: usize = 110;

/// Words of one sentence.
const SENTENCE_WORDS_MAX: usize = 40;

/// Findings shown for one file.
const SHOWN_MAX: usize = 20;

/// No role has one of these names, neither in prose nor in an identifier nor in a message.
const BANNED: &[&str] = &[
    concat!("who", "ever"),
    concat!("whom", "ever"),
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("any", "body"),
    concat!("every", "body"),
    concat!("h", "e"),
    concat!("hi", "s"),
    concat!("hi", "m"),
];

/// Programs and clients are not "others". These words after it, without "the" or "all" before it, show what
/// is meant.
const OTHERS_DO: &[&str] = &[
    "may", "can", "have", "had", "wait", "work", "hold", "look", "see", "write", "read", "change", "changed",
    "move", "moved", "use", "make", "made", "find", "found", "get", "who",
];

/// A comment that says only this points at another one, which a hover of the editor does not show.
const POINTING: &[&str] = &[
    "which",
    "the same",
    "see there",
    "see above",
    "see below",
    "as above",
    "as below",
    "as there",
    "ditto",
];

struct Fault {
    line: usize,
    what: String,
}

/// Lines of prose that belong together, without their comment marks: a paragraph, an item of a list.
struct Paragraph {
    line: usize,
    text: String,
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// What the banned words are looked for in: prose, identifiers and messages alike.
fn banned(number: usize, line: &str, faults: &mut Vec<Fault>) {
    let words: Vec<String> = words(line).map(str::to_lowercase).collect();
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |before| words[before].as_str());
        let after = words.get(at + 1).map_or("", String::as_str);
        if BANNED.contains(&word.as_str())
            || word == "others" && OTHERS_DO.contains(&after) && !["the", "all"].contains(&before)
        {
            faults.push(Fault { line: number, what: format!("\"{word}\": name the role") });
        }
    }
}

/// The text of a comment that has a line to itself.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

/// A code span counts as one word.
fn without_spans(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { part } else { "code" }).collect()
}

/// Whether a line begins something new: an item of a list, a heading, a quotation, or the tests of a promise.
fn begins_anew(text: &str) -> bool {
    let item = text.trim_start_matches(|c: char| c.is_ascii_digit());
    ["- ", "* ", "# ", "## ", "### ", "> ", "Test"].iter().any(|mark| text.starts_with(mark))
        || (item.len() < text.len() && item.starts_with(". "))
}

/// The prose of a file: `None` of `prose` is a line without any.
fn paragraphs<'a>(
    lines: impl Iterator<Item = (usize, &'a str)>,
    prose: fn(&str) -> Option<&str>,
) -> Vec<Paragraph> {
    let (mut found, mut open, mut fenced) = (Vec::<Paragraph>::new(), false, false);
    for (line, whole) in lines {
        let Some(text) = prose(whole) else {
            open = false;
            continue;
        };
        let fence = text.starts_with("```");
        fenced ^= fence;
        if fence || fenced || text.is_empty() || text.starts_with('|') {
            open = false;
            continue;
        }
        if open && !begins_anew(text) {
            let paragraph = found.last_mut().expect("an open paragraph is in the list");
            paragraph.text.push(' ');
            paragraph.text.push_str(text);
        } else {
            found.push(Paragraph { line, text: text.to_owned() });
        }
        open = true;
    }
    found
}

fn sentences(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for word in without_spans(text).split_whitespace() {
        let sentence = found.last_mut().expect("there is always one");
        sentence.push_str(word);
        sentence.push(' ');
        if word.trim_end_matches([')', '"', '*', '_']).ends_with(['.', '?', '!']) {
            found.push(String::new());
        }
    }
    found
}

fn prose(paragraphs: Vec<Paragraph>, faults: &mut Vec<Fault>) {
    for Paragraph { line, text } in paragraphs {
        if text.starts_with("Test") {
            continue;
        }
        for sentence in sentences(&text) {
            let count = words(&sentence).count();
            if count > SENTENCE_WORDS_MAX {
                let begin: String = sentence.chars().take(50).collect();
                faults.push(Fault { line, what: format!("a sentence of {count} words: \"{begin}...\"") });
            }
            if POINTING.contains(&sentence.trim().trim_end_matches('.').to_lowercase().as_str()) {
                faults
                    .push(Fault { line, what: format!("\"{}\" makes no sense on its own", sentence.trim()) });
            }
        }
    }
}

fn too_long(number: usize, line: &str, faults: &mut Vec<Fault>) {
    let columns = line.chars().count();
    if columns > COLUMNS_MAX && !line.contains("://") {
        faults.push(Fault { line: number, what: format!("{columns} columns") });
    }
}

fn source(text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let (mut fenced, lines) = (false, || text.lines().enumerate().map(|(at, line)| (at + 1, line)));
    for (number, line) in lines() {
        banned(number, line, &mut faults);
        if let Some(text) = comment(line) {
            fenced ^= text.starts_with("```");
            if !fenced && !text.starts_with('|') {
                too_long(number, line, &mut faults);
            }
        }
    }
    prose(paragraphs(lines(), comment), &mut faults);
    faults
}

fn document(text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let (mut fenced, lines) = (false, || text.lines().enumerate().map(|(at, line)| (at + 1, line)));
    for (number, line) in lines() {
        // The name of a test is checked in the file of the test.
        if !line.starts_with("Test") {
            banned(number, line, &mut faults);
        }
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && !line.trim_start().starts_with('|') {
            too_long(number, line, &mut faults);
        }
    }
    prose(paragraphs(lines(), |line| Some(line.trim())), &mut faults);
    faults
}

#[test]
fn comments_documents_and_names_keep_the_rules_of_language() {
    let mut paths = vec![root().join("README.md")];
    files(&root().join("docs"), ".md", &mut paths);
    files(&root().join("crates"), ".rs", &mut paths);
    let mut broken = Vec::new();
    for path in paths {
        let name =
            path.strip_prefix(root()).expect("the file is in the work tree").to_string_lossy().into_owned();
        let text = read(&path);
        let faults = if name.ends_with(".rs") { source(&text) } else { document(&text) };
        let shown = faults.iter().take(SHOWN_MAX);
        broken.extend(shown.map(|fault| format!("{name}:{}: {}", fault.line, fault.what)));
    }
    assert!(broken.is_empty(), "these break the rules of language:\n{}\n", broken.join("\n"));
}

#[test]
fn each_rule_of_language_finds_what_it_is_for() {
    let found = |text: &str| -> Vec<String> { source(text).into_iter().map(|fault| fault.what).collect() };
    let one = |text: &str, part: &str| {
        let found = found(text);
        assert!(found.len() == 1 && found[0].contains(part), "{text:?} gave {found:?}");
    };
    one(&format!("// {}", "long ".repeat(22)), "columns");
    one(&"// word word word word word word\n".repeat(7), "42 words");
    one(&format!("fn it_waits_for_{}() {{}}", BANNED[0]), "name the role");
    one(&format!("let text = \"{} is there\";", BANNED[3]), "name the role");
    one(concat!("// It is shown what oth", "ers have written."), "name the role");
    one("/// Which.", "on its own");
    for clean in [
        "// The others have one, too.",
        "// | a | table | may | be | as | wide | as | it | likes | which | is | more | than | a | hundred | columns |",
        "// https://docs.kernel.org/filesystems/fuse.html#a-very-long-fragment-that-cannot-be-broken-into-two-lines-at-all",
        "// A sentence of six words here.\n".repeat(7).as_str(),
    ] {
        assert_eq!(found(clean), Vec::<String>::new(), "{clean:?}");
    }
}
