//! What is to be measured, and how large.

use crate::limits::{
    BUILD_FILES, FILE_OVERHEAD_BYTES, FILES, RECORD_BYTES, ROUNDS_DEFAULT, SMALL_FILE_BYTES, SMALL_FILES,
    STREAM_BYTES, TARS, THREADS, UNTAR_FILE_BYTES, UNTAR_FILES,
};
use serde::{Deserialize, Serialize};

/// A workload, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Small files, read by many tars at once.
    SmallRead,
    /// A tree unpacked, archived and removed, on one and on several mounts at once.
    Untar,
    /// Trees unpacked, archived and removed by several mounts: a tree for each, and one for all.
    Cluster,
    /// Threads that create, stat, read, rename and delete small files.
    Smallfile,
    /// Long files by several clients, in sequence, at random and in strides.
    Stream,
    /// A site whose files are served at random.
    Web,
    /// A repository.
    Git,
    /// Messages that are delivered, read and expunged.
    Maildir,
    /// A program of many C files.
    Build,
}

impl Suite {
    /// All of them.
    pub const ALL: &[Suite] = &[
        Suite::SmallRead,
        Suite::Untar,
        Suite::Cluster,
        Suite::Smallfile,
        Suite::Stream,
        Suite::Web,
        Suite::Git,
        Suite::Maildir,
        Suite::Build,
    ];
    /// Those that run if none is named: they need no further program but tar.
    pub const DEFAULT: &[Suite] = &[Suite::SmallRead, Suite::Untar, Suite::Smallfile, Suite::Stream];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Suite::SmallRead => "small-read",
            Suite::Untar => "untar",
            Suite::Cluster => "cluster",
            Suite::Smallfile => "smallfile",
            Suite::Stream => "stream",
            Suite::Web => "web",
            Suite::Git => "git",
            Suite::Maildir => "maildir",
            Suite::Build => "build",
        }
    }

    /// The programs that it runs.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Suite::SmallRead | Suite::Untar => &["bash", "tar", "cat", "rm", "seq"],
            Suite::Cluster => &["bash", "tar", "cat", "rm", "xargs"],
            Suite::Git => &["git"],
            Suite::Build => &["make", "cc"],
            Suite::Smallfile | Suite::Stream | Suite::Web | Suite::Maildir => &[],
        }
    }
}

impl std::str::FromStr for Suite {
    type Err = String;
    fn from_str(name: &str) -> Result<Suite, String> {
        Suite::ALL.iter().copied().find(|suite| suite.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Suite::ALL.iter().map(|suite| suite.name()).collect();
            format!("there is no suite '{name}'; there are {}", names.join(", "))
        })
    }
}

/// Sizes of the workloads. They are kept with the results: figures of different sizes do not compare.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Which suites.
    pub suites: Vec<Suite>,
    /// How often.
    pub rounds: usize,
    /// Files of each suite, if not its default.
    pub files: Option<usize>,
    /// Length of a small file, if not the suite's default, in bytes.
    pub file_bytes: Option<usize>,
    /// Threads, and clients of `stream`.
    pub threads: usize,
    /// Concurrent tars of `small-read`.
    pub tars: usize,
    /// Bytes that the clients of `stream` write together.
    pub stream_bytes: u64,
    /// Bytes of the records of `stream`.
    pub record_bytes: Vec<u64>,
    /// No cold reads: the machine's caches are left alone.
    pub warm_only: bool,
    /// A command that empties a directory's caches, run with the directory as `$1`.
    pub remount: Option<String>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            suites: Suite::DEFAULT.to_vec(),
            rounds: ROUNDS_DEFAULT,
            files: None,
            file_bytes: None,
            threads: THREADS,
            tars: TARS,
            stream_bytes: STREAM_BYTES,
            record_bytes: vec![RECORD_BYTES],
            warm_only: false,
            remount: None,
        }
    }
}

impl Plan {
    /// Files of a suite.
    pub fn files_of(&self, suite: Suite) -> usize {
        self.files.unwrap_or(match suite {
            Suite::SmallRead => SMALL_FILES,
            Suite::Untar | Suite::Cluster => UNTAR_FILES,
            Suite::Build => BUILD_FILES,
            Suite::Smallfile | Suite::Web | Suite::Git | Suite::Maildir => FILES,
            Suite::Stream => self.threads,
        })
    }

    /// Length of a small file of a suite, in bytes.
    pub fn file_bytes_of(&self, suite: Suite) -> usize {
        self.file_bytes.unwrap_or(match suite {
            Suite::Untar | Suite::Cluster | Suite::Git => UNTAR_FILE_BYTES,
            _ => SMALL_FILE_BYTES,
        })
    }

    /// Bytes that a suite takes on one mount at most.
    pub fn bytes_of(&self, suite: Suite) -> u64 {
        let file = (self.file_bytes_of(suite) as u64).max(FILE_OVERHEAD_BYTES) + FILE_OVERHEAD_BYTES;
        match suite {
            Suite::Stream => self.stream_bytes,
            // The objects, and an object file beside each source.
            Suite::Git | Suite::Build => 3 * self.files_of(suite) as u64 * file,
            _ => self.files_of(suite) as u64 * file,
        }
    }

    /// Bytes that the largest of the suites takes.
    pub fn bytes_needed(&self) -> u64 {
        self.suites.iter().map(|&suite| self.bytes_of(suite)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_found_by_name_and_an_unknown_one_lists_them_all() {
        for suite in Suite::ALL {
            assert_eq!(suite.name().parse(), Ok(*suite));
            assert_eq!(serde_json::to_value(suite).unwrap(), suite.name());
        }
        let error = "smalfile".parse::<Suite>().unwrap_err();
        assert!(Suite::ALL.iter().all(|suite| error.contains(suite.name())), "{error}");
    }

    #[test]
    fn space_needed_is_that_of_the_largest_suite() {
        let plan = Plan { suites: vec![Suite::SmallRead, Suite::Stream], ..Plan::default() };
        assert_eq!(plan.bytes_needed(), 1 << 30);
        let small = Plan { suites: vec![Suite::SmallRead], files: Some(10), ..plan };
        assert_eq!(small.bytes_needed(), 10 * (24 << 10));
    }
}
