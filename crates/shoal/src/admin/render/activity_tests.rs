use super::*;
use crate::admin::*;
use crate::profile::{OpReport, Profile, Profiled, Sizes};

#[track_caller]
fn same(text: &str, expected: &str) {
    let trimmed: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    assert_eq!(trimmed.trim_end(), expected.trim_start_matches('\n'));
}

fn mount() -> MountName {
    MountName { host: "web1".into(), mountpoint: Some("/mnt/web".into()), pid: Some(17) }
}

#[test]
fn profile_shows_sizes_latencies_and_bytes_of_each_interval() {
    let call = |name: &str, latency_log2: Vec<u64>, total_ns| {
        let earlier = OpReport::default();
        OpReport { name: name.into(), latency_log2, total_ns, ..OpReport::default() }.since(&earlier)
    };
    let mut size_log2 = vec![0; 13];
    size_log2[12] = 4;
    let mut latency = vec![0; 21];
    latency[20] = 3;
    latency[19] = 1;
    let operations = vec![call("put", latency, 6_000_000), call("get", vec![0, 4], 2_000_000)];
    let reads = Sizes { bytes: 7, size_log2: vec![0, 0, 1] };
    let writes = Sizes { bytes: 16384, size_log2 };
    let cumulative = Profile { duration_s: 60, reads, writes, operations, ..Profile::default() };
    let interval = Profile { duration_s: 5, ..Profile::default() };
    let profiled = Some(Profiled { cumulative, interval, interval_number: 2 });
    let brick =
        |name: &str, profiled, trouble| BrickProfile { brick: name.parse().unwrap(), profiled, trouble };
    let report = ProfileReport {
        name: "web".into(),
        bricks: vec![brick("n1:/b", profiled, None), brick("n2:/b", None, Some("away".into()))],
        mounts: Vec::new(),
        silent: vec![mount()],
        trouble: None,
    };
    same(
        &profile(&report, Shown::All),
        "
Brick: n1:/b
------------
Cumulative Stats:
   Block Size:          4b+       4096b+
 No. of Reads:            1            0
No. of Writes:            0            4

 %-latency     Avg-latency     Min-Latency     Max-Latency   No. of calls             Fop
 ---------     -----------     -----------     -----------   ------------             ---
     25.00       500.00 us         0.00 us         0.00 us              4             GET
     75.00      1500.00 us       524.29 us      2097.15 us              4             PUT

    Duration: 60 seconds
   Data Read: 7 bytes
Data Written: 16384 bytes

Interval 2 Stats:
    Duration: 5 seconds
   Data Read: 0 bytes
Data Written: 0 bytes

Brick: n2:/b
------------
away

Mount: web1:/mnt/web (process 17)
It has not answered: it hangs, or its program is older.",
    );
    let text = profile(&report, Shown::Interval);
    assert!(text.contains("Interval 2") && !text.contains("Cumulative"), "{text}");
}

#[test]
fn busiest_files_are_listed_by_mount_with_the_range_of_an_uncertain_count() {
    let file = |path: Option<&str>, count, over_max, bytes| TopFile {
        path: path.map(str::to_owned),
        inode: 44,
        count,
        over_max,
        bytes,
    };
    let files = vec![file(Some("/a/log"), 30, 0, 4_000_000), file(None, 20, 4, 2_000_000)];
    let mounts = vec![MountTop { mount: mount(), duration_s: 2, files }];
    let (operation, silent, trouble) = ("write".to_owned(), Vec::new(), None);
    let report = TopReport { name: "web".into(), operation, by_bytes: false, mounts, silent, trouble };
    same(
        &top(&report),
        "
Mount: web1:/mnt/web (process 17), counted for 2s
Count           filename
=======================
30              /a/log
16 to 20        (inode 44: removed, or not committed yet)",
    );
    same(
        &top(&TopReport { by_bytes: true, ..report.clone() }),
        "
Mount: web1:/mnt/web (process 17), counted for 2s
MBps    Bytes  Requests  Filename
------------------------------------------------------------------
2.00  4000000        30  /a/log
1.00  2000000        20  (inode 44: removed, or not committed yet)",
    );
    let none = TopReport { mounts: Vec::new(), ..report };
    assert_eq!(top(&none), "Volume web is not mounted anywhere\n");
}
