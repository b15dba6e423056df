"""Reasons why keys of Java's bk_server.conf have no counterpart, by name or by prefix of the name."""

from __future__ import annotations

import re

_REASONS: tuple[tuple[str, str], ...] = (
    (
        r"tls.*|.*Auth.*|authorizedRoles|permittedStartupUsers|passwd|clientRole|zkEnableSecurity",
        "TLS, authentication, roles and ZooKeeper's ACLs have other keys here, and are off until these are set: tls, "
        "auth, roles, and ?secret_file= in metadata (docs/security.md)",
    ),
    (
        r"num.*Threads|serverNum.*|.*PerThread|readWorkerThreads.*|max(Adds|Reads)InProgress.*|enableBusyWait"
        r"|enableTaskExecutionStats|executorMetrics.*",
        "there are no pools of threads: one process for the network, one for each disk",
    ),
    (
        r"(server(Tcp|Sock|WriteBuffer)|closeChannel|maxBatchRead|byteBuf|allocator|nettyEventLoop|netty).*|bookieGetBookieInfo.*",
        "the network part has nothing to tune beyond frame_bytes_max and connection_inflight_bytes_max",
    ),
    (
        r"listeningInterface|useHostNameAsBookieID|useShortHostName|allowLoopback|allowEphemeralPorts"
        r"|enableLocalTransport|disableServerSocketBind",
        "listen, advertised_host and bookie_id say by themselves where the bookie is and what it is called",
    ),
    (
        r"requestTimer.*|waitTimeoutOnResponse.*",
        "long polls end at the deadline that their client names; nothing ticks",
    ),
    (
        r"journal.*",
        "the journal, where there is one, groups, sizes and removes its files by itself",
    ),
    (
        r"dataIntegrity.*",
        "always on: a bookie that may have lost something fences, goes into limbo and repairs",
    ),
    (
        r"ledgerStorageClass|sortedLedgerStorage.*|dbStorage_.*|entryLocation.*|ledgerMetadataRocksdbConf|.*[Rr]ocks.*"
        r"|skipList.*|page(Limit|Size)|openFileLimit|fileInfo.*|indexDirectories|numOfMemtable.*|readBufferSizeBytes"
        r"|writeBufferSizeBytes|readAhead.*",
        "there is one storage, an entry log for each disk and its index beside it, in bounded memory",
    ),
    (
        r"flushInterval|flushEntrylogBytes|entryLog.*|entrylog.*|maximumNumberOfActiveEntryLogs|minUsable.*"
        r"|allowMultipleDirs.*",
        "segments and checkpoints are made by bytes: segment_bytes_max, checkpoint_bytes, disk_reserve_bytes",
    ),
    (
        r"diskCheckInterval|diskUsage.*|readOnlyMode.*|forceReadOnlyBookie|persistBookieStatusEnabled"
        r"|bookieDeathWatchInterval",
        "each disk is watched by its own process, and a full one alone takes no more: disk_usage_max",
    ),
    (
        r"gc.*|.*[Cc]ompaction.*|useTargetEntryLogSizeForGc|verifyMetadataOnGC|isForceGC.*|isThrottleByBytes",
        "space is reclaimed by jobs of bkbox's own: gc_interval_s, compaction_garbage_ratio, jobs_...",
    ),
    (
        r"http.*",
        "the admin API is a unix socket; over TCP it wants a token: http_listen, http_token_file, http_tls",
    ),
    (
        r".*[Ss]tats.*|enableStatistics|prometheus.*|codahale.*|exposeDefaultJVMMetrics|sanityCheckMetrics.*",
        "figures are in the status document: `bkbox status -o json`",
    ),
    (
        r"zkTimeout|zkRetry.*|zkRequestRateLimit|zkReplicationTask.*",
        "sessions and retries are bkbox's own; metadata_wait_s and metadata_lost_s bound them",
    ),
    (
        r"ledgerManager.*|registrationManagerClass|allowShaded.*|shadedLedger.*|metadata.*",
        "the layout is a part of the URI in metadata",
    ),
    (
        r"autoRecovery.*|auditor.*|lostBookieRecoveryDelay|openLedgerRereplication.*|rwRereplicate.*"
        r"|storeSystemTime.*|underreplicated.*|replication.*|reReplication.*|inFlightReadEntry.*|lockRelease.*|repairedPlacement.*",
        "an auditor and a replication worker of bkbox's own do this: see the keys autorecovery_...",
    ),
    (
        r"ensemblePlacement.*|repp.*|network.*|minNum.*|enforceMin.*|.*Resolver.*|stickyRead.*|reorderRead.*"
        r"|enableDigestType.*|digestType",
        "a matter of clients; recoveries of bkbox place by racks and free space: topology_script, rack_map",
    ),
    (
        r"extraServerComponents|ignoreExtra.*|storage\..*|storageserver\..*|dlog\..*",
        "bkbox runs no components of others",
    ),
    (r"allowStorageExpansion", "`bkbox cookie repair` takes in new disks, and says so first"),
    (
        r"localScrub.*|localConsistency.*",
        "scrubs are jobs, and bounded as such: scrub_interval_s, jobs_...",
    ),
)


def reason_for(key: str) -> str:
    """The reason why the key has no counterpart."""
    for pattern, reason in _REASONS:
        if re.fullmatch(pattern, key):
            return reason
    return "bkbox does not know this key"
