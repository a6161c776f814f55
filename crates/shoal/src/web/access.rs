//! Who may see the pages.
//!
//! **Model.** On loopback every program of the machine may, if it calls the page by a name of loopback. A
//! site in the web whose name leads to 127.0.0.1 must not read it with a browser's help. Elsewhere a request
//! needs a certificate that the gate admits, or a token: in the cookie that a browser got for it, or as
//! `Authorization: Bearer`.
//!
//! **Promises.** Tokens are compared by the gate, in a time that does not depend on where they differ.

use axum::http::{HeaderMap, HeaderName, header};
use shoal_net::Role;
use std::net::{IpAddr, SocketAddr};

/// Decides about visitors from other machines.
pub trait Gate: Send + Sync {
    /// Whether a certificate of the cluster opens the pages.
    fn admits(&self, role: &Role, address: SocketAddr) -> bool;
    /// Whether a token does.
    fn accepts_token(&self, token: &str) -> bool;
}

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub address: SocketAddr,
    /// The role in its certificate, if it has shown one of the cluster.
    pub role: Option<Role>,
}

/// What is to be done with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may see the pages.
    Enter,
    /// It has to give a token.
    Ask,
    /// It calls the page by a name that is not this machine's own.
    Misdirected,
}

/// The cookie that holds a token. Browsers accept this name only over TLS and only from this host.
pub const COOKIE: &str = "__Host-shoal";

/// Decides about a request. Without a gate the page is on loopback.
pub fn judge(gate: Option<&dyn Gate>, visitor: &Visitor, headers: &HeaderMap) -> Verdict {
    let Some(gate) = gate else {
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
        let is_ours = visitor.address.ip().is_loopback() && host.is_some_and(is_loopback);
        return if is_ours { Verdict::Enter } else { Verdict::Misdirected };
    };
    if visitor.role.as_ref().is_some_and(|role| gate.admits(role, visitor.address)) {
        return Verdict::Enter;
    }
    match tokens(headers).any(|token| gate.accepts_token(token)) {
        true => Verdict::Enter,
        false => Verdict::Ask,
    }
}

/// Whether `HOST` or `HOST:PORT` is a name of loopback.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let name = name.to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The tokens in a request.
fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let texts = move |name: HeaderName| headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let cookies = texts(header::COOKIE).flat_map(|text| text.split(';')).filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE).then_some(value)
    });
    cookies.chain(texts(header::AUTHORIZATION).filter_map(|text| text.strip_prefix("Bearer ")))
}

/// The header that has a browser show this token from now on, until it is closed.
pub fn cookie(token: &str) -> String {
    format!("{COOKIE}={token}; Path=/; Secure; HttpOnly; SameSite=Strict")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    struct Strict;

    impl Gate for Strict {
        fn admits(&self, role: &Role, _: SocketAddr) -> bool {
            *role == Role::Client("admin".into())
        }

        fn accepts_token(&self, token: &str) -> bool {
            token == "right"
        }
    }

    fn headers(of: &[(HeaderName, &str)]) -> HeaderMap {
        of.iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).expect("a header")))
            .collect()
    }

    #[test]
    fn page_on_loopback_is_shown_under_names_of_loopback_only() {
        let here = Visitor { address: "127.0.0.1:9".parse().expect("an address"), role: None };
        for (host, verdict) in [
            ("127.0.0.1:7471", Verdict::Enter),
            ("localhost:7471", Verdict::Enter),
            ("LocalHost", Verdict::Enter),
            ("[::1]:7471", Verdict::Enter),
            ("attacker.example:7471", Verdict::Misdirected),
            ("127.0.0.1.attacker.example", Verdict::Misdirected),
            ("localhost.attacker.example", Verdict::Misdirected),
            ("", Verdict::Misdirected),
        ] {
            assert_eq!(judge(None, &here, &headers(&[(header::HOST, host)])), verdict, "{host}");
        }
        assert_eq!(judge(None, &here, &HeaderMap::new()), Verdict::Misdirected);
    }

    #[test]
    fn visitor_from_elsewhere_needs_an_admitted_certificate_or_a_token() {
        let visitor = |role: Option<&str>| Visitor {
            address: "10.0.0.7:9".parse().expect("an address"),
            role: role.map(|name| Role::Client(name.into())),
        };
        let verdict = |role, of: &[(HeaderName, &str)]| judge(Some(&Strict), &visitor(role), &headers(of));
        assert_eq!(verdict(Some("admin"), &[]), Verdict::Enter);
        assert_eq!(verdict(Some("revoked"), &[]), Verdict::Ask);
        assert_eq!(verdict(None, &[(header::HOST, "localhost")]), Verdict::Ask);
        assert_eq!(verdict(None, &[(header::AUTHORIZATION, "Bearer right")]), Verdict::Enter);
        assert_eq!(verdict(None, &[(header::AUTHORIZATION, "right")]), Verdict::Ask);
        let cookies = format!("a=b; {COOKIE}=right");
        assert_eq!(verdict(None, &[(header::COOKIE, &cookies)]), Verdict::Enter);
        let wrong = cookies.replace("right", "wrong");
        assert_eq!(verdict(None, &[(header::COOKIE, &wrong)]), Verdict::Ask);
        assert_eq!(verdict(None, &[(header::COOKIE, "shoal=right")]), Verdict::Ask);
    }
}
