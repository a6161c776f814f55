//! gRPC on a Unix socket: each path is a call, each call a function of the driver on a thread of its own.

use crate::Driver;
use crate::limits::{CALLS_MAX, REQUEST_BYTES_MAX, STOP_PATIENCE};
use crate::status::Status;
use anyhow::{Context, bail, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt, Full};
use prost::Message;
use std::future::IntoFuture;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::{Notify, Semaphore};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Where orchestrators call: a Unix socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint(PathBuf);

impl std::str::FromStr for Endpoint {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> anyhow::Result<Endpoint> {
        let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
        ensure!(
            path.starts_with('/') && !path.ends_with('/'),
            "'{text}' is no Unix socket: say unix:///PATH, as in unix:///var/lib/kubelet/plugins/shoal.csi/csi.sock"
        );
        Ok(Endpoint(path.into()))
    }
}

impl Endpoint {
    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Listens, in place of a socket that an ended process has left.
    fn listen(&self) -> anyhow::Result<UnixListener> {
        let shown = self.0.display();
        if let Ok(there) = self.0.symlink_metadata() {
            ensure!(
                there.file_type().is_socket(),
                "{shown} is there and is no socket: choose another --endpoint"
            );
            if UnixStream::connect(&self.0).is_ok() {
                bail!("another process listens on {shown}");
            }
            std::fs::remove_file(&self.0).with_context(|| shown.to_string())?;
        }
        if let Some(parent) = self.0.parent() {
            std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        }
        let listener = UnixListener::bind(&self.0).with_context(|| format!("listening on {shown}"))?;
        // What connects may mount: root only.
        std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(0o600))
            .context(shown.to_string())?;
        Ok(listener)
    }
}

/// A function of the driver that answers a call.
type Function<Q, R> = fn(&Driver, Q) -> Result<R, Status>;

/// A message as gRPC frames it: whether it is compressed, its length, its bytes.
fn frame(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], &bytes].concat()
}

/// The one message of a request.
fn unframe<Q: Message + Default>(body: &[u8]) -> Result<Q, Status> {
    match body {
        [0, a, b, c, d, message @ ..] if u32::from_be_bytes([*a, *b, *c, *d]) as usize == message.len() => {
            Q::decode(message).map_err(|error| Status::invalid_argument(format!("the request: {error}")))
        }
        [1, ..] => Err(Status::unimplemented("the request is compressed: send it as it is")),
        _ => Err(Status::invalid_argument("the request is not one message in a frame of gRPC")),
    }
}

/// The answer to a call: a frame and a trailer, or why there is none in its headers.
fn answer(outcome: Result<impl Message, Status>) -> Response {
    let response = axum::http::Response::builder().header(CONTENT_TYPE, "application/grpc");
    let made = match outcome {
        Ok(message) => {
            let trailer = HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]);
            let body = Full::new(Bytes::from(frame(&message))).with_trailers(async { Some(Ok(trailer)) });
            response.body(Body::new(body))
        }
        Err(status) => {
            response.header(STATUS, status.code as i32).header(MESSAGE, status.header()).body(Body::empty())
        }
    };
    made.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// Carries a call out on a thread of its own.
async fn call<Q, R>(
    driver: Arc<Driver>,
    calls: Arc<Semaphore>,
    function: Function<Q, R>,
    request: Request,
) -> Result<R, Status>
where
    Q: Message + Default + 'static,
    R: Message + 'static,
{
    let Ok(permit) = calls.try_acquire_owned() else {
        return Err(Status::unavailable(format!("{CALLS_MAX} calls are in flight: try again")));
    };
    let name = request.uri().path().trim_start_matches("/csi.v1.").to_owned();
    let body = axum::body::to_bytes(request.into_body(), REQUEST_BYTES_MAX).await;
    let body = body.map_err(|error| Status::invalid_argument(format!("the request: {error}")))?;
    let request: Q = unframe(&body)?;
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        function(&driver, request)
    });
    let outcome = done.await.map_err(|error| Status::internal(error.to_string()))?;
    if let Err(status) = &outcome {
        tracing::info!(%name, code = ?status.code, "{}", status.message);
    }
    outcome
}

struct Calls {
    driver: Arc<Driver>,
    calls: Arc<Semaphore>,
    router: Router,
}

impl Calls {
    /// Adds a call: `Controller/CreateVolume`.
    fn with<Q, R>(self, name: &str, function: Function<Q, R>) -> Calls
    where
        Q: Message + Default + 'static,
        R: Message + 'static,
    {
        let (driver, calls) = (self.driver.clone(), self.calls.clone());
        let handler = post(move |request: Request| {
            let (driver, calls) = (driver.clone(), calls.clone());
            async move { answer(call(driver, calls, function, request).await) }
        });
        Calls { router: self.router.route(&format!("/csi.v1.{name}"), handler), ..self }
    }
}

/// The answer to a call that the driver does not have.
async fn unimplemented(request: Request) -> Response {
    answer(Err::<(), _>(Status::unimplemented(format!("{} is not supported", request.uri().path()))))
}

/// Every call that the driver answers; the others are answered UNIMPLEMENTED.
fn routes(driver: Arc<Driver>) -> Router {
    let router = Router::new().fallback(unimplemented);
    let calls = Calls { driver, calls: Arc::new(Semaphore::new(CALLS_MAX)), router };
    let calls = calls
        .with("Identity/GetPluginInfo", Driver::get_plugin_info)
        .with("Identity/GetPluginCapabilities", Driver::get_plugin_capabilities)
        .with("Identity/Probe", Driver::probe)
        .with("Controller/CreateVolume", Driver::create_volume)
        .with("Controller/DeleteVolume", Driver::delete_volume)
        .with("Controller/ValidateVolumeCapabilities", Driver::validate_volume_capabilities)
        .with("Controller/ListVolumes", Driver::list_volumes)
        .with("Controller/GetCapacity", Driver::get_capacity)
        .with("Controller/ControllerGetCapabilities", Driver::controller_get_capabilities)
        .with("Controller/ControllerExpandVolume", Driver::controller_expand_volume)
        .with("Node/NodeStageVolume", Driver::node_stage_volume)
        .with("Node/NodeUnstageVolume", Driver::node_unstage_volume)
        .with("Node/NodePublishVolume", Driver::node_publish_volume)
        .with("Node/NodeUnpublishVolume", Driver::node_unpublish_volume)
        .with("Node/NodeGetVolumeStats", Driver::node_get_volume_stats)
        .with("Node/NodeExpandVolume", Driver::node_expand_volume)
        .with("Node/NodeGetCapabilities", Driver::node_get_capabilities)
        .with("Node/NodeGetInfo", Driver::node_get_info);
    calls.router
}

/// Serves until `stop` returns. `listening` runs once callers can connect. Mounts stay.
pub fn serve(
    driver: Driver,
    endpoint: &Endpoint,
    listening: impl FnOnce(),
    stop: impl FnOnce() + Send + 'static,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(CALLS_MAX + 1)
        .enable_all()
        .build()
        .context("starting threads")?;
    let served = runtime.block_on(async {
        let listener = endpoint.listen()?;
        listening();
        let stopping = Arc::new(Notify::new());
        let stopped = stopping.clone();
        let stop = tokio::task::spawn_blocking(stop);
        let stop = async move {
            let _ = stop.await;
            stopping.notify_one();
        };
        let serving = axum::serve(listener, routes(Arc::new(driver))).with_graceful_shutdown(stop);
        let given_up = async {
            stopped.notified().await;
            tokio::time::sleep(STOP_PATIENCE).await;
        };
        tokio::select! {
            served = serving.into_future() => served.with_context(|| format!("serving {}", endpoint.0.display())),
            () = given_up => Ok(()),
        }
    });
    runtime.shutdown_timeout(STOP_PATIENCE);
    let _ = std::fs::remove_file(&endpoint.0);
    served
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::ProbeResponse;

    #[test]
    fn request_is_one_whole_uncompressed_frame() {
        let message = ProbeResponse { ready: Some(true) };
        let framed = frame(&message);
        assert_eq!(unframe::<ProbeResponse>(&framed), Ok(message));
        let compressed = [&[1], &framed[1..]].concat();
        let twice = [&framed[..], &framed].concat();
        let torn = [0, 0, 0, 0, 2, 0x0a, 0x7f];
        for bad in [&framed[..framed.len() - 1], &framed[..3], &compressed, &twice, &torn, &[]] {
            assert!(unframe::<ProbeResponse>(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn endpoint_is_a_unix_socket() {
        for good in ["unix:///run/csi.sock", "unix:/run/csi.sock", "/run/csi.sock"] {
            assert_eq!(good.parse::<Endpoint>().unwrap().path(), Path::new("/run/csi.sock"));
        }
        for bad in ["", "csi.sock", "tcp://0.0.0.0:1", "unix://csi.sock", "/run/"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn file_that_is_no_socket_is_not_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("file");
        std::fs::write(&path, "kept").unwrap();
        let error = Endpoint(path.clone()).listen().unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "kept");
    }
}
