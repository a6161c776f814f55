//! Fails calls with `ESTALE` that the kernel bases on a dentry that another client has changed since.
//!
//! Only where acting on the outdated dentry would do harm. The kernel then looks the names up again
//! (`retry_estale`) and retries the call: see [`Retries`](super::Retries).

use super::cache::{Body, Node};
use super::retry_reservations::{Retry, Then};
use super::{Core, Need, Outcome};
use crate::limits::OUTDATED_DENTRIES_MAX;
use crate::values::{Caller, Entry};
use bytes::Bytes;
use shoal_namespace::{Dentry, Fault, Op};
use shoal_runtime::planted::mistake;
use shoal_types::{Errno, FileKind, InodeId, Name, Timestamp};
use shoal_wire::MOVES;

impl Core {
    /// Creates a file. If the name exists after all, the call fails with `ESTALE`, so that the kernel looks
    /// the name up and opens what is there.
    pub(crate) fn create_or_find(
        &mut self,
        by: u32,
        caller: &Caller,
        parent: InodeId,
        name: &Name,
        mode: u32,
        now: Timestamp,
    ) -> Outcome<Entry> {
        self.alive()?;
        if self.resolve(parent, name)?.is_some() {
            let (names, then) = (vec![(parent, name.clone())], Then::Opens);
            self.retries.expect(by, Retry { names, then, keeps: vec![parent] });
            return Err(Errno::ESTALE.into());
        }
        let made = self.create(caller, parent, name, mode, 0, &Bytes::new(), now);
        if !matches!(made, Err(Fault::Tree(_))) {
            self.retries.retry_arrived(by, &[(parent, name)]);
        }
        made
    }

    /// Called by a lookup. If the thread `by` was refused with `ESTALE` for a call on this name, makes sure
    /// that its retry can be carried out at once. Returns the inodes whose recall is delayed until the retry
    /// has arrived, or `None` if no retry is expected.
    pub(super) fn prepare_retry(
        &mut self,
        by: u32,
        dir: InodeId,
        name: &Name,
    ) -> Outcome<Option<Vec<InodeId>>> {
        let Some(retry) = self.retries.pending_retry(by, dir, name).cloned() else { return Ok(None) };
        let subjects = self.subjects(&retry);
        if retry.then != Then::Opens && self.retries.yields_to_waiters(by, dir, name, &subjects) {
            return Err(Fault::Tree(Need::LocalWaiters(subjects)));
        }
        match self.acquire_for_retry(&retry, &subjects) {
            Ok(keeps) => Ok(Some(keeps)),
            Err(Fault::Tree(need)) => Err(Fault::Tree(need)),
            // A directory has been removed: the retry itself will fail with that error.
            Err(Fault::Errno(_)) => Ok(None),
        }
    }

    /// The inodes that the names lead to, as far as they are cached. Missing ones arrive with the rights.
    /// They are not looked up here, because this lookup must not fail when the other directory of a rename
    /// was removed.
    fn subjects(&mut self, Retry { names, .. }: &Retry) -> Vec<InodeId> {
        let mut known = |(dir, name): &(InodeId, Name)| Some(self.cached_name(*dir, name)??.ino);
        names.iter().filter_map(&mut known).collect()
    }

    fn acquire_for_retry(
        &mut self,
        Retry { names, then, .. }: &Retry,
        subjects: &[InodeId],
    ) -> Outcome<Vec<InodeId>> {
        let named: Vec<(InodeId, &Name)> = names.iter().map(|(dir, name)| (*dir, name)).collect();
        let keeps = keeps(&named, subjects);
        match then {
            // The name exists: opening it needs no right.
            Then::Opens if !subjects.is_empty() => {}
            Then::Opens => self.may_name_all(&named, &[], false)?,
            Then::Removes | Then::Renames(_) => self.may_name_all(&named, subjects, true)?,
        }
        Ok(keeps)
    }

    /// The cached dentry of a name: outer `None` if the cache does not know, inner `None` for a negative
    /// dentry.
    fn cached_name(&mut self, dir: InodeId, name: &Name) -> Option<Option<Dentry>> {
        match self.cache.node(dir)? {
            Node { body: Body::Directory(names), .. } => names.get(name),
            _ => None,
        }
    }

    /// Another client is about to change a name: from now on the kernel's dentry of it is outdated.
    pub(super) fn forget_name(&mut self, dir: InodeId, name: &Name) {
        if self.outdated_dentries.len() >= OUTDATED_DENTRIES_MAX {
            self.outdated_dentries.clear();
        }
        let known = self.cached_name(dir, name);
        // An earlier entry has the dentry of the kernel's last lookup.
        self.outdated_dentries.entry((dir, name.clone())).or_insert(known);
    }

    /// The reply to the kernel says what the name leads to: its dentry is current.
    pub(super) fn is_known(&mut self, dir: InodeId, name: &Name) {
        self.refs.name_in(dir);
        if !self.outdated_dentries.is_empty() {
            self.outdated_dentries.remove(&(dir, name.clone()));
        }
    }

    /// A call succeeds, so the kernel's dentries of its names are current. Not so after a rename without
    /// directories: the dcache may have another file under the old name than the one that was moved.
    pub(super) fn has_named(&mut self, op: &Op, subjects: &[InodeId]) {
        match op {
            Op::Create { parent, name, .. }
            | Op::Unlink { parent, name, .. }
            | Op::Rmdir { parent, name, .. } => self.is_known(*parent, name),
            Op::Rename { from, from_name, to, to_name, .. }
                if subjects.iter().any(|ino| self.cache.is_directory(*ino)) =>
            {
                self.is_known(*from, from_name);
                self.is_known(*to, to_name);
                // The kernel has moved these directories in its dcache.
                for (ino, dir) in subjects.iter().zip([to, from]) {
                    self.refs.has_placed(*ino, *dir);
                }
            }
            _ => {}
        }
    }

    /// Whether an operation fails in any case. Then an outdated dentry does no harm.
    fn would_fail(&self, op: &Op, subjects: &[InodeId]) -> bool {
        let is_full = |ino: &InodeId| self.cache.peek(*ino).is_some_and(|node| node.inode.entries > 0);
        match op {
            Op::Rmdir { .. } => subjects.first().is_some_and(is_full),
            Op::Rename { flags, .. } if !flags.exchange => {
                subjects.get(1).is_some_and(|replaced| flags.no_replace || is_full(replaced))
            }
            _ => false,
        }
    }

    /// Fails with `ESTALE` if a name has another directory in the dcache than the one that would be removed,
    /// moved or replaced, or a directory where there is none any more. A name that leads again to the inode
    /// in the dcache is not outdated.
    pub(super) fn check_dentries(&mut self, by: u32, op: &Op, subjects: &[InodeId]) -> Outcome<()> {
        let before = |dir: &InodeId, name: &Name| self.outdated_dentries.get(&(*dir, name.clone())).copied();
        let outdated = |dir, name, now: Option<&InodeId>| {
            let same = |was: Option<Dentry>| was.map(|was| was.ino) == now.copied();
            before(dir, name).is_some_and(|known| !known.is_some_and(same))
        };
        let was_directory = |dir, name| {
            let one = |was: Option<Dentry>| was.is_some_and(|was| was.kind == FileKind::Directory);
            before(dir, name).is_some_and(|known| known.is_none_or(one))
        };
        let stale = match op {
            _ if self.outdated_dentries.is_empty() || self.would_fail(op, subjects) => false,
            Op::Rmdir { parent, name, .. } => outdated(parent, name, subjects.first()),
            // A directory has one name, so moving it to its own name changes nothing.
            Op::Rename { from, from_name, to, to_name, flags, .. } => {
                let replaces_directory =
                    || !flags.exchange && was_directory(from, from_name) && was_directory(to, to_name);
                let may_mistake =
                    subjects.iter().any(|ino| self.cache.is_directory(*ino)) || replaces_directory();
                (from, from_name) != (to, to_name)
                    && may_mistake
                    && (outdated(from, from_name, subjects.first()) || outdated(to, to_name, subjects.get(1)))
            }
            _ => false,
        };
        let (names, then) = match op {
            Op::Rmdir { parent, name, .. } => (vec![(*parent, name)], Then::Removes),
            Op::Rename { from, from_name, to, to_name, flags, .. } => {
                (vec![(*from, from_name), (*to, to_name)], Then::Renames(*flags))
            }
            _ => return Ok(()),
        };
        if !stale || mistake("act on an outdated dentry") {
            self.retries.retry_arrived(by, &names);
            return Ok(());
        }
        let keeps = keeps(&names, subjects);
        let names = names.into_iter().map(|(dir, name)| (dir, name.clone())).collect();
        self.retries.expect(by, Retry { names, then, keeps });
        Err(Errno::ESTALE.into())
    }
}

/// The inodes whose recall is delayed for a call on `names`, which lead to `subjects`.
fn keeps(names: &[(InodeId, &Name)], subjects: &[InodeId]) -> Vec<InodeId> {
    names.iter().map(|(dir, _)| *dir).chain(subjects.iter().copied()).chain([MOVES]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::UNKNOWN_THREAD;
    use super::super::fixture::{commit, core, make_directory, make_file, record};
    use super::*;
    use shoal_namespace::RenameFlags;
    use shoal_wire::{AcquireReply, Right};

    fn directory(ino: InodeId) -> Dentry {
        Dentry { ino, kind: FileKind::Directory }
    }

    #[test]
    fn exchange_of_a_directory_with_itself_ignores_outdated_dentries() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let name = Name::try_from("a").expect("a name");
        let ino = make_directory(&mut core, &name);
        commit(&mut core);
        for before in [None, Some(None), Some(Some(directory(ino)))] {
            core.outdated_dentries.insert((root, name.clone()), before);
            let flags = RenameFlags { no_replace: false, exchange: true };
            core.rename(UNKNOWN_THREAD, (root, &name), (root, &name), flags, now)
                .expect("nothing is looked up again");
        }
    }

    #[test]
    fn rename_of_a_file_fails_with_estale_if_the_dcache_may_replace_a_directory() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let [from, to] = ["a", "b"].map(|name| Name::try_from(name).expect("a name"));
        let ino = make_file(&mut core, root, &from);
        commit(&mut core);
        let [was, replaced] = [InodeId(77), InodeId(78)].map(directory);
        let file = |dentry: Dentry| Some(Some(Dentry { kind: FileKind::Regular, ..dentry }));
        let rename = |core: &mut Core, exchange| {
            let flags = RenameFlags { no_replace: false, exchange };
            core.rename(UNKNOWN_THREAD, (root, &from), (root, &to), flags, now)
        };
        let believes = |core: &mut Core, before, target| {
            core.outdated_dentries.insert((root, from.clone()), before);
            core.outdated_dentries.insert((root, to.clone()), target);
        };
        let refused = Err(Fault::Errno(Errno::ESTALE));
        for (before, target) in
            [(Some(Some(was)), Some(Some(replaced))), (None, Some(Some(replaced))), (Some(Some(was)), None)]
        {
            believes(&mut core, before, target);
            assert_eq!(rename(&mut core, false), refused);
        }
        assert_eq!(rename(&mut core, true), Err(Errno::ENOENT.into()), "an exchange removes nothing");
        // These renames replace nothing, or a file instead of another one: an outdated dentry does no harm.
        for (before, target) in [(Some(Some(was)), Some(None)), (file(was), file(replaced))] {
            believes(&mut core, before, target);
            rename(&mut core, false).expect("nothing is looked up again");
            assert_eq!(core.resolve(root, &to).expect("known").map(|found| found.ino), Some(ino));
            let flags = RenameFlags { no_replace: false, exchange: false };
            core.outdated_dentries.clear();
            core.rename(UNKNOWN_THREAD, (root, &to), (root, &from), flags, now).expect("and back");
        }
    }

    #[test]
    fn retry_does_not_wait_for_names_of_a_removed_directory() {
        let (mut core, root) = (core(), InodeId::ROOT);
        let [name, inner] = ["a", "b"].map(|name| Name::try_from(name).expect("a name"));
        let dir = make_directory(&mut core, &name);
        make_file(&mut core, dir, &inner);
        commit(&mut core);
        let then = Then::Renames(RenameFlags { no_replace: false, exchange: true });
        let names = vec![(root, name.clone()), (dir, inner)];
        core.retries.expect(1, Retry { names, then, keeps: vec![root, dir] });
        // Another client removes it. The names that were cached in it stay.
        let known = core.cache.peek(root).expect("known").inode.clone();
        core.rights.downgrade(dir);
        core.rights.release(dir);
        core.cache.drop_node(dir, &[]);
        assert!(core.cache.is_stale(dir));
        core.begin();
        let mut asked = 0;
        let answer = loop {
            let wants = match core.prepare_retry(1, root, &name) {
                Err(Fault::Tree(Need::Rights(wants))) => wants,
                answer => break answer,
            };
            asked += 1;
            assert!(asked < 3, "the servers do not have the directory any more");
            let (rights, records) = (vec![Right::Cover(root)], vec![record(root, known.clone())]);
            let reply = AcquireReply { rights, records, ..AcquireReply::default() };
            let ticket = core.ticket();
            core.install_rights(ticket, &wants, reply);
        };
        assert!(asked > 0 && answer == Ok(None), "{answer:?}");
    }

    #[test]
    fn call_that_fails_in_any_case_does_not_fail_with_estale() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let [full, other, file] = ["a", "b", "c"].map(|name| Name::try_from(name).expect("a name"));
        let (dir, _) = (make_directory(&mut core, &full), make_directory(&mut core, &other));
        make_file(&mut core, dir, &file);
        commit(&mut core);
        for name in [&full, &other] {
            core.outdated_dentries.insert((root, name.clone()), Some(Some(directory(InodeId(77)))));
        }
        let mut rename = |no_replace| {
            let flags = RenameFlags { no_replace, exchange: false };
            core.rename(UNKNOWN_THREAD, (root, &other), (root, &full), flags, now)
        };
        assert_eq!(rename(false), Err(Errno::ENOTEMPTY.into()));
        assert_eq!(rename(true), Err(Errno::EEXIST.into()));
        assert_eq!(core.remove(UNKNOWN_THREAD, root, &full, true, now), Err(Errno::ENOTEMPTY.into()));
        assert_eq!(core.remove(UNKNOWN_THREAD, root, &other, true, now), Err(Errno::ESTALE.into()));
    }
}
