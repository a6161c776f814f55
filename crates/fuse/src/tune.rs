//! Settings of a mount that the kernel offers only in sysfs. Without them the mount works, slower.

use std::fs;

/// Sets how far the kernel reads ahead. INIT grants no more than 128 KiB, even if more is requested.
pub(crate) fn read_ahead(device: &str, kib: u32) {
    set(device, "read_ahead_kb", kib);
}

fn set(device: &str, what: &str, value: u32) {
    let path = format!("/sys/class/bdi/{device}/{what}");
    if let Err(error) = fs::write(&path, value.to_string()) {
        tracing::warn!("cannot set {path} to {value}: {error}; reading large files will be slower");
    }
}
