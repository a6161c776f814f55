//! Directory entries, and the counts of links and names that they add up to.

use super::{Check, Finding, Phase};
use crate::Dentry;
use crate::keys::{self, Key};
use crate::kv::{KvRead, StoreError};
use shoal_types::{FileKind, InodeId, Name};

impl<S: KvRead + ?Sized> Check<'_, S> {
    pub(super) fn names(&mut self) -> Result<(), StoreError> {
        self.scan(Phase::Names, &keys::all_dentries(), |check, key, value| {
            check.summary.names += 1;
            if let Some(dentry) = check.decode::<Dentry>(&key, value)
                && let Key::Dentry(dir, name) = key
            {
                check.name(dir, name, dentry);
            }
        })?;
        self.counts();
        self.reachability();
        Ok(())
    }

    fn name(&mut self, dir: InodeId, name: Name, dentry: Dentry) {
        let is_dir = dentry.kind == FileKind::Directory;
        match self.node(dir) {
            Some(node) if node.kind == FileKind::Directory && node.nlink > 0 => {
                node.names_found += 1;
                node.subdirs_found += u32::from(is_dir);
            }
            _ => self.found(Finding::NoDirectory { dir, name: name.clone() }),
        }
        let ino = dentry.ino;
        let Some(node) = self.node(ino) else {
            return self.found(Finding::NoInode { dir, name, ino });
        };
        node.links_found = node.links_found.saturating_add(1);
        let parent = node.parent;
        let elsewhere = parent != dir && (is_dir || !node.multi_link);
        if node.kind != dentry.kind {
            return self.found(Finding::Kind { dir, name, ino });
        }
        if elsewhere {
            self.found(Finding::Parent { ino, parent, dir, name });
        }
    }

    fn counts(&mut self) {
        let mut findings = Vec::new();
        let mut has_root = false;
        for node in &self.nodes {
            let ino = node.ino;
            let mut links = node.links_found;
            if node.kind == FileKind::Directory {
                let is_root = ino == InodeId::ROOT;
                has_root |= is_root;
                if links > 1 || is_root && links > 0 {
                    findings.push(Finding::DirectoryLinks { dir: ino, found: links });
                }
                if node.entries != node.names_found {
                    findings.push(Finding::EntryCount {
                        dir: ino,
                        counted: node.entries,
                        found: node.names_found,
                    });
                }
                links = if is_root || links > 0 { 2 + node.subdirs_found } else { 0 };
            } else if links > 1 && !node.multi_link {
                findings.push(Finding::NotMultiLink { ino, found: links });
            }
            if node.nlink != links {
                findings.push(Finding::LinkCount { ino, counted: node.nlink, found: links });
            }
        }
        if !has_root {
            findings.push(Finding::NoRoot);
        }
        for finding in findings {
            self.found(finding);
        }
    }
}
