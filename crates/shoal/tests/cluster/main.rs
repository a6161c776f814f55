//! Clusters of real processes on hosts of their own (network namespaces), with real mounts, under faults.
//!
//! `SHOAL_TEST_LONG=1` runs them at full length; `SHOAL_TEST_SEED=n` repeats a run's random choices.

mod harness;

mod administration;
mod admission;
mod arbiter;
mod checker;
mod dispersed;
mod events;
mod expand;
mod failures;
mod identity;
mod locks;
mod metrics;
mod near;
mod outage;
mod postgres;
mod profile;
mod programs;
mod refused;
mod replicas;
mod several;
mod slow;
mod tiers;
mod top;
mod wiped;
