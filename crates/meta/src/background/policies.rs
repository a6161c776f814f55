//! Finds the policies that decide for files, as far as the namespace is committed.
//!
//! A file with several names is below the directory in which it got its first one.

use crate::limits::POLICY_PARENTS_MAX;
use crate::shared::Shared;
use serde::{Deserialize, Serialize};
use shoal_namespace::kv::{KvRead, KvStore};
use shoal_namespace::{TreeError, query};
use shoal_types::{BlockScheme, InodeId, InodePolicies, Policies, Policy, Tier, nearest_policy};
use shoal_wire::MetaError;
use std::collections::HashMap;

/// What is known of an inode's policy of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PolicyState<T> {
    /// The inode exists.
    pub exists: bool,
    /// The inode whose policy decides for it, and the policy.
    pub nearest: Option<(InodeId, T)>,
    /// Inodes with a policy that no longer exist.
    pub removed: Vec<InodeId>,
}

impl Shared {
    /// The pin that decides for an inode.
    pub(crate) fn pin_of(&self, ino: InodeId) -> Result<PolicyState<Tier>, MetaError> {
        self.policy_of(ino, &self.bricks.policies().pins)
    }

    /// The scheme that a directory above an inode has, or the inode itself.
    pub(crate) fn scheme_of(&self, ino: InodeId) -> Result<PolicyState<BlockScheme>, MetaError> {
        self.policy_of(ino, &self.bricks.policies().schemes)
    }

    fn policy_of<T: Copy>(
        &self,
        ino: InodeId,
        policies: &InodePolicies<T>,
    ) -> Result<PolicyState<T>, MetaError> {
        let term = self.serving()?;
        let state = self.store.snapshot();
        let exists = |ino: InodeId| Ok(self.tree(query::record(&state, ino))?.is_some());
        let mut removed = Vec::new();
        for ino in policies.keys() {
            if !exists(*ino)? {
                removed.push(*ino);
            }
        }
        let nearest = self.tree(Finder::default().nearest(policies, &state, ino))?;
        let exists = exists(ino)?;
        self.still_leads(term)?;
        Ok(PolicyState { exists, nearest, removed })
    }
}

/// Finds the policies of files, and remembers the directories on the way.
#[derive(Default)]
pub(super) struct Finder {
    parents: HashMap<InodeId, Option<InodeId>>,
}

impl Finder {
    /// The policy of one kind that decides for an inode.
    pub(super) fn nearest<T: Copy>(
        &mut self,
        policies: &InodePolicies<T>,
        store: &(impl KvRead + ?Sized),
        ino: InodeId,
    ) -> Result<Option<(InodeId, T)>, TreeError> {
        nearest_policy(policies, ino, |at| self.parent(store, at))
    }

    /// The policies that decide for an inode.
    pub(super) fn policy(
        &mut self,
        policies: &Policies,
        store: &(impl KvRead + ?Sized),
        ino: InodeId,
    ) -> Result<Policy, TreeError> {
        policies.of(ino, |at| self.parent(store, at))
    }

    fn parent(&mut self, store: &(impl KvRead + ?Sized), ino: InodeId) -> Result<Option<InodeId>, TreeError> {
        if let Some(known) = self.parents.get(&ino) {
            return Ok(*known);
        }
        if self.parents.len() >= POLICY_PARENTS_MAX {
            self.parents.clear();
        }
        let parent = query::record(store, ino)?.map(|inode| inode.parent);
        self.parents.insert(ino, parent);
        Ok(parent)
    }
}
