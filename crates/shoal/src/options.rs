//! Mount options, `-o ro,nodev,...`.

use shoal_fuse::MountOptions;
use std::str::FromStr;

/// How a volume is mounted and how much memory the client may use.
#[derive(Clone, Debug, Default)]
pub struct Options {
    words: Vec<String>,
    /// For the kernel's side.
    pub mount: MountOptions,
    /// Room for cached metadata and small contents, in bytes.
    pub cache_bytes: Option<usize>,
    /// Room for cached blocks, in bytes.
    pub block_cache_bytes: Option<usize>,
}

/// What `--help` says of them.
pub const HELP: &str = "\
Mount options, separated by commas:
  ro                 nothing may be changed
  nodev nosuid noexec  as for other file systems
  private            only the user who mounts may use it
  readers=N          threads that read requests from the kernel
  waiters=N          threads for requests that wait for a disk
  read-ahead=KIB     how far the kernel reads ahead in a file
  cache=MIB          memory for names, attributes and small files
  block-cache=MIB    memory for large files
  defaults, rw, dev, suid, exec, noatime, relatime: as they are anyway";

impl Options {
    /// The options as they were given, for another process.
    pub fn words(&self) -> String {
        self.words.join(",")
    }

    fn set(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let number = |max: usize| match value.map(usize::from_str) {
            Some(Ok(number)) if (1..=max).contains(&number) => Ok(number),
            _ => Err(format!("'{name}' wants a number from 1 to {max}, as in '{name}=8'")),
        };
        match (name, value) {
            ("readers", _) => self.mount.readers = number(256)?,
            ("waiters", _) => self.mount.slow_threads = number(4096)?,
            ("read-ahead", _) => self.mount.read_ahead_kib = number(1 << 20)? as u32,
            ("cache", _) => self.cache_bytes = Some(number(1 << 20)? << 20),
            ("block-cache", _) => self.block_cache_bytes = Some(number(1 << 20)? << 20),
            (_, Some(_)) => {
                return Err(format!("there is no mount option '{name}' with a value; see --help"));
            }
            ("ro", _) => self.mount.read_only = true,
            ("nodev", _) => self.mount.nodev = true,
            ("nosuid", _) => self.mount.nosuid = true,
            ("noexec", _) => self.mount.noexec = true,
            ("private", _) => self.mount.allow_other = false,
            ("defaults" | "rw" | "dev" | "suid" | "exec" | "noatime" | "relatime" | "", _) => {}
            _ => return Err(format!("there is no mount option '{name}'; see --help")),
        }
        Ok(())
    }
}

impl FromStr for Options {
    type Err = String;
    fn from_str(text: &str) -> Result<Options, String> {
        let mut options = Options::default();
        for word in text.split(',') {
            options.set(word.trim())?;
            options.words.push(word.trim().to_owned());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood_and_passed_on_as_given() {
        let options: Options = "ro, nodev,cache=64".parse().unwrap();
        assert!(options.mount.read_only && options.mount.nodev && !options.mount.nosuid);
        assert_eq!(options.cache_bytes, Some(64 << 20));
        assert_eq!(options.words(), "ro,nodev,cache=64");
        assert!("".parse::<Options>().is_ok());
    }

    #[test]
    fn unknown_options_and_bad_numbers_are_refused_by_name() {
        for (bad, name) in [
            ("sync", "sync"),
            ("cache", "cache"),
            ("cache=x", "cache"),
            ("ro=1", "ro"),
            ("readers=0", "readers"),
        ] {
            assert!(bad.parse::<Options>().unwrap_err().contains(name), "{bad}");
        }
    }
}
