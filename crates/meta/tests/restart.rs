//! Stops, clean and otherwise, at any moment; the log is truncated meanwhile.

mod support;

use shoal_meta::{Options, Server, offline};
use shoal_namespace::query;
use shoal_types::{Extent, FileKind, InodeId};
use shoal_wire::MetaService;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use support::*;

fn small_log() -> Options {
    Options { log_bytes: Some(1 << 20), ..options() }
}

fn log_len(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir.join("log")).expect("read_dir");
    files.map(|file| file.expect("entry").metadata().expect("metadata").len()).sum()
}

#[test]
fn log_is_truncated_while_it_grows_and_no_commit_is_lost() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let mut server = Server::open(dir.path(), bricks.clone(), small_log()).expect("open");
    let mut files = Vec::new();
    for round in 0..4u8 {
        let mut session = Session::open(&server);
        for number in 0..100u8 {
            let file = session.touch(&format!("{round}-{number}"));
            let content = vec![round ^ number; 50_000];
            session.commit(&[inline_op(file, 0, &content)]);
            files.push((file, content));
        }
        eventually("the log is cut", || stat(&server, "raft_log_bytes") < 4 << 20);
        if round % 2 == 0 {
            server.shutdown();
        }
        drop((session, server));
        assert!(log_len(dir.path()) < 12 << 20, "{} bytes of log on disk", log_len(dir.path()));
        server = Server::open(dir.path(), bricks.clone(), small_log()).expect("open");
    }
    assert!(stat(&server, "raft_applied_index") > 800);
    let session = Session::open(&server);
    for (file, content) in files {
        assert_eq!(read_file(&session, &bricks, file), content);
    }
}

#[test]
fn offline_state_equals_the_state_that_a_server_serves() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    let server = open(dir.path(), &bricks);
    let mut session = Session::open(&server);
    let (sub, op) = session.create(InodeId::ROOT, "dir", FileKind::Directory);
    let (file, op2) = session.create(sub, "file", FileKind::Regular);
    session.commit(&[op, op2, inline_op(file, 0, b"hello")]);
    let record = server.inode(session.id, file).expect("inode");
    drop((session, server));
    for _ in 0..2 {
        let state = offline::open(dir.path()).expect("offline");
        assert_eq!(query::inode(&state, file).expect("inode"), record);
        assert_eq!(query::volume(&state).expect("volume").expect("there").id, VOLUME);
    }
    let server = open(dir.path(), &bricks);
    let session = Session::open(&server);
    assert_eq!(server.inode(session.id, file).expect("inode"), record);
}

#[test]
fn replaying_the_log_leads_to_the_same_bytes() {
    let dir = tempfile::tempdir().expect("tempdir");
    let bricks: Arc<MemBricks> = Arc::default();
    for round in 0..3 {
        let server = open(dir.path(), &bricks);
        let mut session = Session::open(&server);
        for number in 0..20 {
            let file = session.touch(&format!("{round}-{number}"));
            session.commit(&[inline_op(file, 0, &[number; 3000])]);
        }
        let (index, digest) = server.digest().expect("digest");
        drop((session, server));
        let state = offline::open(dir.path()).expect("offline");
        assert_eq!(shoal_meta::digest(&state).expect("digest"), digest, "at entry {index}");
    }
}

/// The work of the child process until it is killed: it creates numbered files, one per batch, and reports
/// each acknowledged one to its parent.
fn write_until_killed(dir: &Path) {
    let bricks: Arc<MemBricks> = Arc::default();
    let server = Server::open(dir, bricks, small_log()).expect("open");
    let mut session = Session::open(&server);
    let found = server.inode(session.id, InodeId::ROOT).expect("root").inode.entries;
    let mut waiting = std::collections::VecDeque::new();
    for number in found.. {
        let (file, op) = session.create(InodeId::ROOT, &format!("{number:08}"), FileKind::Regular);
        let content = number.to_be_bytes().repeat(200 + number as usize % 2000);
        waiting.push_back((number, session.send(&[op, inline_op(file, 0, &content)])));
        // Several are in flight.
        if waiting.len() > 8
            && let Some((number, outcome)) = waiting.pop_front()
        {
            outcome.recv().expect("answer").expect("success");
            println!("{number}");
        }
    }
}

#[test]
fn child_that_writes_until_it_is_killed() {
    // Does something only if the test below starts it.
    if let Ok(dir) = std::env::var("SHOAL_TEST_CRASH_DIR") {
        write_until_killed(Path::new(&dir));
    }
}

#[test]
fn acknowledged_commits_survive_kill_9_and_the_rest_is_a_prefix() {
    let dir = tempfile::tempdir().expect("tempdir");
    let program = std::env::current_exe().expect("this program");
    let mut acknowledged = None;
    for round in 0..8u64 {
        let mut child = Command::new(&program)
            .args(["child_that_writes_until_it_is_killed", "--exact", "--nocapture", "--test-threads=1"])
            .env("SHOAL_TEST_CRASH_DIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("child");
        let out = child.stdout.take().expect("stdout");
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150 + (round * 97) % 350));
            child.kill().expect("kill");
            child.wait().expect("wait");
        });
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            // The test runner writes lines of its own, and the child's first output is on one of them.
            if let Some(number) = line.rsplit(' ').next().and_then(|word| word.parse::<u64>().ok()) {
                acknowledged = acknowledged.max(Some(number));
            }
        }
        killer.join().expect("killer");
        verify(dir.path(), acknowledged);
    }
    assert!(acknowledged.is_some_and(|number| number > 50), "it did write: {acknowledged:?}");
}

fn verify(dir: &Path, acknowledged: Option<u64>) {
    let state = offline::open(dir).expect("offline");
    assert_consistent(&state);
    let entries = query::inode(&state, InodeId::ROOT).expect("root").inode.entries;
    assert!(Some(entries) > acknowledged, "{entries} files, {acknowledged:?} acknowledged");
    for number in 0..entries {
        let found =
            query::lookup(&state, InodeId::ROOT, &name(&format!("{number:08}"))).expect("lookup").found;
        let (_, file) = found.unwrap_or_else(|| panic!("file {number} of {entries} is missing"));
        let expected = number.to_be_bytes().repeat(200 + number as usize % 2000);
        let found: Vec<u8> =
            file.extents.into_iter().flatten().flat_map(|(_, extent)| inline(extent)).collect();
        assert!(found == expected, "content of file {number}");
    }
}

fn inline(extent: Extent) -> Vec<u8> {
    match extent {
        Extent::Inline(bytes) => bytes.to_vec(),
        other => panic!("{other:?} in a small file"),
    }
}
