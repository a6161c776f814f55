//! GlusterFS's volume files: translators and how they are stacked.
//!
//! ```text
//! volume web-client-0
//!     type protocol/client
//!     option remote-host node1
//!     option remote-subvolume /srv/web
//! end-volume
//! ```

/// One translator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Translator {
    pub name: String,
    /// As in `cluster/replicate`.
    pub kind: String,
    /// Keys and values.
    pub options: Vec<(String, String)>,
    pub subvolumes: Vec<String>,
    /// The line at which it begins, from 1.
    pub line: usize,
}

impl Translator {
    /// The value of an option.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

/// Translators in the order of the file. The error says at which line the file is wrong.
pub fn parse(text: &str) -> Result<Vec<Translator>, String> {
    let (mut done, mut open) = (Vec::<Translator>::new(), None::<Translator>);
    for (line, words) in (1..).zip(text.lines()) {
        let words = words.split('#').next().unwrap_or_default();
        let mut words = words.split_whitespace();
        let Some(first) = words.next() else { continue };
        let rest: Vec<&str> = words.collect();
        let at = |why: &str| format!("line {line}: {why}");
        match (first, &mut open) {
            ("volume", None) => {
                let [name] = rest[..] else { return Err(at("`volume` takes a name")) };
                if done.iter().any(|one| one.name == name) {
                    return Err(at(&format!("there is a volume {name} already")));
                }
                open = Some(Translator { name: name.to_owned(), line, ..Translator::default() });
            }
            ("volume", Some(one)) => return Err(at(&format!("`end-volume` of {} is missing", one.name))),
            (word, None) => return Err(at(&format!("'{word}' stands outside of a volume"))),
            ("type", Some(one)) => {
                let [kind] = rest[..] else {
                    return Err(at("`type` takes one word, as in cluster/replicate"));
                };
                one.kind = kind.to_owned();
            }
            ("option", Some(one)) => {
                let [key, value @ ..] = &rest[..] else { return Err(at("`option` takes a key and a value")) };
                one.options.push(((*key).to_owned(), value.join(" ")));
            }
            ("subvolumes", Some(one)) => one.subvolumes.extend(rest.iter().map(|&word| word.to_owned())),
            ("end-volume", Some(one)) => {
                if one.kind.is_empty() {
                    return Err(at(&format!("volume {} has no type", one.name)));
                }
                let missing =
                    one.subvolumes.iter().find(|name| done.iter().all(|known| known.name != **name));
                if let Some(name) = missing {
                    return Err(at(&format!("{} stands on {name}, which is not defined above it", one.name)));
                }
                done.extend(open.take());
            }
            (word, Some(_)) => {
                return Err(at(&format!("'{word}': expected type, option, subvolumes or end-volume")));
            }
        }
    }
    match open {
        Some(one) => Err(format!("line {}: `end-volume` of {} is missing", one.line, one.name)),
        None if done.is_empty() => Err("there is no volume in it".into()),
        None => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translators_are_read_with_options_and_subvolumes() {
        let text = "# a comment\nvolume a\n type storage/posix\n option directory /srv/a b # here\nend-volume\n\
                    volume b\n type features/locks\n subvolumes a\nend-volume\n";
        let read = parse(text).expect("it is right");
        assert_eq!(read.len(), 2);
        assert_eq!(read[0].option("directory"), Some("/srv/a b"));
        assert_eq!(
            (read[1].kind.as_str(), &read[1].subvolumes[..]),
            ("features/locks", &["a".to_owned()][..])
        );
    }

    #[test]
    fn wrong_volume_file_is_refused_with_its_line() {
        for (text, why) in [
            ("", "no volume"),
            ("type x/y", "line 1: 'type' stands outside"),
            ("volume a\nvolume b", "line 2: `end-volume` of a"),
            ("volume a\ntype x/y", "line 1: `end-volume` of a"),
            ("volume a\nend-volume", "line 2: volume a has no type"),
            ("volume a\ntype x/y\nsubvolumes b\nend-volume", "line 4: a stands on b"),
            ("volume a\ntype\n", "line 2: `type`"),
            ("volume a\noption\n", "line 2: `option`"),
            ("volume a\nnonsense 1\n", "line 2: 'nonsense'"),
            ("volume\n", "line 1: `volume` takes a name"),
            ("volume a\ntype x/y\nend-volume\nvolume a\n", "line 4: there is a volume a"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
