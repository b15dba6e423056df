"""The durability of an entry log or a journal, which is that of the segments it appends to."""

from __future__ import annotations

from bkbox.storage.log.segmented_log import LogSync, SegmentLog


class DurableLog:
    """A log that can be synced and proven; see SegmentLog."""

    def __init__(self, log: SegmentLog) -> None:
        self._log = log

    @property
    def failed(self) -> str | None:
        """The reason why nothing can be written any more; None while it can."""
        return self._log.failed

    @property
    def is_durable(self) -> bool:
        """True if everything appended is durable."""
        return self._log.is_durable

    @property
    def is_proven(self) -> bool:
        """See SegmentLog."""
        return self._log.is_proven

    def prove(self) -> None:
        """See SegmentLog."""
        self._log.prove()

    @property
    def durable_end(self) -> tuple[int, int, int]:
        """See SegmentLog."""
        return self._log.durable_end

    def set_generation(self, generation: int) -> None:
        """Set the generation of the start that appends."""
        self._log.generation = generation

    def begin_sync(self) -> LogSync:
        """See SegmentLog."""
        return self._log.begin_sync()

    def extend_sync(self, sync: LogSync) -> None:
        """See SegmentLog."""
        self._log.extend_sync(sync)

    def end_sync(self, sync: LogSync) -> None:
        """See SegmentLog."""
        self._log.end_sync(sync)
