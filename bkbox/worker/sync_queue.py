"""The syncs of a disk that run on a thread, one after another: the next one starts where the one before ends, without
a turn of the worker's loop in between, which may be in the middle of a large group.

One sync runs and one waits at most. Until it starts, the one that waits is extended to whatever is appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock

from bkbox.errors import DiskError
from bkbox.storage.disk.checkpointing import Sync


class SyncQueue:
    """``on_ended``: called on the thread, after each sync."""

    def __init__(self, on_ended: Callable[[], None]) -> None:
        self._on_ended = on_ended
        self._lock = Lock()
        self._is_idle = True
        self._waiting: Sync | None = None
        self._ended: deque[Sync] = deque()
        self._error: DiskError | None = None

    def extend(self, extend: Callable[[Sync], None]) -> bool:
        """Have the sync that waits extended; False if none does."""
        with self._lock:
            if self._waiting is None:
                return False
            extend(self._waiting)
            return True

    def put(self, sync: Sync) -> bool:
        """Add a sync; none waits. True if the caller has to have ``run`` called, on any thread."""
        with self._lock:
            self._waiting = sync
            was_idle, self._is_idle = self._is_idle, False
            return was_idle

    def run(self) -> None:
        """Run syncs until none waits."""
        while (sync := self.start_next()) is not None:
            self.run_started(sync)

    def start_next(self) -> Sync | None:
        """The sync that waits; from now on it is not extended any more. None if none waits."""
        with self._lock:
            sync, self._waiting = self._waiting, None
            self._is_idle = sync is None
            return sync

    def run_started(self, sync: Sync) -> None:
        """Run a sync that was started. After one that failed, all others fail without a run."""
        if self._error is None:
            sync.run()
        else:
            sync.fail(self._error)
        self._error = sync.error
        self._ended.append(sync)
        self._on_ended()

    def pop_ended(self) -> list[Sync]:
        """The syncs that have run since the last call, in order."""
        ended = []
        while self._ended:
            ended.append(self._ended.popleft())
        return ended
