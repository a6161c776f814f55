//! How administrators and machines name things: bricks and join tokens.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Why a word cannot be parsed as a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadName {
    /// Not a brick.
    #[error("'{0}' is no brick: say HOST:/PATH, as in node1:/srv/brick")]
    Brick(String),
    /// Not a token.
    #[error(
        "this is no join token: it is the one word beginning with '{VERSION}/' that `shoal cluster token` prints on a node \
         of the cluster"
    )]
    Token,
}

/// `HOST:/PATH`: a directory on a node, HOST being its name or the host part of its address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BrickName {
    /// The node.
    pub host: String,
    /// Where on that node; absolute.
    pub path: PathBuf,
}

impl FromStr for BrickName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<BrickName, BadName> {
        // Not at the first colon: a host may be an IPv6 address.
        match text.find(":/").map(|at| text.split_at(at)) {
            Some((host, path)) if !host.is_empty() && path.len() > 2 => {
                // One name for one directory: `components` drops doubled and trailing slashes.
                Ok(BrickName {
                    host: host.to_owned(),
                    path: PathBuf::from(&path[1..]).components().collect(),
                })
            }
            _ => Err(BadName::Brick(text.to_owned())),
        }
    }
}

impl fmt::Display for BrickName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.path.display())
    }
}

impl TryFrom<String> for BrickName {
    type Error = BadName;
    fn try_from(text: String) -> Result<BrickName, BadName> {
        text.parse()
    }
}

impl From<BrickName> for String {
    fn from(name: BrickName) -> String {
        name.to_string()
    }
}

/// The version at the beginning of a token; a token of another format has another one.
const VERSION: &str = "shoal1";
/// Digits of a certificate's fingerprint.
const FINGERPRINT_DIGITS: usize = 64;

/// The right to join a cluster, as one word: `shoal1/ADDRESS,.../SECRET/FINGERPRINT`. It names nodes to
/// contact, and the fingerprint of the cluster's certificate authority, with which the joining machine
/// verifies that it talks to the right cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Nodes to contact, `HOST:PORT`; any of them will do.
    pub addresses: Vec<String>,
    /// The secret that proves the right to join.
    pub secret: u128,
    /// Fingerprint of the cluster's certificate authority, in hexadecimal.
    pub fingerprint: String,
}

impl Token {
    /// Nodes that a token may name.
    pub const ADDRESSES_MAX: usize = 16;
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}/{}/{:032x}/{}", self.addresses.join(","), self.secret, self.fingerprint)
    }
}

impl FromStr for Token {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Token, BadName> {
        let parts: Vec<&str> = text.trim().split('/').collect();
        let [VERSION, addresses, secret, fingerprint] = parts[..] else { return Err(BadName::Token) };
        let hex = |text: &str, digits| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
        let addresses: Vec<String> = addresses.split(',').map(str::to_owned).collect();
        let valid = addresses.len() <= Token::ADDRESSES_MAX
            && addresses.iter().all(|address| {
                address
                    .rsplit_once(':')
                    .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
            })
            && hex(secret, 32)
            && hex(fingerprint, FINGERPRINT_DIGITS);
        let secret = u128::from_str_radix(secret, 16).ok().filter(|_| valid).ok_or(BadName::Token)?;
        Ok(Token { addresses, secret, fingerprint: fingerprint.to_ascii_lowercase() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brick_has_one_name_and_is_passed_on_as_it_is_written() {
        let brick: BrickName = "node-1:/srv//brick/".parse().unwrap();
        assert_eq!((brick.host.as_str(), brick.to_string().as_str()), ("node-1", "node-1:/srv/brick"));
        assert_eq!(serde_json::to_string(&brick).unwrap(), r#""node-1:/srv/brick""#);
        assert_eq!(serde_json::from_str::<BrickName>(r#""node-1:/srv/brick""#).unwrap(), brick);
        let six: BrickName = "fd00::1:/b".parse().unwrap();
        assert_eq!((six.host.as_str(), six.path.to_str()), ("fd00::1", Some("/b")));
        for bad in ["", "node1", "/srv/brick", ":/srv", "node1:srv", "node1:/"] {
            assert_eq!(bad.parse::<BrickName>(), Err(BadName::Brick(bad.into())));
        }
    }

    #[test]
    fn a_token_survives_being_written_down_and_anything_else_is_refused() {
        let token = Token {
            addresses: vec!["10.0.0.1:7470".into(), "[fd00::2]:7470".into()],
            secret: 0xabc,
            fingerprint: "0f".repeat(32),
        };
        let text = token.to_string();
        assert_eq!(format!(" {text}\n").parse::<Token>(), Ok(token));
        let short = &text[..text.len() - 1];
        for bad in ["", "shoal1", short, &text.replace("shoal1", "shoal2"), &text.replace(":7470", "")] {
            assert_eq!(bad.parse::<Token>(), Err(BadName::Token), "{bad}");
        }
    }
}
