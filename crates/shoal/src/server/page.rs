//! The web page of this node: its address and its access control.

use super::context::ServerContext;
use crate::admin::TokenReport;
use crate::clock::since_1970;
use crate::web::{self, Entry, Gate, Web};
use anyhow::{Context, anyhow};
use shoal_net::web::WebTls;
use shoal_net::{Peer, Role};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// Seconds of an hour.
const HOUR_S: u64 = 3600;

fn now_unix_s() -> u64 {
    since_1970().as_secs()
}

impl ServerContext {
    /// Shows the web page at a socket that listens. Beyond loopback it is private.
    pub(super) fn show_page(self: &Arc<ServerContext>, listener: TcpListener) -> anyhow::Result<Web> {
        let address = listener.local_addr().context("the socket of the web page")?;
        let (entry, scheme) = match address.ip().is_loopback() {
            true => (Entry::Loopback, "http"),
            false => (Entry::Private(self.page_tls(address)?, self.clone()), "https"),
        };
        let web = Web::start(listener, entry, self.clone())?;
        tracing::info!("web page: {scheme}://{}/", web.address());
        Ok(web)
    }

    /// TLS with a certificate that names this node as browsers know it.
    fn page_tls(&self, address: SocketAddr) -> anyhow::Result<WebTls> {
        let identity = self.dir.identity();
        let host = nix::unistd::gethostname().unwrap_or_default();
        let reached = identity.address.rsplit_once(':').map_or("", |(host, _)| host);
        let called = [identity.name.as_str(), reached.trim_matches(['[', ']']), &host.to_string_lossy()];
        let authority = self.authority().map_err(|why| anyhow!("the web page needs TLS: {why}"))?;
        Ok(WebTls::new(&authority, &Role::Node(self.node), &web::names(&called, address))?)
    }

    /// Makes a token for the web pages of all nodes. It is stored nowhere.
    pub(super) fn issue_web_token(&self, hours: u32) -> Result<TokenReport, String> {
        let expires = now_unix_s() + u64::from(hours) * HOUR_S;
        Ok(TokenReport { token: self.authority()?.issue_pass(expires), expires })
    }
}

impl Gate for ServerContext {
    fn admits(&self, role: &Role, address: SocketAddr) -> bool {
        self.access.member(&Peer { role: Some(role.clone()), run: None, address }).is_ok()
    }

    fn accepts_token(&self, token: &str) -> bool {
        self.authority().is_ok_and(|authority| authority.accepts_pass(token, now_unix_s()))
    }
}
