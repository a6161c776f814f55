//! The address under which other machines reach this one.

use crate::limits::PORT_DEFAULT;
use anyhow::{Context, bail};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

/// An address that no machine has (RFC 5737): packets to it take the default route.
const ANYWHERE: &str = "192.0.2.1:9";

/// `ADDRESS:PORT` for a server that listens on `listen`. If it listens on all addresses, this is the source
/// address of packets to `toward` (`HOST:PORT`), or of packets on the default route. Without such a route it
/// is the one address of this machine, if there is just one. Nothing is sent.
pub fn reachable(listen: &str, toward: Option<&str>) -> anyhow::Result<String> {
    let listen: SocketAddr = listen.parse().with_context(|| format!("'{listen}'"))?;
    if !listen.ip().is_unspecified() {
        return Ok(listen.to_string());
    }
    let on_route = own_address(toward.unwrap_or(ANYWHERE));
    let chosen = on_route.map_or_else(|| only(&own_addresses(listen.is_ipv6())), Ok)?;
    Ok(SocketAddr::new(chosen, listen.port()).to_string())
}

/// The only address of a machine.
fn only(addresses: &[IpAddr]) -> anyhow::Result<IpAddr> {
    let list = |addresses: &[IpAddr]| {
        addresses.iter().map(|address| address.to_string()).collect::<Vec<_>>().join(" or ")
    };
    match addresses {
        [only] => Ok(*only),
        [] => bail!(
            "this machine has no address but that of loopback, which other machines do not reach: configure its network, or \
             say its address with --address HOST[:{PORT_DEFAULT}]"
        ),
        several => bail!(
            "cannot tell under which address the other machines reach this one: say it with --address {}",
            list(several)
        ),
    }
}

/// The addresses of this machine's interfaces that are up, without loopback and addresses of a single link.
fn own_addresses(with_ipv6: bool) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let is_usable = interface.flags.contains(InterfaceFlags::IFF_UP)
            && !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        let Some(address) = interface.address.filter(|_| is_usable) else { continue };
        let v4 = address.as_sockaddr_in().map(|it| it.ip()).filter(|it| !it.is_link_local());
        let v6 = address.as_sockaddr_in6().map(|it| it.ip());
        let v6 = v6.filter(|it| with_ipv6 && !it.is_unicast_link_local());
        found.extend(v4.map(IpAddr::V4).or(v6.map(IpAddr::V6)));
    }
    found.sort_unstable();
    found.dedup();
    found
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
    }

    #[test]
    fn address_without_a_route_is_the_only_one_and_several_are_named() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(only(&[ip("10.0.0.1")]).unwrap(), ip("10.0.0.1"));
        let error = only(&[ip("10.0.0.1"), ip("10.1.0.1")]).unwrap_err().to_string();
        assert!(error.ends_with("--address 10.0.0.1 or 10.1.0.1"), "{error}");
        assert!(only(&[]).unwrap_err().to_string().contains("--address HOST[:7470]"));
        assert!(
            own_addresses(true)
                .iter()
                .all(|it| !it.is_loopback() && is_own(&SocketAddr::new(*it, 0).to_string()))
        );
    }

    #[test]
    fn a_machine_knows_its_own_addresses() {
        assert!(is_own("127.0.0.1:7470") && is_own("127.0.0.2:7470"));
        assert!(!is_own(ANYWHERE) && !is_own("not an address"));
    }
}
