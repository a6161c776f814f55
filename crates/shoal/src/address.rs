//! The address under which other machines reach this one.

use crate::limits::PORT_DEFAULT;
use anyhow::{Context, bail};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

/// An address that no machine has (RFC 5737): packets to it take the default route.
const ANYWHERE: &str = "192.0.2.1:9";

/// `ADDRESS:PORT` for a server that listens on `listen`. If it listens on all addresses, this is the source
/// address of packets to `toward` (`HOST:PORT`), or of packets on the default route. Nothing is sent.
pub fn reachable(listen: &str, toward: Option<&str>) -> anyhow::Result<String> {
    let listen: SocketAddr = listen.parse().with_context(|| format!("'{listen}'"))?;
    if !listen.ip().is_unspecified() {
        return Ok(listen.to_string());
    }
    match own_address(toward.unwrap_or(ANYWHERE)) {
        Some(ip) => Ok(SocketAddr::new(ip, listen.port()).to_string()),
        None => bail!(
            "cannot tell under which address the other machines reach this one: say it with --address HOST[:{PORT_DEFAULT}]"
        ),
    }
}

/// The address from which packets to `HOST:PORT` would leave.
pub fn own_address(toward: &str) -> Option<IpAddr> {
    toward.to_socket_addrs().ok()?.find_map(|target| {
        let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(target).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
    })
}

/// Whether `HOST:PORT` is on this machine.
pub fn is_own(address: &str) -> bool {
    let addresses = address.to_socket_addrs().into_iter().flatten();
    // A socket can be bound only to an address of this machine. The machine may have several, so the one that
    // the kernel would choose as source proves nothing.
    addresses.into_iter().any(|one| UdpSocket::bind((one.ip(), 0)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_on_the_way_to_the_others() {
        assert_eq!(reachable("10.1.2.3:7470", None).unwrap(), "10.1.2.3:7470");
        assert_eq!(reachable("0.0.0.0:99", Some("127.0.0.1:7470")).unwrap(), "127.0.0.1:99");
        assert!(
            reachable("0.0.0.0:99", Some("not an address")).unwrap_err().to_string().contains("--address")
        );
    }

    #[test]
    fn a_machine_knows_its_own_addresses() {
        assert!(is_own("127.0.0.1:7470") && is_own("127.0.0.2:7470"));
        assert!(!is_own(ANYWHERE) && !is_own("not an address"));
    }
}
