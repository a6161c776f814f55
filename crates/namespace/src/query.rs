//! Reads of a volume's state. None of them changes anything, and each sees one state: pass a snapshot.
//!
//! **Bounds.** Whatever can be long comes in pages: listings by bytes, extents by bytes and count, lists of
//! work by count.

mod content;
mod file;
mod list;
mod reply;
mod work;

pub use content::{References, extents, references};
pub use file::{holders, inode, lookup, record, resolve};
pub use list::{list, name_of, subdirectories, walk};
pub use reply::{DirEntry, ExtentsReply, FileRecord, ListReply, LookupReply, Prefetch, WalkEntry, WalkReply};
pub use work::{
    block, blocks, compaction_candidates, degraded, garbage, holds, is_block_referenced,
    is_later_block_known, reap_queue, session, sessions,
};

use crate::keys::{self, Singleton};
use crate::kv::KvRead;
use crate::records::{Counters, VolumeRecord};
use crate::stored::{TreeError, read};

/// What the volume is; `None` if the store holds none yet. A layout that this program does not know is an
/// error.
pub fn volume(store: &(impl KvRead + ?Sized)) -> Result<Option<VolumeRecord>, TreeError> {
    let key = keys::singleton(Singleton::Layout);
    match read::<u32>(store, &key)? {
        None => Ok(None),
        Some(keys::LAYOUT_OLDEST..=keys::LAYOUT_VERSION) => read(store, &keys::singleton(Singleton::Volume)),
        Some(found) => {
            let known = keys::LAYOUT_VERSION;
            Err(TreeError::damaged(
                &key,
                format!("layout {found} is unknown to this program, which knows up to {known}"),
            ))
        }
    }
}

/// What is counted in the volume.
pub fn counters(store: &(impl KvRead + ?Sized)) -> Result<Counters, TreeError> {
    let key = keys::singleton(Singleton::Counters);
    read(store, &key)?.ok_or_else(|| TreeError::damaged(&key, "it is not there"))
}

/// How many copies there should be of each block whose group does not say otherwise; 0 in a volume without a
/// cluster.
pub fn replica(store: &(impl KvRead + ?Sized)) -> Result<u8, TreeError> {
    let volume = read::<VolumeRecord>(store, &keys::singleton(Singleton::Volume))?;
    Ok(volume.map_or(0, |volume| volume.options.replica))
}
