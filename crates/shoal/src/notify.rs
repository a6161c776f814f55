//! Service notifications to systemd, see sd_notify(3): a datagram to the socket that `NOTIFY_SOCKET` names.
//!
//! Without that variable nothing is sent. A failure to notify the manager is no reason to stop serving.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Serving has begun.
pub fn ready() {
    tell("READY=1");
}

/// Stopping has begun.
pub fn stopping() {
    tell("STOPPING=1");
}

fn tell(what: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(&socket, what)
    {
        tracing::warn!(%error, ?socket, "telling the service manager");
    }
}

fn send(socket: &OsStr, what: &str) -> io::Result<()> {
    // A leading '@' stands for the zero byte of an abstract address.
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(what.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reaches_a_socket_with_a_path_and_one_with_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("shoal-notify-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}")),
        ] {
            send(OsStr::new(&name), "READY=1").unwrap();
            let mut text = [0; 16];
            let len = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..len], b"READY=1");
        }
        assert!(send(dir.path().join("absent").as_os_str(), "READY=1").is_err());
    }
}
