//! Ordinary programs on a replicated volume, with a node dying in the middle.

use crate::harness::{Cluster, Mount, run, sh};
use std::fs::File;
use std::os::unix::fs::FileExt;

#[test]
fn git_sqlite_and_tar_do_not_notice_that_a_node_dies() {
    let mut cluster = Cluster::with_volume(3);
    let mount = cluster.mount();
    let script = "
        mkdir -p src && for i in $(seq 300); do echo \"int f$i(void) { return $i; }\" >src/f$i.c; done
        git init -q repo && cp -r src repo/ && cd repo
        git -c user.name=t -c user.email=t@t add . && git -c user.name=t -c user.email=t@t commit -qm one
        for i in $(seq 20); do
            echo $i >>log && git add log && git -c user.name=t -c user.email=t@t commit -qm $i
            sqlite3 ../db 'create table if not exists t(x); insert into t values('$i')'
        done
        git fsck --strict && cd .. && tar cf src.tar src && tar df src.tar
        test $(sqlite3 db 'select count(*) from t') = 20 && sqlite3 db 'pragma integrity_check' | grep -qx ok";
    let work = sh(mount.path(), script).limit(240).start();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let leader = cluster.leader(1);
    cluster.kill(leader);
    work.wait().ok();
    cluster.start(leader);
    mount.unmount();
    let mount = cluster.mount();
    run("git").arg("-C").arg(mount.path().join("repo")).arg("fsck").arg("--strict").ok();
    run("tar").arg("df").arg("src.tar").dir(mount.path()).ok();
    mount.unmount();
}

/// Writes as a virtual machine does to its disk image: each piece is short enough to be stored inline.
#[test]
fn a_file_of_many_small_pieces_is_read_on_another_host() {
    const PIECES: u64 = 1100;
    const PIECE_BYTES: usize = 32 << 10;
    let cluster = Cluster::with_volume(3);
    let local = cluster.local().join("image");
    let mounts = [cluster.mount_on(0), cluster.mount_on(1)];
    for path in [&local, &mounts[0].path().join("image")] {
        let file = File::create(path).expect("it can be made");
        for piece in 0..PIECES {
            let bytes = vec![piece as u8 + 1; PIECE_BYTES];
            // A hole of equal length follows each piece, so that none of them touch.
            file.write_all_at(&bytes, 2 * piece * PIECE_BYTES as u64).expect("it can be written");
        }
        file.sync_all().expect("it is durable");
    }
    run("cmp").arg(&local).arg(mounts[1].path().join("image")).limit(60).ok();
    mounts.into_iter().for_each(Mount::unmount);
}
