"""Every bound of the system on one page, with what Apache BookKeeper chose where it has the same one."""

from __future__ import annotations

FRAME_BYTES_MAX = 5_242_880
"""Largest frame, its 4-byte length prefix included. BookKeeper: nettyMaxFrameSizeBytes, the same."""

BATCH_READ_BYTES_MAX = 5_242_880
"""Largest answer to a batch read. BookKeeper: maxBatchReadSize, the same."""

RUN_ENTRIES_MAX = 1_024
"""Entries in one index run; bounds the work of one look-up and the size of one index value."""

SEGMENT_BYTES_MAX_DEFAULT = 1 << 30
"""Entry log segment at which the next one starts. BookKeeper: logSizeLimit, the same."""

CHECKPOINT_BYTES_DEFAULT = 256 << 20
"""Entry log bytes between two checkpoints: what a start after a crash has to read again, at most."""

RECORD_BODY_BYTES_MAX = 8 << 20
"""Largest body of a log record; more than a frame, so that every entry fits."""

FOOTER_LEDGERS_MAX = 65_536
"""Ledgers in one footer of a segment; more of them make more footers."""

OPEN_SEGMENTS_MAX = 64
"""Entry log segments that a disk keeps open for reading."""

LAST_ENTRIES_CACHED_MAX = 100_000
"""Ledgers whose last entry id an index keeps in memory."""
