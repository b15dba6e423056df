"""Every bound of the system on one page, with what Apache BookKeeper chose where it has the same one."""

from __future__ import annotations

FRAME_BYTES_MAX = 5_242_880
"""Largest frame, its 4-byte length prefix included. BookKeeper: nettyMaxFrameSizeBytes, the same."""

BATCH_READ_BYTES_MAX = 5_242_880
"""Largest answer to a batch read. BookKeeper: maxBatchReadSize, the same."""

EXTENT_ENTRIES_MAX = 1_024
"""Entries in one index run; bounds the work of one look-up and the size of one index value."""

SEGMENT_BYTES_MAX_DEFAULT = 1 << 30
"""Entry log segment at which the next one starts. BookKeeper: logSizeLimit, the same."""

CHECKPOINT_BYTES_DEFAULT = 256 << 20
"""Entry log bytes between two checkpoints: what a start after a crash has to read again, at most."""

RECORD_BODY_BYTES_MAX = 8 << 20
"""Largest body of a log record; more than a frame, so that every entry fits."""

FOOTER_LEDGERS_MAX = 65_536
"""Ledgers in one footer of a segment; more of them make more footers."""

INDEX_MEMORY_BYTES = 16 << 20
"""What the index of a disk keeps in memory of what it has not stored yet, 600,000 entries; then a checkpoint is due."""

RUN_CACHE_BYTES = 8 << 20
"""Stored runs of the index that a disk keeps in memory for readers."""

FRONTEND_HELD_BYTES_MAX = 128 << 20
"""What the front-end holds for all clients together, beside the batches on their way: parts of frames, and answers that
nobody takes. Reads are refused before it is reached; nothing passes it."""

DESCRIPTORS_MIN = 64
"""What any command takes: files of a ledger's bookies, a database, pipes to children."""

BOOKIE_DESCRIPTORS_MIN = 512
"""With fewer a bookie does not start: the front-end's own, LevelDB's and those of segments on a disk, and a few dozen
clients."""

DESCRIPTORS_WANTED = 16_384
"""One for each connection, and for segments and LevelDB's files of each disk. The unit asks for more."""

FRONTEND_DESCRIPTORS = 256
"""What the front-end keeps for itself of the descriptors that it may have; the rest is for connections."""

CONNECTION_UNSENT_BYTES_MAX = 32 << 20
"""Answers that wait for one client to take them; beyond it they come without entries, as too many requests."""

VISITORS_MAX = 1_024
"""Connections that have not proved yet who they are; one more makes the oldest go."""

OPEN_SEGMENTS_MAX = 64
"""Entry log segments that a disk keeps open for reading."""

LAST_ENTRIES_CACHED_MAX = 100_000
"""Ledgers whose last entry id an index keeps in memory."""

ZOOKEEPER_SESSION_TIMEOUT_S = 10.0
"""How long ZooKeeper keeps what is ephemeral after it last heard of its owner. BookKeeper: zkTimeout, the same."""

KNOWN_LACS_MAX = 100_000
"""Ledgers whose last add confirmed a disk keeps in memory."""

MIGRATION_PAUSE_MAX_S = 3.0
"""How long the front-end keeps requests for a ledger waiting while it moves from one disk to another. Clients wait for
five seconds and more."""

EXPLICIT_LAC_BYTES_MAX = 80
"""Largest explicit LAC packet: 16 bytes and a digest, of which BookKeeper's longest has 20."""

LONG_POLLS_MAX = 100_000
"""Long polls that wait on one disk; one more is answered at once."""

LONG_POLL_MS_MAX = 300_000
"""Longest wait of a long poll. BookKeeper has no bound, but its clients give up after seconds."""

DEFERRED_LEDGERS_MAX = 10_000
"""Ledgers with deferred adds that are remembered for one connection."""

SPIN_US = 50
"""How long the front-end and the workers look for more before they sleep."""

HOT_LEDGERS_MAX = 100_000
"""Open ledgers whose ordinary adds a disk worker takes without looking them up."""

SCRUB_STEP_BYTES = 256 << 10
"""What one step of a scrub reads at most, but for one large record. Adds wait while it does."""

READ_AHEAD_BYTES = 32 << 20
"""What a disk has asked for ahead of its readers and they have not read. BookKeeper: dbStorage_readAheadCacheMaxSizeMb,
a part of its memory; here it is the system's page cache."""

READ_AHEAD_STREAM_BYTES = 2 << 20
"""The same for one reader of one ledger. BookKeeper: dbStorage_readAheadCacheBatchSize, 100 entries."""

CATCH_UP_LEDGERS_MAX = 1_024
"""Ledgers whose readers a disk follows at once."""

CATCH_UP_CACHE_BYTES = 512 << 20
"""What a disk keeps in the page cache of what it brought there for readers that are behind."""

STALL_SHOWN_S = 3.0
"""A child process that neither answers, nor computes, nor waits for a disk for so long is shown as one that makes no
progress."""

SLOW_STALL_SHOWN_S = 10.0
"""The same for one that waits for its disk, computes without an answer, or starts."""

STALL_RESTART_S = 45.0
"""A child process that has neither answered, nor computed, nor waited for a disk for so long is killed and started
again. More than a slow sync takes, and less than a watchdog of a minute lets pass."""

BUSY_RESTART_S = 300.0
"""The same for one that computes without an answer."""

GC_THRESHOLDS = (50_000, 20, 50)
"""Thresholds of Python's collector where much comes and goes and little of it is part of a cycle."""
