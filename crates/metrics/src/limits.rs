//! Limits of the exporter, each with its reason.

use std::ops::RangeInclusive;

/// The buckets of histograms end at these powers of two, in nanoseconds: 4 microseconds to 69 seconds.
/// Shorter requests are answered from memory, and longer ones have failed in the eyes of their callers.
pub const BUCKET_LOG2: RangeInclusive<usize> = 12..=36;
/// Every so many of these powers is a bucket. Each bucket is a time series per operation and mount.
pub const BUCKET_STEP: usize = 2;
/// Bytes of a request's head and body that are read. A scrape has neither more nor a body.
pub const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Scrapes that wait for their turn; more are refused with 503, so that an exporter that cannot answer keeps
/// no memory and no threads.
pub const SCRAPES_WAITING_MAX: usize = 8;
/// Characters that a token needs at least.
pub const TOKEN_CHARS_MIN: usize = 16;
