//! The caller of a request, as far as the request does not describe it.

/// Whether a process is in a group. A process that is gone is in none.
///
/// The kernel decides this itself for everything but one case: whether setting an ACL costs the set-group-id
/// bit. It passes its verdict in a field that `fuser` 0.18 cannot read.
pub(crate) fn in_group(pid: u32, primary: u32, gid: u32) -> bool {
    primary == gid
        || std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| lists(&status, gid))
}

fn lists(status: &str, gid: u32) -> bool {
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    groups.is_some_and(|groups| groups.split_whitespace().any(|group| group.parse() == Ok(gid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supplementary_groups_count() {
        let status = "Name:\tx\nGid:\t7\t7\t7\t7\nGroups:\t4 24 1000 \nNStgid:\t1\n";
        assert!(lists(status, 24));
        assert!(!lists(status, 7));
        assert!(!lists("Groups:\t\n", 0));
        assert!(in_group(std::process::id(), 99, 99));
        assert!(!in_group(u32::MAX, 99, 98));
    }
}
