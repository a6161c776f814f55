//! The web page of a node: how the cluster does and what it is doing, for a browser.
//!
//! **Model.** Every node serves the same pages. A [collector](collect) asks the server of this node what
//! administrators can ask, as `shoal top` does, and only while a page is open. A [query cache](query_cache)
//! keeps the answers, with a bounded [history] for charts. The [pages] are made from that, in memory.
//!
//! ```text
//!  browser ──> listener (TLS) ──> site ──> access ──> collector ──> query cache ──> pages ──> HTML, SVG
//!                                                       └──> Admin ──> the other nodes
//! ```
//!
//! **Promises.** Nothing can be changed here. Pages fetch nothing from elsewhere, and a policy in their
//! header forbids it. Beyond loopback only TLS is spoken, and only a certificate or a token of the cluster
//! opens the pages. Whatever a client or a peer calls itself is shown as text.
//!
//! **Bounds.** Connections, queries, history, rows of a page: see [`limits`](crate::limits).

mod access;
mod chart;
mod collect;
#[cfg(test)]
mod fixture;
mod history;
mod html;
mod listener;
mod pages;
mod query_cache;
mod site;
#[cfg(test)]
mod tests;

pub use access::Gate;
pub use listener::{bind, names};

use crate::admin::Admin;
use anyhow::Context;
use shoal_net::web::WebTls;
use site::Site;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// To whom pages are shown.
pub enum Entry {
    /// To all programs of this machine.
    Loopback,
    /// To those whom the gate admits, over TLS.
    Private(WebTls, Arc<dyn Gate>),
}

/// The pages of a node, until it is dropped.
pub struct Web {
    address: SocketAddr,
    site: Arc<Site>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Web {
    /// Serves pages at a socket that listens.
    pub fn start(listener: TcpListener, entry: Entry, admin: Arc<dyn Admin>) -> anyhow::Result<Web> {
        listener.set_nonblocking(true).context("the socket of the web page")?;
        let address = listener.local_addr().context("the socket of the web page")?;
        let (tls, gate) = match entry {
            Entry::Loopback => (None, None),
            Entry::Private(tls, gate) => (Some(tls), Some(gate)),
        };
        let site = Arc::new(Site::new(admin, gate)?);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("the web page")?;
        let (stop, stopped) = oneshot::channel();
        let serving = site.clone();
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    served = listener::serve(listener, tls, serving) => {
                        if let Err(error) = served {
                            tracing::error!(%error, "the web page is not served any more");
                        }
                    }
                    _ = stopped => {}
                }
            });
            // A page that is being made needs no end.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("shoal-web".into()).spawn(serve)?;
        Ok(Web { address, site, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended by itself.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has logged that.
            let _ = thread.join();
        }
        self.site.stop();
    }
}
