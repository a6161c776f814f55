//! The page that asks for a token.

use super::document;
use crate::web::html::{Html, put};

/// Asks for a token. `was_wrong`: one was given, and is not valid.
pub fn enter(was_wrong: bool) -> String {
    let mut content = Html::default();
    put!(&mut content; "<section class=\"lone\"><h1>This cluster is private</h1>");
    if was_wrong {
        put!(&mut content; "<p class=\"notice\">The token is not valid, or not any more.</p>");
    }
    put!(&mut content; "<p>On any of its nodes, <code>shoal cluster token --web</code> prints a token. A browser ",
        "with a client certificate of the cluster needs none.</p>",
        "<form method=\"post\" action=\"/enter\"><label for=\"token\">Token</label>",
        "<input id=\"token\" name=\"token\" type=\"password\" autocomplete=\"off\" autofocus required>",
        "<button>Enter</button></form></section>");
    document("Enter", None, &content)
}
