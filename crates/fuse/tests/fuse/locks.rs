use crate::volume::{Volume, printed};

#[test]
fn fcntl_locks_exclude_other_processes_and_end_with_close() {
    let volume = Volume::mount();
    let script = r#"
import fcntl, os, sys
a = open('file', 'w')
fcntl.lockf(a, fcntl.LOCK_EX, 10, 0)
def attempt(start):
    pid = os.fork()
    if pid == 0:
        try:
            fcntl.lockf(open('file', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, start)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert attempt(5) == 1, 'overlaps'
assert attempt(10) == 0, 'elsewhere'
a.close()
assert attempt(5) == 0, 'closed'
"#;
    printed(volume.shell(&format!("python3 -c \"{script}\"")));
}

#[test]
fn flock_excludes_other_openers() {
    let volume = Volume::mount();
    printed(volume.shell("touch file; flock file true"));
    let held = volume.shell("flock file flock -n file true");
    assert!(!held.status.success());
    printed(volume.shell("flock -s file flock -s -n file true"));
}
