//! Settings of a volume: `volume set NAME KEY VALUE`.

use shoal_types::parse_bytes;
use shoal_wire::OPS_VERSION;
use std::net::IpAddr;
use std::str::FromStr;

/// A known setting.
pub struct Known {
    /// Its name.
    pub key: &'static str,
    /// Its default.
    pub default: &'static str,
    /// What it does, for the administrator.
    pub help: &'static str,
    check: fn(&str) -> Result<(), String>,
}

/// The version of operations that mounts may use.
pub const OP_VERSION: &str = "op-version";
/// The setting that pauses the scrubbing of a volume's bricks.
pub const SCRUB_STATE: &str = "scrub.state";
/// Its default value.
pub const SCRUB_ACTIVE: &str = "active";
/// Its other value.
pub const SCRUB_PAUSED: &str = "paused";

/// All settings.
pub const ALL: &[Known] = &[
    Known {
        key: "auth.allow",
        default: "*",
        help: "addresses that may mount: a comma-separated list of addresses and networks (10.0.0.0/8), or *",
        check: |value| AllowList::from_str(value).map(drop),
    },
    Known {
        key: "block-cache",
        default: "128",
        help: "memory of each mount for large files, in MiB; a mount's own option block-cache=MIB overrides it",
        check: mebibytes,
    },
    Known {
        key: "cache",
        default: "256",
        help: "memory of each mount for names, attributes and small files, in MiB; a mount's own option cache=MIB overrides it",
        check: mebibytes,
    },
    Known {
        key: "cluster.metadata-replicas",
        default: "3",
        help: "replicas of the volume's metadata: 1, 3 or 5 (as far as there are nodes)",
        check: |value| match value {
            "1" | "3" | "5" => Ok(()),
            _ => Err("it is 1, 3 or 5".into()),
        },
    },
    Known {
        key: "heal.bytes-per-second",
        default: "0",
        help: "how fast healing and rebalancing may copy, in bytes per second (50MB); 0: as fast as possible",
        check: |value| parse_bytes(value).map(drop),
    },
    Known {
        key: SCRUB_STATE,
        default: SCRUB_ACTIVE,
        help: "whether bricks are read through for damage, again and again: active or paused (volume scrub NAME pause)",
        check: |value| match value {
            SCRUB_ACTIVE | SCRUB_PAUSED => Ok(()),
            _ => Err(format!("it is {SCRUB_ACTIVE} or {SCRUB_PAUSED}")),
        },
    },
    Known {
        key: "locks",
        default: "cluster",
        help: "between which programs fcntl and flock locks exclude: cluster (on all mounts) or local (on one mount, \
               without messages); a mount's own option locks=... overrides it",
        check: |value| one_of(value, &["cluster", "local"]),
    },
    Known {
        key: OP_VERSION,
        default: "1",
        help: "what all servers and mounts of the volume know: 2 allows inode flags (chattr) and O_TMPFILE; new volumes begin with the \
               newest that all nodes know, older ones are raised when all programs have been upgraded",
        check: |value| match value.parse::<u8>() {
            Ok(1..=OPS_VERSION) => Ok(()),
            _ => Err(format!("it is a number from 1 to {OPS_VERSION}")),
        },
    },
    Known {
        key: "read-ahead",
        default: "2048",
        help: "how far each mount's kernel reads ahead in a file, in KiB; a mount's own option read-ahead=KIB overrides it",
        check: |value| number(value, MOUNT_NUMBER_MAX),
    },
    Known {
        key: "slow-operation",
        default: "5",
        help: "operations of a mount that take longer than so many seconds are logged there, with what they wait for; 0: \
               none; a mount's own option slow-operation=... overrides it",
        check: |value| match value.parse::<u64>() {
            Ok(seconds) if seconds <= SLOW_OPERATION_S_MAX => Ok(()),
            _ => Err(format!("it is a number of seconds, 0 to {SLOW_OPERATION_S_MAX}")),
        },
    },
    Known {
        key: "read-only",
        default: "off",
        help: "on: every mount that begins from then on is read-only, whatever its own options are",
        check: |value| one_of(value, &["on", "off"]),
    },
    Known {
        key: TIER_BYTES_PER_SECOND,
        default: "0",
        help: "how fast blocks are moved between tiers, in bytes per second (50MB); 0: as fast as possible",
        check: |value| parse_bytes(value).map(drop),
    },
    Known {
        key: TIER_DEMOTE_AFTER,
        default: "1d",
        help: "a block that was not used for so long leaves the hot tier: 30s, 10m, 2h, 7d",
        check: |value| parse_seconds(value).map(drop),
    },
    Known {
        key: TIER_HIGH_WATERMARK,
        default: "90",
        help: "if more than so many percent of the hot tier are used, the longest unused blocks leave it",
        check: |value| number(value, 100),
    },
    Known {
        key: TIER_LOW_WATERMARK,
        default: "75",
        help: "... until no more than so many percent are used",
        check: |value| number(value, 100),
    },
    Known {
        key: TIER_PAUSE,
        default: "off",
        help: "on: no block is moved between tiers; new ones are still stored on the hot tier",
        check: |value| one_of(value, &["on", "off"]),
    },
    Known {
        key: TIER_PROMOTE_READS,
        default: "4",
        help: "a cold block that bricks were asked for so often within an hour moves to the hot tier; 0: none does",
        check: |value| match value {
            "0" => Ok(()),
            _ => number(value, TIER_READS_MAX),
        },
    },
];

/// How fast blocks are moved between tiers.
pub const TIER_BYTES_PER_SECOND: &str = "tier.bytes-per-second";
/// How long a block may be unused on the hot tier.
pub const TIER_DEMOTE_AFTER: &str = "tier.demote-after";
/// Above this part of the hot tier, blocks leave it.
pub const TIER_HIGH_WATERMARK: &str = "tier.high-watermark";
/// Down to this part.
pub const TIER_LOW_WATERMARK: &str = "tier.low-watermark";
/// Whether nothing is moved between tiers.
pub const TIER_PAUSE: &str = "tier.pause";
/// How often a cold block is read before it moves to the hot tier.
pub const TIER_PROMOTE_READS: &str = "tier.promote-reads";

/// Largest number of reads that a volume may wait for.
const TIER_READS_MAX: u64 = 1_000_000;
/// Longest duration in a setting, in seconds: ten years.
const SECONDS_MAX: u64 = 10 * 366 * 86_400;

/// A duration: `30s`, `10m`, `2h`, `7d`, or a number of seconds.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..) {
        Some("" | "s") => Some(1),
        Some("m") => Some(60),
        Some("h") => Some(3600),
        Some("d") => Some(86_400),
        _ => None,
    };
    let seconds = digits.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    seconds
        .filter(|seconds| (1..=SECONDS_MAX).contains(seconds))
        .ok_or_else(|| "it is a duration, as in 30s, 10m, 2h or 7d".into())
}

/// Longest `slow-operation`, in seconds: a day.
const SLOW_OPERATION_S_MAX: u64 = 86_400;
/// Largest number that a mount option takes.
const MOUNT_NUMBER_MAX: u64 = 1 << 20;

fn number(value: &str, max: u64) -> Result<(), String> {
    match value.parse::<u64>() {
        Ok(number) if (1..=max).contains(&number) => Ok(()),
        _ => Err(format!("it is a number from 1 to {max}")),
    }
}

/// Memory as mount options take it: a number of MiB, or a size with a unit.
fn mebibytes(value: &str) -> Result<(), String> {
    let bytes = match value.parse::<u64>() {
        Ok(mebibytes) => mebibytes.checked_mul(1 << 20),
        Err(_) => parse_bytes(value).ok(),
    };
    match bytes {
        Some(bytes) if (1..=MOUNT_NUMBER_MAX << 20).contains(&bytes) => Ok(()),
        _ => Err(format!("it is a number from 1 to {MOUNT_NUMBER_MAX}, in MiB, or a size as in 512MB")),
    }
}

fn one_of(value: &str, words: &[&str]) -> Result<(), String> {
    match words.contains(&value) {
        true => Ok(()),
        false => Err(format!("it is {}", words.join(" or "))),
    }
}

/// The mount options that follow from a volume's settings, defaults included. A mount reads them before its
/// own options, which override them. The exception is `read-only`, which no mount option overrides.
pub fn mount_options(value: impl Fn(&str) -> Option<String>) -> String {
    let given = |key: &&str| value(key).map(|value| format!("{key}={value}"));
    let mut words: Vec<String> =
        ["locks", "cache", "block-cache", "read-ahead", "slow-operation"].iter().filter_map(given).collect();
    if value("read-only").as_deref() == Some("on") {
        words.push("ro".into());
    }
    words.join(",")
}

/// A setting by its name.
pub fn find(key: &str) -> Option<&'static Known> {
    ALL.iter().find(|known| known.key == key)
}

/// Checks a value for a key; the error is for the administrator.
pub fn check(key: &str, value: &str) -> Result<(), String> {
    let Some(known) = find(key) else {
        let keys: Vec<&str> = ALL.iter().map(|known| known.key).collect();
        return Err(format!("there is no option '{key}'; there are: {}", keys.join(", ")));
    };
    (known.check)(value).map_err(|why| format!("'{value}' is no value of {key}: {why}"))
}

/// The addresses that may mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowList(Option<Vec<(IpAddr, u8)>>);

impl FromStr for AllowList {
    type Err = String;
    fn from_str(text: &str) -> Result<AllowList, String> {
        if text.trim() == "*" {
            return Ok(AllowList(None));
        }
        let mut networks = Vec::new();
        for word in text.split(',').map(str::trim) {
            let (address, bits) =
                word.split_once('/').map_or((word, None), |(address, bits)| (address, Some(bits)));
            let address: IpAddr = address
                .parse()
                .map_err(|_| format!("'{word}' is no address; use 10.0.0.5, 10.0.0.0/8 or *"))?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = match bits.map(str::parse::<u8>) {
                None => most,
                Some(Ok(bits)) if bits <= most => bits,
                Some(_) => return Err(format!("'{word}': the network's length is 0 to {most}")),
            };
            networks.push((address, bits));
        }
        Ok(AllowList(Some(networks)))
    }
}

impl AllowList {
    /// Whether an address is on the list.
    pub fn admits(&self, address: IpAddr) -> bool {
        let Some(networks) = &self.0 else { return true };
        let address = address.to_canonical();
        networks.iter().any(|(network, bits)| match (network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(*bits)).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(*bits)).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_list_admits_its_addresses_and_networks_and_no_other() {
        let list: AllowList = "10.1.0.0/16, 192.168.1.7, fd00::/8".parse().unwrap();
        for (address, admitted) in [
            ("10.1.200.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("192.168.1.7", true),
            ("192.168.1.8", false),
            ("fd12::1", true),
            ("fe80::1", false),
        ] {
            assert_eq!(list.admits(address.parse().unwrap()), admitted, "{address}");
        }
        let all: AllowList = "0.0.0.0/0".parse().unwrap();
        assert!(all.admits("1.2.3.4".parse().unwrap()) && !all.admits("fd00::1".parse().unwrap()));
        assert!("*".parse::<AllowList>().unwrap().admits("fd00::1".parse().unwrap()));
        for bad in ["", "host", "10.0.0.0/33", "10.0.0.0/x", "10.0.0.1,,"] {
            assert!(bad.parse::<AllowList>().is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_options_are_refused_with_those_that_there_are() {
        assert!(check("auth.alow", "*").unwrap_err().contains("auth.allow"));
        assert!(check("cluster.metadata-replicas", "2").is_err());
        assert!(
            check("heal.bytes-per-second", "50MB").is_ok() && check("heal.bytes-per-second", "fast").is_err()
        );
        for (text, seconds) in [("45", 45), ("30s", 30), ("10m", 600), ("2h", 7200), ("7d", 604_800)] {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for bad in ["", "0", "s", "-1s", "1w", "1 h", "99999999999d", "18446744073709551615d"] {
            assert!(check(TIER_DEMOTE_AFTER, bad).unwrap_err().contains("10m"), "{bad}");
        }
        assert!(check(TIER_PROMOTE_READS, "0").is_ok() && check(TIER_HIGH_WATERMARK, "101").is_err());
        assert!(check(SCRUB_STATE, SCRUB_PAUSED).is_ok() && check(SCRUB_STATE, "off").is_err());
        assert!(check("cache", "1GB").is_ok() && check("cache", "2PB").is_err());
        assert!(check("locks", "global").unwrap_err().contains("cluster or local"));
        assert!(check(OP_VERSION, "2").is_ok() && check(OP_VERSION, "3").unwrap_err().contains("1 to 2"));
        assert!(check("cache", "0").is_err() && check("cache", "2000000").unwrap_err().contains("MiB"));
        for known in ALL {
            assert_eq!(check(known.key, known.default), Ok(()), "{}", known.key);
        }
    }

    #[test]
    fn settings_for_mounts_are_told_as_mount_options() {
        let default = |key: &str| find(key).map(|known| known.default.to_owned());
        assert_eq!(
            mount_options(default),
            "locks=cluster,cache=256,block-cache=128,read-ahead=2048,slow-operation=5"
        );
        let set = |key: &str| match key {
            "read-only" => Some("on".to_owned()),
            "locks" => Some("local".into()),
            _ => None,
        };
        assert_eq!(mount_options(set), "locks=local,ro");
    }
}
