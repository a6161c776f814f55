//! Ordinary programs on a replicated volume, with a node dying in the middle.

use crate::harness::{Cluster, run, sh};

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
