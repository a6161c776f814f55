//! Pages over real sockets. Every wait is bounded.

use super::access::COOKIE;
use super::fixture::Synthetic;
use super::*;
use crate::admin::WebListen;
use shoal_net::{Authority, Credentials, Role};
use shoal_types::NodeId;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Longer than any answer takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn socket() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}

fn admin() -> Arc<Synthetic> {
    Arc::new(Synthetic::new(3, 2, 4))
}

/// Admits the client `admin`, and passes of an authority.
struct Ours(Authority);

const NOW: u64 = 1_800_000_000;

impl Gate for Ours {
    fn admits(&self, role: &Role, _: SocketAddr) -> bool {
        *role == Role::Client("admin".into())
    }

    fn accepts_token(&self, token: &str) -> bool {
        self.0.accepts_pass(token, NOW)
    }
}

fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a patience");
    stream.set_write_timeout(Some(PATIENCE)).expect("a patience");
    stream
}

/// Sends a request and reads until the connection is closed.
fn ask(mut stream: impl Read + Write, request: &str, body: &str) -> String {
    let request = request.replace('\n', "\r\n");
    let length = body.len();
    let whole = format!("{request}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(whole.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    // A TLS stream that ends without a farewell is an error, after all that was sent.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A connection over TLS to a page that has to name itself `name`.
fn secured(
    address: SocketAddr,
    authority: &Authority,
    own: Option<&Credentials>,
    name: &str,
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&authority.to_pem())).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let [_, own, key] = own.to_pem();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
            config.with_client_auth_cert(vec![certificate(&own)], key).expect("credentials")
        }
    };
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut stream = connected(address);
    connection.complete_io(&mut stream).map_err(|error| error.to_string())?;
    Ok(StreamOwned::new(connection, stream))
}

/// Private pages, and the authority of their cluster.
fn private() -> (Web, Authority) {
    let authority = Authority::create(7).expect("an authority");
    let listener = socket();
    let names = names(&["node1"], listener.local_addr().expect("an address"));
    let tls = WebTls::new(&authority, &Role::Node(NodeId(1)), &names).expect("TLS");
    let gate = Ours(Authority::from_pem(7, &authority.to_pem()).expect("the same"));
    let web = Web::start(listener, Entry::Private(tls, Arc::new(gate)), admin()).expect("it starts");
    (web, authority)
}

#[test]
fn page_on_loopback_shows_the_cluster_and_can_change_nothing() {
    let web = Web::start(socket(), Entry::Loopback, admin()).expect("it starts");
    let ask = |request: &str| ask(connected(web.address()), request, "");
    let page = ask("GET / HTTP/1.1\nHost: localhost");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("All is well"), "{page}");
    for header in [
        "content-security-policy: default-src 'none'; style-src 'self'; script-src 'self'",
        "x-content-type-options: nosniff",
        "x-frame-options: DENY",
        "referrer-policy: no-referrer",
        "cache-control: no-store",
    ] {
        assert!(page.contains(header), "{header}: {page}");
    }
    assert!(!page.contains("style=\"") && !page.contains("onclick"), "the policy forbids them");
    for (path, status) in [
        ("/volumes", "200"),
        ("/volume/volume-001", "200"),
        ("/volume/none", "404"),
        ("/clients?page=99", "200"),
        ("/events", "200"),
        ("/style.css", "200"),
        ("/page.js", "200"),
        ("/icon.svg", "200"),
        ("/enter", "404"),
        ("/../etc/passwd", "404"),
    ] {
        let answer = ask(&format!("GET {path} HTTP/1.1\nHost: localhost"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = ask(&format!("{method} / HTTP/1.1\nHost: localhost"));
        assert!(answer.starts_with("HTTP/1.1 405"), "{method}: {answer}");
    }
    let rebound = ask("GET / HTTP/1.1\nHost: attacker.example");
    assert!(rebound.starts_with("HTTP/1.1 421") && !rebound.contains("node1"), "{rebound}");
}

#[test]
fn private_page_is_opened_by_a_token_once_and_by_its_cookie_afterwards() {
    let (web, authority) = private();
    let stream = || secured(web.address(), &authority, None, "node1").expect("TLS");
    let closed = ask(stream(), "GET /volumes HTTP/1.1\nHost: node1", "");
    assert!(closed.starts_with("HTTP/1.1 401") && closed.contains("cluster token --web"), "{closed}");
    assert!(!closed.contains("volume-001"), "{closed}");
    assert!(ask(stream(), "GET /style.css HTTP/1.1\nHost: node1", "").starts_with("HTTP/1.1 200"));
    let post = "POST /enter HTTP/1.1\nHost: node1\nContent-Type: application/x-www-form-urlencoded";
    let wrong = ask(stream(), post, "token=shoalweb1-9-00");
    assert!(wrong.starts_with("HTTP/1.1 401") && !wrong.contains("set-cookie"), "{wrong}");
    let expired = authority.issue_pass(NOW - 1);
    assert!(ask(stream(), post, &format!("token={expired}")).starts_with("HTTP/1.1 401"));
    let long = format!("{}&token={}", "x".repeat(8000), authority.issue_pass(NOW + 60));
    assert!(!ask(stream(), post, &long).contains("set-cookie"), "it is too long");
    let token = authority.issue_pass(NOW + 60);
    let entered = ask(stream(), post, &format!("a=b&token={token}+"));
    assert!(entered.starts_with("HTTP/1.1 303") && entered.contains("location: /\r\n"), "{entered}");
    let cookie = format!("set-cookie: {COOKIE}={token}; Path=/; Secure; HttpOnly; SameSite=Strict");
    assert!(entered.contains(&cookie), "{entered}");
    for header in [format!("Cookie: {COOKIE}={token}"), format!("Authorization: Bearer {token}")] {
        let page = ask(stream(), &format!("GET /volumes HTTP/1.1\nHost: node1\n{header}"), "");
        assert!(page.starts_with("HTTP/1.1 200") && page.contains("volume-001"), "{page}");
    }
}

#[test]
fn private_page_is_opened_by_an_admitted_certificate_and_by_no_other() {
    let (web, authority) = private();
    let status = |issuer: &Authority, client: &str| {
        let own = issuer.issue(&Role::Client(client.into())).expect("credentials");
        secured(web.address(), &authority, Some(&own), "node1")
            .map(|stream| ask(stream, "GET / HTTP/1.1\nHost: node1", "").chars().take(12).collect::<String>())
    };
    assert_eq!(status(&authority, "admin").as_deref(), Ok("HTTP/1.1 200"));
    assert_eq!(status(&authority, "revoked").as_deref(), Ok("HTTP/1.1 401"));
    let other = Authority::create(7).expect("another authority");
    let refused = status(&other, "admin");
    assert!(refused.as_ref().is_err() || refused.as_deref() == Ok(""), "{refused:?}");
    assert!(
        secured(web.address(), &authority, None, "127.0.0.1").is_ok(),
        "its address is in its certificate"
    );
    assert!(secured(web.address(), &authority, None, "node2").is_err());
    let plain = ask(connected(web.address()), "GET / HTTP/1.1\nHost: node1", "");
    assert!(!plain.contains("HTTP/1.1"), "only TLS is spoken: {plain}");
}

#[test]
fn connection_that_says_nothing_disturbs_no_other_and_the_page_stops_at_once() {
    let (web, authority) = private();
    let silent: Vec<TcpStream> = (0..10).map(|_| connected(web.address())).collect();
    let stream = secured(web.address(), &authority, None, "node1").expect("TLS");
    assert!(ask(stream, "GET / HTTP/1.1\nHost: node1", "").starts_with("HTTP/1.1 401"));
    let (address, began) = (web.address(), Instant::now());
    drop(web);
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    assert!(TcpStream::connect_timeout(&address, PATIENCE).is_err(), "it listens no more");
    drop(silent);
}

#[test]
fn named_address_that_is_taken_is_an_error_that_says_what_to_do() {
    let taken = socket();
    let address = taken.local_addr().expect("an address");
    let why = format!("{:#}", bind(&WebListen::At(address)).expect_err("it is taken"));
    assert!(why.contains(&address.to_string()) && why.contains("--web off"), "{why}");
    drop(taken);
    assert!(bind(&WebListen::At(address)).expect("it is free").is_some());
    assert!(bind(&WebListen::Off).expect("nothing to do").is_none());
    // Either of two servers of one machine has the usual address, or another program; both start.
    let (one, other) = (bind(&WebListen::Default), bind(&WebListen::Default));
    assert!(one.is_ok() && other.expect("only a warning").is_none());
}
