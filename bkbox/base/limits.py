"""Every bound of the system on one page, with Apache BookKeeper's value if it has the same one."""

from __future__ import annotations

FRAME_BYTES_MAX = 5_242_880
"""Largest frame, its 4-byte length prefix included. BookKeeper: nettyMaxFrameSizeBytes, the same."""

BATCH_READ_BYTES_MAX = 5_242_880
"""Largest response to a batch read. BookKeeper: maxBatchReadSize, the same."""

EXTENT_ENTRIES_MAX = 1_024
"""Entries in one extent of the index; bounds the work of one look-up and the size of one index value."""

SEGMENT_BYTES_MAX_DEFAULT = 1 << 30
"""Entry log segment size at which the next one starts. BookKeeper: logSizeLimit, the same."""

CHECKPOINT_BYTES_DEFAULT = 256 << 20
"""Entry log bytes between two checkpoints: the most that a start after a crash has to read again."""

RECORD_BODY_BYTES_MAX = 8 << 20
"""Largest body of a log record; more than a frame, so that every entry fits."""

FOOTER_LEDGERS_MAX = 65_536
"""Ledgers in one footer of a segment; more of them make more footers."""

INDEX_MEMORY_BYTES = 16 << 20
"""Memory of a disk's index for entries not stored yet, 600,000 of them; then a checkpoint is due."""

RUN_CACHE_BYTES = 8 << 20
"""Memory of a disk for stored extents of the index, cached for readers."""

FRONTENDS_MAX = 8
"""Front-end processes of one bookie."""

RESPONSE_SLOT_WAIT_S = 3.0
"""How long a worker waits for one of several front-ends to release a slot for responses. It then closes that link: the
other front-ends wait meanwhile.
"""

FRONTEND_BUFFERED_BYTES_MAX = 128 << 20
"""Bytes that the front-end buffers for all clients together, beside the batches in flight: partial frames, and unsent
responses. Reads are refused before it is reached; nothing exceeds it. Several front-ends share it out.
"""

DESCRIPTORS_MIN = 64
"""Descriptors for any command: files of a ledger's bookies, a database, pipes to children."""

BOOKIE_DESCRIPTORS_MIN = 512
"""The minimum of descriptors for a bookie to start: the front-end's own, LevelDB's and those of segments on a disk,
and a few dozen clients.
"""

DESCRIPTORS_TARGET = 16_384
"""Descriptors for connections, and for segments and LevelDB's files of each disk. The systemd unit sets more."""

FRONTEND_DESCRIPTORS = 256
"""Descriptors that the front-end reserves for itself; the rest is for connections."""

CONNECTION_UNSENT_BYTES_MAX = 32 << 20
"""Unsent responses of one connection, in bytes; beyond it reads are answered without entries, as too many requests."""

UNAUTHENTICATED_MAX = 1_024
"""Unauthenticated connections; one more closes the oldest. Several front-ends share them out."""

OPEN_SEGMENTS_MAX = 64
"""Entry log segments that a disk keeps open for reading."""

LAST_ENTRIES_CACHED_MAX = 100_000
"""Ledgers whose last entry id an index keeps in memory."""

METADATA_SESSION_TIMEOUT_S = 10.0
"""Session time-out of ZooKeeper and Oxia, after which ephemeral nodes vanish. BookKeeper: zkTimeout, the same."""

KNOWN_LACS_MAX = 100_000
"""Ledgers whose last add confirmed a disk keeps in memory."""

MIGRATION_PAUSE_MAX_S = 3.0
"""How long the front-end pauses requests for a ledger while it migrates from one disk to another. Clients wait for
five seconds and more.
"""

EXPLICIT_LAC_BYTES_MAX = 80
"""Largest explicit LAC packet: 16 bytes and a digest, of which BookKeeper's longest has 20."""

LONG_POLLS_MAX = 100_000
"""Long polls that wait on one disk; one more is answered at once."""

LONG_POLL_MS_MAX = 300_000
"""Longest wait of a long poll. BookKeeper has no bound, but its clients give up after seconds."""

DEFERRED_LEDGERS_MAX = 10_000
"""Ledgers with deferred adds that are remembered for one connection."""

SPIN_US = 50
"""Time for which the front-end and the workers poll before they sleep."""

HOT_LEDGERS_MAX = 100_000
"""Open ledgers whose normal adds a disk worker takes without a look-up."""

SCRUB_STEP_BYTES = 256 << 10
"""Bytes that one step of a scrub reads at most, except one larger record. Adds wait meanwhile."""

READ_AHEAD_BYTES = 32 << 20
"""Bytes that a disk has requested ahead of its readers and they have not read. BookKeeper:
dbStorage_readAheadCacheMaxSizeMb, a part of its memory; here it is the system's page cache.
"""

READ_AHEAD_STREAM_BYTES = 2 << 20
"""The same for one reader of one ledger. BookKeeper: dbStorage_readAheadCacheBatchSize, 100 entries."""

CATCH_UP_LEDGERS_MAX = 1_024
"""Ledgers whose readers a disk tracks at once."""

CATCH_UP_CACHE_BYTES = 512 << 20
"""Bytes that a disk keeps in the page cache for catch-up readers."""

STALL_SHOWN_S = 0.75
"""A child process that neither responds, nor computes, nor waits for a disk for so long is reported as making no
progress.
"""

SPIN_SHOWN_S = 1.0
"""The same for one whose main thread has computed for so long since its last response. This is processor time, of which
a busy host gives it less: it is not called hung for that.
"""

SLOW_STALL_SHOWN_S = 10.0
"""The same for one that waits for its disk, or for a processor, or starts."""

STALL_LASTS_S = 3.0
"""The bookie takes no new ledgers, and the log has a line, once a child has neither responded, nor computed, nor waited
for a disk for so long; of other stalls after SLOW_STALL_SHOWN_S.
"""

STALL_RESTART_S = 45.0
"""A child process that has neither responded, nor computed, nor waited for a disk for so long is killed and
restarted. Longer than a slow sync, and shorter than a watchdog of a minute.
"""

BUSY_RESTART_S = 300.0
"""The same for one that computes without a response."""

GC_THRESHOLDS = (50_000, 20, 50)
"""Thresholds of Python's garbage collector for processes with many short-lived objects, few of them part of a cycle."""
