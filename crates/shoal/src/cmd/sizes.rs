//! Sizes of the suites, as options of the commands that run them.

use anyhow::ensure;
use clap::Args;
use shoal_suites::limits::{FILE_BYTES_MAX, FILES_MAX, RECORD_BYTES_MAX, TARS, THREADS, THREADS_MAX};
use shoal_suites::plan::{Plan, Suite};
use shoal_types::parse_bytes;

/// How large the work is.
#[derive(Debug, Args)]
pub struct Sizes {
    /// Files of each suite, instead of its own number
    #[arg(long, value_name = "N", value_parser = number(FILES_MAX))]
    files: Option<usize>,
    /// Length of a small file, instead of the suite's own
    #[arg(long, value_name = "SIZE", value_parser = size)]
    file_size: Option<u64>,
    /// Threads, and clients of `stream`
    #[arg(long, default_value_t = THREADS, value_name = "N", value_parser = number(THREADS_MAX))]
    threads: usize,
    /// Concurrent tars of `small-read`
    #[arg(long, default_value_t = TARS, value_name = "N", value_parser = number(THREADS_MAX))]
    tars: usize,
    /// What the clients of `stream` write together
    #[arg(long, default_value = "1GB", value_name = "SIZE", value_parser = size)]
    stream_size: u64,
    /// Records of `stream`, one size or several
    #[arg(long, default_value = "1MB", value_name = "SIZE", value_delimiter = ',', value_parser = size)]
    record: Vec<u64>,
}

/// A number from 1 to a bound.
pub fn number(max: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| match text.parse() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(format!("a number from 1 to {max} is wanted")),
    }
}

fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).and_then(|bytes| if bytes > 0 { Ok(bytes) } else { Err("at least 1 byte".into()) })
}

impl Sizes {
    /// The plan of these suites, each once.
    pub fn plan(&self, suites: &[Suite], rounds: usize) -> anyhow::Result<Plan> {
        let file_bytes = self.file_size;
        ensure!(file_bytes.is_none_or(|bytes| bytes <= FILE_BYTES_MAX), "--file-size: at most 64 MB");
        for &record in &self.record {
            ensure!(record <= RECORD_BYTES_MAX, "--record: at most 1 GB");
            ensure!(
                !suites.contains(&Suite::Stream) || self.stream_size / self.threads as u64 >= record,
                "--stream-size leaves less than one record to each of {} clients",
                self.threads
            );
        }
        let mut once: Vec<Suite> = Vec::new();
        for &suite in suites {
            if !once.contains(&suite) {
                once.push(suite);
            }
        }
        Ok(Plan {
            suites: once,
            rounds,
            files: self.files,
            file_bytes: file_bytes.map(|bytes| bytes as usize),
            threads: self.threads,
            tars: self.tars,
            stream_bytes: self.stream_size,
            record_bytes: self.record.clone(),
            ..Plan::default()
        })
    }
}
