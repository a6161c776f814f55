use super::*;
use crate::ops::{How, Path, Word};

fn path(text: &str) -> Path {
    Path::try_from(text.to_owned()).expect("a path")
}

/// A tree that calls are made in one after the other.
#[derive(Default)]
struct Tree {
    state: State,
    calls: Id,
}

impl Tree {
    fn find(&self, names: &[u8]) -> Result<Id, Errno> {
        let step = |dir, name: &u8| self.state.lookup(dir, *name)?.ok_or(libc::ENOENT);
        names.iter().try_fold(ROOT, step)
    }

    fn call(&mut self, op: Op) -> Outcome {
        self.calls += 1;
        let mut ends = [ROOT; 2];
        for (end, way) in ends.iter_mut().zip(paths(&op)) {
            let Some((path, target)) = way else { continue };
            let names = match target {
                PathTarget::Inode => path.names(),
                PathTarget::Parent => path.split_last().map(|(_, parents)| parents).unwrap_or_default(),
            };
            match self.find(names) {
                Ok(id) => *end = id,
                Err(errno) => return Outcome::failed(errno),
            }
        }
        let who = Actor { worker: 0, makes: self.calls, ino: Some(self.calls.into()) };
        let (outcome, after) = effect(&self.state, who, &op, ends[0], ends[1]);
        if let Some(after) = after {
            self.state = after;
        }
        outcome
    }

    fn mkdir(&mut self, at: &str) -> Outcome {
        self.call(Op::Mkdir { path: path(at) })
    }

    fn create(&mut self, at: &str) -> Outcome {
        self.call(Op::Open { path: path(at), create: true, exclusive: true, append: false, slot: 0 })
    }

    fn rename(&mut self, from: &str, to: &str, how: How) -> Outcome {
        self.call(Op::Rename { from: path(from), to: path(to), how })
    }

    fn links(&mut self, at: &str) -> u64 {
        match self.call(Op::Lstat { path: path(at) }) {
            Outcome::Attributes { links, .. } => links,
            other => panic!("{at}: {other}"),
        }
    }
}

/// p with p/q and p/a, an empty q, a file b, a symlink c.
fn grown() -> Tree {
    let mut tree = Tree::default();
    assert_eq!(tree.mkdir("p"), Outcome::Done);
    assert_eq!(tree.mkdir("p/q"), Outcome::Done);
    assert_eq!(tree.mkdir("q"), Outcome::Done);
    assert!(matches!(tree.create("p/a"), Outcome::Opened { .. }));
    assert!(matches!(tree.create("b"), Outcome::Opened { .. }));
    assert_eq!(tree.call(Op::Symlink { path: path("c"), target: Word(9) }), Outcome::Done);
    tree
}

#[test]
fn renames_fail_as_they_do_on_linux() {
    for (from, to, how, errno) in [
        ("a", "d", How::Replace, libc::ENOENT),
        ("b/a", "d", How::Replace, libc::ENOTDIR),
        ("c/a", "d", How::Replace, libc::ENOENT),
        ("p", "b", How::Replace, libc::ENOTDIR),
        ("b", "p", How::Replace, libc::EISDIR),
        ("q", "p", How::Replace, libc::ENOTEMPTY),
        ("p", "p/d", How::Replace, libc::EINVAL),
        ("p", "p/q/d", How::Replace, libc::EINVAL),
        ("p/q", "p", How::Replace, libc::ENOTEMPTY),
        ("p/q", "p", How::Exchange, libc::EINVAL),
        ("p", "p/q", How::Exchange, libc::EINVAL),
        ("b", "d", How::Exchange, libc::ENOENT),
        ("b", "c", How::NoReplace, libc::EEXIST),
        ("b", "b", How::NoReplace, libc::EEXIST),
    ] {
        assert_eq!(grown().rename(from, to, how), Outcome::failed(errno), "{from} to {to} {how:?}");
    }
}

#[test]
fn a_file_may_not_replace_the_directory_that_it_is_in_because_that_is_one_or_not_empty() {
    let failed = Outcome::failed;
    assert!(same(&failed(libc::ENOTEMPTY), &failed(libc::EISDIR)));
    assert!(!same(&failed(libc::EISDIR), &failed(libc::ENOTEMPTY)));
    assert!(!same(&Outcome::Done, &failed(libc::EISDIR)));
}

#[test]
fn renames_move_what_they_name_and_count_links() {
    let mut tree = grown();
    assert_eq!((tree.links("."), tree.links("p"), tree.links("q")), (4, 3, 2));
    assert_eq!(tree.rename("p/q", "q", How::Replace), Outcome::Done);
    assert_eq!((tree.links("."), tree.links("p"), tree.links("q")), (4, 2, 2));
    assert_eq!(tree.rename("p", "b", How::Exchange), Outcome::Done);
    assert_eq!(tree.links("b"), 2);
    assert_eq!(tree.links("b/a"), 1);
    assert_eq!(tree.rename("b", "b", How::Replace), Outcome::Done);
    assert_eq!(tree.rename("c", "p", How::Replace), Outcome::Done);
    assert_eq!(tree.call(Op::Readlink { path: path("p") }), Outcome::Target { word: Word(9) });
}

#[test]
fn a_rename_between_two_names_of_a_file_does_nothing() {
    let mut tree = grown();
    assert_eq!(tree.call(Op::Link { from: path("b"), to: path("d") }), Outcome::Done);
    assert_eq!(tree.rename("b", "d", How::Replace), Outcome::Done);
    assert_eq!((tree.links("b"), tree.links("d")), (2, 2));
}

#[test]
fn other_calls_fail_as_they_do_on_linux() {
    let open =
        |at: &str, create| Op::Open { path: path(at), create, exclusive: false, append: false, slot: 0 };
    for (op, errno) in [
        (open("d", false), libc::ENOENT),
        (open("p", true), libc::EISDIR),
        (open("c", true), libc::ELOOP),
        (Op::Unlink { path: path("p") }, libc::EISDIR),
        (Op::Rmdir { path: path("b") }, libc::ENOTDIR),
        (Op::Rmdir { path: path("p") }, libc::ENOTEMPTY),
        (Op::Mkdir { path: path("c") }, libc::EEXIST),
        (Op::Link { from: path("p"), to: path("d") }, libc::EPERM),
        (Op::Link { from: path("p"), to: path("b") }, libc::EEXIST),
        (Op::Readlink { path: path("b") }, libc::EINVAL),
        (Op::List { path: path("b") }, libc::ENOTDIR),
        (Op::List { path: path("c") }, libc::ENOENT),
        (Op::Truncate { path: path("p"), words: 0 }, libc::EISDIR),
        (Op::Truncate { path: path("c"), words: 0 }, libc::ENOENT),
    ] {
        assert_eq!(grown().call(op.clone()), Outcome::failed(errno), "{op}");
    }
}

#[test]
fn contents_grow_with_holes_and_appends_go_to_the_end() {
    let mut tree = grown();
    let read = |tree: &mut Tree| {
        let id = tree.find(b"b").expect("b is there");
        match effect(&tree.state, Actor { worker: 0, makes: 0, ino: None }, &Op::Read { slot: 0 }, id, ROOT).0
        {
            Outcome::Content { words } => words.iter().map(|word| word.0).collect::<Vec<_>>(),
            other => panic!("{other}"),
        }
    };
    let open = |append| Op::Open { path: path("b"), create: false, exclusive: false, append, slot: 0 };
    tree.call(open(false));
    assert_eq!(tree.call(Op::Write { slot: 0, at: 1, word: Word(4) }), Outcome::Done);
    assert_eq!(read(&mut tree), [0, 4]);
    tree.call(open(true));
    assert_eq!(tree.call(Op::Write { slot: 0, at: 0, word: Word(5) }), Outcome::Done);
    assert_eq!(read(&mut tree), [0, 4, 5]);
}

#[test]
fn equal_states_have_equal_hashes_whatever_led_to_them() {
    use std::hash::{BuildHasher, RandomState};
    let hasher = RandomState::new();
    let mut one = grown();
    let before = (one.state.clone(), hasher.hash_one(&one.state));
    one.rename("b", "d", How::Replace);
    assert_ne!(hasher.hash_one(&one.state), before.1);
    one.rename("d", "b", How::Replace);
    assert!(one.state == before.0);
    assert_eq!(hasher.hash_one(&one.state), before.1);
    one.create("d");
    one.call(Op::Unlink { path: path("d") });
    one.call(Op::Open { path: path("b"), create: false, exclusive: false, append: false, slot: 0 });
    one.state.forget(&Default::default());
    assert_eq!(hasher.hash_one(&one.state), before.1);
}
