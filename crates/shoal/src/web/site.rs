//! Answers requests of browsers: which page, whether it may be seen, and with which headers.

use super::access::{Gate, Verdict, Visitor, cookie, judge};
use super::collect::Collector;
use super::html::decoded;
use super::pages::{self, Page, Query, View};
use super::query_cache::StatusQuery;
use crate::admin::Admin;
use crate::clock::since_1970;
use crate::limits::{WEB_FORM_BYTES_MAX, WEB_PAGES_MAX};
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use std::io;
use std::sync::Arc;
use tokio::sync::Semaphore;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");
const ICON: &str = include_str!("icon.svg");

/// Only what this page itself brings along is loaded, and its form leads nowhere else.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";

/// The pages of a node.
pub struct Site {
    collector: Collector,
    gate: Option<Arc<dyn Gate>>,
    pages: Semaphore,
}

/// An answer before it gets its headers.
struct Reply {
    status: StatusCode,
    kind: &'static str,
    body: String,
    /// Where the browser has to go, with this token.
    entered: Option<String>,
}

impl Reply {
    fn page(status: StatusCode, body: String) -> Reply {
        Reply { status, kind: HTML, body, entered: None }
    }

    fn text(status: StatusCode, body: &str) -> Reply {
        Reply { status, kind: "text/plain; charset=utf-8", body: body.to_owned(), entered: None }
    }

    fn into_response(self) -> Response {
        let is_asset = !self.kind.starts_with("text/html") && self.status == StatusCode::OK;
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, self.kind),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, if is_asset { "max-age=300" } else { "no-store" }),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            _ => {}
        }
        if let Some(cookie) = self.entered.and_then(|token| HeaderValue::try_from(cookie(&token)).ok()) {
            headers.insert(header::SET_COOKIE, cookie);
            headers.insert(header::LOCATION, HeaderValue::from_static("/"));
        }
        response
    }
}

/// Answers a request.
pub async fn answer(
    State(site): State<Arc<Site>>,
    ConnectInfo(visitor): ConnectInfo<Visitor>,
    request: Request,
) -> Response {
    site.reply(&visitor, request).await.into_response()
}

impl Site {
    /// Pages about what `admin` knows. Without a gate they are on loopback.
    pub fn new(admin: Arc<dyn Admin>, gate: Option<Arc<dyn Gate>>) -> io::Result<Site> {
        Ok(Site { collector: Collector::start(admin)?, gate, pages: Semaphore::new(WEB_PAGES_MAX) })
    }

    /// Asks nothing any more.
    pub fn stop(&self) {
        self.collector.stop();
    }

    async fn reply(self: Arc<Site>, visitor: &Visitor, request: Request) -> Reply {
        let verdict = judge(self.gate.as_deref(), visitor, request.headers());
        if verdict == Verdict::Misdirected {
            let why = "This page is for this machine only, as http://127.0.0.1 or http://localhost. For others: shoal server --web ADDRESS.\n";
            return Reply::text(StatusCode::MISDIRECTED_REQUEST, why);
        }
        let path = request.uri().path().to_owned();
        if request.method() == Method::POST && path == "/enter" {
            return self.enter(request).await;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Reply::text(StatusCode::METHOD_NOT_ALLOWED, "Nothing can be changed here.\n");
        }
        // They tell nothing of the cluster, and the page that asks for a token needs them.
        let asset = match path.as_str() {
            "/style.css" => Some(("text/css; charset=utf-8", STYLE)),
            "/page.js" => Some(("text/javascript; charset=utf-8", SCRIPT)),
            "/icon.svg" => Some(("image/svg+xml", ICON)),
            _ => None,
        };
        if let Some((kind, body)) = asset {
            return Reply { status: StatusCode::OK, kind, body: body.to_owned(), entered: None };
        }
        if verdict == Verdict::Ask {
            return Reply::page(StatusCode::UNAUTHORIZED, pages::enter(false));
        }
        let Some(page) = Page::of(&path) else {
            return Reply::page(StatusCode::NOT_FOUND, pages::missing("There is no such page."));
        };
        let query = Query::of(request.uri().query().unwrap_or_default());
        let Ok(_place) = self.pages.try_acquire() else {
            return Reply::text(StatusCode::SERVICE_UNAVAILABLE, "Too many pages are being made at once.\n");
        };
        let site = self.clone();
        match tokio::task::spawn_blocking(move || site.make(&page, &query)).await {
            Ok(reply) => reply,
            Err(error) => {
                tracing::error!(%error, path, "making a page");
                Reply::text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "The page could not be made; the log says why.\n",
                )
            }
        }
    }

    /// Waits for what the page needs, and makes it.
    fn make(&self, page: &Page, query: &Query) -> Reply {
        let (needed, mut wanted) = page.queries();
        let mut known = self.collector.look(&needed, &wanted);
        if page.is_missing(&known) {
            return Reply::page(StatusCode::NOT_FOUND, pages::missing("There is no such volume."));
        }
        if let Page::Volume(name) = page
            && known.volumes.is_some()
        {
            // Only volumes that there are may be watched.
            wanted.push(StatusQuery::Profile(name.clone()));
            known = self.collector.look(&[], &wanted);
        }
        let now_unix_s = since_1970().as_secs();
        let view = View { known: &known, query, now_ms: self.collector.now_ms(), now_unix_s };
        Reply::page(StatusCode::OK, pages::render(page, &view))
    }

    /// Exchanges a token for a cookie.
    async fn enter(&self, request: Request) -> Reply {
        let Some(gate) = &self.gate else {
            return Reply::page(StatusCode::NOT_FOUND, pages::missing("There is no such page."));
        };
        let Ok(form) = to_bytes(request.into_body(), WEB_FORM_BYTES_MAX).await else {
            return Reply::text(StatusCode::PAYLOAD_TOO_LARGE, "That is no token.\n");
        };
        let form = String::from_utf8_lossy(&form).into_owned();
        let given = form.split('&').find_map(|pair| decoded(pair.strip_prefix("token=")?));
        let token = given.unwrap_or_default().trim().to_owned();
        match gate.accepts_token(&token) {
            true => Reply { entered: Some(token), ..Reply::text(StatusCode::SEE_OTHER, "") },
            false => Reply::page(StatusCode::UNAUTHORIZED, pages::enter(true)),
        }
    }
}
