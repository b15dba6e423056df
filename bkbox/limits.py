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
