//! TLS and passes for the web page of a node.
//!
//! **Model.** A browser comes over TLS and may show a certificate of the cluster. Without one it needs a
//! *pass*: an expiry, and its authentication code under a key that follows from the authority's key. Every
//! node has that key, so any node issues passes and every node checks them, and none is stored.
//!
//! **Promises.** A pass that the authority has not issued is refused, in a time that does not depend on where
//! it differs. So is one that has expired.

use crate::credentials::{Authority, Credentials, CredentialsError, Role};
use crate::limits::HANDSHAKE_TIMEOUT;
use crate::tls;
use ring::hmac;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What a pass begins with.
const FORM: &str = "shoalweb1";
/// Digits of its authentication code.
const CODE_DIGITS: usize = 64;
/// Names that certificates give to roles, which no machine may have.
const RESERVED: &str = ".shoal";

/// A connection to a browser.
pub type WebStream = TlsStream<TcpStream>;

/// The called end of such connections.
#[derive(Clone)]
pub struct WebTls(TlsAcceptor);

impl WebTls {
    /// Shows a certificate for a node and the names by which browsers may reach it.
    pub fn new(authority: &Authority, role: &Role, names: &[String]) -> Result<WebTls, CredentialsError> {
        let credentials: Credentials = authority.issue_for(role, machines(names))?;
        Ok(WebTls(TlsAcceptor::from(tls::server(&credentials)?)))
    }

    /// Shakes hands, in bounded time. The role is that of the browser's certificate, if it shows one.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<(WebStream, Option<Role>)> {
        let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.0.accept(stream)).await;
        let stream = accepted.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let role = certificate.and_then(Role::of);
        Ok((stream, role))
    }
}

impl Authority {
    fn pass_key(&self) -> hmac::Key {
        let root = hmac::Key::new(hmac::HMAC_SHA256, self.key_pem().as_bytes());
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, b"shoal passes for the web page").as_ref())
    }

    /// A pass that is valid until then, in seconds since 1970.
    pub fn issue_pass(&self, expires_unix_s: u64) -> String {
        let code = hmac::sign(&self.pass_key(), signed(expires_unix_s).as_bytes());
        let digits: String = code.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{digits}", signed(expires_unix_s))
    }

    /// Whether a pass is valid now.
    pub fn accepts_pass(&self, pass: &str, now_unix_s: u64) -> bool {
        let parts: Vec<&str> = pass.split('-').collect();
        let [FORM, expires, digits] = parts[..] else { return false };
        let Ok(expires_unix_s) = expires.parse::<u64>() else { return false };
        let Some(code) = bytes(digits) else { return false };
        // The code covers the expiry as it was issued; zeros in front of it say the same.
        hmac::verify(&self.pass_key(), signed(expires_unix_s).as_bytes(), &code).is_ok()
            && now_unix_s < expires_unix_s
    }
}

/// Names without those that say a role.
fn machines(names: &[String]) -> Vec<String> {
    names.iter().filter(|name| !name.to_lowercase().ends_with(RESERVED)).cloned().collect()
}

/// What the code of a pass is made of.
fn signed(expires_unix_s: u64) -> String {
    format!("{FORM}-{expires_unix_s}")
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    if digits.len() != CODE_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok());
    pairs.collect()
}

/// The names by which browsers may reach a node: what it is called, and where it listens.
pub fn names_of(called: &[&str], listens: SocketAddr) -> Vec<String> {
    let mut names: Vec<String> = called.iter().map(|name| (*name).to_owned()).collect();
    names.push("localhost".into());
    if !listens.ip().is_unspecified() {
        names.push(listens.ip().to_string());
    }
    names.retain(|name| !name.is_empty() && name.is_ascii());
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_types::NodeId;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn pass_is_accepted_by_its_cluster_until_it_expires_and_nothing_like_it_is() {
        let (ours, other) = (Authority::create(7).unwrap(), Authority::create(7).unwrap());
        let pass = ours.issue_pass(NOW + 60);
        let same = Authority::from_pem(7, &ours.to_pem()).unwrap();
        assert!(same.accepts_pass(&pass, NOW) && same.accepts_pass(&pass, NOW + 59));
        assert!(!same.accepts_pass(&pass, NOW + 60), "it has expired");
        assert!(!other.accepts_pass(&pass, NOW), "another cluster issued it");
        let last = pass.chars().last().unwrap();
        let changed = format!("{}{}", &pass[..pass.len() - 1], if last == '0' { '1' } else { '0' });
        let later = pass.replacen(&(NOW + 60).to_string(), &(NOW + 61).to_string(), 1);
        let padded = pass.replacen("-1", "-01", 1);
        let longer = format!("{pass}0");
        for wrong in ["", "shoalweb1", "shoalweb1--", &pass[1..], &changed, &later, &longer, "é-é-é"] {
            assert!(!same.accepts_pass(wrong, NOW), "{wrong}");
        }
        assert!(padded != pass && same.accepts_pass(&padded, NOW), "it says the same");
    }

    #[test]
    fn certificate_of_the_page_names_the_machine_and_no_role_beside_the_nodes() {
        let authority = Authority::create(7).unwrap();
        let listens = "10.0.0.5:7471".parse().unwrap();
        let names = names_of(&["web1", "c-admin.client.shoal", "N9.node.SHOAL", ""], listens);
        assert_eq!(machines(&names), ["10.0.0.5", "localhost", "web1"]);
        assert!(WebTls::new(&authority, &Role::Node(NodeId(3)), &names).is_ok());
        let everywhere = names_of(&["web1"], "0.0.0.0:7471".parse().unwrap());
        assert_eq!(everywhere, ["localhost", "web1"]);
    }
}
