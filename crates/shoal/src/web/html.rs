//! Writes HTML. Markup can only be a literal of this program; whatever else is written is escaped.

use std::fmt::{self, Display, Write};

/// A part of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Html(String);

impl Html {
    /// Adds markup.
    pub fn raw(&mut self, markup: &'static str) {
        self.0.push_str(markup);
    }

    /// Adds text, as the content of an element or as the value of an attribute in double quotes.
    pub fn text(&mut self, text: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(Escaping(&mut self.0), "{text}");
    }

    /// Adds a part.
    pub fn part(&mut self, part: &Html) {
        self.0.push_str(&part.0);
    }

    /// Adds a segment of a path or a value of a query, for the address in a link.
    pub fn segment(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                    self.0.push(char::from(byte));
                }
                other => {
                    let _ = write!(self.0, "%{other:02X}");
                }
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

/// Escapes what passes through.
struct Escaping<'a>(&'a mut String);

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                c if c.is_control() => self.0.push('\u{fffd}'),
                // They turn the direction of text, and could show one name as another.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// Decodes a segment of a path or a value of a query. `None`: it is not UTF-8, or cut off.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                bytes.push((high * 16 + low) as u8);
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Adds to a page, in order: `"markup"`, `(text)` that is escaped, `[part]`, `{segment of an address}`.
macro_rules! put {
    ($page:expr; $($piece:tt),+ $(,)?) => {{
        let page: &mut $crate::web::html::Html = &mut *$page;
        $($crate::web::html::put_one!(page, $piece);)+
    }};
}

/// One piece of [`put!`].
macro_rules! put_one {
    ($page:ident, ($text:expr)) => {
        $page.text($text)
    };
    ($page:ident, [$part:expr]) => {
        $page.part(&$part)
    };
    ($page:ident, {$segment:expr}) => {
        $page.segment($segment)
    };
    ($page:ident, $markup:literal) => {
        $page.raw($markup)
    };
}

pub(super) use put;
pub(super) use put_one;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_addresses_are_escaped_and_markup_is_not() {
        let (mut page, name) = (Html::default(), "<b a=\"x\">&'\u{1b}\u{202e}é");
        let mut inner = Html::default();
        put!(&mut inner; "<i>", (7), "</i>");
        put!(&mut page; "<a href=\"/volume/", { name }, "\">", (name), "</a>", [inner]);
        let address = "%3Cb%20a%3D%22x%22%3E%26%27%1B%E2%80%AE%C3%A9";
        let text = "&lt;b a=&quot;x&quot;&gt;&amp;&#39;\u{fffd}\u{fffd}é";
        assert_eq!(page.into_text(), format!("<a href=\"/volume/{address}\">{text}</a><i>7</i>"));
        assert_eq!(decoded(address).as_deref(), Some(name));
        assert_eq!(decoded("a+b").as_deref(), Some("a b"));
        for wrong in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
