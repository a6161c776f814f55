//! An HTTP endpoint for Prometheus: `GET /metrics`.

use crate::limits::{REQUEST_BYTES_MAX, SCRAPES_WAITING_MAX, TOKEN_CHARS_MIN};
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tokio::sync::{Mutex, Semaphore};

/// Gathers the metrics of this moment, as text. May block.
pub type Gather = Box<dyn Fn() -> String + Send + Sync>;

/// An endpoint that listens.
pub struct Endpoint {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    token: Option<String>,
    gather: Arc<dyn Fn() -> String + Send + Sync>,
    /// One scrape at a time: each asks all processes of the machine.
    turn: Mutex<()>,
    waiting: Semaphore,
}

/// Why an endpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// It would be open to other machines without a token.
    #[error("{0} is open to other machines: give --token-file, or listen on 127.0.0.1")]
    NoToken(SocketAddr),
    /// The token is too short.
    #[error("the token is too short: it needs {TOKEN_CHARS_MIN} characters at least")]
    ShortToken,
    /// The address cannot be listened at.
    #[error("listening at {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
}

impl Endpoint {
    /// Listens. Without a token only on loopback.
    pub fn open(
        address: SocketAddr,
        token: Option<String>,
        gather: Gather,
    ) -> Result<Endpoint, EndpointError> {
        match &token {
            None if !address.ip().is_loopback() => return Err(EndpointError::NoToken(address)),
            Some(token) if token.chars().count() < TOKEN_CHARS_MIN => return Err(EndpointError::ShortToken),
            _ => {}
        }
        let failed = |error| EndpointError::Listen(address, error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let (turn, waiting) = (Mutex::new(()), Semaphore::new(SCRAPES_WAITING_MAX));
        Ok(Endpoint { listener, shared: Arc::new(Shared { token, gather: gather.into(), turn, waiting }) })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until the process ends, or an error makes that impossible.
    pub fn serve(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let routes = Router::new()
                .route("/", get(async || Html("<a href=\"/metrics\">Metrics</a> of Shoal, for Prometheus\n")))
                .route("/metrics", get(scrape))
                .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
                .with_state(self.shared);
            axum::serve(listener, routes).await
        })
    }
}

async fn scrape(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Some(token) = &shared.token {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if !given.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|given| are_same(given, token))
        {
            let why = "give the token, as in 'Authorization: Bearer TOKEN'\n";
            return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], why).into_response();
        }
    }
    let Ok(_place) = shared.waiting.try_acquire() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many scrapes at once\n").into_response();
    };
    let _turn = shared.turn.lock().await;
    let gather = shared.gather.clone();
    match tokio::task::spawn_blocking(move || gather()).await {
        Ok(text) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "gathering metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Compares in a time that does not depend on where the texts differ.
fn are_same(given: &str, token: &str) -> bool {
    let pairs = given.bytes().zip(token.bytes());
    given.len() == token.len() && pairs.fold(0, |differs, (one, other)| differs | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    const TOKEN: &str = "sixteen letters.";

    fn open(token: Option<&str>) -> SocketAddr {
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let gather = Box::new(|| "up 1\n".to_owned());
        let endpoint = Endpoint::open(at, token.map(str::to_owned), gather).expect("it listens");
        let address = endpoint.address().expect("it listens");
        std::thread::spawn(move || endpoint.serve());
        address
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let request = request.replace('\n', "\r\n");
        stream.write_all(format!("{request}\r\nConnection: close\r\n\r\n").as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    #[test]
    fn a_scrape_is_answered_as_text_and_anything_else_is_refused() {
        let address = open(None);
        let answer = ask(address, "GET /metrics HTTP/1.1\nHost: x");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nup 1\n"), "{answer}");
        assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
        assert!(ask(address, "GET / HTTP/1.1\nHost: x").contains("/metrics"));
        assert!(ask(address, "GET /other HTTP/1.1\nHost: x").starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics HTTP/1.1\nHost: x").starts_with("HTTP/1.1 405"));
        assert!(ask(address, "nonsense").starts_with("HTTP/1.1 400"));
    }

    #[test]
    fn other_machines_need_a_token_of_some_length() {
        let open_to_all = SocketAddr::from(([0, 0, 0, 0], 0));
        let gather = || -> Gather { Box::new(String::new) };
        let why = Endpoint::open(open_to_all, None, gather()).err().expect("refused").to_string();
        assert!(why.contains("--token-file"), "{why}");
        let why = Endpoint::open(open_to_all, Some("short".into()), gather()).err().expect("refused");
        assert!(why.to_string().contains("too short"), "{why}");
        let address = open(Some(TOKEN));
        for (given, status) in [
            ("", "401"),
            ("\nAuthorization: Bearer other", "401"),
            ("\nAuthorization: Bearer sixteen_letters.", "401"),
            ("\nAuthorization: Basic sixteen letters.", "401"),
            ("\nAuthorization: Bearer sixteen letters.", "200"),
        ] {
            let answer = ask(address, &format!("GET /metrics HTTP/1.1\nHost: x{given}"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{given}: {answer}");
        }
    }
}
