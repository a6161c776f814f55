//! `HOST[,HOST...]:[/]VOLUME[/DIRECTORY]`: what is mounted, in the words of mount(8), fstab(5) and GlusterFS.

use crate::limits::PORT_DEFAULT;
use crate::options;
use std::str::FromStr;

/// A volume, or a directory of it, and nodes to ask for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterSource {
    /// As it was written.
    pub text: String,
    /// Nodes, `HOST:PORT`; any of them will do.
    pub servers: Vec<String>,
    /// The volume's name.
    pub volume: String,
    /// The directory of it, if it is not the root: `sites/a`.
    pub subdirectory: Option<String>,
}

/// Whether a word names a volume of a cluster, and not a directory of this machine. (One with a colon is
/// called `./a:b`.)
pub fn looks_like_one(text: &str) -> bool {
    let (head, _) = split(text);
    head.find(':').is_some_and(|at| at > 0)
}

/// What stands before the first slash, and the rest.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find('/').unwrap_or(text.len()))
}

impl FromStr for ClusterSource {
    type Err = String;
    fn from_str(text: &str) -> Result<ClusterSource, String> {
        let wrong = |why: &str| format!("'{text}': {why}; say HOST:/VOLUME, as in node1,node2:/web");
        let (head, rest) = split(text);
        let (hosts, first) = head.rsplit_once(':').ok_or_else(|| wrong("names no volume of a cluster"))?;
        let path = format!("{first}{rest}");
        let (volume, subdirectory) =
            path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
        if volume.is_empty() {
            return Err(wrong("the name of the volume is missing"));
        }
        let subdirectory = options::subdirectory(subdirectory).map_err(|why| wrong(&why))?;
        let servers = hosts.split(',').map(|host| with_port(host.trim(), PORT_DEFAULT));
        let servers =
            servers.collect::<Option<Vec<String>>>().ok_or_else(|| wrong("a host is not well said"))?;
        Ok(ClusterSource { text: text.to_owned(), servers, volume: volume.to_owned(), subdirectory })
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
            "node1:",
            ":web",
            "node1,:/web",
            "node1:/web/../other",
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
    fn slash_before_the_volume_may_be_left_out_and_a_directory_may_follow() {
        for (text, servers, volume, subdirectory) in [
            ("node1:web", "node1:7470", "web", None),
            ("node1:/web", "node1:7470", "web", None),
            ("node1,node2:7471:web/", "node1:7470 node2:7471", "web", None),
            ("node1:/web/sites/a", "node1:7470", "web", Some("sites/a")),
            ("node1:web//sites/./a/", "node1:7470", "web", Some("sites/a")),
            ("node1:7471:/web/a:b", "node1:7471", "web", Some("a:b")),
            ("[fd00::1]:web/a", "[fd00::1]:7470", "web", Some("a")),
            ("fd00::1:web", "[fd00::1]:7470", "web", None),
        ] {
            let source: ClusterSource = text.parse().unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(
                (source.servers.join(" ").as_str(), source.volume.as_str()),
                (servers, volume),
                "{text}"
            );
            assert_eq!(source.subdirectory.as_deref(), subdirectory, "{text}");
        }
    }

    #[test]
    fn directories_are_not_taken_for_volumes() {
        assert!(
            looks_like_one("node1:/web") && looks_like_one("a,b,fd00::1:/web") && looks_like_one("node1:web")
        );
        for directory in ["/srv/shoal", "run/data", "./a:/b", "./a:b", "/srv/a:/b", ":/web", "data"] {
            assert!(!looks_like_one(directory), "{directory}");
        }
    }
}
