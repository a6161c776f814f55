//! Directories that no path from the root leads to: they hang on something that is gone, or form a ring.

use super::{Check, Finding};
use crate::kv::KvRead;
use shoal_types::{FileKind, InodeId};

/// What is known of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    /// On the path that is being walked: meeting it again closes a ring.
    Walked,
    Reached,
    Lost,
}

impl<S: KvRead + ?Sized> Check<'_, S> {
    /// Walks from every directory up towards the root, each step once.
    pub(super) fn reachability(&mut self) {
        let mut states = vec![State::Unknown; self.nodes.len()];
        let mut path = Vec::new();
        let mut lost = Vec::new();
        for start in 0..self.nodes.len() {
            let mut at = Some(start);
            let outcome = loop {
                let Some((index, node)) = at.and_then(|index| Some((index, self.nodes.get(index)?))) else {
                    break State::Lost;
                };
                match states.get(index) {
                    Some(State::Unknown) => {}
                    Some(State::Reached) => break State::Reached,
                    _ => break State::Lost,
                }
                // What was removed leads nowhere, and need not.
                if node.kind != FileKind::Directory || node.nlink == 0 {
                    break State::Lost;
                }
                path.push(index);
                if node.ino == InodeId::ROOT {
                    break State::Reached;
                }
                states[index] = State::Walked;
                at = self.nodes.binary_search_by_key(&node.parent, |node| node.ino).ok();
            };
            for index in path.drain(..) {
                states[index] = outcome;
                if outcome == State::Lost {
                    lost.push(self.nodes[index].ino);
                }
            }
        }
        for dir in lost {
            self.found(Finding::Unreachable { dir });
        }
    }
}
