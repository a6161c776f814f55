//! Accepts the connections of browsers: a socket, TLS if the page is for other machines, and HTTP.
//!
//! **Bounds.** Connections are bounded in number. One that shakes hands slowly, or on which nothing moves, is
//! closed; meanwhile it disturbs no other.

use super::access::Visitor;
use super::site::{self, Site};
use crate::admin::WebListen;
use crate::limits::{WEB_CONNECTIONS_MAX, WEB_IDLE_MAX, WEB_LISTEN_DEFAULT};
use anyhow::Context as _;
use axum::Router;
use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use shoal_net::web::{WebStream, WebTls, names_of};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, Sleep};

/// Connections that have shaken hands and wait for a task.
const READY_MAX: usize = 8;
/// After a connection could not be accepted, as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Listens as the administrator wishes. The default address may be taken by another server on this machine,
/// which is only worth a warning. An address that was named has to be free.
pub fn bind(listen: &WebListen) -> anyhow::Result<Option<TcpListener>> {
    match listen {
        WebListen::Off => Ok(None),
        WebListen::At(address) => {
            let listener = TcpListener::bind(address).with_context(|| {
                format!("the web page cannot listen at {address}: name another address with --web, or say --web off")
            })?;
            Ok(Some(listener))
        }
        WebListen::Default => match TcpListener::bind(WEB_LISTEN_DEFAULT) {
            Ok(listener) => Ok(Some(listener)),
            Err(error) => {
                tracing::warn!(
                    "no web page: {WEB_LISTEN_DEFAULT}: {error}; --web ADDRESS names another place, --web off \
                     does without it"
                );
                Ok(None)
            }
        },
    }
}

/// The names by which browsers may reach a node, for its certificate.
pub fn names(called: &[&str], listens: SocketAddr) -> Vec<String> {
    names_of(called, listens)
}

/// Serves until the task is dropped.
pub async fn serve(listener: TcpListener, tls: Option<WebTls>, site: Arc<Site>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    let (send, ready) = mpsc::channel(READY_MAX);
    let accepting = tokio::spawn(accept(listener, tls, send));
    let routes = Router::new().fallback(site::answer).with_state(site);
    let served = axum::serve(
        ReadyConnections { address, ready },
        routes.into_make_service_with_connect_info::<Visitor>(),
    )
    .await;
    accepting.abort();
    served
}

/// Accepts connections. Each shakes hands in a task of its own.
async fn accept(listener: tokio::net::TcpListener, tls: Option<WebTls>, ready: mpsc::Sender<Arrived>) {
    let places = Arc::new(Semaphore::new(WEB_CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (stream, address) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "accepting a browser");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (tls, ready) = (tls.clone(), ready.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let (inner, role) = match tls {
                None => (Inner::Plain(stream), None),
                Some(tls) => match tls.accept(stream).await {
                    Ok((stream, role)) => (Inner::Secured(Box::new(stream)), role),
                    Err(error) => return tracing::debug!(%address, %error, "a browser's handshake"),
                },
            };
            let stream = Stream { inner, idle: Box::pin(tokio::time::sleep(WEB_IDLE_MAX)), _place: place };
            // Without a receiver the page is no more.
            let _ = ready.send((stream, Visitor { address, role })).await;
        });
    }
}

type Arrived = (Stream, Visitor);

/// Hands out connections that have shaken hands.
struct ReadyConnections {
    address: SocketAddr,
    ready: mpsc::Receiver<Arrived>,
}

impl axum::serve::Listener for ReadyConnections {
    type Io = Stream;
    type Addr = Visitor;

    async fn accept(&mut self) -> Arrived {
        match self.ready.recv().await {
            Some(arrived) => arrived,
            // The task that accepts has ended, as it does when all this ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Visitor> {
        Ok(Visitor { address: self.address, role: None })
    }
}

impl Connected<IncomingStream<'_, ReadyConnections>> for Visitor {
    fn connect_info(stream: IncomingStream<'_, ReadyConnections>) -> Visitor {
        stream.remote_addr().clone()
    }
}

enum Inner {
    Plain(TcpStream),
    Secured(Box<WebStream>),
}

/// A connection that fails once nothing has moved for some time.
struct Stream {
    inner: Inner,
    idle: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Stream {
    fn watched<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.idle.as_mut().reset(Instant::now() + WEB_IDLE_MAX);
            return poll;
        }
        std::task::ready!(self.idle.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Calls a method of either kind of stream.
macro_rules! either {
    ($self:ident, $cx:ident, $method:ident $(, $argument:expr)?) => {{
        let poll = match &mut $self.inner {
            Inner::Plain(stream) => Pin::new(stream).$method($cx $(, $argument)?),
            Inner::Secured(stream) => Pin::new(&mut **stream).$method($cx $(, $argument)?),
        };
        $self.watched($cx, poll)
    }};
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, cx, poll_read, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, cx, poll_write, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, cx, poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, cx, poll_shutdown)
    }
}
