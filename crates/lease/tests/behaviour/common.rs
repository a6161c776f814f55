//! Helpers for short tests: three sessions, two directories, some files in the first.

pub use shoal_lease::{Answer, Item, ReadItem, Recall, Refusal, RequestId, Right, Table, Target};
pub use shoal_types::{InodeId, Name, SessionId};

pub const A: SessionId = SessionId(1);
pub const B: SessionId = SessionId(2);
pub const C: SessionId = SessionId(3);
pub const DIR: InodeId = InodeId(20);
pub const OTHER: InodeId = InodeId(30);
pub const FILE: InodeId = InodeId(21);
pub const FILE2: InodeId = InodeId(22);

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes().to_vec()).expect("a name")
}

/// Three sessions without rights.
pub fn table() -> Table {
    let mut table = Table::new();
    [A, B, C].into_iter().for_each(|session| table.begin(session));
    table
}

/// A file in `DIR`.
pub fn file(ino: InodeId) -> Target {
    Target { ino, cover: DIR, names: Default::default(), hold: false }
}

/// Names of a directory.
pub fn names(dir: InodeId, names: &[&str]) -> Target {
    Target { ino: dir, cover: dir, names: names.iter().map(|text| name(text)).collect(), hold: false }
}

pub fn see(ino: InodeId) -> ReadItem {
    ReadItem::Node(ino, DIR)
}

pub fn see_name(text: &str) -> ReadItem {
    ReadItem::Name(DIR, name(text))
}

/// Reads something that no other session conflicts with.
#[track_caller]
pub fn look(table: &mut Table, session: SessionId, item: ReadItem) {
    let (_, answer) = table.read(session, 0, &[item]).expect("the session lives");
    assert_eq!(answer, Answer::Ready);
}

/// Reads something that another session conflicts with.
#[track_caller]
pub fn wait(table: &mut Table, session: SessionId, item: ReadItem) -> RequestId {
    let (id, answer) = table.read(session, 0, &[item]).expect("the session lives");
    assert_eq!(answer, Answer::Waits);
    id
}

/// Requests the right to change; answers whether all other sessions have invalidated.
#[track_caller]
pub fn want(table: &mut Table, session: SessionId, targets: &[Target]) -> (RequestId, Answer) {
    table.acquire(session, 0, targets.to_vec()).expect("the session lives")
}

/// Gets rights that no other session conflicts with.
#[track_caller]
pub fn take(table: &mut Table, session: SessionId, target: Target) -> Vec<Right> {
    let (id, answer) = want(table, session, &[target]);
    assert_eq!(answer, Answer::Ready);
    table.finish(id)
}

/// The only recall that a session has not acknowledged.
#[track_caller]
pub fn told(table: &mut Table, session: SessionId) -> Recall {
    let mut recalls = table.recalls_after(session, 0);
    assert_eq!(recalls.len(), 1, "{recalls:?}");
    recalls.remove(0)
}

/// The items of all recalls that a session has not acknowledged.
pub fn items(table: &mut Table, session: SessionId) -> Vec<Vec<Item>> {
    table.recalls_after(session, 0).into_iter().map(|recall| recall.items).collect()
}

/// Acknowledges all recalls of a session, once.
pub fn acknowledge(table: &mut Table, session: SessionId) {
    for recall in table.recalls_after(session, 0) {
        table.acknowledge(session, recall.id, &[]);
    }
}

/// `A` may change `FILE`, while `B` watches its directory.
pub fn held_file() -> Table {
    let mut table = table();
    look(&mut table, A, see_name("other"));
    look(&mut table, B, see_name("other"));
    let (id, _) = want(&mut table, A, &[file(FILE)]);
    acknowledge(&mut table, B);
    assert_eq!(table.ready(), [id]);
    assert_eq!(table.finish(id), [Right::Node(FILE)]);
    table
}

/// `A` may change all of `DIR`.
pub fn held_cover() -> Table {
    let mut table = table();
    assert_eq!(take(&mut table, A, file(FILE)), [Right::Cover(DIR)]);
    table
}
