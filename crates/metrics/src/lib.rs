//! Metrics for Prometheus: the text format, and an HTTP endpoint that serves it.
//!
//! **Model.** Shoal's processes count for themselves, in atomics beside the code that they measure. For each
//! scrape the figures are gathered into an [`Exposition`], which is rendered and forgotten. So there is no
//! registry, and nothing here costs anything between scrapes.
//!
//! **Promises.** Samples of one metric stand together, with its help and its type, whatever the order in
//! which they were added. A metric has one type. [`Endpoint`] asks for a token unless it listens on loopback.

mod endpoint;
mod exposition;
pub mod limits;

pub use endpoint::{Endpoint, EndpointError, Gather};
pub use exposition::{Exposition, Kind};
