//! `HOST[,HOST...]:/VOLUME`: what is mounted, in the words of mount(8), fstab(5) and GlusterFS.

use crate::limits::PORT_DEFAULT;
use std::str::FromStr;

/// A volume and nodes to ask for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterSource {
    /// As it was written.
    pub text: String,
    /// Nodes, `HOST:PORT`; any of them will do.
    pub servers: Vec<String>,
    /// The volume's name.
    pub volume: String,
}

/// Whether a word names a volume of a cluster, and not a directory of this machine.
pub fn looks_like_one(text: &str) -> bool {
    text.find(":/").is_some_and(|at| !text[..at].contains('/') && at > 0)
}

impl FromStr for ClusterSource {
    type Err = String;
    fn from_str(text: &str) -> Result<ClusterSource, String> {
        let wrong = |why: &str| format!("'{text}': {why}; say HOST:/VOLUME, as in node1,node2:/web");
        let (hosts, volume) = text.split_once(":/").ok_or_else(|| wrong("names no volume of a cluster"))?;
        // GlusterFS can mount a directory of a volume; here it must be seen that this is not what happens.
        if volume.trim_end_matches('/').contains('/') {
            return Err(wrong("only whole volumes can be mounted"));
        }
        let volume = volume.trim_end_matches('/');
        if volume.is_empty() {
            return Err(wrong("the name of the volume is missing"));
        }
        let servers = hosts.split(',').map(|host| with_port(host.trim(), PORT_DEFAULT));
        let servers =
            servers.collect::<Option<Vec<String>>>().ok_or_else(|| wrong("a host is not well said"))?;
        Ok(ClusterSource { text: text.to_owned(), servers, volume: volume.to_owned() })
    }
}

/// `HOST:PORT` from `HOST`, `HOST:PORT`, an IPv6 address, or one in brackets with or without a port.
pub fn with_port(host: &str, port: u16) -> Option<String> {
    let plain = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.%".contains(&b))
    };
    if let Some(rest) = host.strip_prefix('[') {
        let (address, after) = rest.split_once(']')?;
        address.parse::<std::net::Ipv6Addr>().ok()?;
        return match after.strip_prefix(':') {
            Some(given) => given
                .parse::<u16>()
                .ok()
                .filter(|given| *given > 0)
                .map(|given| format!("[{address}]:{given}")),
            None => after.is_empty().then(|| format!("[{address}]:{port}")),
        };
    }
    if host.parse::<std::net::Ipv6Addr>().is_ok() {
        return Some(format!("[{host}]:{port}"));
    }
    match host.split_once(':') {
        Some((name, given)) => {
            let given = given.parse::<u16>().ok().filter(|given| *given > 0 && plain(name))?;
            Some(format!("{name}:{given}"))
        }
        None => plain(host).then(|| format!("{host}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_servers_and_a_volume() {
        let source: ClusterSource = "node1,node2:7471,10.0.0.3,[fd00::1]:9:/web".parse().unwrap();
        assert_eq!(source.servers, ["node1:7470", "node2:7471", "10.0.0.3:7470", "[fd00::1]:9"]);
        assert_eq!((source.volume.as_str(), source.text.len()), ("web", 42));
        let source: ClusterSource = "fd00::2:/web/".parse().unwrap();
        assert_eq!((source.servers, source.volume.as_str()), (vec!["[fd00::2]:7470".to_owned()], "web"));
        for bad in [
            "node1",
            ":/web",
            "node1:/",
            "node1,:/web",
            "node1:/web/sub",
            "node1:0:/web",
            "node1:x:/web",
            "a b:/web",
            "[fd00::1:/web",
            "[node1]:/web",
            "[fd00::1]x:/web",
        ] {
            assert!(bad.parse::<ClusterSource>().is_err(), "{bad}");
        }
    }

    #[test]
    fn directories_are_not_taken_for_volumes() {
        assert!(looks_like_one("node1:/web") && looks_like_one("a,b,fd00::1:/web"));
        for directory in ["/srv/shoal", "run/data", "./a:/b", "/srv/a:/b", ":/web", "a:b"] {
            assert!(!looks_like_one(directory), "{directory}");
        }
    }
}
