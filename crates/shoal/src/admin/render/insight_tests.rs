use super::*;
use crate::admin::*;

#[track_caller]
fn same(text: &str, expected: &str) {
    assert_eq!(text.trim_end(), expected.trim_start_matches('\n'));
}

fn brick(name: &str) -> BrickStatus {
    BrickStatus {
        id: 1,
        brick: name.parse().unwrap(),
        online: true,
        trouble: None,
        draining: false,
        port: 7470,
        pid: Some(101),
        total_bytes: Some(100 << 30),
        free_bytes: Some(64 << 30),
    }
}

#[test]
fn detail_shows_the_disk_of_each_brick_and_what_is_on_it() {
    let status = brick("node1:/srv/web");
    let (file_system, device) = (Some("ext4".to_owned()), Some("/dev/sdb1".to_owned()));
    let (inodes, free_inodes, blocks) = (Some(1000), Some(900), Some(3));
    let detail = BrickDetail { status, file_system, device, inodes, free_inodes, blocks, block_bytes: None };
    same(
        &details(&[VolumeDetail { name: "web".into(), state: VolumeState::Started, bricks: vec![detail] }]),
        "
Status of volume: web (Started)
------------------------------------------------------------
Brick                : node1:/srv/web
TCP Port             : 7470
Online               : Y
Pid                  : 101
File System          : ext4
Device               : /dev/sdb1
Disk Space Free      : 64.00 GiB
Total Disk Space     : 100.00 GiB
Inode Count          : 1000
Free Inodes          : 900
Blocks               : 3
Size of Blocks       : -",
    );
}

#[test]
fn clients_are_shown_with_what_they_hold_and_why_they_are_not_known() {
    let session = SessionReport {
        session: "7".into(),
        host: "web1".into(),
        mountpoint: Some("/mnt/web".into()),
        pid: Some(4242),
        address: Some("10.9.0.8".into()),
        credentials: Some("client web1".into()),
        since: 951_782_400,
        silent_s: 1,
        watched: 12,
        exclusive: 3,
        locks: 2,
        locks_waiting: 0,
        granted_bytes: 0,
    };
    let trouble = |why: &str| Some(why.to_owned());
    let volumes = [
        SessionsReport { name: "web".into(), sessions: vec![session], trouble: None },
        SessionsReport {
            name: "old".into(),
            sessions: Vec::new(),
            trouble: trouble("volume old is not started"),
        },
    ];
    same(
        &sessions(&volumes),
        "
Client connections for volume web
Client  Address   Mounted on   Pid  Credentials  Since                    Silent  Caches  Writes  Locks  Waiting
----------------------------------------------------------------------------------------------------------------
web1    10.9.0.8  /mnt/web    4242  client web1  2000-02-29 00:00:00 UTC      1s      12       3      2        0
Number of clients connected: 1

Client connections for volume old
  volume old is not started",
    );
    assert_eq!(sessions(&[]), "No volumes present\n");
}

#[test]
fn tasks_are_shown_with_their_progress() {
    let task = |task, brick: Option<&str>, state| TaskReport {
        task,
        brick: brick.map(|name| name.parse().unwrap()),
        state,
        done: Some(5),
        left: None,
        copied_bytes: Some(1 << 20),
    };
    let all = vec![
        task(TaskKind::Rebalance, None, TaskState::Stopped),
        task(TaskKind::RemoveBrick, Some("node1:/b"), TaskState::InProgress),
    ];
    same(
        &tasks(&[TasksReport { name: "web".into(), tasks: all, trouble: None }]),
        "
Task Status of Volume web
Task                   Status       Done  Left    Copied
--------------------------------------------------------
Rebalance              stopped         5     -  1.00 MiB
Remove brick node1:/b  in progress     5     -  1.00 MiB",
    );
    let none = [TasksReport { name: "web".into(), tasks: Vec::new(), trouble: None }];
    same(&tasks(&none), "\nTask Status of Volume web\nThere are no active volume tasks");
}

#[test]
fn heal_summary_has_the_lines_of_glusterfs() {
    let report = HealReport {
        name: "web".into(),
        leader: "node1".into(),
        degraded: 7,
        scanning: false,
        examined: 0,
        left: 0,
        copied_blocks: 0,
        copied_bytes: 0,
        waiting: 0,
        failures: 1,
        last_error: None,
        bricks: vec![brick("node1:/srv/web")],
        losses: None,
    };
    same(
        &heal_summary(&report),
        "
Brick node1:/srv/web
Status: Connected

Total Number of entries: 7
Number of entries in heal pending: 7
Number of entries in split-brain: 0
Number of entries without a good copy: 1",
    );
    same(
        &split_brain(&report),
        "
Brick node1:/srv/web
Status: Connected
Number of entries in split-brain: 0",
    );
}

#[test]
fn scrub_status_shows_what_was_found_on_each_brick() {
    let scrub = |name: &str, trouble: Option<&str>, reading| BrickScrub {
        brick: name.parse().unwrap(),
        trouble: trouble.map(str::to_owned),
        reading,
        rounds: 1,
        finished: Some(951_782_400),
        blocks: 10,
        damaged: 1,
        repaired: 1,
        last_error: reading.then(|| "block 5 is damaged".to_owned()),
    };
    let bricks = vec![scrub("n1:/b", None, true), scrub("n2:/b", Some("its node does not answer"), false)];
    same(
        &scrubbing(&ScrubbingReport { name: "web".into(), paused: false, bricks }),
        "
Volume name: web
State of scrub: active

Brick  Now      Rounds  Last round ended         Blocks read  Damaged  Repaired
-------------------------------------------------------------------------------
n1:/b  reading       1  2000-02-29 00:00:00 UTC           10        1         1
n2:/b  unknown       1  2000-02-29 00:00:00 UTC           10        1         1
  n1:/b: block 5 is damaged
  n2:/b: its node does not answer",
    );
}

#[test]
fn cleared_locks_are_named_with_their_holders() {
    let lock = ClearedLock {
        granted: true,
        family: "fcntl".into(),
        exclusive: true,
        start: 0,
        end: None,
        pid: 17,
        client: "web1:/mnt/web (process 4)".into(),
    };
    let (name, path, locks) = ("web".to_owned(), "/box".to_owned(), vec![lock]);
    same(
        &cleared(&ClearedReport { name, path, granted_count: 3, blocked_count: 0, locks }),
        "
Volume clear-locks successful
web: /box: blocked locks=0 granted locks=3
  fcntl write lock, bytes 0 to end of file, held by process 17 of web1:/mnt/web (process 4)
  and 2 locks more",
    );
}

#[test]
fn option_help_explains_each_option() {
    let text = option_help(&known_options());
    assert!(text.starts_with("Option: auth.allow\nDefault Value: *\nDescription: addresses"), "{text}");
    assert!(text.contains("\n\nOption: scrub.state\nDefault Value: active\n"), "{text}");
}
