//! The metadata of a data directory: how it is opened for serving, and how at rest.

use crate::data_dir::DataDir;
use anyhow::Context;
use shoal_namespace::kv::KvRead;
use shoal_namespace::query;

/// The volume's identity.
fn id(data: &DataDir) -> anyhow::Result<u128> {
    u128::from_str_radix(&data.manifest.id, 16)
        .with_context(|| format!("{}: the identity in shoal.json is no number", data.path().display()))
}

/// How the metadata server is opened: a volume is only made where the data directory is new.
pub fn options(data: &DataDir) -> anyhow::Result<shoal_meta::Options> {
    let create = if data.is_new() { Some(id(data)?) } else { None };
    Ok(shoal_meta::Options { create, ..shoal_meta::Options::default() })
}

/// The namespace as it will be when the volume is served again: the store with the log replayed.
pub fn at_rest(data: &DataDir) -> anyhow::Result<Box<dyn KvRead>> {
    let store = shoal_meta::offline::open(&data.meta())
        .with_context(|| format!("metadata in {}", data.meta().display()))?;
    Ok(Box::new(store))
}

/// What is wrong if the namespace is not that of this data directory.
pub fn mismatch(data: &DataDir, store: &dyn KvRead) -> anyhow::Result<Option<String>> {
    let ours = id(data)?;
    Ok(match query::volume(store) {
        Ok(Some(volume)) if volume.id == ours => None,
        Ok(Some(volume)) => Some(format!(
            "shoal.json says volume {ours:032x}, but the metadata is that of {:032x}",
            volume.id
        )),
        Ok(None) => Some("there is no volume in the metadata".into()),
        Err(error) => Some(error.to_string()),
    })
}
