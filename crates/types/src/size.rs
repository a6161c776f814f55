//! Sizes as administrators write them.

/// Units, each with its length in bytes. As with GlusterFS and `du`, `KB` is 1024 bytes, like `K` and `KiB`.
const UNITS: [(&str, u32); 6] = [("", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)];

/// A number of bytes: `1048576`, `1024KB`, `1M`, `1.5GiB`. The unit may be in lower case.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "'{text}' is no size: say a number of bytes, or one with a unit, as in 50MB or 1GB (KB = 1024)"
        )
    };
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start().to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit);
    let (_, shift) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    match number.split_once('.') {
        None => {
            let number: u64 = number.parse().map_err(|_| wrong())?;
            number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is more bytes than can be counted"))
        }
        Some((_, fraction)) if shift > 0 && !fraction.is_empty() => {
            let bytes = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
            if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(wrong()) }
        }
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_read_in_the_units_of_glusterfs() {
        for (text, bytes) in [
            ("0", 0),
            ("50000000", 50_000_000),
            ("512B", 512),
            ("1KB", 1024),
            ("1k", 1024),
            ("50MB", 50 << 20),
            ("50 MiB", 50 << 20),
            ("1GB", 1 << 30),
            ("1.5G", 3 << 29),
            ("2tb", 2 << 40),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "MB", "-1", "1XB", "1.5", "1.MB", "1.2.3M", "1 2", "99999999999P", "1e6", "5iB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
