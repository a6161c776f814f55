//! What the named numbers of processes mean.

/// Names, as processes tell them, and meanings.
const MEANINGS: &[(&str, &str)] = &[
    ("apply_microseconds_total", "Time spent applying log entries to the state."),
    ("background_collected_blocks_total", "Blocks without references that were deleted."),
    ("background_compacted_blocks_total", "Blocks into which small writes were put together."),
    ("background_compacted_bytes_total", "Bytes of these blocks."),
    ("background_reap_steps_total", "Steps of deleting removed files."),
    ("background_steps_total", "Steps of background work on the namespace."),
    ("background_swept_blocks_total", "Stored blocks that no batch had named and that were deleted."),
    ("blocks_cache_hits_total", "Reads of blocks answered from memory."),
    ("blocks_get_bytes_total", "Bytes of blocks read from bricks."),
    ("blocks_get_total", "Reads of blocks from bricks."),
    ("blocks_get_waits_total", "Reads of blocks that waited for bricks that did not answer."),
    ("blocks_located_total", "Times that the server was asked where blocks are."),
    ("blocks_put_bytes_total", "Bytes of blocks stored on bricks."),
    ("blocks_put_total", "Blocks stored on bricks."),
    ("blocks_put_waits_total", "Stores of blocks that waited for bricks that did not answer."),
    ("blocks_read_bytes_total", "Bytes of blocks that reads returned."),
    ("cache_bytes", "Metadata and small contents in the mount's cache."),
    ("cache_inodes", "Inodes in the mount's cache."),
    ("client_acquires_total", "Requests for rights to change something."),
    ("client_hits_total", "Calls answered from memory."),
    ("client_listings_total", "Pages of directories requested from the server."),
    ("client_lookups_total", "Names, inodes and pages of extents requested from the server."),
    ("client_misses_total", "Times that a call had to fetch something, or to wait."),
    ("client_recalls_total", "Rights that were given back for other clients."),
    ("granted_bytes", "Room that sessions have been granted and have not used."),
    ("journal_age_ms", "Age of the oldest operation that is not committed yet."),
    ("journal_batches_total", "Batches of the journal sent."),
    ("journal_bytes_total", "Bytes of these batches."),
    ("journal_cancelled_total", "Operations that others undid before they were sent."),
    ("journal_merged_total", "Operations merged into earlier ones."),
    ("journal_operations_total", "Operations recorded in the journal."),
    ("journal_syncs_total", "Calls of fsync that had something to wait for."),
    ("journal_uncommitted_batches", "Batches of the journal that are not committed yet."),
    ("journal_uncommitted_bytes", "Bytes of operations and blocks that are not committed yet."),
    ("kernel_inodes", "Inodes that the kernel refers to."),
    ("lease_recalls_total", "Rights recalled from sessions."),
    ("lease_rights", "Rights that sessions hold."),
    ("lease_undeclared", "Sessions that have not told the new leader what they hold."),
    ("lease_waiting", "Requests that wait for recalls."),
    ("local_brick_read_bytes_total", "Bytes of blocks read from files of bricks on the mount's machine."),
    ("local_brick_reads_total", "Reads of blocks from files of bricks on the mount's machine."),
    ("locks", "Locks of programs, and of files that they may map."),
    ("locks_held", "Locks of the mount: of its programs, and of files that they may map."),
    ("locks_waiting", "Requests for locks that wait."),
    ("memory_blocks_bytes", "Memory of the cache of blocks, with what was read ahead."),
    ("memory_buffers_bytes", "Memory of buffers for disks that are kept to be used again."),
    ("memory_inodes_bytes", "Memory for inodes that the kernel refers to."),
    ("memory_limit_bytes", "The process's budget of memory for buffers and caches."),
    ("memory_metadata_bytes", "Memory of the cache of metadata and small contents."),
    ("memory_requests_bytes", "Memory of writes that wait."),
    ("memory_store_bytes", "Memory of the store's block cache and of its memtables."),
    ("memory_transfers_bytes", "Memory of blocks that are being fetched or written to a brick."),
    ("memory_used_bytes", "What all uses have of that budget."),
    ("memory_writes_bytes", "Memory of what was written and is not committed yet."),
    ("meta_batches_resent_total", "Batches sent once more to another leader."),
    ("meta_batches_unanswered", "Batches that no leader has answered yet."),
    ("meta_failovers_total", "Times that another metadata leader was found."),
    ("meta_stall_ms_max", "Longest time without a metadata leader."),
    ("net_received_bytes_total", "Bytes received from servers."),
    ("net_requests_total", "Requests to servers."),
    ("net_sent_bytes_total", "Bytes sent to servers."),
    ("proposals_under_way", "Batches that are being replicated or applied."),
    ("proposed_bytes_under_way", "Bytes of these batches."),
    ("raft_applied_index", "Index of the last applied log entry."),
    ("raft_committed_index", "Index of the last committed log entry."),
    ("raft_leads_total", "Times that the replica became the leader."),
    ("raft_log_bytes", "Bytes of log entries that are kept."),
    ("raft_log_disk_bytes", "Size of the log on disk."),
    ("raft_log_flushes_total", "Times that the log was made durable."),
    ("raft_proposals_total", "Batches proposed to the group."),
    ("raft_proposed_bytes_total", "Bytes of these batches."),
    ("raft_term", "Raft's term."),
    ("raft_voters", "Members of the group that vote."),
    ("room_granted_bytes", "Room on the volume that the mount has been granted."),
    ("sessions", "Sessions of mounts."),
    ("sessions_ended_total", "Sessions of the mount that the servers have ended."),
    ("store_blob_bytes", "Values of the store on disk."),
    ("store_blob_garbage_bytes", "Deleted values of the store that still take room."),
    ("store_cache_bytes", "Memory of the store's block cache."),
    ("store_cache_bytes_max", "Limit of the store's block cache."),
    ("store_compaction_pending_bytes", "Bytes that the store has to compact."),
    ("store_flushes_total", "Times that the store was made durable."),
    ("store_memtable_bytes", "Changes of the store that are in memory only."),
    ("store_reclaims_total", "Times that room of deleted values was reclaimed."),
    ("store_table_bytes", "Tables of the store on disk."),
    ("walk_ahead_bytes", "Metadata fetched ahead of programs that walk through trees, not used yet."),
    ("walk_directories_total", "Directories fetched ahead."),
    ("walk_directories_used_total", "Directories fetched ahead that were used."),
    ("walk_requests_total", "Requests for directories ahead."),
];

/// What a number means.
pub fn help(name: &str) -> &'static str {
    let found = MEANINGS.binary_search_by_key(&name, |(name, _)| name);
    found.ok().and_then(|at| MEANINGS.get(at)).map_or(UNKNOWN, |(_, help)| help)
}

/// For a number of a process of another version.
pub const UNKNOWN: &str = "A figure that this version of shoal metrics does not know.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_are_found() {
        assert!(MEANINGS.is_sorted_by_key(|(name, _)| name));
        for (name, meaning) in MEANINGS {
            assert_eq!(help(name), *meaning);
        }
        assert_eq!(help("other"), UNKNOWN);
    }
}
