//! SQLite with its own locking, its rollback journal and its write-ahead log, from several processes at once.

use crate::harness::{Volume, long, run, sh};

/// Processes that write at the same time.
const WRITERS: u64 = 4;

fn write_from_several_processes(topic: &str, journal_mode: &str) {
    let mut volume = Volume::start(topic);
    let transactions: u64 = if long() { 500 } else { 60 };
    let mode = sh(
        volume.path(),
        &format!(
            "sqlite3 base.db 'PRAGMA journal_mode={journal_mode}; CREATE TABLE t(writer INT, number INT, filler BLOB, UNIQUE(writer, number));'"
        ),
    );
    assert_eq!(mode.ok().trim(), journal_mode);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let script = format!(
                "for i in $(seq {transactions}); do echo \"INSERT INTO t VALUES({writer}, $i, randomblob(3000));\"; done |
                 sqlite3 -cmd '.timeout 60000' -bail base.db"
            );
            sh(volume.path(), &script).start()
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let script = "for i in $(seq 20); do sqlite3 -cmd '.timeout 60000' base.db 'SELECT count(*), sum(length(filler)) FROM t'; done";
            sh(volume.path(), script).start()
        })
        .collect();
    for running in writers.into_iter().chain(readers) {
        running.wait().ok();
    }
    let check = |volume: &Volume| {
        let query = "PRAGMA integrity_check; SELECT count(*) FROM t; SELECT count(DISTINCT writer) FROM t;";
        let answer = run("sqlite3").arg(volume.path().join("base.db")).arg(query).ok();
        assert_eq!(answer, format!("ok\n{}\n{WRITERS}\n", WRITERS * transactions));
    };
    check(&volume);
    volume.remount();
    check(&volume);
    run("sqlite3")
        .arg(volume.path().join("base.db"))
        .arg("DELETE FROM t WHERE number % 2; VACUUM; PRAGMA integrity_check;")
        .ok();
    volume.stop();
    volume.fsck();
}

#[test]
fn sqlite_with_a_rollback_journal_serves_several_writers() {
    write_from_several_processes("sqlite-delete", "delete");
}

#[test]
fn sqlite_with_a_write_ahead_log_serves_several_writers() {
    write_from_several_processes("sqlite-wal", "wal");
}
