//! The side that wants the state.

use super::{Ask, Manifest, decode, encode, incoming, install, remove, said, sync_dir};
use crate::limits::STATE_PAGE_BYTES;
use crate::machine::Peers;
use shoal_types::ReplicaId;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Fetches the state of a group for a new replica, from any of the others. The replica can be opened afterwards. `stop` is asked
/// now and then.
pub fn fetch_state(dir: &Path, peers: &dyn Peers, stop: &dyn Fn() -> bool) -> Result<(), String> {
    let mut reasons = Vec::new();
    for from in peers.others() {
        match fetch(dir, peers, from, stop) {
            Ok(()) => return Ok(()),
            Err(why) => reasons.push(format!("{from}: {why}")),
        }
    }
    if reasons.is_empty() { Err("there is nobody to fetch it from".into()) } else { Err(reasons.join("; ")) }
}

/// Fetches the state from one replica.
pub(crate) fn fetch(
    dir: &Path,
    peers: &dyn Peers,
    from: ReplicaId,
    stop: &dyn Fn() -> bool,
) -> Result<(), String> {
    if install(dir).exists() {
        return Ok(());
    }
    let place = incoming(dir);
    remove(&place)?;
    let store = place.join("store");
    std::fs::create_dir_all(&store).map_err(said(&store))?;
    let manifest: Manifest = decode(&peers.ask(from, encode(&Ask::Begin))?)?;
    tracing::info!(%from, index = manifest.index, "fetching the state from another replica");
    for (number, (name, len)) in manifest.files.iter().enumerate() {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(format!("{name:?} is no name of a file"));
        }
        let path = store.join(name);
        let mut file = File::create(&path).map_err(said(&path))?;
        let mut offset = 0;
        while offset < *len {
            if stop() {
                return Err("stopping".into());
            }
            let want = (len - offset).min(STATE_PAGE_BYTES as u64) as u32;
            let ask = Ask::Page { checkpoint: manifest.checkpoint, file: number as u32, offset, len: want };
            let page = peers.ask(from, encode(&ask))?;
            if page.len() != want as usize {
                return Err(format!("{name}: {} bytes instead of {want}", page.len()));
            }
            file.write_all(&page).map_err(said(&path))?;
            offset += u64::from(want);
        }
        file.sync_all().map_err(said(&path))?;
    }
    sync_dir(&store)?;
    let path = place.join("manifest");
    let mut file = File::create(&path).map_err(said(&path))?;
    file.write_all(&encode(&manifest)).and_then(|()| file.sync_all()).map_err(said(&path))?;
    sync_dir(&place)?;
    // If this gets lost, the other side forgets it in time.
    let _ = peers.ask(from, encode(&Ask::End { checkpoint: manifest.checkpoint }));
    std::fs::rename(&place, install(dir)).map_err(said(&place))?;
    sync_dir(dir)?;
    tracing::info!(%from, index = manifest.index, "fetched the state");
    Ok(())
}
