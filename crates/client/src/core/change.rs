//! Which rights an operation needs, and how rights change when it has been carried out.

use super::{Core, Need, Outcome};
use shoal_namespace::{Fault, Op};
use shoal_types::{Errno, FileKind, InodeId, Name};
use shoal_wire::{MOVES, Right, Want, WantName};

/// A request for the right to an inode.
fn node(ino: InodeId, hold: bool) -> Want {
    Want { ino, names: Vec::new(), hold }
}

/// A request for the right to a name. `takes`: the operation may remove the name.
fn named(dir: InodeId, name: &Name, takes: bool) -> Want {
    Want { ino: dir, names: vec![WantName { name: name.clone(), takes }], hold: false }
}

/// A request for the rights to several names, some perhaps in one directory. A rename that moves a directory
/// to another parent also needs `MOVES`.
fn all_named(names: &[(InodeId, &Name)], takes: bool, moves_directory: bool) -> Vec<Want> {
    let mut wants: Vec<Want> = Vec::new();
    for (dir, name) in names {
        let want = named(*dir, name, takes);
        match wants.iter_mut().find(|known| known.ino == *dir) {
            Some(known) => known.names.extend(want.names),
            None => wants.push(want),
        }
    }
    if moves_directory && wants.len() > 1 {
        wants.push(node(MOVES, false));
    }
    wants
}

/// The rights that an operation needs. The inodes that its names lead to are not listed: their rights come
/// with the names.
fn wants(op: &Op, moves_directory: bool) -> Vec<Want> {
    match op {
        Op::Create { parent, name, .. } => vec![named(*parent, name, false)],
        Op::Link { ino, parent, name, .. } => vec![node(*ino, true), named(*parent, name, false)],
        Op::Unlink { parent, name, .. } | Op::Rmdir { parent, name, .. } => vec![named(*parent, name, true)],
        Op::Rename { from, from_name, to, to_name, .. } => {
            all_named(&[(*from, from_name), (*to, to_name)], true, moves_directory)
        }
        Op::SetAttr { ino, .. }
        | Op::Write { ino, .. }
        | Op::SetXattr { ino, .. }
        | Op::SetFlags { ino, .. }
        | Op::RemoveXattr { ino, .. } => vec![node(*ino, false)],
        // The source must not change before the servers have read it.
        Op::CloneRange { src, dst, .. } if src == dst => vec![node(*dst, false)],
        Op::CloneRange { src, dst, .. } => vec![node(*dst, false), node(*src, false)],
        // Nothing changes in the directory, and the inode is its own cover.
        Op::CreateUnnamed { .. } | Op::Forget { .. } | Op::Compact { .. } => Vec::new(),
    }
}

/// Covers before an operation, from [`Core::covers_before`].
pub(super) struct CoversBefore {
    /// Inodes that are their own cover before the operation, and stay so.
    apart: Vec<InodeId>,
    /// The cover of a file that gets another name. Other clients find the file under it until the link is
    /// committed, so giving back that cover also waits for the link.
    linked: Option<InodeId>,
}

impl Core {
    /// Fails with a need unless the client has the right to change an inode.
    pub(super) fn may_change(&mut self, ino: InodeId) -> Outcome<()> {
        self.require_rights(&[node(ino, false)], &[], false)
    }

    /// Fails with a need unless the client has the right to create a name in a directory.
    pub(super) fn may_name(&mut self, dir: InodeId, name: &Name) -> Outcome<()> {
        self.require_rights(&[named(dir, name, false)], &[], false)
    }

    /// Fails with a need unless the client has the rights to these names and to the inodes `subjects` that
    /// they lead to.
    pub(super) fn may_name_all(
        &mut self,
        names: &[(InodeId, &Name)],
        subjects: &[InodeId],
        takes: bool,
    ) -> Outcome<()> {
        let moves_directory = subjects.iter().any(|ino| self.cache.is_directory(*ino));
        self.require_rights(&all_named(names, takes, moves_directory), subjects, takes)
    }

    /// Fails with a need unless the client has the rights for an operation.
    pub(super) fn may_do(&mut self, op: &Op, subjects: &[InodeId]) -> Outcome<()> {
        let moves_directory = match op {
            Op::Rename { .. } => subjects.iter().any(|ino| self.cache.is_directory(*ino)),
            _ => false,
        };
        let creates = matches!(op, Op::Create { .. } | Op::CreateUnnamed { .. });
        let subjects = if creates { &[] } else { subjects };
        // The sessions that hold an inode must be on record before it can lose its last name. A change of the
        // inode alone does not need that.
        let hold = matches!(op, Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } | Op::Link { .. });
        self.require_rights(&wants(op, moves_directory), subjects, hold)
    }

    fn require_rights(&mut self, wants: &[Want], subjects: &[InodeId], hold: bool) -> Outcome<()> {
        let missing = std::mem::take(&mut self.rights.missing);
        let mut allowed = true;
        for want in wants {
            let cover = if want.ino == MOVES { Some(MOVES) } else { self.cache.cover(want.ino) };
            if !self.rights.allow(want, cover) {
                // Another client has removed the inode, and its record was invalidated before. If it was a
                // directory, names of it may still be cached.
                if missing.contains(&want.ino) && !self.cache.is_fresh(want.ino) {
                    return Err(Errno::ENOENT.into());
                }
                allowed = false;
            }
        }
        let also = allowed
            && subjects.iter().all(|ino| self.rights.allow(&node(*ino, hold), self.cache.cover(*ino)));
        if wants.is_empty() || also { Ok(()) } else { Err(Fault::Tree(Need::Rights(wants.to_vec()))) }
    }

    /// The covers that an operation may change. To be called before it is carried out.
    pub(super) fn covers_before(&mut self, op: &Op, subjects: &[InodeId]) -> CoversBefore {
        let linked = match op {
            Op::Link { ino, .. } => self.cache.cover(*ino),
            _ => None,
        };
        let apart = match op {
            Op::Link { .. } | Op::Rename { .. } => {
                subjects.iter().copied().filter(|ino| self.cache.cover(*ino) == Some(*ino)).collect()
            }
            _ => Vec::new(),
        };
        CoversBefore { apart, linked }
    }

    /// Updates the rights after an operation. `before` comes from [`covers_before`](Self::covers_before).
    pub(super) fn done(&mut self, op: &Op, subjects: &[InodeId], parents: &[InodeId], before: &CoversBefore) {
        let (batch, CoversBefore { apart, linked }) = (self.cache.stamp(), before);
        for dir in parents {
            self.rights.used(*dir, *dir, batch);
        }
        match op {
            Op::Create { ino, parent, new, .. } => {
                self.inode_created(*ino, *parent, new.kind == FileKind::Directory)
            }
            Op::CreateUnnamed { ino, .. } => {
                self.rights.grant(Right::Cover(*ino), *ino, [], true);
                self.journal.born(*ino, *ino);
            }
            Op::Rename { from, to, flags, .. } if from != to => {
                for ino in subjects {
                    self.rights.used(*ino, *from, batch);
                    self.rights.used(*ino, *to, batch);
                }
                // Moved inodes have another cover from now on. A replaced one has not.
                let moved = subjects.iter().take(if flags.exchange { 2 } else { 1 });
                moved.for_each(|ino| self.update_cover(*ino, apart));
            }
            Op::Link { ino, .. } => {
                if let Some(cover) = linked {
                    self.rights.used(*ino, *cover, batch);
                }
                self.update_cover(*ino, apart);
            }
            _ => {}
        }
        for ino in subjects {
            match self.cache.cover(*ino) {
                Some(cover) => self.rights.used(*ino, cover, batch),
                None => self.inode_deleted(*ino),
            }
            if self.cache.is_unlinked(*ino) {
                self.rights.held.insert(*ino);
            }
        }
    }

    /// An inode is deleted, as soon as that is committed.
    pub(super) fn inode_deleted(&mut self, ino: InodeId) {
        if !self.rights.is_held(ino) {
            return;
        }
        // Unlinked open files are still counted under the cover, so it is given up after them.
        if self.refs.under(ino).next().is_some() {
            self.rights.dead_covers.insert(ino);
            return;
        }
        match self.journal.gone(ino) {
            true => self.rights.gone(ino, self.cache.stamp()),
            // It was never sent to the servers.
            false => self.rights.forget(ino),
        }
    }

    /// An inode that the kernel may refer to has this cover, as the cache says.
    pub(super) fn refer_under(&mut self, ino: InodeId, cover: InodeId) {
        if let Some(before) = self.refs.count_under(ino, cover)
            && self.refs.under(before).next().is_none()
        {
            self.cover_unreferenced(before);
        }
    }

    /// The kernel has no more references to inodes under this cover.
    pub(super) fn cover_unreferenced(&mut self, cover: InodeId) {
        if self.rights.dead_covers.remove(&cover) {
            self.inode_deleted(cover);
        }
    }

    /// A new inode is known to this client alone.
    fn inode_created(&mut self, ino: InodeId, parent: InodeId, directory: bool) {
        let cover = if directory { ino } else { parent };
        if directory {
            self.rights.grant(Right::Cover(ino), ino, [], true);
        } else if !self.rights.has_cover(parent) {
            self.rights.grant(Right::Node(ino), parent, [], true);
        } else {
            return;
        }
        self.journal.born(ino, cover);
    }

    /// An inode has another cover from now on. The right to change it moves along.
    fn update_cover(&mut self, ino: InodeId, apart: &[InodeId]) {
        let Some(cover) = self.cache.cover(ino) else { return };
        self.refer_under(ino, cover);
        if self.cache.is_directory(ino) {
            return;
        }
        // The inode is cached, which has to be reclaimed from a new leader even if the right to change it has
        // been given back.
        self.rights.watch(cover);
        if !self.rights.count_under(ino, cover) && !self.rights.has_cover(cover) {
            let right = if cover == ino { Right::Cover(ino) } else { Right::Node(ino) };
            self.rights.grant(right, cover, [], true);
        }
        // Reported even if no right has changed here, because the servers may have the right under the former
        // cover. Not reported for an inode that was its own cover before: a leader to which its watchers have
        // not been reclaimed yet would take the right for exclusive.
        if !apart.contains(&ino) {
            self.journal.moved(ino, cover);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::UNKNOWN_THREAD;
    use super::super::fixture::{commit, core, make_directory, make_file, record};
    use super::*;
    use bytes::Bytes;
    use shoal_namespace::RenameFlags;
    use shoal_types::Timestamp;
    use shoal_wire::{AcquireReply, Item, Recall};

    fn reclaims(core: &mut Core, ino: InodeId) -> bool {
        core.reclaim(2, 100).iter().any(|said| said.covers.contains(&(ino, true)))
    }

    #[test]
    fn right_to_deleted_directory_is_reclaimed_until_its_removal_is_committed() {
        let (mut core, name) = (core(), Name::try_from(b"dir".as_slice()).expect("a name"));
        let ino = make_directory(&mut core, &name);
        let seq = core.seal();
        core.committed(seq);
        core.remove(UNKNOWN_THREAD, InodeId::ROOT, &name, true, Timestamp::default())
            .expect("nothing is needed");
        assert!(reclaims(&mut core, ino), "for a new leader it exists");
        let seq = core.seal();
        assert!(reclaims(&mut core, ino));
        core.committed(seq);
        assert!(!reclaims(&mut core, ino));
    }

    #[test]
    fn directory_created_and_deleted_in_one_batch_leaves_no_right() {
        let (mut core, name) = (core(), Name::try_from(b"dir".as_slice()).expect("a name"));
        let ino = make_directory(&mut core, &name);
        core.remove(UNKNOWN_THREAD, InodeId::ROOT, &name, true, Timestamp::default())
            .expect("nothing is needed");
        assert!(!reclaims(&mut core, ino));
    }

    #[test]
    fn failed_operation_marks_no_right_as_used() {
        let (mut core, name) = (core(), Name::try_from(b"dir".as_slice()).expect("a name"));
        let ino = make_directory(&mut core, &name);
        commit(&mut core);
        let other = Name::try_from(b"other".as_slice()).expect("a name");
        core.link(ino, InodeId::ROOT, &other, Timestamp::default()).expect_err("directories have one name");
        core.begin_recall(&Recall { id: 1, after: Vec::new(), items: vec![Item::Downgrade(ino)] });
        assert!(!reclaims(&mut core, ino), "it was given back");
    }

    #[test]
    fn rights_granted_to_a_directory_deleted_meanwhile_are_ignored() {
        let (mut core, name) = (core(), Name::try_from(b"dir".as_slice()).expect("a name"));
        let ino = make_directory(&mut core, &name);
        commit(&mut core);
        let asked = core.ticket();
        core.remove(UNKNOWN_THREAD, InodeId::ROOT, &name, true, Timestamp::default())
            .expect("nothing is needed");
        let answered = |core: &mut Core| {
            let reply = AcquireReply { rights: vec![Right::Cover(ino)], ..AcquireReply::default() };
            core.install_rights(asked, &[], reply);
            core.install_exclusive(asked, &[ino]);
            core.install_name(asked, ino, &name, None);
        };
        answered(&mut core);
        commit(&mut core);
        answered(&mut core);
        assert!(core.reclaim(2, 100).iter().all(|said| said.covers.iter().all(|(cover, _)| *cover != ino)));
    }

    #[test]
    fn file_with_two_names_is_reclaimed_after_its_right_was_given_back() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let [name, other] = ["a", "b"].map(|name| Name::try_from(name).expect("a name"));
        let take_back = |core: &mut Core, item| {
            core.begin_recall(&Recall { id: 1, after: Vec::new(), items: vec![item] });
            commit(core);
        };
        // Another client watches the root, too.
        take_back(&mut core, Item::Downgrade(root));
        core.rights.grant(Right::Node(root), root, [name.clone(), other.clone()], true);
        let ino = make_file(&mut core, root, &name);
        core.link(ino, root, &other, now).expect("nothing is needed");
        take_back(&mut core, Item::Downgrade(ino));
        assert!(core.reclaim(2, 100).iter().any(|said| said.covers.contains(&(ino, false))));
    }

    #[test]
    fn moved_directory_is_not_reported_as_born() {
        let mut core = core();
        let [name, other] = ["a", "b"].map(|name| Name::try_from(name).expect("a name"));
        let [_moved, into] = [&name, &other].map(|name| make_directory(&mut core, name));
        commit(&mut core);
        let (flags, now) = (RenameFlags { no_replace: false, exchange: false }, Timestamp::default());
        core.rights.grant(Right::Cover(MOVES), MOVES, [], true);
        core.rename(UNKNOWN_THREAD, (InodeId::ROOT, &name), (into, &name), flags, now)
            .expect("nothing is needed");
        core.seal();
        let sealed = core.journal.take_sealed().expect("a batch");
        assert_eq!((sealed.ops.len(), sealed.born), (1, Vec::new()));
    }

    #[test]
    fn file_that_gains_names_is_reported_as_its_own_cover_once() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let [name, second, third] = ["a", "b", "c"].map(|name| Name::try_from(name).expect("a name"));
        let ino = make_file(&mut core, root, &name);
        commit(&mut core);
        let mut link = |name: &Name| {
            core.link(ino, root, name, now).expect("nothing is needed");
            let seq = core.seal();
            let sealed = core.journal.take_sealed().expect("a batch");
            core.committed(seq);
            sealed.born
        };
        assert_eq!(link(&second), [(ino, ino)]);
        // Another client may watch the file as its own cover by now.
        assert_eq!(link(&third), []);
    }

    #[test]
    fn inode_deleted_in_the_batch_that_moves_or_replaces_it_is_reclaimed() {
        let (mut core, now) = (core(), Timestamp::default());
        let [one, other] = ["a", "b"].map(|name| Name::try_from(name).expect("a name"));
        let [from, to] = [&one, &other].map(|name| make_directory(&mut core, name));
        let (moved, replaced) = (make_file(&mut core, from, &one), make_file(&mut core, to, &one));
        commit(&mut core);
        // Another client watches both directories, too.
        for (dir, ino) in [(from, moved), (to, replaced)] {
            core.begin_recall(&Recall { id: 1, after: Vec::new(), items: vec![Item::Downgrade(dir)] });
            core.rights.grant(Right::Node(dir), dir, [one.clone()], true);
            core.rights.grant(Right::Node(ino), dir, [], true);
        }
        let flags = RenameFlags { no_replace: false, exchange: false };
        core.rename(UNKNOWN_THREAD, (from, &one), (to, &one), flags, now).expect("nothing is needed");
        core.forget(replaced, 1);
        core.remove(UNKNOWN_THREAD, to, &one, false, now).expect("nothing is needed");
        core.forget(moved, 1);
        let told = |core: &mut Core| -> Vec<InodeId> {
            let said = core.reclaim(2, 100);
            let nodes = said.iter().flat_map(|said| &said.nodes).map(|(ino, ..)| *ino);
            nodes.filter(|ino| [moved, replaced].contains(ino)).collect()
        };
        assert_eq!(told(&mut core), [moved, replaced]);
        let seq = core.seal();
        let sealed = core.journal.take_sealed().expect("a batch");
        assert_eq!((sealed.born, sealed.gone), (Vec::new(), vec![replaced, moved]));
        core.committed(seq);
        assert_eq!(told(&mut core), []);
    }

    #[test]
    fn released_inode_that_is_referred_to_again_is_held_once_its_release_is_committed() {
        let (mut core, root) = (core(), InodeId::ROOT);
        let ino = make_file(&mut core, root, &Name::try_from("a").expect("a name"));
        commit(&mut core);
        let items = vec![Item::Drop { ino, cover: root, names: Vec::new(), hold: true }];
        let recall = Recall { id: 1, after: Vec::new(), items };
        let finish = |core: &mut Core| core.finish_recall(&recall, &mut Vec::new()).map(|ack| ack.refers);
        core.begin_recall(&recall);
        assert_eq!(finish(&mut core), Some(vec![ino]));
        core.begin_recall(&recall);
        core.forget(ino, 1);
        core.refs.add(ino, root);
        assert_eq!(finish(&mut core), None, "the release in flight would undo the acknowledgement");
        core.begin_recall(&recall);
        commit(&mut core);
        assert_eq!(finish(&mut core), Some(vec![ino]));
    }

    #[test]
    fn right_to_deleted_directory_is_kept_for_an_open_file_that_another_client_moved_into_it() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let [name, file] = ["dir", "file"].map(|name| Name::try_from(name).expect("a name"));
        let dir = make_directory(&mut core, &name);
        let ino = make_file(&mut core, root, &file);
        commit(&mut core);
        let mut inode = core.cache.peek(ino).expect("just made").inode.clone();
        let items = vec![Item::Drop { ino, cover: root, names: Vec::new(), hold: true }];
        let recall = Recall { id: 1, after: Vec::new(), items };
        core.begin_recall(&recall);
        core.finish_recall(&recall, &mut Vec::new()).expect("nothing is in flight");
        // Meanwhile another client moves the file to dir/file, and unlinks it.
        (inode.parent, inode.nlink) = (dir, 0);
        let asked = core.ticket();
        core.install_inode(asked, record(ino, inode));
        core.remove(UNKNOWN_THREAD, root, &name, true, now).expect("nothing is needed");
        commit(&mut core);
        assert!(reclaims(&mut core, dir), "the file's record is cached by this right");
        core.forget(ino, 1);
        commit(&mut core);
        assert!(!reclaims(&mut core, dir));
    }

    #[test]
    fn right_to_deleted_directory_is_kept_while_a_file_of_it_is_open() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let [name, file] = ["dir", "file"].map(|name| Name::try_from(name).expect("a name"));
        let dir = make_directory(&mut core, &name);
        let ino = make_file(&mut core, dir, &file);
        commit(&mut core);
        let gone = |core: &mut Core| {
            let seq = core.seal();
            let sealed = core.journal.take_sealed().expect("a batch");
            core.committed(seq);
            sealed.gone
        };
        core.remove(UNKNOWN_THREAD, dir, &file, false, now).expect("nothing is needed");
        core.remove(UNKNOWN_THREAD, root, &name, true, now).expect("nothing is needed");
        assert_eq!(gone(&mut core), [], "requests for the file must find its holder");
        assert!(reclaims(&mut core, dir));
        core.forget(ino, 1);
        assert_eq!(gone(&mut core), [dir]);
        assert!(!reclaims(&mut core, dir));
    }

    #[test]
    fn recall_of_a_directory_waits_for_the_commit_of_a_link_to_a_file_in_it() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let [name, other, dir] = ["a", "b", "d"].map(|name| Name::try_from(name).expect("a name"));
        let ino = make_file(&mut core, root, &name);
        let into = make_directory(&mut core, &dir);
        commit(&mut core);
        core.link(ino, into, &other, now).expect("nothing is needed");
        let linked = core.cache.stamp();
        // Another client looks up the first name of the file.
        let recall = Recall { id: 1, after: Vec::new(), items: vec![Item::Downgrade(root)] };
        assert_eq!(core.begin_recall(&recall), linked);
    }

    #[test]
    fn writer_waits_for_its_permit_while_the_right_is_recalled() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let name = Name::try_from("a").expect("a name");
        let ino = make_file(&mut core, root, &name);
        commit(&mut core);
        assert!(core.acquire_write_permit(ino, true, now).is_ok() && core.writers.has_permit(ino));
        let recall = Recall { id: 1, after: Vec::new(), items: vec![Item::Downgrade(root)] };
        assert_eq!(core.close_to_writers(&recall, now), [ino]);
        assert!(core.write(ino, 0, &Bytes::from_static(b"x"), false, now).is_ok(), "it has a permit");
        assert_eq!(core.acquire_write_permit(ino, false, now), Err(Fault::Tree(Need::RecallDone(ino))));
        assert!(!core.writers.has_waiter(ino));
        assert_eq!(core.acquire_write_permit(ino, true, now), Err(Fault::Tree(Need::RecallDone(ino))));
        assert!(core.writers.has_waiter(ino) && core.is_closed_to_writers(ino));
        core.begin_recall(&recall);
        assert!(!core.is_closed_to_writers(ino) && !core.writers.has_permit(ino));
        let wants = vec![node(ino, false)];
        assert_eq!(core.acquire_write_permit(ino, true, now), Err(Fault::Tree(Need::Rights(wants))));
        assert!(!core.writers.has_permit(ino), "no permit was given");
    }

    #[test]
    fn inode_missing_in_a_reply_to_an_earlier_call_is_requested_again() {
        let (mut core, root, now) = (core(), InodeId::ROOT, Timestamp::default());
        let name = Name::try_from("a").expect("a name");
        let ino = make_file(&mut core, root, &name);
        // A call failed for another reason before it used this reply. Meanwhile the file was committed, and
        // recalled for another client.
        let ticket = core.ticket();
        let unknown = |core: &mut Core| {
            core.install_rights(ticket, &[node(ino, false)], AcquireReply::default());
        };
        unknown(&mut core);
        commit(&mut core);
        let dropped = Item::Drop { ino, cover: root, names: Vec::new(), hold: false };
        let recall = Recall { id: 1, after: Vec::new(), items: vec![Item::Downgrade(root), dropped] };
        core.begin_recall(&recall);
        core.finish_recall(&recall, &mut Vec::new()).expect("nothing is under way");
        core.begin();
        let write = |core: &mut Core| core.write(ino, 0, &Bytes::from_static(b"x"), false, now);
        assert!(matches!(write(&mut core), Err(Fault::Tree(_))), "it may be there by now");
        // The reply to an earlier request arrives late.
        unknown(&mut core);
        assert!(matches!(write(&mut core), Err(Fault::Tree(_))), "that reply is outdated");
    }
}
