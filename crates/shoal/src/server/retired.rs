//! Retired bricks of this node: their volume was deleted, or they were removed and no block names them. Their
//! files are deleted in the background.
//!
//! **Promises.** A brick is deleted only if the map has named it and does not any more (brick numbers are
//! never used again), and if the directory holds the brick that was made here. At most a fifth of a disk's
//! time goes into it. An interrupted deletion continues after the next start.

use super::calls::RetiredReport;
use super::context::ServerContext;
use crate::limits::{RETIRE_REST_FACTOR, RETIRE_REST_MAX, TIDY_EVERY};
use parking_lot::Mutex;
use shoal_brick::{BrickError, Retirement};
use shoal_types::BrickId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

struct Progress {
    path: PathBuf,
    deleted_blocks: u64,
    trouble: Option<String>,
}

/// The progress of deletions.
#[derive(Default)]
pub struct Retiring(Mutex<BTreeMap<BrickId, Progress>>);

impl Retiring {
    /// All deletions in progress or waiting.
    pub fn reports(&self) -> Vec<RetiredReport> {
        let report = |one: &Progress| RetiredReport {
            path: one.path.clone(),
            deleted_blocks: one.deleted_blocks,
            trouble: one.trouble.clone(),
        };
        self.0.lock().values().map(report).collect()
    }

    fn begin(&self, id: BrickId, path: &Path) {
        let begin = || Progress { path: path.to_owned(), deleted_blocks: 0, trouble: None };
        self.0.lock().entry(id).or_insert_with(begin);
    }

    fn note(&self, id: BrickId, change: impl FnOnce(&mut Progress)) {
        if let Some(one) = self.0.lock().get_mut(&id) {
            change(one);
        }
    }

    fn end(&self, id: BrickId) {
        self.0.lock().remove(&id);
    }
}

impl ServerContext {
    /// Deletes retired bricks as long as this node serves.
    pub(super) fn retire(self: &Arc<ServerContext>) -> std::io::Result<JoinHandle<()>> {
        let context = self.clone();
        std::thread::Builder::new().name("shoal-retire".into()).spawn(move || {
            let mut seen = 0;
            while context.may_retire() {
                for (id, identity, path) in context.dir.retired_bricks(&context.view.map()) {
                    context.retire_one(id, identity, &path);
                }
                seen = context.view.wait(seen, TIDY_EVERY);
            }
        })
    }

    fn may_retire(&self) -> bool {
        !self.stop.load(Ordering::Acquire) && self.view.fence().is_none()
    }

    fn retire_one(&self, id: BrickId, identity: u128, path: &Path) {
        self.retiring.begin(id, path);
        let mut before = 0;
        let outcome = shoal_brick::retire(path, identity, &mut |blocks, took| {
            self.retiring.note(id, |one| one.deleted_blocks += blocks - before);
            before = blocks;
            std::thread::sleep((took * RETIRE_REST_FACTOR).min(RETIRE_REST_MAX));
            self.may_retire()
        });
        let shown = path.display();
        match outcome {
            Ok(Retirement::Done) => tracing::info!(brick = %id, path = %shown, "a retired brick was deleted"),
            Ok(Retirement::Stopped) => return,
            Ok(Retirement::AnotherBrick) | Err(BrickError::NotABrick(_)) => {
                tracing::info!(brick = %id, path = %shown, "the directory of a retired brick does not exist any more");
            }
            Err(error) => {
                let why = error.to_string();
                return self.retiring.note(id, |one| {
                    if one.trouble.as_ref() != Some(&why) {
                        tracing::warn!(brick = %id, why, "deleting a retired brick failed");
                        one.trouble = Some(why);
                    }
                });
            }
        }
        match self.dir.deleted_brick(id) {
            Ok(()) => self.retiring.end(id),
            Err(error) => tracing::warn!(brick = %id, "recording a deleted brick failed: {error:#}"),
        }
    }
}
